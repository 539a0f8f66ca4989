//! Why a job waits: the blockers of the ledger and of each cell, merged.

use bursar_api::{Blocker, BlockerType, Time};
use bursar_core::cell::Cell;
use bursar_core::cell::ids::JobId;
use bursar_core::cell::schedule::explain::{self, PlacementState, Why};
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::CellNo;
use bursar_core::machine::Machine;
use bursar_core::name::JobName;

use crate::app::App;
use crate::auth::Principal;
use crate::render::blockers::blocker;
use crate::render::time;
use crate::request::Failure;

/// The explanation of a waiting job.
#[derive(Debug, Default)]
pub(crate) struct WaitingJob {
    /// Its best position in a queue.
    pub(crate) position: Option<u64>,
    /// The earliest start that a cell expects.
    pub(crate) estimated_start_at: Option<Time>,
    /// All blockers.
    pub(crate) blockers: Vec<Blocker>,
    /// If it was preempted last: the taker and the cause.
    pub(crate) preempted: Option<(JobId, PreemptionCause)>,
}

/// The job that nodes are reserved for, if a blocker is a reservation.
pub(crate) fn kept_for(blocker: &explain::PlacementBlocker) -> Option<JobId> {
    match blocker {
        explain::PlacementBlocker::Reservation { job, .. } => *job,
        explain::PlacementBlocker::Credits
        | explain::PlacementBlocker::Budget
        | explain::PlacementBlocker::Frozen { .. }
        | explain::PlacementBlocker::Quota { .. }
        | explain::PlacementBlocker::Group { .. }
        | explain::PlacementBlocker::GpuType { .. }
        | explain::PlacementBlocker::Scope { .. }
        | explain::PlacementBlocker::GpuCount { .. }
        | explain::PlacementBlocker::Memory { .. }
        | explain::PlacementBlocker::Capacity { .. }
        | explain::PlacementBlocker::Gang { .. }
        | explain::PlacementBlocker::Drain { .. }
        | explain::PlacementBlocker::Lost { .. }
        | explain::PlacementBlocker::Priority { .. }
        | explain::PlacementBlocker::Delayed { .. } => None,
    }
}

/// The name of a job, if the caller may see it.
pub(crate) fn visible_name(ledger: &Ledger, principal: &Principal, id: JobId) -> Option<JobName> {
    let job = ledger.job(ledger.job_of_cells(id)?)?;
    let account = &ledger.account(job.order.account).path;
    principal.sees(account).then(|| job.order.id.clone())
}

/// Adds the cells' blockers of a job to those of the ledger.
pub(crate) async fn ask_cells(
    app: &App,
    principal: &Principal,
    cells: &[CellNo],
    job: JobId,
    mut waiting: WaitingJob,
) -> Result<WaitingJob, Failure> {
    let mut heard = false;
    // For credits, budgets and freezes, the ledger's blockers are more recent than a cell's.
    let known: Vec<BlockerType> = waiting.blockers.iter().map(|blocker| blocker.kind).collect();
    let is_new = |blocker: &Blocker| {
        use BlockerType::{Budget, Credits, Frozen};
        !matches!(blocker.kind, Credits | Budget | Frozen) || !known.contains(&blocker.kind)
    };
    for service in cells.iter().filter_map(|number| app.cells.numbered(*number)) {
        let look = move |cell: &Cell| cell.why(job, cell.now());
        let Some(why) = service.gateway.read(look).await?.value else { continue };
        heard = true;
        let Why { state, position, estimate, blockers, preempted } = why;
        if state != PlacementState::Queued {
            waiting.blockers.push(starting(&service.region));
        }
        let kept: Vec<JobId> = blockers.iter().filter_map(kept_for).collect();
        let names = names(app, principal, kept).await?;
        let name = |id: JobId| names.iter().find(|(known, _)| *known == id).map(|(_, n)| n.clone());
        // A cell without other blockers reports that it is the job's turn.
        let turn = explain::PlacementBlocker::Priority { ahead: 0, higher: 0 };
        let new = blockers.iter().filter(|of| known.is_empty() || **of != turn);
        let new = new.map(|of| blocker(&service.region, of, name));
        waiting.blockers.extend(new.filter(is_new));
        waiting.preempted = waiting.preempted.or(preempted);
        waiting.position = [waiting.position, position].into_iter().flatten().min();
        let expected = estimate.map(|estimate| time(estimate.at));
        let earliest = [waiting.estimated_start_at, expected].into_iter().flatten().min();
        waiting.estimated_start_at = earliest;
    }
    if waiting.blockers.iter().any(|blocker| blocks_any_start(blocker.kind)) {
        waiting.estimated_start_at = None;
    }
    if !heard && waiting.blockers.is_empty() {
        let detail = "the job is being sent to its regions";
        waiting.blockers.push(Blocker::new(BlockerType::Priority, detail, "ask again"));
    }
    Ok(waiting)
}

/// Whether a blocker of the ledger keeps a job from starting wherever there is room.
fn blocks_any_start(kind: BlockerType) -> bool {
    use BlockerType::{Budget, Credits, Dependency, Frozen};
    matches!(kind, Credits | Budget | Frozen | Dependency)
}

fn starting(region: &str) -> Blocker {
    let detail =
        format!("a placement was found in {region}; it starts when the ledger has confirmed it");
    Blocker::new(BlockerType::Priority, detail, "nothing to do")
}

async fn names(
    app: &App,
    principal: &Principal,
    jobs: Vec<JobId>,
) -> Result<Vec<(JobId, String)>, Failure> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let principal = principal.clone();
    let asked = jobs.clone();
    let look = move |ledger: &Ledger| {
        let named = asked.iter().filter_map(|id| {
            visible_name(ledger, &principal, *id).map(|name| (*id, name.to_string()))
        });
        named.collect::<Vec<_>>()
    };
    Ok(app.peek_jobs(jobs.into_iter(), look).await?.into_iter().flatten().collect())
}
