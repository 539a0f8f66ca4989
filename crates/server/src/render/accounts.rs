//! How accounts and budgets are shown.

use bursar_api::accounts::account::{self, Weight};
use bursar_api::accounts::budget;
use bursar_api::amount::Sum;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::budget::Budget;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetUnit,
};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::reply::BudgetReply;
use bursar_core::name::Region;
use bursar_core::time::Timestamp;
use serde_json::Value;

use super::{sum, time};
use crate::request::budget_sum;

/// An account.
pub fn account(ledger: &Ledger, number: AccountNo) -> account::Account {
    let own = ledger.account(number);
    let settings = own.details.as_ref().map(|details| details.settings.clone()).unwrap_or_default();
    account_as(ledger, number, &settings, (own.frozen, own.uncollected()))
}

/// An account with settings that may differ from its present ones.
pub(super) fn account_as(
    ledger: &Ledger,
    number: AccountNo,
    settings: &AccountSettings,
    (frozen, uncollected): (bool, i128),
) -> account::Account {
    let own = ledger.account(number);
    account::Account {
        id: own.path.to_string(),
        parent: own.parent.map(|parent| ledger.account(parent).path.to_string()),
        kind: account_kind(own.kind),
        name: settings.name.as_ref().map(ToString::to_string),
        weight: Weight::from_milli(settings.weight_milli.unwrap_or(1000)),
        home_region: settings.home_region.as_ref().map(Region::to_string),
        metadata: settings.metadata.as_deref().map(stored_json),
        compensation_ttl_seconds: settings
            .compensation_ttl_ms
            .and_then(|ttl| u64::try_from(ttl / 1000).ok()),
        overdraft_limit: settings.overdraft_limit.map(sum),
        frozen,
        uncollected: Sum::from_micros(uncollected),
        shard: None,
        as_of: None,
        position: None,
    }
}

/// Metadata is stored as JSON text.
pub(super) fn stored_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn account_kind(kind: AccountKind) -> account::AccountKind {
    match kind {
        AccountKind::Org => account::AccountKind::Org,
        AccountKind::Team => account::AccountKind::Team,
        AccountKind::Project => account::AccountKind::Project,
        AccountKind::User => account::AccountKind::User,
    }
}

pub(super) fn strings(names: Option<&[impl ToString]>) -> Option<Vec<String>> {
    names.map(|names| names.iter().map(ToString::to_string).collect())
}

/// A budget with its amounts in the current period.
pub fn budget(ledger: &Ledger, number: AccountNo, own: &Budget, now: Timestamp) -> budget::Budget {
    let (spent, held) = own.numbers(now);
    let (budget, terms) = (own.name.clone(), own.terms.clone());
    budget_as(ledger, &BudgetReply { account: number, budget, terms, at: now, spent, held })
}

/// A budget as it was at some time.
pub(super) fn budget_as(ledger: &Ledger, own: &BudgetReply) -> budget::Budget {
    let unit = own.terms.unit;
    let (start, end) = own.terms.period_of(own.at);
    budget::Budget {
        name: own.budget.to_string(),
        account: ledger.account(own.account).path.to_string(),
        limit: sum(own.terms.limit),
        unit: match unit {
            BudgetUnit::Credits => budget::BudgetUnit::Credits,
            BudgetUnit::GpuHours => budget::BudgetUnit::GpuHours,
        },
        period: match own.terms.period {
            BudgetPeriod::Total => budget::BudgetPeriod::Total,
            BudgetPeriod::Day => budget::BudgetPeriod::Day,
            BudgetPeriod::Week => budget::BudgetPeriod::Week,
            BudgetPeriod::Month => budget::BudgetPeriod::Month,
        },
        mode: match own.terms.mode {
            BudgetMode::Hard => budget::BudgetMode::Hard,
            BudgetMode::Soft => budget::BudgetMode::Soft,
        },
        thresholds: own.terms.thresholds.to_vec(),
        utc_offset_minutes: own.terms.utc_offset_minutes,
        spent: budget_sum(unit, own.spent),
        held: budget_sum(unit, own.held),
        used: budget_sum(unit, own.used()),
        remaining: budget_sum(unit, own.remaining()),
        period_start: end.map(|_| time(start)),
        period_end: end.map(time),
        as_of: None,
        position: None,
    }
}
