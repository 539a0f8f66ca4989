//! What the directory keeps for everybody: prices, classes, regions, and the quotas of accounts.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::amount::Sum;
use bursar_api::catalog::{Class, Region, SetClass};
use bursar_api::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::List;
use bursar_api::price::{Price, PriceQuery, Prices, SetPrice};
use bursar_api::quota::{Quota, QuotaQuery, Quotas, SetQuota};
use bursar_core::directory::{self, Command, Reply};
use bursar_core::ledger::Envelope;
use bursar_core::ledger::id::Name;
use serde_json::Value;

use super::accounts::visible;
use super::change::{Answer, json};
use super::convert::{credits, instant, name, names};
use super::extract::{Caller, Params, Tree};
use crate::app::App;
use crate::auth::tenant_of;
use crate::operation::{PLATFORM, fingerprint, key_hash};
use crate::problem::Failure;
use crate::render::time;

/// Who asks the directory, under a key of this scope.
pub(super) fn envelope(caller: &Caller, scope: &str, body: &Value) -> Envelope {
    Envelope {
        actor: caller.principal.id.clone(),
        fingerprint: fingerprint(caller.method.as_str(), &caller.path, body),
        key: caller.idempotency_key.as_deref().map(|key| key_hash(scope, key)),
    }
}

fn mark(mut response: axum::response::Response, replayed: bool) -> axum::response::Response {
    if replayed {
        let value = axum::http::HeaderValue::from_static("true");
        response.headers_mut().insert("idempotent-replayed", value);
    }
    response
}

/// Adds a version of a price.
#[utoipa::path(put, path = "/v1/prices/{gpu_type}", tag = "prices", operation_id = "set_price",
    params(("gpu_type" = String, Path, description = "The GPU type")), request_body = SetPrice,
    responses((status = 200, description = "The version that was added", body = Price)))]
pub(super) async fn set_price(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(gpu_type): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let set: SetPrice = convert(body.clone())?;
    caller.principal.require("set_price")?;
    let per_gpu_hour = credits(set.per_gpu_hour, "per_gpu_hour")?;
    let region = name(set.region, "region")?;
    let command = Command::SetPrice {
        gpu_type: gpu_type.clone().into(),
        region: region.clone(),
        per_gpu_hour,
        effective_at: set.effective_at.map(instant),
    };
    let accepted = app.directory.submit(envelope(&caller, PLATFORM, &body), command).await?;
    let Reply::Price { version, effective_at } = accepted.reply else {
        unreachable!("a price is answered with its version")
    };
    let price = Price {
        gpu_type,
        region: region.map(|region| region.to_string()),
        per_gpu_hour: Sum::from_micros(per_gpu_hour.micros().into()),
        effective_at: time(effective_at),
        version,
    };
    Ok(mark(json(StatusCode::OK, &price), accepted.replayed))
}

/// The prices that count at an instant.
#[utoipa::path(get, path = "/v1/prices", tag = "prices", operation_id = "list_prices",
    params(PriceQuery),
    responses((status = 200, description = "One price per GPU type and region", body = Prices)))]
pub(super) async fn list_prices(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<PriceQuery>,
) -> Answer {
    caller.principal.require("list_prices")?;
    let at = query.at.map_or_else(|| app.clock.now(), instant);
    let directory = app.directory.current();
    let data = directory.prices_at(at).into_iter().map(|current| Price {
        gpu_type: current.gpu_type.to_string(),
        region: current.region.map(|region| region.to_string()),
        per_gpu_hour: Sum::from_micros(current.price.per_gpu_hour.micros().into()),
        effective_at: time(current.price.effective_at),
        version: current.version,
    });
    let data = data.collect();
    let prices = Prices { data, has_more: false, next_cursor: None, as_of: time(at) };
    Ok(json(StatusCode::OK, &prices))
}

fn class(name: &Name, class: &directory::Class) -> Class {
    Class {
        name: name.to_string(),
        rank: class.rank,
        preempts: class.preempts.iter().map(Name::to_string).collect(),
        grace_seconds: class.grace_seconds,
        default_preemptible: class.default_preemptible,
        price_multiplier: Sum::from_micros(i128::from(class.price_multiplier_milli) * 1000),
    }
}

/// Sets or replaces a priority class.
#[utoipa::path(put, path = "/v1/classes/{name}", tag = "prices", operation_id = "set_class",
    params(("name" = String, Path, description = "The class's name")), request_body = SetClass,
    responses((status = 200, description = "The class as it is now", body = Class)))]
pub(super) async fn set_class(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(class_name): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let set: SetClass = convert(body.clone())?;
    caller.principal.require("set_class")?;
    let multiplier = set.price_multiplier.map_or(1_000_000, |multiplier| multiplier.micros());
    let milli = u32::try_from(multiplier / 1000).ok().filter(|_| multiplier % 1000 == 0);
    let reason = "must be between 0.001 and 1000, with at most three decimals";
    let preempts = match set.preempts {
        list if list.is_empty() => Vec::new(),
        list => names(Some(list), "preempts")?.unwrap_or_default(),
    };
    let stored = directory::Class {
        rank: set.rank,
        preempts,
        grace_seconds: set.grace_seconds,
        default_preemptible: set.default_preemptible,
        price_multiplier_milli: milli
            .ok_or_else(|| Failure::invalid("price_multiplier", reason))?,
    };
    let class_name = Name::from(class_name);
    let command = Command::SetClass { name: class_name.clone(), class: Box::new(stored.clone()) };
    let accepted = app.directory.submit(envelope(&caller, PLATFORM, &body), command).await?;
    Ok(mark(json(StatusCode::OK, &class(&class_name, &stored)), accepted.replayed))
}

/// All priority classes, by name.
#[utoipa::path(get, path = "/v1/classes", tag = "prices", operation_id = "list_classes",
    responses((status = 200, description = "The classes", body = List<Class>)))]
pub(super) async fn list_classes(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    caller.principal.require("list_classes")?;
    let directory = app.directory.current();
    let data: Vec<Class> = directory.classes().map(|(name, stored)| class(name, stored)).collect();
    Ok(json(StatusCode::OK, &whole(data)))
}

/// All regions, by name.
#[utoipa::path(get, path = "/v1/regions", tag = "prices", operation_id = "list_regions",
    responses((status = 200, description = "The regions", body = List<Region>)))]
pub(super) async fn list_regions(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    caller.principal.require("list_regions")?;
    let directory = app.directory.current();
    let data: Vec<Region> =
        directory.regions().map(|region| Region { id: region.to_string() }).collect();
    Ok(json(StatusCode::OK, &whole(data)))
}

fn whole<T>(data: Vec<T>) -> List<T> {
    List { data, has_more: false, next_cursor: None, as_of: None, position: None }
}

/// An account that is there and that the caller may read.
async fn known_account(app: &App, caller: &Caller, id: String) -> Result<Name, Failure> {
    let path = visible(caller, id)?;
    let wanted = path.clone();
    let seen = app.read(move |ledger| ledger.find_account(&wanted).is_some()).await?;
    if seen.value { Ok(path) } else { Err(Failure::not_found("account", &path)) }
}

fn quota(account: &Name, region: Option<&Name>, quota: &directory::Quota) -> Quota {
    Quota {
        account: account.to_string(),
        region: region.map(Name::to_string),
        gpus: quota.gpus.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
        running_jobs: quota.running_jobs,
        waiting_jobs: quota.waiting_jobs,
    }
}

/// Sets or replaces the quota of an account, for one region or for each.
#[utoipa::path(put, path = "/v1/accounts/{id}/quota", tag = "accounts", operation_id = "set_quota",
    params(("id" = String, Path, description = "The account's path")), request_body = SetQuota,
    responses((status = 200, description = "The quota as it is now", body = Quota)))]
pub(super) async fn set_quota(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let set: SetQuota = convert(body.clone())?;
    let account = known_account(&app, &caller, id).await?;
    caller.principal.require("set_quota")?;
    let region = name(set.region, "region")?;
    let gpus = set.gpus.unwrap_or_default();
    let stored = directory::Quota {
        gpus: gpus.into_iter().map(|(name, count)| (Name::from(name), count)).collect(),
        running_jobs: set.running_jobs,
        waiting_jobs: set.waiting_jobs,
    };
    let shown = quota(&account, region.as_ref(), &stored);
    let command = Command::SetQuota { account: account.clone(), region, quota: Box::new(stored) };
    let envelope = envelope(&caller, tenant_of(&account), &body);
    let accepted = app.directory.submit(envelope, command).await?;
    Ok(mark(json(StatusCode::OK, &shown), accepted.replayed))
}

/// The quotas of an account.
#[utoipa::path(get, path = "/v1/accounts/{id}/quota", tag = "accounts", operation_id = "get_quota",
    params(("id" = String, Path, description = "The account's path")),
    responses((status = 200, description = "The quotas, by region", body = Quotas)))]
pub(super) async fn get_quota(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let account = known_account(&app, &caller, id).await?;
    caller.principal.require("get_quota")?;
    let directory = app.directory.current();
    let general = directory.quotas(&account).find(|(region, _)| region.is_none());
    let general = general.map(|(_, quota)| quota.clone()).unwrap_or_default();
    let Quota { gpus, running_jobs, waiting_jobs, .. } = quota(&account, None, &general);
    let data = directory.quotas(&account).map(|(region, own)| quota(&account, region, own));
    let quotas = Quotas {
        account: account.to_string(),
        gpus,
        running_jobs,
        waiting_jobs,
        data: data.collect(),
        has_more: false,
        next_cursor: None,
    };
    Ok(json(StatusCode::OK, &quotas))
}

/// Removes the quota of an account, for one region or the one for each.
#[utoipa::path(delete, path = "/v1/accounts/{id}/quota", tag = "accounts",
    operation_id = "remove_quota",
    params(("id" = String, Path, description = "The account's path"), QuotaQuery),
    responses((status = 204, description = "The quota is gone")))]
pub(super) async fn remove_quota(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<QuotaQuery>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body)?;
    let account = known_account(&app, &caller, id).await?;
    caller.principal.require("remove_quota")?;
    let region = name(query.region.clone(), "region")?;
    let asked = serde_json::json!({ "region": query.region });
    let envelope = envelope(&caller, tenant_of(&account), &asked);
    let accepted = app.directory.submit(envelope, Command::RemoveQuota { account, region }).await?;
    Ok(mark(StatusCode::NO_CONTENT.into_response(), accepted.replayed))
}
