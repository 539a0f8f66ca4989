//! Which attempts may be preempted for fair share.
//!
//! A job may take from another account under one of two rules. Which one applies depends on the
//! size of the job relative to its account's entitlement: the account's part of the cell's GPUs by
//! weight, among the accounts of its level that wait or run.
//!
//! - Near rule, for jobs of at most twice the entitlement: the victim's account must have used (per
//!   weight) over 1/64 more than the taker's account will have used after one quantum.
//! - Far rule, for larger jobs: the victim's account must have used over half as much again as the
//!   taker's account will have used after the entry charge. Under the near rule such jobs would be
//!   time-sliced by the minute. All of them would then advance together and end late together.
//!
//! Preemption does not run in circles. To take back, the victim's account must in turn be under by
//! the gap after a quantum of its own. The quantum doubles with each preemption until it is as long
//! as the job, so a job that cannot save its work ends, however many jobs wait. What its account
//! receives beyond its share in that time counts as usage, and the other accounts go first
//! afterwards.
//!
//! A resumable job loses no work when it is preempted. Its quantum stays short where its account
//! has other jobs. Where its account or the other account has several jobs, the near rule applies
//! whatever the size of the job. If the job is also larger than twice the entitlement, it is
//! *time-sliced*: a single quantum too many is as much as its account may deviate from its share in
//! a day. A time-sliced job starts only where it may take for its share, and others may take back
//! from it after a quantum. The accounts that fill the cell afterwards are compared by measured
//! usage, without unused entry charges. The gap is one quantum of the job or 1/64, whichever is
//! more. With the sum of both, an account with gangs of four times its entitlement was behind by
//! 5 % of a day before it could take.
//!
//! A job that takes for its share may also preempt smaller resumable jobs of its own account, if
//! the account has more GPUs afterwards. These jobs are scattered over nodes of which the larger
//! job needs whole ones, and no other rule would move them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Trigger;
use super::cause::PreemptionCause;
use super::rules::{Rule, Rules};
use crate::cell::command::DEFAULT_WEIGHT;
use crate::cell::ids::{AccountId, ClassRank};
use crate::cell::jobs::attempt::CellAttempt;
use crate::cell::jobs::job::CellJob;
use crate::cell::schedule::shape::ModelId;
use crate::cell::share::accounts::{Account, ROOT};
use crate::cell::share::decay::{ScaledUsage, usage_micros};
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// A job of at most this many times its account's entitlement takes under the near rule.
const NEAR_SHARE: u64 = 2;
/// Near rule: the victim's account has used more by over one part in this many.
const NEAR_GAP: u128 = 64;
/// Far rule: the victim's account has used more by over one part in this many than the taker's
/// account will have used after the entry charge.
const FAR_GAP: u128 = 2;
/// The quantum doubles at most this many times: from ten minutes to twenty years, which is longer
/// than any permitted runtime.
const MAX_DOUBLINGS: u32 = 20;

/// The sort key of possible victims. The lowest is taken first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VictimOrder {
    /// Whether the victim belongs to the taker's own account. Victims of other accounts come first.
    pub(crate) own: bool,
    pub(crate) class: ClassRank,
    /// How far the victim's account is over its share, the furthest first.
    over: Reverse<u128>,
    pub(crate) lost_micros: u64,
    /// How far the victim's account is over its share, where this ranks nodes before lost work
    /// does: the taker is resumable and one of the two accounts has several jobs.
    pub(crate) decides: Option<u128>,
}

/// The account of the taker, or one of its ancestors.
#[derive(Copy, Clone, Debug)]
struct Taker {
    /// Usage per weight.
    used: u128,
    /// Usage per weight after the job has run for one quantum.
    after_turn: u128,
    /// Usage per weight after the job has used its entry charge.
    after_entry: u128,
    /// Whether the job is at most [`NEAR_SHARE`] times the account's entitlement.
    near: bool,
    /// Whether the job is resumable.
    resumes: bool,
    /// Whether the account has other jobs.
    several: bool,
    rules: Rules,
}

impl Taker {
    /// Whether one of the two accounts has several jobs. Then shares are enforced between accounts,
    /// not jobs. Between two accounts with one job each it is better that one job ends before the
    /// other.
    fn is_among_many(&self, other: &Account) -> bool {
        !self.rules.has(Rule::SingleJobs) || self.several || other.in_use.has_several_jobs()
    }

    /// Whether the job is time-sliced against an account: it is larger than the near rule allows,
    /// but resumable and among several jobs.
    fn is_sliced(&self, other: &Account) -> bool {
        self.rules.has(Rule::Slices) && self.resumes && self.is_among_many(other) && !self.near
    }

    /// Whether the job may take from an account with this usage per weight. For a time-sliced job
    /// one quantum is usually more than the near gap, and by itself prevents preemption back and
    /// forth.
    fn takes_from(&self, other: &Account, used: u128) -> bool {
        let least = if self.is_sliced(other) {
            self.after_turn.max(self.used.saturating_add(self.used / NEAR_GAP))
        } else if self.near || !self.rules.has(Rule::FarGap) {
            let gap = if self.rules.has(Rule::NearGap) { self.after_turn / NEAR_GAP } else { 0 };
            self.after_turn.saturating_add(gap)
        } else {
            self.after_entry.saturating_add(self.after_entry / FAR_GAP)
        };
        least < used
    }
}

/// An account from which a job may take.
struct Over {
    /// The ancestor of the victim's account (or the account itself) where its path parts from the
    /// taker's.
    theirs: AccountId,
    /// How much more it has used than the taker's account will have used after one quantum.
    by: u128,
    /// Whether it or the taker's account has several jobs.
    among_many: bool,
}

/// Decides which attempts are possible victims of one taker.
pub(crate) struct ShareRule {
    now: Timestamp,
    trigger: Trigger,
    /// By account, from the taker's account up to the tenant.
    takers: BTreeMap<AccountId, Taker>,
}

impl ShareRule {
    pub(crate) fn new(cell: &Cell, now: Timestamp, job: &CellJob, trigger: Trigger) -> ShareRule {
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
                    rules: cell.rules,
                };
                rule.takers.insert(id, taker);
            }
        }
        rule
    }

    /// Whether the job is at most [`NEAR_SHARE`] times its account's entitlement.
    pub(crate) fn is_near(&self, account: AccountId) -> bool {
        self.takers.get(&account).is_some_and(|taker| taker.near)
    }

    /// Whether the job is time-sliced between its account or ancestor `ours` and `theirs`.
    fn is_sliced(&self, cell: &Cell, ours: AccountId, theirs: AccountId) -> bool {
        let other = cell.accounts.get(theirs);
        self.takers.get(&ours).is_some_and(|taker| taker.is_sliced(other))
    }

    /// The sort key of an attempt among the victims. `None`: it is not a possible victim.
    pub(crate) fn victim_order(
        &self,
        cell: &Cell,
        now: Timestamp,
        job: &CellJob,
        victim: &CellJob,
        attempt: &CellAttempt,
    ) -> Option<VictimOrder> {
        let ran = attempt.running_since.map_or(0, |since| now.millis_since(since));
        let takes_back = cell.rules.has(Rule::NoTakingBack)
            && job.preempted_by == Some(victim.spec.job)
            && !cell.had_its_turn(now, job, victim, ran);
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
                let fair = cell.rules.has(Rule::OwnJobs)
                    && class <= job.class()
                    && had_its_turn
                    && makes_room;
                let (over, decides) = (Reverse(0), None);
                fair.then_some(VictimOrder { own: true, class, over, lost_micros, decides })
            }
            Trigger::Share => {
                let over = self.over_by(cell, job, victim, Some(attempt))?;
                let fair = class <= job.class() && ran >= cell.protected_ms(victim, over.theirs);
                let decides =
                    over.among_many && job.spec.resumable && cell.rules.has(Rule::FurthestOver);
                let decides = decides.then_some(over.by);
                let over = Reverse(over.by);
                fair.then_some(VictimOrder { own: false, class, over, lost_micros, decides })
            }
        }
    }

    /// The rule and the numbers under which an attempt is a victim.
    pub(crate) fn cause(
        &self,
        cell: &Cell,
        job: &CellJob,
        victim: &CellJob,
        attempt: &CellAttempt,
    ) -> PreemptionCause {
        if self.trigger == Trigger::Class {
            return PreemptionCause::Class { victim: victim.class(), taker: job.class() };
        }
        let branches = cell.branches(job.account, victim.account);
        let Some((ours, theirs)) = branches else {
            let (victim_gpus, taker_gpus) = (victim.devices(), job.devices());
            return PreemptionCause::OwnJob { victim_gpus, taker_gpus };
        };
        let micros = |per_weight: u128| {
            let whole = per_weight.saturating_mul(DEFAULT_WEIGHT.into());
            u64::try_from(cell.accounts.decay.unscale(whole, self.now)).unwrap_or(u64::MAX)
        };
        let ran_ms = attempt.running_since.map_or(0, |since| self.now.millis_since(since));
        PreemptionCause::Share {
            victim_used: micros(self.used_by_victim(cell, ours, theirs, victim, Some(attempt))),
            taker_used: micros(self.takers.get(&ours).map_or(0, |taker| taker.after_turn)),
            ran_ms,
            quantum_ms: cell.protected_ms(victim, theirs),
        }
    }

    /// Whether the account of another job is as far over its share as a victim's must be.
    pub(crate) fn is_over(&self, cell: &Cell, job: &CellJob, other: &CellJob) -> bool {
        self.over_by(cell, job, other, None).is_some()
    }

    /// Whether a guest is evicted when the job can start on its reserved nodes. A time-sliced job
    /// evicts only guests that it may take from. Otherwise its reservation would let it start
    /// however far over its share it is.
    pub(crate) fn sends_away(
        &self,
        cell: &Cell,
        job: &CellJob,
        guest: &CellJob,
        attempt: &CellAttempt,
    ) -> bool {
        let branches = cell.branches(job.account, guest.account);
        branches.is_none_or(|(ours, theirs)| {
            !self.is_sliced(cell, ours, theirs)
                || self.over_by(cell, job, guest, Some(attempt)).is_some()
        })
    }

    /// The usage per weight of a victim's account that counts.
    fn used_by_victim(
        &self,
        cell: &Cell,
        ours: AccountId,
        theirs: AccountId,
        victim: &CellJob,
        attempt: Option<&CellAttempt>,
    ) -> u128 {
        let unused = attempt.map_or(0, |attempt| {
            if self.is_sliced(cell, ours, theirs) && victim.spec.resumable {
                cell.unused_by(self.now, theirs)
            } else if cell.rules.has(Rule::UnusedEntry) {
                cell.unused_entry(attempt)
            } else {
                0
            }
        });
        cell.used_without(theirs, unused)
    }

    /// How far the victim's account is over its share, if it is by enough. The unused entry charge
    /// of the attempt does not count. Where the job is time-sliced, no unused entry charge of that
    /// account counts: its jobs filled the cell when the last slice ended and were charged an hour
    /// each.
    fn over_by(
        &self,
        cell: &Cell,
        job: &CellJob,
        victim: &CellJob,
        attempt: Option<&CellAttempt>,
    ) -> Option<Over> {
        let (ours, theirs) = cell.branches(job.account, victim.account)?;
        let taker = self.takers.get(&ours)?;
        let other = cell.accounts.get(theirs);
        let used = self.used_by_victim(cell, ours, theirs, victim, attempt);
        taker.takes_from(other, used).then(|| Over {
            theirs,
            by: used.saturating_sub(taker.after_turn),
            among_many: taker.is_among_many(other),
        })
    }
}

impl Cell {
    /// How long an attempt is protected from preemption for fair share (the quantum). It doubles
    /// with each such preemption of the job. A job that is not resumable may have to start over, so
    /// its quantum grows to its longest runtime, within which the job ends. For a job without a
    /// longest runtime, `assumed_runtime_ms` is used, so that other jobs do not wait for ever for
    /// one that never ends.
    ///
    /// The quantum of a resumable job does not grow where the account at which it parts from the
    /// taker has other jobs: shares are enforced between accounts. Where it is the account's only
    /// job, a growing quantum lets it end before similar jobs, instead of all ending late together.
    fn protected_ms(&self, job: &CellJob, parting: AccountId) -> i64 {
        let minimum = self.config.share_minimum_runtime_ms;
        let several = !self.rules.has(Rule::SingleJobs)
            || self.accounts.get(parting).in_use.has_several_jobs();
        let fixed = !self.rules.has(Rule::Doubling);
        if job.spec.resumable && (fixed || several && self.rules.has(Rule::ShortQuantum)) {
            return minimum;
        }
        if fixed {
            return job.spec.max_runtime_ms.unwrap_or(self.config.assumed_runtime_ms);
        }
        let doublings = job.share_preemptions.min(MAX_DOUBLINGS);
        let longest = job.spec.max_runtime_ms.unwrap_or(0).max(self.config.assumed_runtime_ms);
        minimum.saturating_mul(1 << doublings).min(longest.max(minimum))
    }

    /// Whether `victim`, which preempted `job` last, has run long enough for `job` to take back
    /// from it. A resumable job has when it has used its entry charge; a time-sliced one after one
    /// quantum. Otherwise its former victims, which are next in their accounts, would wait behind
    /// it for an hour.
    fn had_its_turn(&self, now: Timestamp, job: &CellJob, victim: &CellJob, ran: i64) -> bool {
        let sliced = || {
            let rule = ShareRule::new(self, now, victim, Trigger::Share);
            let branches = self.branches(job.account, victim.account);
            branches.is_some_and(|(ours, theirs)| rule.is_sliced(self, theirs, ours))
        };
        let turn = self.config.share_minimum_runtime_ms;
        self.rules.has(Rule::TakingBack)
            && victim.spec.resumable
            && (ran >= self.config.entry_charge_ms || ran >= turn && sliced())
    }

    /// Whether a job is time-sliced and its account has used more than that of `next`, the next job
    /// by fair share. Such a job would otherwise start because of its reservation alone.
    pub(crate) fn is_slice_ahead_of(&self, now: Timestamp, job: &CellJob, next: &CellJob) -> bool {
        let Some((ours, theirs)) = self.branches(job.account, next.account) else { return false };
        let used = |id| self.used_without(id, self.unused_by(now, id));
        used(ours) > used(theirs)
            && ShareRule::new(self, now, job, Trigger::Share).is_sliced(self, ours, theirs)
    }

    /// Usage per weight of an account, less an unused charge.
    fn used_without(&self, id: AccountId, unused: ScaledUsage) -> u128 {
        let account = self.accounts.get(id);
        match account.weight {
            0 => u128::MAX,
            weight => account.usage.saturating_sub(unused) / u128::from(weight),
        }
    }

    /// The unused entry charges of an account's attempts that have GPUs.
    fn unused_by(&self, now: Timestamp, id: AccountId) -> ScaledUsage {
        let unused = self.accounts.get(id).unused_micros;
        self.accounts.decay.factor(now).saturating_mul(unused)
    }

    /// The part of `whole` to which an account is entitled by weight, among its siblings that wait
    /// or run.
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

    /// The unused part of an attempt's entry charge.
    fn unused_entry(&self, attempt: &CellAttempt) -> ScaledUsage {
        self.accounts.decay.scale(attempt.unused_micros(), attempt.proposed_at)
    }

    /// Usage per weight of an account's tenant, which sorts the victims of a higher class.
    fn over_share(&self, account: AccountId) -> u128 {
        let tenant = self.accounts.path(account).filter(|id| *id != ROOT).last();
        tenant.map_or(0, |id| {
            let account = self.accounts.get(id);
            account.usage / u128::from(account.weight.max(1))
        })
    }

    /// The two accounts at which the paths of `left` and `right` part: children of their lowest
    /// common ancestor. `None` if one account is an ancestor of the other or they are the same.
    fn branches(&self, left: AccountId, right: AccountId) -> Option<(AccountId, AccountId)> {
        let up = |id| {
            let mut path: Vec<AccountId> = self.accounts.path(id).collect();
            path.reverse();
            path
        };
        up(left).into_iter().zip(up(right)).find(|(left, right)| left != right)
    }
}
