//! Forgetting: closed holds, charges, movements and answers leave memory once the archive has them durably.
//!
//! The archiver reads what can be forgotten, stores it, and then sends [`Forget`] with the same records and the
//! archive's position. Only what still equals its record is forgotten, so that nothing leaves memory that the archive
//! does not have as it is.

use std::sync::Arc;

use super::archive::{ArchivedAnswer, ArchivedHold, ArchivedName};
use super::hold::HoldKind;
use crate::ledger::command::Forget;
use crate::ledger::event::{Event, Forgetting};
use crate::ledger::id::{AccountNo, HoldNo};
use crate::ledger::index::idempotency::{KeptEntry, Refers};
use crate::ledger::index::recent::{hash_of_key, hash_of_name};
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Aging, Ledger};
use crate::time::Timestamp;

/// What of a ledger may be forgotten.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Forgettable {
    /// How many closed holds and charges, movements, and answers stay in memory.
    pub keep: usize,
    /// What last changed before this instant leaves memory in any case.
    pub kept_from: Timestamp,
    /// The most of each kind that one step forgets.
    pub most: usize,
}

impl Forgettable {
    /// How many of a queue leave it: those beyond the window, and the old ones.
    fn count(&self, length: usize, times: impl Iterator<Item = Timestamp>) -> usize {
        let old = times.take(self.most).take_while(|at| *at < self.kept_from).count();
        length.saturating_sub(self.keep).max(old).min(self.most)
    }
}

impl Ledger {
    /// The records of everything that may be forgotten now, oldest first. Its position is that of the state that was
    /// read.
    pub fn forgettable(&self, which: Forgettable) -> Forget {
        let aging = &self.aging;
        let answers = which.count(self.answers.len(), self.answers.times());
        let holds = which.count(aging.holds.len(), aging.holds.iter().map(|(at, _)| *at));
        let old_from = self.now.plus_millis(-self.policy.retention_ms).min(which.kept_from);
        let old = Forgettable { keep: usize::MAX, kept_from: old_from, ..which };
        let old_holds = old.count(0, aging.old_holds.iter().map(|(at, _)| *at));
        let movements =
            which.count(aging.movements.len(), aging.movements.iter().map(|(at, _)| *at));
        let record = |(_, hold): &(Timestamp, HoldNo)| self.archived_hold(*hold);
        let made = aging.movements.iter().take(movements);
        Forget {
            through: 0,
            answers: self
                .answers
                .iter()
                .take(answers)
                .map(|kept| self.archived_answer(kept))
                .collect(),
            holds: aging.holds.iter().take(holds).map(record).collect(),
            old_holds: aging.old_holds.iter().take(old_holds).map(record).collect(),
            movements: made
                .filter_map(|(_, number)| self.movements.get(*number).cloned())
                .collect(),
        }
    }

    fn archived_hold(&self, number: HoldNo) -> ArchivedHold {
        let hold = self.live_hold(number).clone();
        // What came back for a refund was counted by no budget, and is not counted when it leaves again.
        let counted = !hold.is_revived();
        ArchivedHold { hold, counted }
    }

    fn archived_answer(&self, entry: KeptEntry) -> ArchivedAnswer {
        let (at, key, kept) = (entry.at, entry.key, entry.kept);
        let of = kept.answer.as_ref().as_ref().ok().and_then(|reply| self.named_by(reply));
        let (fingerprint, request) = (kept.fingerprint, kept.request);
        ArchivedAnswer { at, key, fingerprint, answer: Arc::clone(&kept.answer), request, of }
    }

    /// The name of the hold, charge or movement that a reply refers to by its number.
    fn named_by(&self, reply: &Reply) -> Option<ArchivedName> {
        match reply.refers_to()? {
            Refers::Hold(hold) => self.name_of_hold(hold),
            Refers::Movement(movement) => {
                let made = self.movements.get(movement)?;
                let (what, tenant, name) =
                    (made.what, made.tenant, made.movement.id.clone().into());
                Some(ArchivedName { what, tenant, name })
            }
        }
    }

    fn name_of_hold(&self, number: HoldNo) -> Option<ArchivedName> {
        let hold = self.hold(number)?;
        let what = resource_of(hold.kind);
        Some(ArchivedName {
            what,
            tenant: self.account(hold.account).tenant,
            name: hold.id.clone().into(),
        })
    }

    pub(in crate::ledger) fn decide_forget(
        &self,
        now: Timestamp,
        command: &Forget,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        // A group may be undone, and what is forgotten does not come back.
        if self.undo.is_some() || command.through == 0 {
            return Err(Refusal::Conflict(Conflict::RecordMismatch));
        }
        let answers = self.leading_answers(&command.answers);
        let (movement_refs, hold_refs) = self.references(answers);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let examined = command.movements.iter().zip(&self.aging.movements);
        let kept_movements: Vec<u32> = examined
            .clone()
            .enumerate()
            .filter(|(_, (record, (_, number)))| {
                self.movements.get(*number) != Some(record) || movement_refs.has(*number)
            })
            .map(|(at, _)| place(at))
            .collect();
        let movements = place(examined.len());
        let stays = |record: &ArchivedHold, number: HoldNo| {
            self.hold(number) != Some(&record.hold) || hold_refs.has(number.0)
        };
        let (mut kept, mut longer) = (Vec::new(), Vec::new());
        let examined = command.holds.iter().zip(&self.aging.holds);
        let holds = place(examined.len());
        for (at, (record, (_, number))) in examined.enumerate() {
            let young = record.hold.moved_at.plus_millis(self.policy.retention_ms) >= now;
            if stays(record, *number) {
                kept.push(place(at));
            } else if record.hold.job().is_some() && young {
                longer.push(place(at));
            }
        }
        let examined = command.old_holds.iter().zip(&self.aging.old_holds);
        let old_holds = place(examined.len());
        for (at, (record, (_, number))) in examined.enumerate() {
            if stays(record, *number) {
                kept.push(holds + place(at));
            }
        }
        let done = answers + movements + holds + old_holds;
        let stay = place(kept.len() + kept_movements.len());
        if done > stay {
            let archived =
                Forgetting { through: command.through, old_holds, kept, longer, kept_movements };
            let (buckets, jobs, archived) = (0, 0, Some(Box::new(archived)));
            events.push(Event::Forgotten { answers, holds, movements, buckets, jobs, archived });
        }
        Ok(Reply::Done)
    }

    /// How many of the oldest answers are those. Some may have been dropped since, because they were no longer
    /// retained.
    fn leading_answers(&self, archived: &[ArchivedAnswer]) -> u32 {
        let mut present = self.answers.keys().peekable();
        let Some(first) = present.peek().copied() else { return 0 };
        let from = archived.iter().skip_while(|answer| answer.key != first);
        let same = from.zip(present).take_while(|(answer, key)| answer.key == *key).count();
        u32::try_from(same).unwrap_or(u32::MAX)
    }

    /// The numbers of movements, and of holds and charges, that what stays in memory refers to.
    fn references(&self, forgotten_answers: u32) -> (Numbers, Numbers) {
        let (mut movements, mut holds) = (Numbers::default(), Numbers::default());
        for of in self.answers.references_from(forgotten_answers as usize) {
            match of {
                Refers::Hold(hold) => holds.add(hold.0),
                Refers::Movement(movement) => movements.add(movement),
            }
        }
        (movements, holds)
    }

    pub(in crate::ledger) fn apply_forgetting(
        &mut self,
        (answers, holds, movements): (u32, u32, u32),
        archived: &Forgetting,
    ) {
        let Forgetting { through, old_holds, kept, longer, kept_movements } = archived;
        self.aging.archived_through = self.aging.archived_through.max(*through);
        self.aging.recent.begin(*through);
        for _ in 0..answers {
            if let Some(key) = self.answers.forget_oldest() {
                self.aging.recent.insert(hash_of_key(key));
            }
        }
        let mut queue: Vec<_> = self.aging.holds.drain(..holds as usize).collect();
        queue.extend(self.aging.old_holds.drain(..*old_holds as usize));
        for (place, (_, number)) in (0u32..).zip(queue) {
            let moved_at = self.live_hold(number).moved_at;
            if kept.binary_search(&place).is_ok() {
                let old = place >= holds;
                let back = if old { &mut self.aging.old_holds } else { &mut self.aging.holds };
                back.push_back((moved_at, number));
            } else if longer.binary_search(&place).is_ok() {
                self.aging.old_holds.push_back((moved_at, number));
            } else {
                self.forget_archived(number);
            }
        }
        let queue: Vec<_> = self.aging.movements.drain(..movements as usize).collect();
        for (place, (at, number)) in (0u32..).zip(queue) {
            if kept_movements.binary_search(&place).is_ok() {
                self.aging.movements.push_back((at, number));
                continue;
            }
            let Some(made) = self.movements.remove(number) else { continue };
            let id = made.movement.id.as_str();
            self.movement_names.remove((made.tenant, made.what as u8, id), number);
            self.aging.recent.insert(hash_of_name(made.what, made.tenant, id));
        }
    }

    /// Forgets one hold that the archive has. Budgets that are set later still count what it spent.
    fn forget_archived(&mut self, number: HoldNo) {
        self.touch_tallies(number);
        let Some(hold) = self.holds.remove(number.0) else { return };
        self.hold_names.remove(number.0);
        let tenant = self.account(hold.account).tenant;
        self.aging.recent.insert(hash_of_name(resource_of(hold.kind), tenant, &hold.id));
        if !hold.is_revived() {
            self.enter_past_usage(&hold, 1);
        }
    }

    /// The records of what an event is about to remove, for an archive that is built again. `None` if it forgets
    /// nothing.
    pub fn forgotten_by(&self, at: Timestamp, event: &Event) -> Option<Forget> {
        let Event::Forgotten { answers, holds, movements, archived, .. } = event else {
            return None;
        };
        let mut forget = Forget::default();
        let kept = self.answers.iter().take(*answers as usize);
        forget.answers = kept.map(|kept| self.archived_answer(kept)).collect();
        let none = Forgetting::default();
        let places = archived.as_deref().unwrap_or(&none);
        let window = self.aging.holds.iter().take(*holds as usize);
        let old = self.aging.old_holds.iter().take(places.old_holds as usize);
        for (place, (_, number)) in (0u32..).zip(window.chain(old)) {
            let mut record = self.archived_hold(*number);
            let stays = match archived {
                Some(_) => {
                    [&places.kept, &places.longer].iter().any(|p| p.binary_search(&place).is_ok())
                }
                None => record.hold.moved_at.plus_millis(self.policy.retention_ms) >= at,
            };
            if !stays {
                record.counted &= archived.is_some();
                forget.holds.push(record);
            }
        }
        for (place, (_, number)) in
            (0u32..).zip(self.aging.movements.iter().take(*movements as usize))
        {
            if places.kept_movements.binary_search(&place).is_err() {
                forget.movements.extend(self.movements.get(*number).cloned());
            }
        }
        Some(forget)
    }

    /// The tenants of the holds that are forgotten, in order.
    pub fn tenants_of(&self, forget: &Forget) -> Vec<AccountNo> {
        let records = forget.holds.iter().chain(&forget.old_holds);
        records.map(|record| self.account(record.hold.account).tenant).collect()
    }

    /// How many closed holds and charges, movements and kept answers are in memory.
    pub fn closed_in_memory(&self) -> usize {
        let Aging { holds, old_holds, movements, .. } = &self.aging;
        holds.len() + old_holds.len() + movements.len() + self.answers.len()
    }

    /// The archive's position up to which anything was forgotten. A look-up in an older archive may have missed it.
    pub fn forgotten_through(&self) -> u64 {
        // Earlier releases forgot without an archive. Every archive was built from the first record.
        let before = self.aging.forgotten_until.is_some() || self.aging.forgotten_movements;
        self.aging.archived_through.max(u64::from(before))
    }

    /// Whether something with this name may have been forgotten since it was looked up in an archive at this
    /// position.
    pub fn may_have_forgotten(
        &self,
        what: Resource,
        tenant: AccountNo,
        name: &str,
        looked_up: u64,
    ) -> bool {
        self.forgotten_through() > looked_up
            && self.aging.recent.may_contain(hash_of_name(what, tenant, name), looked_up)
    }

    /// The same of the answer to a request under an idempotency key.
    pub fn may_have_forgotten_key(&self, key: u128, looked_up: u64) -> bool {
        self.forgotten_through() > looked_up
            && self.aging.recent.may_contain(hash_of_key(key), looked_up)
    }

    /// Whether an answer that was given at an instant is still retained.
    pub fn promises_answer(&self, now: Timestamp, given_at: Timestamp) -> bool {
        super::retention::answer_ends(given_at, self.policy.idempotency_ttl_ms) > now
    }
}

/// A set of numbers, one bit for each: a step asks for thousands of them.
#[derive(Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    fn add(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

/// The resource that a hold or charge is.
pub fn resource_of(kind: HoldKind) -> Resource {
    match kind {
        HoldKind::Hold => Resource::Hold,
        HoldKind::Charge => Resource::Charge,
    }
}
