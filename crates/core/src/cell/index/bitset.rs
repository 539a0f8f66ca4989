//! A growable set of small numbers.
//!
//! `fixedbitset` takes 31 instead of 4 ns to tell whether a set of 150 numbers has a member outside
//! another one. The scheduler asks this at every level of the account tree for every placement.

use smallvec::SmallVec;

/// A set of small numbers, one bit each. Absent words count as empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(SmallVec<[u64; 4]>);

impl Bits {
    pub(crate) fn insert(&mut self, index: usize) {
        let word = index / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is a member that is in `only` (if given) and not in `except`.
    pub(crate) fn any_of(&self, only: Option<&Bits>, except: &Bits) -> bool {
        self.0.iter().enumerate().any(|(at, word)| {
            let only = only.map_or(u64::MAX, |only| only.0.get(at).copied().unwrap_or(0));
            word & only & !except.0.get(at).copied().unwrap_or(0) != 0
        })
    }

    /// Adds the members of another set.
    pub(crate) fn add_all(&mut self, other: &Bits) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(left, right)| *left |= right);
    }

    /// The members in rising order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    // Below 64.
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    at * 64 + bit
                })
            })
        })
    }
}

impl PartialEq for Bits {
    fn eq(&self, other: &Bits) -> bool {
        self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_bits_grows_shrinks_and_lists_its_members_in_order() {
        let mut bits = Bits::default();
        for index in [300, 0, 63, 64, 5] {
            bits.insert(index);
        }
        bits.remove(5);
        bits.remove(9999);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 300]);
        assert!(bits.contains(300) && !bits.contains(5) && !bits.contains(9999));
        let mut other = Bits::default();
        other.insert(64);
        assert!(bits.any_of(Some(&other), &Bits::default()) && bits.any_of(None, &other));
        assert!(!other.any_of(None, &bits) && !bits.any_of(Some(&other), &other));
        let mut sum = other.clone();
        sum.add_all(&bits);
        assert_eq!(sum, bits);
        other.remove(64);
        assert!(other.is_empty() && other == Bits::default());
    }
}
