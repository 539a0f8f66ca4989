//! What forgotten holds and charges have spent, so that a budget that is set later still counts it.
//!
//! Kept for each account over its subtree, by the quarter of an hour in which it was drawn: periods of budgets begin at
//! full quarters of an hour in every time zone. A period that begins elsewhere counts its whole first quarter. Quarters
//! in which no period begins that lasts now are added up: see [`Zones`].

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::ledger::command::{BudgetPeriod, BudgetUnit};
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::AccountNo;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::time::Timestamp;

const QUARTER_MS: i64 = 15 * 60_000;
const DAY_MS: i64 = 24 * 3_600_000;
const DAY_QUARTERS: i64 = DAY_MS / QUARTER_MS;
/// Accounts whose sums are looked at in one step.
const SWEPT_AT_ONCE: usize = 16;
/// The place of everything that was drawn before the first zone.
const EARLIER: i64 = i64::MIN;

/// Spent credits and GPU time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PastSpending {
    /// In micro-credits.
    pub credits: i128,
    /// In thousandths of GPU-milliseconds.
    pub gpu: i128,
}

/// By account and quarter of an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PastUsage {
    /// By account and the number of the quarter since the epoch.
    pub by_quarter: BTreeMap<(AccountNo, i64), PastSpending>,
}

fn quarter(at: Timestamp) -> i64 {
    at.millis().div_euclid(QUARTER_MS)
}

impl PastUsage {
    /// What the holds of a subtree spent that were drawn at or after an instant.
    pub(super) fn since(&self, account: AccountNo, start: Timestamp, unit: BudgetUnit) -> i128 {
        let first = if start == Timestamp::MIN { EARLIER } else { quarter(start) };
        let spent = self.by_quarter.range((account, first)..=(account, i64::MAX));
        spent
            .map(|(_, spent)| match unit {
                BudgetUnit::Credits => spent.credits,
                BudgetUnit::GpuHours => spent.gpu,
            })
            .sum()
    }

    /// Whether it knows exactly what was drawn since an instant, for a period that may last at another.
    pub(in crate::ledger) fn is_exact_since(start: Timestamp, now: Timestamp) -> bool {
        let is_full = start.millis().rem_euclid(QUARTER_MS) == 0;
        start == Timestamp::MIN || (is_full && Zones::at(now).contain(quarter(start)))
    }

    /// The entry that has what was drawn in a quarter.
    fn entry_of(&self, account: AccountNo, drawn: i64) -> Option<i64> {
        let before = self.by_quarter.range((account, EARLIER)..=(account, drawn));
        before.map(|((_, place), _)| *place).next_back()
    }

    /// These sums, with the quarters added up that are no longer kept apart.
    pub(in crate::ledger) fn merged(&self, now: Timestamp) -> PastUsage {
        let zones = Zones::at(now);
        let mut merged = PastUsage::default();
        for ((account, place), spent) in &self.by_quarter {
            let sum: &mut PastSpending =
                merged.by_quarter.entry((*account, zones.place(*place))).or_default();
            sum.credits += spent.credits;
            sum.gpu += spent.gpu;
        }
        merged.by_quarter.retain(|_, spent| *spent != PastSpending::default());
        merged
    }
}

/// The quarters in which a period may begin that lasts now: those of the last day, and those within a day of the first
/// day of the week and of the month, because a time zone may be a day ahead or behind. All others are kept as one sum
/// between two zones. A zone that is over never comes back, and later zones begin later.
pub(in crate::ledger) struct Zones(SmallVec<[(i64, i64); 5]>);

impl Zones {
    fn at(now: Timestamp) -> Zones {
        let recent = quarter(now) - DAY_QUARTERS;
        let mut zones = SmallVec::new();
        for period in [BudgetPeriod::Month, BudgetPeriod::Week] {
            let first_day = |at: Timestamp| period.days_of(at).map_or(0, |(first, _)| first);
            let newest = first_day(now.plus_millis(DAY_MS));
            let around = |day: i64| ((day - 1) * DAY_QUARTERS, (day + 1) * DAY_QUARTERS);
            // Until every time zone is in the newest one.
            if quarter(now) <= around(newest).1 {
                let before = Timestamp::from_millis(newest.saturating_mul(DAY_MS)).plus_millis(-1);
                zones.push(around(first_day(before)));
            }
            zones.push(around(newest));
        }
        zones.push((recent, i64::MAX));
        zones.sort_unstable();
        Zones(zones)
    }

    fn contain(&self, quarter: i64) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&quarter))
    }

    /// The place of what was drawn in a quarter, or is at a place.
    fn place(&self, quarter: i64) -> i64 {
        if self.contain(quarter) {
            return quarter;
        }
        let over = self.0.iter().filter(|(_, last)| *last < quarter);
        over.map(|(_, last)| last + 1).max().unwrap_or(EARLIER)
    }

    /// The quarters between two zones, without the first of each, which has the sum.
    fn gaps(&self) -> impl Iterator<Item = (i64, i64)> {
        let mut from = EARLIER;
        self.0.iter().filter_map(move |(first, last)| {
            let gap = (from.saturating_add(1), first.saturating_sub(1));
            from = from.max(last.saturating_add(1));
            (gap.0 <= gap.1).then_some(gap)
        })
    }
}

impl Ledger {
    /// The zones of the present instant.
    pub(in crate::ledger) fn zones(&self) -> Zones {
        Zones::at(self.now)
    }

    /// Adds what a closed hold or charge spent, or takes it off again.
    pub(in crate::ledger) fn enter_past_usage(&mut self, hold: &Hold, sign: i128, zones: &Zones) {
        let mut spent: SmallVec<[(i64, PastSpending); 4]> = SmallVec::new();
        hold.each_spent(|at, credits, gpu| {
            let drawn = quarter(at);
            if spent.last().is_none_or(|(last, _)| *last != drawn) {
                spent.push((drawn, PastSpending::default()));
            }
            if let Some((_, sum)) = spent.last_mut() {
                sum.credits += sign * credits;
                sum.gpu += sign * gpu;
            }
        });
        for account in self.path(hold.account) {
            for (drawn, spent) in &spent {
                // What is taken off is where it was added, which may not have been merged yet.
                let own = self.past_usage.entry_of(account, *drawn).filter(|_| sign < 0);
                let place = (account, own.unwrap_or_else(|| zones.place(*drawn)));
                if self.add_past_usage(place, *spent) {
                    self.merge_past_usage(account, zones);
                }
            }
        }
    }

    /// Returns whether the entry is new.
    fn add_past_usage(&mut self, place: (AccountNo, i64), more: PastSpending) -> bool {
        let before = self.past_usage.by_quarter.get(&place).copied();
        let sum = before.unwrap_or_default();
        let sum = PastSpending { credits: sum.credits + more.credits, gpu: sum.gpu + more.gpu };
        self.set_past_usage(place, Some(sum).filter(|sum| *sum != PastSpending::default()));
        self.remember(|| Undo::PastUsage(place, before));
        before.is_none()
    }

    /// Sets one entry, or removes it.
    pub(in crate::ledger) fn set_past_usage(
        &mut self,
        place: (AccountNo, i64),
        spent: Option<PastSpending>,
    ) {
        match spent {
            Some(spent) => _ = self.past_usage.by_quarter.insert(place, spent),
            None => _ = self.past_usage.by_quarter.remove(&place),
        }
    }

    /// Adds up the sums of the next few accounts, which may no longer spend. Called with each step, in turns.
    pub(in crate::ledger) fn sweep_past_usage(&mut self) {
        let zones = self.zones();
        for _ in 0..SWEPT_AT_ONCE {
            let from = self.past_usage_swept.map_or(0, |account| account.0.saturating_add(1));
            let next = self.past_usage.by_quarter.range((AccountNo(from), EARLIER)..).next();
            self.past_usage_swept = next.map(|((account, _), _)| *account);
            let Some(account) = self.past_usage_swept else { break };
            self.merge_past_usage(account, &zones);
        }
    }

    /// Adds up the quarters in which no period begins any more.
    fn merge_past_usage(&mut self, account: AccountNo, zones: &Zones) {
        for (first, last) in zones.gaps() {
            // Nothing is merged in a group, which may be undone.
            while self.undo.is_none() {
                let gap = (account, first)..=(account, last);
                let Some((place, spent)) = self.past_usage.by_quarter.range(gap).next() else {
                    break;
                };
                let (place, spent) = (*place, *spent);
                self.past_usage.by_quarter.remove(&place);
                self.add_past_usage((account, zones.place(place.1)), spent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::command::{BudgetMode, BudgetTerms};

    fn terms(period: BudgetPeriod, utc_offset_minutes: i16) -> BudgetTerms {
        let (limit, unit, mode) =
            (crate::credits::Credits::ZERO, BudgetUnit::Credits, BudgetMode::Soft);
        let thresholds = [].into_iter().collect();
        BudgetTerms { limit, unit, period, mode, thresholds, utc_offset_minutes }
    }

    #[test]
    fn every_period_is_counted_exactly_and_few_quarters_are_kept() {
        let account = AccountNo(0);
        let start = 1_767_225_600_000 / QUARTER_MS * QUARTER_MS;
        let (mut fine, mut kept) = (PastUsage::default(), PastUsage::default());
        let mut most = 0;
        for number in 0..100 * DAY_QUARTERS {
            let now = Timestamp::from_millis(start + number * QUARTER_MS + 7);
            let spent = PastSpending { credits: i128::from(number % 97 + 1), gpu: 1 };
            for usage in [&mut fine, &mut kept] {
                usage.by_quarter.insert((account, quarter(now)), spent);
            }
            kept = kept.merged(now);
            most = most.max(kept.by_quarter.len());
            if number % 7 != 0 {
                continue;
            }
            let periods = [BudgetPeriod::Day, BudgetPeriod::Week, BudgetPeriod::Month];
            for period in periods.into_iter().chain([BudgetPeriod::Total]) {
                for offset in [-1440, -720, -345, 0, 330, 840, 1440] {
                    let since = terms(period, offset).period_of(now).0;
                    assert!(PastUsage::is_exact_since(since, now), "{period:?} {offset} {now:?}");
                    let [one, other] = [&fine, &kept]
                        .map(|usage| usage.since(account, since, BudgetUnit::Credits));
                    assert_eq!(one, other, "{period:?} {offset} {now:?}");
                }
            }
        }
        assert!(most <= 700, "{most} quarters");
    }

    #[test]
    fn accounts_that_no_longer_spend_keep_few_sums() {
        let mut ledger = Ledger::new();
        let spent = PastSpending { credits: 1, gpu: 2 };
        for (account, number) in (0..100).flat_map(|account| (0..960).map(move |n| (account, n))) {
            let at = Timestamp::from_millis(1_767_225_600_000 + number * QUARTER_MS);
            ledger.past_usage.by_quarter.insert((AccountNo(account), quarter(at)), spent);
        }
        ledger.now = Timestamp::from_millis(1_767_225_600_000 + 90 * DAY_MS);
        let before = ledger.past_usage.merged(ledger.now);
        for _ in 0..100 / SWEPT_AT_ONCE + 1 {
            ledger.sweep_past_usage();
        }
        assert_eq!(ledger.past_usage.by_quarter.len(), 100, "one sum for each account");
        assert_eq!(ledger.past_usage.merged(ledger.now), before);
        ledger.sweep_past_usage();
        assert!(ledger.past_usage_swept.is_some(), "it begins anew");
    }

    #[test]
    fn merging_one_account_at_a_time_gives_what_merging_all_gives() {
        let mut ledger = Ledger::new();
        let mut fine = PastUsage::default();
        for number in 0..60 * DAY_QUARTERS {
            ledger.now = Timestamp::from_millis(1_767_225_600_000 + number * QUARTER_MS);
            let place = (AccountNo(u32::try_from(number % 3).unwrap_or(0)), quarter(ledger.now));
            let spent = PastSpending { credits: 1, gpu: 2 };
            fine.by_quarter.insert(place, spent);
            ledger.add_past_usage(place, spent);
            if number % 5 == 0 {
                ledger.merge_past_usage(place.0, &Zones::at(ledger.now));
            }
            if number % 50 == 0 {
                assert_eq!(ledger.past_usage.merged(ledger.now), fine.merged(ledger.now));
            }
        }
    }
}
