//! How often things failed that come again until they are done.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bursar_core::time::Timestamp;

/// What fails so often is set aside.
pub(crate) const MAX_STRIKES: u32 = 3;
/// The most things that are counted at once; beyond it counting begins anew.
const MAX_COUNTED: usize = 1024;

/// Something that comes again until it is done.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// What is due first, at this instant.
    Due(Timestamp),
    /// A message of another machine.
    Message { sender: u64, number: u64 },
}

/// Failures by thing. Kept over rebuilds of the state.
#[derive(Default)]
pub(crate) struct Strikes(RefCell<BTreeMap<Key, u32>>);

impl Strikes {
    /// How often a thing failed.
    pub(crate) fn of(&self, key: Key) -> u32 {
        self.0.borrow().get(&key).copied().unwrap_or(0)
    }

    /// Counts one more failure.
    pub(crate) fn add(&self, key: Key) {
        let mut counts = self.0.borrow_mut();
        if counts.len() >= MAX_COUNTED {
            counts.clear();
        }
        *counts.entry(key).or_default() += 1;
    }

    /// Forgets the failures of a thing.
    pub(crate) fn clear(&self, key: Key) {
        let mut counts = self.0.borrow_mut();
        if !counts.is_empty() {
            counts.remove(&key);
        }
    }
}
