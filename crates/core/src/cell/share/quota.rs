//! Quotas: limits on what an account and its subtree have at once (law L9).

use bursar_seeded::{Bug, seeded};

use crate::cell::ids::AccountId;
use crate::cell::schedule::shape::ModelId;

/// The limits of one account, with interned models. See `QuotaSpec` for their meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellQuota {
    /// Thousandths per model, in rising order of models.
    pub gpus: Vec<(ModelId, u32)>,
    pub total_gpus: Option<u32>,
    pub running_jobs: Option<u32>,
    pub waiting_jobs: Option<u32>,
}

/// What an account and its subtree have now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct InUse {
    /// Thousandths per model, by model number.
    pub(crate) gpus: Vec<u32>,
    pub(crate) total_gpus: u32,
    pub(crate) running_jobs: u32,
    pub(crate) waiting_jobs: u32,
}

impl InUse {
    /// Whether more than one job waits or runs.
    pub(crate) fn has_several_jobs(&self) -> bool {
        self.running_jobs.saturating_add(self.waiting_jobs) > 1
    }

    /// Thousandths of a model in use.
    pub(crate) fn of_model(&self, model: ModelId) -> u32 {
        self.gpus.get(model.0 as usize).copied().unwrap_or(0)
    }

    /// Adds a job with these GPUs.
    pub(crate) fn take(&mut self, model: Option<ModelId>, thousandths: u32) {
        if let Some(model) = model {
            let index = model.0 as usize;
            if index >= self.gpus.len() {
                self.gpus.resize(index + 1, 0);
            }
            self.gpus[index] += thousandths;
        }
        self.total_gpus += thousandths;
        self.running_jobs += 1;
    }

    /// Removes a job with these GPUs. Overflow checks stay enabled, so giving back twice is
    /// detected.
    pub(crate) fn give(&mut self, model: Option<ModelId>, thousandths: u32) {
        if let Some(model) = model {
            self.gpus[model.0 as usize] -= thousandths;
        }
        self.total_gpus -= thousandths;
        self.running_jobs -= 1;
        if seeded(Bug::GivesQuotaTwice) {
            self.total_gpus = self.total_gpus.saturating_sub(thousandths);
            self.running_jobs = self.running_jobs.saturating_sub(1);
        }
    }
}

/// The limit that blocks a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaLimit {
    /// GPUs of one model, in thousandths.
    Model(ModelId),
    /// GPUs of all models, in thousandths.
    TotalGpus,
    /// Jobs that have GPUs.
    RunningJobs,
}

/// A quota that blocks a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaBlock {
    /// The account that has the quota.
    pub account: AccountId,
    /// The limit that would be exceeded.
    pub limit: QuotaLimit,
    /// The limit.
    pub allowed: u32,
    /// What is in use.
    pub used: u32,
    /// What the job would add.
    pub requested: u32,
}

impl CellQuota {
    pub(crate) fn is_unlimited(&self) -> bool {
        self.gpus.is_empty() && self.total_gpus.is_none() && self.running_jobs.is_none()
    }

    /// The limit for a model.
    fn of_model(&self, model: ModelId) -> Option<u32> {
        self.gpus.iter().find(|(limited, _)| *limited == model).map(|(_, limit)| *limit)
    }

    /// Every limit that one more job with these GPUs would exceed. The use *after* the job is added
    /// counts.
    pub(crate) fn blocks(
        &self,
        account: AccountId,
        in_use: &InUse,
        model: Option<ModelId>,
        thousandths: u32,
    ) -> impl Iterator<Item = QuotaBlock> {
        let of_model = model.and_then(|model| {
            let allowed = self.of_model(model)?;
            Some((QuotaLimit::Model(model), allowed, in_use.of_model(model), thousandths))
        });
        let total = self
            .total_gpus
            .map(|allowed| (QuotaLimit::TotalGpus, allowed, in_use.total_gpus, thousandths));
        let jobs = self
            .running_jobs
            .map(|allowed| (QuotaLimit::RunningJobs, allowed, in_use.running_jobs, 1));
        [of_model, total, jobs].into_iter().flatten().filter_map(
            move |(limit, allowed, used, requested)| {
                (used.saturating_add(requested) > allowed).then_some(QuotaBlock {
                    account,
                    limit,
                    allowed,
                    used,
                    requested,
                })
            },
        )
    }

    /// Whether one more job with these GPUs stays within every limit.
    pub(crate) fn admits(&self, in_use: &InUse, model: Option<ModelId>, thousandths: u32) -> bool {
        self.blocks(AccountId::default(), in_use, model, thousandths).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_the_use_after_the_job_and_names_every_limit_in_the_way() {
        let quota = CellQuota {
            gpus: vec![(ModelId(1), 8000)],
            total_gpus: Some(9000),
            running_jobs: Some(2),
            waiting_jobs: None,
        };
        let mut in_use = InUse::default();
        assert!(quota.admits(&in_use, Some(ModelId(1)), 8000));
        assert!(!quota.admits(&in_use, Some(ModelId(1)), 8001));
        in_use.take(Some(ModelId(1)), 8000);
        in_use.take(None, 0);
        let limits: Vec<_> = quota
            .blocks(AccountId(3), &in_use, Some(ModelId(1)), 2000)
            .map(|block| (block.limit, block.allowed, block.used, block.requested))
            .collect();
        assert_eq!(
            limits,
            [
                (QuotaLimit::Model(ModelId(1)), 8000, 8000, 2000),
                (QuotaLimit::TotalGpus, 9000, 8000, 2000),
                (QuotaLimit::RunningJobs, 2, 2, 1),
            ]
        );
        in_use.give(None, 0);
        assert!(quota.admits(&in_use, Some(ModelId(2)), 1000), "another model has no limit");
    }
}
