//! Finds things by name without keeping the names twice.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

use super::hash_index::Numbers;
use crate::name_hash::NameHasher;

/// An index from names to numbers. The names themselves live in the things; the index keeps only
/// their numbers, so an entry costs about ten bytes.
#[derive(Clone, Debug, Default)]
pub struct NameIndex {
    numbers: HashTable<u32>,
    hasher: NameHasher,
}

impl NameIndex {
    /// The number under `name`; `named` gives the name that a number stands for.
    pub fn find<N: Hash + Eq>(&self, name: N, named: impl Fn(u32) -> N) -> Option<u32> {
        self.numbers.find(self.hasher.hash_one(&name), |number| named(*number) == name).copied()
    }

    /// Adds a number under a name that is not there yet.
    pub fn insert<N: Hash + Eq>(&mut self, name: N, number: u32, named: impl Fn(u32) -> N) {
        let NameIndex { numbers, hasher } = self;
        let hash = hasher.hash_one(&name);
        numbers.insert_unique(hash, number, |other| hasher.hash_one(named(*other)));
    }

    /// Takes a number out.
    pub fn remove<N: Hash + Eq>(&mut self, name: N, number: u32) {
        let hash = self.hasher.hash_one(&name);
        if let Ok(entry) = self.numbers.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// The same for things that come and go all the time: it is quicker, for ten bytes more, and takes
/// an entry out by its number alone, without a look at the thing.
#[derive(Clone, Debug, Default)]
pub struct HashedIndex {
    numbers: Numbers,
    /// By number.
    hashes: Vec<u32>,
}

impl HashedIndex {
    /// The number under `name`; `named` gives the name that a number stands for.
    pub fn find<N: Hash + Eq>(&self, name: N, named: impl Fn(u32) -> N) -> Option<u32> {
        self.numbers.find(self.hash_of(&name), |number| named(number) == name)
    }

    /// The hash of a name in this index.
    pub fn hash_of(&self, name: &impl Hash) -> u32 {
        self.numbers.hash_of(name)
    }

    /// The first number under the hash of a name, whatever its name.
    pub fn first(&self, hash: u32) -> Option<u32> {
        self.numbers.first(hash)
    }

    /// Reads the place where a look for a name with this hash begins. What is returned means nothing.
    pub fn glimpse(&self, hash: u32) -> u32 {
        self.numbers.glimpse(hash)
    }

    /// Adds a number under a name that is not there yet.
    pub fn insert(&mut self, name: impl Hash, number: u32) {
        let hash = self.hash_of(&name);
        let place = number as usize;
        if place >= self.hashes.len() {
            self.hashes.resize(place + 1, 0);
        }
        self.hashes[place] = hash;
        self.numbers.insert(hash, number);
    }

    /// Takes a number out.
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
    fn a_hashed_index_finds_what_is_there_and_nothing_that_was() {
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
