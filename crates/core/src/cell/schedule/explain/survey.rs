//! Finds what makes a job wait: the policy of its accounts, and the nodes.

use super::PlacementBlocker;
use crate::cell::command::FundsBlocker;
use crate::cell::ids::JobId;
use crate::cell::jobs::job::{CellJob, Waiting, when_free};
use crate::cell::share::quota::QuotaLimit;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// How many nodes could serve a job, by what is in the way.
#[derive(Default)]
struct Survey {
    of_model: u32,
    /// The most GPUs of a node of an accepted model.
    most_gpus: u16,
    suitable: u32,
    available: u32,
    closed: u32,
    /// Closed nodes whose lease ended.
    lost: u32,
    /// Suitable nodes whose scope excludes the job's account.
    foreign: u32,
    claims: Vec<(Option<JobId>, Timestamp)>,
}

impl Cell {
    /// Blockers that no node can remove: funds, frozen accounts, groups, quotas and delays.
    pub(super) fn push_policy_blockers(
        &self,
        job: &CellJob,
        waiting: Waiting,
        blockers: &mut Vec<PlacementBlocker>,
    ) {
        match waiting {
            Waiting::Funds(FundsBlocker::Credits) => blockers.push(PlacementBlocker::Credits),
            Waiting::Funds(FundsBlocker::Budget) => blockers.push(PlacementBlocker::Budget),
            Waiting::Funds(FundsBlocker::Frozen) => {
                blockers.push(PlacementBlocker::Frozen { account: None });
            }
            Waiting::Delayed(until) if until < when_free() => {
                blockers.push(PlacementBlocker::Delayed { until });
            }
            Waiting::Delayed(_)
            | Waiting::Competing
            | Waiting::Group
            | Waiting::Nominated
            | Waiting::Moving => {}
        }
        for id in self.accounts.path(job.account) {
            let account = self.accounts.get(id);
            if account.frozen {
                blockers.push(PlacementBlocker::Frozen { account: Some(account.path.clone()) });
            }
        }
        if let Some(group) = job.group.map(|group| self.groups.get(group))
            && group.is_full()
        {
            let (name, limit, active) = (group.name.clone(), group.limit, group.active);
            blockers.push(PlacementBlocker::Group { name, limit, active });
        }
        let shape = self.shapes.get(job.shape);
        let mut blocks: Vec<_> = self
            .models_of(&shape.models, shape.gpu.devices())
            .flat_map(|model| self.quota_blocks(job, model))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        for block in blocks {
            let model = match block.limit {
                QuotaLimit::Model(model) => Some(self.models.get(model).clone()),
                QuotaLimit::TotalGpus | QuotaLimit::RunningJobs => None,
            };
            blockers.push(PlacementBlocker::Quota {
                account: self.accounts.get(block.account).path.clone(),
                model,
                jobs: block.limit == QuotaLimit::RunningJobs,
                limit: block.allowed,
                used: block.used,
                requested: block.requested,
            });
        }
    }

    /// Blockers on nodes. None if enough nodes have room.
    pub(super) fn push_room_blockers(
        &self,
        now: Timestamp,
        job: &CellJob,
        blockers: &mut Vec<PlacementBlocker>,
    ) {
        let survey = self.survey(now, job);
        let wanted = u32::from(job.spec.nodes);
        let Survey { of_model, most_gpus, suitable, available, closed, lost, foreign, claims } =
            survey;
        if available >= wanted {
            return;
        }
        if suitable < wanted && foreign > 0 {
            let (account, models) = (job.spec.account.clone(), job.spec.models.to_vec());
            blockers.push(PlacementBlocker::Scope { account, models });
            if of_model == 0 {
                return;
            }
        }
        if of_model == 0 {
            let models = job.spec.models.to_vec();
            return blockers.push(PlacementBlocker::GpuType { models });
        }
        let needed = self.shapes.get(job.shape).gpu.devices();
        if needed > most_gpus {
            let models = job.spec.models.to_vec();
            return blockers.push(PlacementBlocker::GpuCount {
                wanted: needed,
                most: most_gpus,
                models,
            });
        }
        if suitable == 0 {
            return blockers.push(PlacementBlocker::Memory { nodes: of_model });
        }
        if suitable < wanted {
            return blockers.push(PlacementBlocker::Gang { wanted, available: suitable });
        }
        blockers.push(PlacementBlocker::Capacity { wanted, available, suitable });
        if wanted > 1 && available > 0 {
            blockers.push(PlacementBlocker::Gang { wanted, available });
        }
        if closed > lost {
            blockers.push(PlacementBlocker::Drain { nodes: closed - lost });
        }
        if lost > 0 {
            blockers.push(PlacementBlocker::Lost { nodes: lost });
        }
        for (job, from) in claims {
            blockers.push(PlacementBlocker::Reservation { job, from });
        }
    }

    fn survey(&self, now: Timestamp, job: &CellJob) -> Survey {
        let shape = self.shapes.get(job.shape);
        let visit = self.visit(now, job, job.may_be_guest());
        let mut survey = Survey::default();
        for (_, record) in self.inventory.iter() {
            let node = &record.node;
            if !node.admits(shape) {
                survey.foreign += u32::from(node.could_serve(shape));
                continue;
            }
            if shape.allows(node.model()) {
                survey.of_model += 1;
                survey.most_gpus = survey.most_gpus.max(node.spec().gpus);
            }
            if !node.could_ever_fit(shape) {
                continue;
            }
            survey.suitable += 1;
            if !record.is_open() {
                // Counted with or without room: it takes no new work after its attempts have ended.
                survey.closed += 1;
                survey.lost += u32::from(!record.alive);
            } else if !node.has_room(shape) {
                // The node is full; there is no other blocker to report.
            } else if record.allows(&visit) {
                survey.available += 1;
            } else {
                let claims = record.claims.iter().filter(|claim| !claim.allows(&visit));
                survey.claims.extend(claims.map(|claim| (claim.job, claim.from)));
            }
        }
        survey.claims.sort_unstable();
        survey.claims.dedup();
        survey
    }
}
