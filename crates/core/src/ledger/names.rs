//! Finds things by name without keeping the names twice.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// An index from names to numbers. The names themselves live in the things; the index keeps only
/// their numbers, so an entry costs about ten bytes.
#[derive(Clone, Debug, Default)]
pub struct NameIndex {
    numbers: HashTable<u32>,
}

fn hash(name: &impl Hash) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl NameIndex {
    /// The number under `name`; `named` gives the name that a number stands for.
    pub fn find<N: Hash + Eq>(&self, name: N, named: impl Fn(u32) -> N) -> Option<u32> {
        self.numbers.find(hash(&name), |number| named(*number) == name).copied()
    }

    /// Adds a number under a name that is not there yet.
    pub fn insert<N: Hash + Eq>(&mut self, name: N, number: u32, named: impl Fn(u32) -> N) {
        self.numbers.insert_unique(hash(&name), number, |other| hash(&named(*other)));
    }

    /// Takes a number out.
    pub fn remove<N: Hash + Eq>(&mut self, name: N, number: u32) {
        if let Ok(entry) = self.numbers.find_entry(hash(&name), |other| *other == number) {
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

/// The same for things that come and go all the time. It keeps the hash of each name beside the
/// number, eight bytes more in all, and can then take an entry out, or move all of them into a
/// larger table, without a look at the things, which lie far apart.
#[derive(Clone, Debug, Default)]
pub struct HashedIndex {
    numbers: HashTable<u32>,
    /// By number.
    hashes: Vec<u32>,
}

/// What is kept of a hash. The upper half: the lower bits of this kind of hash are the weaker ones.
fn kept(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// What the table is given: it takes places from the lower bits and marks from the upper ones.
fn spread(kept: u32) -> u64 {
    u64::from(kept) << 32 | u64::from(kept)
}

impl HashedIndex {
    /// The number under `name`; `named` gives the name that a number stands for.
    pub fn find<N: Hash + Eq>(&self, name: N, named: impl Fn(u32) -> N) -> Option<u32> {
        let hash = kept(hash(&name));
        let is_it = |number: &u32| self.hashes[*number as usize] == hash && named(*number) == name;
        self.numbers.find(spread(hash), is_it).copied()
    }

    /// Adds a number under a name that is not there yet.
    pub fn insert(&mut self, name: impl Hash, number: u32) {
        let hash = kept(hash(&name));
        let place = number as usize;
        if place >= self.hashes.len() {
            self.hashes.resize(place + 1, 0);
        }
        self.hashes[place] = hash;
        let hashes = &self.hashes;
        self.numbers.insert_unique(spread(hash), number, |other| spread(hashes[*other as usize]));
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: u32) {
        let Some(hash) = self.hashes.get(number as usize) else { return };
        if let Ok(entry) = self.numbers.find_entry(spread(*hash), |other| *other == number) {
            entry.remove();
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
