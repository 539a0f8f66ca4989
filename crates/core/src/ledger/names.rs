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
