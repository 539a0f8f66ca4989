//! Forgetting: closed holds, charges, movements and answers leave memory once the archive has them durably.
//!
//! The archiver reads what can be forgotten, stores it, and then sends [`Forget`] with the same records and the
//! archive's position. Only what still equals its record is forgotten, so that nothing leaves memory that the archive
//! does not have as it is.

use super::archive::{ArchivedAnswer, ArchivedHold};
use super::forgettable::{Leaving, References};
use super::hold::{Hold, HoldKind};
use crate::ledger::accounts::past_usage::Zones;
use crate::ledger::command::Forget;
use crate::ledger::event::{Event, Forgetting};
use crate::ledger::id::{AccountNo, HoldNo, JobNo};
use crate::ledger::index::recent::{hash_of_key, hash_of_name};
use crate::ledger::jobs::ArchivedJob;
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Aging, Ledger};
use crate::time::Timestamp;

impl Ledger {
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
        let of = self.references(answers as usize);
        let kept_movements = self.kept_movements(command, &of);
        let jobs = self.leading_jobs(now, &command.jobs);
        let leaving = self.aging.jobs.iter().take(jobs as usize).map(|(_, number)| *number);
        let leaving = Leaving::of(leaving);
        let stays = |record: &ArchivedHold, number: HoldNo| {
            self.hold(number) != Some(&record.hold) || of.holds.has(number.0)
        };
        let (mut kept, mut longer) = (Vec::new(), Vec::new());
        let mut records = command.holds.iter().peekable();
        let holds = self.aging.holds.iter().take(command.examined_holds as usize);
        for (at, (_, number)) in (0u32..).zip(holds) {
            let record = records.next_if(|record| self.is_record_of(record, *number));
            let Some(record) = record.filter(|record| !stays(record, *number)) else {
                kept.push(at);
                continue;
            };
            let young = record.hold.moved_at.plus_millis(self.policy.retention_ms) >= now;
            let is_kept = record.hold.job().is_some() && young;
            if is_kept || self.job_that_stays(*number, &leaving).is_some() {
                longer.push(at);
            }
        }
        let holds = count(self.aging.holds.len(), command.examined_holds);
        let old_holds = count(self.aging.old_holds.len(), command.examined_old);
        let mut records = command.old_holds.iter().peekable();
        let queue = self.aging.old_holds.iter().take(old_holds as usize);
        for (at, (_, number)) in (holds..).zip(queue) {
            let record = records.next_if(|record| self.is_record_of(record, *number));
            let leaves = record.is_some_and(|record| !stays(record, *number));
            if !leaves || self.job_that_stays(*number, &leaving).is_some() {
                kept.push(at);
            }
        }
        let movements = count(self.aging.movements.len(), command.examined_movements);
        let done = answers + movements + holds + old_holds + jobs;
        let stay = count(kept.len() + kept_movements.len(), u32::MAX);
        if done > stay || (done > 0 && command.turns()) {
            let archived = Forgetting {
                through: command.through,
                old_holds,
                kept,
                longer,
                kept_movements,
                jobs,
            };
            let (buckets, jobs, archived) = (0, 0, Some(Box::new(archived)));
            events.push(Event::Forgotten { answers, holds, movements, buckets, jobs, archived });
        }
        Ok(Reply::Done)
    }

    /// How many of the jobs that ended first are those, as they are.
    fn leading_jobs(&self, now: Timestamp, archived: &[ArchivedJob]) -> u32 {
        let is_same = |((at, number), record): &(&(Timestamp, JobNo), &ArchivedJob)| {
            let is_old = at.plus_millis(self.policy.retention_ms) < now;
            is_old && record.number == *number && self.job(*number) == Some(&record.job)
        };
        let same = self.aging.jobs.iter().zip(archived).take_while(is_same).count();
        u32::try_from(same).unwrap_or(u32::MAX)
    }

    /// The places of the examined movements that stay: all of a unit, if one of it does.
    fn kept_movements(&self, command: &Forget, of: &References) -> Vec<u32> {
        let mut kept = Vec::new();
        let (mut at, mut records) = (0, command.movements.iter().peekable());
        for unit in self.movement_units() {
            let (first, size) = (at, count(unit.len(), u32::MAX));
            at += size;
            if first >= command.examined_movements {
                break;
            }
            let mut leaves = at <= command.examined_movements;
            for number in unit {
                let made = self.movements.get(number);
                leaves &= records.next_if(|record| Some(*record) == made).is_some();
                leaves &= !of.movements.has(number);
            }
            if !leaves {
                kept.extend(first..at.min(command.examined_movements));
            }
        }
        kept
    }

    /// Whether a record is of the hold or charge with this number, as it is or as it was.
    fn is_record_of(&self, record: &ArchivedHold, number: HoldNo) -> bool {
        let name = |hold: &Hold| (hold.kind, hold.account, hold.id.clone());
        self.hold(number).is_some_and(|hold| name(hold) == name(&record.hold))
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

    pub(in crate::ledger) fn apply_forgetting(
        &mut self,
        [answers, holds, movements, jobs_beside]: [u32; 4],
        archived: &Forgetting,
    ) {
        let Forgetting { through, old_holds, kept, longer, kept_movements, jobs } = archived;
        self.aging.archived_through = self.aging.archived_through.max(*through);
        self.aging.recent.begin(*through);
        for _ in 0..answers {
            if let Some(key) = self.answers.forget_oldest() {
                self.aging.recent.insert(hash_of_key(key));
            }
        }
        let mut queue: Vec<_> = self.aging.holds.drain(..holds as usize).collect();
        queue.extend(self.aging.old_holds.drain(..*old_holds as usize));
        let zones = self.zones();
        for (place, (_, number)) in (0u32..).zip(queue) {
            let moved_at = self.live_hold(number).moved_at;
            if kept.binary_search(&place).is_ok() {
                let old = place >= holds;
                let back = if old { &mut self.aging.old_holds } else { &mut self.aging.holds };
                back.push_back((moved_at, number));
            } else if longer.binary_search(&place).is_ok() {
                self.aging.old_holds.push_back((moved_at, number));
            } else {
                self.forget_archived(number, &zones);
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
        // For a while builds had the number of jobs beside the rest.
        let over: Vec<_> = self.aging.jobs.drain(..(jobs + jobs_beside) as usize).collect();
        for (_, number) in over {
            let Some(job) = self.job(number) else { continue };
            let tenant = self.account(job.order.account).tenant;
            let hash = hash_of_name(Resource::Job, tenant, &job.order.id);
            self.aging.recent.insert(hash);
            self.remove_job(number);
        }
        self.sweep_past_usage();
    }

    /// Forgets one hold that the archive has. Budgets that are set later still count what it spent.
    fn forget_archived(&mut self, number: HoldNo, zones: &Zones) {
        self.touch_tallies(number);
        let Some(hold) = self.holds.remove(number.0) else { return };
        self.hold_names.remove(number.0);
        let tenant = self.account(hold.account).tenant;
        self.aging.recent.insert(hash_of_name(resource_of(hold.kind), tenant, &hold.id));
        if !hold.is_revived() {
            self.enter_past_usage(&hold, 1, zones);
        }
    }

    /// The records of what an event is about to remove, for an archive that is built again. `None` if it forgets
    /// nothing.
    pub fn forgotten_by(&self, at: Timestamp, event: &Event) -> Option<Forget> {
        let Event::Forgotten { answers, holds, movements, jobs, archived, .. } = event else {
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
        let over = self.aging.jobs.iter().take((jobs + places.jobs) as usize);
        forget.jobs = over.filter_map(|(_, number)| self.archived_job(*number)).collect();
        Some(forget)
    }

    /// The tenants of the holds that are forgotten, in order, and then of the jobs.
    pub fn tenants_of(&self, forget: &Forget) -> Vec<AccountNo> {
        let holds = forget.holds.iter().chain(&forget.old_holds).map(|record| record.hold.account);
        let accounts = holds.chain(forget.jobs.iter().map(|record| record.job.order.account));
        accounts.map(|account| self.account(account).tenant).collect()
    }

    /// How many closed holds and charges, movements and kept answers are in memory.
    pub fn closed_in_memory(&self) -> usize {
        let Aging { holds, old_holds, movements, .. } = &self.aging;
        holds.len() + old_holds.len() + movements.len() + self.answers.len()
    }

    /// The length of the longest queue of closed holds and charges, movements, or kept answers.
    pub fn most_closed(&self) -> usize {
        self.aging.holds.len().max(self.aging.movements.len()).max(self.answers.len())
    }

    /// The archive's position up to which anything was forgotten. A look-up in an older archive may have missed it.
    pub fn forgotten_through(&self) -> u64 {
        // Earlier releases forgot without an archive. Every archive was built from the first record.
        self.aging.archived_through.max(u64::from(self.forgot_by_age()))
    }

    /// Whether holds, movements or jobs were forgotten by their age, as earlier releases did.
    fn forgot_by_age(&self) -> bool {
        let Aging { forgotten_until, forgotten_movements, forgotten_through, .. } = &self.aging;
        forgotten_until.is_some() || *forgotten_movements || forgotten_through.is_some()
    }

    /// The last change of anything that earlier releases forgot by its age.
    pub fn forgotten_by_age(&self) -> Option<Timestamp> {
        self.aging.forgotten_through
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
        // The filter has nothing of what was forgotten by its age: every archive was built after that.
        let is_unknown = looked_up == 0 && self.forgot_by_age();
        self.forgotten_through() > looked_up
            && (is_unknown
                || self.aging.recent.may_contain(hash_of_name(what, tenant, name), looked_up))
    }

    /// Whether the answer to a request under this idempotency key may have been forgotten since a look-up at this
    /// position.
    pub fn may_have_forgotten_key(&self, key: u128, looked_up: u64) -> bool {
        self.forgotten_through() > looked_up
            && self.aging.recent.may_contain(hash_of_key(key), looked_up)
    }

    /// Whether an answer that was given at an instant is still retained.
    pub fn promises_answer(&self, now: Timestamp, given_at: Timestamp) -> bool {
        super::retention::answer_ends(given_at, self.policy.idempotency_ttl_ms) > now
    }
}

/// A length as events have it, and no more than a bound.
fn count(length: usize, most: u32) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX).min(most)
}

/// The resource that a hold or charge is.
pub fn resource_of(kind: HoldKind) -> Resource {
    match kind {
        HoldKind::Hold => Resource::Hold,
        HoldKind::Charge => Resource::Charge,
    }
}
