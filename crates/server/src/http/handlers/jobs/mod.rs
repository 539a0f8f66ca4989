//! Jobs.

mod expand;
pub(in crate::http) mod logs;
pub(in crate::http) mod quotes;
mod shares;
mod submission;
pub(in crate::http) mod timeline;
pub(super) mod top;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::jobs::expand::JobQuery;
use bursar_api::jobs::job::{CancelJob, Job, JobFilter, MAX_ARRAY, PreemptJob, SubmitJob, Why};
use bursar_api::json::convert;
use bursar_api::list::List;
use bursar_api::{Blocker, BlockerType, Code};
use bursar_core::cell;
use bursar_core::cell::ids::JobId;
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::{CellNo, JobNo, Name};
use bursar_core::ledger::jobs::JobState;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use serde_json::Value;

use self::expand::Expand;
use super::jobs::submission::submission;
use crate::app::App;
use crate::auth::permissions::Authority;
use crate::auth::{Principal, is_at_or_below, tenant_of};
use crate::change::{ChangePlan, Target, find};
use crate::followers::past_jobs::{self, PastJobFilter};
use crate::http::extract::{Params, Path, Tree};
use crate::http::idempotent_call::{CallState, IdempotentCall, RecordPlace};
use crate::http::list::{PageStep, page_size, read_cursor, walk, write_cursor};
use crate::http::respond::{Answer, change, job_named, json};
use crate::operations::Operation;
use crate::render::waiting::{WaitingJob, ask_cells};
use crate::render::{self, AnswerShape, preemption, time};
use crate::request::{Caller, Failure};

pub(super) fn plan_submit(app: &App, body: Value) -> Result<ChangePlan, Failure> {
    let submission = submission(app, body)?;
    let command = submission.command;
    Ok(ChangePlan {
        operation: Operation::SubmitJob,
        authority: Authority::Role,
        target: Target::Account(command.account.clone()),
        creates: Some(submission.creates),
        counts: None,
        array: command.array,
        build: Box::new(move |_| Command::SubmitJob(Box::new(command))),
        shape: AnswerShape::Job(app.attempt_ids),
    })
}

pub(super) fn plan_cancel(app: &App, id: String, body: Value) -> Result<ChangePlan, Failure> {
    let CancelJob {} = convert(body)?;
    let id = job_named(id)?;
    let job = id.clone();
    Ok(ChangePlan {
        operation: Operation::CancelJob,
        authority: Authority::Role,
        target: Target::Named(Resource::Job, id),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |tenant| Command::CancelJob { tenant, job: job.into() }),
        shape: AnswerShape::Job(app.attempt_ids),
    })
}

/// Submits a job: its hold is placed, and its regions may start it.
///
/// With `array` the answer is the first job and lists the others. A job without a suitable node
/// waits; a job for which no acceptable GPU type has a price is rejected as `unsatisfiable`.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", operation_id = "submit_job",
    request_body = SubmitJob, responses(
        (status = 201, description = "The job was submitted", body = Job),
        (status = 200, description = "The same request had submitted it before", body = Job)))]
pub(in crate::http) async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let jobs = count(&body);
    let plan = plan_submit(&app, body)?;
    if jobs > 1 {
        app.limits.take_operations(&caller.principal, jobs.into())?;
    }
    change(&app, caller, fingerprint, plan).await
}

/// The number of jobs that a body requests, clamped to the limit.
pub(in crate::http) fn count(body: &Value) -> u32 {
    let array = body.get("array").and_then(Value::as_u64).unwrap_or(1);
    u32::try_from(array).unwrap_or(MAX_ARRAY).clamp(1, MAX_ARRAY)
}

/// Cancels a job. A job that has not started ends immediately.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "cancel_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, description = "The job as it is now", body = Job)))]
pub(in crate::http) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_cancel(&app, id, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// A job from the ledger, and what to ask its cells.
struct JobLookup {
    number: JobNo,
    job: Job,
    cells: Vec<CellNo>,
    waiting: bool,
}

async fn look(app: &App, account: &AccountPath, id: &Name) -> Result<JobLookup, Failure> {
    let (tenant, wanted) = (AccountPath::unchecked(tenant_of(account)), id.clone());
    let (ids, now) = (app.attempt_ids, app.clock.now());
    let read = move |ledger: &Ledger| {
        let number = ledger.find_job_or_array(ledger.find_account(&tenant)?, &wanted)?;
        let own = ledger.job(number)?;
        let cells = own.standings.iter().map(|standing| standing.cell).collect();
        let waiting = own.state == JobState::Queued;
        let mut job = render::job::job(&ids, ledger, number)?;
        job.cost_so_far = render::job::cost_so_far(ledger, own, now);
        Some(JobLookup { number, job, cells, waiting })
    };
    let seen = app.read(read).await?;
    let mut looked = seen.value.ok_or_else(|| Failure::not_found("job", id))?;
    looked.job.as_of = time(seen.at);
    looked.job.ledger_position = Some(seen.position);
    looked.job.array = render::job::array(&looked.job);
    render::job::add_messages(app, &mut looked.job).await;
    Ok(looked)
}

/// The job with all reasons why it waits.
async fn complete(app: &App, principal: &Principal, looked: JobLookup) -> Result<Job, Failure> {
    completed(app, principal, looked).await.map(|(job, _)| job)
}

/// The job with all reasons why it waits, and the taker and cause if it was preempted last.
async fn completed(
    app: &App,
    principal: &Principal,
    looked: JobLookup,
) -> Result<(Job, Option<(JobId, PreemptionCause)>), Failure> {
    let JobLookup { number, mut job, cells, waiting } = looked;
    if !waiting {
        return Ok((job, None));
    }
    if job.spec.external == Some(true) {
        let blockers = job.blockers.get_or_insert_default();
        if blockers.is_empty() {
            let detail = "it runs outside Bursar and no usage was reported yet";
            let fix = "report its usage when it runs: POST /v1/usage";
            blockers.push(Blocker::new(BlockerType::Dependency, detail, fix));
        }
        return Ok((job, None));
    }
    let known =
        WaitingJob { blockers: job.blockers.take().unwrap_or_default(), ..WaitingJob::default() };
    let answer = ask_cells(app, principal, &cells, number.in_cell(app.shard), known).await?;
    job.position = answer.position;
    job.estimated_start_at = answer.estimated_start_at;
    job.blockers = Some(answer.blockers);
    Ok((job, answer.preempted))
}

/// A job, with everything that blocks it.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "get_job",
    params(("id" = String, Path, description = "The job's id"), JobQuery),
    responses((status = 200, description = "The job", body = Job)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<JobQuery>,
) -> Answer {
    let expand = Expand::read(query.expand.as_deref())?;
    let id = job_named(id)?;
    let looked = match find(&app, &caller, Resource::Job, &id).await {
        Ok(account) => look(&app, &account, &id).await,
        Err(failure) => Err(failure),
    };
    let looked = match looked {
        Ok(looked) => looked,
        // It may have left the ledger between the two looks.
        Err(failure) if failure.problem.code == Code::NotFound => {
            let forgotten = past_jobs::only_forgotten(&app, &caller, &id).await?;
            caller.principal.require(Operation::GetJob)?;
            let job = expand.add(&app, &caller, forgotten.job).await?;
            return Ok(json(StatusCode::OK, &job));
        }
        Err(failure) => return Err(failure),
    };
    caller.principal.require(Operation::GetJob)?;
    let job = complete(&app, &caller.principal, looked).await?;
    let job = expand.add(&app, &caller, job).await?;
    Ok(json(StatusCode::OK, &job))
}

/// Why a job waits: all its blockers and how to fix each.
#[utoipa::path(get, path = "/v1/jobs/{id}/why", tag = "jobs", operation_id = "explain_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, description = "The blockers", body = Why)))]
pub(in crate::http) async fn why(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let id = job_named(id)?;
    let account = find(&app, &caller, Resource::Job, &id).await?;
    caller.principal.require(Operation::ExplainJob)?;
    let looked = look(&app, &account, &id).await?;
    let competes = if looked.waiting { looked.cells.clone() } else { Vec::new() };
    let (job, preempted) = completed(&app, &caller.principal, looked).await?;
    let preempted = match preempted {
        Some((by, cause)) => {
            let (principal, own) = (caller.principal.clone(), account.clone());
            let show =
                move |ledger: &Ledger| preemption::preemption(ledger, &principal, &own, by, cause);
            Some(app.ledger.peek(show).await?)
        }
        None => None,
    };
    let why = Why {
        shares: shares::shares(&app, &caller.principal, &competes, &account).await?,
        job: job.id,
        state: job.state,
        position: job.position,
        estimated_start_at: job.estimated_start_at,
        blockers: job.blockers.unwrap_or_default(),
        preempted,
    };
    Ok(json(StatusCode::OK, &why))
}

/// Jobs in the key's scope, newest first. Read one job for its blockers.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs", params(JobFilter),
    responses((status = 200, description = "A page of jobs", body = List<Job>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<JobFilter>,
) -> Answer {
    let size = page_size(filter.limit)?;
    let account = app.listed_account(&caller, filter.account).await?;
    caller.principal.require(Operation::ListJobs)?;
    let (principal, state, label) = (caller.principal, filter.state, filter.label);
    let shown = {
        let label = label.clone();
        move |job: &Job| {
            state.is_none_or(|state| state == job.state)
                && label.as_deref().is_none_or(|label| has_label(job, label))
        }
    };
    let past = PastJobFilter {
        principal: principal.clone(),
        account: account.clone(),
        shown: Arc::new(shown),
    };
    let begun = read_cursor(filter.cursor.as_deref())?
        .and_then(|place| place.checked_sub(FIRST_FORGOTTEN_PLACE));
    if let Some(before) = begun {
        let before = JobNo(u64::try_from(before).unwrap_or(u64::MAX));
        let seen = app.read(|_| ()).await?;
        let (as_of, position) = (Some(time(seen.at)), Some(seen.position));
        let (data, has_more, next_cursor) = (Vec::new(), false, None);
        let empty = List { data, has_more, next_cursor, as_of, position };
        return Ok(json(StatusCode::OK, &with_past(&app, empty, &past, before, size).await?));
    }
    let (ids, now) = (app.attempt_ids, app.clock.now());
    let page = walk(&app, size, filter.cursor, move |ledger, before, wanted| {
        let before = u64::try_from(before).unwrap_or(u64::MAX);
        PageStep::over(
            wanted,
            ledger.jobs_before(Some(JobNo(before))).map(|(number, _)| number.0.into()),
            |place| {
                let number = JobNo(u64::try_from(place).ok()?);
                let own = ledger.job(number)?;
                let path = ledger.account(own.order.account).path.as_str();
                let wanted = account.as_deref().is_none_or(|account| is_at_or_below(path, account))
                    && state.is_none_or(|state| state == render::job::state(own.state))
                    && principal.sees(path);
                let mut job = wanted.then(|| render::job::job(&ids, ledger, number)).flatten()?;
                job.cost_so_far = render::job::cost_so_far(ledger, own, now);
                label.as_deref().is_none_or(|label| has_label(&job, label)).then_some(job)
            },
        )
    });
    let mut page = page.await?;
    let over = state.is_none_or(render::job::is_over);
    if !page.has_more && over {
        page = with_past(&app, page, &past, JobNo(u64::MAX), size).await?;
    }
    stamp(&mut page);
    Ok(json(StatusCode::OK, &page))
}

/// Sets the `as_of` of every job of a page.
fn stamp(page: &mut List<Job>) {
    for job in &mut page.data {
        job.as_of = page.as_of.unwrap_or(job.as_of);
        job.ledger_position = page.position;
    }
}

/// Places from here on are those of jobs that the ledger has forgotten. They come after all others.
const FIRST_FORGOTTEN_PLACE: u128 = 1 << 100;

/// Fills a page with jobs that the ledger has forgotten.
async fn with_past(
    app: &App,
    mut page: List<Job>,
    wanted: &PastJobFilter,
    before: JobNo,
    size: usize,
) -> Result<List<Job>, Failure> {
    let room = size - page.data.len();
    let mut found = past_jobs::list_forgotten(app, wanted, before, room + 1).await?;
    page.has_more = found.len() > room;
    found.truncate(room);
    let last = found.last().map_or(before, |(number, _)| *number);
    let cursor = page.has_more.then(|| write_cursor(FIRST_FORGOTTEN_PLACE + u128::from(last.0)));
    page.next_cursor = cursor;
    page.data.extend(found.into_iter().map(|(_, job)| job));
    stamp(&mut page);
    Ok(page)
}

fn has_label(job: &Job, wanted: &str) -> bool {
    let Some(labels) = &job.spec.labels else { return false };
    match wanted.split_once('=') {
        Some((key, value)) => labels.get(key).is_some_and(|found| found == value),
        None => labels.contains_key(wanted),
    }
}

/// Stops a running job and queues it again. It is not placed for the next ten seconds.
#[utoipa::path(post, path = "/v1/jobs/{id}/preempt", tag = "jobs", operation_id = "preempt_job",
    params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, description = "The job as it is now", body = Job)))]
pub(in crate::http) async fn preempt(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let PreemptJob {} = convert(body.clone())?;
    let id = job_named(id)?;
    let account = find(&app, &caller, Resource::Job, &id).await?;
    caller.principal.require(Operation::PreemptJob)?;
    let once = match IdempotentCall::begin(&app, &caller, tenant_of(&account), &body).await? {
        CallState::Answered(answer) => return Ok(answer),
        CallState::Open(once) => once,
    };
    let (answer, place) = match stop(&app, &caller, &once, &account, &id).await {
        Ok(place) => (shown(&app, &caller, &account, &id).await, place),
        Err(failure) => (Err(failure), None),
    };
    once.finish(answer, place).await
}

/// Preempts a job, unless the same call did so before. Returns the place of its record.
async fn stop(
    app: &App,
    caller: &Caller,
    once: &IdempotentCall<'_>,
    account: &AccountPath,
    id: &Name,
) -> Result<Option<RecordPlace>, Failure> {
    if once.done {
        return Ok(None);
    }
    let (tenant, wanted) = (AccountPath::unchecked(tenant_of(account)), id.clone());
    let read = move |ledger: &Ledger| {
        let number = ledger.find_job(ledger.find_account(&tenant)?, &wanted)?;
        let own = ledger.job(number)?;
        let cell = own.live_attempt().and_then(|attempt| attempt.cell);
        Some((number, cell, own.order.terms.preemptible))
    };
    let seen = app.ledger.read(read).await?;
    let (number, cell, preemptible) = seen.value.ok_or_else(|| Failure::not_found("job", id))?;
    let conflict = |detail: &str| Failure::new(Code::Conflict, detail);
    if !preemptible {
        let detail = "the job is not preemptible; drain its node with force, or cancel the job";
        return Err(conflict(detail));
    }
    let cell = cell.and_then(|cell| app.cells.numbered(cell));
    let cell = cell.ok_or_else(|| conflict("the job does not run; there is nothing to preempt"))?;
    let by_platform = caller.principal.is_of_platform();
    let command = cell::Command::PreemptJob { job: number.in_cell(app.shard), by_platform };
    let decided = cell.gateway.post(once.origin(), command).answer().await?;
    let _done = decided.value?;
    app.quiesce_if_manual().await?;
    Ok(Some(RecordPlace::of(cell, decided.position)))
}

async fn shown(app: &App, caller: &Caller, account: &AccountPath, id: &Name) -> Answer {
    let looked = look(app, account, id).await?;
    let job = complete(app, &caller.principal, looked).await?;
    Ok(json(StatusCode::OK, &job))
}
