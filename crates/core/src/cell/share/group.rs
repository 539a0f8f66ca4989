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

/// A concurrency group of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) tenant: AccountPath,
    pub(crate) name: CompactString,
    pub(crate) limit: u32,
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

    /// All jobs that are held.
    pub(crate) fn held(&self) -> impl Iterator<Item = JobId> + '_ {
        self.held.values().flatten().map(|(_, job)| *job)
    }
}

/// All groups that this cell knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    by_name: NameMap<(AccountPath, CompactString), GroupId>,
}

impl Groups {
    /// The group of a tenant. The limit given last applies.
    pub(crate) fn ensure(&mut self, tenant: &str, name: &CompactString, limit: u32) -> GroupId {
        let key = (AccountPath::unchecked(tenant), name.clone());
        if let Some(id) = self.by_name.get(&key) {
            self.groups[id.index()].limit = limit;
            return *id;
        }
        let id = GroupId(u32::try_from(self.groups.len()).expect("fewer than 2^32 groups"));
        self.groups.push(Group {
            tenant: key.0.clone(),
            name: key.1.clone(),
            limit,
            active: 0,
            held: BTreeMap::new(),
        });
        self.by_name.insert(key, id);
        id
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
