//! Step functions over time: the free amount of a bucket, amounts of an account that change seldom.
//!
//! A row is keyed by its first instant. It encodes each level as the difference from the one
//! before. One slice of the journal adds one row, or several if there are many levels. If a slice
//! begins at the last instant of the slice before, its level replaces the earlier one.

use crate::blocks::{Bytes, write_length, write_sum};
use crate::error::HistoryError;

/// The maximum number of instants in one row.
pub(crate) const MAX_IN_A_ROW: usize = 256;

/// An amount of an account that is kept over time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccountLevel {
    /// Usage for which no credits were found.
    Uncollected,
    /// Its own credits that are available, held or spent.
    Funded,
    /// Its own credits that expired.
    Expired,
}

impl AccountLevel {
    /// The key of the level of an account.
    pub(crate) fn key(self, account: u32) -> i64 {
        let which = match self {
            AccountLevel::Uncollected => 0,
            AccountLevel::Funded => 1,
            AccountLevel::Expired => 2,
        };
        i64::from(account) * 4 + which
    }
}

/// An instant in milliseconds, and the level from then on.
pub(crate) type Level = (i64, i128);

/// Encodes levels, in order of time. The first instant is not included.
pub(crate) fn encode(levels: &[Level]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * levels.len());
    let (mut before, mut level_before) = (levels.first().map_or(0, |(at, _)| *at), 0);
    for (place, (at, level)) in levels.iter().enumerate() {
        if place > 0 {
            write_length(&mut bytes, at.wrapping_sub(before).cast_unsigned());
        }
        write_sum(&mut bytes, level.wrapping_sub(level_before));
        (before, level_before) = (*at, *level);
    }
    bytes
}

/// The level at an instant, in a row that begins at or before it.
pub(crate) fn level_at(first: i64, bytes: &[u8], at: i64) -> Result<i128, HistoryError> {
    let mut bytes = Bytes(bytes);
    let (mut instant, mut level) = (first, bytes.sum()?);
    while !bytes.0.is_empty() {
        instant = instant.saturating_add_unsigned(bytes.length()?);
        if instant > at {
            break;
        }
        level = level.wrapping_add(bytes.sum()?);
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instant_has_the_last_level_before_it() {
        let levels = [(-5, 7), (0, i128::MAX), (3, 0), (1_700_000_000_000, -9), (i64::MAX, 4)];
        let bytes = encode(&levels);
        for (at, level) in levels {
            assert_eq!(level_at(-5, &bytes, at), Ok(level));
        }
        assert_eq!(level_at(-5, &bytes, 2), Ok(i128::MAX));
        assert_eq!(level_at(-5, &bytes, 1_800_000_000_000), Ok(-9));
        assert!(level_at(-5, &bytes[..bytes.len() - 1], i64::MAX).is_err());
        assert!(level_at(0, &[], 0).is_err());
    }
}
