//! Timers and messages that failed repeatedly and are skipped.
//!
//! A timer or message that panics would block everything after it. After three failures the engine
//! journals that it is set aside. It is skipped from then on, also in replay, and an alarm is
//! raised.

use smallvec::SmallVec;

use super::timers::{due_after, earlier, is_due};
use crate::digest::Digester;
use crate::ledger::command::Command;
use crate::ledger::event::{Event, SliceAmount};
use crate::ledger::id::{AccountNo, BucketNo, CellNo, GrantNo, HoldNo, JobNo};
use crate::ledger::state::Ledger;
use crate::machine::DuePart;
use crate::message::ToCell;
use crate::time::Timestamp;

/// The most events of one timer step. A single timer may exceed it.
pub(in crate::ledger) const STEP_EVENTS: usize = 1024;

/// A timer or message that was set aside.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerAside {
    /// A message of a cell. Its number counts as taken.
    Message {
        /// The cell.
        cell: CellNo,
        /// Its number.
        number: u64,
    },
    /// A grant does not become spendable.
    Activation {
        /// The grant.
        grant: GrantNo,
    },
    /// A bucket does not expire.
    Expiry {
        /// The bucket.
        bucket: BucketNo,
    },
    /// A strict hold is not cut.
    Cut {
        /// The expired bucket.
        bucket: BucketNo,
        /// The hold.
        hold: HoldNo,
    },
    /// A hold does not lapse.
    Lapse {
        /// The hold.
        hold: HoldNo,
        /// Its last valid instant. Needed because numbers are reused.
        expires_at: Timestamp,
    },
    /// A waiting job is not notified of the end of another one.
    Dependant {
        /// The job that waits.
        job: JobNo,
    },
    /// Blocked jobs of a tenant are not reviewed.
    Review {
        /// The tenant.
        tenant: AccountNo,
        /// When the review was due.
        at: Timestamp,
    },
    /// No warning is sent before the paid running time ends.
    Warning {
        /// The job.
        job: JobNo,
        /// When the warning was due.
        at: Timestamp,
    },
    /// A cell does not receive the policies of the remaining accounts.
    Briefing {
        /// The cell.
        cell: CellNo,
    },
    /// Nothing is forgotten.
    Forgetting,
}

impl LedgerAside {
    /// The name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            LedgerAside::Message { .. } => "message",
            LedgerAside::Activation { .. } => "activation",
            LedgerAside::Expiry { .. } => "expiry",
            LedgerAside::Cut { .. } => "cut",
            LedgerAside::Lapse { .. } => "lapse",
            LedgerAside::Dependant { .. } => "dependant",
            LedgerAside::Review { .. } => "review",
            LedgerAside::Warning { .. } => "warning",
            LedgerAside::Briefing { .. } => "briefing",
            LedgerAside::Forgetting => "forgetting",
        }
    }
}

impl Ledger {
    /// All timers and messages that were set aside.
    pub fn set_aside(&self) -> impl ExactSizeIterator<Item = &LedgerAside> {
        self.aside.iter()
    }

    /// Whether a timer or message was set aside. The set is almost always empty.
    pub(in crate::ledger) fn is_aside(&self, thing: LedgerAside) -> bool {
        !self.aside.is_empty() && self.aside.contains(&thing)
    }

    pub(super) fn first_activation(&self) -> Option<(Timestamp, GrantNo)> {
        let mut all = self.timers.activations.iter().copied();
        all.find(|(_, grant)| !self.is_aside(LedgerAside::Activation { grant: *grant }))
    }

    pub(super) fn first_expiry(&self) -> Option<(Timestamp, BucketNo)> {
        if self.policy.expiry_waits {
            return None;
        }
        let mut all = self.timers.expiries.iter().copied();
        all.find(|(_, bucket)| !self.is_aside(LedgerAside::Expiry { bucket: *bucket }))
    }

    pub(super) fn first_lapse(&self) -> Option<(Timestamp, HoldNo)> {
        let aside = |(expires_at, hold): &(Timestamp, HoldNo)| {
            self.is_aside(LedgerAside::Lapse { hold: *hold, expires_at: *expires_at })
        };
        self.timers.leases.iter().copied().find(|lease| !aside(lease))
    }

    pub(in crate::ledger) fn first_cut(&self) -> Option<(BucketNo, HoldNo)> {
        let aside = |(bucket, hold): &(BucketNo, HoldNo)| {
            self.is_aside(LedgerAside::Cut { bucket: *bucket, hold: *hold })
        };
        self.cuts.iter().copied().find(|cut| !aside(cut))
    }

    pub(in crate::ledger) fn first_dependant(&self) -> Option<JobNo> {
        let mut due = self.jobs.index.due.iter().copied();
        due.find(|job| !self.is_aside(LedgerAside::Dependant { job: *job }))
    }

    pub(in crate::ledger) fn first_review(&self) -> Option<(Timestamp, AccountNo)> {
        let mut all = self.jobs.index.review_times.iter().copied();
        all.find(|(at, tenant)| !self.is_aside(LedgerAside::Review { tenant: *tenant, at: *at }))
    }

    pub(in crate::ledger) fn first_warning(&self) -> Option<(Timestamp, JobNo)> {
        let mut all = self.jobs.index.warnings.iter().copied();
        all.find(|(at, job)| !self.is_aside(LedgerAside::Warning { job: *job, at: *at }))
    }

    pub(in crate::ledger) fn first_briefing(&self) -> Option<(CellNo, AccountNo)> {
        let mut all = self.briefings.iter().map(|(cell, from)| (*cell, *from));
        all.find(|(cell, _)| !self.is_aside(LedgerAside::Briefing { cell: *cell }))
    }

    /// The next deadline if timers are set aside or left over from a large step.
    pub(in crate::ledger) fn deadline_in_full(&self, part: DuePart) -> Option<Timestamp> {
        let activation = self.first_activation().map(|(at, _)| at);
        let expiry = self.first_expiry().and_then(|(last, _)| due_after(last));
        let lapse = self.first_lapse().and_then(|(last, _)| due_after(last));
        let forgetting = self.next_forgetting();
        let timers = earlier(earlier(activation, expiry), earlier(lapse, forgetting));
        if self.undo.is_some() {
            return timers;
        }
        let left = self.first_cut().is_some() || self.first_briefing().is_some();
        earlier(earlier(timers, left.then_some(self.now)), self.job_deadline(part))
    }

    /// The deadline of the earliest timer of a job.
    pub(in crate::ledger) fn job_deadline(&self, part: DuePart) -> Option<Timestamp> {
        if self.aside.is_empty() {
            return self.jobs.deadline(self.now, part);
        }
        let warning = self.first_warning().map(|(at, _)| at);
        match part {
            DuePart::Pressing => warning,
            DuePart::First => earlier(self.patient_deadline(), warning),
        }
    }

    /// When waiting jobs are next due for a review. A tenant may have any number of them.
    pub(in crate::ledger) fn patient_deadline(&self) -> Option<Timestamp> {
        let at_once = self.first_dependant().map(|_| self.now);
        earlier(at_once, self.first_review().map(|(at, _)| at))
    }

    /// The first due timer, in the order of decision.
    fn first_due(&self, deadline: Timestamp) -> LedgerAside {
        if let Some((bucket, hold)) = self.first_cut() {
            return LedgerAside::Cut { bucket, hold };
        }
        if let Some((cell, _)) = self.first_briefing() {
            return LedgerAside::Briefing { cell };
        }
        if let Some((_, grant)) = self.first_activation().filter(|(at, _)| *at <= deadline) {
            return LedgerAside::Activation { grant };
        }
        if let Some((_, bucket)) = self.first_expiry().filter(|(at, _)| is_due(*at, deadline)) {
            return LedgerAside::Expiry { bucket };
        }
        if let Some((expires_at, hold)) = self.first_lapse().filter(|(at, _)| is_due(*at, deadline))
        {
            return LedgerAside::Lapse { hold, expires_at };
        }
        if let Some(job) = self.first_dependant() {
            return LedgerAside::Dependant { job };
        }
        if let Some((at, tenant)) = self.first_review().filter(|(at, _)| *at <= deadline) {
            return LedgerAside::Review { tenant, at };
        }
        if let Some((at, job)) = self.first_warning().filter(|(at, _)| *at <= deadline) {
            return LedgerAside::Warning { job, at };
        }
        LedgerAside::Forgetting
    }

    /// Sets the first due timer aside.
    pub(in crate::ledger) fn push_due_aside(&self, deadline: Timestamp, events: &mut Vec<Event>) {
        let what = self.first_due(deadline);
        let digest = digest_of(&what);
        events.push(Event::SetAside { what, digest });
    }

    /// Takes a message of a cell and sets it aside.
    pub(in crate::ledger) fn push_message_aside(&self, command: &Command, events: &mut Vec<Event>) {
        let Command::Receive { cell, number, position, message } = command else { return };
        let expected = self.cell(*cell).is_some_and(|book| book.mark.number + 1 == *number);
        if expected {
            let (cell, number, position) = (*cell, *number, *position);
            events.push(Event::MessageReceived { cell, number, position });
            let what = LedgerAside::Message { cell, number };
            events.push(Event::SetAside { what, digest: digest_of(message) });
        }
    }

    /// The amounts that the expiry of a bucket cuts off a strict hold.
    pub(in crate::ledger) fn cut_of(
        &self,
        bucket: BucketNo,
        hold: HoldNo,
    ) -> SmallVec<[SliceAmount; 2]> {
        let slices = (0u32..).zip(&self.live_hold(hold).slices);
        let own = slices.filter(|(_, slice)| slice.bucket == bucket && slice.room() > 0);
        own.map(|(at, slice)| SliceAmount { slice: at, amount: slice.room() }).collect()
    }

    /// Pushes the remaining cuts of the expiry of a bucket with many strict holds.
    pub(in crate::ledger) fn push_left_cuts(&self, most: usize, events: &mut Vec<Event>) {
        let aside = |bucket, hold| self.is_aside(LedgerAside::Cut { bucket, hold });
        let left = self.cuts.iter().filter(|(bucket, hold)| !aside(*bucket, *hold));
        for (bucket, hold) in left.take(most.min(STEP_EVENTS)) {
            events.push(Event::HoldCut { hold: *hold, cut: self.cut_of(*bucket, *hold) });
        }
    }

    /// Sends the next policies to a new cell and records the progress.
    pub(in crate::ledger) fn push_briefing(
        &self,
        (cell, from): (CellNo, AccountNo),
        most: usize,
        events: &mut Vec<Event>,
    ) {
        let Some(region) = self.cell(cell).map(|book| &book.region) else { return };
        let mut rest = self.accounts_with_policy(from);
        for account in rest.by_ref().take(most.min(STEP_EVENTS)) {
            let policy = self.policy_in(account, region, None);
            self.send(cell, ToCell::AccountPolicyChanged(Box::new(policy)), events);
        }
        events.push(Event::RegionPoliciesSent { cell, next: rest.next() });
    }
}

fn digest_of(message: &impl std::hash::Hash) -> u128 {
    Digester::new().value(message).finish_half()
}
