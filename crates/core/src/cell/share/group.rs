//! Concurrency groups: a limited number of jobs of a name have GPUs at once (law L9).

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;

use super::lanes::Ticket;
use crate::cell::ids::{AccountId, ClassRank, GroupId, JobId, RequestId};
use crate::cell::index::interner::InternedId;
use crate::cell::jobs::job::CellJob;
use crate::name::AccountPath;
use crate::name_hash::NameMap;

/// Jobs that differ only in their order of submission.
pub(crate) type Kind = (ClassRank, AccountId, RequestId);

/// A concurrency group of a tenant. Without jobs it has no name, and its number is free.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) tenant: AccountPath,
    pub(crate) name: CompactString,
    pub(crate) limit: u32,
    /// Its jobs, in whatever phase.
    jobs: u32,
    /// Jobs that have GPUs.
    pub(crate) active: u32,
    /// Jobs that wait because the group is full.
    held: BTreeMap<Kind, BTreeSet<(Ticket, JobId)>>,
}

impl Group {
    pub(crate) fn is_full(&self) -> bool {
        self.active >= self.limit
    }

    /// Holds a job until the group has room.
    pub(crate) fn hold(&mut self, job: &CellJob) {
        let kind = (job.class(), job.account, job.request);
        self.held.entry(kind).or_default().insert((job.ticket, job.spec.job));
    }

    /// Removes a held job that ends.
    pub(crate) fn forget(&mut self, job: &CellJob) {
        let kind = (job.class(), job.account, job.request);
        if let Some(jobs) = self.held.get_mut(&kind) {
            jobs.remove(&(job.ticket, job.spec.job));
            if jobs.is_empty() {
                self.held.remove(&kind);
            }
        }
    }

    /// Releases jobs to compete for the free places: of each kind as many as there are places, so
    /// that a kind that fits nowhere does not block the others.
    pub(crate) fn release(&mut self) -> Vec<JobId> {
        let free = self.limit.saturating_sub(self.active);
        let mut released = Vec::new();
        self.held.retain(|_, jobs| {
            for _ in 0..free {
                let Some((_, job)) = jobs.pop_first() else { break };
                released.push(job);
            }
            !jobs.is_empty()
        });
        released
    }

    /// How many jobs of each kind are held.
    pub(crate) fn held_kinds(&self) -> impl Iterator<Item = (Kind, usize)> + '_ {
        self.held.iter().map(|(kind, jobs)| (*kind, jobs.len()))
    }

    /// How many jobs it has.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs as usize
    }

    /// All jobs that are held.
    pub(crate) fn held(&self) -> impl Iterator<Item = JobId> + '_ {
        self.held.values().flatten().map(|(_, job)| *job)
    }
}

/// All groups that have jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    by_name: NameMap<(AccountPath, CompactString), GroupId>,
    /// Numbers of groups without jobs. The lowest is used next.
    free: BTreeSet<GroupId>,
}

impl Groups {
    /// Adds a job to a group of a tenant. The limit given last applies.
    pub(crate) fn enter(&mut self, tenant: &str, name: &CompactString, limit: u32) -> GroupId {
        let key = (AccountPath::unchecked(tenant), name.clone());
        let id = match self.by_name.get(&key) {
            Some(id) => *id,
            None => self.make(key),
        };
        let group = &mut self.groups[id.index()];
        (group.limit, group.jobs) = (limit, group.jobs + 1);
        id
    }

    fn make(&mut self, key: (AccountPath, CompactString)) -> GroupId {
        let id = self.free.pop_first().unwrap_or_else(|| {
            self.groups.push(Group::default());
            GroupId(u32::try_from(self.groups.len() - 1).expect("fewer than 2^32 groups"))
        });
        let group = &mut self.groups[id.index()];
        (group.tenant, group.name) = key.clone();
        self.by_name.insert(key, id);
        id
    }

    /// Removes a job, which neither waits nor has GPUs. The group is dropped with its last job.
    pub(crate) fn leave(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        group.jobs -= 1;
        if group.jobs == 0 {
            self.drop_group(id);
        }
    }

    fn drop_group(&mut self, id: GroupId) {
        let Group { tenant, name, .. } = std::mem::take(&mut self.groups[id.index()]);
        self.by_name.remove(&(tenant, name));
        self.free.insert(id);
    }

    /// Restores a group under the next number. Returns whether there was none of this name.
    pub(crate) fn restore(&mut self, tenant: AccountPath, name: CompactString, limit: u32) -> bool {
        let id = GroupId(u32::try_from(self.groups.len()).expect("fewer than 2^32 groups"));
        self.groups.push(Group { limit, ..Group::default() });
        if tenant.is_empty() {
            self.free.insert(id);
            return true;
        }
        let group = &mut self.groups[id.index()];
        (group.tenant, group.name) = (tenant.clone(), name.clone());
        self.by_name.insert((tenant, name), id).is_none()
    }

    /// Counts a restored job.
    pub(crate) fn restore_member(&mut self, id: GroupId) {
        self.groups[id.index()].jobs += 1;
    }

    /// Drops the groups without jobs.
    pub(crate) fn free_unused(&mut self) {
        for (index, group) in (0..).zip(&self.groups) {
            if group.jobs == 0 {
                self.free.insert(GroupId(index));
            }
        }
        for id in self.free.clone() {
            self.drop_group(id);
        }
    }

    pub(crate) fn get(&self, id: GroupId) -> &Group {
        &self.groups[id.index()]
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.index()]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }
}
