//! What is due happens before anything else is decided: no grant starts or ends late, no lease
//! outlives its last instant.

use std::collections::BTreeSet;

use super::{Books, Kept, require};
use crate::node::Node;

impl Books {
    /// What failed again and again is skipped: it is never overdue. Money does not move by it.
    pub(super) fn set_aside(&mut self, event: &Node) -> Kept<()> {
        let (tag, what) = event.field(0)?.tagged()?;
        event.field(1)?;
        let thing = match tag {
            1 => Thing::Grant(what.field(0)?.index()?),
            2 => Thing::Bucket(what.field(0)?.index()?),
            4 => Thing::Hold(what.field(0)?.index()?),
            0 | 3 | 5..=9 => return Ok(()),
            other => return Err(format!("the unknown thing {other} is set aside").into()),
        };
        self.due.set_aside(thing);
        Ok(())
    }
}

/// What will be due, by the first instant at which it is.
#[derive(Default)]
pub(crate) struct Due {
    things: BTreeSet<(i64, Thing)>,
    /// Apart, because expiry may wait until a clock was accepted.
    buckets: BTreeSet<(i64, Thing)>,
    expiry_waits: bool,
}

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
        self.things.insert((from, Thing::Grant(number)));
    }

    /// Notes a bucket by its last valid instant.
    pub(super) fn bucket(&mut self, number: u32, last: Option<i64>) {
        self.buckets.extend(last.map(|last| (last.saturating_add(1), Thing::Bucket(number))));
    }

    /// Notes a hold by its last valid instant.
    pub(super) fn hold(&mut self, number: u32, last: Option<i64>) {
        self.things.extend(last.map(|last| (last.saturating_add(1), Thing::Hold(number))));
    }

    /// Crosses a thing off.
    pub(super) fn done(&mut self, thing: Thing, instant: Option<i64>) {
        let due = match thing {
            Thing::Grant(_) => instant,
            Thing::Bucket(_) | Thing::Hold(_) => instant.map(|last| last.saturating_add(1)),
        };
        if let Some(due) = due {
            let set = match thing {
                Thing::Bucket(_) => &mut self.buckets,
                Thing::Grant(_) | Thing::Hold(_) => &mut self.things,
            };
            set.remove(&(due, thing));
        }
    }

    /// Crosses a thing off, whenever it was due: it was set aside.
    pub(super) fn set_aside(&mut self, thing: Thing) {
        self.things.retain(|(_, due)| *due != thing);
        self.buckets.retain(|(_, due)| *due != thing);
    }

    /// Notes whether grants wait with their expiry.
    pub(super) fn set_expiry_waits(&mut self, waits: bool) {
        self.expiry_waits = waits;
    }

    /// Whether grants wait with their expiry.
    pub(super) fn expiry_waits(&self) -> bool {
        self.expiry_waits
    }

    /// Nothing may be overdue when somebody asks at `at`.
    pub(super) fn check(&self, at: i64) -> Kept<()> {
        let buckets = self.buckets.first().filter(|_| !self.expiry_waits);
        let first = self.things.first().into_iter().chain(buckets).min();
        let first = first.filter(|(due, _)| *due <= at);
        require(first.is_none(), "due", || format!("{first:?} was due before this"))
    }
}
