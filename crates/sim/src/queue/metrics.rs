//! Figures of a run.

use std::collections::BTreeMap;

use super::{Cluster, Run};
use crate::statistics::{Spread, percentile};
use crate::traces::JobRow;

/// The figures of a run. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Mean time from submission to the end.
    pub mean_jct_s: f64,
    /// The 99th percentile of that time.
    pub p99_jct_s: f64,
    /// Time from the first submission to the last end.
    pub makespan_s: f64,
    /// The worst finish-time fairness: see [`fairness`].
    pub worst_fairness: f64,
    /// Percentage of jobs that took more than 1.05 times as long as with their share.
    pub unfair_pct: f64,
    /// Starts per job.
    pub starts_per_job: f64,
}

/// Computes the figures of a run.
pub fn figures(jobs: &[JobRow], cluster: Cluster, run: &Run) -> Figures {
    let seconds = |millis: i64| millis as f64 / 1000.0;
    let completion: Vec<f64> = jobs
        .iter()
        .zip(&run.jobs)
        .map(|(row, job)| seconds(job.finished_ms - row.submit_ms))
        .collect();
    let first = jobs.iter().map(|row| row.submit_ms).min().unwrap_or(0);
    let last = run.jobs.iter().map(|job| job.finished_ms).max().unwrap_or(0);
    let fairness = fairness(jobs, cluster, run);
    let unfair = fairness.iter().filter(|ratio| **ratio > 1.05).count();
    let starts: u64 = run.jobs.iter().map(|job| u64::from(job.starts)).sum();
    Figures {
        mean_jct_s: Spread::of(&completion).map_or(0.0, |spread| spread.mean),
        p99_jct_s: percentile(&completion, 99.0).unwrap_or(0.0),
        makespan_s: seconds(last - first),
        worst_fairness: fairness.iter().copied().fold(0.0, f64::max),
        unfair_pct: 100.0 * unfair as f64 / jobs.len() as f64,
        starts_per_job: starts as f64 / jobs.len() as f64,
    }
}

/// Finish-time fairness by job: the time from submission to the end, divided by the time that the
/// job would have taken with 1/n of the cluster.
///
/// n is the mean number of jobs present between its submission and its end. A share smaller than
/// the job's request would have slowed it down in proportion.
pub fn fairness(jobs: &[JobRow], cluster: Cluster, run: &Run) -> Vec<f64> {
    let presence = Presence::new(jobs, run);
    let ratio = |row: &JobRow, finished_ms: i64| {
        let present = presence.mean(row.submit_ms, finished_ms);
        let slowdown = (f64::from(row.gpus) * present / f64::from(cluster.gpus())).max(1.0);
        (finished_ms - row.submit_ms) as f64 / (row.duration_ms as f64 * slowdown)
    };
    jobs.iter().zip(&run.jobs).map(|(row, job)| ratio(row, job.finished_ms)).collect()
}

/// The number of jobs present, over time.
struct Presence {
    /// Instants at which the number changed, with the number from then on and the integral up to
    /// then.
    steps: Vec<(i64, i64, f64)>,
}

impl Presence {
    fn new(jobs: &[JobRow], run: &Run) -> Presence {
        let mut changes: BTreeMap<i64, i64> = BTreeMap::new();
        for (row, job) in jobs.iter().zip(&run.jobs) {
            *changes.entry(row.submit_ms).or_default() += 1;
            *changes.entry(job.finished_ms).or_default() -= 1;
        }
        let mut steps: Vec<(i64, i64, f64)> = Vec::new();
        for (at, change) in changes {
            let (count, integral) = steps.last().map_or((0, 0.0), |(since, count, integral)| {
                (*count, integral + *count as f64 * (at - since) as f64)
            });
            steps.push((at, count + change, integral));
        }
        Presence { steps }
    }

    fn integral(&self, at: i64) -> f64 {
        let after = self.steps.partition_point(|(since, _, _)| *since <= at);
        let Some((since, count, integral)) = after.checked_sub(1).map(|index| self.steps[index])
        else {
            return 0.0;
        };
        integral + count as f64 * (at - since) as f64
    }

    fn mean(&self, from: i64, to: i64) -> f64 {
        (self.integral(to) - self.integral(from)) / (to - from) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::Finished;
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn job(submit_ms: i64, duration_ms: i64, gpus: u32) -> JobRow {
        JobRow { tenant: None, submit_ms, duration_ms, gpus, resumable: true, max_runtime_ms: None }
    }

    fn finished(started_ms: i64, finished_ms: i64) -> Finished {
        Finished { started_ms, finished_ms, starts: 1 }
    }

    const ONE_NODE: Cluster = Cluster { nodes: 1, gpus_per_node: 8 };

    #[test]
    fn a_wait_for_one_other_job_counts_for_half() {
        // Two jobs that each request the whole cluster: with half of it each would take two hours.
        let jobs = [job(0, HOUR, 8), job(0, HOUR, 8)];
        let run =
            Run { jobs: vec![finished(0, HOUR), finished(HOUR, 2 * HOUR)], stretches: vec![] };
        let ratios = fairness(&jobs, ONE_NODE, &run);
        assert_eq!(ratios[0], 0.5);
        // The other job was present for half of the time: 1.5 jobs on average.
        assert!((ratios[1] - 2.0 / 1.5).abs() < 1e-9, "{ratios:?}");
        let figures = figures(&jobs, ONE_NODE, &run);
        assert_eq!((figures.mean_jct_s, figures.makespan_s), (5400.0, 7200.0));
        assert_eq!(figures.unfair_pct, 50.0);
    }

    #[test]
    fn the_share_of_a_single_job_is_at_most_its_request() {
        let jobs = [job(0, HOUR, 1)];
        let run = Run { jobs: vec![finished(HOUR, 2 * HOUR)], stretches: vec![] };
        assert_eq!(fairness(&jobs, ONE_NODE, &run), [2.0]);
    }
}
