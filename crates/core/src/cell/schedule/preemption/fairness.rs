//! Which attempts may be preempted for fair share.
//!
//! A job takes from another account where that account has used (per weight) over 1/64 more than
//! the job's account will have used after one quantum. Between two accounts with one job each it
//! must have used half as much again as the job's account will have used after the entry charge:
//! there it is better that one job ends before the other. With the smaller gap they would take from
//! each other by the minute, advance together and end late together.
//!
//! Preemption does not run in circles. To take back, the victim's account must in turn be under by
//! the gap after a quantum of its own. The quantum doubles with each preemption until it is as long
//! as the job, so a job that cannot save its work ends, however many jobs wait. What its account
//! receives beyond its share in that time counts as usage, and the other accounts go first
//! afterwards.
//!
//! A resumable job loses no work when it is preempted. Its quantum stays short where its account
//! has other jobs.

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

/// The victim's account has used more by over one part in this many.
const GAP: u128 = 64;
/// Between two accounts with one job each: it has used more by over one part in this many than the
/// taker's account will have used after the entry charge.
const GAP_OF_SINGLE_JOBS: u128 = 2;
/// The quantum doubles at most this many times: from ten minutes to twenty years, which is longer
/// than any permitted runtime.
const MAX_DOUBLINGS: u32 = 20;

/// The sort key of possible victims. The lowest is taken first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VictimOrder {
    pub(crate) class: ClassRank,
    /// How far the victim's account is over its share, the furthest first.
    over: Reverse<u128>,
    pub(crate) lost_micros: u64,
}

/// The account of the taker, or one of its ancestors.
#[derive(Copy, Clone, Debug)]
struct Taker {
    /// Usage per weight after the job has run for one quantum.
    after_turn: u128,
    /// Usage per weight after the job has used its entry charge.
    after_entry: u128,
    /// Whether the account has other jobs.
    several: bool,
    rules: Rules,
}

impl Taker {
    /// The usage per weight beyond which another account is over its share by enough.
    fn least(&self, other: &Account) -> u128 {
        let several = self.several || other.in_use.has_several_jobs();
        if several || !self.rules.has(Rule::WideGap) {
            let gap = self.rules.has(Rule::Gap).then_some(self.after_turn / GAP);
            self.after_turn.saturating_add(gap.unwrap_or(0))
        } else {
            self.after_entry.saturating_add(self.after_entry / GAP_OF_SINGLE_JOBS)
        }
    }
}

/// An account from which a job may take.
struct Over {
    /// The ancestor of the victim's account (or the account itself) where its path parts from the
    /// taker's.
    theirs: AccountId,
    /// How much more it has used than the taker's account will have used after one quantum.
    by: u128,
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
        for id in cell.accounts.path(job.account).filter(|id| *id != ROOT) {
            let account = cell.accounts.get(id);
            // An account of weight zero is never under its share.
            if account.weight > 0 {
                let after = |more: ScaledUsage| {
                    account.usage.saturating_add(more) / u128::from(account.weight)
                };
                let taker = Taker {
                    after_turn: after(turn),
                    after_entry: after(entry),
                    several: account.in_use.has_several_jobs(),
                    rules: cell.rules,
                };
                rule.takers.insert(id, taker);
            }
        }
        rule
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
            && !cell.had_its_turn(victim, ran);
        let spared = takes_back || !cell.may_preempt(job, victim);
        if spared || !attempt.confirmed || attempt.stop.is_some() {
            return None;
        }
        let class = victim.class();
        let lost_micros = cell.lost_micros(now, victim, attempt);
        match self.trigger {
            Trigger::Class => (class < job.class()).then(|| VictimOrder {
                class,
                over: Reverse(cell.over_share(victim.account)),
                lost_micros,
            }),
            Trigger::Share => {
                let over = self.over_by(cell, job, victim, Some(attempt))?;
                let fair = class <= job.class() && ran >= cell.protected_ms(victim, over.theirs);
                fair.then_some(VictimOrder { class, over: Reverse(over.by), lost_micros })
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
        let (ours, theirs) = branches.expect("a victim for fair share is of another account");
        let micros = |per_weight: u128| {
            let whole = per_weight.saturating_mul(DEFAULT_WEIGHT.into());
            u64::try_from(cell.accounts.decay.unscale(whole, self.now)).unwrap_or(u64::MAX)
        };
        let ran_ms = attempt.running_since.map_or(0, |since| self.now.millis_since(since));
        PreemptionCause::Share {
            victim_used: micros(cell.used_by_victim(theirs, Some(attempt))),
            taker_used: micros(self.takers.get(&ours).map_or(0, |taker| taker.after_turn)),
            ran_ms,
            quantum_ms: cell.protected_ms(victim, theirs),
        }
    }

    /// Whether the account of another job is as far over its share as a victim's must be.
    pub(crate) fn is_over(&self, cell: &Cell, job: &CellJob, other: &CellJob) -> bool {
        self.over_by(cell, job, other, None).is_some()
    }

    /// How far the victim's account is over its share, if it is by enough.
    fn over_by(
        &self,
        cell: &Cell,
        job: &CellJob,
        victim: &CellJob,
        attempt: Option<&CellAttempt>,
    ) -> Option<Over> {
        let (ours, theirs) = cell.branches(job.account, victim.account)?;
        let taker = self.takers.get(&ours)?;
        let used = cell.used_by_victim(theirs, attempt);
        let by = used.saturating_sub(taker.after_turn);
        (used > taker.least(cell.accounts.get(theirs))).then_some(Over { theirs, by })
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

    /// Whether an attempt of this job has run long enough for the job that it preempted to take back
    /// from it: where it is resumable, once it has used its entry charge.
    fn had_its_turn(&self, job: &CellJob, ran: i64) -> bool {
        self.rules.has(Rule::TakingBack) && job.spec.resumable && ran >= self.config.entry_charge_ms
    }

    /// The usage per weight of a victim's account. The unused entry charge of the attempt does not
    /// count.
    fn used_by_victim(&self, theirs: AccountId, attempt: Option<&CellAttempt>) -> u128 {
        let account = self.accounts.get(theirs);
        let counted = attempt.filter(|_| self.rules.has(Rule::UnusedEntry));
        let unused = counted.map_or(0, |attempt| {
            self.accounts.decay.scale(attempt.unused_micros(), attempt.proposed_at)
        });
        match account.weight {
            0 => u128::MAX,
            weight => account.usage.saturating_sub(unused) / u128::from(weight),
        }
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
