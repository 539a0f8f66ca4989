//! Checks the invariants continuously: a few accounts, grants and holds at a time. Expensive checks
//! run on the copy that follows the journal, never on the writer.

use std::sync::Arc;
use std::time::Duration;

use bursar_core::cell::Cell;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::{AccountNo, GrantNo, HoldNo};
use bursar_core::ledger::invariant::{self, Violation};
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::name::AccountPath;

use crate::app::App;

/// The number of entities of each kind in one step.
const STEP_ENTITIES: u32 = 64;

/// The pause between two steps.
const STEP_INTERVAL: Duration = Duration::from_millis(250);

/// Where the next step begins.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Places {
    account: u32,
    grant: u32,
    hold: u32,
    /// The next account whose budgets are recounted.
    budgets: u32,
}

/// Violations: the tenant, and the text.
type Broken = Vec<(Option<AccountPath>, String)>;

/// The result of one step.
struct StepOutcome {
    checked: u32,
    next: Places,
    broken: Broken,
}

/// The numbers of a step, and where the next begins.
fn step(first: u32, count: u32) -> (std::ops::Range<u32>, u32) {
    let end = count.min(first.saturating_add(STEP_ENTITIES));
    (first.min(end)..end, if end >= count { 0 } else { end })
}

fn note(ledger: &Ledger, broken: &mut Broken, outcome: Result<(), Violation>) {
    if let Err(violation) = outcome {
        let tenant = violation.tenant.map(|tenant| ledger.account(tenant).path.clone());
        broken.push((tenant, violation.to_string()));
    }
}

fn look(ledger: &Ledger, first: Places) -> StepOutcome {
    let mut broken = Vec::new();
    let (accounts, account) = step(first.account, ledger.account_count());
    let checked = u32::try_from(accounts.len()).unwrap_or(STEP_ENTITIES);
    for number in accounts.map(AccountNo) {
        note(ledger, &mut broken, invariant::check_account(ledger, number));
    }
    let (grants, grant) = step(first.grant, ledger.grant_count());
    for number in grants.map(GrantNo) {
        note(ledger, &mut broken, invariant::check_grant(ledger, number));
    }
    let (holds, hold) = step(first.hold, ledger.hold_places());
    for number in holds.map(HoldNo) {
        note(ledger, &mut broken, invariant::check_hold(ledger, number));
    }
    StepOutcome { checked, next: Places { account, grant, hold, ..first }, broken }
}

/// Recounts the budgets of the next account that has any. Walks all holds, so it is only for a
/// copy.
fn count_budgets(ledger: &Ledger, first: u32) -> (u32, Broken) {
    let mut broken = Vec::new();
    let accounts = (first..ledger.account_count()).map(AccountNo);
    let next = accounts.map(|number| (number, ledger.account(number)));
    let found = next.into_iter().find(|(_, account)| !account.budgets().is_empty());
    let Some((number, _)) = found else { return (0, broken) };
    note(ledger, &mut broken, invariant::check_budgets_of(ledger, number));
    (number.0 + 1, broken)
}

/// The number of ledger steps between two checks of the cells.
const CELL_ROUNDS: u32 = 40;

/// Checks all nodes and jobs of each cell. A violation is logged and nothing is stopped: the ledger
/// confirms every start, and it is checked separately.
async fn look_at_cells(app: &App) {
    for cell in app.cells.iter() {
        // While a cell does not answer there is nothing to check.
        let Ok(checked) = cell.gateway.peek(Cell::check_without_reasons).await else { continue };
        if let Err(detail) = checked {
            app.metrics.violation();
            tracing::error!(%detail, region = %cell.region, "an invariant of a cell is violated");
        }
    }
}

/// Runs until the process ends. A violation raises an alarm and freezes the tenant.
pub async fn run(app: Arc<App>) {
    let mut next = Places::default();
    let mut round = 0;
    loop {
        tokio::time::sleep(STEP_INTERVAL).await;
        round = (round + 1) % CELL_ROUNDS;
        if round == 0 && app.shard == 0 {
            look_at_cells(&app).await;
        }
        let first = next;
        // While the ledger does not answer there is nothing to check.
        let Ok(look) = app.ledger.peek(move |ledger| look(ledger, first)).await else { continue };
        app.metrics.checked(look.checked.into());
        let (budgets, broken) = app.feed.look(|ledger| count_budgets(ledger, first.budgets)).value;
        next = Places { budgets, ..look.next };
        for (tenant, detail) in look.broken.into_iter().chain(broken) {
            app.metrics.violation();
            tracing::error!(%detail, "an invariant is violated: the tenant is frozen");
            if let Some(path) = tenant {
                freeze(&app, path).await;
            }
        }
    }
}

/// Freezes a tenant. If an operator unfreezes it while the violation persists, it is frozen again.
async fn freeze(app: &App, path: AccountPath) {
    let envelope = Envelope { actor: "self-check".into(), ..Envelope::default() };
    let command = Command::FreezeAccount { path, by_platform: true };
    if app.ledger.post(envelope, command).answer().await.is_err() {
        tracing::error!("the tenant could not be frozen; the next round tries again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_core::credits::Credits;
    use bursar_core::ledger::command::{
        AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit,
    };
    use bursar_core::ledger::event::Event;
    use bursar_core::machine::{Machine, execute};
    use bursar_core::time::Timestamp;

    fn with_orgs(count: u32) -> Ledger {
        let mut ledger = Ledger::new();
        for number in 0..count {
            let command = Command::OpenAccount {
                path: format!("org{number}").into(),
                kind: AccountKind::Org,
                settings: AccountSettings::default(),
            };
            let now = Timestamp::from_millis(1);
            execute(&mut ledger, now, &Envelope::default(), &command, &mut Vec::new())
                .expect("a new org");
        }
        ledger
    }

    #[test]
    fn every_account_is_checked_before_the_next_round() {
        let ledger = with_orgs(150);
        let mut looks = Vec::new();
        let mut next = Places::default();
        for _ in 0..4 {
            let found = look(&ledger, next);
            assert!(found.broken.is_empty());
            looks.push((next.account, found.checked));
            next = found.next;
        }
        assert_eq!(looks, [(0, 64), (64, 64), (128, 22), (0, 64)]);
    }

    #[test]
    fn a_budget_with_too_much_usage_is_found_with_its_tenant() {
        let mut ledger = with_orgs(3);
        let terms = BudgetTerms {
            limit: Credits::MAX,
            unit: BudgetUnit::Credits,
            period: BudgetPeriod::Day,
            mode: BudgetMode::Soft,
            thresholds: [100].into_iter().collect(),
            utc_offset_minutes: 0,
        };
        let (period_start, _) = terms.period_of(ledger.now());
        for (account, spent) in [(AccountNo(0), 0), (AccountNo(1), 7)] {
            let budget = "b".into();
            let terms = terms.clone();
            let set = Event::BudgetSet { account, budget, terms, period_start, spent, held: 0 };
            ledger.apply(Timestamp::from_millis(2), &set);
        }
        let (next, broken) = count_budgets(&ledger, 0);
        assert_eq!((next, broken), (1, vec![]));
        let (next, broken) = count_budgets(&ledger, next);
        assert_eq!((next, broken.len()), (2, 1));
        assert_eq!(broken[0].0.as_deref(), Some("org1"));
        assert!(broken[0].1.starts_with("L4"), "{broken:?}");
        assert_eq!(count_budgets(&ledger, next).0, 0);
    }
}
