//! One hash over the whole state of a cell.
//!
//! Every part is written in its derived debug form, in a fixed order, so that a new field is
//! covered automatically. Derived data (counts, queues, claims, states, candidates, profile) is
//! left out; the invariants check it against its source.

use std::fmt::{self, Write};

use super::image::requests;
use super::state::Cell;
use crate::digest::{Digest, Digester};

/// Writes text into a digest, buffered by pages.
struct Sink {
    digester: Digester,
    page: String,
}

const PAGE: usize = 4096;

impl Sink {
    fn part(&mut self, part: impl fmt::Debug) {
        // Writing into a string does not fail.
        let _ = write!(self, "{part:?};");
    }

    fn flush(&mut self) {
        self.digester.bytes(self.page.as_bytes());
        self.page.clear();
    }
}

impl Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.page.push_str(text);
        if self.page.len() >= PAGE {
            self.flush();
        }
        Ok(())
    }
}

impl Cell {
    pub(crate) fn digest_state(&self) -> Digest {
        let mut sink = Sink { digester: Digester::new(), page: String::with_capacity(2 * PAGE) };
        sink.part((&self.config, self.now, &self.marks, &self.told, &self.prices, &self.preempts));
        sink.part((self.models.values(), self.labels.values(), self.racks.values()));
        sink.part((self.shapes.values(), self.requests.values(), &self.demand));
        sink.part(&self.accounts.decay);
        for (_, account) in self.accounts.iter() {
            sink.part((&account.path, account.weight, account.frozen, &account.quota));
            sink.part((account.usage, account.own_usage, requests(&account.blocked)));
        }
        for (id, record) in self.inventory.iter() {
            sink.part((id, &record.offer, &record.node, record.incarnation, record.seq));
            sink.part((record.lease_until, record.alive, record.drained, record.windows));
            sink.part((&record.members, &record.claims));
            if let Some(until) = record.kept_until {
                sink.part(until);
            }
        }
        for job in self.jobs.values() {
            sink.part(job);
        }
        for group in self.groups.iter() {
            sink.part((&group.tenant, &group.name, group.limit));
        }
        for (class, queue) in &self.classes {
            sink.part((class, requests(&queue.parked), requests(&queue.woken)));
            sink.part((queue.since_aged, &queue.unreserved, queue.review));
        }
        sink.part((&self.reservations, &self.hot, &self.ready));
        sink.part((&self.mixed, &self.maintenance, &self.timers, self.idle, self.review_at));
        sink.part((self.victims, self.inventory.next_id(), &self.scopes));
        sink.part(self.inventory.supply().memory_of_models());
        sink.part(&self.requests_done);
        if !self.used_names.is_empty() {
            sink.part(&self.used_names);
        }
        if self.generation > 0 {
            sink.part(self.generation);
        }
        if !self.aside.is_empty() {
            sink.part(&self.aside);
        }
        sink.flush();
        sink.digester.finish()
    }
}
