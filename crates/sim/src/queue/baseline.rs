//! Policies to compare with: two that know how long each job will run, and one that does not. At
//! every arrival and every end the whole cluster is allocated again, the most urgent job first. A
//! job without an allocation waits.

use super::{Cluster, Finished, Run, RunInterval};
use crate::traces::JobRow;

/// The order of urgency.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Baseline {
    /// Shortest remaining time first.
    Srtf,
    /// Shortest remaining service first: time multiplied by GPUs.
    Srsf,
    /// Least attained service first, in levels as in Tiresias. Does not know durations.
    Las,
}

/// GPU-milliseconds at which a job moves to the next level of [`Baseline::Las`]. They are of the
/// order of those in published simulators; the results were not compared with these.
const LEVELS: [i64; 2] = [3_250_000, 7_200_000];

/// A job that was submitted and has not finished.
struct Active {
    job: usize,
    remaining_ms: i64,
    /// When the current run started.
    running: Option<i64>,
    started_ms: Option<i64>,
    starts: u32,
}

impl Active {
    /// The GPU-milliseconds that it has received.
    fn attained(&self, row: &JobRow) -> i64 {
        (row.duration_ms - self.remaining_ms) * i64::from(row.gpus)
    }

    /// Its level; 0 is the most urgent.
    fn level(&self, row: &JobRow) -> usize {
        LEVELS.iter().filter(|level| **level <= self.attained(row)).count()
    }

    /// The running time until it moves to the next level, if there is one.
    fn time_to_next_level(&self, row: &JobRow) -> Option<i64> {
        let level = LEVELS.get(self.level(row))?;
        let gpus = i64::from(row.gpus);
        Some((level - self.attained(row) + gpus - 1) / gpus)
    }
}

/// Runs a trace. Every job must fit on the cluster: see [`super::first_impossible`].
pub fn run(jobs: &[JobRow], cluster: Cluster, baseline: Baseline) -> Run {
    let mut finished: Vec<Option<Finished>> = vec![None; jobs.len()];
    let mut stretches = Vec::new();
    let mut active: Vec<Active> = Vec::new();
    let mut arrivals = jobs.iter().enumerate().peekable();
    let mut now = 0;
    loop {
        while let Some((job, row)) = arrivals.next_if(|(_, row)| row.submit_ms <= now) {
            let remaining_ms = row.duration_ms;
            active.push(Active { job, remaining_ms, running: None, started_ms: None, starts: 0 });
        }
        reallocate(&mut active, jobs, cluster, baseline, now, &mut stretches);
        let next_end =
            active.iter().filter(|job| job.running.is_some()).map(|job| job.remaining_ms);
        let next_end = next_end.min().map(|remaining| now + remaining);
        let next_arrival = arrivals.peek().map(|(_, row)| row.submit_ms);
        let running = active.iter().filter(|job| job.running.is_some());
        let level_changes = running.filter_map(|job| job.time_to_next_level(&jobs[job.job]));
        let next_level_change =
            level_changes.min().filter(|_| baseline == Baseline::Las).map(|wait| now + wait);
        let candidates = next_end.into_iter().chain(next_arrival).chain(next_level_change);
        let Some(next) = candidates.min() else { break };
        for job in active.iter_mut().filter(|job| job.running.is_some()) {
            job.remaining_ms -= next - now;
        }
        now = next;
        active.retain(|job| {
            if job.remaining_ms > 0 {
                return true;
            }
            let from_ms = job.running.expect("only running jobs finish");
            stretches.push(RunInterval { job: job.job, from_ms, to_ms: now });
            let started_ms = job.started_ms.unwrap_or(now);
            finished[job.job] = Some(Finished { started_ms, finished_ms: now, starts: job.starts });
            false
        });
    }
    let jobs = finished.into_iter().map(|job| job.expect("every job finishes")).collect();
    Run { jobs, stretches }
}

/// Allocates the cluster again.
fn reallocate(
    active: &mut [Active],
    jobs: &[JobRow],
    cluster: Cluster,
    baseline: Baseline,
    now: i64,
    stretches: &mut Vec<RunInterval>,
) {
    active.sort_by_key(|active| {
        let urgency = match baseline {
            Baseline::Srtf => i128::from(active.remaining_ms),
            Baseline::Srsf => i128::from(active.remaining_ms) * i128::from(jobs[active.job].gpus),
            Baseline::Las => active.level(&jobs[active.job]) as i128,
        };
        (urgency, active.job)
    });
    let mut free: Vec<u16> = (0..cluster.nodes).map(|_| cluster.gpus_per_node).collect();
    for active in active {
        let (nodes, gpus) = cluster.gang(jobs[active.job].gpus).expect("every job can run");
        let runs = take(&mut free, nodes, gpus);
        match (active.running, runs) {
            (None, true) => {
                active.running = Some(now);
                active.starts += 1;
                active.started_ms = active.started_ms.or(Some(now));
            }
            (Some(from_ms), false) => {
                stretches.push(RunInterval { job: active.job, from_ms, to_ms: now });
                active.running = None;
            }
            (Some(_), true) | (None, false) => {}
        }
    }
}

/// Takes GPUs on the fullest nodes with room, if there are enough.
fn take(free: &mut [u16], nodes: u16, gpus: u16) -> bool {
    let mut fitting: Vec<usize> = (0..free.len()).filter(|node| free[*node] >= gpus).collect();
    fitting.sort_by_key(|node| free[*node]);
    let Some(chosen) = fitting.get(..usize::from(nodes)) else { return false };
    for node in chosen {
        free[*node] -= gpus;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit_ms: i64, duration_ms: i64, gpus: u32) -> JobRow {
        JobRow { tenant: None, submit_ms, duration_ms, gpus, resumable: true, max_runtime_ms: None }
    }

    const TWO_NODES: Cluster = Cluster { nodes: 2, gpus_per_node: 8 };

    fn ends(jobs: &[JobRow], baseline: Baseline) -> Vec<i64> {
        run(jobs, TWO_NODES, baseline).jobs.iter().map(|job| job.finished_ms).collect()
    }

    #[test]
    fn the_shortest_job_goes_first_and_interrupts_longer_ones() {
        let jobs = [job(0, 100, 16), job(10, 20, 16), job(10, 5, 16)];
        assert_eq!(ends(&jobs, Baseline::Srtf), [125, 35, 15]);
    }

    #[test]
    fn service_counts_gpus() {
        let jobs = [job(0, 10, 16), job(0, 12, 1), job(0, 12, 1)];
        assert_eq!(ends(&jobs, Baseline::Srtf), [10, 22, 22]);
        assert_eq!(ends(&jobs, Baseline::Srsf), [22, 12, 12]);
    }

    #[test]
    fn a_job_at_a_lower_level_waits_for_jobs_with_less_service() {
        let hour = 3_600_000;
        // The first job reaches the first level after a sixteenth of 3 250 s, and the second after
        // 450 s of its own.
        let jobs = [job(0, hour, 16), job(1000, 300_000, 16), job(2000, 100_000, 16)];
        assert_eq!(ends(&jobs, Baseline::Las), [hour + 400_000, 850_000, 506_250]);
    }

    #[test]
    fn a_job_never_spreads_over_partly_used_nodes() {
        let jobs = [job(0, 10, 5), job(0, 11, 5), job(0, 12, 6)];
        assert_eq!(ends(&jobs, Baseline::Srtf), [10, 11, 22]);
    }
}
