//! The scheduling pass.
//!
//! A pass is a series of steps. Each step decides about one job on the state that the previous step
//! left, so that no decision takes long. A pass is due when something changed that may help a
//! waiting job. It ends when no further job can be placed.

use bursar_seeded::{Bug, seeded};

use super::placement::Obstacle;
use super::preemption::Trigger;
use super::preemption::rules::Rule;
use crate::cell::event::Event;
use crate::cell::ids::{AttemptId, ClassRank, JobId};
use crate::cell::index::bitset::Bits;
use crate::cell::index::interner::InternedId;
use crate::cell::index::timers::Timer;
use crate::cell::jobs::job::CellJob;
use crate::cell::state::{Cell, ClassQueue};
use crate::time::Timestamp;

/// How many aged jobs are examined in one decision.
const AGED_LOOKED_AT: usize = 32;
/// How many requests are examined for preemption in one step of a review.
const REVIEWED_AT_ONCE: usize = 4;

/// Deciding.
impl Cell {
    /// One step of the pass: the first of these that applies, from the highest class down.
    pub(crate) fn decide_step(&self, now: Timestamp, events: &mut Vec<Event>) {
        for (class, queue) in self.classes.iter().rev() {
            // 1. A job with reserved nodes starts as soon as they are free.
            if let Some(job) = self.next_ready(*class) {
                return self.decide_kept(now, job, events);
            }
            // 2. The best blocked job of each model gets its reservation before another job can
            //    take the nodes.
            if let Some(model) = queue.unreserved.first() {
                return self.decide_reservation(now, *class, *model, events);
            }
            // 3. The next job, by age or by fair share, starts, or is marked as waiting with its
            //    blocker.
            if let Some(job) = self.next_job(now, *class, queue) {
                return self.decide_job(now, job, events);
            }
            // 4. From time to time the best blocked jobs are examined for preemption.
            if queue.review {
                return self.decide_review(now, *class, events);
            }
        }
        // 5. No job is left to try until something changes.
        events.push(Event::PassEnded);
    }

    /// The earliest submitted job of a class whose reserved nodes may be free now.
    fn next_ready(&self, class: ClassRank) -> Option<&CellJob> {
        let ready = self.ready.iter().map(|job| self.job(*job));
        ready.filter(|job| job.class() == class).min_by_key(|job| job.ticket)
    }

    fn decide_kept(&self, now: Timestamp, job: &CellJob, events: &mut Vec<Event>) {
        let free = job.group.is_none_or(|group| !self.groups.get(group).is_full());
        match self.find_place(now, job) {
            Ok(place) if free => {
                let attempt = next_attempt(job);
                let (model, placements) = (place.model, place.placements);
                events.push(Event::PlacementProposed { attempt, model, placements });
            }
            Ok(_) | Err(_) => {
                if !(free && self.decide_guests_leave(now, job, events)) {
                    events.push(Event::ReservationKept { job: job.spec.job });
                }
            }
        }
    }

    /// The next job of a class: the oldest aged job if ageing is due, otherwise the first by fair
    /// share.
    fn next_job(&self, now: Timestamp, class: ClassRank, queue: &ClassQueue) -> Option<&CellJob> {
        let mut aged = self.aged_jobs(now, class);
        let aged = aged.find(|job| !queue.parked.contains(job.request.index()));
        aged.or_else(|| self.accounts.next(class, None, &queue.parked).map(|id| self.job(id)))
    }

    /// The aged jobs of a class that no known quota block or freeze on their path holds back,
    /// oldest first. Empty unless ageing is due.
    pub(crate) fn aged_jobs(
        &self,
        now: Timestamp,
        class: ClassRank,
    ) -> impl Iterator<Item = &CellJob> {
        let queue = self.classes.get(&class).into_iter();
        let due = queue.filter(|queue| {
            self.rules.has(Rule::Ageing) && queue.since_aged >= self.config.ageing_one_in
        });
        let oldest = due.flat_map(|queue| queue.by_age.iter().take(AGED_LOOKED_AT));
        oldest
            .map(|(_, id)| self.job(*id))
            .take_while(move |job| self.is_aged(now, job))
            .filter(|job| self.accounts.is_open(job.account, job.request))
    }

    /// Whether a job has waited long enough for ageing.
    pub(crate) fn is_aged(&self, now: Timestamp, job: &CellJob) -> bool {
        now.millis_since(job.submitted_at) >= self.config.ageing_after_ms
    }

    /// Places a job, or records what blocks it.
    fn decide_job(&self, now: Timestamp, job: &CellJob, events: &mut Vec<Event>) {
        let id = job.spec.job;
        if job.group.is_some_and(|group| self.groups.get(group).is_full()) {
            return events.push(Event::JobHeldByGroup { job: id });
        }
        match self.find_place(now, job) {
            Ok(place) => events.push(Event::PlacementProposed {
                attempt: next_attempt(job),
                model: place.model,
                placements: place.placements,
            }),
            Err(Obstacle::Quota { account, mixed }) => {
                events.push(Event::RequestBlocked { account, request: job.request, mixed });
            }
            Err(Obstacle::NoRoom) => {
                let preempts = self.has_lower_class(job.class())
                    && self.decide_preemption(now, job, Trigger::Class, events);
                if !preempts {
                    let class = job.class();
                    events.push(Event::RequestParked { class, request: job.request });
                }
            }
        }
    }

    /// Whether a review could change anything: an attempt is preemptible, a reservation has guests,
    /// or victims were counted against the limit that a review resets.
    pub(crate) fn has_cause_for_review(&self) -> bool {
        self.victims > 0
            || self.preemptible.values().any(|count| *count > 0)
            || self.reservations.values().any(|kept| kept.guests)
    }

    /// Examines the best blocked jobs of a class for preemption. For the class trigger, aged jobs
    /// come first. For the share trigger age does not count: only the order of fair share does.
    fn decide_review(&self, now: Timestamp, class: ClassRank, events: &mut Vec<Event>) {
        for trigger in [Trigger::Class, Trigger::Share] {
            let possible = match trigger {
                Trigger::Class => self.has_lower_class(class),
                Trigger::Share => self.config.share_preemption && self.rules.has(Rule::Share),
            };
            let mut only = self.parked_requests(class, |_| possible);
            for _ in 0..REVIEWED_AT_ONCE {
                let job = match trigger {
                    Trigger::Class => self.best_blocked(now, class, &only),
                    Trigger::Share => self
                        .accounts
                        .next(class, Some(&only), &Bits::default())
                        .map(|id| self.job(id)),
                };
                let Some(job) = job else { break };
                if self.decide_preemption(now, job, trigger, events) {
                    return;
                }
                only.remove(job.request.index());
            }
        }
        events.push(Event::ReviewPassed { class });
    }
}

/// Applying.
impl Cell {
    pub(crate) fn apply_parked(&mut self, class: ClassRank, request: crate::cell::ids::RequestId) {
        let shape = self.requests.get(request).shape;
        let slot = self.shapes.get(shape).models.first().copied();
        let queue = self.class_mut(class);
        queue.parked.insert(request.index());
        if !queue.reserved.contains_key(&slot) {
            queue.unreserved.insert(slot);
        }
    }

    pub(crate) fn apply_held_by_group(&mut self, id: JobId) {
        self.stop_waiting(id);
        self.job_mut(id).phase =
            crate::cell::jobs::job::Phase::Waiting(crate::cell::jobs::job::Waiting::Group);
        let job = &self.jobs[&id];
        let group = job.group.expect("only jobs of a group are held by one");
        self.groups.get_mut(group).hold(job);
    }

    pub(crate) fn apply_pass_ended(&mut self, at: Timestamp) {
        self.idle = true;
        self.hot.clear();
        for queue in self.classes.values_mut() {
            queue.woken.clear();
        }
        let waiting = self.classes.values().any(|queue| !queue.by_age.is_empty());
        if waiting && self.review_at.is_none() {
            let review_at = at.plus_millis(self.config.review_ms);
            self.timers.set(review_at, Timer::Review);
            self.review_at = Some(review_at);
        }
    }

    pub(crate) fn apply_review_began(&mut self) {
        if let Some(review_at) = self.review_at.take() {
            self.timers.clear(review_at, Timer::Review);
        }
        self.victims = 0;
        // Guests whose attempts were unconfirmed at the last try may be confirmed by now.
        let hosts = self.reservations.iter().filter(|(_, kept)| kept.guests);
        self.ready.extend(hosts.map(|(job, _)| *job));
        for queue in self.classes.values_mut() {
            queue.review = !queue.by_age.is_empty();
        }
        self.idle = false;
    }
}

/// The name of the next attempt of a job. No number is used twice, also if the attempt was refused.
fn next_attempt(job: &CellJob) -> AttemptId {
    let number = match seeded(Bug::ReusesAttemptNumber) {
        true => job.attempts.max(1),
        false => job.attempts + 1,
    };
    AttemptId { job: job.spec.job, number }
}
