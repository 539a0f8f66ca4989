//! Renders jobs for the API.

use bursar_api::amount::Sum;
use bursar_api::jobs::job::{self, Attempt, EndReason, Job, JobHold, SubmitJob};
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::cell::nodes::owner::bare_name;
use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::JobNo;
use bursar_core::ledger::jobs::{self as core, JobState};
use bursar_core::name::{GpuModel, HoldId};
use bursar_core::time::Timestamp;

use crate::app::App;
use crate::auth::tenant_of;
use crate::ids::attempt::{AttemptIds, stored};
use crate::logs::TenantTag;
use crate::render::time;
use crate::request::blocker;

/// The cell number of attempts that are measured outside.
const ELSEWHERE: u16 = u16::MAX;

fn sum(credits: Credits) -> Sum {
    Sum::from_micros(credits.micros().into())
}

fn units(length: u64) -> Sum {
    Sum::from_micros(length.into())
}

/// A job's state.
pub(crate) fn state(state: JobState) -> job::JobState {
    match state {
        JobState::Queued => job::JobState::Queued,
        JobState::Starting => job::JobState::Starting,
        JobState::Running => job::JobState::Running,
        JobState::Stopping => job::JobState::Stopping,
        JobState::Succeeded => job::JobState::Succeeded,
        JobState::Failed => job::JobState::Failed,
        JobState::Cancelled => job::JobState::Cancelled,
        JobState::Lost => job::JobState::Lost,
        JobState::OutOfCredits => job::JobState::OutOfCredits,
        JobState::TimedOut => job::JobState::TimedOut,
    }
}

/// Whether the state is final.
pub(crate) fn is_over(state: job::JobState) -> bool {
    match state {
        job::JobState::Queued
        | job::JobState::Starting
        | job::JobState::Running
        | job::JobState::Stopping => false,
        job::JobState::Succeeded
        | job::JobState::Failed
        | job::JobState::Cancelled
        | job::JobState::Lost
        | job::JobState::OutOfCredits
        | job::JobState::TimedOut => true,
    }
}

/// Why an attempt ended.
pub(crate) fn end_reason(reason: core::EndReason) -> EndReason {
    match reason {
        core::EndReason::Succeeded => EndReason::Succeeded,
        core::EndReason::Failed => EndReason::Failed,
        core::EndReason::Cancelled => EndReason::Cancelled,
        core::EndReason::Preempted | core::EndReason::Operator => EndReason::Preempted,
        core::EndReason::Drained => EndReason::Drained,
        core::EndReason::TimedOut => EndReason::TimedOut,
        core::EndReason::OutOfCredits => EndReason::OutOfCredits,
        core::EndReason::Lost => EndReason::Lost,
    }
}

/// The cell of an attempt of a job with this id in cells, and the attempt's id there.
pub(crate) fn place_of(job: JobId, attempt: &core::Attempt) -> (u16, AttemptId) {
    let cell = attempt.cell.map_or(ELSEWHERE, |cell| cell.0);
    (cell, AttemptId { job, number: attempt.number })
}

/// The id of an attempt.
pub(crate) fn attempt_name(ids: &AttemptIds, job: JobId, attempt: &core::Attempt) -> String {
    let (cell, id) = place_of(job, attempt);
    ids.write(cell, id)
}

fn find_hold<'a>(ledger: &'a Ledger, job: &core::Job, name: &HoldId) -> Option<&'a Hold> {
    let tenant = ledger.account(job.order.account).tenant;
    ledger.find_hold(tenant, HoldKind::Hold, name).and_then(|number| ledger.hold(number))
}

/// The credits that a job's open hold still has.
pub(crate) fn held(ledger: &Ledger, job: &core::Job) -> Sum {
    let hold = job.hold.and_then(|number| ledger.hold(number));
    units(hold.map_or(0, Hold::room))
}

fn attempt(
    ids: &AttemptIds,
    ledger: &Ledger,
    number: JobNo,
    job: &core::Job,
    own: &core::Attempt,
) -> Attempt {
    let region = own.cell.and_then(|cell| ledger.cell(cell)).map(|book| book.region.to_string());
    let usage = ledger.attempt_usage(job, own);
    Attempt {
        id: attempt_name(ids, ledger.id_in_cells(number), own),
        region: region.unwrap_or_default(),
        nodes: own.nodes.iter().map(|on| bare_name(&on.node).to_owned()).collect(),
        gpu_type: own.gpu_type.as_ref().map(GpuModel::to_string).unwrap_or_default(),
        per_gpu_hour: sum(own.per_gpu_hour),
        started_at: own.started_at.map(time),
        ended_at: own.end.map(|end| time(end.at)),
        end_reason: own.end.map(|end| end_reason(end.reason)),
        exit_code: own.end.and_then(|end| end.exit_code),
        message: None,
        gpu_ms: usage.gpu_ms,
        charged: units(usage.charged),
        hold: own.hold.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// The submitted specification, as it was stored.
fn spec(job: &core::Job) -> SubmitJob {
    // Written by this server; an older form can only lack fields.
    serde_json::from_str(job.order.submitted.text()).unwrap_or_else(|error| {
        tracing::error!(job = %job.order.id, %error, "the stored specification cannot be read");
        SubmitJob::default()
    })
}

/// The jobs of the array that a job belongs to, if it does.
pub(crate) fn array(job: &Job) -> Option<Vec<String>> {
    let size = job.spec.array?;
    let (array, _) = job.id.rsplit_once('.')?;
    Some((0..size).map(|index| format!("{array}.{index}")).collect())
}

/// Renders a job of the ledger. The caller adds `as_of` and the position.
pub(crate) fn job(ids: &AttemptIds, ledger: &Ledger, number: JobNo) -> Option<Job> {
    let own = ledger.job(number)?;
    let hold = own.hold_name.as_ref().and_then(|name| find_hold(ledger, own, name));
    Some(render(ids, ledger, number, own, hold))
}

/// Renders a job with its newest hold, from the ledger or from history.
pub(crate) fn render(
    ids: &AttemptIds,
    ledger: &Ledger,
    number: JobNo,
    own: &core::Job,
    hold: Option<&Hold>,
) -> Job {
    let attempts: Vec<Attempt> =
        own.attempts.iter().map(|one| attempt(ids, ledger, number, own, one)).collect();
    let money = ledger.job_money(own, hold);
    let blockers: Vec<_> = ledger.job_blockers(own).into_iter().map(blocker).collect();
    Job {
        id: own.order.id.to_string(),
        account: ledger.account(own.order.account).path.to_string(),
        state: state(own.state),
        spec: spec(own),
        region: attempts.last().map(|last| last.region.clone()).filter(|region| !region.is_empty()),
        hold: hold.map(|hold| JobHold {
            id: hold.id.to_string(),
            amount: units(hold.amount),
            captured: units(hold.captured),
        }),
        attempts,
        charged: units(money.charged),
        cost_so_far: None,
        returned: units(money.returned),
        uncollected: units(money.uncollected),
        position: None,
        estimated_start_at: None,
        blockers: (!blockers.is_empty()).then_some(blockers),
        array: None,
        created_at: time(own.submitted_at),
        ended_at: own.ended_at.map(time),
        as_of: time(own.submitted_at),
        ledger_position: None,
        expanded: None,
    }
}

/// What a running job has cost until now: what was charged, and the time since the last report at its
/// price.
pub(crate) fn cost_so_far(ledger: &Ledger, own: &core::Job, now: Timestamp) -> Option<Sum> {
    ledger.job_cost_at(own, now).map(units)
}

/// A job as it was when it was submitted: the first answer, and every repeat of it.
pub(crate) fn submitted(ids: &AttemptIds, ledger: &Ledger, number: JobNo) -> Option<Job> {
    let own = ledger.job(number)?;
    let need = own.order.need();
    let hold = (!need.is_zero()).then(|| JobHold {
        id: own.order.hold.to_string(),
        amount: sum(need),
        captured: sum(Credits::ZERO),
    });
    Some(Job {
        state: job::JobState::Queued,
        region: None,
        hold,
        attempts: Vec::new(),
        charged: sum(Credits::ZERO),
        returned: sum(Credits::ZERO),
        uncollected: sum(Credits::ZERO),
        blockers: None,
        ended_at: None,
        ..job(ids, ledger, number)?
    })
}

/// Adds what agents had to say about the ends of attempts.
pub(crate) async fn add_messages(app: &App, job: &mut Job) {
    let tenant = TenantTag::of(tenant_of(&job.account));
    let mut ended = Vec::new();
    for attempt in job.attempts.iter_mut().filter(|attempt| attempt.ended_at.is_some()) {
        if let Some((cell, id)) = app.attempt_ids.read(&attempt.id) {
            ended.push((stored(cell, id), &mut attempt.message));
        }
    }
    let names = ended.iter().map(|(name, _)| name.clone()).collect();
    let messages = app.logs.messages(names, tenant).await;
    for ((_, shown), message) in ended.into_iter().zip(messages) {
        *shown = message;
    }
}
