//! The timeline of a job: its events as texts.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::Code;
use bursar_api::amount::Sum;
use bursar_api::jobs::job::EndReason;
use bursar_api::jobs::timeline::{Slice, Timeline, TimelineEntry};
use bursar_api::list::Page;
use bursar_api::words::{counted, gpu_time};
use bursar_core::cell::command::FundsBlocker;
use bursar_core::cell::event::{AttemptNodeEnd, AttemptOutcome, JobOutcome, StopReason};
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::cell::nodes::owner::bare_name;
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::cell::{self, AttemptId as CellAttemptId};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::event::{Event, Pieces, SliceAmount, total};
use bursar_core::ledger::id::{HoldNo, JobNo, Name};
use bursar_core::ledger::jobs::OnExhausted;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::{DAY_MS, Timestamp};
use bursar_journal::record::{cell as cell_record, ledger as ledger_record};

use crate::app::App;
use crate::auth::{Principal, tenant_of};
use crate::change::find;
use crate::followers::past_jobs;
use crate::followers::timeline::{
    MachineEvent, ReadBackError, Span, Step, merge, of_cell, of_ledger,
};
use crate::http::extract::{Params, Path};
use crate::http::list::whole_list;
use crate::http::respond::{Answer, job_named, json};
use crate::ids::attempt::AttemptIds;
use crate::operations::Operation;
use crate::render::{self, preemption, time};
use crate::request::{Caller, Failure};

fn units(length: u64) -> Sum {
    Sum::from_micros(length.into())
}

/// The text of an entry, and what it refers to.
struct EntryText {
    detail: String,
    attempt: Option<String>,
    hold: Option<HoldNo>,
    amount: Option<Sum>,
    slices: Option<Vec<Slice>>,
}

impl EntryText {
    fn new(detail: impl Into<String>) -> EntryText {
        EntryText { detail: detail.into(), attempt: None, hold: None, amount: None, slices: None }
    }

    fn of_hold(hold: HoldNo, detail: impl Into<String>) -> EntryText {
        EntryText { hold: Some(hold), ..EntryText::new(detail) }
    }

    fn amount(mut self, length: u64) -> EntryText {
        self.amount = Some(units(length));
        self
    }

    fn slices(mut self, ledger: &Ledger, pieces: &Pieces) -> EntryText {
        let lots = ledger.lots(pieces.iter().copied());
        let slices = lots.map(|lot| Slice {
            grant: ledger.grant(lot.grant).id.to_string(),
            amount: units(lot.amount),
        });
        self.slices = Some(slices.collect());
        self.amount(total(pieces))
    }
}

/// The text of a ledger event.
fn ledger_words(ids: &AttemptIds, ledger: &Ledger, job: JobNo, event: &Event) -> EntryText {
    match event {
        Event::JobSubmitted { after, .. } if after.is_empty() => EntryText::new("submitted"),
        Event::JobSubmitted { after, .. } => {
            EntryText::new(format!("submitted; waits for {}", counted(after.len(), "other job")))
        }
        Event::HoldPlaced(placed) => {
            EntryText::of_hold(placed.hold, "credits held").slices(ledger, &placed.pieces)
        }
        Event::HoldExtended { hold, pieces, .. } => {
            let what = if pieces.is_empty() { "lease renewed" } else { "more credits held" };
            EntryText::of_hold(*hold, what).slices(ledger, pieces)
        }
        Event::HoldPinned { hold, rate, returned, .. } => {
            let detail = format!("price pinned at {} per GPU-hour", rate.per_gpu_hour);
            EntryText::of_hold(*hold, detail).amount(SliceAmount::total(returned))
        }
        Event::HoldCaptured { hold, gpu_ms, taken, uncollected, .. } => {
            let detail = match uncollected {
                0 => format!("spent for {} of GPU time in all", gpu_time(*gpu_ms)),
                owed => {
                    let (time, owed) = (gpu_time(*gpu_ms), units(*owed));
                    format!("spent for {time} of GPU time in all; {owed} uncollected")
                }
            };
            EntryText::of_hold(*hold, detail).amount(SliceAmount::total(taken))
        }
        Event::HoldCut { hold, cut } => {
            EntryText::of_hold(*hold, "expired while held").amount(SliceAmount::total(cut))
        }
        Event::HoldClosed { hold, returned, .. } => {
            let mut words = EntryText::of_hold(*hold, "the rest returned").amount(*returned);
            // Another hold may have its number by now.
            let own = ledger.hold(*hold).filter(|own| own.job() == Some(job));
            if let Some(own) = own.filter(|own| !own.is_open()) {
                let lots = ledger.returned_lots(own).into_iter();
                let slices = lots.map(|lot| Slice {
                    grant: ledger.grant(lot.grant).id.to_string(),
                    amount: units(lot.amount),
                });
                words.slices = Some(slices.collect());
            }
            words
        }
        Event::ReturnExpired { hold, pieces } => {
            EntryText::of_hold(*hold, "expired on the way back").slices(ledger, pieces)
        }
        Event::ReturnRevoked { hold, pieces } => {
            EntryText::of_hold(*hold, "revoked on the way back").slices(ledger, pieces)
        }
        Event::Refunded { hold, movement, note } => {
            let reason = note.as_ref().and_then(|note| note.reason.as_deref());
            let words =
                reason.map_or("refunded".to_owned(), |reason| format!("refunded: {reason}"));
            EntryText::of_hold(*hold, words).slices(ledger, &movement.pieces)
        }
        Event::GrantIssued(issued) => {
            let detail = format!("{} issued for what expired on the way back", issued.id);
            EntryText::new(detail).amount(issued.amount.length())
        }
        Event::AttemptConfirmed(confirmed) => {
            let nodes: Vec<&str> = confirmed.nodes.iter().map(|on| bare_name(&on.node)).collect();
            let gpu_type = confirmed.gpu_type.as_deref().unwrap_or("no GPU");
            let mut words =
                EntryText::new(format!("may start on {gpu_type}: {}", nodes.join(", ")));
            let cell = confirmed.cell.map_or(u16::MAX, |cell| cell.0);
            let id = AttemptId { job: ledger.id_in_cells(job), number: confirmed.number };
            words.attempt = Some(ids.write(cell, id));
            words
        }
        Event::AttemptStarted { .. } => EntryText::new("runs"),
        Event::AttemptFunded { funded_ms, short, .. } => EntryText::new(match funded_ms {
            Some(funded) if *short => {
                format!("{} s of running are paid for, and no more will be", funded / 1000)
            }
            Some(funded) => format!("{} s of running are paid for", funded / 1000),
            None => "all of its running time is paid for".to_owned(),
        }),
        Event::ExhaustionWarned { ends_at, then, .. } => EntryText::new(match then {
            OnExhausted::Stop => format!("warned: it is stopped at {ends_at} unless more is paid"),
            OnExhausted::Overdraft => format!("warned: it owes from {ends_at} on"),
        }),
        Event::AttemptStopping { .. } => EntryText::new("was asked to stop; billing stopped"),
        Event::AttemptEnded { end, .. } => {
            let reason = end_reason(render::job::end_reason(end.reason));
            let detail = format!("attempt over: {reason}, {} of GPU time", gpu_time(end.gpu_ms));
            EntryText::new(detail).amount(end.charged)
        }
        Event::CancelRequested { .. } => EntryText::new("cancellation was requested"),
        Event::DependenciesMet { met, .. } => {
            EntryText::new(format!("{} that it waited for succeeded", counted(met.len(), "job")))
        }
        Event::JobEnded { state, .. } => EntryText::new(render::job::state(*state).as_str()),
        Event::PolicySet(_)
        | Event::AccountOpened { .. }
        | Event::AccountChanged { .. }
        | Event::AccountFrozen { .. }
        | Event::AccountUnfrozen { .. }
        | Event::GrantActivated { .. }
        | Event::GrantRevoked { .. }
        | Event::BucketExpired { .. }
        | Event::ExpiryReversed { .. }
        | Event::Charged(_)
        | Event::CreditsMoved { .. }
        | Event::DebtRepaid { .. }
        | Event::BudgetSet { .. }
        | Event::BudgetRemoved { .. }
        | Event::BudgetThresholdReached { .. }
        | Event::CreditsDenied { .. }
        | Event::HoldRestored { .. }
        | Event::Answered { .. }
        | Event::Forgotten { .. }
        | Event::RegionOpened { .. }
        | Event::RegionPoliciesSent { .. }
        | Event::SetAside { .. }
        | Event::QuotaSet { .. }
        | Event::QuotaRemoved { .. }
        | Event::BlockedJobsRechecked { .. }
        | Event::CellMessageSent { .. }
        | Event::MessageReceived { .. } => EntryText::new(""),
    }
}

/// Why an attempt ended, in words.
fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Succeeded => "succeeded",
        EndReason::Failed => "failed",
        EndReason::Cancelled => "cancelled",
        EndReason::Preempted => "preempted",
        EndReason::Drained => "its node was drained",
        EndReason::TimedOut => "time limit reached",
        EndReason::OutOfCredits => "out of credits",
        EndReason::Lost => "its node was lost",
    }
}

/// Why an attempt was stopped, in words.
fn stop_words(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancelled",
        StopReason::Preempted { .. } => "preempted",
        StopReason::Operator { .. } => "by an operator",
        StopReason::Drained => "its node is drained",
        StopReason::MaxRuntime => "time limit reached",
        StopReason::OutOfCredits => "out of credits",
    }
}

/// How a job left a region, in words.
fn job_outcome(outcome: JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Succeeded => "succeeded",
        JobOutcome::Failed => "failed",
        JobOutcome::Cancelled => "cancelled",
        JobOutcome::Lost => "its node was lost",
        JobOutcome::OutOfCredits => "out of credits",
        JobOutcome::TimedOut => "time limit reached",
        JobOutcome::Withdrawn => "withdrawn",
        JobOutcome::WaitingQuota => "its account has too many waiting jobs",
        JobOutcome::TooManyDemands => {
            "the jobs of its tenant have asked for too many different sizes, labels and GPU types in \
             this region; use one that a job had before"
        }
    }
}

/// The text of a cell event, and the attempt that it is about.
fn cell_words(event: &cell::Event, own: JobId) -> (String, Option<CellAttemptId>) {
    use cell::Event as CellEvent;
    match event {
        CellEvent::JobQueued(_) => ("waits for a placement".into(), None),
        CellEvent::JobFunded { .. } => ("may be placed again".into(), None),
        CellEvent::JobReleased { .. } => ("its delay is over".into(), None),
        CellEvent::JobHeldByGroup { .. } => ("its group is full".into(), None),
        CellEvent::JobEnded { outcome, .. } => {
            (format!("left the region: {}", job_outcome(*outcome)), None)
        }
        CellEvent::ReservationMade { start_at, .. } => {
            (format!("nodes are reserved for it from {start_at} on"), None)
        }
        CellEvent::ReservationDropped { .. } => ("its reservation was dropped".into(), None),
        CellEvent::PlacementProposed { attempt, placements, .. } => (
            format!("a placement on {} was found", counted(placements.len(), "node")),
            Some(*attempt),
        ),
        CellEvent::PlacementConfirmed { attempt, .. } => {
            ("its nodes may start it".into(), Some(*attempt))
        }
        CellEvent::PlacementRefused { attempt, blocker } => {
            let why = match blocker {
                FundsBlocker::Credits => "too few credits",
                FundsBlocker::Budget => "a budget would be exceeded",
                FundsBlocker::Frozen => "its account is frozen",
            };
            (format!("the ledger does not pay for it now: {why}"), Some(*attempt))
        }
        CellEvent::AttemptStartedOnNode { attempt, .. } => {
            ("a node reports it running".into(), Some(*attempt))
        }
        CellEvent::UsageMetered { usage, .. } => {
            let used = usage.iter().find(|(attempt, _)| attempt.job == own);
            let (attempt, gpu_ms) = used.map_or((None, 0), |(attempt, ms)| (Some(*attempt), *ms));
            (format!("a node reports {} of GPU time", gpu_time(gpu_ms)), attempt)
        }
        CellEvent::AttemptEndedOnNode { attempt, end, exit_code, .. } => {
            let end = match end {
                AttemptNodeEnd::Succeeded => "succeeded",
                AttemptNodeEnd::Failed => "failed",
                AttemptNodeEnd::Stopped => "stopped",
            };
            let code = exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
            (format!("a node reports it {end}{code}"), Some(*attempt))
        }
        CellEvent::FundingSet { attempt, .. } => ("its paid time changed".into(), Some(*attempt)),
        CellEvent::FundsNeeded { attempt } => {
            ("half of its paid time is left".into(), Some(*attempt))
        }
        CellEvent::FundingEnded { attempt } => {
            ("no more time will be paid for".into(), Some(*attempt))
        }
        CellEvent::StopOrdered { attempt, reason, kill_at } => {
            let why = stop_words(*reason);
            (format!("asked to stop ({why}); killed at {kill_at}"), Some(*attempt))
        }
        CellEvent::CancelNoted { attempt } => ("cancelled while it stops".into(), Some(*attempt)),
        CellEvent::KillOrdered { attempt, .. } => ("killed".into(), Some(*attempt)),
        CellEvent::AttemptEnded { attempt, outcome, gpu_ms, .. } => {
            let how = match outcome {
                AttemptOutcome::Succeeded => "succeeded".into(),
                AttemptOutcome::Failed => "failed".into(),
                AttemptOutcome::Lost => "lost".into(),
                AttemptOutcome::Stopped(reason) => format!("stopped ({})", stop_words(*reason)),
            };
            (format!("over on its nodes: {how}, {} of GPU time", gpu_time(*gpu_ms)), Some(*attempt))
        }
        CellEvent::FenceLifted { attempt, .. } => {
            ("its GPUs are free again".into(), Some(*attempt))
        }
        CellEvent::MessageReceived { .. }
        | CellEvent::LedgerMessageSent { .. }
        | CellEvent::Configured(_)
        | CellEvent::PriceSet { .. }
        | CellEvent::ClassSet { .. }
        | CellEvent::AccountSet(_)
        | CellEvent::NodeRegistered { .. }
        | CellEvent::NodeReported { .. }
        | CellEvent::NodeLost { .. }
        | CellEvent::NodeDrained { .. }
        | CellEvent::NodeResumed { .. }
        | CellEvent::NodeRemoved { .. }
        | CellEvent::MaintenancePlanned { .. }
        | CellEvent::MaintenanceBegan { .. }
        | CellEvent::MaintenanceEnded { .. }
        | CellEvent::RequestParked { .. }
        | CellEvent::RequestBlocked { .. }
        | CellEvent::ReservationKept { .. }
        | CellEvent::ReservationsDone { .. }
        | CellEvent::ReviewBegan
        | CellEvent::ReviewPassed { .. }
        | CellEvent::PassEnded
        | CellEvent::RequestDone { .. }
        | CellEvent::AnswerKept { .. }
        | CellEvent::RequestsForgotten { .. }
        | CellEvent::SetAside { .. }
        | CellEvent::Rewound { .. }
        | CellEvent::NodeCleared { .. } => (String::new(), None),
    }
}

/// The taker and the cause, if a cell event stops an attempt for another job.
fn preempted_by(event: &cell::Event) -> Option<(JobId, PreemptionCause)> {
    let reason = match event {
        cell::Event::StopOrdered { reason, .. } => reason,
        cell::Event::AttemptEnded { outcome: AttemptOutcome::Stopped(reason), .. } => reason,
        _ => return None,
    };
    match reason {
        StopReason::Preempted { by, cause, .. } => cause.map(|cause| (*by, cause)),
        _ => None,
    }
}

/// What the entries of a timeline are rendered with.
struct TimelineContext<'a> {
    ids: &'a AttemptIds,
    ledger: &'a Ledger,
    principal: &'a Principal,
    sources: &'a Sources,
    job: JobNo,
    account: &'a str,
}

/// The sources of the streams: the ledger, then the cells in the order of their numbers.
type Sources = Vec<(String, u16)>;

fn entry(
    shown: &TimelineContext<'_>,
    holds: &mut Vec<(HoldNo, HoldId)>,
    (stream, step): (usize, Step<MachineEvent>),
) -> TimelineEntry {
    let TimelineContext { ids, ledger, principal, sources, job, account } = *shown;
    let (source, cell) = sources.get(stream).cloned().unwrap_or_default();
    let preemption = match &step.event {
        MachineEvent::Ledger(_) => None,
        MachineEvent::Cell(event) => preempted_by(event),
    };
    let preemption =
        preemption.map(|(by, cause)| preemption::preemption(ledger, principal, account, by, cause));
    let (kind, words) = match &step.event {
        MachineEvent::Ledger(event) => {
            if let Event::HoldPlaced(placed) = &**event {
                holds.push((placed.hold, placed.id.clone()));
            }
            (ledger_record::event_name(event), ledger_words(ids, ledger, job, event))
        }
        MachineEvent::Cell(event) => {
            let (detail, attempt) = cell_words(event, ledger.id_in_cells(job));
            let attempt = attempt.map(|attempt| ids.write(cell, attempt));
            (cell_record::event_name(event), EntryText { attempt, ..EntryText::new(detail) })
        }
    };
    let hold = words.hold.and_then(|number| {
        let known = holds.iter().rev().find(|(hold, _)| *hold == number);
        known.map(|(_, name)| name.to_string())
    });
    let detail = match &preemption {
        Some(preemption) => format!("{}; {}", words.detail, preemption.detail),
        None => words.detail,
    };
    TimelineEntry {
        at: time(step.at),
        kind: kind.to_owned(),
        source,
        position: step.position,
        detail,
        attempt: words.attempt,
        hold,
        amount: words.amount,
        slices: words.slices,
        preemption,
    }
}

/// The number of a job in the ledger, and the time span of its events.
async fn life(app: &App, account: &str, id: &Name) -> Result<(JobNo, Span), Failure> {
    let (tenant, wanted) = (AccountPath::unchecked(tenant_of(account)), id.clone());
    let read = move |ledger: &Ledger| {
        let number = ledger.find_job_or_array(ledger.find_account(&tenant)?, &wanted)?;
        Some((number, ledger.job(number)?.submitted_at..=Timestamp::MAX))
    };
    let seen = app.read(read).await?.value;
    seen.ok_or_else(|| Failure::not_found("job", id))
}

/// The timeline of a job, oldest first.
#[utoipa::path(get, path = "/v1/jobs/{id}/timeline", tag = "jobs",
    operation_id = "get_job_timeline",
    params(("id" = String, Path, description = "The job's id"), Page),
    responses((status = 200, description = "The entries", body = Timeline)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(page): Params<Page>,
) -> Answer {
    whole_list(page.limit, page.cursor.as_deref())?;
    let id = job_named(id)?;
    let live = match find(&app, &caller, Resource::Job, &id).await {
        Ok(account) => life(&app, &account, &id).await.map(|life| (life, account)),
        Err(failure) => Err(failure),
    };
    let (number, span, own) = match live {
        Ok(((number, span), account)) => (number, span, account.to_string()),
        Err(failure) if failure.problem.code == Code::NotFound => {
            let past = past_jobs::only_forgotten(&app, &caller, &id).await?;
            // A day is enough for the last messages between the machines.
            let span = past.submitted_at..=past.ended_at.plus_millis(DAY_MS);
            (past.number, span, past.job.spec.account)
        }
        Err(failure) => return Err(failure),
    };
    caller.principal.require(Operation::GetJobTimeline)?;
    // The timeline includes everything that is in the journals by now.
    let seen = app.read(|_| ()).await?;
    let mut sources: Sources = vec![("ledger".to_owned(), 0)];
    let mut cells: Vec<_> = app.cells.iter().collect();
    cells.sort_by_key(|cell| cell.number);
    sources.extend(cells.iter().map(|cell| (cell.region.to_string(), cell.number.0)));
    let journals: Vec<_> = cells.iter().map(|cell| Arc::clone(&cell.journal)).collect();
    let ledger = Arc::clone(&app.ledger_journal);
    let (turn, shard) = (app.history.turn().await?, app.shard);
    let collect = move || {
        let _turn = turn;
        let mut streams = vec![of_ledger(&*ledger, number, &span)?];
        for journal in journals {
            streams.push(of_cell(&*journal, number.in_cell(shard), &span)?);
        }
        Ok::<_, ReadBackError>(merge(streams))
    };
    let unreadable = |detail: String| Failure::new(Code::Unavailable, detail);
    let steps = tokio::task::spawn_blocking(collect).await;
    let steps = steps.map_err(|error| unreadable(error.to_string()))?;
    let steps = steps.map_err(|error| unreadable(error.to_string()))?;
    let (ids, principal) = (app.attempt_ids, caller.principal.clone());
    let show = move |ledger: &Ledger| {
        let mut holds = Vec::new();
        let (ids, principal, sources) = (&ids, &principal, &sources);
        let shown = TimelineContext { ids, ledger, principal, sources, job: number, account: &own };
        steps.into_iter().map(|step| entry(&shown, &mut holds, step)).collect()
    };
    let data: Vec<TimelineEntry> = app.ledger.peek(show).await?;
    let (as_of, position) = (Some(time(seen.at)), Some(seen.position));
    let timeline = Timeline { data, has_more: false, next_cursor: None, as_of, position };
    Ok(json(StatusCode::OK, &timeline))
}
