//! Budgets over credits: no draw takes a hard budget above its limit (L4).
//!
//! Only limits on credits are checked. Limits on GPU-hours are counted by the ledger alone.

use super::{Books, Broken, LawResult, Units, require};
use crate::node::Node;

const DAY_MS: i64 = 86_400_000;

/// One budget.
pub(crate) struct BudgetBook {
    /// The terms as they were set.
    terms: Node,
    limit: i128,
    of_credits: bool,
    hard: bool,
    /// 0 total, 1 day, 2 week, 3 month.
    period: u64,
    offset_ms: i64,
    period_start: i64,
    used: i128,
}

impl BudgetBook {
    fn read(event: &Node) -> LawResult<BudgetBook> {
        let terms = event.field(2)?;
        let sum = |key| event.get(key).map_or(Ok(0), Node::number);
        let minutes = terms.get(5).map_or(Ok(0), Node::time)?;
        let budget = BudgetBook {
            terms: terms.clone(),
            limit: terms.field(0)?.number()?,
            of_credits: terms.unsigned_or_zero(1)? == 0,
            hard: terms.field(3)?.unsigned()? == 0,
            period: terms.field(2)?.unsigned()?,
            offset_ms: minutes * 60_000,
            period_start: event.field(3)?.time()?,
            used: sum(4)? + sum(5)?,
        };
        require(budget.limit > 0, "L4", || "a budget without a positive limit".to_owned())?;
        Ok(budget)
    }

    /// When the period that contains `at` began.
    fn start_of(&self, at: i64) -> i64 {
        let local_day = (at + self.offset_ms).div_euclid(DAY_MS);
        let first = match self.period {
            0 => return i64::MIN,
            1 => local_day,
            // Day 0 was a Thursday; weeks begin on Mondays.
            2 => local_day - (local_day + 3).rem_euclid(7),
            _ => first_of_month(local_day),
        };
        first * DAY_MS - self.offset_ms
    }

    fn roll(&mut self, at: i64) {
        let start = self.start_of(at);
        if self.period != 0 && start != self.period_start {
            self.period_start = start;
            self.used = 0;
        }
    }
}

/// The first day of the month that contains a day, both counted from 1970. Steps back month by
/// month from a year that begins before the day.
fn first_of_month(day: i64) -> i64 {
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let days_before = |year: i64| {
        let years = year - 1;
        years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400) - 719_162
    };
    let mut year = 1970 + day.div_euclid(366);
    while days_before(year + 1) <= day {
        year += 1;
    }
    while days_before(year) > day {
        year -= 1;
    }
    let mut first = days_before(year);
    let february = if leap(year) { 29 } else { 28 };
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if first + length > day {
            break;
        }
        first += length;
    }
    first
}

impl Books {
    pub(super) fn budget_set(&mut self, event: &Node) -> LawResult<()> {
        let number = self.known_account(event)?;
        let name = event.field(1)?.text()?.to_owned();
        let budget = BudgetBook::read(event)?;
        self.accounts[number as usize].budgets.insert(name, budget);
        Ok(())
    }

    /// A budget that is removed or that alerts must exist.
    pub(super) fn budget_known(&mut self, tag: u64, event: &Node) -> LawResult<()> {
        let number = self.known_account(event)?;
        let name = event.field(1)?.text()?;
        let budgets = &mut self.accounts[number as usize].budgets;
        let unknown = || Broken { law: "L4", detail: format!("there is no budget {name}") };
        let budget = budgets.get(name).ok_or_else(unknown)?;
        if tag == 22 {
            budgets.remove(name);
            return Ok(());
        }
        let percent = event.field(2)?.unsigned()?;
        let listed = budget.terms.field(4)?.list()?.iter().any(|p| p.unsigned() == Ok(percent));
        require(listed, "L4", || format!("budget {name} has no threshold at {percent} %"))
    }

    /// Counts units that were drawn at `drawn_at` and are drawn or returned at `at`, in every
    /// budget from the account to the root. `limited` draws must stay within hard limits.
    pub(super) fn count(
        &mut self,
        at: i64,
        account: u32,
        drawn_at: i64,
        amount: i128,
        limited: bool,
    ) -> LawResult<()> {
        let mut next = Some(account);
        while let Some(number) = next {
            let account = &mut self.accounts[number as usize];
            next = account.parent;
            for (name, budget) in account.budgets.iter_mut().filter(|(_, b)| b.of_credits) {
                budget.roll(at);
                if budget.period != 0 && drawn_at < budget.period_start {
                    continue;
                }
                budget.used += amount;
                let broken = limited && budget.hard && budget.used > budget.limit;
                require(!broken, "L4", || {
                    let (used, limit) = (budget.used, budget.limit);
                    format!("budget {name} of {} is at {used} of {limit}", account.path)
                })?;
            }
        }
        Ok(())
    }

    /// Counts returned units, each at the time when it was drawn.
    pub(super) fn give_back(
        &mut self,
        at: i64,
        account: u32,
        units: &[(Units, i64)],
    ) -> LawResult<()> {
        for (units, drawn_at) in units {
            self.count(at, account, *drawn_at, -i128::from(units.count()), false)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_on_their_first_day() {
        // 1970-01-01, 1970-02-28, 1972-02-29, 2000-03-01, 2026-11-15, 1969-12-31
        for (day, first) in
            [(0, 0), (58, 31), (789, 761), (11_017, 11_017), (20_772, 20_758), (-1, -31)]
        {
            assert_eq!(first_of_month(day), first, "day {day}");
        }
    }
}
