//! Bloom filters with about one false positive in 500.
//!
//! Each run has a filter. The filters of a group of runs are stored transposed (bit-sliced): a *row* holds one cell of
//! every filter in the group, and each word of a row holds one bit of that cell for every run. One read of a row, of
//! which six words are used, says which of up to 64 runs may contain a hash.
//!
//! Not a crate: those for Bloom filters (`bloomfilter`, `fastbloom`) hold one filter in memory and cannot be stored
//! transposed. With them a look-up of a new name would read one row for each run instead of one for each group of 64.
//! Measured in memory, 64 runs of 65 536 hashes with 16 bits each, three rounds: `fastbloom` 0.14 12 to 18 µs for one
//! name, rows 0.1 to 0.2 µs. It would add seven crates.

use super::block::{damaged, sealed, verified};
use crate::error::JournalError;

/// Bits for each entry.
const BITS_EACH: usize = 16;
/// The bits of one cell. All bits of an entry are in one cell. Two rows with their digests fit into a page of 8 kB.
const CELL_BITS: usize = 480;
const PROBES: usize = 6;
/// The most runs of a group: the bits of a word.
pub(super) const GROUP_RUNS: usize = 64;

/// Where the bits of a hash are, in filters with a number of cells.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterPlace {
    pub(super) cell: u32,
    bits: [u16; PROBES],
}

impl FilterPlace {
    pub(super) fn of(hash: u64, cells: u32) -> FilterPlace {
        // Below the number of cells, which fits.
        let cell = ((u128::from(hash) * u128::from(cells)) >> 64) as u32;
        let mixed = (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = |probe: usize| (((mixed >> (10 * probe) & 1023) * CELL_BITS as u64) >> 10) as u16;
        FilterPlace { cell, bits: std::array::from_fn(bit) }
    }
}

/// A filter of a fixed set of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashFilter {
    cells: u32,
    words: Vec<u64>,
}

impl HashFilter {
    /// The cells of a filter for this many hashes.
    pub fn cells_for(entries: usize) -> u32 {
        let cells = (entries * BITS_EACH).div_ceil(CELL_BITS).max(1);
        u32::try_from(cells).expect("a run has fewer than a billion entries")
    }

    /// The filter of these hashes.
    pub fn of(hashes: impl Iterator<Item = u64>, cells: u32) -> HashFilter {
        let words = (cells as usize * CELL_BITS).div_ceil(64);
        let mut filter = HashFilter { cells, words: vec![0; words] };
        for hash in hashes {
            let place = FilterPlace::of(hash, cells);
            for bit in place.bits {
                let bit = place.cell as usize * CELL_BITS + usize::from(bit);
                filter.words[bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    /// How many cells it has.
    pub fn cells(&self) -> u32 {
        self.cells
    }

    fn has(&self, cell: u32, bit: usize) -> bool {
        let bit = cell as usize * CELL_BITS + bit;
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Whether it may have a hash.
    pub fn may_contain(&self, hash: u64) -> bool {
        let place = FilterPlace::of(hash, self.cells);
        place.bits.iter().all(|bit| self.has(place.cell, usize::from(*bit)))
    }

    /// Its stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.words.iter().flat_map(|word| word.to_le_bytes());
        sealed(self.cells.to_le_bytes().into_iter().chain(words).collect())
    }

    /// The inverse of [`HashFilter::to_bytes`].
    ///
    /// # Errors
    /// The bytes are not those of a filter.
    pub fn from_bytes(bytes: &[u8]) -> Result<HashFilter, JournalError> {
        let whole = verified(bytes, "a filter")?;
        let cut = || damaged("a filter", "it is cut off");
        let (cells, words) = whole.split_first_chunk::<4>().ok_or_else(cut)?;
        let cells = u32::from_le_bytes(*cells);
        let (words, rest) = words.as_chunks::<8>();
        let expected = (cells as usize * CELL_BITS).div_ceil(64);
        if cells == 0 || words.len() != expected || !rest.is_empty() {
            return Err(cut());
        }
        let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok(HashFilter { cells, words })
    }
}

/// One cell of the filters of a group: a word for each bit, with a bit for each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterRow(Box<[u64]>);

impl FilterRow {
    /// One cell of filters with equally many cells.
    pub(super) fn of(filters: &[&HashFilter], cell: u32) -> FilterRow {
        let words = (0..CELL_BITS).map(|bit| {
            let runs = filters.iter().enumerate();
            runs.fold(0, |word, (run, filter)| word | u64::from(filter.has(cell, bit)) << run)
        });
        FilterRow(words.collect())
    }

    /// The runs that may have the hash of a place, a bit for each.
    pub(super) fn runs(&self, place: FilterPlace) -> u64 {
        place.bits.iter().fold(u64::MAX, |runs, bit| runs & self.0[usize::from(*bit)])
    }

    /// Its stored form. The digest covers its place too, so that another row is not taken for it.
    pub(super) fn to_bytes(&self, group: u32, cell: u32) -> Vec<u8> {
        let mut bytes = place_bytes(group, cell);
        bytes.extend(self.0.iter().flat_map(|word| word.to_le_bytes()));
        sealed(bytes).split_off(8)
    }

    /// The inverse of [`FilterRow::to_bytes`].
    pub(super) fn from_bytes(
        bytes: &[u8],
        group: u32,
        cell: u32,
    ) -> Result<FilterRow, JournalError> {
        let mut placed = place_bytes(group, cell);
        placed.extend_from_slice(bytes);
        let (words, rest) = verified(&placed, "a row of its filters")?[8..].as_chunks::<8>();
        if words.len() != CELL_BITS || !rest.is_empty() {
            return Err(damaged("a row of its filters", "it is cut off"));
        }
        Ok(FilterRow(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }
}

fn place_bytes(group: u32, cell: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + CELL_BITS * 8 + 16);
    bytes.extend(group.to_le_bytes());
    bytes.extend(cell.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        u64::from_le_bytes(*blake3::hash(&number.to_le_bytes()).as_bytes().first_chunk().unwrap())
    }

    fn filter(from: u64, count: usize) -> HashFilter {
        let hashes = (from..from + count as u64).map(hash);
        HashFilter::of(hashes, HashFilter::cells_for(count))
    }

    #[test]
    fn a_filter_has_all_its_hashes_and_few_others() {
        for count in [0usize, 1, 100, 50_000] {
            let filter = filter(0, count);
            assert!((0..count).all(|number| filter.may_contain(hash(number as u64))));
            let others = (0..100_000).filter(|n| filter.may_contain(hash(1 << 40 | n))).count();
            assert!(others < 400, "{others} of 100000 others are taken for one of {count}");
            let bytes = filter.to_bytes();
            assert_eq!(HashFilter::from_bytes(&bytes).unwrap(), filter);
            assert!(HashFilter::from_bytes(&bytes[1..]).is_err());
        }
        assert!(HashFilter::from_bytes(&[]).is_err());
    }

    #[test]
    fn a_row_says_of_every_run_what_its_filter_says() {
        let filters: Vec<HashFilter> =
            (0..GROUP_RUNS as u64).map(|n| filter(n << 20, 500)).collect();
        let (all, cells) = (filters.iter().collect::<Vec<_>>(), filters[0].cells());
        let rows: Vec<FilterRow> = (0..cells).map(|cell| FilterRow::of(&all, cell)).collect();
        for number in (0..GROUP_RUNS as u64).flat_map(|n| (n << 20)..(n << 20) + 600) {
            let place = FilterPlace::of(hash(number), cells);
            let stored = rows[place.cell as usize].to_bytes(7, place.cell);
            let row = FilterRow::from_bytes(&stored, 7, place.cell).unwrap();
            let runs = row.runs(place);
            for (run, filter) in filters.iter().enumerate() {
                assert_eq!(runs >> run & 1 == 1, filter.may_contain(hash(number)));
            }
            assert!(FilterRow::from_bytes(&stored, 8, place.cell).is_err(), "of another group");
        }
    }
}
