//! Units of credits in events, and their sums.

use fefo::Span;
use smallvec::SmallVec;

use crate::credits::Credits;
use crate::ledger::id::BucketNo;

/// Consecutive units of one bucket.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// The bucket.
    pub bucket: BucketNo,
    /// The units on its line.
    pub span: Span,
}

/// Units of one or more buckets, in the order in which they were drawn.
pub type Pieces = SmallVec<[Piece; 2]>;

/// The number of units of pieces together.
pub fn total(pieces: &[Piece]) -> u64 {
    // Pieces of one draw never add up to more than one amount, which fits in 63 bits.
    pieces.iter().map(|piece| piece.span.len()).sum()
}

/// The credits of all parts of a movement together.
pub fn credits_of<'a>(parts: impl IntoIterator<Item = &'a Pieces>) -> Credits {
    let units = parts.into_iter().map(|pieces| total(pieces)).fold(0, u64::saturating_add);
    Credits::from_length(units).unwrap_or(Credits::MAX)
}

/// An amount of one slice of a hold.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceAmount {
    /// The place of the slice in its hold.
    pub slice: u32,
    /// How many units of it.
    pub amount: u64,
}

impl SliceAmount {
    /// The amounts of several slices of one hold together.
    pub fn total(slices: &[SliceAmount]) -> u64 {
        // They are parts of the hold's amount, which fits in 63 bits.
        slices.iter().map(|slice| slice.amount).sum()
    }
}
