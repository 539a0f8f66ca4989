//! The balance of an account, now and at other instants.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::balance::{Balance, BalanceQuery, Expiring};
use bursar_api::amount::Sum;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::view;
use bursar_core::ledger::command::Context;
use bursar_core::ledger::id::AccountNo;
use bursar_core::name::{GpuModel, Region, parse_name};
use bursar_core::time::Timestamp;

use super::visible;
use crate::app::App;
use crate::http::convert::{instant, name};
use crate::http::extract::{Params, Path};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::{by_kind, grant_kind, time};
use crate::request::{Caller, Failure};

/// The most entries of the list of expiring credits.
const MAX_EXPIRING: usize = 20;

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
        class: name(class.clone(), "class", parse_name)?,
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
            Some(at) => forecast(ledger, number, &asked, at),
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

/// The credits of one account at a later instant: by kind, spendable in the context, expiring.
#[derive(Default)]
struct Later {
    by_kind: [i128; 4],
    spendable: i128,
    expiring: Vec<view::Expiring>,
}

fn later(ledger: &Ledger, number: AccountNo, context: &Context, at: Timestamp) -> Later {
    let mut later = Later::default();
    let mut open: i128 = 0;
    let mut add =
        |rank: bursar_core::ledger::credits::spend_order::Rank, admitted: bool, amount: i128| {
            later.by_kind[rank.kind as usize] += amount;
            later.spendable += if admitted { amount } else { 0 };
            if let Some(expires_at) = rank.expires_at() {
                later.expiring.push(view::Expiring { expires_at, kind: rank.kind, amount });
            }
        };
    for ((rank, bucket), ()) in ledger.account(number).open.iter() {
        let bucket = ledger.bucket(*bucket);
        if !ledger.expires_by(rank, at) {
            let free = i128::from(bucket.line.free());
            open += free;
            add(*rank, bucket.admits(context), free);
        }
    }
    // Grants that have not started are few; they are searched only if there are some.
    if ledger.balance_at(number, at) > open {
        for (_, grant) in ledger.grants_before(u32::MAX) {
            let Some(terms) = grant.pending.as_ref().filter(|_| grant.account == number) else {
                continue;
            };
            if grant.effective_at <= at && !ledger.expires_by(&terms.rank, at) {
                let admitted = terms.restriction.as_ref().is_none_or(|r| r.admits(context));
                add(terms.rank, admitted, grant.amount.micros().into());
            }
        }
    }
    later
}

/// The balance at a later instant if nothing is spent until then.
fn forecast(ledger: &Ledger, number: AccountNo, context: &Context, at: Timestamp) -> view::Balance {
    let own = later(ledger, number, context, at);
    let above = ledger.path(number).into_iter().skip(1);
    let inherited: i128 = above.map(|account| later(ledger, account, context, at).spendable).sum();
    let mut expiring = own.expiring;
    expiring.sort_by_key(|entry| (entry.expires_at, entry.kind));
    expiring.dedup_by(|next, first| {
        let same = (next.expires_at, next.kind) == (first.expires_at, first.kind);
        first.amount += if same { next.amount } else { 0 };
        same
    });
    expiring.truncate(MAX_EXPIRING);
    let account = ledger.account(number);
    view::Balance {
        available: own.by_kind.iter().sum(),
        held: account.held,
        by_kind: own.by_kind,
        spendable: own.spendable + inherited,
        expiring,
        uncollected: account.uncollected(),
    }
}
