//! The ledger shards of the store.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Code;
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::system::shard::{AddLedgerShard, LedgerShard, LedgerShardState, LedgerShards};
use bursar_core::directory::{Command, Reply, ShardState};
use bursar_core::ledger::Ledger;

use super::directory::{mark, platform_envelope};
use crate::app::App;
use crate::change::PLATFORM;
use crate::http::extract::{Path, Tree};
use crate::http::respond::{Answer, json};
use crate::machines::ledgers::{ledger_name, shard_named};
use crate::operations::Operation;
use crate::request::{Caller, Failure};

/// What has to be done before a shard that was added is used.
const NEXT: &str = "start the server again: it makes the shard's machine and opens it";

async fn shown(app: &App, shard: u16, state: ShardState) -> Result<LedgerShard, Failure> {
    let orgs = match app.ledgers.get(usize::from(shard)) {
        Some(own) => {
            let count = |ledger: &Ledger| ledger.tenants().count();
            u64::try_from(own.gateway.read(count).await?.value).unwrap_or(u64::MAX)
        }
        None => 0,
    };
    Ok(LedgerShard {
        id: ledger_name(shard),
        state: match state {
            ShardState::Open => LedgerShardState::Open,
            ShardState::Draining => LedgerShardState::Draining,
            ShardState::Closed => LedgerShardState::Closed,
        },
        orgs,
        load: orgs,
        next: (state == ShardState::Closed).then(|| NEXT.to_owned()),
    })
}

/// The ledger shards of the store.
#[utoipa::path(get, path = "/v1/shards", tag = "operations", operation_id = "list_shards",
    responses((status = 200, description = "All shards", body = LedgerShards)))]
pub(in crate::http) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    caller.principal.require(Operation::ListShards)?;
    let mut data = Vec::new();
    let directory = app.directory.current();
    for (shard, state) in directory.shards() {
        data.push(shown(&app, shard, state).await?);
    }
    Ok(json(StatusCode::OK, &LedgerShards { data }))
}

/// Adds a ledger shard. It is used from the next start of the server on.
#[utoipa::path(post, path = "/v1/shards", tag = "operations", operation_id = "add_shard",
    request_body = AddLedgerShard,
    responses((status = 201, description = "The shard", body = LedgerShard),
        (status = 200, description = "There was such a shard before", body = LedgerShard)))]
pub(in crate::http) async fn add(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let AddLedgerShard { id } = convert(body.clone())?;
    caller.principal.require(Operation::AddShard)?;
    let known = u16::try_from(app.directory.current().shards().count()).unwrap_or(u16::MAX);
    let must = || Failure::invalid("id", format!("must be {}", ledger_name(known)));
    let shard = match id.as_deref() {
        Some(id) => shard_named(id).ok_or_else(must)?,
        None => known,
    };
    if shard > known {
        return Err(must());
    }
    let envelope = platform_envelope(&app, &caller, &body).await?;
    let command = Command::AddShard { shard, state: ShardState::Closed };
    let accepted = app.submit_to_directory(PLATFORM, envelope, command).await?;
    let Reply::Shard { shard, created } = accepted.reply else {
        unreachable!("a shard is answered with its number")
    };
    let state = state_of(&app, shard)?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(mark(json(status, &shown(&app, shard, state).await?), &accepted))
}

/// Drains a shard: it takes no new orgs and keeps those that it has.
#[utoipa::path(post, path = "/v1/shards/{id}/drain", tag = "operations",
    operation_id = "drain_shard",
    params(("id" = String, Path, description = "The shard")), request_body = Release,
    responses((status = 200, description = "The shard", body = LedgerShard)))]
pub(in crate::http) async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    caller.principal.require(Operation::DrainShard)?;
    set(&app, &caller, (&id, ShardState::Draining), &body).await
}

/// Opens a shard: it takes new orgs.
#[utoipa::path(post, path = "/v1/shards/{id}/open", tag = "operations",
    operation_id = "open_shard",
    params(("id" = String, Path, description = "The shard")), request_body = Release,
    responses((status = 200, description = "The shard", body = LedgerShard)))]
pub(in crate::http) async fn open(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    caller.principal.require(Operation::OpenShard)?;
    set(&app, &caller, (&id, ShardState::Open), &body).await
}

async fn set(
    app: &App,
    caller: &Caller,
    (id, state): (&str, ShardState),
    body: &serde_json::Value,
) -> Answer {
    let shard = shard_named(id).ok_or_else(|| Failure::not_found("shard", id))?;
    if state_of(app, shard)? == ShardState::Closed {
        return Err(Failure::new(Code::Conflict, format!("{id} is not used yet: {NEXT}")));
    }
    let envelope = platform_envelope(app, caller, body).await?;
    let command = Command::SetShard { shard, state };
    let accepted = app.submit_to_directory(PLATFORM, envelope, command).await?;
    let state = state_of(app, shard)?;
    Ok(mark(json(StatusCode::OK, &shown(app, shard, state).await?), &accepted))
}

fn state_of(app: &App, shard: u16) -> Result<ShardState, Failure> {
    let found = app.directory.current().shards().find(|(known, _)| *known == shard);
    found.map(|(_, state)| state).ok_or_else(|| Failure::not_found("shard", &ledger_name(shard)))
}
