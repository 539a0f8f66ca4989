//! Usage that is measured outside. Each record is independent, and repeating it changes nothing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::Code;
use bursar_api::credits::usage::{MAX_RECORDS, ReportUsage, UsageEnded, UsageRecord, UsageResults};
use bursar_api::json::convert;
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{Command, Usage, UsageEnd, UsageOf};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::jobs::Attempt;
use bursar_core::ledger::refusal::Resource;
use serde_json::Value;

use super::batch::{Requested, derived_key, rehearsed, separate, separate_in_shards};
use crate::app::App;
use crate::auth::Principal;
use crate::auth::permissions::Authority;
use crate::change::{ChangePlan, Target};
use crate::http::convert::credits;
use crate::http::extract::Tree;
use crate::http::respond::{Answer, job_named, named};
use crate::http::shards::HomesOfParts;
use crate::operations::Operation;
use crate::render::AnswerShape;
use crate::render::job::place_of;
use crate::request::{Caller, Failure};

fn usage_end(ended: UsageEnded) -> Option<UsageEnd> {
    match ended {
        UsageEnded::No => None,
        UsageEnded::Yes => Some(UsageEnd::Ended),
        UsageEnded::Succeeded => Some(UsageEnd::Succeeded),
        UsageEnded::Failed => Some(UsageEnd::Failed),
        UsageEnded::Cancelled => Some(UsageEnd::Cancelled),
        UsageEnded::Lost => Some(UsageEnd::Lost),
    }
}

fn plan(app: &App, record: UsageRecord) -> Result<ChangePlan, Failure> {
    let (resource, name, of) = match (record.job, record.hold) {
        (Some(job), None) => {
            let job = job_named(job)?;
            (Resource::Job, job.clone(), UsageOf::Job(job.into()))
        }
        (None, Some(hold)) => {
            let hold = named("hold", hold)?;
            (Resource::Hold, hold.clone(), UsageOf::Hold(hold.into()))
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
    let (seq, ended) = (record.seq, record.ended.and_then(usage_end));
    let shape = match resource {
        Resource::Job => AnswerShape::Job(app.attempt_ids),
        _ => AnswerShape::Hold { closing: ended.is_some() },
    };
    Ok(ChangePlan {
        operation: Operation::ReportUsage,
        authority: Authority::Role,
        target: Target::Named(resource, name),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |tenant| Command::ReportUsage { tenant, of, seq, usage, ended }),
        shape,
    })
}

/// The attempt named in a record: its id and its decoded place, computed before the decision so that
/// the writer decodes no ids.
struct NamedAttempt {
    id: String,
    place: Option<(u16, AttemptId)>,
}

/// The index of a job's attempt with this place.
fn position_of(job: JobId, attempts: &[Attempt], place: (u16, AttemptId)) -> Option<usize> {
    attempts.iter().rposition(|known| place_of(job, known) == place)
}

/// Rejects usage of an attempt that is not of the job, or that has ended while the job continues: the
/// usage would be charged to another attempt. Must be called at the instant of the decision.
fn check_attempt(
    ledger: &Ledger,
    tenant: &str,
    (job, attempt): (&Name, &NamedAttempt),
) -> Result<(), Failure> {
    let number = ledger.find_account(tenant).and_then(|it| ledger.find_job_or_array(it, job));
    // A job that does not exist is answered as without an attempt.
    let Some((number, known)) = number.and_then(|it| Some((it, ledger.job(it)?))) else {
        return Ok(());
    };
    let NamedAttempt { id, place } = attempt;
    let attempts = &known.attempts;
    let Some(position) =
        place.and_then(|place| position_of(ledger.id_in_cells(number), attempts, place))
    else {
        return Err(Failure::not_found("attempt", id));
    };
    if position + 1 < attempts.len() {
        let detail = format!("{id} is over: another attempt of {job} has begun since");
        return Err(Failure::new(Code::Conflict, detail));
    }
    // The last report of a job that has ended may come again.
    if attempts[position].end.is_some() && !known.state.is_ended() {
        let detail = format!("{id} is over: {job} waits for another attempt");
        return Err(Failure::new(Code::Conflict, detail));
    }
    Ok(())
}

/// The change that a record requests.
fn change(app: &App, own: Caller, record: UsageRecord, fingerprint: Option<u128>) -> Requested {
    let named = match (&record.job, &record.attempt) {
        (_, None) => None,
        (None, Some(_)) => {
            return Err(Failure::invalid("attempt", "goes with job: a hold has no attempts"));
        }
        (Some(job), Some(attempt)) => {
            let place = app.attempt_ids.read(attempt);
            Some((Name::from(job.as_str()), NamedAttempt { id: attempt.clone(), place }))
        }
    };
    let change = plan(app, record)?.requested_by(own, 0).in_batch(fingerprint);
    let Some((job, attempt)) = named else { return Ok(change) };
    Ok(change.only_if(move |ledger, tenant| check_attempt(ledger, tenant, (&job, &attempt))))
}

/// Refuses a report that its caller may not send now, and counts its records.
pub(in crate::http) fn admit(
    app: &App,
    principal: &Principal,
    report: &ReportUsage,
) -> Result<(), Failure> {
    principal.require(Operation::ReportUsage)?;
    if !(1..=MAX_RECORDS).contains(&report.records.len()) {
        return Err(Failure::invalid("records", "must have 1 to 1000 records"));
    }
    app.limits.take_records(principal, report.records.len() as u64)
}

/// Says whether every record would be accepted now, each by itself.
pub(super) async fn rehearse(
    app: &App,
    caller: Caller,
    homes: &HomesOfParts,
    body: Value,
) -> Answer {
    let report: ReportUsage = convert(body)?;
    if !homes.are_counted() {
        admit(app, &caller.principal, &report)?;
    }
    if homes.are_several() {
        let shards: Vec<App> = app.every_shard().collect();
        for (place, record) in report.records.into_iter().enumerate() {
            let own = shards.get(usize::from(homes.of(place)?)).unwrap_or(app);
            let change = change(own, caller.clone(), record, None);
            rehearsed(own, &caller, vec![change]).await?;
        }
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let changes =
        report.records.into_iter().map(|record| change(app, caller.clone(), record, None));
    rehearsed(app, &caller, changes.collect()).await
}

/// Reports usage measured by another system, such as Slurm or Kubernetes.
///
/// Totals are cumulative. Each record is answered like a separate request.
#[utoipa::path(post, path = "/v1/usage", tag = "jobs", operation_id = "report_usage",
    request_body = ReportUsage,
    responses((status = 200, description = "The results, in order", body = UsageResults)))]
pub(in crate::http) async fn report(
    State(app): State<Arc<App>>,
    caller: Caller,
    homes: HomesOfParts,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.idempotency_key.as_ref().map(|_| caller.fingerprint(&body));
    let report: ReportUsage = convert(body)?;
    if !homes.are_counted() {
        admit(&app, &caller.principal, &report)?;
    }
    let shards: Vec<App> = app.every_shard().collect();
    let changes = report.records.into_iter().enumerate().map(|(place, record)| {
        let key = caller.idempotency_key.as_ref().map(|key| derived_key(key, place));
        let own = Caller { idempotency_key: key, ..caller.clone() };
        let home = if homes.are_several() { homes.of(place) } else { Ok(app.shard) };
        let home = match home {
            Ok(home) => home,
            Err(failure) => return (0, Err(failure)),
        };
        let app = shards.get(usize::from(home)).unwrap_or(&app);
        (home, change(app, own, record, fingerprint))
    });
    if homes.are_several() {
        return separate_in_shards(&shards, &caller, changes.collect(), fingerprint).await;
    }
    separate(&app, &caller, changes.map(|(_, change)| change).collect(), fingerprint).await
}

#[cfg(test)]
mod tests {
    use bursar_core::credits::Credits;
    use bursar_core::directory::Secret;
    use bursar_core::ledger::id::{CellNo, JobNo};
    use bursar_core::time::Timestamp;

    use super::*;
    use crate::ids::attempt::{AttemptIds, ROUNDS_DONE};

    fn attempt(cell: Option<u16>, number: u32) -> Attempt {
        Attempt {
            cell: cell.map(CellNo),
            number,
            gpu_type: None,
            nodes: [].into_iter().collect(),
            per_gpu_hour: Credits::ZERO,
            hold: None,
            confirmed_at: Timestamp::MIN,
            started_at: None,
            funded_ms: None,
            overdraft: 0,
            short: false,
            credits_ms: None,
            warned: None,
            end: None,
        }
    }

    #[test]
    fn an_attempt_is_found_among_many_without_computing_their_ids() {
        let ids = AttemptIds::new(&Secret([7; 32]), Timestamp::MIN);
        let attempts: Vec<Attempt> = (0..1000).map(|number| attempt(Some(3), number)).collect();
        let job = JobNo(5).in_cell(3);
        let (cell, wanted) = place_of(job, &attempts[1]);
        let id = ids.write(cell, wanted);
        ROUNDS_DONE.set(0);
        let found = ids.read(&id).and_then(|place| position_of(job, &attempts, place));
        assert_eq!(found, Some(1));
        assert!(ROUNDS_DONE.get() <= 6, "{} rounds", ROUNDS_DONE.get());
        for other in [attempt(Some(2), 1), attempt(None, 1), attempt(Some(3), 1000)] {
            assert_eq!(position_of(job, &attempts, place_of(job, &other)), None);
        }
        assert_eq!(position_of(JobNo(6).in_cell(3), &attempts, (cell, wanted)), None);
    }
}
