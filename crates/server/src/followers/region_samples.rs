//! Figures of a region over time, sampled from the copy that follows its cell.
//!
//! A sample holds the figures at the end of a minute, by the cell's own time. Older samples are
//! thinned. They are kept in memory: after a restart they begin anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bursar_core::cell::Cell;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;

use crate::auth::Principal;

/// The distance of samples, in milliseconds, and how many are kept: a day, two weeks, 100 days.
const LEVELS: [(i64, usize); 3] = [(60_000, 1_560), (600_000, 2_160), (3_600_000, 2_400)];
/// The most accounts of one sample, those of larger subtrees first.
const MAX_ACCOUNTS: usize = 256;
/// The most scopes of nodes of one sample: that of the platform's nodes, then those with most GPUs.
const MAX_SCOPES: usize = 256;

/// GPUs of nodes with one scope, in thousandths.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuCounts {
    /// What jobs have.
    pub(crate) allocated: u64,
    /// What ready nodes have in total.
    pub(crate) usable: u64,
}

impl GpuCounts {
    fn plus(self, more: GpuCounts) -> GpuCounts {
        let (allocated, usable) = (self.allocated + more.allocated, self.usable + more.usable);
        GpuCounts { allocated, usable }
    }
}

/// Removes all but so many scopes, and returns the sum of those removed.
fn cut_scopes(gpus: &mut BTreeMap<Option<AccountPath>, GpuCounts>) -> GpuCounts {
    let mut other = GpuCounts::default();
    if gpus.len() > MAX_SCOPES {
        let mut scopes: Vec<_> = std::mem::take(gpus).into_iter().collect();
        scopes.sort_by_key(|(scope, counts)| {
            (scope.is_some(), std::cmp::Reverse((counts.usable, counts.allocated)))
        });
        let cut = scopes.split_off(MAX_SCOPES);
        other = cut.iter().fold(other, |sum, (_, counts)| sum.plus(*counts));
        gpus.extend(scopes);
    }
    other
}

/// Jobs at and below one account.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    pub(crate) running: u32,
    pub(crate) waiting: u32,
}

/// The figures of a region at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegionSample {
    at: Timestamp,
    /// By the scope of the nodes; `None` are nodes for all accounts.
    gpus: BTreeMap<Option<AccountPath>, GpuCounts>,
    /// GPUs of the nodes with other scopes, which only the platform sees.
    other_gpus: GpuCounts,
    /// All jobs.
    jobs: JobCounts,
    /// Accounts with jobs.
    accounts: BTreeMap<AccountPath, JobCounts>,
    /// Whether there were more accounts.
    is_cut: bool,
}

impl RegionSample {
    /// The present figures of a cell.
    pub(crate) fn take(cell: &Cell, at: Timestamp) -> RegionSample {
        let mut gpus: BTreeMap<Option<AccountPath>, GpuCounts> = BTreeMap::new();
        for view in cell.nodes() {
            let counts = gpus.entry(view.offer.scope.clone()).or_default();
            for free in view.free.iter().map(|free| u64::from(*free)) {
                counts.allocated += 1000 - free.min(1000);
                counts.usable += if view.is_open() { 1000 } else { 0 };
            }
        }
        let other_gpus = cut_scopes(&mut gpus);
        let (running, waiting) = cell.job_counts();
        let mut busy = cell.busy_accounts();
        let accounts: BTreeMap<AccountPath, JobCounts> = busy
            .by_ref()
            .take(MAX_ACCOUNTS)
            .map(|(path, (running, waiting))| (path.into(), JobCounts { running, waiting }))
            .collect();
        let is_cut = busy.next().is_some();
        let jobs = JobCounts { running, waiting };
        RegionSample { at, gpus, other_gpus, jobs, accounts, is_cut }
    }

    /// GPUs of the nodes that a caller can see.
    pub(crate) fn gpus_seen(&self, principal: &Principal) -> GpuCounts {
        let seen = self.gpus.iter().filter(|(scope, _)| principal.sees_node(scope.as_deref()));
        let all = principal.scope.is_none();
        let other = if all { self.other_gpus } else { GpuCounts::default() };
        seen.fold(other, |sum, (_, counts)| sum.plus(*counts))
    }

    /// Jobs in the scope of a caller; `None` if they were not recorded.
    pub(crate) fn jobs_of(&self, principal: &Principal) -> Option<JobCounts> {
        let Some(scope) = &principal.scope else { return Some(self.jobs) };
        let none = (!self.is_cut).then(JobCounts::default);
        self.accounts.get(scope).copied().or(none)
    }
}

/// The samples of a region.
#[derive(Debug, Default)]
pub(crate) struct RegionSamples {
    levels: [VecDeque<Arc<RegionSample>>; 3],
    /// The minute of the last record.
    minute: Option<i64>,
}

impl RegionSamples {
    /// Called before a record is applied: the cell is as it was since its last record.
    pub(crate) fn before(&mut self, cell: &Cell, at: Timestamp) {
        let (step, _) = LEVELS[0];
        let minute = at.millis().div_euclid(step);
        let Some(last) = self.minute.replace(minute) else { return };
        if minute > last {
            let end = Timestamp::from_millis((last + 1) * step);
            self.add(RegionSample::take(cell, end));
        }
    }

    fn add(&mut self, sample: RegionSample) {
        let sample = Arc::new(sample);
        for (samples, (step, most)) in self.levels.iter_mut().zip(LEVELS) {
            let part = |sample: &RegionSample| sample.at.millis().div_euclid(step);
            // Of each part of time the first sample is kept.
            if samples.back().is_some_and(|last| part(last) == part(&sample)) {
                continue;
            }
            samples.push_back(Arc::clone(&sample));
            if samples.len() > most {
                samples.pop_front();
            }
        }
    }

    /// The last sample at or before an instant.
    pub(crate) fn at(&self, at: Timestamp) -> Option<Arc<RegionSample>> {
        self.levels.iter().find_map(|samples| {
            let after = samples.partition_point(|sample| sample.at <= at);
            after.checked_sub(1).map(|last| Arc::clone(&samples[last]))
        })
    }

    /// From this instant on the figures are those of the cell itself.
    pub(crate) fn present_from(&self) -> Option<Timestamp> {
        self.minute.map(|minute| Timestamp::from_millis(minute * LEVELS[0].0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minute: i64) -> RegionSample {
        let at = Timestamp::from_millis(minute * 60_000);
        RegionSample { at, ..RegionSample::take(&Cell::new(), at) }
    }

    #[test]
    fn samples_are_thinned_and_bounded() {
        let mut samples = RegionSamples::default();
        let days = 120;
        for minute in 0..days * 24 * 60 {
            samples.add(sample(minute));
        }
        for (level, (_, most)) in samples.levels.iter().zip(LEVELS) {
            assert_eq!(level.len(), most);
        }
        let found = |minute: i64| {
            let at = Timestamp::from_millis(minute * 60_000 + 30_000);
            samples.at(at).map(|sample| sample.at.millis() / 60_000)
        };
        let last = days * 24 * 60 - 1;
        assert_eq!(found(last), Some(last));
        assert_eq!(found(last - 1_000), Some(last - 1_000));
        let old = last - 5 * 24 * 60;
        assert_eq!(found(old), Some(old - old % 10));
        let older = last - 90 * 24 * 60;
        assert_eq!(found(older), Some(older - older % 60));
        assert_eq!(found(0), None);
    }

    #[test]
    fn a_sample_has_so_many_scopes_of_nodes_and_the_platform_sees_all_gpus() {
        let count = |usable| GpuCounts { allocated: 500, usable };
        let mut gpus: BTreeMap<Option<AccountPath>, GpuCounts> = BTreeMap::new();
        gpus.insert(None, count(1000));
        for number in 0..1000u64 {
            let scope = AccountPath::unchecked(format!("t{number}"));
            gpus.insert(Some(scope), count(2000 + number));
        }
        let all = gpus.values().fold(GpuCounts::default(), |sum, counts| sum.plus(*counts));
        let mut sample = sample(1);
        sample.other_gpus = cut_scopes(&mut gpus);
        sample.gpus = gpus;
        assert_eq!(sample.gpus.len(), MAX_SCOPES);
        assert!(sample.gpus.contains_key(&None), "the platform's nodes are kept");
        assert_eq!(sample.gpus_seen(&Principal::root()), all);
        let tenant = |scope: &str| Principal { scope: Some(scope.into()), ..Principal::root() };
        assert_eq!(sample.gpus_seen(&tenant("t999")), count(1000).plus(count(2999)));
        assert_eq!(sample.gpus_seen(&tenant("t0")), count(1000), "it was not recorded");
    }

    #[test]
    fn a_record_in_a_later_minute_samples_the_state_before_it() {
        let (mut samples, cell) = (RegionSamples::default(), Cell::new());
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        samples.before(&cell, at(10));
        samples.before(&cell, at(50));
        assert!(samples.at(at(1_000)).is_none());
        samples.before(&cell, at(200));
        assert_eq!(samples.at(at(1_000)).map(|sample| sample.at), Some(at(60)));
        assert!(samples.at(at(59)).is_none());
        assert_eq!(samples.present_from(), Some(at(180)));
    }
}
