//! Budgets, summed from everything that was ever drawn.

use bursar_core::ledger::command::{BudgetMode, BudgetTerms, BudgetUnit};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Blocker, Refusal, Resource};
use bursar_core::name::{AccountPath, BudgetName};
use bursar_core::time::Timestamp;

use super::Model;
use super::answer::Reply;
use super::calendar::period_around;
use super::draw::DrawPlan;
use super::hold::credits;
use super::state::{Budget, Hold, Micros};

/// Thousandths of a GPU times milliseconds in a millionth of a GPU-hour.
const GPU_TIME_IN_A_MICRO_HOUR: Micros = 3_600;

/// Usage of a budget in the current period, in micro-credits or in thousandths of a GPU times
/// milliseconds.
#[derive(Copy, Clone)]
pub(super) struct Use {
    pub(super) spent: Micros,
    pub(super) held: Micros,
}

impl Use {
    fn used(self) -> Micros {
        self.spent + self.held
    }
}

impl Model {
    pub(super) fn set_budget(
        &mut self,
        path: &AccountPath,
        name: &BudgetName,
        terms: &BudgetTerms,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(path)?;
        let reply = Reply::Budget { account: path.clone(), budget: name.clone() };
        let found = self.find_budget(account, name);
        let all = self.budgets.iter().filter(|budget| budget.account == account).count();
        if found.is_none() && all >= 16 {
            return Err(Refusal::InvalidField { field: "name", reason: "" });
        }
        match found {
            Some(existing) => {
                let budget = &mut self.budgets[existing];
                let counts_alike = budget.terms.unit == terms.unit
                    && budget.terms.period == terms.period
                    && budget.terms.utc_offset_minutes == terms.utc_offset_minutes;
                if !counts_alike {
                    budget.alerted.clear();
                }
                budget.alerted.retain(|percent| terms.thresholds.contains(percent));
                budget.terms = terms.clone();
            }
            None => self.budgets.push(Budget {
                account,
                name: name.clone(),
                terms: terms.clone(),
                alerted_period: i64::MIN,
                alerted: Vec::new(),
            }),
        }
        Ok(reply)
    }

    pub(super) fn remove_budget(
        &mut self,
        path: &AccountPath,
        name: &BudgetName,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(path)?;
        let Some(existing) = self.find_budget(account, name) else {
            return Err(Refusal::NotFound { what: Resource::Budget, name: name.clone().into() });
        };
        self.budgets.remove(existing);
        Ok(Reply::Done)
    }

    fn find_budget(&self, account: usize, name: &BudgetName) -> Option<usize> {
        self.budgets.iter().position(|budget| budget.account == account && budget.name == *name)
    }

    /// The budgets that cover an account, nearest first.
    fn budgets_above(&self, account: usize) -> Vec<usize> {
        let mut covering = Vec::new();
        for on_path in self.path_to_root(account) {
            covering.extend(
                (0..self.budgets.len()).filter(|budget| self.budgets[*budget].account == on_path),
            );
        }
        covering
    }

    /// Sums the current usage of a budget.
    pub(super) fn budget_use(&self, budget: &Budget) -> Use {
        let terms = &budget.terms;
        let period = period_around(self.now, terms.period, terms.utc_offset_minutes);
        let counts = |at: i64, account: usize| {
            period.is_none_or(|(start, end)| start <= at && at < end)
                && self.path_to_root(account).contains(&budget.account)
        };
        let mut sum = Use { spent: 0, held: 0 };
        for hold in &self.holds {
            match terms.unit {
                BudgetUnit::Credits => {
                    for lot in &hold.lots {
                        if counts(lot.drawn_at, hold.account) {
                            sum.spent += lot.spent();
                            sum.held += lot.held();
                        }
                    }
                }
                BudgetUnit::GpuHours => {
                    for (drawn_at, spent, held) in gpu_time(hold) {
                        if counts(drawn_at, hold.account) {
                            sum.spent += spent;
                            sum.held += held;
                        }
                    }
                }
            }
        }
        if terms.unit == BudgetUnit::Credits {
            for shortfall in &self.shortfalls {
                if counts(shortfall.at, shortfall.account) {
                    sum.spent += shortfall.amount;
                }
            }
        }
        sum
    }

    /// The credits that the hard budgets above an account still allow.
    pub(super) fn budget_room(&self, account: usize) -> Micros {
        self.budgets_above(account)
            .into_iter()
            .map(|budget| &self.budgets[budget])
            .filter(|budget| budget.terms.mode == BudgetMode::Hard)
            .filter(|budget| budget.terms.unit == BudgetUnit::Credits)
            .map(|budget| limit(budget) - self.budget_use(budget).used())
            .fold(Micros::MAX, Micros::min)
            .max(0)
    }

    /// The plan, or a refusal if there is none or a hard budget does not allow it.
    pub(super) fn refuse_if_blocked(
        &self,
        account: usize,
        plan: Option<DrawPlan>,
        amount: Micros,
        spendable: Micros,
        gpu_time: Micros,
    ) -> Result<DrawPlan, Refusal> {
        let mut blockers = Vec::new();
        if plan.is_none() {
            blockers.push(Blocker::Credits {
                account: self.accounts[account].path.clone(),
                requested: credits(amount),
                spendable,
            });
        }
        for budget in self.budgets_above(account) {
            blockers.extend(self.budget_blocker(&self.budgets[budget], amount, gpu_time));
        }
        match plan {
            None => Err(Refusal::InsufficientCredits { blockers }),
            Some(_) if !blockers.is_empty() => Err(Refusal::BudgetExceeded { blockers }),
            Some(plan) => Ok(plan),
        }
    }

    fn budget_blocker(&self, budget: &Budget, amount: Micros, gpu_time: Micros) -> Option<Blocker> {
        let requested = in_unit(budget, amount, gpu_time);
        if budget.terms.mode == BudgetMode::Soft || requested == 0 {
            return None;
        }
        let usage = self.budget_use(budget);
        if usage.used() + requested <= limit(budget) {
            return None;
        }
        let terms = &budget.terms;
        let period = period_around(self.now, terms.period, terms.utc_offset_minutes);
        Some(Blocker::Budget {
            account: self.accounts[budget.account].path.clone(),
            budget: budget.name.clone(),
            unit: terms.unit,
            limit: limit(budget),
            spent: usage.spent,
            held: usage.held,
            requested,
            period_end: period.map(|(_, end)| Timestamp::from_millis(end)),
        })
    }

    /// Records each threshold that is reached for the first time in its period, for every budget
    /// whose usage has grown.
    pub(super) fn alert_budgets(&mut self, account: usize, credits: Micros, gpu_time: Micros) {
        for number in self.budgets_above(account) {
            if in_unit(&self.budgets[number], credits, gpu_time) == 0 {
                continue;
            }
            let used = self.budget_use(&self.budgets[number]).used();
            let now = self.now;
            let budget = &mut self.budgets[number];
            let period = current_period(budget, now);
            if budget.alerted_period != period {
                budget.alerted_period = period;
                budget.alerted.clear();
            }
            for percent in &budget.terms.thresholds {
                let reached = used * 100 >= Micros::from(*percent) * limit(budget);
                if reached && !budget.alerted.contains(percent) {
                    budget.alerted.push(*percent);
                }
            }
        }
    }

    /// The thresholds that a budget has reached in the current period.
    pub(super) fn alerted(&self, budget: &Budget) -> Vec<u16> {
        let mut alerted = budget.alerted.clone();
        if budget.alerted_period != current_period(budget, self.now) {
            alerted.clear();
        }
        alerted.sort_unstable();
        alerted
    }
}

fn current_period(budget: &Budget, now: i64) -> i64 {
    period_around(now, budget.terms.period, budget.terms.utc_offset_minutes)
        .map_or(i64::MIN, |(start, _)| start)
}

/// The usage that a draw adds to a budget, in the budget's unit.
fn in_unit(budget: &Budget, credits: Micros, gpu_time: Micros) -> Micros {
    match budget.terms.unit {
        BudgetUnit::Credits => credits,
        BudgetUnit::GpuHours => gpu_time,
    }
}

/// The limit, in the unit of [`Use`].
fn limit(budget: &Budget) -> Micros {
    let limit = Micros::from(budget.terms.limit.micros());
    match budget.terms.unit {
        BudgetUnit::Credits => limit,
        BudgetUnit::GpuHours => limit * GPU_TIME_IN_A_MICRO_HOUR,
    }
}

/// The draws of GPU time by a hold: the instant, the used time and the held time of each.
fn gpu_time(hold: &Hold) -> Vec<(i64, Micros, Micros)> {
    let share = hold.share_milli();
    let mut times = Vec::new();
    for lot in &hold.gpu_lots {
        let held = match hold.state {
            HoldState::Open => lot.drawn - lot.used,
            HoldState::Settled | HoldState::Released | HoldState::Lapsed => 0,
        };
        times.push((lot.drawn_at, lot.used * share, held * share));
    }
    times
}
