//! The rows of filters that were read last, in bounded memory.
//!
//! Hashes of new names are spread evenly, so no row is more useful than another: a row simply replaces the one that has
//! its slot. Each slot has its own lock.
//!
//! Not a crate: `quick_cache` and `moka` keep an order of use, which gains nothing here and costs memory for each row.

use std::sync::{Mutex, PoisonError};

use super::filter::{FilterPlace, FilterRow};

/// The row of a group, as of one content of the archive.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RowKey {
    /// Rises when the content is replaced: numbers of groups are then used again.
    pub(super) generation: u64,
    pub(super) group: u32,
    pub(super) cell: u32,
}

type Slot = Mutex<Option<(RowKey, FilterRow)>>;

pub(super) struct RowCache {
    slots: Vec<Slot>,
}

impl RowCache {
    pub(super) fn new(rows: usize) -> RowCache {
        RowCache { slots: (0..rows.max(1)).map(|_| Slot::default()).collect() }
    }

    fn slot(&self, key: RowKey) -> &Slot {
        let mixed = (u64::from(key.group) << 32 | u64::from(key.cell))
            .wrapping_add(key.generation)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Below the number of slots, which fits.
        &self.slots[((u128::from(mixed) * self.slots.len() as u128) >> 64) as usize]
    }

    /// The runs of a group that may have the hash of a place, if its row is here.
    pub(super) fn runs(&self, key: RowKey, place: FilterPlace) -> Option<u64> {
        let slot = self.slot(key).lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().filter(|(of, _)| *of == key).map(|(_, row)| row.runs(place))
    }

    pub(super) fn insert(&self, key: RowKey, row: FilterRow) {
        *self.slot(key).lock().unwrap_or_else(PoisonError::into_inner) = Some((key, row));
    }
}
