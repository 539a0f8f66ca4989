//! Charges, refunds and transfers: credits that move in one step.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::amount::Sum;
use bursar_api::credits::charge::{Charge, CreateCharge};
use bursar_api::credits::refund::{CreateRefund, Refund};
use bursar_api::credits::transfer::{CreateTransfer, Transfer};
use bursar_api::json::convert;
use bursar_core::ledger::command::{self, Command, MovementNote, RefundOf};
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::refusal::Resource;
use serde_json::Value;

use super::holds::look;
use crate::app::App;
use crate::auth::permissions::Authority;
use crate::change::{ChangePlan, Target};
use crate::followers::archive::JobRefunds;
use crate::http::convert::{context, credits, instant, text};
use crate::http::extract::{ParsedBody, Path, Tree};
use crate::http::respond::{Answer, account_field, change, job_named, json, named, new_id};
use crate::operations::Operation;
use crate::render::{self, AnswerShape, time};
use crate::request::{Caller, Failure};

/// The most characters of the reason and of the reference of a refund or transfer.
const MAX_NOTE: usize = 1024;

pub(super) fn plan_charge(app: &App, create: CreateCharge) -> Result<ChangePlan, Failure> {
    let account = account_field(create.account, "account")?;
    let (id, creates) = new_id(app, Resource::Charge, create.id, "charge")?;
    let command = command::Charge {
        id: id.into(),
        account: account.clone(),
        amount: credits(create.amount, "amount")?,
        allow_partial: create.allow_partial.unwrap_or(false),
        context: context(create.context)?,
        effective_at: create.effective_at.map(instant),
    };
    Ok(ChangePlan {
        operation: Operation::CreateCharge,
        authority: Authority::Role,
        target: Target::Account(account),
        creates: Some(creates),
        counts: None,
        array: None,
        build: Box::new(move |_| Command::Charge(command)),
        shape: AnswerShape::Charge,
    })
}

pub(super) fn plan_refund(app: &App, body: Value) -> Result<ChangePlan, Failure> {
    let create: CreateRefund = convert(body)?;
    let (resource, name) = match (create.charge, create.hold, create.job) {
        (Some(charge), None, None) => (Resource::Charge, named("charge", charge)?),
        (None, Some(hold), None) => (Resource::Hold, named("hold", hold)?),
        (None, None, Some(job)) => (Resource::Job, job_named(job)?),
        _ => return Err(Failure::invalid("charge", "name exactly one of charge, hold and job")),
    };
    let (id, creates) = new_id(app, Resource::Refund, create.id, "refund")?;
    let amount = create.amount.map(|amount| credits(amount, "amount")).transpose()?;
    let compensate = create.compensate.unwrap_or(false);
    let note = note(create.reason, create.reference)?;
    let shape = AnswerShape::Refund { of: (resource, name.clone()), note: note.clone() };
    let of = match resource {
        Resource::Charge => RefundOf::Charge(name.clone().into()),
        Resource::Job => RefundOf::Job(name.clone().into()),
        _ => RefundOf::Hold(name.clone().into()),
    };
    Ok(ChangePlan {
        operation: Operation::CreateRefund,
        authority: match (compensate, app.job_refunds) {
            (true, _) => Authority::Issue,
            (false, JobRefunds::Platform) => Authority::IssueForJobs,
            (false, JobRefunds::Billing) => Authority::Role,
        },
        target: Target::Named(resource, name),
        creates: Some(creates),
        counts: None,
        array: None,
        build: Box::new(move |tenant| {
            let (id, recalled) = (id.into(), Vec::new());
            Command::Refund(command::Refund { id, tenant, of, amount, compensate, note, recalled })
        }),
        shape,
    })
}

fn note(
    reason: Option<String>,
    reference: Option<String>,
) -> Result<Option<Box<MovementNote>>, Failure> {
    let reason = text(reason, "reason", MAX_NOTE)?;
    let reference = text(reference, "reference", MAX_NOTE)?;
    let has_note = reason.is_some() || reference.is_some();
    Ok(has_note.then(|| Box::new(MovementNote { reason, reference })))
}

pub(super) fn plan_transfer(
    app: &App,
    caller: &Caller,
    body: Value,
) -> Result<ChangePlan, Failure> {
    let create: CreateTransfer = convert(body)?;
    let from = account_field(create.from, "from")?;
    let to = account_field(create.to, "to")?;
    let (id, creates) = new_id(app, Resource::Transfer, create.id, "transfer")?;
    let (id, amount) = (id.into(), credits(create.amount, "amount")?);
    if !caller.principal.sees(&to) {
        return Err(Failure::not_found("account", &to));
    }
    let note = note(create.reason, create.reference)?;
    let shape = AnswerShape::Transfer { from: from.clone(), to: to.clone(), note: note.clone() };
    Ok(ChangePlan {
        operation: Operation::CreateTransfer,
        authority: Authority::Role,
        target: Target::Account(from.clone()),
        creates: Some(creates),
        counts: None,
        array: None,
        build: Box::new(move |_| {
            Command::Transfer(command::Transfer { id, from, to, amount, note })
        }),
        shape,
    })
}

/// Spends credits immediately.
#[utoipa::path(post, path = "/v1/charges", tag = "credits", operation_id = "create_charge",
    request_body = CreateCharge, responses(
        (status = 201, description = "The charge was created", body = Charge),
        (status = 200, description = "The same request had created it before", body = Charge)))]
pub(in crate::http) async fn charge(
    State(app): State<Arc<App>>,
    caller: Caller,
    sent: ParsedBody<CreateCharge>,
) -> Answer {
    let plan = plan_charge(&app, sent.value)?;
    change(&app, caller, sent.fingerprint, plan).await
}

/// Returns spent credits to the grants they came from.
#[utoipa::path(post, path = "/v1/refunds", tag = "credits", operation_id = "create_refund",
    request_body = CreateRefund, responses(
        (status = 201, description = "The refund", body = Refund),
        (status = 200, description = "The same request had returned it before", body = Refund)))]
pub(in crate::http) async fn refund(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_refund(&app, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Moves credits from one account of a tenant to another.
#[utoipa::path(post, path = "/v1/transfers", tag = "credits", operation_id = "create_transfer",
    request_body = CreateTransfer, responses(
        (status = 201, description = "The transfer", body = Transfer),
        (status = 200, description = "The same request had moved it before", body = Transfer)))]
pub(in crate::http) async fn transfer(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_transfer(&app, &caller, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// A charge.
#[utoipa::path(get, path = "/v1/charges/{id}", tag = "credits", operation_id = "get_charge",
    params(("id" = String, Path, description = "The charge's id")),
    responses((status = 200, description = "The charge", body = Charge)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let id = named("charge", id)?;
    let seen = look(&app, &caller, HoldKind::Charge, &id, Operation::GetCharge, |ledger, made| {
        let mut charge = render::charge(ledger, made);
        charge.refunded = Some(Sum::from_micros(made.refunded.into()));
        charge
    });
    let seen = seen.await?;
    let mut charge = seen.value;
    charge.as_of = Some(time(seen.at));
    charge.position = Some(seen.position);
    Ok(json(StatusCode::OK, &charge))
}
