//! Quotes: the cost of a job and whether it would be accepted, without any effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::amount::Sum;
use bursar_api::jobs::job::SubmitJob;
use bursar_api::jobs::quote::{Quote, QuoteOffer};
use bursar_api::{Blocker, BlockerType, Time};
use bursar_core::cell::command::JobSpec;
use bursar_core::cell::ids::JobId;
use bursar_core::cell::schedule::explain::{PlacementBlocker, PlacementState, Why};
use bursar_core::cell::{self, Cell, Origin};
use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::SubmitJob as Submit;
use bursar_core::ledger::jobs::Offer;
use bursar_core::ledger::jobs::view::QuotedOffer;
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use super::submission::submission;
use crate::app::App;
use crate::auth::Principal;
use crate::http::extract::Tree;
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::blockers::blocker;
use crate::render::time;
use crate::request::{Caller, Failure, blocker as refused};

/// The id of the hypothetical job. No real job has it.
const HYPOTHETICAL_JOB: JobId = JobId(u64::MAX);
/// The most jobs of a cell that is copied. Larger copies take too much time and memory.
const MAX_JOBS: u32 = 20_000;

/// The most offers of a quote with an estimated start; each takes a copy of its cell.
const MAX_ESTIMATED: usize = 8;

/// Whether a cell is small enough to be copied.
fn may_be_copied(cell: &Cell) -> bool {
    let (running, waiting) = cell.job_counts();
    running.saturating_add(waiting) <= MAX_JOBS
}

/// The answer of a cell to a hypothetical job. `copy` is used for this question only.
fn ask_copy(copy: &mut Cell, spec: JobSpec) -> Option<Why> {
    let now = copy.now();
    // The copy may have been made between a decision and the timers that it made due.
    advance(copy, now, |_, _| {});
    let command = cell::Command::AdmitJob(spec);
    let origin = Origin::component("quote");
    execute(copy, now, &origin, &command, &mut Vec::new()).ok()?;
    advance(copy, now, |_, _| {});
    copy.why(HYPOTHETICAL_JOB, now)
}

/// The answers of the cells to a hypothetical job: for each offer the region's present instant, and
/// the answer.
async fn ask_cells(
    app: &App,
    principal: &Principal,
    submit: &Submit,
    quoted: &[QuotedOffer],
) -> Result<BTreeMap<usize, (Timestamp, Option<Why>)>, Failure> {
    let mut by_region: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, one) in quoted.iter().enumerate() {
        by_region.entry(one.offer.region.as_str()).or_default().push(index);
    }
    let mut answers = BTreeMap::new();
    for (region, offers) in by_region {
        let Some(service) = app.cells.of_region(region) else { continue };
        let look = |cell: &Cell| (cell.now(), may_be_copied(cell));
        let (now, may_be_copied) = service.gateway.read(look).await?.value;
        let estimated = offers.iter().filter(|index| may_be_copied && **index < MAX_ESTIMATED);
        let specs: Vec<_> = estimated.map(|index| spec(submit, &quoted[*index].offer)).collect();
        let mut said = Vec::new();
        if !specs.is_empty() {
            said = service.evaluate(principal, specs, ask_copy).await?;
        }
        said.resize_with(offers.len(), || None);
        answers.extend(offers.into_iter().zip(said.into_iter().map(|why| (now, why))));
    }
    Ok(answers)
}

/// The job as a cell would receive it if this offer were the only one.
fn spec(submit: &Submit, offer: &Offer) -> JobSpec {
    JobSpec {
        models: std::iter::once(offer.gpu_type.clone()).collect(),
        ..submit.terms.spec(HYPOTHETICAL_JOB, submit.account.clone())
    }
}

fn offer(quoted: &QuotedOffer, estimated_start_at: Option<Time>) -> QuoteOffer {
    let sum = |credits: Credits| Sum::from_micros(credits.micros().into());
    QuoteOffer {
        gpu_type: quoted.offer.gpu_type.to_string(),
        region: quoted.offer.region.to_string(),
        per_gpu_hour: sum(quoted.offer.per_gpu_hour),
        per_hour: sum(quoted.per_hour),
        hold: sum(quoted.hold),
        estimated_start_at,
    }
}

/// Whether a region has no node with such GPUs.
fn lacks_gpus(why: Option<&Why>) -> bool {
    let is_lack = |blocker: &PlacementBlocker| match blocker {
        PlacementBlocker::GpuType { .. } | PlacementBlocker::GpuCount { .. } => true,
        PlacementBlocker::Credits
        | PlacementBlocker::Budget
        | PlacementBlocker::Frozen { .. }
        | PlacementBlocker::Quota { .. }
        | PlacementBlocker::Group { .. }
        | PlacementBlocker::Scope { .. }
        | PlacementBlocker::Memory { .. }
        | PlacementBlocker::Capacity { .. }
        | PlacementBlocker::Gang { .. }
        | PlacementBlocker::Reservation { .. }
        | PlacementBlocker::Drain { .. }
        | PlacementBlocker::Lost { .. }
        | PlacementBlocker::Priority { .. }
        | PlacementBlocker::Delayed { .. } => false,
    };
    why.is_some_and(|why| why.blockers.iter().any(is_lack))
}

/// The offers with their starts, and the blockers where the job cannot start at once.
async fn starts(
    app: &App,
    principal: &Principal,
    submit: &Submit,
    quoted: &[QuotedOffer],
) -> Result<(Vec<QuoteOffer>, Vec<Blocker>), Failure> {
    let mut offers = Vec::new();
    let mut blockers: Vec<Blocker> = Vec::new();
    let mut starts_now = false;
    let mut said = ask_cells(app, principal, submit, quoted).await?;
    let some_has_it = said.values().any(|(_, why)| !lacks_gpus(why.as_ref()));
    for (index, one) in quoted.iter().enumerate() {
        let region = &one.offer.region;
        let Some((now, why)) = said.remove(&index) else { continue };
        let at = why.as_ref().and_then(|why| match why.state {
            PlacementState::Queued => why.estimate.map(|estimate| time(estimate.at)),
            PlacementState::Proposed
            | PlacementState::Starting
            | PlacementState::Running
            | PlacementState::Stopping => {
                starts_now = true;
                Some(time(now))
            }
        });
        // Another offer has such nodes: that this one has none is said by its unknown start.
        let has_none = some_has_it && lacks_gpus(why.as_ref());
        for of in why.iter().filter(|_| !has_none).flat_map(|why| &why.blockers) {
            let shown = blocker(region, of, |_| None);
            if !blockers.contains(&shown) {
                blockers.push(shown);
            }
        }
        offers.push(offer(one, at));
    }
    Ok((offers, if starts_now { Vec::new() } else { blockers }))
}

/// What a job would cost, when it could start, and whether it would be accepted.
///
/// A quote changes and stores nothing: an `Idempotency-Key` has no effect.
#[utoipa::path(post, path = "/v1/quotes", tag = "jobs", operation_id = "get_quote",
    request_body = SubmitJob,
    responses((status = 200, description = "The quote", body = Quote)))]
pub(in crate::http) async fn quote(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let mut submit = submission(&app, body)?.command;
    submit.scope = caller.principal.scope.clone();
    if !caller.principal.sees(&submit.account) {
        return Err(Failure::not_found("account", &submit.account));
    }
    caller.principal.require(Operation::GetQuote)?;
    let asked = submit.clone();
    let seen = app.read(move |ledger: &Ledger| ledger.quote(ledger.now(), &asked)).await?;
    let quoted = seen.value?;
    let admissible = quoted.is_admissible();
    let mut blockers: Vec<Blocker> = quoted.blockers.iter().cloned().map(refused).collect();
    let offers = if submit.terms.external {
        // No cell places it, so none knows when it starts.
        quoted.offers.iter().map(|one| offer(one, None)).collect()
    } else {
        let (mut offers, waits_for) =
            starts(&app, &caller.principal, &submit, &quoted.offers).await?;
        // The ledger and the cell both know a freeze.
        let is_known = blockers.iter().any(|known| known.kind == BlockerType::Frozen);
        let is_new = |of: &Blocker| !(is_known && of.kind == BlockerType::Frozen);
        blockers.extend(waits_for.into_iter().filter(is_new));
        if !admissible {
            // It starts when credits, a budget, a quota or a freeze change; that time is not known.
            offers.iter_mut().for_each(|offer| offer.estimated_start_at = None);
        }
        offers
    };
    let quote = Quote {
        offers,
        hold: Sum::from_micros(quoted.hold.micros().into()),
        admissible,
        blockers,
        spendable_after: Sum::from_micros(quoted.spendable_after),
        as_of: time(seen.at),
        position: seen.position,
    };
    Ok(json(StatusCode::OK, &quote))
}

#[cfg(test)]
mod tests {
    use bursar_core::cell::schedule::shape::GpuDemand;

    use super::*;

    #[test]
    fn a_copy_whose_timers_are_due_is_asked_all_the_same() {
        let mut copy = Cell::new();
        let now = copy.now();
        let job = |id| JobSpec::new(JobId(id), "acme", GpuDemand::Whole(1));
        let admit = cell::Command::AdmitJob(job(1));
        let origin = Origin::component("test");
        execute(&mut copy, now, &origin, &admit, &mut Vec::new()).expect("admitted");
        let deadline = copy.next_pressing_deadline();
        assert!(deadline.is_some_and(|deadline| deadline <= now), "{deadline:?}");
        let why = ask_copy(&mut copy, job(HYPOTHETICAL_JOB.0)).expect("an answer");
        assert_ne!(why.state, PlacementState::Running);
    }
}
