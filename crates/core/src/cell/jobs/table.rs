//! All jobs of a cell.

use std::ops::Index;

use rustc_hash::FxHashMap;

use super::job::CellJob;
use crate::cell::ids::JobId;

/// Jobs by id. Every step of a pass looks up several, so a hash map is used; iteration is in the
/// order of ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs(FxHashMap<JobId, CellJob>);

impl Jobs {
    pub(crate) fn get(&self, id: &JobId) -> Option<&CellJob> {
        self.0.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &JobId) -> Option<&mut CellJob> {
        self.0.get_mut(id)
    }

    pub(crate) fn contains_key(&self, id: &JobId) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn insert(&mut self, id: JobId, job: CellJob) {
        self.0.insert(id, job);
    }

    pub(crate) fn remove(&mut self, id: &JobId) -> Option<CellJob> {
        self.0.remove(id)
    }

    /// All jobs in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &CellJob)> {
        let mut jobs: Vec<(JobId, &CellJob)> = self.0.iter().map(|(id, job)| (*id, job)).collect();
        jobs.sort_unstable_by_key(|(id, _)| *id);
        jobs.into_iter()
    }

    /// All jobs without their ids, in the same order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &CellJob> {
        self.iter().map(|(_, job)| job)
    }
}

impl Index<&JobId> for Jobs {
    type Output = CellJob;

    fn index(&self, id: &JobId) -> &CellJob {
        &self.0[id]
    }
}
