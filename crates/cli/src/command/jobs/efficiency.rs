//! What a job did with the time that it asked for, in one line at its end.

use std::time::Duration;

use bursar_client::api::amount::Sum;
use bursar_client::api::jobs::job::{Attempt, EndReason, Job, JobState};
use bursar_client::api::words::{counted, gpu_time};

use crate::arguments::in_one_unit;

/// Below this part of its limit a shorter limit is proposed.
const SHORT_PERCENT: u64 = 50;
/// Proposed limits are multiples of this many seconds.
const STEP_SECONDS: u64 = 300;

/// How long it waited and ran, the GPU time of attempts that did not finish, and a shorter limit if
/// it used little of its own. `None` if it never ran.
pub(super) fn efficiency(job: &Job) -> Option<String> {
    let waited = waited(job)?;
    let ran = ran_ms(job.attempts.last()?);
    let limit = job.spec.max_runtime_seconds.filter(|limit| *limit > 0);
    let mut parts = vec![waited];
    let percent = limit.map(|limit| u64::try_from(ran).unwrap_or(0) / 10 / limit);
    parts.push(match (limit, percent) {
        (Some(limit), Some(percent)) => {
            let limit = in_one_unit(Duration::from_secs(limit));
            format!("ran {} of {limit} ({percent} %)", time(ran))
        }
        _ => format!("ran {}", time(ran)),
    });
    let UnfinishedAttempts { gpu_ms, charged, count } = unfinished(job);
    if count > 0 {
        parts.push(format!(
            "{charged} credits for {} of GPU time in {} that did not finish",
            gpu_time(gpu_ms),
            counted(count, "attempt")
        ));
    }
    let is_short = percent.is_some_and(|percent| percent < SHORT_PERCENT);
    if let Some(better) = limit.and_then(|limit| shorter(ran, limit))
        && is_short
        && job.state == JobState::Succeeded
    {
        let better = in_one_unit(Duration::from_secs(better));
        parts.push(format!("-t {better} would hold less"));
    }
    Some(parts.join(", "))
}

/// A limit a quarter longer than the run, if that is shorter than the present one.
fn shorter(ran_ms: i64, limit: u64) -> Option<u64> {
    let ran = u64::try_from(ran_ms).ok()?.div_ceil(1000);
    let better = (ran + ran / 4).max(1).div_ceil(STEP_SECONDS) * STEP_SECONDS;
    (better < limit).then_some(better)
}

/// Attempts after which the job was queued again.
struct UnfinishedAttempts {
    gpu_ms: u64,
    charged: Sum,
    count: usize,
}

fn unfinished(job: &Job) -> UnfinishedAttempts {
    let is_one = |attempt: &&Attempt| {
        let again = [EndReason::Preempted, EndReason::Drained, EndReason::Lost];
        attempt.end_reason.is_some_and(|reason| again.contains(&reason))
    };
    let attempts: Vec<&Attempt> = job.attempts.iter().filter(is_one).collect();
    UnfinishedAttempts {
        gpu_ms: attempts.iter().map(|attempt| attempt.gpu_ms).sum(),
        charged: Sum::from_micros(attempts.iter().map(|attempt| attempt.charged.micros()).sum()),
        count: attempts.len(),
    }
}

/// How long it waited for its starts, those after an interruption included. `None` if it never ran.
fn waited(job: &Job) -> Option<String> {
    let (mut since, mut waited, mut starts) = (job.created_at, 0, 0);
    for attempt in &job.attempts {
        if let Some(started) = attempt.started_at {
            waited += started.millis().saturating_sub(since.millis()).max(0);
            starts += 1;
            since = attempt.ended_at.unwrap_or(started);
        }
    }
    match starts {
        0 => None,
        1 => Some(format!("waited {}", time(waited))),
        _ => Some(format!("waited {} for {starts} starts", time(waited))),
    }
}

/// The running time of an attempt.
fn ran_ms(attempt: &Attempt) -> i64 {
    match (attempt.started_at, attempt.ended_at) {
        (Some(started), Some(ended)) => ended.millis().saturating_sub(started.millis()).max(0),
        (Some(_) | None, _) => 0,
    }
}

fn time(ms: i64) -> String {
    match u64::try_from(ms).unwrap_or(0) / 1000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => gpu_time(seconds * 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(state: &str, limit: u64, attempts: &[(&str, i64, i64)]) -> Job {
        let at = |seconds: i64| {
            let time = bursar_client::api::Time::from_millis(seconds * 1000);
            Value::String(time.to_string())
        };
        let attempts: Vec<Value> = attempts
            .iter()
            .map(|(end, from, to)| {
                json!({
                    "id": "a", "region": "r", "nodes": ["n"], "gpu_type": "H100",
                    "per_gpu_hour": "1", "started_at": at(*from), "ended_at": at(*to),
                    "end_reason": end, "exit_code": null, "gpu_ms": (to - from) * 2000,
                    "charged": (to - from).to_string(), "hold": "h"
                })
            })
            .collect();
        let job = json!({
            "id": "j", "account": "acme", "state": state,
            "spec": { "account": "acme", "gpus": { "count": 2 }, "max_runtime_seconds": limit },
            "region": null, "hold": null, "attempts": attempts, "charged": "0", "returned": "0",
            "uncollected": "0", "created_at": at(0), "ended_at": null, "as_of": at(0)
        });
        serde_json::from_value(job).expect("a job")
    }

    #[test]
    fn a_job_that_used_little_of_its_time_gets_a_better_limit() {
        let short = job("succeeded", 14_400, &[("succeeded", 60, 780)]);
        assert_eq!(
            efficiency(&short).as_deref(),
            Some("waited 1m00s, ran 12m00s of 4h (5 %), -t 15m would hold less")
        );
        let full = job("succeeded", 800, &[("succeeded", 60, 780)]);
        assert_eq!(efficiency(&full).as_deref(), Some("waited 1m00s, ran 12m00s of 800s (90 %)"));
        let failed = job("failed", 14_400, &[("failed", 0, 60)]);
        let line = efficiency(&failed).expect("it ran");
        assert!(!line.contains("would hold less"), "a failed run says nothing: {line}");
        assert_eq!(efficiency(&job("cancelled", 60, &[])), None);
    }

    #[test]
    fn time_in_attempts_that_did_not_finish_is_counted() {
        let twice = [("preempted", 0, 60), ("lost", 60, 90), ("succeeded", 100, 700)];
        let line = efficiency(&job("succeeded", 800, &twice)).expect("it ran");
        assert!(line.starts_with("waited 10s for 3 starts, ran 10m00s"), "{line}");
        let lost = "90 credits for 3m00s of GPU time in 2 attempts that did not finish";
        assert!(line.contains(lost), "{line}");
    }
}
