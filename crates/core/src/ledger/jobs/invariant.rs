//! Invariant checks of jobs: L7 for each attempt, L10, L14, and the consistency of every index with
//! the jobs.

use super::table::JobIndex;
use super::{Attempt, Job, JobState};
use crate::ledger::credits::price::Rounding;
use crate::ledger::holds::hold::{Hold, HoldState};
use crate::ledger::id::{AccountNo, CellNo, HoldNo, JobNo};
use crate::ledger::invariant::{Check, holds};
use crate::ledger::state::Ledger;

/// Checks every law about jobs.
pub(in crate::ledger) fn check(ledger: &Ledger) -> Check {
    for (number, job) in &ledger.jobs.all {
        let tenant = Some(ledger.account(job.order.account).tenant);
        check_state(*number, job, tenant)?;
        check_hold(ledger, *number, job, tenant)?;
        check_funding(ledger, *number, job, tenant)?;
        for attempt in &job.attempts {
            check_charge(ledger, job, attempt, tenant)?;
        }
        check_reason(ledger, *number, job, tenant)?;
    }
    for (number, hold) in ledger.holds.iter().filter(|(_, hold)| hold.is_open()) {
        let Some(job) = hold.job() else { continue };
        let its = ledger.job(job).is_some_and(|job| job.hold == Some(HoldNo(number)));
        holds(its, "L10", None, || format!("hold {} is open and its job has another", hold.id))?;
    }
    check_index(ledger)
}

/// L10: the state agrees with the presence of a live attempt, and an ended job has no hold and no
/// standings.
fn check_state(number: JobNo, job: &Job, tenant: Option<AccountNo>) -> Check {
    let live = job.live_attempt().is_some();
    let expected = match job.state {
        JobState::Queued => !live,
        JobState::Starting => live,
        JobState::Running | JobState::Stopping => live,
        JobState::Succeeded
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Lost
        | JobState::OutOfCredits
        | JobState::TimedOut => !live && job.hold.is_none() && job.standings.is_empty(),
    };
    holds(expected, "L10", tenant, || {
        let attempt = if live { "a live attempt" } else { "no live attempt" };
        format!("job {number} has {attempt}, which its state does not allow")
    })?;
    let ended = job.state.is_ended() == job.ended_at.is_some();
    holds(ended, "L10", tenant, || {
        format!("job {number} has a state that does not match its end time")
    })?;
    let (_, earlier) = job.attempts.split_last().map_or((None, &[][..]), |(l, e)| (Some(l), e));
    let over = earlier.iter().all(|attempt| attempt.end.is_some());
    holds(over, "L10", tenant, || format!("job {number} has two attempts at once"))
}

/// A job that has not ended has an open hold, unless it costs nothing or waits for credits.
fn check_hold(ledger: &Ledger, number: JobNo, job: &Job, tenant: Option<AccountNo>) -> Check {
    match job.hold {
        Some(hold) => {
            let its = ledger.hold(hold).is_some_and(|h| h.is_open() && h.job() == Some(number));
            holds(its, "L10", tenant, || format!("job {number} has a hold that is not its own"))
        }
        None => {
            let free = job.order.need().is_zero();
            let waits = job.state == JobState::Queued || job.state.is_ended();
            holds(free || waits, "L10", tenant, || format!("job {number} runs without a hold"))
        }
    }
}

/// The hold and the overdraft cover the running time that is paid for.
fn check_funding(ledger: &Ledger, number: JobNo, job: &Job, tenant: Option<AccountNo>) -> Check {
    let hold = job.hold.and_then(|hold| ledger.hold(hold));
    let live = job.live_attempt().filter(|live| live.cell.is_some());
    let Some((hold, live)) = hold.zip(live) else { return Ok(()) };
    let cost = job.order.terms.hold_at(live.per_gpu_hour, live.funded_ms);
    let covered = cost.is_some_and(|cost| cost.length() <= hold.amount + live.overdraft);
    holds(covered, "L7", tenant, || {
        let cost =
            cost.map_or_else(|| "more than any hold".to_owned(), |cost| cost.length().to_string());
        let (amount, overdraft) = (hold.amount, live.overdraft);
        format!(
            "job {number}: a hold of {amount} units and {overdraft} of overdraft do not pay {cost}"
        )
    })
}

/// L7: the charge of an attempt is its price times its billable usage, rounded once.
fn check_charge(ledger: &Ledger, job: &Job, attempt: &Attempt, tenant: Option<AccountNo>) -> Check {
    let Some(name) = &attempt.hold else { return Ok(()) };
    let account = ledger.account(job.order.account);
    let hold = ledger.find_hold(account.tenant, crate::ledger::holds::hold::HoldKind::Hold, name);
    // The hold of an early attempt may be forgotten while the job still runs.
    let Some(hold) = hold.and_then(|hold| ledger.hold(hold)) else { return Ok(()) };
    let details = hold.details.as_ref();
    let (rate, gpu_ms) =
        (details.and_then(|details| details.rate), details.map_or(0, |details| details.gpu_ms));
    if let Some(end) = attempt.end {
        let same = (hold.metered, hold.uncollected()) == (end.charged, end.uncollected);
        holds(same, "L7", tenant, || format!("hold {name} and its attempt do not agree"))?;
        holds(end.gpu_ms == gpu_ms, "L7", tenant, || format!("hold {name} has other usage"))?;
    }
    let Some(rate) = rate.filter(|_| attempt.cell.is_some()) else { return Ok(()) };
    holds(gpu_ms <= rate.gpu_ms_limit, "L7", tenant, || format!("hold {name}: too much usage"))?;
    let charge = rate.charge(gpu_ms, rounding(hold)).map_or(u64::MAX, |charge| charge.length());
    holds(hold.metered == charge, "L7", tenant, || {
        format!("hold {name}: {gpu_ms} ms cost {charge}, not {}", hold.metered)
    })
}

/// Down while usage grows, to the nearest at the end. A lapsed hold has no final report.
fn rounding(hold: &Hold) -> Rounding {
    match hold.state {
        HoldState::Open | HoldState::Lapsed => Rounding::Floor,
        HoldState::Settled | HoldState::Released => Rounding::HalfEven,
    }
}

/// L14: a queued job is admitted to a cell, or there is a reason why not.
fn check_reason(ledger: &Ledger, number: JobNo, job: &Job, tenant: Option<AccountNo>) -> Check {
    if job.state != JobState::Queued {
        return Ok(());
    }
    let competes = job.standings.iter().any(|standing| !standing.waits);
    let due = ledger.jobs.index.due.contains(&number)
        || tenant.and_then(|tenant| ledger.jobs.reviews.get(&tenant)).is_some_and(|review| {
            let again = review.retry_at.is_some_and(|at| at <= ledger.now);
            review.at <= ledger.now && (review.from <= number || again)
        });
    let outside = job.order.terms.external;
    let reason = competes || due || outside || !ledger.standing_blockers(job).is_empty();
    holds(reason, "L14", tenant, || format!("job {number} waits for no reason"))
}

/// Every index equals a freshly built one.
fn check_index(ledger: &Ledger) -> Check {
    let mut index = JobIndex::default();
    for (number, job) in &ledger.jobs.all {
        let account = job.order.account;
        let tenant = ledger.account(account).tenant;
        index.names.insert((tenant, job.order.id.clone()), *number);
        index.by_tenant.insert((tenant, *number));
        if job.state == JobState::Queued {
            for cell in ledger.cells_of(&job.order) {
                for account in ledger.path(account) {
                    *index.waiting.entry((account, cell)).or_default() += 1;
                }
            }
        }
        if job.is_held_up() {
            index.held_up.insert((tenant, *number));
        }
        if job.is_short() {
            index.short.insert((tenant, *number));
        }
        if !job.after.is_empty() && !job.state.is_ended() {
            index.awaiting.insert((tenant, *number));
        }
        if job.live_attempt().is_some_and(|live| live.overdraft > 0) {
            index.owing.insert((tenant, *number));
        }
        index.warnings.extend(job.next_warning().map(|(at, _)| (at, *number)));
        for awaited in &job.after {
            index.dependants.insert((*awaited, *number));
            if ledger.job(*awaited).is_none_or(|awaited| awaited.state.is_ended()) {
                index.due.insert(*number);
            }
        }
        let known = |cell: CellNo| cell.index() < ledger.cells.len();
        let cells = job.standings.iter().all(|standing| known(standing.cell));
        holds(cells, "L13", Some(tenant), || format!("job {number} stands in no known cell"))?;
    }
    for (tenant, review) in &ledger.jobs.reviews {
        index.review_times.insert((review.at, *tenant));
    }
    holds(index == ledger.jobs.index, "index", None, || {
        "the index of jobs differs from the jobs".to_owned()
    })
}
