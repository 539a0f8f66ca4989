//! Grants.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::credits::grant::{Grant, GrantFilter, IssueGrant};
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::List;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{self, Command};
use bursar_core::ledger::id::GrantNo;
use bursar_core::ledger::refusal::Resource;
use serde_json::Value;

use crate::app::App;
use crate::auth::permissions::Authority;
use crate::auth::tenant_of;
use crate::change::{ChangePlan, Target, find};
use crate::http::convert::{credits, instant, metadata, restriction, text};
use crate::http::extract::{Params, Path, Tree};
use crate::http::list::{PageStep, page_size, walk};
use crate::http::respond::{Answer, account_field, change, json, named, new_id};
use crate::operations::Operation;
use crate::render::{self, AnswerShape, time};
use crate::request::{Caller, Failure};

pub(super) fn plan_issue(app: &App, body: Value) -> Result<ChangePlan, Failure> {
    let issue: IssueGrant = convert(body)?;
    let account = account_field(issue.account, "account")?;
    let (id, creates) = new_id(app, Resource::Grant, issue.id, "grant")?;
    let command = command::IssueGrant {
        id: id.into(),
        account: account.clone(),
        amount: credits(issue.amount, "amount")?,
        kind: render::asked_grant_kind(issue.kind),
        effective_at: issue.effective_at.map(instant),
        expires_at: issue.expires_at.map(instant),
        priority: issue.priority.unwrap_or(command::IssueGrant::DEFAULT_PRIORITY),
        restriction: restriction(issue.restrict)?,
        reference: text(issue.reference, "reference", 1024)?,
        metadata: metadata(issue.metadata)?,
    };
    Ok(ChangePlan {
        operation: Operation::IssueGrant,
        authority: Authority::Role,
        target: Target::Account(account),
        creates: Some(creates),
        counts: None,
        array: None,
        build: Box::new(move |_| Command::IssueGrant(command)),
        shape: AnswerShape::Grant { revoked: false },
    })
}

pub(super) fn plan_revoke(id: String, body: Value) -> Result<ChangePlan, Failure> {
    let Release {} = convert(body)?;
    let grant = named("grant", id)?;
    Ok(ChangePlan {
        operation: Operation::RevokeGrant,
        authority: Authority::Role,
        target: Target::Named(Resource::Grant, grant.clone()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |tenant| Command::RevokeGrant { tenant, grant: grant.into() }),
        shape: AnswerShape::Grant { revoked: true },
    })
}

/// Issues credits to an account.
#[utoipa::path(post, path = "/v1/grants", tag = "credits", operation_id = "issue_grant",
    request_body = IssueGrant, responses(
        (status = 201, description = "The grant was issued", body = Grant),
        (status = 200, description = "The same request had issued it before", body = Grant)))]
pub(in crate::http) async fn issue(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_issue(&app, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Revokes the unspent part of a grant, now and when held parts return.
#[utoipa::path(post, path = "/v1/grants/{id}/revoke", tag = "credits", operation_id = "revoke_grant",
    params(("id" = String, Path, description = "The grant's id")),
    responses((status = 200, description = "The grant as it is now", body = Grant)))]
pub(in crate::http) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_revoke(id, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// A grant and how its amount was used.
#[utoipa::path(get, path = "/v1/grants/{id}", tag = "credits", operation_id = "get_grant",
    params(("id" = String, Path, description = "The grant's id")),
    responses((status = 200, description = "The grant", body = Grant)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let id = named("grant", id)?;
    let account = find(&app, &caller, Resource::Grant, &id).await?;
    caller.principal.require(Operation::GetGrant)?;
    let wanted = id.clone();
    let read = move |ledger: &Ledger| {
        let tenant = ledger.find_account(tenant_of(&account))?;
        let number = ledger.find_grant(tenant, &wanted)?;
        Some(render::grant(ledger, number, &ledger.grant_parts(number)))
    };
    let seen = app.read(read).await?;
    let mut grant = seen.value.ok_or_else(|| Failure::not_found("grant", &id))?;
    grant.as_of = Some(time(seen.at));
    grant.position = Some(seen.position);
    Ok(json(StatusCode::OK, &grant))
}

/// Grants in the key's scope, newest first.
#[utoipa::path(get, path = "/v1/grants", tag = "credits", operation_id = "list_grants",
    params(GrantFilter),
    responses((status = 200, description = "A page of grants", body = List<Grant>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<GrantFilter>,
) -> Answer {
    let size = page_size(filter.limit)?;
    let account = app.listed_account(&caller, filter.account).await?;
    caller.principal.require(Operation::ListGrants)?;
    let principal = caller.principal;
    let page = walk(&app, size, filter.cursor, move |ledger, before, count| {
        let end = u32::try_from(before).unwrap_or(u32::MAX);
        PageStep::over(
            count,
            ledger.grants_before(end).map(|(number, _)| number.0.into()),
            |place| {
                let number = GrantNo(u32::try_from(place).ok()?);
                let path = ledger.account(ledger.grant(number).account).path.as_str();
                let wanted = account.as_deref().is_none_or(|account| account == path);
                (wanted && principal.sees(path))
                    .then(|| render::grant(ledger, number, &ledger.grant_parts(number)))
            },
        )
    });
    Ok(json(StatusCode::OK, &page.await?))
}
