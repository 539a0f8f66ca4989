//! Restrictions, contexts, rates and budgets.

use bursar_core::ledger::command::{
    BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Command, Context, Restriction,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::name::{BudgetName, ClassName};

use super::Generator;
use super::amount::{credits, near};
use crate::model::Model;

const GPU_TYPES: [&str; 3] = ["a100", "h100", "l40"];
const REGIONS: [&str; 2] = ["eu", "us"];
const CLASSES: [&str; 2] = ["batch", "urgent"];
/// Offsets of budget periods from UTC, in minutes.
pub(super) const OFFSETS: [i16; 4] = [0, 0, 330, -480];

impl Generator {
    pub(super) fn restriction(&mut self, is_capped: bool) -> Option<Restriction> {
        let is_restricted = self.random.chance(self.flavor.restricted);
        if !is_capped && !is_restricted && self.random.chance(95) {
            return None;
        }
        let shares = [1, 100_000, 250_000, 333_333, 500_000, 500_000, 999_999, 1_000_000];
        let max_share_micro = is_capped.then(|| *self.random.pick(&shares));
        let gpu_types = (is_restricted && self.random.chance(60)).then(|| self.some_of(&GPU_TYPES));
        let regions = (is_restricted && self.random.chance(30)).then(|| self.some_of(&REGIONS));
        let classes = (is_restricted && self.random.chance(20)).then(|| self.some_of(&CLASSES));
        Some(Restriction { gpu_types, regions, classes, max_share_micro })
    }

    pub(super) fn context(&mut self) -> Context {
        if !self.random.chance(self.flavor.contextual) {
            return Context::default();
        }
        let gpu_types = self.random.chance(75).then(|| self.some_of(&GPU_TYPES));
        let regions = self.random.chance(60).then(|| self.some_of(&REGIONS));
        let class = self.random.chance(60).then(|| ClassName::from(*self.random.pick(&CLASSES)));
        Context { gpu_types, regions, class }
    }

    /// Some of the values, in order. Very rarely none, which is invalid.
    fn some_of<T: From<&'static str>>(&mut self, values: &[&'static str]) -> Vec<T> {
        if self.random.once_in(300) {
            return Vec::new();
        }
        let sure = self.random.index(values.len());
        let mut chosen = Vec::new();
        for (place, value) in values.iter().enumerate() {
            if place == sure || self.random.chance(30) {
                chosen.push(T::from(*value));
            }
        }
        chosen
    }

    pub(super) fn rate(&mut self) -> Option<Rate> {
        if self.random.chance(55) {
            return None;
        }
        let per_gpu_hour = credits(self.scale.amount(&mut self.random));
        let share_milli = *self.random.pick(&[1000, 1000, 1000, 500, 500, 333, 333, 1]);
        let gpu_ms_limit = *self.random.pick(&[u64::MAX, 3_600_000 * 8, 5_000_000]);
        Some(Rate { per_gpu_hour, share_milli, gpu_ms_limit })
    }

    pub(super) fn gpu_ms(&mut self) -> u64 {
        match self.random.index(10) {
            0..=2 => 0,
            3..=5 => 3_600_000,
            6..=8 => self.random.bits() % 20_000_000,
            _ => self.random.bits() % 100,
        }
    }

    pub(super) fn set_budget(&mut self, model: &Model) -> Command {
        let path = self.path();
        let budget = self.budget_name();
        let known = model.budget_views();
        let existing = known.iter().find(|known| known.account == path && known.name == budget);
        let unit =
            *self.random.pick(&[BudgetUnit::Credits, BudgetUnit::Credits, BudgetUnit::GpuHours]);
        let limit = match (unit, existing) {
            (BudgetUnit::GpuHours, _) => self.random.between(1, 20_000_000),
            (BudgetUnit::Credits, Some(existing)) => {
                near(&mut self.random, existing.spent + existing.held, self.scale)
            }
            (BudgetUnit::Credits, None) => {
                let amount = self.scale.amount(&mut self.random);
                amount.saturating_mul(self.random.between(1, 6))
            }
        };
        let period = *self.random.pick(&[
            BudgetPeriod::Total,
            BudgetPeriod::Day,
            BudgetPeriod::Day,
            BudgetPeriod::Week,
            BudgetPeriod::Month,
        ]);
        let mode = *self.random.pick(&[BudgetMode::Hard, BudgetMode::Hard, BudgetMode::Soft]);
        let thresholds: &[u16] = match self.random.index(8) {
            0 => &[],
            1 => &[80, 50],
            2 => &[1, 10, 100, 1000],
            _ => &[50, 80, 100],
        };
        let utc_offset_minutes = *self.random.pick(&OFFSETS);
        let terms = BudgetTerms {
            limit: credits(limit),
            unit,
            period,
            mode,
            thresholds: thresholds.into(),
            utc_offset_minutes,
        };
        Command::SetBudget { path, budget, terms }
    }

    pub(super) fn remove_budget(&mut self, model: &Model) -> Command {
        let known = model.budget_views();
        if known.is_empty() || self.random.chance(10) {
            return Command::RemoveBudget { path: self.path(), budget: self.budget_name() };
        }
        let known = self.random.pick(&known);
        Command::RemoveBudget { path: known.account.clone(), budget: known.name.clone() }
    }

    fn budget_name(&mut self) -> BudgetName {
        BudgetName::from(*self.random.pick(&["main", "extra"]))
    }
}
