//! What happens without being asked: activations, expiries, lapses.

use std::collections::BTreeSet;

use super::id::{BucketNo, GrantNo, HoldNo};
use crate::time::Timestamp;

/// The instants at which something is due, each with what is due then.
///
/// Expiries and leases are kept under their last valid instant; they are due one millisecond later.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Grants that cannot be spent yet, by the instant from which on they can.
    pub activations: BTreeSet<(Timestamp, GrantNo)>,
    /// Buckets that will expire, by their last valid instant.
    pub expiries: BTreeSet<(Timestamp, BucketNo)>,
    /// Open holds with a lease, by its last valid instant.
    pub leases: BTreeSet<(Timestamp, HoldNo)>,
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
    /// The earliest instant at which something is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let activation = self.activations.first().map(|(at, _)| *at);
        let expiry = self.expiries.first().and_then(|(at, _)| due_after(*at));
        let lapse = self.leases.first().and_then(|(at, _)| due_after(*at));
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
