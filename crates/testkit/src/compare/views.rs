//! Compares the state of accounts, grants, holds and budgets.

use bursar_core::ledger::command::Context;
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::{AccountNo, GrantNo, HoldNo};
use bursar_core::ledger::refusal::Resource;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;

use super::answers::micros;
use super::{Pair, same};
use crate::model::{AccountView, BudgetView, DAY_MS, GrantView, HoldView, Micros, some_context};

impl Pair {
    pub(super) fn compare_account(&self, number: usize) -> Result<(), String> {
        let number_in_ledger = AccountNo(u32::try_from(number).unwrap_or(u32::MAX));
        let view = self.account_view(number_in_ledger);
        same("account", &view, &self.model.account_view(number))
    }

    fn account_view(&self, number: AccountNo) -> AccountView {
        let account = self.ledger.account(number);
        let balance = self.ledger.balance(number, &Context::default());
        AccountView {
            path: account.path.clone(),
            available: balance.available,
            held: balance.held,
            uncollected: balance.uncollected,
            frozen: account.frozen,
            spendable: balance.spendable,
            spendable_in_context: self.ledger.spendable(number, &some_context()),
            by_kind: balance.by_kind,
            expiring: (balance.expiring.iter())
                .map(|entry| (entry.expires_at.millis(), entry.kind, entry.amount))
                .collect(),
            tomorrow: self.forecast_by_kind(number),
        }
    }

    fn forecast_by_kind(&self, number: AccountNo) -> [Micros; 4] {
        let at = self.model.now().plus_millis(DAY_MS);
        let forecast = self.ledger.balance_forecast(number, &Context::default(), at);
        assert_eq!(forecast.available, forecast.by_kind.iter().sum::<i128>());
        forecast.by_kind
    }

    pub(super) fn compare_grant(&self, number: usize) -> Result<(), String> {
        let number_in_ledger = GrantNo(u32::try_from(number).unwrap_or(u32::MAX));
        let expected = self.model.grant_view(number);
        let grant = self.ledger.grant(number_in_ledger);
        let rank = match (&grant.pending, grant.bucket) {
            (Some(pending), _) => pending.rank,
            (None, Some(bucket)) => self.ledger.bucket(bucket).rank,
            (None, None) => return Err(format!("grant {number} has no bucket")),
        };
        let view = GrantView {
            name: grant.id.clone(),
            account: self.ledger.account(grant.account).path.clone(),
            kind: rank.kind,
            amount: micros(grant.amount),
            expires_at: rank.expires_at().map(Timestamp::millis),
            parts: self.ledger.grant_parts(number_in_ledger).map(Micros::from),
        };
        same("grant", &view, &expected)
    }

    pub(super) fn compare_hold(&self, number: usize) -> Result<(), String> {
        let expected = self.model.hold_view(number);
        let hold = self.ledger.hold(HoldNo(u32::try_from(number).unwrap_or(u32::MAX)));
        let hold = hold.ok_or_else(|| format!("the ledger has no hold {number}"))?;
        same("hold", &self.hold_view(hold), &expected)
    }

    fn hold_view(&self, hold: &Hold) -> HoldView {
        let mut lots: Vec<(usize, Micros)> = Vec::new();
        for lot in self.ledger.hold_lots(hold, u32::MAX) {
            match lots.last_mut() {
                Some((grant, drawn)) if *grant == lot.grant.index() => {
                    *drawn += Micros::from(lot.amount);
                }
                _ => lots.push((lot.grant.index(), lot.amount.into())),
            }
        }
        let mut returned: Vec<(usize, Micros, bool)> = Vec::new();
        if !hold.is_open() {
            for lot in self.ledger.returned_lots(hold) {
                match returned.last_mut() {
                    Some((grant, units, _)) if *grant == lot.grant.index() => {
                        *units += Micros::from(lot.amount);
                    }
                    _ => returned.push((lot.grant.index(), lot.amount.into(), lot.expired)),
                }
            }
        }
        let account = self.ledger.account(hold.account);
        HoldView {
            what: match hold.kind {
                HoldKind::Hold => Resource::Hold,
                HoldKind::Charge => Resource::Charge,
            },
            tenant: self.ledger.account(account.tenant).path.clone(),
            name: hold.id.clone(),
            state: hold.state,
            amount: hold.amount.into(),
            captured: hold.captured.into(),
            metered: hold.metered.into(),
            refunded: hold.refunded.into(),
            expires_at: hold.expires_at.map(Timestamp::millis),
            has_rate: hold.details.as_ref().is_some_and(|details| details.rate.is_some()),
            lots,
            returned,
        }
    }

    pub(super) fn compare_budgets(&self) -> Result<(), String> {
        let expected = self.model.budget_views();
        let mut views = Vec::new();
        for number in (0..).map(AccountNo).take(self.model.account_count()) {
            let account = self.ledger.account(number);
            for budget in account.budgets() {
                let now = self.ledger.now().max(self.model.now());
                let (spent, held) = budget.numbers(now);
                let is_current = budget.terms.period_of(now).0 == budget.period_start;
                let mut alerted = if is_current { budget.alerted.clone() } else { Vec::new() };
                alerted.sort_unstable();
                views.push(BudgetView {
                    account: account.path.clone(),
                    name: budget.name.clone(),
                    unit: budget.terms.unit,
                    spent,
                    held,
                    alerted,
                });
            }
        }
        views.sort_by(|one, other| (&one.account, &one.name).cmp(&(&other.account, &other.name)));
        same("budgets", &views, &expected)
    }
}
