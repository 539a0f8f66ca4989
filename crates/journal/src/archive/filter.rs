//! A filter of hashes: it never misses one that it has, and takes about one in a thousand others for one.

/// Bits for each entry.
const BITS_EACH: usize = 16;
/// The words of one cell. All bits of an entry are in one cell, so that a probe touches one cache line.
const CELL_WORDS: usize = 8;
const PROBES: u32 = 6;

/// A filter of a fixed set of hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashFilter {
    words: Vec<u64>,
}

impl HashFilter {
    /// The filter of these hashes.
    pub fn of(hashes: impl ExactSizeIterator<Item = u64>) -> HashFilter {
        let cells = (hashes.len() * BITS_EACH).div_ceil(CELL_WORDS * 64).max(1);
        let mut filter = HashFilter { words: vec![0; cells * CELL_WORDS] };
        for hash in hashes {
            let (cell, bits) = filter.place(hash);
            for bit in bits {
                filter.words[cell + bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    /// The first word of the cell of a hash, and its bits there.
    fn place(&self, hash: u64) -> (usize, impl Iterator<Item = usize> + use<>) {
        let cells = (self.words.len() / CELL_WORDS) as u128;
        // Below the number of cells, which fits.
        let cell = ((u128::from(hash) * cells) >> 64) as usize;
        let mixed = (hash ^ hash >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (cell * CELL_WORDS, (0..PROBES).map(move |probe| (mixed >> (9 * probe) & 511) as usize))
    }

    /// Whether it may have a hash.
    pub fn may_contain(&self, hash: u64) -> bool {
        let (cell, mut bits) = self.place(hash);
        bits.all(|bit| self.words[cell + bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// Its stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// The inverse of [`HashFilter::to_bytes`]. `None` if the bytes are none of a filter.
    pub fn from_bytes(bytes: &[u8]) -> Option<HashFilter> {
        let (words, rest) = bytes.as_chunks::<8>();
        let whole = rest.is_empty() && !words.is_empty() && words.len() % CELL_WORDS == 0;
        whole.then(|| HashFilter {
            words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        u64::from_le_bytes(*blake3::hash(&number.to_le_bytes()).as_bytes().first_chunk().unwrap())
    }

    #[test]
    fn a_filter_has_all_its_hashes_and_few_others() {
        for count in [0usize, 1, 100, 50_000] {
            let filter = HashFilter::of((0..count).map(|number| hash(number as u64)));
            assert!((0..count).all(|number| filter.may_contain(hash(number as u64))));
            let others = (0..100_000).filter(|n| filter.may_contain(hash(1 << 40 | n))).count();
            assert!(others < 400, "{others} of 100000 others are taken for one of {count}");
            assert_eq!(HashFilter::from_bytes(&filter.to_bytes()), Some(filter));
        }
        assert_eq!(HashFilter::from_bytes(&[0; 63]), None);
        assert_eq!(HashFilter::from_bytes(&[]), None);
    }
}
