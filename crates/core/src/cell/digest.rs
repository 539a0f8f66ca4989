//! One hash over the whole state of a cell.
//!
//! Every part is fed by its hash, in a fixed order. Accounts, nodes, groups and classes are fed field by
//! field, because some of their fields are derived: a new field must be added here. Derived data (counts, queues, claims, states, candidates, profile) is
//! left out; the invariants check it against its source.

use super::image::requests;
use super::state::Cell;
use crate::digest::{Digest, Digester};

impl Cell {
    pub(crate) fn digest_state(&self) -> Digest {
        let mut digester = Digester::new();
        digester.value((
            &self.config,
            self.now,
            &self.marks,
            &self.sent,
            &self.prices,
            &self.preempts,
        ));
        digester.value((self.models.values(), self.labels.values(), self.racks.values()));
        digester.value((self.shapes.values(), self.requests.values(), &self.demand));
        digester.value(&self.accounts.decay);
        for (_, account) in self.accounts.iter() {
            digester.value((&account.path, account.weight, account.frozen, &account.quota));
            digester.value((account.usage, account.own_usage, requests(&account.blocked)));
        }
        for (id, record) in self.inventory.iter() {
            digester.value((id, &record.offer, &record.node, record.incarnation, record.seq));
            digester.value((record.lease_until, record.alive, record.drained, record.windows));
            digester.value((&record.attempts, &record.claims));
            digester.value(record.kept_until);
        }
        for job in self.jobs.values() {
            digester.value(job);
        }
        for group in self.groups.iter() {
            digester.value((&group.tenant, &group.name, group.limit));
        }
        for (class, queue) in &self.classes {
            digester.value((class, requests(&queue.parked), requests(&queue.woken)));
            digester.value((queue.since_aged, &queue.unreserved, queue.review));
        }
        digester.value((&self.reservations, &self.hot, &self.ready));
        digester.value((&self.mixed, &self.maintenance, &self.timers, self.idle, self.review_at));
        digester.value((self.victims, self.inventory.next_id(), &self.scopes));
        digester.value(self.inventory.supply().memory_of_models());
        digester.value(&self.requests_done);
        digester.value((&self.used_names, self.generation, &self.aside));
        // Stores that never had one keep their digests.
        if !self.left_drained.is_empty() {
            digester.value(&self.left_drained);
        }
        if !self.removed_incarnations.is_empty() {
            digester.value(&self.removed_incarnations);
        }
        if !self.used_demands.is_empty() {
            digester.value(&self.used_demands);
        }
        digester.finish()
    }
}
