//! What a run of a trace amounts to.

use std::collections::BTreeMap;

use super::{Cluster, Run};
use crate::statistics::{Spread, percentile};
use crate::traces::JobRow;

/// The figures of a run. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Mean time from submission to the end.
    pub mean_jct_s: f64,
    /// The 99th percentile of it.
    pub p99_jct_s: f64,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    /// The worst finish-time fairness: see [`fairness`].
    pub worst_fairness: f64,
    /// Jobs, in per cent, that took more than 1.05 times as long as their share would have.
    pub unfair_pct: f64,
    /// Starts per job.
    pub starts_per_job: f64,
}

/// Reads the figures off a run.
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

/// Finish-time fairness, by job: the time from submission to the end, over the time that the job
/// would have taken with 1/n of the cluster to itself.
///
/// n is the mean number of jobs that were there between its submission and its end. A share smaller
/// than what the job asks for would have slowed it down in proportion.
pub fn fairness(jobs: &[JobRow], cluster: Cluster, run: &Run) -> Vec<f64> {
    let presence = Presence::new(jobs, run);
    let ratio = |row: &JobRow, finished_ms: i64| {
        let rivals = presence.mean(row.submit_ms, finished_ms);
        let slowdown = (f64::from(row.gpus) * rivals / f64::from(cluster.gpus())).max(1.0);
        (finished_ms - row.submit_ms) as f64 / (row.duration_ms as f64 * slowdown)
    };
    jobs.iter().zip(&run.jobs).map(|(row, job)| ratio(row, job.finished_ms)).collect()
}

/// How many jobs were there, over time.
struct Presence {
    /// Instants at which the number changed, with the number since then and the integral up to then.
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

/// How far tenants were from their share, by tenant: the worst |usage / entitled − 1| over all
/// windows of 24 hours in which at least two tenants always had a job waiting. Entitled is an equal
/// part of what those tenants used together. Tenants that never waited that long are left out.
pub fn share_errors(jobs: &[JobRow], tenants: &[String], run: &Run) -> BTreeMap<String, f64> {
    let mut errors: BTreeMap<String, f64> = BTreeMap::new();
    let backlogs = backlogs(jobs, tenants, run);
    let mut usage: BTreeMap<&str, Usage> = BTreeMap::new();
    for stretch in &run.stretches {
        let gpus = jobs[stretch.job].gpus;
        usage.entry(&tenants[stretch.job]).or_default().add(stretch.from_ms, stretch.to_ms, gpus);
    }
    usage.values_mut().for_each(Usage::finish);
    let end = run.jobs.iter().map(|job| job.finished_ms).max().unwrap_or(0);
    let mut from = 0;
    while from + WINDOW_MS <= end {
        let to = from + WINDOW_MS;
        let waiting: Vec<(&str, f64)> = backlogs
            .iter()
            .filter(|(_, backlog)| {
                backlog.iter().any(|(start, stop)| *start <= from && to <= *stop)
            })
            .map(|(tenant, _)| {
                (*tenant, usage.get(tenant).map_or(0.0, |usage| usage.within(from, to)))
            })
            .collect();
        let total: f64 = waiting.iter().map(|(_, used)| used).sum();
        if waiting.len() >= 2 && total > 0.0 {
            let entitled = total / waiting.len() as f64;
            for (tenant, used) in waiting {
                let error = (used / entitled - 1.0).abs();
                let worst = errors.entry(tenant.to_string()).or_default();
                *worst = worst.max(error);
            }
        }
        from += STEP_MS;
    }
    errors
}

const WINDOW_MS: i64 = 86_400_000;
const STEP_MS: i64 = 3_600_000;

/// GPU time of a tenant, summed so that any window is two look-ups.
#[derive(Default)]
struct Usage {
    /// Changes of the GPUs in use.
    changes: BTreeMap<i64, i64>,
    /// Instants with the GPUs in use since then and the GPU-milliseconds up to then.
    steps: Vec<(i64, i64, f64)>,
}

impl Usage {
    fn add(&mut self, from: i64, to: i64, gpus: u32) {
        *self.changes.entry(from).or_default() += i64::from(gpus);
        *self.changes.entry(to).or_default() -= i64::from(gpus);
    }

    fn finish(&mut self) {
        for (at, change) in &self.changes {
            let (gpus, sum) = self.steps.last().map_or((0, 0.0), |(since, gpus, sum)| {
                (*gpus, sum + *gpus as f64 * (at - since) as f64)
            });
            self.steps.push((*at, gpus + change, sum));
        }
    }

    fn until(&self, at: i64) -> f64 {
        let after = self.steps.partition_point(|(since, _, _)| *since <= at);
        after.checked_sub(1).map_or(0.0, |index| {
            let (since, gpus, sum) = self.steps[index];
            sum + gpus as f64 * (at - since) as f64
        })
    }

    fn within(&self, from: i64, to: i64) -> f64 {
        self.until(to) - self.until(from)
    }
}

/// When each tenant had at least one job that waited, as intervals in rising order.
fn backlogs<'a>(
    jobs: &[JobRow],
    tenants: &'a [String],
    run: &Run,
) -> BTreeMap<&'a str, Vec<(i64, i64)>> {
    let mut changes: BTreeMap<&str, BTreeMap<i64, i64>> = BTreeMap::new();
    let mut change = |job: usize, at: i64, by: i64| {
        *changes.entry(&tenants[job]).or_default().entry(at).or_default() += by;
    };
    for (job, row) in jobs.iter().enumerate() {
        change(job, row.submit_ms, 1);
    }
    for stretch in &run.stretches {
        change(stretch.job, stretch.from_ms, -1);
        if stretch.to_ms != run.jobs[stretch.job].finished_ms {
            change(stretch.job, stretch.to_ms, 1);
        }
    }
    let intervals = |changes: BTreeMap<i64, i64>| {
        let (mut waiting, mut since, mut intervals) = (0, 0, Vec::new());
        for (at, by) in changes {
            let before = waiting;
            waiting += by;
            if before == 0 && waiting > 0 {
                since = at;
            } else if before > 0 && waiting == 0 {
                intervals.push((since, at));
            }
        }
        intervals
    };
    changes.into_iter().map(|(tenant, changes)| (tenant, intervals(changes))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Finished, Stretch};
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn job(submit_ms: i64, duration_ms: i64, gpus: u32) -> JobRow {
        JobRow { tenant: None, submit_ms, duration_ms, gpus, resumable: true }
    }

    fn finished(started_ms: i64, finished_ms: i64) -> Finished {
        Finished { started_ms, finished_ms, starts: 1 }
    }

    const ONE_NODE: Cluster = Cluster { nodes: 1, gpus_per_node: 8 };

    #[test]
    fn a_job_that_waits_for_one_rival_is_treated_fairly() {
        // Two jobs that each want everything: half the cluster would take each of them two hours.
        let jobs = [job(0, HOUR, 8), job(0, HOUR, 8)];
        let run =
            Run { jobs: vec![finished(0, HOUR), finished(HOUR, 2 * HOUR)], stretches: vec![] };
        let ratios = fairness(&jobs, ONE_NODE, &run);
        assert_eq!(ratios[0], 0.5);
        // The rival was there for half of the time: 1.5 jobs on average.
        assert!((ratios[1] - 2.0 / 1.5).abs() < 1e-9, "{ratios:?}");
        let figures = figures(&jobs, ONE_NODE, &run);
        assert_eq!((figures.mean_jct_s, figures.makespan_s), (5400.0, 7200.0));
        assert_eq!(figures.unfair_pct, 50.0);
    }

    #[test]
    fn a_job_that_is_alone_is_never_owed_more_than_it_asks_for() {
        let jobs = [job(0, HOUR, 1)];
        let run = Run { jobs: vec![finished(HOUR, 2 * HOUR)], stretches: vec![] };
        assert_eq!(fairness(&jobs, ONE_NODE, &run), [2.0]);
    }

    #[test]
    fn the_share_error_compares_those_who_waited_all_day() {
        let day = 24 * HOUR;
        let jobs = [job(0, day, 5), job(0, day, 3), job(0, HOUR, 8), job(0, HOUR, 8)];
        let tenants = ["a", "b", "a", "b"].map(String::from);
        let stretch = |job, from_ms, to_ms| Stretch { job, from_ms, to_ms };
        let run = Run {
            jobs: vec![
                finished(0, day),
                finished(0, day),
                finished(day, day + HOUR),
                finished(day + HOUR, day + 2 * HOUR),
            ],
            stretches: vec![
                stretch(0, 0, day),
                stretch(1, 0, day),
                stretch(2, day, day + HOUR),
                stretch(3, day + HOUR, day + 2 * HOUR),
            ],
        };
        // Of eight GPUs each was entitled to four: one had five, the other three.
        let errors = share_errors(&jobs, &tenants, &run);
        assert_eq!(errors, BTreeMap::from([("a".into(), 0.25), ("b".into(), 0.25)]));
    }
}
