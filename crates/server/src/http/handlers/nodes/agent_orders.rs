//! The orders of agents.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_api::nodes::node::{Order, OrderType, RunSpec};
use bursar_core::cell::command::{self, Refusal};
use bursar_core::cell::event::StopReason;
use bursar_core::cell::jobs::orders::{self, OrderKind};
use bursar_core::cell::{AttemptId, Cell, JobId};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::jobs::Attempt;
use bursar_core::time::Timestamp;

use super::agent_logs::{KnownAttempts, rank_in};
use super::heartbeat::shown_refusal;
use crate::app::App;
use crate::auth::{Principal, no_longer_works};
use crate::machines::cells::CellService;
use crate::request::Failure;

/// The longest wait: a handler has thirty seconds.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// The API name of a stop reason.
pub(in crate::http) fn reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancelled",
        StopReason::Preempted { .. } => "preempted",
        StopReason::Operator { .. } => "operator",
        StopReason::Drained => "drained",
        StopReason::MaxRuntime => "timed_out",
        StopReason::OutOfCredits => "out_of_credits",
    }
}

/// The job of an order, as the ledger has it.
struct OrderedJob {
    id: String,
    /// Which attempt of the job the order is about, from 1.
    number: Option<u32>,
}

/// Renders an order for the API. A start whose stored command cannot be read is not sent: the agent
/// would run something else.
fn shown(
    id: String,
    order: orders::Order,
    of: Option<&OrderedJob>,
    now: Timestamp,
) -> Option<Order> {
    let job = of.map(|of| &of.id);
    let mut shown = Order { job: job.cloned(), ..forget(id) };
    let seconds = |ms: i64| u32::try_from(ms.max(0).saturating_add(999) / 1000).unwrap_or(u32::MAX);
    match order.kind {
        OrderKind::Start(start) => {
            shown.kind = OrderType::Start;
            let mut spec: RunSpec = match serde_json::from_str(start.payload.text()) {
                Ok(spec) => spec,
                Err(error) => {
                    let attempt = &shown.attempt;
                    tracing::error!(%attempt, %error, "the stored command of a job cannot be read");
                    return None;
                }
            };
            if spec.array_index.is_some() {
                let index = job.and_then(|job| job.rsplit_once('.')).map(|(_, index)| index);
                spec.array_index = index.and_then(|index| index.parse().ok());
            }
            spec.node_names = start.nodes.iter().map(ToString::to_string).collect();
            spec.rank = start.rank.into();
            spec.attempt_number = of.and_then(|of| of.number);
            shown.spec = Some(spec);
            shown.gpus = start.uuids.iter().map(ToString::to_string).collect();
            shown.grace_seconds = Some(seconds(start.grace_ms));
        }
        OrderKind::Stop { kill_at, reason: why } => {
            shown.kind = OrderType::Stop;
            shown.grace_seconds = Some(seconds(kill_at.millis_since(now)));
            shown.reason = Some(reason(why).to_owned());
        }
        OrderKind::Kill { reason: why } => {
            shown.kind = OrderType::Kill;
            shown.reason = why.map(|why| reason(why).to_owned());
        }
        OrderKind::Forget => {}
    }
    Some(shown)
}

/// An order to forget an attempt that does not belong to the node.
pub(super) fn forget(attempt: String) -> Order {
    Order {
        kind: OrderType::Forget,
        attempt,
        job: None,
        spec: None,
        gpus: Vec::new(),
        grace_seconds: None,
        reason: None,
    }
}

/// The jobs of orders, as far as the ledger still has them. An attempt that a node must forget may
/// belong to another node; its job is then not named.
async fn jobs_of(
    app: &App,
    cell: &CellService,
    beat: &command::Heartbeat,
    orders: &[orders::Order],
) -> Result<BTreeMap<AttemptId, OrderedJob>, Failure> {
    let (number, node) = (cell.number, beat.node.full());
    let asked: Vec<(AttemptId, bool)> =
        orders.iter().map(|order| (order.attempt, order.kind == OrderKind::Forget)).collect();
    let jobs: Vec<JobId> = asked.iter().map(|(attempt, _)| attempt.job).collect();
    let look = move |ledger: &Ledger| {
        let named = asked.iter().filter_map(|(attempt, forget)| {
            let attempt = *attempt;
            if *forget {
                rank_in(ledger, number, attempt, &node)?;
            }
            let job = ledger.job(ledger.job_of_cells(attempt.job)?)?;
            let is_it = |one: &Attempt| one.cell == Some(number) && one.number == attempt.number;
            let place = job.attempts.iter().position(is_it);
            let place = place.and_then(|place| u32::try_from(place + 1).ok());
            Some((attempt, OrderedJob { id: job.order.id.to_string(), number: place }))
        });
        named.collect::<BTreeMap<AttemptId, OrderedJob>>()
    };
    let found = app.peek_jobs(jobs.into_iter(), look).await?;
    Ok(found.into_iter().flatten().collect())
}

/// The orders of a node as a cell has them.
pub(super) struct OrdersRead {
    pub(super) orders: Result<Vec<orders::Order>, Refusal>,
    pub(super) at: Timestamp,
    /// The last record of the cell that they depend on.
    pub(super) position: u64,
}

async fn read_orders(cell: &CellService, beat: &command::Heartbeat) -> Result<OrdersRead, Failure> {
    let asked = beat.clone();
    let seen = cell.gateway.read(move |all: &Cell| all.orders(&asked)).await?;
    Ok(OrdersRead { orders: seen.value, at: seen.at, position: seen.position })
}

/// Renders the orders of a node for the API.
async fn rendered(
    app: &App,
    cell: &CellService,
    (beat, known): (&command::Heartbeat, &KnownAttempts),
    read: OrdersRead,
) -> Result<Vec<Order>, Failure> {
    let orders = read.orders.map_err(|refusal| {
        if refusal == Refusal::UnknownNode {
            cell.forget_last_orders(&beat.node);
        }
        shown_refusal(cell, refusal)
    })?;
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let jobs = jobs_of(app, cell, beat, &orders).await?;
    // Attempts are named by the ids that the agent used.
    let said: BTreeMap<AttemptId, &String> =
        known.iter().map(|(id, attempt)| (*attempt, id)).collect();
    let shown = orders.into_iter().filter_map(|order| {
        let (job, said) = (jobs.get(&order.attempt), said.get(&order.attempt));
        let id = || app.attempt_ids.write(cell.number.0, order.attempt);
        let id = said.map_or_else(id, |said| (*said).clone());
        shown(id, order, job, read.at)
    });
    Ok(shown.collect())
}

/// The identity of a set of orders, for comparison.
fn fingerprints(orders: &[Order]) -> Vec<String> {
    orders.iter().map(|order| format!("{} {}", order.kind.as_str(), order.attempt)).collect()
}

/// Waits for new orders, up to the requested time, and returns them. `read` are those of the
/// heartbeat itself. The wait also ends when the
/// agent has started again or the node was removed.
pub(super) async fn wait_for_orders(
    app: &App,
    principal: &Principal,
    cell: &CellService,
    (beat, known): (&command::Heartbeat, &KnownAttempts),
    (wait, mut read): (Duration, Option<OrdersRead>),
) -> Result<Vec<Order>, Failure> {
    let mut moved = cell.moved();
    let mut stopped = app.stopped.clone();
    let deadline = tokio::time::sleep(wait.min(MAX_WAIT));
    tokio::pin!(deadline);
    let waits = (!wait.is_zero()).then(|| app.wait_aside(principal)).transpose();
    let _waits = waits.map_err(|failure| {
        let detail = format!("the report was taken; {}", failure.problem.detail);
        Failure::new(failure.problem.code, detail).retry_after(1)
    })?;
    let poll = app.waits.poll_of(cell.number, &beat.node);
    loop {
        moved.mark_unchanged();
        let read = match read.take() {
            // Otherwise a change after the read would be missed.
            Some(read) if wait.is_zero() || cell.is_durable_only_to(read.position) => read,
            Some(_) | None => read_orders(cell, beat).await?,
        };
        let orders = rendered(app, cell, (beat, known), read).await?;
        if cell.is_news(&beat.node, beat.incarnation, &fingerprints(&orders)) || wait.is_zero() {
            return Ok(orders);
        }
        tokio::select! {
            () = &mut deadline => return Ok(orders),
            changed = moved.changed() => if changed.is_err() { return Ok(orders) },
            () = poll.replaced() => return Ok(orders),
            () = app.until_key_ends(principal) => return Err(no_longer_works()),
            _ = stopped.changed() => return Ok(orders),
        }
    }
}
