//! Packs that wait to be drawn from, in some order.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// What is left of some packs; the one with the greatest key goes first.
///
/// Whoever uses it gives up packs in the order of their keys, so that the one given up is the first or not there:
/// nothing stale can stay behind.
#[derive(Debug)]
pub(super) struct Held<Key: Ord>(BinaryHeap<Portion<Key>>);

/// Keys are of one pack each, so that what is left never decides the order.
type Portion<Key> = (Key, usize, u64);

impl<Key: Ord> Held<Key> {
    pub(super) fn new() -> Self {
        Self(BinaryHeap::new())
    }

    pub(super) fn put(&mut self, key: Key, pack: usize, amount: u64) {
        if amount > 0 {
            self.0.push((key, pack, amount));
        }
    }

    /// Takes up to `amount` and returns what is missing.
    pub(super) fn take(&mut self, amount: u64) -> u64 {
        let mut missing = amount;
        while missing > 0 {
            let Some(mut first) = self.0.peek_mut() else { break };
            let taken = missing.min(first.2);
            missing -= taken;
            if taken == first.2 {
                PeekMut::pop(first);
            } else {
                first.2 -= taken;
            }
        }
        missing
    }

    /// Gives up a pack and returns what was left of it.
    pub(super) fn give_up(&mut self, pack: usize) -> u64 {
        match self.0.peek_mut() {
            Some(first) if first.1 == pack => PeekMut::pop(first).2,
            Some(_) | None => 0,
        }
    }

    /// What is left, in no particular order.
    pub(super) fn portions(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().map(|&(_, pack, left)| (pack, left))
    }
}
