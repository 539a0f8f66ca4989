//! Regions: their capacity, queue and maintenance.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::Code;
use bursar_api::amount::Sum;
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::{List, Page};
use bursar_api::nodes::region::{
    Maintenance, PlanMaintenance, Queue, QueueEntry, QueueQuery, Region, RegionGpus, ShareEntry,
    ShareError,
};
use bursar_core::cell::command::NodeOffer;
use bursar_core::cell::ids::{JobId, MaintenanceId};
use bursar_core::cell::nodes::view::NodeView;
use bursar_core::cell::schedule::explain::{FairShare, Why};
use bursar_core::cell::{Cell, Command};
use bursar_core::ledger::id::{CellNo, Name};
use bursar_core::ledger::{self, Ledger};
use bursar_core::name::{AccountPath, ClassName, JobName, is_valid_name};

use super::names::{Resolve, visible};
use crate::app::App;
use crate::auth::Principal;
use crate::http::convert::instant;
use crate::http::extract::{Params, Path, Tree};
use crate::http::idempotent_call::{CallState, IdempotentCall, reach};
use crate::http::list::{page_size, read_after, whole_list, write_after};
use crate::http::respond::{Answer, json};
use crate::machines::cells::CellService;
use crate::operations::Operation;
use crate::render::blockers::{blocker, gpus};
use crate::render::time;
use crate::request::{Caller, Failure, blocker as ledger_blocker};

/// A region has one maintenance plan at a time.
const THE_PLAN: MaintenanceId = MaintenanceId(1);
/// The most waiting jobs that one read of a cell visits.
const MAX_WAITING: usize = 10_000;

/// The capacity of a region: the nodes that the caller may see.
fn region(id: &str, cell: &Cell, principal: &Principal) -> Region {
    let mut by_type: BTreeMap<&str, (u32, u32, u32)> = BTreeMap::new();
    let (mut nodes, mut ready) = (0, 0);
    let seen = |view: &NodeView<'_>| principal.sees_node(view.offer.scope.as_deref());
    for view in cell.nodes().filter(seen) {
        nodes += 1;
        ready += u32::from(view.is_open());
        let entry = by_type.entry(view.offer.model.as_str()).or_default();
        for free in view.free.iter().map(|free| u32::from(*free)) {
            entry.0 += 1;
            entry.1 += 1000 - free.min(1000);
            entry.2 += if view.is_open() { free } else { 0 };
        }
    }
    let by_type = by_type.into_iter().filter(|(_, (total, _, _))| *total > 0);
    let (running, waiting) = match principal.scope.as_deref() {
        Some(scope) => cell.job_counts_below(scope),
        None => cell.job_counts(),
    };
    Region {
        id: id.to_owned(),
        nodes,
        nodes_ready: ready,
        gpus: by_type
            .map(|(kind, (total, used, free))| RegionGpus {
                kind: kind.to_owned(),
                total,
                used: gpus(used),
                free: gpus(free),
            })
            .collect(),
        running_jobs: running.into(),
        waiting_jobs: waiting.into(),
        share_error: (waiting > 0).then(|| share_error(cell, principal)).flatten(),
    }
}

/// Of the accounts with waiting jobs that the caller may see, the one furthest from its entitlement.
fn share_error(cell: &Cell, principal: &Principal) -> Option<ShareError> {
    use bursar_core::machine::Machine;
    let shares = cell.fair_shares(cell.now()).into_iter();
    let waiting = shares.filter(|share| {
        share.waiting_jobs > 0 && !share.account.is_empty() && principal.sees(&share.account)
    });
    let difference =
        |share: &FairShare| i128::from(share.received_ppm) - i128::from(share.entitled_ppm);
    let furthest = waiting.max_by_key(|share| difference(share).unsigned_abs())?;
    let difference = Sum::from_micros(difference(&furthest));
    Some(ShareError { account: furthest.account.to_string(), difference })
}

/// All regions with their capacity, by name.
#[utoipa::path(get, path = "/v1/regions", tag = "nodes", operation_id = "list_regions",
    params(Page),
    responses((status = 200, description = "The regions", body = List<Region>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(page): Params<Page>,
) -> Answer {
    caller.principal.require(Operation::ListRegions)?;
    whole_list(page.limit, page.cursor.as_deref())?;
    let mut data = Vec::new();
    for cell in app.cells.iter() {
        let (id, principal) = (cell.region.clone(), caller.principal.clone());
        let read = move |cell: &Cell| region(&id, cell, &principal);
        data.push(cell.look_now(read).await?.value);
    }
    let list = List { data, has_more: false, next_cursor: None, as_of: None, position: None };
    Ok(json(StatusCode::OK, &list))
}

/// The cell of a region from the URL.
pub(super) fn cell_of<'a>(app: &'a App, region: &str) -> Result<&'a CellService, Failure> {
    app.cells.of_region(region).ok_or_else(|| Failure::not_found("region", region))
}

/// The state of a region's queue.
struct QueueState {
    /// Waiting jobs with their positions and reasons.
    waiting: Vec<(u64, JobId, Why)>,
    more: bool,
    /// The position of the last waiting job, shown or not.
    places: u64,
    /// The fair shares of accounts.
    shares: Vec<FairShare>,
}

/// The waiting jobs after the position `after`.
fn look(cell: &Cell, principal: &Principal, size: usize, after: u64) -> QueueState {
    use bursar_core::machine::Machine;
    let now = cell.now();
    let all = cell.queue(MAX_WAITING);
    let own = (1..)
        .zip(all)
        .filter(|(_, job)| cell.job_spec(*job).is_some_and(|spec| principal.sees(&spec.account)));
    let mut own: Vec<(u64, JobId)> = own.collect();
    let places = own.last().map_or(0, |(place, _)| *place);
    own.retain(|(place, _)| *place > after);
    let more = own.len() > size;
    own.truncate(size);
    let waiting = own.into_iter();
    let waiting = waiting.filter_map(|(place, job)| Some((place, job, cell.why(job, now)?)));
    let shares = cell.fair_shares(now).into_iter();
    let shares = shares.filter(|share| !share.account.is_empty() && principal.sees(&share.account));
    QueueState { waiting: waiting.collect(), more, places, shares: shares.collect() }
}

fn share(share: FairShare) -> ShareEntry {
    let millionths = |ppm: u64| Sum::from_micros(ppm.into());
    ShareEntry {
        account: share.account.to_string(),
        // Cells use whole weights.
        weight: Sum::from_thousandths(share.weight),
        usage: Sum::from_micros(i128::try_from(share.usage_micros).unwrap_or(i128::MAX)),
        entitled: millionths(share.entitled_ppm),
        received: millionths(share.received_ppm),
        per_hour: millionths(share.rate),
        gpus: gpus(share.gpus),
        running_jobs: share.running_jobs,
        waiting_jobs: share.waiting_jobs,
    }
}

/// The part of a queue entry that a ledger has: name, account, class, submission.
type KnownJobs = BTreeMap<JobId, (JobName, AccountPath, ClassName, bursar_core::time::Timestamp)>;

/// Reads the parts of queue entries that a ledger has.
fn known_jobs(ledger: &Ledger, jobs: &[JobId]) -> KnownJobs {
    let known = jobs.iter().filter_map(|id| {
        let job = ledger.job(ledger.job_of_cells(*id)?)?;
        let account = ledger.account(job.order.account).path.clone();
        let (name, class) = (job.order.id.clone(), job.order.terms.class.clone());
        Some((*id, (name, account, class, job.submitted_at)))
    });
    known.collect()
}

/// Reads the parts of queue entries from the ledgers of all shards.
pub(super) async fn all_known_jobs(app: &App, jobs: Vec<JobId>) -> Result<KnownJobs, Failure> {
    let asked = jobs.clone();
    let look = move |ledger: &Ledger| known_jobs(ledger, &asked);
    Ok(app.read_jobs(jobs.into_iter(), look).await?.into_iter().flatten().collect())
}

/// A part of the jobs that are not sent to a region yet.
#[derive(Default)]
struct HeldBack {
    /// How many were skipped.
    skipped: usize,
    entries: Vec<QueueEntry>,
    has_more: bool,
}

/// Jobs that are not sent to a region yet, because a ledger has blockers for them. They come after all jobs of the cell,
/// those of one ledger after those of another. Of them `passed` were shown before.
async fn all_held_back(
    app: &App,
    principal: &Principal,
    cell: CellNo,
    room: usize,
    (places, passed): (u64, u64),
) -> Result<HeldBack, Failure> {
    let ledgers: Vec<App> = match principal.tenant() {
        Some(_) => vec![app.clone()],
        None => app.every_shard().collect(),
    };
    // Saturates: nothing comes after the largest position.
    let behind = places.saturating_add(passed);
    let mut skip = usize::try_from(passed).unwrap_or(usize::MAX);
    let mut all = HeldBack::default();
    for app in ledgers {
        let (principal, room) = (principal.clone(), room - all.entries.len());
        let first = behind.saturating_add(all.entries.len() as u64);
        let look = move |ledger: &Ledger| held_back(ledger, &principal, cell, (skip, room), first);
        let found = app.ledger.read(look).await?.value;
        skip -= found.skipped;
        all.entries.extend(found.entries);
        if found.has_more {
            all.has_more = true;
            break;
        }
    }
    Ok(all)
}

/// The held-back jobs of one ledger, numbered from the position after `behind` on.
fn held_back(
    ledger: &Ledger,
    principal: &Principal,
    cell: CellNo,
    (skip, room): (usize, usize),
    behind: u64,
) -> HeldBack {
    let tenant = match principal.tenant() {
        Some(name) => match ledger.find_account(name) {
            Some(tenant) => Some(tenant),
            None => return HeldBack::default(),
        },
        None => None,
    };
    let jobs = ledger.held_back_from(cell, tenant, MAX_WAITING).into_iter();
    let jobs = jobs.filter_map(|number| ledger.job(number));
    let path = |job: &ledger::jobs::Job| ledger.account(job.order.account).path.clone();
    let mut own = jobs.filter(|job| principal.sees(&path(job)));
    let skipped = own.by_ref().take(skip).count();
    let entries = own.by_ref().take(room).zip(1u64..).map(|(job, place)| QueueEntry {
        position: behind.saturating_add(place),
        job: job.order.id.to_string(),
        account: path(job).to_string(),
        class: job.order.terms.class.to_string(),
        created_at: time(job.submitted_at),
        estimated_start_at: None,
        blockers: ledger.job_blockers(job).into_iter().map(ledger_blocker).collect(),
    });
    let entries = entries.collect();
    HeldBack { skipped, entries, has_more: own.next().is_some() }
}

/// The position after which a page of a queue begins.
fn queue_cursor(cursor: Option<&str>) -> Result<u64, Failure> {
    match read_after(cursor)? {
        "" => Ok(0),
        place => place
            .parse()
            .map_err(|_| Failure::invalid("cursor", "pass the next_cursor of the page before")),
    }
}

/// The queue of a region: waiting jobs in order, what blocks them, and the fair share of each account.
#[utoipa::path(get, path = "/v1/regions/{id}/queue", tag = "nodes", operation_id = "get_queue",
    params(("id" = String, Path, description = "The region's name"), QueueQuery),
    responses((status = 200, description = "The queue in the key's scope", body = Queue)))]
pub(in crate::http) async fn queue(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<QueueQuery>,
) -> Answer {
    caller.principal.require(Operation::GetQueue)?;
    let size = page_size(query.limit)?;
    let cell = cell_of(&app, &id)?;
    let principal = caller.principal.clone();
    let after = queue_cursor(query.cursor.as_deref())?;
    let seen = cell.look_now(move |cell| look(cell, &principal, size, after)).await?;
    let QueueState { waiting, more: has_more, places, shares } = seen.value;
    let mentioned = waiting.iter().flat_map(|(_, job, why)| {
        let kept = why.blockers.iter().filter_map(|blocker| match blocker {
            bursar_core::cell::schedule::explain::PlacementBlocker::Reservation { job, .. } => *job,
            _ => None,
        });
        std::iter::once(*job).chain(kept)
    });
    let mentioned: Vec<JobId> = mentioned.collect();
    let known = all_known_jobs(&app, mentioned).await?;
    let name = |job: JobId| {
        let (name, account, _, _) = known.get(&job)?;
        caller.principal.sees(account).then(|| name.to_string())
    };
    let entry = |(position, job, why): (u64, JobId, Why)| {
        let (id, account, class, created_at) = known.get(&job)?;
        let blockers = why.blockers.iter().map(|of| blocker(&cell.region, of, name));
        Some(QueueEntry {
            position,
            job: id.to_string(),
            account: account.to_string(),
            class: class.to_string(),
            created_at: time(*created_at),
            estimated_start_at: why.estimate.map(|estimate| time(estimate.at)),
            blockers: blockers.collect(),
        })
    };
    let mut data: Vec<QueueEntry> = waiting.into_iter().filter_map(entry).collect();
    let mut has_more = has_more;
    if !has_more {
        let (cell, room) = (cell.number, size - data.len());
        let range = (places, after.saturating_sub(places));
        let found = all_held_back(&app, &caller.principal, cell, room, range).await?;
        data.extend(found.entries);
        has_more = found.has_more;
    }
    let last = data.last().filter(|_| has_more);
    let next_cursor = last.map(|last| write_after(&last.position.to_string()));
    let queue = Queue {
        region: id,
        data,
        has_more,
        next_cursor,
        shares: shares.into_iter().map(share).collect(),
        as_of: time(seen.at),
    };
    Ok(json(StatusCode::OK, &queue))
}

/// The maintenance plan, with the nodes that the caller may see.
async fn plan_of(cell: &CellService, caller: &Caller) -> Result<Option<Maintenance>, Failure> {
    let (region, principal) = (cell.region.to_string(), caller.principal.clone());
    let read = move |cell: &Cell| {
        let window = cell.maintenance_window(THE_PLAN)?;
        let seen = |offer: &&NodeOffer| principal.sees_node(offer.scope.as_deref());
        Some(Maintenance {
            region,
            from: time(window.from),
            to: time(window.to),
            nodes: window
                .nodes
                .into_iter()
                .filter(seen)
                .map(|node| node.name.to_string())
                .collect(),
        })
    };
    Ok(cell.gateway.read(read).await?.value)
}

/// Schedules maintenance of nodes of a region. Replaces an earlier schedule.
#[utoipa::path(put, path = "/v1/regions/{id}/maintenance", tag = "nodes",
    operation_id = "plan_maintenance",
    params(("id" = String, Path, description = "The region's name")),
    request_body = PlanMaintenance,
    responses((status = 200, description = "The maintenance window", body = Maintenance)))]
pub(in crate::http) async fn plan(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let plan: PlanMaintenance = convert(body.clone())?;
    caller.principal.require(Operation::PlanMaintenance)?;
    let cell = cell_of(&app, &id)?;
    let once = match IdempotentCall::begin(&app, &caller, reach(&caller.principal), &body).await? {
        CallState::Answered(answer) => return Ok(answer),
        CallState::Open(once) => once,
    };
    let answer = match begin_plan(&app, &caller, cell, &once, plan).await {
        Ok(()) => show_plan(cell, &caller).await,
        Err(failure) => Err(failure),
    };
    once.finish(answer, None).await
}

async fn begin_plan(
    app: &App,
    caller: &Caller,
    cell: &CellService,
    once: &IdempotentCall<'_>,
    plan: PlanMaintenance,
) -> Result<(), Failure> {
    if once.done {
        return Ok(());
    }
    let id = &cell.region;
    let mut nodes = Vec::new();
    for node in plan.nodes.unwrap_or_default() {
        let unknown = || Failure::invalid("nodes", format!("there is no node `{node}` in {id}"));
        if !is_valid_name(&node) {
            return Err(unknown());
        }
        let found = visible(app, caller, &Name::from(node.as_str()), Resolve::Only).await;
        let found = found.map_err(|failure| match failure.problem.code {
            Code::NotFound => unknown(),
            _ => failure,
        })?;
        if found.cell.number != cell.number {
            return Err(unknown());
        }
        nodes.push(found.key);
    }
    let command = Command::PlanMaintenance {
        id: THE_PLAN,
        from: instant(plan.from),
        to: instant(plan.to),
        nodes,
    };
    cell.gateway.post(once.origin(), command).answer().await?.value?;
    app.quiesce_if_manual().await
}

async fn show_plan(cell: &CellService, caller: &Caller) -> Answer {
    // A plan that begins and ends at once is already over.
    let shown = plan_of(cell, caller).await?;
    let shown = shown.ok_or_else(|| Failure::not_found("maintenance", &cell.region))?;
    Ok(json(StatusCode::OK, &shown))
}

/// The maintenance window of a region.
#[utoipa::path(get, path = "/v1/regions/{id}/maintenance", tag = "nodes",
    operation_id = "get_maintenance",
    params(("id" = String, Path, description = "The region's name")),
    responses((status = 200, description = "The maintenance window", body = Maintenance)))]
pub(in crate::http) async fn get_plan(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    caller.principal.require(Operation::GetMaintenance)?;
    show_plan(cell_of(&app, &id)?, &caller).await
}

/// Cancels maintenance of a region; its nodes accept new attempts again immediately.
#[utoipa::path(delete, path = "/v1/regions/{id}/maintenance", tag = "nodes",
    operation_id = "cancel_maintenance",
    params(("id" = String, Path, description = "The region's name")),
    responses((status = 204, description = "Maintenance was cancelled")))]
pub(in crate::http) async fn cancel_plan(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    caller.principal.require(Operation::CancelMaintenance)?;
    let cell = cell_of(&app, &id)?;
    let once = match IdempotentCall::begin(&app, &caller, reach(&caller.principal), &body).await? {
        CallState::Answered(answer) => return Ok(answer),
        CallState::Open(once) => once,
    };
    let answer = drop_plan(&app, cell, &once).await;
    once.finish(answer.map(|()| StatusCode::NO_CONTENT.into_response()), None).await
}

async fn drop_plan(
    app: &App,
    cell: &CellService,
    once: &IdempotentCall<'_>,
) -> Result<(), Failure> {
    if once.done {
        return Ok(());
    }
    let command = Command::CancelMaintenance { id: THE_PLAN };
    cell.gateway.post(once.origin(), command).answer().await?.value?;
    app.quiesce_if_manual().await
}
