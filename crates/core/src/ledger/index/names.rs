//! Indexes by name that do not store the names.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

use super::hash_index::HashIndex;
use crate::name_hash::NameHasher;

/// An index from names to numbers. The names are stored in the named values; the index keeps only
/// numbers, about ten bytes for each entry.
#[derive(Clone, Debug, Default)]
pub struct NameIndex {
    numbers: HashTable<u32>,
    hasher: NameHasher,
}

impl NameIndex {
    /// The number under `name`; `named` returns the name of a number.
    pub fn find<N: Hash + Eq>(&self, name: N, named: impl Fn(u32) -> N) -> Option<u32> {
        self.numbers.find(self.hasher.hash_one(&name), |number| named(*number) == name).copied()
    }

    /// Adds a number under a new name.
    pub fn insert<N: Hash + Eq>(&mut self, name: N, number: u32, named: impl Fn(u32) -> N) {
        let NameIndex { numbers, hasher } = self;
        let hash = hasher.hash_one(&name);
        numbers.insert_unique(hash, number, |other| hasher.hash_one(named(*other)));
    }

    /// Removes a number.
    pub fn remove<N: Hash + Eq>(&mut self, name: N, number: u32) {
        let hash = self.hasher.hash_one(&name);
        if let Ok(entry) = self.numbers.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// Like [`NameIndex`], for values that are added and removed often. It is faster, needs ten bytes
/// more for each entry, and removes an entry by its number, without reading the named value.
#[derive(Clone, Debug, Default)]
pub struct HashedIndex {
    numbers: HashIndex,
    /// By number.
    hashes: Vec<u32>,
}

impl HashedIndex {
    /// The number under `name`; `named` returns the name of a number.
    pub fn find<N: Hash + Eq>(&self, name: N, named: impl Fn(u32) -> N) -> Option<u32> {
        self.numbers.find(self.hash_of(&name), |number| named(number) == name)
    }

    /// The hash of a name in this index.
    pub fn hash_of(&self, name: &impl Hash) -> u32 {
        self.numbers.hash_of(name)
    }

    /// Adds a number under a new name.
    pub fn insert(&mut self, name: impl Hash, number: u32) {
        let hash = self.hash_of(&name);
        let place = number as usize;
        if place >= self.hashes.len() {
            self.hashes.resize(place + 1, 0);
        }
        self.hashes[place] = hash;
        self.numbers.insert(hash, number);
    }

    /// Removes a number.
    pub fn remove(&mut self, number: u32) {
        if let Some(hash) = self.hashes.get(number as usize) {
            self.numbers.remove(*hash, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hashed_index_finds_present_names_and_no_removed_ones() {
        let mut index = HashedIndex::default();
        let named = |number: u32| u64::from(number) * 7;
        for number in 0..5000 {
            index.insert(named(number), number);
            if let Some(old) = number.checked_sub(100) {
                index.remove(old);
                assert_eq!(index.find(named(old), named), None);
            }
            assert_eq!(index.find(named(number), named), Some(number));
            assert_eq!(index.find(named(number) + 1, named), None);
        }
    }
}
