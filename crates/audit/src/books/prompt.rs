//! What is due happens before anything else is decided: no grant starts or ends late, no lease
//! outlives its last instant.

use std::collections::BTreeSet;

use super::{Kept, require};

/// What will be due, by the first instant at which it is.
#[derive(Default)]
pub(crate) struct Due(BTreeSet<(i64, Thing)>);

/// What can be due.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// A grant comes in.
    Grant(u32),
    /// A bucket expires.
    Bucket(u32),
    /// A hold lapses.
    Hold(u32),
}

impl Due {
    /// Notes a grant by its first valid instant.
    pub(super) fn grant(&mut self, number: u32, from: i64) {
        self.0.insert((from, Thing::Grant(number)));
    }

    /// Notes a bucket by its last valid instant.
    pub(super) fn bucket(&mut self, number: u32, last: Option<i64>) {
        self.0.extend(last.map(|last| (last.saturating_add(1), Thing::Bucket(number))));
    }

    /// Notes a hold by its last valid instant.
    pub(super) fn hold(&mut self, number: u32, last: Option<i64>) {
        self.0.extend(last.map(|last| (last.saturating_add(1), Thing::Hold(number))));
    }

    /// Crosses a thing off.
    pub(super) fn done(&mut self, thing: Thing, instant: Option<i64>) {
        let due = match thing {
            Thing::Grant(_) => instant,
            Thing::Bucket(_) | Thing::Hold(_) => instant.map(|last| last.saturating_add(1)),
        };
        if let Some(due) = due {
            self.0.remove(&(due, thing));
        }
    }

    /// Nothing may be overdue when somebody asks at `at`.
    pub(super) fn check(&self, at: i64) -> Kept<()> {
        let first = self.0.first().filter(|(due, _)| *due <= at);
        require(first.is_none(), "due", || format!("{first:?} was due before this"))
    }
}
