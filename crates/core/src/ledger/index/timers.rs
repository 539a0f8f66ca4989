//! Timers: activations, expiries, lapses.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::ledger::id::{BucketNo, GrantNo, HoldNo};
use crate::time::Timestamp;

/// Entries by instant. The first instant is cached, because it is read before every command.
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
    /// Adds an entry.
    pub fn insert(&mut self, entry: (Timestamp, T)) {
        self.entries.insert(entry);
        self.first = Some(self.first.map_or(entry.0, |first| first.min(entry.0)));
    }

    /// Fills an empty queue: sorting all at once is faster than inserting one after the other.
    pub fn fill(&mut self, entries: Vec<(Timestamp, T)>) {
        self.entries = entries.into_iter().collect();
        self.first = self.entries.first().map(|(at, _)| *at);
    }

    /// Removes an entry.
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

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Timestamp, T)> {
        self.entries.iter()
    }

    /// The entries after one that may or may not be there, in order.
    pub fn after(&self, entry: &(Timestamp, T)) -> impl Iterator<Item = &(Timestamp, T)> {
        self.entries.range((Bound::Excluded(entry), Bound::Unbounded))
    }

    /// Whether the queue contains an entry.
    pub fn contains(&self, entry: &(Timestamp, T)) -> bool {
        self.entries.contains(entry)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The timers of a ledger, by instant.
///
/// Expiries and leases are kept under their last valid instant; they are due one millisecond later.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Grants that are not active yet, by their first valid instant.
    pub activations: Queue<GrantNo>,
    /// Buckets that will expire, by their last valid instant.
    pub expiries: Queue<BucketNo>,
    /// Open holds with a lease, by its last valid instant.
    pub leases: Queue<HoldNo>,
}

/// The first instant after the last valid one; `None` for [`Timestamp::MAX`], which stands for
/// never.
pub fn due_after(last_valid: Timestamp) -> Option<Timestamp> {
    (last_valid < Timestamp::MAX).then(|| last_valid.plus_millis(1))
}

/// Whether a timer with this last valid instant is due at `deadline`.
pub fn is_due(last_valid: Timestamp, deadline: Timestamp) -> bool {
    due_after(last_valid).is_some_and(|due| due <= deadline)
}

impl Timers {
    /// The earliest deadline, without expiries if expiry is suspended.
    pub fn next_deadline(&self, expiry_waits: bool) -> Option<Timestamp> {
        let activation = self.activations.first();
        let expiry = self.expiries.first().filter(|_| !expiry_waits).and_then(due_after);
        let lapse = self.leases.first().and_then(due_after);
        earlier(activation, earlier(expiry, lapse))
    }
}

/// The earlier of two optional instants.
pub fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
