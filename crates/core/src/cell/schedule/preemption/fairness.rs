//! Who may be preempted for somebody's fair share.
//!
//! Two rules, by what the account that takes is entitled to: its weight's part of the cell among
//! those who wait or run.
//!
//! - A job that is not much larger than that can be held to the share day by day. Its account takes
//!   from those who have used more, by a small gap, than it will have used after its turn.
//! - A job that is much larger would be cut into slices of minutes by that, and all jobs like it
//!   would advance together and be done late together. Its account takes only from those who have
//!   used clearly more than it will have used after its first hour.
//!
//! Neither can be undone by the victim before the tables have turned: the victim's account must in
//! turn be under by the gap, after a turn of its own. And turns double until they are as long as
//! the job: one that cannot save its work is done then, however many wait. What its account has
//! had by then beyond its share, the others get afterwards.
//!
//! A job that resumes loses nothing. Where its account has other jobs to go on with, its turns stay
//! short. Where its account or the other has several, the first rule holds for it whatever its size. If it is much larger than the share, one
//! turn too long is all that its account may be off in a day. Such a job is *sliced*: it comes to run
//! only where it may take for its share, others take back from it after a turn, and who fills the
//! cell after it is judged by what he has used, not by the hour that he was charged at each start. Its
//! turn is worth more than the small gap and is gap enough: with both, an account of gangs of four
//! times its share was 5 % of a day behind before it took.
//!
//! What is taken for the share may be taken from the job's own account as well, as far as its smaller
//! jobs that resume are in the way and the account gains: they are scattered over nodes that a job of
//! a whole node needs, and nobody else could move them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Trigger;
use crate::cell::ids::{AccountId, ClassRank};
use crate::cell::jobs::attempt::Attempt;
use crate::cell::jobs::job::Job;
use crate::cell::schedule::shape::ModelId;
use crate::cell::share::accounts::{Account, ROOT};
use crate::cell::share::decay::{ScaledUsage, usage_micros};
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// A job of at most so many times what its account is entitled to is held to the share day by day.
const NEAR_SHARE: u64 = 2;
/// Then a victim's account has used more by at least one in so many parts.
const NEAR_GAP: u128 = 64;
/// Otherwise it has used more by one in so many parts than the taker's will have after its entry
/// charge.
const FAR_GAP: u128 = 2;
/// The protection from preemption for the share doubles at most so often: ten minutes become
/// twenty years, longer than any job may say that it takes.
const MOST_DOUBLINGS: u32 = 20;

/// Where an attempt stands among possible victims: the first is taken first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VictimOrder {
    /// Whether it is of the job's own account and only makes room. The others first.
    pub(crate) own: bool,
    pub(crate) class: ClassRank,
    /// The most over its share first.
    over: Reverse<u128>,
    pub(crate) lost_micros: u64,
    /// How far it is over its share where that decides between nodes, before the work that is lost: among accounts of
    /// several jobs, for a job that resumes.
    pub(crate) decides: Option<u128>,
}

/// The account of the job that takes, or one above it.
#[derive(Copy, Clone, Debug)]
struct Taker {
    /// Usage over weight.
    used: u128,
    /// Usage over weight when the job may be preempted in turn.
    after_turn: u128,
    /// Usage over weight when the job has used what is charged at its start.
    after_entry: u128,
    /// Whether the job is not much larger than what the account is entitled to.
    near: bool,
    /// Whether the job resumes.
    resumes: bool,
    /// Whether the account has other jobs to go on with.
    several: bool,
}

impl Taker {
    /// Whether accounts are held to their shares and not jobs: this or the other has several. Between
    /// two accounts of one job each it is better that one ends before the other.
    fn is_among_many(&self, other: &Account) -> bool {
        self.several || other.in_use.has_several_jobs()
    }

    /// Whether the job is much larger than what the account is entitled to and is held to it day by
    /// day all the same, because it resumes.
    fn is_sliced(&self, other: &Account) -> bool {
        self.resumes && self.is_among_many(other) && !self.near
    }

    /// Whether it may take from an account with so much usage over weight. A turn of a large gang is
    /// worth more than the small gap, and keeps the two from taking back and forth by itself.
    fn takes_from(&self, other: &Account, used: u128) -> bool {
        let least = if self.is_sliced(other) {
            self.after_turn.max(self.used.saturating_add(self.used / NEAR_GAP))
        } else if self.near {
            self.after_turn.saturating_add(self.after_turn / NEAR_GAP)
        } else {
            self.after_entry.saturating_add(self.after_entry / FAR_GAP)
        };
        least < used
    }
}

/// An account from which a job may take.
struct Over {
    /// The one above the victim's where it parts from the job's.
    theirs: AccountId,
    /// By how much it has used more than the job's account will have after its turn.
    by: u128,
    /// Whether it or the job's has several jobs.
    among_many: bool,
}

/// Who may be a victim for the sake of a job.
pub(crate) struct ShareRule {
    now: Timestamp,
    trigger: Trigger,
    /// By account, on the path from the job's to the tenant.
    takers: BTreeMap<AccountId, Taker>,
}

impl ShareRule {
    pub(crate) fn new(cell: &Cell, now: Timestamp, job: &Job, trigger: Trigger) -> ShareRule {
        let mut rule = ShareRule { now, trigger, takers: BTreeMap::new() };
        if trigger == Trigger::Class {
            return rule;
        }
        let model = cell.shapes.get(job.shape).models.first().copied();
        let price = cell.price(model.or(Some(ModelId(0))));
        let used_after = |millis: i64| {
            let gpu_ms = millis.unsigned_abs().saturating_mul(job.devices());
            let micros = usage_micros(price, job.spec.gpu.per_device(), gpu_ms);
            cell.accounts.decay.scale(micros, now)
        };
        let turn_ms = cell.config.share_minimum_runtime_ms;
        let turn = used_after(turn_ms);
        let entry = used_after(cell.config.entry_charge_ms.max(turn_ms));
        let mut path: Vec<AccountId> = cell.accounts.path(job.account).collect();
        path.retain(|id| *id != ROOT);
        let mut entitled = cell.inventory.supply().capacity();
        for id in path.into_iter().rev() {
            let account = cell.accounts.get(id);
            entitled = cell.part_of(entitled, id);
            // An account of weight zero is never under its share.
            if account.weight > 0 {
                let after = |more: ScaledUsage| {
                    account.usage.saturating_add(more) / u128::from(account.weight)
                };
                let taker = Taker {
                    used: after(0),
                    after_turn: after(turn),
                    after_entry: after(entry),
                    near: u64::from(job.thousandths()) <= NEAR_SHARE.saturating_mul(entitled),
                    resumes: job.spec.resumable,
                    several: account.in_use.has_several_jobs(),
                };
                rule.takers.insert(id, taker);
            }
        }
        rule
    }

    /// Whether the job is not much larger than what its account is entitled to.
    pub(crate) fn is_near(&self, account: AccountId) -> bool {
        self.takers.get(&account).is_some_and(|taker| taker.near)
    }

    /// Whether the job is sliced between this account above it and another.
    fn is_sliced(&self, cell: &Cell, ours: AccountId, theirs: AccountId) -> bool {
        let other = cell.accounts.get(theirs);
        self.takers.get(&ours).is_some_and(|taker| taker.is_sliced(other))
    }

    /// Where an attempt stands among the victims, if it may be one.
    pub(crate) fn victim_order(
        &self,
        cell: &Cell,
        now: Timestamp,
        job: &Job,
        victim: &Job,
        attempt: &Attempt,
    ) -> Option<VictimOrder> {
        let ran = attempt.running_since.map_or(0, |since| now.millis_since(since));
        let takes_back =
            job.preempted_by == Some(victim.spec.job) && !cell.had_its_turn(now, job, victim, ran);
        let spared = takes_back || !cell.may_preempt(job, victim);
        if spared || !attempt.confirmed || attempt.stop.is_some() {
            return None;
        }
        let class = victim.class();
        let lost_micros = cell.lost_micros(now, victim, attempt);
        match self.trigger {
            Trigger::Class => (class < job.class()).then(|| VictimOrder {
                own: false,
                class,
                over: Reverse(cell.over_share(victim.account)),
                lost_micros,
                decides: None,
            }),
            Trigger::Share if victim.account == job.account => {
                let had_its_turn = ran >= cell.config.share_minimum_runtime_ms;
                let makes_room = victim.spec.resumable && victim.devices() < job.devices();
                let fair = class <= job.class() && had_its_turn && makes_room;
                let (over, decides) = (Reverse(0), None);
                fair.then_some(VictimOrder { own: true, class, over, lost_micros, decides })
            }
            Trigger::Share => {
                let over = self.over_by(cell, job, victim, Some(attempt))?;
                let fair = class <= job.class() && ran >= cell.protected_ms(victim, over.theirs);
                let decides = (over.among_many && job.spec.resumable).then_some(over.by);
                let over = Reverse(over.by);
                fair.then_some(VictimOrder { own: false, class, over, lost_micros, decides })
            }
        }
    }

    /// Whether somebody is over his share as a victim must be.
    pub(crate) fn is_over(&self, cell: &Cell, job: &Job, other: &Job) -> bool {
        self.over_by(cell, job, other, None).is_some()
    }

    /// Whether a guest leaves when the job can start in his place. One that is sliced would come to
    /// run by its turn alone, however far over its share: it sends away those from whom it may take.
    pub(crate) fn sends_away(
        &self,
        cell: &Cell,
        job: &Job,
        guest: &Job,
        attempt: &Attempt,
    ) -> bool {
        let branches = cell.branches(job.account, guest.account);
        branches.is_none_or(|(ours, theirs)| {
            !self.is_sliced(cell, ours, theirs)
                || self.over_by(cell, job, guest, Some(attempt)).is_some()
        })
    }

    /// How far a victim's account is over, if by enough. What was charged for the attempt and not used
    /// does not count; where the job is sliced, neither does what was charged for all others of that
    /// account, who came when the last slice ended and were charged an hour each.
    fn over_by(
        &self,
        cell: &Cell,
        job: &Job,
        victim: &Job,
        attempt: Option<&Attempt>,
    ) -> Option<Over> {
        let (ours, theirs) = cell.branches(job.account, victim.account)?;
        let taker = self.takers.get(&ours)?;
        let other = cell.accounts.get(theirs);
        let unused = attempt.map_or(0, |attempt| {
            if taker.is_sliced(other) && victim.spec.resumable {
                cell.unused_by(self.now, theirs)
            } else {
                cell.unused_entry(attempt)
            }
        });
        let used = cell.used_without(theirs, unused);
        taker.takes_from(other, used).then(|| Over {
            theirs,
            by: used.saturating_sub(taker.after_turn),
            among_many: taker.is_among_many(other),
        })
    }
}

impl Cell {
    /// How long an attempt runs before it may be preempted for the share: twice as long each time
    /// that this happened to its job. A job that does not say that it resumes may have to start
    /// over, so turns grow as long as it may take: it finds a turn in which it is done. Of a job
    /// that names no time, a day or what is set instead is assumed, so that nobody waits for ever
    /// for those who never leave.
    ///
    /// Turns of a job that resumes stay short where the account at which it parts from the taker
    /// has other jobs to go on with: it is the account that is held to its share. Where it is the
    /// account's only job, long turns let it end before others like it, instead of all late together.
    fn protected_ms(&self, job: &Job, parting: AccountId) -> i64 {
        let minimum = self.config.share_minimum_runtime_ms;
        if job.spec.resumable && self.accounts.get(parting).in_use.has_several_jobs() {
            return minimum;
        }
        let doublings = job.share_preemptions.min(MOST_DOUBLINGS);
        let longest = job.spec.max_runtime_ms.unwrap_or(0).max(self.config.assumed_runtime_ms);
        minimum.saturating_mul(1 << doublings).min(longest.max(minimum))
    }

    /// Whether who had to leave for a job may take its place back, as far as that job's turn goes.
    /// One that resumes has had it when it has used what was charged at its start; one that is sliced
    /// when any other may take from it, or those who left for it, who are next in their accounts,
    /// would wait behind it for an hour.
    fn had_its_turn(&self, now: Timestamp, job: &Job, victim: &Job, ran: i64) -> bool {
        let sliced = || {
            let rule = ShareRule::new(self, now, victim, Trigger::Share);
            let branches = self.branches(job.account, victim.account);
            branches.is_some_and(|(ours, theirs)| rule.is_sliced(self, theirs, ours))
        };
        let turn = self.config.share_minimum_runtime_ms;
        victim.spec.resumable && (ran >= self.config.entry_charge_ms || ran >= turn && sliced())
    }

    /// Whether a job is sliced and its account has used more than that of the next by fair share. By
    /// its turn it would start all the same.
    pub(crate) fn is_slice_ahead_of(&self, now: Timestamp, job: &Job, next: &Job) -> bool {
        let Some((ours, theirs)) = self.branches(job.account, next.account) else { return false };
        let used = |id| self.used_without(id, self.unused_by(now, id));
        used(ours) > used(theirs)
            && ShareRule::new(self, now, job, Trigger::Share).is_sliced(self, ours, theirs)
    }

    /// Usage over weight of an account, less something that was charged and not used.
    fn used_without(&self, id: AccountId, unused: ScaledUsage) -> u128 {
        let account = self.accounts.get(id);
        match account.weight {
            0 => u128::MAX,
            weight => account.usage.saturating_sub(unused) / u128::from(weight),
        }
    }

    /// What an account was charged for attempts that have GPUs and they have not used.
    fn unused_by(&self, now: Timestamp, id: AccountId) -> ScaledUsage {
        let unused = self.accounts.get(id).unused_micros;
        self.accounts.decay.factor(now).saturating_mul(unused)
    }

    /// The part of something that an account is entitled to by its weight, among its siblings who
    /// wait or run.
    fn part_of(&self, whole: u64, id: AccountId) -> u64 {
        let account = self.accounts.get(id);
        let Some(parent) = account.parent else { return whole };
        let siblings = self.accounts.get(parent).children.iter().map(|id| self.accounts.get(*id));
        let busy = siblings.filter(|account| {
            account.rate > 0 || account.lanes.iter().any(|(_, lane)| lane.waiting > 0)
        });
        let weights: u64 = busy.map(|account| u64::from(account.weight)).sum();
        let part = u128::from(whole) * u128::from(account.weight) / u128::from(weights.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// What an attempt was charged when it was placed and has not used.
    fn unused_entry(&self, attempt: &Attempt) -> ScaledUsage {
        self.accounts.decay.scale(attempt.unused_micros(), attempt.proposed_at)
    }

    /// Usage over weight of an account's tenant: how far it is over its share, for the order of
    /// victims.
    fn over_share(&self, account: AccountId) -> u128 {
        let tenant = self.accounts.path(account).filter(|id| *id != ROOT).last();
        tenant.map_or(0, |id| {
            let account = self.accounts.get(id);
            account.usage / u128::from(account.weight.max(1))
        })
    }

    /// The children of the lowest account above both, one towards each. `None` if one account is
    /// above the other or they are the same.
    fn branches(&self, left: AccountId, right: AccountId) -> Option<(AccountId, AccountId)> {
        let up = |id| {
            let mut path: Vec<AccountId> = self.accounts.path(id).collect();
            path.reverse();
            path
        };
        up(left).into_iter().zip(up(right)).find(|(left, right)| left != right)
    }
}
