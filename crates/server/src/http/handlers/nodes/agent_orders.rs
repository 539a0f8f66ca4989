//! The orders of agents.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_api::nodes::node::{Order, OrderType, RunSpec};
use bursar_core::cell::command::{self, Refusal};
use bursar_core::cell::event::StopReason;
use bursar_core::cell::jobs::orders::{self, OrderKind};
use bursar_core::cell::{AttemptId, Cell};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;

use super::agent_logs::{Known, rank_in};
use super::agents::shown_refusal;
use crate::app::App;
use crate::auth::{Principal, no_longer_works};
use crate::machines::cells::CellService;
use crate::request::Failure;

/// The longest wait: a handler has thirty seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

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

/// Renders an order for the API.
fn shown(id: String, order: orders::Order, job: Option<&String>, now: Timestamp) -> Order {
    let mut shown = Order { job: job.cloned(), ..forget(id) };
    let seconds = |ms: i64| u32::try_from(ms.max(0).saturating_add(999) / 1000).unwrap_or(u32::MAX);
    match order.kind {
        OrderKind::Start(start) => {
            shown.kind = OrderType::Start;
            let mut spec: RunSpec = serde_json::from_str(&start.payload).unwrap_or_default();
            if spec.array_index.is_some() {
                let index = job.and_then(|job| job.rsplit_once('.')).map(|(_, index)| index);
                spec.array_index = index.and_then(|index| index.parse().ok());
            }
            spec.node_names = start.nodes.iter().map(ToString::to_string).collect();
            spec.rank = start.rank.into();
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
    shown
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

/// The names of the jobs of orders, as far as the ledger still has them. An attempt that a node
/// must forget may belong to another node; its job is then not named.
async fn names(
    app: &App,
    cell: &CellService,
    beat: &command::Heartbeat,
    orders: &[orders::Order],
) -> Result<BTreeMap<AttemptId, String>, Failure> {
    let (number, node) = (cell.number, beat.node.full());
    let asked: Vec<(AttemptId, bool)> =
        orders.iter().map(|order| (order.attempt, order.kind == OrderKind::Forget)).collect();
    let look = move |ledger: &Ledger| {
        let named = asked.into_iter().filter_map(|(attempt, forget)| {
            if forget {
                rank_in(ledger, number, attempt, &node)?;
            }
            let job = ledger.job(JobNo::of_cell(attempt.job))?;
            Some((attempt, job.order.id.to_string()))
        });
        named.collect()
    };
    app.ledger.peek(look).await
}

async fn orders(
    app: &App,
    cell: &CellService,
    (beat, known): (&command::Heartbeat, &Known),
) -> Result<Vec<Order>, Failure> {
    let asked = beat.clone();
    let seen = cell.gateway.read(move |all: &Cell| all.orders(&asked)).await?;
    let orders = seen.value.map_err(|refusal| {
        if refusal == Refusal::UnknownNode {
            cell.forget_last_orders(&beat.node);
        }
        shown_refusal(cell, refusal)
    })?;
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(app, cell, beat, &orders).await?;
    // Attempts are named by the ids that the agent used.
    let said: BTreeMap<AttemptId, &String> =
        known.iter().map(|(id, attempt)| (*attempt, id)).collect();
    let shown = orders.into_iter().map(|order| {
        let (job, said) = (names.get(&order.attempt), said.get(&order.attempt));
        let id = || app.attempt_ids.write(cell.number.0, order.attempt);
        let id = said.map_or_else(id, |said| (*said).clone());
        shown(id, order, job, seen.at)
    });
    Ok(shown.collect())
}

/// The identity of a set of orders, for comparison.
fn print(orders: &[Order]) -> Vec<String> {
    orders.iter().map(|order| format!("{:?} {}", order.kind, order.attempt)).collect()
}

/// Waits for new orders, up to the requested time, and returns them. The wait also ends when the
/// agent has started again or the node was removed.
pub(super) async fn wait_for_orders(
    app: &App,
    principal: &Principal,
    cell: &CellService,
    (beat, known): (&command::Heartbeat, &Known),
    wait: Duration,
) -> Result<Vec<Order>, Failure> {
    let mut moved = cell.moved();
    let mut stopped = app.stopped.clone();
    let deadline = tokio::time::sleep(wait.min(LONGEST_WAIT));
    tokio::pin!(deadline);
    let waits = (!wait.is_zero()).then(|| app.wait_aside(principal)).transpose();
    let _waits = waits.map_err(|failure| {
        let detail = format!("the report was taken; {}", failure.problem.detail);
        Failure::new(failure.problem.code, detail).retry_after(1)
    })?;
    let poll = app.waits.poll_of(cell.number, &beat.node);
    loop {
        moved.mark_unchanged();
        let orders = orders(app, cell, (beat, known)).await?;
        if cell.is_news(&beat.node, beat.incarnation, &print(&orders)) || wait.is_zero() {
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
