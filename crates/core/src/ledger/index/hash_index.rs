//! An index of numbers by hash. A look-up usually costs one cache miss.
//!
//! `hashbrown::HashTable<u32>` with a million names takes 1.1 times as long for a look-up and 1.6
//! times as long for a removal and an insertion: it reads the names again. Both were measured with
//! the hasher of the standard library, whose time is a part of both.

use std::hash::{BuildHasher, Hash};

use crate::name_hash::NameHasher;

/// A set of numbers, each under the hash of a name that is stored elsewhere.
///
/// An open-addressing table with linear probing. Hashes are stored beside their numbers, so a name
/// is read only if its hash is equal, and no name is read when the table grows.
#[derive(Clone, Debug, Default)]
pub struct HashIndex {
    /// The length is a power of two.
    slots: Vec<Slot>,
    used: usize,
    hasher: NameHasher,
}

/// A slot of the table. It is empty if the hash is zero.
#[derive(Copy, Clone, Debug, Default)]
struct Slot {
    hash: u32,
    number: u32,
}

impl HashIndex {
    /// The hash of a name in this table, never zero.
    pub fn hash_of(&self, name: &impl Hash) -> u32 {
        self.hasher.hash_one(name) as u32 | 1 << 31
    }

    /// The number under `hash` for which `is_it` returns true.
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.place(hash, is_it).map(|at| self.slots[at].number)
    }

    fn place(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut at = hash as usize & last;
        loop {
            let slot = self.slots[at];
            if slot.hash == hash && is_it(slot.number) {
                return Some(at);
            }
            if slot.hash == 0 {
                return None;
            }
            at = (at + 1) & last;
        }
    }

    /// Makes room for so many numbers, while there are none.
    pub fn make_room(&mut self, numbers: usize) {
        if self.used == 0 {
            self.slots = vec![Slot::default(); (numbers * 5 / 4 + 1).next_power_of_two().max(8)];
        }
    }

    /// Adds a number.
    pub fn insert(&mut self, hash: u32, number: u32) {
        // At most four of five slots are used, so that probe sequences stay short.
        if (self.used + 1) * 5 > self.slots.len() * 4 {
            let larger = vec![Slot::default(); (self.slots.len() * 2).max(8)];
            for slot in std::mem::replace(&mut self.slots, larger) {
                if slot.hash != 0 {
                    self.put(slot);
                }
            }
        }
        self.put(Slot { hash, number });
        self.used += 1;
    }

    fn put(&mut self, slot: Slot) {
        let last = self.slots.len() - 1;
        let mut at = slot.hash as usize & last;
        while self.slots[at].hash != 0 {
            at = (at + 1) & last;
        }
        self.slots[at] = slot;
    }

    /// Removes a number.
    pub fn remove(&mut self, hash: u32, number: u32) {
        let Some(mut gap) = self.place(hash, |other| other == number) else { return };
        self.used -= 1;
        let last = self.slots.len() - 1;
        let mut at = (gap + 1) & last;
        // Later entries of the probe sequence move up, unless they would then lie before their home
        // slot.
        while self.slots[at].hash != 0 {
            let slot = self.slots[at];
            let moved = at.wrapping_sub(slot.hash as usize) & last;
            if moved >= at.wrapping_sub(gap) & last {
                self.slots[gap] = slot;
                gap = at;
            }
            at = (at + 1) & last;
        }
        self.slots[gap] = Slot::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_agree_with_a_list(
            steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..60), 1..300),
        ) {
            let mut numbers = HashIndex::default();
            let mut list: Vec<(u32, u32)> = Vec::new();
            for (add, hash, number) in steps {
                // Few hashes, many of them adjacent at the end of a small table.
                let hash = (hash * 7) | 1 << 31;
                let present = list.iter().position(|entry| *entry == (hash, number));
                match (add, present) {
                    (true, None) => {
                        numbers.insert(hash, number);
                        list.push((hash, number));
                    }
                    (false, Some(at)) => {
                        numbers.remove(hash, number);
                        list.swap_remove(at);
                    }
                    (true, Some(_)) => {}
                    (false, None) => numbers.remove(hash, number),
                }
                for (hash, number) in &list {
                    let found = numbers.find(*hash, |other| other == *number);
                    prop_assert_eq!(found, Some(*number));
                }
                let known = list.contains(&(hash, number));
                prop_assert_eq!(numbers.find(hash, |other| other == number).is_some(), known);
                prop_assert_eq!(numbers.used, list.len());
            }
        }
    }
}
