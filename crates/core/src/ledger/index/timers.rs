//! What happens without being asked: activations, expiries, lapses.

use std::collections::BTreeSet;

use crate::ledger::id::{BucketNo, GrantNo, HoldNo};
use crate::time::Timestamp;

/// Things by instant, with the first instant at hand: it is asked for before every command.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    entries: BTreeSet<(Timestamp, T)>,
    first: Option<Timestamp>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { entries: BTreeSet::new(), first: None }
    }
}

impl<T: Copy + Ord> Queue<T> {
    /// Adds a thing under its instant.
    pub fn insert(&mut self, entry: (Timestamp, T)) {
        self.entries.insert(entry);
        self.first = Some(self.first.map_or(entry.0, |first| first.min(entry.0)));
    }

    /// Takes a thing out.
    pub fn remove(&mut self, entry: &(Timestamp, T)) {
        self.entries.remove(entry);
        if self.first == Some(entry.0) {
            self.first = self.entries.first().map(|(at, _)| *at);
        }
    }

    /// The first instant.
    pub fn first(&self) -> Option<Timestamp> {
        self.first
    }

    /// All things with their instants, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Timestamp, T)> {
        self.entries.iter()
    }

    /// Whether a thing is there under its instant.
    pub fn contains(&self, entry: &(Timestamp, T)) -> bool {
        self.entries.contains(entry)
    }

    /// How many things there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The instants at which something is due, each with what is due then.
///
/// Expiries and leases are kept under their last valid instant; they are due one millisecond later.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Grants that cannot be spent yet, by the instant from which on they can.
    pub activations: Queue<GrantNo>,
    /// Buckets that will expire, by their last valid instant.
    pub expiries: Queue<BucketNo>,
    /// Open holds with a lease, by its last valid instant.
    pub leases: Queue<HoldNo>,
}

/// The first instant after the last valid one; `None` at the end of time, which never ends.
pub fn due_after(last_valid: Timestamp) -> Option<Timestamp> {
    (last_valid < Timestamp::MAX).then(|| last_valid.plus_millis(1))
}

/// Whether what was valid up to `last_valid` is due at `deadline`.
pub fn is_due(last_valid: Timestamp, deadline: Timestamp) -> bool {
    due_after(last_valid).is_some_and(|due| due <= deadline)
}

impl Timers {
    /// The earliest instant at which something is due, without expiries if those wait.
    pub fn next_deadline(&self, expiry_waits: bool) -> Option<Timestamp> {
        let activation = self.activations.first();
        let expiry = self.expiries.first().filter(|_| !expiry_waits).and_then(due_after);
        let lapse = self.leases.first().and_then(due_after);
        earlier(activation, earlier(expiry, lapse))
    }
}

/// The earlier of two instants, where there are any.
pub fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
