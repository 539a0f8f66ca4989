//! Retention: answers are forgotten when their retention ends. Closed holds, movements and ended jobs leave memory
//! through the archive alone: see [`super::forget`]. Earlier releases forgot them by their age; their records replay.

use std::collections::VecDeque;

use crate::ledger::command::{Command, Envelope, Policy, Refund, RefundOf};
use crate::ledger::event::Event;
use crate::ledger::holds::hold::HoldKind;
use crate::ledger::id::HoldNo;
use crate::ledger::index::aside::LedgerAside;
use crate::ledger::jobs::view::first_of_array;
use crate::ledger::refusal::{Refusal, Resource};
use crate::ledger::state::{Aging, Ledger};
use crate::name::tenant_of;
use crate::time::Timestamp;

/// Forgetting runs at full minutes, so that one record covers many entries.
const STEP_MS: i64 = 60_000;
/// The most entries of each kind that one step forgets, so that no command waits long.
const MAX_AT_ONCE: usize = 1024;

/// The first full minute at or after an instant.
fn full_minute(at: Timestamp) -> Timestamp {
    let millis = at.millis();
    at.plus_millis((STEP_MS - millis.rem_euclid(STEP_MS)) % STEP_MS)
}

/// When an answer is no longer retained.
pub(super) fn answer_ends(given_at: Timestamp, ttl_ms: i64) -> Timestamp {
    full_minute(given_at.plus_millis(ttl_ms).plus_millis(1))
}

/// When an entry kept since `oldest` has been kept for `ttl_ms`; [`Timestamp::MAX`] if there is
/// none.
fn earliest(oldest: Option<Timestamp>, ttl_ms: i64) -> Timestamp {
    oldest.map_or(Timestamp::MAX, |at| at.plus_millis(ttl_ms))
}

fn first<T>(ages: &VecDeque<(Timestamp, T)>) -> Option<Timestamp> {
    ages.front().map(|(at, _)| *at)
}

impl Ledger {
    /// Makes it forget closed holds, movements and ended jobs by their age, as earlier releases did: for replaying
    /// journals of earlier releases.
    pub fn forget_by_age(&mut self) {
        self.forgets_by_age = true;
    }

    /// When the retention of the oldest entry ends.
    pub(in crate::ledger) fn next_forgetting(&self) -> Option<Timestamp> {
        if self.is_aside(LedgerAside::Forgetting) {
            return None;
        }
        let Policy { idempotency_ttl_ms, retention_ms, lateness_ms, .. } = self.policy;
        let Aging { holds, movements, buckets, jobs, .. } = &self.aging;
        // The end of time stands for never: there is no later instant to have kept it until.
        let by_age =
            earliest(first(holds), retention_ms).min(earliest(first(movements), retention_ms));
        let by_age = by_age.min(earliest(first(jobs), retention_ms));
        let due = earliest(self.answers.oldest(), idempotency_ttl_ms)
            .min(if self.forgets_by_age { by_age } else { Timestamp::MAX })
            .min(earliest(first(buckets), lateness_ms));
        Some(full_minute(due.plus_millis(1))).filter(|due| *due < Timestamp::MAX)
    }

    /// Pushes the forgetting of all entries whose retention has ended at `now`.
    pub(in crate::ledger) fn push_forgetting(&self, now: Timestamp, events: &mut Vec<Event>) {
        let kept_from = |ttl: i64| now.plus_millis(-ttl);
        let policy = &self.policy;
        let count = |due: usize| u32::try_from(due).unwrap_or(u32::MAX);
        let answers_from = kept_from(policy.idempotency_ttl_ms);
        let holds_from = kept_from(policy.retention_ms);
        let buckets_from = kept_from(policy.lateness_ms);
        let aging = &self.aging;
        let due = |ages: &mut dyn Iterator<Item = Timestamp>, from: Timestamp| {
            count(ages.take(MAX_AT_ONCE).take_while(|at| *at < from).count())
        };
        let by_age = |ages: &mut dyn Iterator<Item = Timestamp>| {
            if self.forgets_by_age { due(ages, holds_from) } else { 0 }
        };
        events.push(Event::Forgotten {
            answers: due(&mut self.answers.times(), answers_from),
            holds: by_age(&mut aging.holds.iter().map(|(at, _)| *at)),
            movements: by_age(&mut aging.movements.iter().map(|(at, _)| *at)),
            buckets: due(&mut aging.buckets.iter().map(|(at, _)| *at), buckets_from),
            jobs: by_age(&mut aging.jobs.iter().map(|(at, _)| *at)),
            archived: None,
        });
    }

    pub(in crate::ledger) fn apply_forgotten(&mut self, at: Timestamp, counts: [u32; 5]) {
        let [answers, holds, movements, buckets, jobs] = counts;
        for _ in 0..answers {
            self.answers.forget_oldest();
        }
        let old: Vec<_> = self.aging.holds.drain(..holds as usize).collect();
        // All are read before any is removed, so that cache misses overlap.
        let moved_at = |hold| self.live_hold(hold).moved_at;
        let looked_at: Vec<_> = old.iter().map(|(_, hold)| (*hold, moved_at(*hold))).collect();
        for (number, moved_at) in looked_at {
            self.forget_hold(at, number, moved_at);
        }
        for (made_at, number) in self.aging.movements.drain(..movements as usize) {
            self.aging.forgotten_through = self.aging.forgotten_through.max(Some(made_at));
            self.aging.forgotten_movements = true;
            let Some(made) = self.movements.remove(number) else { continue };
            let name = (made.tenant, made.what as u8, made.movement.id.as_str());
            self.movement_names.remove(name, number);
        }
        let unreachable: Vec<_> = self.aging.buckets.drain(..buckets as usize).collect();
        for (_, number) in unreachable {
            let (account, rank) = (self.bucket(number).account, self.bucket(number).rank);
            self.rare_account(account).expired.remove(&(rank, number));
        }
        let over: Vec<_> = self.aging.jobs.drain(..jobs as usize).collect();
        for (ended_at, job) in over {
            self.aging.forgotten_through = self.aging.forgotten_through.max(Some(ended_at));
            self.remove_job(job);
        }
    }

    /// Refuses a command whose key, or one of whose names, may have been forgotten since it was looked up in the
    /// archive.
    pub(in crate::ledger) fn require_archive(
        &self,
        envelope: &Envelope,
        command: &Command,
    ) -> Result<(), Refusal> {
        let Some(looked_up) = envelope.archive else { return Ok(()) };
        if self.forgotten_through() <= looked_up {
            return Ok(());
        }
        let gone = |what: Resource, account: &str, id: &str| {
            self.must_ask_archive(looked_up, what, account, id)
        };
        for (what, account, id) in command.archived_names() {
            if gone(what, account, id) {
                return Err(Refusal::Forgotten { what, name: id.into() });
            }
        }
        if let Command::SubmitJob(submit) = command {
            for index in 1..submit.count() {
                let name = submit.names(index).0;
                if gone(Resource::Job, &submit.account, &name) {
                    return Err(Refusal::Forgotten { what: Resource::Job, name: name.into() });
                }
            }
        }
        if let Command::Refund(Refund { tenant, of: RefundOf::Job(job), .. }) = command {
            if gone(Resource::Job, tenant, job) {
                return Err(Refusal::Forgotten { what: Resource::Job, name: job.clone().into() });
            }
            let number = self.find_account(tenant).and_then(|of| self.find_job(of, job));
            let attempts = number.map_or(&[][..], |number| &self.live_job(number).attempts);
            for hold in attempts.iter().filter_map(|attempt| attempt.hold.as_ref()) {
                if gone(Resource::Hold, tenant, hold) {
                    return Err(Refusal::Forgotten {
                        what: Resource::Hold,
                        name: hold.clone().into(),
                    });
                }
            }
        }
        if envelope.key.is_some_and(|key| self.may_have_forgotten_key(key, looked_up)) {
            return Err(Refusal::Forgotten {
                what: Resource::Account,
                name: "idempotency key".into(),
            });
        }
        Ok(())
    }

    /// Whether something under this name may have been forgotten since it was looked up in the archive. The account
    /// may be any of the tenant's.
    pub fn must_ask_archive(
        &self,
        looked_up: u64,
        what: Resource,
        account: &str,
        id: &str,
    ) -> bool {
        if self.forgotten_through() <= looked_up || self.has(what, account, id) {
            return false;
        }
        let Some(tenant) = self.find_account(tenant_of(account)) else { return false };
        let gone = |id: &str| self.may_have_forgotten(what, tenant, id, looked_up);
        // The jobs of an array have numbers after its name.
        gone(id) || (what == Resource::Job && gone(&first_of_array(id)))
    }

    /// Whether there is a thing with this id that will be forgotten.
    fn has(&self, what: Resource, account: &str, id: &str) -> bool {
        let Some(tenant) = self.find_account(tenant_of(account)) else { return false };
        match what {
            Resource::Hold => self.find_hold(tenant, HoldKind::Hold, id).is_some(),
            Resource::Charge => self.find_hold(tenant, HoldKind::Charge, id).is_some(),
            Resource::Refund | Resource::Transfer | Resource::Collection => {
                self.find_movement(tenant, what, id).is_some()
            }
            Resource::Job => self.find_job_or_array(tenant, id).is_some(),
            Resource::Account
            | Resource::Grant
            | Resource::Budget
            | Resource::Region
            | Resource::Quota => false,
        }
    }

    /// Forgets a closed hold, or queues it again if it has moved since it was queued.
    fn forget_hold(&mut self, at: Timestamp, number: HoldNo, moved_at: Timestamp) {
        if moved_at.plus_millis(self.policy.retention_ms) >= at {
            self.aging.holds.push_back((moved_at, number));
            return;
        }
        self.aging.forgotten_until = self.aging.forgotten_until.max(Some(moved_at));
        self.aging.forgotten_through = self.aging.forgotten_through.max(Some(moved_at));
        self.touch_tallies(number);
        self.holds.discard(number.0);
        self.hold_names.remove(number.0);
    }
}
