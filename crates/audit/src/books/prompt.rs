//! Due timers run before anything else is decided: no grant starts or ends late, and no hold
//! outlives its lease.

use std::collections::BTreeSet;

use super::{Books, LawResult, require};
use crate::node::Node;

impl Books {
    /// A timer that failed repeatedly is skipped and never overdue. It moves no credits.
    pub(super) fn set_aside(&mut self, event: &Node) -> LawResult<()> {
        let (tag, what) = event.field(0)?.tagged()?;
        event.field(1)?;
        let thing = match tag {
            1 => TimerKind::Grant(what.field(0)?.index()?),
            2 => TimerKind::Bucket(what.field(0)?.index()?),
            4 => TimerKind::Hold(what.field(0)?.index()?),
            0 | 3 | 5..=9 => return Ok(()),
            other => return Err(format!("the unknown thing {other} is set aside").into()),
        };
        self.due.set_aside(thing);
        Ok(())
    }
}

/// Timers by the first instant at which they are due.
#[derive(Default)]
pub(crate) struct Due {
    things: BTreeSet<(i64, TimerKind)>,
    /// Separate, because expiry may be suspended until a clock is accepted.
    buckets: BTreeSet<(i64, TimerKind)>,
    expiry_waits: bool,
}

/// A kind of timer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKind {
    /// A grant is activated.
    Grant(u32),
    /// A bucket expires.
    Bucket(u32),
    /// A hold lapses.
    Hold(u32),
}

impl Due {
    /// Adds a grant by its first valid instant.
    pub(super) fn grant(&mut self, number: u32, from: i64) {
        self.things.insert((from, TimerKind::Grant(number)));
    }

    /// Adds a bucket by its last valid instant.
    pub(super) fn bucket(&mut self, number: u32, last: Option<i64>) {
        self.buckets.extend(last.map(|last| (last.saturating_add(1), TimerKind::Bucket(number))));
    }

    /// Adds a hold by its last valid instant.
    pub(super) fn hold(&mut self, number: u32, last: Option<i64>) {
        self.things.extend(last.map(|last| (last.saturating_add(1), TimerKind::Hold(number))));
    }

    /// Removes a timer that has run.
    pub(super) fn done(&mut self, thing: TimerKind, instant: Option<i64>) {
        let due = match thing {
            TimerKind::Grant(_) => instant,
            TimerKind::Bucket(_) | TimerKind::Hold(_) => instant.map(|last| last.saturating_add(1)),
        };
        if let Some(due) = due {
            let set = match thing {
                TimerKind::Bucket(_) => &mut self.buckets,
                TimerKind::Grant(_) | TimerKind::Hold(_) => &mut self.things,
            };
            set.remove(&(due, thing));
        }
    }

    /// Removes a timer that was set aside, whenever it was due.
    pub(super) fn set_aside(&mut self, thing: TimerKind) {
        self.things.retain(|(_, due)| *due != thing);
        self.buckets.retain(|(_, due)| *due != thing);
    }

    /// Sets whether the expiry of grants is suspended.
    pub(super) fn set_expiry_waits(&mut self, waits: bool) {
        self.expiry_waits = waits;
    }

    /// Whether the expiry of grants is suspended.
    pub(super) fn expiry_waits(&self) -> bool {
        self.expiry_waits
    }

    /// Nothing may be overdue when a command is decided at `at`.
    pub(super) fn check(&self, at: i64) -> LawResult<()> {
        let buckets = self.buckets.first().filter(|_| !self.expiry_waits);
        let first = self.things.first().into_iter().chain(buckets).min();
        let first = first.filter(|(due, _)| *due <= at);
        require(first.is_none(), "due", || {
            let (due, thing) = first.copied().unwrap_or((at, TimerKind::Grant(0)));
            let what = match thing {
                TimerKind::Grant(number) => format!("the start of grant {number}"),
                TimerKind::Bucket(number) => format!("the expiry of bucket {number}"),
                TimerKind::Hold(number) => format!("the end of hold {number}"),
            };
            format!("{what} was due before this, at {due} ms")
        })
    }
}
