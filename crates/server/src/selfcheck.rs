//! Checks the laws while running: a few accounts at a time, round and round.

use std::sync::Arc;
use std::time::Duration;

use bursar_core::cell::Cell;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::{Envelope, Ledger, invariant};

use crate::app::App;

/// Accounts of one look.
const STEP: u32 = 64;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// What one look found.
struct Look {
    checked: u32,
    next: u32,
    broken: Vec<(Option<Name>, String)>,
}

fn look(ledger: &Ledger, first: u32) -> Look {
    let count = ledger.account_count();
    let end = count.min(first.saturating_add(STEP));
    let mut broken = Vec::new();
    for number in (first..end).map(AccountNo) {
        if let Err(violation) = invariant::check_account(ledger, number) {
            let tenant = violation.tenant.map(|tenant| ledger.account(tenant).path.clone());
            broken.push((tenant, violation.to_string()));
        }
    }
    let next = if end >= count { 0 } else { end };
    Look { checked: end.saturating_sub(first), next, broken }
}

/// Rounds of the ledger between two looks at the cells.
const CELL_ROUNDS: u32 = 40;

/// Looks at all nodes and jobs of each cell. A broken law is told: what runs goes on, and the
/// ledger, which confirms every start, is checked for itself.
async fn look_at_cells(app: &App) {
    for cell in app.cells.iter() {
        // While a cell cannot answer there is nothing to check.
        let Ok(checked) = cell.gateway.peek(Cell::check_without_reasons).await else { continue };
        if let Err(detail) = checked {
            app.metrics.violation();
            tracing::error!(%detail, region = %cell.region, "a law is broken in a cell");
        }
    }
}

/// Runs until the process ends. A broken law raises the alarm and stops the tenant's spending.
pub async fn run(app: Arc<App>) {
    let mut next = 0;
    let mut round = 0;
    loop {
        tokio::time::sleep(PAUSE).await;
        round = (round + 1) % CELL_ROUNDS;
        if round == 0 {
            look_at_cells(&app).await;
        }
        let first = next;
        // While the ledger cannot answer there is nothing to check.
        let Ok(look) = app.ledger.peek(move |ledger| look(ledger, first)).await else { continue };
        app.metrics.checked(look.checked.into());
        next = look.next;
        for (tenant, detail) in look.broken {
            app.metrics.violation();
            tracing::error!(%detail, "a law is broken: spending of the tenant is stopped");
            if let Some(path) = tenant {
                freeze(&app, path).await;
            }
        }
    }
}

async fn freeze(app: &App, path: Name) {
    let envelope = Envelope { actor: "self-check".into(), fingerprint: 0, key: None };
    if app.ledger.post(envelope, Command::FreezeAccount { path }).answer().await.is_err() {
        tracing::error!("the tenant could not be frozen; the next round tries again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_core::ledger::command::{AccountKind, AccountSettings};
    use bursar_core::machine::execute;
    use bursar_core::time::Timestamp;

    #[test]
    fn every_account_is_looked_at_before_it_begins_again() {
        let mut ledger = Ledger::new();
        for number in 0..150 {
            let command = Command::OpenAccount {
                path: format!("org{number}").into(),
                kind: AccountKind::Org,
                settings: AccountSettings::default(),
            };
            let now = Timestamp::from_millis(1);
            execute(&mut ledger, now, &Envelope::default(), &command, &mut Vec::new())
                .expect("a new org");
        }
        let mut looks = Vec::new();
        let mut next = 0;
        for _ in 0..4 {
            let found = look(&ledger, next);
            assert!(found.broken.is_empty());
            looks.push((next, found.checked));
            next = found.next;
        }
        assert_eq!(looks, [(0, 64), (64, 64), (128, 22), (0, 64)]);
    }
}
