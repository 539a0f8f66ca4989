//! Views of the model, to compare with the ledger.

use std::collections::BTreeMap;

use bursar_core::ledger::command::{BudgetUnit, Context, GrantKind};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{AccountPath, BudgetName, GrantId, HoldId, MovementId};

use bursar_core::time::Timestamp;

use super::Model;
use super::state::{Grant, Hold, Micros};

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// Its path.
    pub path: AccountPath,
    /// Free units of its own active grants.
    pub available: Micros,
    /// Held units of its own grants.
    pub held: Micros,
    /// Usage for which no credits were found.
    pub uncollected: Micros,
    /// Whether it is frozen itself.
    pub frozen: bool,
    /// The largest amount it could draw now, without a context.
    pub spendable: Micros,
    /// The largest amount it could draw now for [`some_context`].
    pub spendable_in_context: Micros,
    /// Free units of its own grants by kind, in the order of [`GrantKind::ALL`].
    pub by_kind: [Micros; 4],
    /// Amounts that will expire, soonest first, at most twenty entries.
    pub expiring: Vec<(i64, GrantKind, Micros)>,
    /// Free units of its own grants a day from now by kind, if nothing is spent until then.
    pub tomorrow: [Micros; 4],
}

/// A day, for [`AccountView::tomorrow`].
pub const DAY_MS: i64 = 86_400_000;

/// A context that many restrictions admit.
pub fn some_context() -> Context {
    Context {
        gpu_types: Some(vec!["h100".into()]),
        regions: Some(vec!["eu".into()]),
        class: Some("urgent".into()),
    }
}

/// A grant, in order of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantView {
    /// Its name.
    pub name: GrantId,
    /// The path of its account.
    pub account: AccountPath,
    /// Its kind.
    pub kind: GrantKind,
    /// Its amount.
    pub amount: Micros,
    /// Its last valid instant.
    pub expires_at: Option<i64>,
    /// Units: free, held, spent, expired, revoked, moved.
    pub parts: [Micros; 6],
}

/// A hold or charge, in order of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView {
    /// [`Resource::Hold`] or [`Resource::Charge`].
    pub what: Resource,
    /// The tenant.
    pub tenant: AccountPath,
    /// Its name.
    pub name: HoldId,
    /// Its state.
    pub state: HoldState,
    /// The drawn amount.
    pub amount: Micros,
    /// The captured part of it.
    pub captured: Micros,
    /// The last accepted cumulative total.
    pub metered: Micros,
    /// The refunded amount.
    pub refunded: Micros,
    /// When it lapses.
    pub expires_at: Option<i64>,
    /// Whether GPU time can be reported to it.
    pub has_rate: bool,
    /// The amounts drawn by grant, in order, including units that were cut since. Adjacent amounts
    /// of the same grant are merged.
    pub lots: Vec<(usize, Micros)>,
    /// The amounts returned when it was closed, last drawn first, and whether they had expired.
    /// Adjacent amounts of the same grant are merged.
    pub returned: Vec<(usize, Micros, bool)>,
}

/// A budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// The path of its account.
    pub account: AccountPath,
    /// Its name in the account.
    pub name: BudgetName,
    /// The unit of the amounts.
    pub unit: BudgetUnit,
    /// The amount spent in the current period.
    pub spent: Micros,
    /// The amount held in the current period.
    pub held: Micros,
    /// Thresholds reached in the current period, ascending.
    pub alerted: Vec<u16>,
}

/// The whole state at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Accounts in order of creation.
    pub accounts: Vec<AccountView>,
    /// Grants in order of creation.
    pub grants: Vec<GrantView>,
    /// Holds and charges in order of creation.
    pub holds: Vec<HoldView>,
    /// Budgets by account and name.
    pub budgets: Vec<BudgetView>,
}

impl Model {
    /// The current state.
    pub fn view(&self) -> View {
        View {
            accounts: (0..self.accounts.len()).map(|number| self.account_view(number)).collect(),
            grants: (0..self.grants.len()).map(|number| self.grant_view(number)).collect(),
            holds: (0..self.holds.len()).map(|number| self.hold_view(number)).collect(),
            budgets: self.budget_views(),
        }
    }

    /// The current time of the model.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// The number of accounts.
    pub fn account_count(&self) -> usize {
        self.accounts.len()
    }

    /// The paths of all tenants.
    pub fn tenants(&self) -> Vec<AccountPath> {
        let roots = self.accounts.iter().filter(|account| account.parent.is_none());
        roots.map(|account| account.path.clone()).collect()
    }

    /// The number of grants.
    pub fn grant_count(&self) -> usize {
        self.grants.len()
    }

    /// The number of holds and charges.
    pub fn hold_count(&self) -> usize {
        self.holds.len()
    }

    /// The path of the account with this index, in order of creation.
    pub fn account_path(&self, number: usize) -> &AccountPath {
        &self.accounts[number].path
    }

    /// The largest amount that an account could draw now in a context; `None` if there is no such
    /// account.
    pub fn spendable_in(&self, path: &str, context: &Context) -> Option<Micros> {
        self.find_account(path).ok().map(|account| self.spendable(account, context))
    }

    /// The kind and state of the hold or charge with this index.
    pub fn hold_state(&self, number: usize) -> (Resource, HoldState) {
        (self.holds[number].what, self.holds[number].state)
    }

    /// The account with this index, in order of creation.
    pub fn account_view(&self, number: usize) -> AccountView {
        let account = &self.accounts[number];
        let own = || self.grants.iter().filter(|grant| grant.account == number);
        AccountView {
            path: account.path.clone(),
            available: own().filter(|grant| grant.is_active).map(|grant| grant.free).sum(),
            held: own().map(|grant| grant.held).sum(),
            uncollected: account.uncollected,
            frozen: account.frozen,
            spendable: self.spendable(number, &Context::default()),
            spendable_in_context: self.spendable(number, &some_context()),
            by_kind: GrantKind::ALL.map(|kind| {
                let of_kind = own().filter(|grant| grant.is_active && grant.kind == kind);
                of_kind.map(|grant| grant.free).sum()
            }),
            expiring: expiring(own()),
            tomorrow: GrantKind::ALL.map(|kind| {
                own()
                    .filter(|grant| grant.kind == kind && grant.effective_at <= self.now + DAY_MS)
                    .filter(|grant| grant.expires_at.is_none_or(|last| self.now + DAY_MS <= last))
                    .map(|grant| grant.free)
                    .sum()
            }),
        }
    }

    /// The grant with this index, in order of creation.
    pub fn grant_view(&self, number: usize) -> GrantView {
        let grant = &self.grants[number];
        GrantView {
            name: grant.name.clone(),
            account: self.accounts[grant.account].path.clone(),
            kind: grant.kind,
            amount: grant.amount,
            expires_at: grant.expires_at,
            parts: grant.parts(),
        }
    }

    /// The hold or charge with this index, in order of creation.
    pub fn hold_view(&self, number: usize) -> HoldView {
        let hold = &self.holds[number];
        let mut lots: Vec<(usize, Micros)> = Vec::new();
        for lot in &hold.lots {
            match lots.last_mut() {
                Some((grant, drawn)) if *grant == lot.grant => *drawn += lot.drawn,
                _ => lots.push((lot.grant, lot.drawn)),
            }
        }
        let mut returned: Vec<(usize, Micros, bool)> = Vec::new();
        for lot in hold.lots.iter().rev().filter(|lot| lot.returned > 0) {
            let ends_at = self.grants[lot.grant].expires_at.unwrap_or(i64::MAX);
            let expired = hold.closed_at.is_some_and(|closed_at| ends_at < closed_at);
            match returned.last_mut() {
                Some((grant, units, _)) if *grant == lot.grant => *units += lot.returned,
                _ => returned.push((lot.grant, lot.returned, expired)),
            }
        }
        HoldView {
            what: hold.what,
            tenant: self.tenant_of(hold.account).into(),
            name: hold.name.clone(),
            state: hold.state,
            amount: hold.amount(),
            captured: hold.captured(),
            metered: hold.metered,
            refunded: hold.refunded(),
            expires_at: hold.expires_at,
            has_rate: hold.rate.is_some(),
            lots,
            returned,
        }
    }

    /// The amounts that a refund, transfer or collection moved, by grant.
    pub fn moved_lots(
        &self,
        what: Resource,
        tenant: &str,
        name: &MovementId,
    ) -> BTreeMap<usize, Micros> {
        let movement = self.movements.iter().find(|movement| {
            movement.what == what && movement.tenant == tenant && movement.name == *name
        });
        let mut lots = BTreeMap::new();
        for (grant, units) in movement.iter().flat_map(|movement| &movement.lots) {
            *lots.entry(*grant).or_default() += units;
        }
        lots
    }

    /// The budgets by account and name.
    pub fn budget_views(&self) -> Vec<BudgetView> {
        let mut budgets: Vec<BudgetView> =
            (0..self.budgets.len()).map(|number| self.budget_view(number)).collect();
        budgets.sort_by(|one, other| (&one.account, &one.name).cmp(&(&other.account, &other.name)));
        budgets
    }

    fn budget_view(&self, number: usize) -> BudgetView {
        let budget = &self.budgets[number];
        let usage = self.budget_use(budget);
        BudgetView {
            account: self.accounts[budget.account].path.clone(),
            name: budget.name.clone(),
            unit: budget.terms.unit,
            spent: usage.spent,
            held: usage.held,
            alerted: self.alerted(budget),
        }
    }

    /// Checks the invariants of the model itself.
    pub fn audit(&self) {
        for (number, grant) in self.grants.iter().enumerate() {
            let parts = grant.parts();
            assert!(parts.iter().all(|units| *units >= 0), "grant {number}: {parts:?}");
            assert_eq!(parts.iter().sum::<Micros>(), grant.amount, "grant {number} loses units");
            assert_eq!(self.held_of(number), grant.held, "grant {number} is not held by its holds");
        }
    }

    fn held_of(&self, grant: usize) -> Micros {
        let lots = self.holds.iter().flat_map(|hold: &Hold| &hold.lots);
        lots.filter(|lot| lot.grant == grant).map(|lot| lot.held()).sum()
    }
}

/// The free units that will expire, summed by instant and kind.
fn expiring<'a>(grants: impl Iterator<Item = &'a Grant>) -> Vec<(i64, GrantKind, Micros)> {
    let mut sums = BTreeMap::new();
    for grant in grants.filter(|grant| grant.is_active && grant.free > 0) {
        if let Some(expires_at) = grant.expires_at {
            *sums.entry((expires_at, grant.kind)).or_insert(0) += grant.free;
        }
    }
    sums.into_iter().take(20).map(|((at, kind), sum)| (at, kind, sum)).collect()
}
