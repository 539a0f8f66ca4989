//! The balance of an account, now and at other instants.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::balance::{Balance, BalanceQuery, Expiring};
use bursar_api::amount::Sum;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::view;
use bursar_core::ledger::command::Context;
use bursar_core::name::{ClassName, GpuModel, Region};
use bursar_core::time::Timestamp;

use super::visible;
use crate::app::App;
use crate::http::convert::{instant, name};
use crate::http::extract::{Params, Path};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::{by_kind, grant_kind, time};
use crate::request::{Caller, Failure};

/// The context of a purpose.
pub(super) fn context(
    gpu_type: &Option<String>,
    region: &Option<String>,
    class: &Option<String>,
) -> Result<Context, Failure> {
    let gpu_type = name(gpu_type.clone(), "gpu_type", GpuModel::parse)?;
    let region = name(region.clone(), "region", Region::parse)?;
    Ok(Context {
        gpu_types: gpu_type.map(|gpu_type| vec![gpu_type]),
        regions: region.map(|region| vec![region]),
        class: name(class.clone(), "class", ClassName::parse)?,
    })
}

/// The balance of an account now, at an earlier instant, or at a later one without more spending.
#[utoipa::path(get, path = "/v1/accounts/{id}/balance", tag = "accounts",
    operation_id = "get_balance",
    params(("id" = String, Path, description = "The account's path"), BalanceQuery),
    responses((status = 200, description = "The balance", body = Balance)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<BalanceQuery>,
) -> Answer {
    let asked = context(&query.gpu_type, &query.region, &query.class)?;
    let asked_again = asked.clone();
    let path = visible(&caller, id)?;
    let at = query.at.map(instant);
    let now = app.clock.now();
    let future = at.filter(|at| *at > now);
    let wanted = path.clone();
    let read = move |ledger: &Ledger| {
        let number = ledger.find_account(&wanted)?;
        Some(match future {
            Some(at) => ledger.balance_forecast(number, &asked, at),
            None => ledger.balance(number, &asked),
        })
    };
    let seen = if query.stale_ok == Some(true) {
        app.read_copy(read).await?
    } else {
        app.read(read).await?
    };
    let balance = seen.value.ok_or_else(|| Failure::not_found("account", &path))?;
    caller.principal.require(Operation::GetBalance)?;
    if let Some(past) = at.filter(|at| *at < seen.at) {
        let was = app.history.balance_at(seen.position, path.clone(), asked_again, past);
        let (balance, position) = was.await?;
        return Ok(json(StatusCode::OK, &shown(&path, balance, past, position)));
    }
    Ok(json(StatusCode::OK, &shown(&path, balance, seen.at, seen.position)))
}

pub(super) fn expiring(entries: Vec<view::Expiring>) -> Vec<Expiring> {
    let shown = |entry: view::Expiring| Expiring {
        expires_at: time(entry.expires_at),
        amount: Sum::from_micros(entry.amount),
        kind: grant_kind(entry.kind),
    };
    entries.into_iter().map(shown).collect()
}

fn shown(account: &str, balance: view::Balance, at: Timestamp, position: u64) -> Balance {
    Balance {
        account: account.to_owned(),
        available: Sum::from_micros(balance.available),
        held: Sum::from_micros(balance.held),
        by_kind: by_kind(balance.by_kind),
        spendable: Sum::from_micros(balance.spendable),
        expiring: expiring(balance.expiring),
        uncollected: Sum::from_micros(balance.uncollected),
        as_of: time(at),
        position,
    }
}
