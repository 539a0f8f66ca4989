//! Timers, messages and passes that were set aside after repeated panics.
//!
//! A timer or message that panics would block everything after it. After three failures the engine
//! journals that it is set aside. It is skipped from then on, also on replay, and an alarm is
//! raised.

use super::timers::Timer;
use crate::cell::command::Origin;
use crate::cell::event::Event;
use crate::cell::messages::Receipt;
use crate::cell::state::Cell;
use crate::digest::Digester;
use crate::time::Timestamp;

/// A timer, message or pass that was set aside.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CellAside {
    /// A message of a ledger. Its number counts as taken.
    Message {
        /// The shard that sent it.
        shard: u16,
        /// Its number.
        number: u64,
    },
    /// A timer.
    Timer {
        /// When it was due.
        at: Timestamp,
        /// The timer.
        timer: Timer,
    },
    /// A scheduling pass: no job is placed until something changes.
    Pass {
        /// When it ran.
        at: Timestamp,
    },
}

impl CellAside {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        let CellAside::Timer { timer, .. } = self else {
            return if matches!(self, CellAside::Message { .. }) { "message" } else { "pass" };
        };
        match timer {
            Timer::NodeLease(_) => "node_lease",
            Timer::MaxRuntime(_) => "max_runtime",
            Timer::FundsNeeded(_) => "funds_needed",
            Timer::FundsEnd(_) => "funds_end",
            Timer::Kill(_) => "kill",
            Timer::KillTimeout(_) => "kill_timeout",
            Timer::Release(_) => "release",
            Timer::Reservation(_) => "reservation",
            Timer::MaintenanceBegin(_) => "maintenance_begin",
            Timer::MaintenanceEnd(_) => "maintenance_end",
            Timer::Review => "review",
            Timer::Requests => "requests",
        }
    }
}

impl Cell {
    /// Everything that was set aside so far.
    pub fn set_aside(&self) -> impl ExactSizeIterator<Item = &CellAside> {
        self.aside.iter()
    }

    pub(crate) fn is_timer_aside(&self, at: Timestamp, timer: Timer) -> bool {
        !self.aside.is_empty() && self.aside.contains(&CellAside::Timer { at, timer })
    }

    /// Adds the event that sets the first due timer or pass aside.
    pub(crate) fn push_due_aside(
        &self,
        first: Option<(Timestamp, Timer)>,
        events: &mut Vec<Event>,
    ) {
        let what = match first {
            Some((at, timer)) => CellAside::Timer { at, timer },
            None => CellAside::Pass { at: self.now },
        };
        events.push(Event::SetAside { what, digest: digest_of(&what) });
    }

    /// Adds the events that take a ledger's message and set it aside.
    pub(crate) fn push_message_aside(
        &self,
        origin: &Origin,
        message: &impl std::hash::Hash,
        events: &mut Vec<Event>,
    ) {
        let Origin::Ledger { shard, number, .. } = *origin else { return };
        if let Ok(Receipt::Taken) = self.decide_receipt(origin, events) {
            let what = CellAside::Message { shard, number };
            events.push(Event::SetAside { what, digest: digest_of(message) });
        }
    }

    pub(crate) fn apply_set_aside(&mut self, what: CellAside) {
        if let CellAside::Pass { .. } = what {
            self.idle = true;
        }
        self.aside.insert(what);
    }
}

fn digest_of(message: &impl std::hash::Hash) -> u128 {
    Digester::new().value(message).finish_half()
}
