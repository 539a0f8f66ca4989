//! Usage that others measured: each record stands on its own, and repeating it changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use bursar_api::Code;
use bursar_api::json::convert;
use bursar_api::usage::{MAX_RECORDS, ReportUsage, UsageRecord, UsageResults};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{Command, Usage, UsageOf};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::job::Attempt;
use bursar_core::ledger::refusal::Resource;

use super::batch::{derived_key, separate};
use super::change::{Answer, job_named, named};
use super::convert::credits;
use super::extract::{Caller, Tree};
use crate::app::App;
use crate::attempt_ids::AttemptIds;
use crate::auth::tenant_of;
use crate::operation::{Plan, Target, find_in};
use crate::permissions::Authority;
use crate::problem::Failure;
use crate::render::Shape;
use crate::render_job::attempt_name;

fn plan(app: &App, record: UsageRecord) -> Result<Plan, Failure> {
    let (resource, name, of) = match (record.job, record.hold) {
        (Some(job), None) => {
            let job = job_named(job)?;
            (Resource::Job, job.clone(), UsageOf::Job(job))
        }
        (None, Some(hold)) => {
            let hold = named("hold", hold)?;
            (Resource::Hold, hold.clone(), UsageOf::Hold(hold))
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(Failure::invalid("job", "name exactly one of job and hold"));
        }
    };
    let usage = match (record.gpu_ms_total, record.amount_total) {
        (Some(gpu_ms), None) => Usage::GpuMs(gpu_ms),
        (None, Some(amount)) => Usage::Total(credits(amount, "amount_total")?),
        (None, None) | (Some(_), Some(_)) => {
            let reason = "give exactly one of gpu_ms_total and amount_total";
            return Err(Failure::invalid("gpu_ms_total", reason));
        }
    };
    let (seq, ended) = (record.seq, record.ended.unwrap_or(false));
    let shape = match resource {
        Resource::Job => Shape::Job(app.attempt_ids),
        _ => Shape::Hold { closing: ended },
    };
    Ok(Plan {
        operation: "report_usage",
        authority: Authority::Role,
        target: Target::Named(resource, name),
        creates: None,
        counts: None,
        build: Box::new(move |tenant| Command::ReportUsage { tenant, of, seq, usage, ended }),
        shape,
    })
}

/// What an attempt of a record must be: one that the job has, and its last.
fn check_attempt(
    ids: &AttemptIds,
    ledger: &Ledger,
    caller: &Caller,
    (job, attempt): (&Name, &str),
) -> Option<Failure> {
    // A job that cannot be seen or is forgotten is answered as without an attempt.
    let account = find_in(ledger, caller, Resource::Job, job).ok()?;
    let tenant = ledger.find_account(tenant_of(&account))?;
    let number = ledger.find_job_or_array(tenant, job)?;
    let attempts = &ledger.job(number)?.attempts;
    let is_named = |known: &Attempt| attempt_name(ids, number, known) == attempt;
    match attempts.iter().rposition(is_named) {
        None => Some(Failure::not_found("attempt", attempt)),
        Some(place) if place + 1 == attempts.len() => None,
        Some(_) => {
            let detail = format!("{attempt} is over: another attempt of {job} has begun since");
            Some(Failure::new(Code::Conflict, detail))
        }
    }
}

/// The records that name an attempt which usage cannot be reported for, by their place.
async fn wrong_attempts(
    app: &App,
    caller: &Caller,
    records: &[UsageRecord],
) -> Result<BTreeMap<usize, Failure>, Failure> {
    let mut wrong = BTreeMap::new();
    let mut named = Vec::new();
    for (place, record) in records.iter().enumerate() {
        match (&record.job, &record.attempt) {
            (_, None) => {}
            (None, Some(_)) => {
                let failure = Failure::invalid("attempt", "goes with job: a hold has no attempts");
                wrong.insert(place, failure);
            }
            (Some(job), Some(attempt)) => {
                named.push((place, Name::from(job.as_str()), attempt.clone()));
            }
        }
    }
    if !named.is_empty() {
        let (ids, caller) = (app.attempt_ids, caller.clone());
        let look = move |ledger: &Ledger| {
            let wrong = named.into_iter().filter_map(|(place, job, attempt)| {
                Some((place, check_attempt(&ids, ledger, &caller, (&job, &attempt))?))
            });
            wrong.collect::<Vec<_>>()
        };
        wrong.extend(app.read(look).await?.value);
    }
    Ok(wrong)
}

/// Reports usage that others measured, such as Slurm or Kubernetes.
///
/// Totals are cumulative. Each record is answered like a request of its own.
#[utoipa::path(post, path = "/v1/usage", tag = "jobs", operation_id = "report_usage",
    request_body = ReportUsage,
    responses((status = 200, description = "What each came to, in order", body = UsageResults)))]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let print = caller.idempotency_key.as_ref().map(|_| caller.print(&body));
    let report: ReportUsage = convert(body)?;
    caller.principal.require("report_usage")?;
    if !(1..=MAX_RECORDS).contains(&report.records.len()) {
        return Err(Failure::invalid("records", "must have 1 to 1000 records"));
    }
    let mut wrong = wrong_attempts(&app, &caller, &report.records).await?;
    let orders = report.records.into_iter().enumerate().map(|(place, record)| {
        if let Some(failure) = wrong.remove(&place) {
            return Err(failure);
        }
        let key = caller.idempotency_key.as_ref().map(|key| derived_key(key, place));
        let own = Caller { idempotency_key: key, ..caller.clone() };
        Ok(plan(&app, record)?.ordered_by(own, 0).in_batch(print))
    });
    separate(&app, &caller, orders.collect(), print).await
}
