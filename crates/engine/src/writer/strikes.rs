//! Counts the failures of timers and messages that are retried.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bursar_core::time::Timestamp;

/// A timer or message that fails this often is set aside.
pub(crate) const MAX_STRIKES: u32 = 3;
/// The most keys that are counted at once. Beyond it counting starts anew.
const MAX_COUNTED: usize = 1024;

/// A timer or message that is retried until it succeeds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The first due timer, at this instant.
    Due(Timestamp),
    /// A message of another machine.
    Message { sender: u64, number: u64 },
}

/// Failures by key. Kept when the state is rebuilt.
#[derive(Default)]
pub(crate) struct Strikes(RefCell<BTreeMap<Key, u32>>);

impl Strikes {
    /// How often a key failed.
    pub(crate) fn of(&self, key: Key) -> u32 {
        self.0.borrow().get(&key).copied().unwrap_or(0)
    }

    /// Counts one failure.
    pub(crate) fn add(&self, key: Key) {
        let mut counts = self.0.borrow_mut();
        if counts.len() >= MAX_COUNTED {
            counts.clear();
        }
        *counts.entry(key).or_default() += 1;
    }

    /// Resets the count of a key.
    pub(crate) fn clear(&self, key: Key) {
        let mut counts = self.0.borrow_mut();
        if !counts.is_empty() {
            counts.remove(&key);
        }
    }
}
