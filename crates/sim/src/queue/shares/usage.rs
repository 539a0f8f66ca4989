//! The usage, the demand and the waiting jobs of tenants over time.

use std::collections::BTreeMap;

use crate::queue::Run;
use crate::traces::JobRow;

/// The GPUs that each tenant used.
pub(super) fn usage<'a>(
    jobs: &[JobRow],
    tenants: &'a [String],
    run: &Run,
) -> BTreeMap<&'a str, Usage> {
    let mut usage: BTreeMap<&str, Usage> = BTreeMap::new();
    for stretch in &run.stretches {
        let gpus = jobs[stretch.job].gpus;
        usage.entry(&tenants[stretch.job]).or_default().add(stretch.from_ms, stretch.to_ms, gpus);
    }
    usage.values_mut().for_each(Usage::finish);
    usage
}

/// The GPUs that the unfinished jobs of each tenant request.
pub(super) fn demand<'a>(
    jobs: &[JobRow],
    tenants: &'a [String],
    run: &Run,
) -> BTreeMap<&'a str, Usage> {
    let mut demand: BTreeMap<&str, Usage> = BTreeMap::new();
    for (job, row) in jobs.iter().enumerate() {
        let of_tenant = demand.entry(&tenants[job]).or_default();
        of_tenant.add(row.submit_ms, run.jobs[job].finished_ms, row.gpus);
    }
    demand.values_mut().for_each(Usage::finish);
    demand
}

/// GPUs of a tenant over time, with sums, so that any window takes two look-ups.
#[derive(Default)]
pub(super) struct Usage {
    /// Changes of the number of GPUs.
    changes: BTreeMap<i64, i64>,
    /// Instants with the number from then on and the GPU-milliseconds up to then.
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

    /// The last instant with a change.
    pub(super) fn end(&self) -> i64 {
        self.steps.last().map_or(0, |(at, ..)| *at)
    }

    fn until(&self, at: i64) -> f64 {
        let after = self.steps.partition_point(|(since, _, _)| *since <= at);
        after.checked_sub(1).map_or(0.0, |index| {
            let (since, gpus, sum) = self.steps[index];
            sum + gpus as f64 * (at - since) as f64
        })
    }

    pub(super) fn within(&self, from: i64, to: i64) -> f64 {
        self.until(to) - self.until(from)
    }
}

/// When each job starts (1) and stops (−1) waiting.
fn waits(jobs: &[JobRow], run: &Run) -> Vec<(i64, usize, i64)> {
    let submitted = jobs.iter().enumerate().map(|(job, row)| (row.submit_ms, job, 1));
    let started = run.stretches.iter().map(|stretch| (stretch.from_ms, stretch.job, -1));
    let stopped =
        run.stretches.iter().filter(|stretch| stretch.to_ms != run.jobs[stretch.job].finished_ms);
    let stopped = stopped.map(|stretch| (stretch.to_ms, stretch.job, 1));
    submitted.chain(started).chain(stopped).collect()
}

/// When each tenant had at least one waiting job, as intervals in ascending order.
pub(super) fn backlogs<'a>(
    jobs: &[JobRow],
    tenants: &'a [String],
    run: &Run,
) -> BTreeMap<&'a str, Vec<(i64, i64)>> {
    let mut changes: BTreeMap<&str, BTreeMap<i64, i64>> = BTreeMap::new();
    for (at, job, by) in waits(jobs, run) {
        *changes.entry(&tenants[job]).or_default().entry(at).or_default() += by;
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

/// The GPUs of the smallest waiting job of each tenant, in the order of `names`, which must be
/// sorted, at each of these instants.
pub(super) fn smallest_waiting(
    jobs: &[JobRow],
    tenants: &[String],
    run: &Run,
    names: &[&str],
    instants: impl Iterator<Item = i64>,
) -> Vec<Vec<Option<u32>>> {
    let mut changes = waits(jobs, run);
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let mut waiting: Vec<BTreeMap<u32, i64>> = vec![BTreeMap::new(); names.len()];
    instants
        .map(|instant| {
            while let Some((_, job, by)) = changes.next_if(|(at, ..)| *at <= instant) {
                let tenant = names
                    .binary_search(&tenants[job].as_str())
                    .expect("`names` is sorted and complete");
                *waiting[tenant].entry(jobs[job].gpus).or_insert(0) += by;
            }
            let smallest = |of: &BTreeMap<u32, i64>| {
                of.iter().find(|(_, count)| **count > 0).map(|(gpus, _)| *gpus)
            };
            waiting.iter().map(smallest).collect()
        })
        .collect()
}
