//! Concurrency groups: at most so many jobs of a name have GPUs at once (law L9).

use std::collections::{BTreeMap, BTreeSet};

use compact_str::CompactString;

use super::lanes::Ticket;
use crate::cell::ids::{AccountId, ClassRank, GroupId, JobId, RequestId};
use crate::cell::index::interner::InternedId;
use crate::cell::jobs::job::Job;
use crate::name_hash::NameMap;

/// Jobs that are alike for everything but the order in which they were submitted.
pub(crate) type Kind = (ClassRank, AccountId, RequestId);

/// A group of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) tenant: CompactString,
    pub(crate) name: CompactString,
    pub(crate) limit: u32,
    /// Jobs that have GPUs.
    pub(crate) active: u32,
    /// Jobs that found the group full.
    held: BTreeMap<Kind, BTreeSet<(Ticket, JobId)>>,
}

impl Group {
    pub(crate) fn is_full(&self) -> bool {
        self.active >= self.limit
    }

    /// Keeps a job until there is a place.
    pub(crate) fn hold(&mut self, job: &Job) {
        let kind = (job.class(), job.account, job.request);
        self.held.entry(kind).or_default().insert((job.ticket, job.spec.job));
    }

    /// Lets go of a job that ends while it is held.
    pub(crate) fn forget(&mut self, job: &Job) {
        let kind = (job.class(), job.account, job.request);
        if let Some(jobs) = self.held.get_mut(&kind) {
            jobs.remove(&(job.ticket, job.spec.job));
            if jobs.is_empty() {
                self.held.remove(&kind);
            }
        }
    }

    /// The jobs that may compete for the places that are free: of each kind as many as there are
    /// places, so that one that fits nowhere does not keep the others out.
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

/// All groups that this cell has heard of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    by_name: NameMap<(CompactString, CompactString), GroupId>,
}

impl Groups {
    /// The group of a tenant, with the limit that was named last.
    pub(crate) fn ensure(&mut self, tenant: &str, name: &CompactString, limit: u32) -> GroupId {
        let key = (CompactString::from(tenant), name.clone());
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
