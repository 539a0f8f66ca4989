//! The archived record of a forgotten hold, and its restoration for a late refund.

use std::sync::Arc;

use fefo::Part;

use super::hold::Hold;
use crate::ledger::event::Event;
use crate::ledger::id::{AccountNo, HoldNo, Name};
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::{LedgerAnswer, Reply};
use crate::ledger::state::{Ledger, Movement};
use crate::ledger::undo::Undo;
use crate::time::Timestamp;

/// The last state of a closed hold or charge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedHold {
    /// The hold.
    pub hold: Hold,
    /// Whether budgets that were set after it was forgotten count what it spent.
    pub counted: bool,
}

/// A hold, charge or movement, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedName {
    /// Its kind.
    pub what: Resource,
    /// The tenant in which its name is unique.
    pub tenant: AccountNo,
    /// Its name.
    pub name: Name,
}

/// An answer that was kept for its idempotency key. It names what it shows: numbers are used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedAnswer {
    /// When it was given.
    pub at: Timestamp,
    /// The hash of tenant and key.
    pub key: u128,
    /// The hash of the request.
    pub fingerprint: u128,
    /// The answer.
    pub answer: Arc<LedgerAnswer>,
    /// The id of the request if it was refused or changed nothing.
    pub request: u128,
    /// The hold, charge or movement that it shows.
    pub of: Option<ArchivedName>,
}

/// A record from the archive that comes with a command, because the ledger has forgotten it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecalledRecord {
    /// A closed hold or charge.
    Hold(ArchivedHold),
    /// A refund with all of its parts, a transfer or a collection.
    Movement(Vec<Movement>),
}

impl Ledger {
    /// The record of a closed hold, for history.
    pub fn archive(&self, hold: HoldNo) -> Option<ArchivedHold> {
        let hold = self.hold(hold)?.clone();
        (!hold.is_open()).then_some(ArchivedHold { hold, counted: false })
    }

    pub(in crate::ledger) fn decide_restore_hold(
        &self,
        record: &ArchivedHold,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let hold = &record.hold;
        self.require_genuine(record)?;
        let tenant = self.account(hold.account).tenant;
        if self.find_hold(tenant, hold.kind, &hold.id).is_some() {
            return Err(Refusal::AlreadyExists {
                what: Resource::Hold,
                name: hold.id.clone().into(),
            });
        }
        let number = HoldNo(self.holds.next());
        let reply = Reply::Hold(hold.reply(number));
        events.push(Event::HoldRestored { hold: number, record: Box::new(record.clone()) });
        Ok(reply)
    }

    /// Refuses a record that contradicts itself or the state of the ledger. History checks that it is the
    /// record that was stored.
    pub(super) fn require_genuine(&self, record: &ArchivedHold) -> Result<(), Refusal> {
        let hold = &record.hold;
        let captured: u128 = hold.slices.iter().map(|slice| u128::from(slice.captured)).sum();
        let genuine = captured == u128::from(hold.captured)
            && hold.refunded <= hold.captured
            && hold.account.index() < self.accounts.len()
            && !hold.is_open()
            && self.still_spent(hold);
        if genuine { Ok(()) } else { Err(Refusal::Conflict(Conflict::RecordMismatch)) }
    }

    /// Whether every unit that the record has as spent is spent. A record from before the last
    /// refund would return the same units twice.
    fn still_spent(&self, hold: &Hold) -> bool {
        let mut refunded = hold.refunded;
        hold.slices.iter().rev().all(|slice| {
            let returned = slice.captured.min(refunded);
            refunded -= returned;
            let span =
                fefo::Span::new(slice.span.start, slice.span.start + slice.captured - returned);
            let Some(bucket) = self.buckets.get(slice.bucket.index()) else { return false };
            span.end <= bucket.line.end()
                && bucket.line.runs_in(span).all(|(_, part)| part == Part::Spent)
        })
    }

    pub(in crate::ledger) fn apply_revived(
        &mut self,
        at: Timestamp,
        number: HoldNo,
        record: &ArchivedHold,
    ) {
        if record.counted {
            // It is in memory again, and counted there.
            self.enter_past_usage(&record.hold, -1, &self.zones());
        }
        self.insert_hold(number, Hold::revived(at, record));
        self.aging.holds.push_back((at, number));
        self.remember(|| Undo::HoldAged);
    }
}
