//! What may be forgotten: closed holds, charges, movements and answers beyond the window, with their records.
//!
//! What an answer that stays refers to stays as well: it is passed over, and goes to the end of its queue. The last hold
//! of a job that stays does too. The parts of a refund of a job leave together.

use std::sync::Arc;

use super::archive::{ArchivedAnswer, ArchivedHold, ArchivedName};
use super::forget::resource_of;
use crate::ledger::command::Forget;
use crate::ledger::id::{HoldNo, JobNo};
use crate::ledger::index::idempotency::{KeptEntry, Refers};
use crate::ledger::jobs::{ArchivedJob, Job};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Ledger, Movement};
use crate::time::Timestamp;

/// How many entries of a queue are looked at for each that one step forgets.
const MAX_VISITED_PER_FORGOTTEN: usize = 4;
/// The most bytes of the texts of the jobs that one step forgets, unless the first alone has more.
const JOB_BYTES: usize = 4 << 20;

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

/// How much of a queue leaves it.
#[derive(Copy, Clone, Debug)]
struct Share {
    /// The most that leaves.
    wanted: usize,
    /// How many entries are looked at.
    looked_at: usize,
    /// Whether those that stay are passed over for good: the queue is longer than the window.
    turns: bool,
}

impl Forgettable {
    /// How many of a queue leave it: those beyond the window, and the old ones.
    fn share(&self, length: usize, times: impl Iterator<Item = Timestamp>) -> Share {
        let old = times.take(self.most).take_while(|at| *at < self.kept_from).count();
        let over = length.saturating_sub(self.keep);
        let wanted = over.max(old).min(self.most);
        let looked_at =
            if over > 0 { self.most.saturating_mul(MAX_VISITED_PER_FORGOTTEN) } else { old };
        Share { wanted, looked_at, turns: over > 0 }
    }

    /// How many of the old holds leave. `times` are those of the queue.
    fn old_share(&self, times: impl Iterator<Item = Timestamp>) -> Share {
        let most = self.most.saturating_mul(MAX_VISITED_PER_FORGOTTEN);
        let looked_at = times.take(most).take_while(|at| *at < self.kept_from).count();
        Share { wanted: looked_at.min(self.most), looked_at, turns: looked_at == most }
    }

    /// How many entries leave a queue in which no entry stays because another one refers to it.
    fn count(&self, length: usize, times: impl Iterator<Item = Timestamp>) -> usize {
        self.share(length, times).wanted
    }
}

impl Share {
    /// The units at the front of a queue that leave it, and how many entries were examined for them.
    fn choose<U>(
        self,
        mut units: impl Iterator<Item = U>,
        size: impl Fn(&U) -> usize,
        leaves: impl Fn(&U) -> bool,
    ) -> (Vec<U>, u32) {
        let (mut chosen, mut left, mut seen, mut examined) = (Vec::new(), self.wanted, 0, 0);
        while left > 0 && seen < self.looked_at {
            let Some(unit) = units.next() else { break };
            seen += size(&unit);
            if leaves(&unit) {
                left = left.saturating_sub(size(&unit));
                examined = seen;
                chosen.push(unit);
            }
        }
        // Those at the front go to the end, so that what follows them is reached: if anything does that leaves.
        if chosen.is_empty() && self.turns && units.any(|unit| leaves(&unit)) {
            examined = seen;
        }
        (chosen, u32::try_from(examined).unwrap_or(u32::MAX))
    }
}

impl Ledger {
    /// The records of everything that may be forgotten now, oldest first. Its position is that of the state that was
    /// read.
    pub fn forgettable(&self, which: Forgettable) -> Forget {
        let aging = &self.aging;
        let answers = which.count(self.answers.len(), self.answers.times());
        let of = self.references(answers);
        let hold = |(_, number): &&(Timestamp, HoldNo)| !of.holds.has(number.0);
        let record = |(_, number): &(Timestamp, HoldNo)| self.archived_hold(*number);
        let share = which.share(aging.holds.len(), aging.holds.iter().map(|(at, _)| *at));
        let (holds, examined_holds) = share.choose(aging.holds.iter(), |_| 1, hold);
        let jobs = self.forgettable_jobs(which);
        let leaving = Leaving::of(jobs.iter().map(|record| record.number));
        let old_from = self.now.plus_millis(-self.policy.retention_ms).min(which.kept_from);
        let old = Forgettable { kept_from: old_from, ..which };
        let share = old.old_share(aging.old_holds.iter().map(|(at, _)| *at));
        // Those whose jobs leave with one of the next steps wait for them, and keep their place.
        let is_next = |job: &Job| job.ended_at.is_some_and(|at| at < which.kept_from);
        let queue = aging.old_holds.iter().take_while(|(at, number)| {
            *at < old_from && !self.job_that_stays(*number, &leaving).is_some_and(is_next)
        });
        let (old_holds, examined_old) = share.choose(
            queue,
            |_| 1,
            |entry| hold(entry) && self.job_that_stays(entry.1, &leaving).is_none(),
        );
        let made_at = aging.movements.iter().map(|(at, _)| *at);
        let share = which.share(aging.movements.len(), made_at);
        let (movements, examined_movements) =
            share.choose(self.movement_units(), Vec::len, |unit| {
                !unit.iter().any(|number| of.movements.has(*number))
            });
        let answers = self.answers.iter().take(answers);
        Forget {
            through: 0,
            answers: answers.map(|kept| self.archived_answer(kept)).collect(),
            holds: holds.into_iter().map(record).collect(),
            old_holds: old_holds.into_iter().map(record).collect(),
            movements: movements
                .into_iter()
                .flatten()
                .filter_map(|number| self.movements.get(number).cloned())
                .collect(),
            jobs,
            examined_holds,
            examined_old,
            examined_movements,
        }
    }

    /// The jobs that ended first. Each of an array has the texts of its submission, which may be large.
    fn forgettable_jobs(&self, which: Forgettable) -> Vec<ArchivedJob> {
        let ended = self.aging.jobs.iter().take(which.most);
        let ended = ended.take_while(|(at, _)| *at < which.kept_from);
        let mut bytes = 0;
        let fits = |number: &JobNo| {
            let is_first = bytes == 0;
            let order = self.job(*number).map(|job| &job.order);
            bytes += order.map_or(0, |order| order.payload.len() + order.submitted.len());
            is_first || bytes <= JOB_BYTES
        };
        let numbers = ended.map(|(_, number)| *number).take_while(fits);
        numbers.filter_map(|number| self.archived_job(number)).collect()
    }

    /// The job that stays and whose last hold this is. Without it the job would show other credits.
    pub(super) fn job_that_stays(&self, number: HoldNo, leaving: &Leaving) -> Option<&Job> {
        let hold = self.live_hold(number);
        let job = hold.job().filter(|job| !leaving.has(*job)).and_then(|job| self.job(job))?;
        let is_last = job.hold_name.as_ref() == Some(&hold.id);
        (is_last && job.order.account == hold.account).then_some(job)
    }

    /// Movements in the order in which they leave: those of one refund of a job together.
    pub(super) fn movement_units(&self) -> impl Iterator<Item = Vec<u32>> {
        let mut queue = self.aging.movements.iter().map(|(_, number)| *number).peekable();
        std::iter::from_fn(move || {
            let mut unit = vec![queue.next()?];
            let whole = self.movements.get(unit[0]);
            while let Some(part) = queue.next_if(|number| {
                let part = self.movements.get(*number);
                whole.zip(part).is_some_and(|(whole, part)| part.is_part_of(whole))
            }) {
                unit.push(part);
            }
            Some(unit)
        })
    }

    pub(super) fn archived_hold(&self, number: HoldNo) -> ArchivedHold {
        let hold = self.live_hold(number).clone();
        // What came back for a refund was counted by no budget, and is not counted when it leaves again.
        let counted = !hold.is_revived();
        ArchivedHold { hold, counted }
    }

    pub(super) fn archived_job(&self, number: JobNo) -> Option<ArchivedJob> {
        self.job(number).cloned().map(|job| ArchivedJob { number, job })
    }

    pub(super) fn archived_answer(&self, entry: KeptEntry) -> ArchivedAnswer {
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

    /// The numbers of movements, and of holds and charges, that what stays in memory refers to.
    pub(super) fn references(&self, forgotten_answers: usize) -> References {
        let mut references = References::default();
        for of in self.answers.references_from(forgotten_answers) {
            match of {
                Refers::Hold(hold) => references.holds.add(hold.0),
                Refers::Movement(movement) => references.movements.add(movement),
            }
        }
        references
    }
}

impl Movement {
    /// Whether it is a further part of a refund of a job. Those of older journals have a dot in their names.
    fn is_part_of(&self, whole: &Movement) -> bool {
        let mut end =
            self.movement.id.strip_prefix(whole.movement.id.as_str()).unwrap_or("").chars();
        matches!(end.next(), Some('/' | '.'))
            && end.all(|digit| digit.is_ascii_digit())
            && (self.what, self.tenant) == (whole.what, whole.tenant)
            && self.movement.fingerprint == whole.movement.fingerprint
    }
}

/// What answers refer to by numbers that are used again.
#[derive(Default)]
pub(super) struct References {
    /// Holds and charges.
    pub(super) holds: Numbers,
    /// Refunds, transfers and collections.
    pub(super) movements: Numbers,
}

/// The jobs that leave in the same step, in order.
pub(super) struct Leaving(Vec<JobNo>);

impl Leaving {
    pub(super) fn of(jobs: impl Iterator<Item = JobNo>) -> Leaving {
        let mut jobs: Vec<JobNo> = jobs.collect();
        jobs.sort_unstable();
        Leaving(jobs)
    }

    fn has(&self, job: JobNo) -> bool {
        self.0.binary_search(&job).is_ok()
    }
}

/// A set of numbers, one bit for each: a step asks for thousands of them.
#[derive(Default)]
pub(super) struct Numbers(Vec<u64>);

impl Numbers {
    fn add(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}
