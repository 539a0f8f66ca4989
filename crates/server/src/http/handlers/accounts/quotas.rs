//! Quotas: limits on the GPUs and jobs of an account's subtree.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::quota::{Quota, QuotaFilter, QuotaQuery, Quotas, SetQuota};
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_core::ledger::accounts::quota;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::name::{Region, is_valid_name};
use serde_json::{Value, json as value};

use super::visible;
use crate::app::App;
use crate::auth::is_org;
use crate::auth::permissions::Authority;
use crate::change::{ChangePlan, Target};
use crate::http::convert::name;
use crate::http::extract::{Params, Path, Tree};
use crate::http::respond::{Answer, account_path, change, json};
use crate::operations::Operation;
use crate::render::AnswerShape;
use crate::request::{Caller, Failure};

/// Renders a quota for the API.
pub(crate) fn shown(account: &str, region: Option<&Region>, quota: &quota::Quota) -> Quota {
    Quota {
        account: account.to_owned(),
        region: region.map(Region::to_string),
        gpus: quota.gpus.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
        running_jobs: quota.running_jobs,
        waiting_jobs: quota.waiting_jobs,
    }
}

/// The quota of an org limits its whole tenant, so the platform sets it.
fn quota_authority(path: &str) -> Authority {
    if is_org(path) { Authority::Platform } else { Authority::Role }
}

pub(in crate::http) fn plan_set(id: String, body: Value) -> Result<ChangePlan, Failure> {
    let set: SetQuota = convert(body)?;
    let path = account_path(id)?;
    let region = name(set.region, "region", Region::parse)?;
    let gpus = set.gpus.unwrap_or_default();
    if !gpus.keys().all(|kind| kind == "*" || is_valid_name(kind)) {
        return Err(Failure::invalid("gpus", "must name GPU types, or `*` for all together"));
    }
    let quota = quota::Quota {
        gpus: gpus.into_iter().map(|(name, count)| (Name::from(name), count)).collect(),
        running_jobs: set.running_jobs,
        waiting_jobs: set.waiting_jobs,
    };
    let shape = AnswerShape::Quota(Box::new(shown(&path, region.as_ref(), &quota)));
    Ok(ChangePlan {
        operation: Operation::SetQuota,
        authority: quota_authority(&path),
        target: Target::Account(path.clone()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |_| Command::SetQuota { path, region, quota }),
        shape,
    })
}

pub(in crate::http) fn plan_remove(
    id: String,
    region: Option<String>,
    body: Value,
) -> Result<ChangePlan, Failure> {
    let Release {} = convert(body)?;
    let path = account_path(id)?;
    let region = name(region, "region", Region::parse)?;
    Ok(ChangePlan {
        operation: Operation::RemoveQuota,
        authority: quota_authority(&path),
        target: Target::Account(path.clone()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |_| Command::RemoveQuota { path, region }),
        shape: AnswerShape::Nothing,
    })
}

/// Sets or replaces the quota of an account for one region, or for every region.
#[utoipa::path(put, path = "/v1/accounts/{id}/quota", tag = "accounts", operation_id = "set_quota",
    params(("id" = String, Path, description = "The account's path")), request_body = SetQuota,
    responses((status = 200, description = "The quota as it is now", body = Quota)))]
pub(in crate::http) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_set(id, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// The quotas of an account.
#[utoipa::path(get, path = "/v1/accounts/{id}/quota", tag = "accounts", operation_id = "get_quota",
    params(("id" = String, Path, description = "The account's path"), QuotaFilter),
    responses((status = 200, description = "The quotas, by region", body = Quotas)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(filter): Params<QuotaFilter>,
) -> Answer {
    let account = visible(&caller, id)?;
    let path = account.clone();
    let read = move |ledger: &bursar_core::ledger::Ledger| {
        ledger.find_account(&path).map(|number| ledger.quotas(number).to_vec())
    };
    let seen = app.read(read).await?;
    let own = seen.value.ok_or_else(|| Failure::not_found("account", &account))?;
    caller.principal.require(Operation::GetQuota)?;
    let wanted = filter.region.as_deref();
    let is_wanted = |region: &Option<Region>| wanted.is_none() || region.as_deref() == wanted;
    let general = own.iter().find(|(region, _)| region.as_deref() == wanted);
    let general = general.map(|(_, quota)| quota.clone()).unwrap_or_default();
    let Quota { gpus, running_jobs, waiting_jobs, .. } = shown(&account, None, &general);
    let data = own
        .iter()
        .filter(|(region, _)| is_wanted(region))
        .map(|(region, quota)| shown(&account, region.as_ref(), quota));
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

/// Removes the quota of an account for one region, or for every region.
#[utoipa::path(delete, path = "/v1/accounts/{id}/quota", tag = "accounts",
    operation_id = "remove_quota",
    params(("id" = String, Path, description = "The account's path"), QuotaQuery),
    responses((status = 204, description = "The quota was removed")))]
pub(in crate::http) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<QuotaQuery>,
    Tree(body): Tree,
) -> Answer {
    let asked = value!({ "region": query.region });
    let fingerprint = caller.fingerprint(&asked);
    let plan = plan_remove(id, query.region, body)?;
    change(&app, caller, fingerprint, plan).await
}
