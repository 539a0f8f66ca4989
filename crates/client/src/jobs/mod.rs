//! Jobs: submit, follow, cancel.

pub mod classes;

use bursar_api::List;
use bursar_api::jobs::job::{CancelJob, Job, JobFilter, LogQuery, PreemptJob, SubmitJob, Why};
use bursar_api::jobs::quote::Quote;
use bursar_api::jobs::timeline::Timeline;

use crate::call::{Call, path};
use crate::text::Text;

/// Submits a job, or an array of jobs.
pub fn submit(job: &SubmitJob) -> Call<Job> {
    Call::post("/v1/jobs", job)
}

/// What a job would cost, and whether it would be accepted.
pub fn quote(job: &SubmitJob) -> Call<Quote> {
    Call::post("/v1/quotes", job)
}

/// Reads a job.
pub fn show(id: &str) -> Call<Job> {
    Call::get(path(&["v1", "jobs", id]))
}

/// Lists jobs, newest first.
pub fn list(filter: &JobFilter) -> Call<List<Job>> {
    Call::get("/v1/jobs").with_query(filter)
}

/// Cancels a job.
pub fn cancel(id: &str) -> Call<Job> {
    Call::post(path(&["v1", "jobs", id, "cancel"]), &CancelJob {})
}

/// Stops a running job and queues it again.
pub fn preempt(id: &str) -> Call<Job> {
    Call::post(path(&["v1", "jobs", id, "preempt"]), &PreemptJob {})
}

/// Why a job waits.
pub fn why(id: &str) -> Call<Why> {
    Call::get(path(&["v1", "jobs", id, "why"]))
}

/// The timeline of a job, oldest first.
pub fn timeline(id: &str) -> Call<Timeline> {
    Call::get(path(&["v1", "jobs", id, "timeline"]))
}

/// The output of a job, for [`Client::text`](crate::Client::text) or, to follow it, for
/// [`Client::stream`](crate::Client::stream).
pub fn logs(id: &str, query: &LogQuery) -> Call<Text> {
    Call::get(path(&["v1", "jobs", id, "logs"])).with_query(query)
}
