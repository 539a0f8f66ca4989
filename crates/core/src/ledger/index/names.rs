//! Indexes by name that do not store the names.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

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
    /// Makes room for so many names, while there are none: growing hashes every name again.
    pub fn make_room(&mut self, names: usize) {
        if self.numbers.is_empty() {
            self.numbers = HashTable::with_capacity(names);
        }
    }

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

    /// Adds a number. Returns the one that was under this name before and no longer is.
    pub fn replace<N: Hash + Eq>(
        &mut self,
        name: N,
        number: u32,
        named: impl Fn(u32) -> N,
    ) -> Option<u32> {
        let NameIndex { numbers, hasher } = self;
        let hash = hasher.hash_one(&name);
        let rehashed = |other: &u32| hasher.hash_one(named(*other));
        match numbers.entry(hash, |other| named(*other) == name, rehashed) {
            Entry::Occupied(mut present) => Some(std::mem::replace(present.get_mut(), number)),
            Entry::Vacant(vacant) => {
                vacant.insert(number);
                None
            }
        }
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
    /// Makes room for so many names, while there are none.
    pub fn make_room(&mut self, names: usize) {
        self.numbers.make_room(names);
        self.hashes.reserve(names);
    }

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
    fn a_number_replaces_the_one_under_its_name_wherever_the_index_grew() {
        for room in [0, 3000] {
            let mut index = NameIndex::default();
            index.make_room(room);
            // Two numbers for each name.
            let named = |number: u32| u64::from(number / 2) * 7;
            for number in 0..5000 {
                let before = index.replace(named(number), number, named);
                assert_eq!(before, (number % 2 == 1).then_some(number - number % 2));
            }
            assert_eq!(index.len(), 2500);
            assert!((0..5000).all(|number| index.find(named(number), named) == Some(number | 1)));
        }
    }

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
