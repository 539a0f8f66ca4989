//! The jobs that cost, use or hold most, in a key's scope.

use bursar_api::accounts::top::{TopBy, TopEntry};
use bursar_api::amount::Sum;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::jobs::Job;
use bursar_core::time::Timestamp;

use crate::app::App;
use crate::auth::Principal;
use crate::render::job::held;
use crate::request::Failure;

/// The most jobs that one read of the ledger visits.
const MAX_VISITED: usize = 5_000;

/// The value of a job in a ranking. Spending and usage count for attempts that run, or that ended
/// within the window.
fn value(ledger: &Ledger, job: &Job, by: TopBy, since: Timestamp) -> Sum {
    let usage = || ledger.job_usage_since(job, since);
    match by {
        TopBy::Spent => Sum::from_micros(usage().charged.into()),
        TopBy::GpuSeconds => Sum::from_thousandths(usage().gpu_ms),
        TopBy::Held => held(ledger, job),
        // Accounts have credits; jobs do not.
        TopBy::Available => Sum::default(),
    }
}

/// The first `k` jobs, largest first; of equal ones the newer first.
pub(in crate::http) async fn top_jobs(
    app: &App,
    principal: &Principal,
    by: TopBy,
    since: Timestamp,
    k: usize,
) -> Result<Vec<TopEntry>, Failure> {
    let mut best: Vec<TopEntry> = Vec::new();
    let mut before = None;
    loop {
        let principal = principal.clone();
        let look = move |ledger: &Ledger| {
            let mut found = Vec::new();
            let mut last = None;
            for (number, job) in ledger.jobs_before(before).take(MAX_VISITED) {
                last = Some(number);
                let seen = principal.sees(&ledger.account(job.order.account).path);
                let value = value(ledger, job, by, since);
                if seen && value > Sum::default() {
                    found.push(TopEntry { id: job.order.id.to_string(), value });
                }
            }
            (found, last)
        };
        let (found, last) = app.ledger.peek(look).await?;
        best.extend(found);
        best.sort_by_key(|entry| std::cmp::Reverse(entry.value));
        best.truncate(k);
        match last {
            Some(last) => before = Some(last),
            None => return Ok(best),
        }
    }
}
