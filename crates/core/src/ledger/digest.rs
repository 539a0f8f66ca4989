//! One hash over a whole ledger: equal on replicas, after replay, and after a group was undone.
//!
//! Everything that decisions read is fed, in an order that does not depend on hashing. Derived
//! indexes are not fed; the invariant checks cover them.

use fefo::Span;

use super::accounts::account::Account;
use super::accounts::budget::Budget;
use super::credits::bucket::Bucket;
use super::credits::grant::Grant;
use super::holds::hold::Hold;
use super::index::idempotency::Entry;
use super::state::{Ledger, Movement};
use crate::digest::{Digest, Digester};
use crate::time::Timestamp;

/// Feeds the debug form of a value without amounts of its own: settings, terms, answers.
fn feed_form(digester: &mut Digester, form: &impl std::fmt::Debug) {
    digester.bytes(format!("{form:?}").as_bytes());
}

fn feed_time(digester: &mut Digester, at: Option<Timestamp>) {
    digester.integer(at.map_or(i128::MAX, |at| i128::from(at.millis())));
}

impl Ledger {
    pub(super) fn state_digest(&self) -> Digest {
        let mut digester = Digester::new();
        feed_time(&mut digester, Some(self.now));
        feed_form(&mut digester, &self.policy);
        self.accounts.iter().for_each(|account| account.feed(&mut digester));
        self.grants.iter().for_each(|grant| grant.feed(&mut digester));
        self.buckets.iter().for_each(|bucket| bucket.feed(&mut digester));
        for (number, hold) in self.holds.iter() {
            digester.integer(number.into());
            hold.feed(&mut digester);
        }
        feed_form(&mut digester, &self.holds.free_places());
        for (number, movement) in self.movements.iter() {
            digester.integer(number.into());
            movement.feed(&mut digester);
        }
        feed_form(&mut digester, &self.movements.free_places());
        for Entry { at, key, kept } in self.answers.iter() {
            feed_time(&mut digester, Some(at));
            digester.bytes(&key.to_le_bytes());
            feed_form(&mut digester, &Some(kept));
        }
        feed_form(&mut digester, &(&self.aging.holds, &self.aging.movements, &self.aging.buckets));
        // A ledger without cells keeps the digest of earlier releases.
        if !self.cells.is_empty() {
            feed_form(&mut digester, &(&self.cells, self.jobs.next, &self.jobs.reviews));
            for (number, job) in &self.jobs.all {
                digester.integer(number.0.into());
                feed_form(&mut digester, job);
            }
            feed_form(&mut digester, &self.aging.jobs);
        }
        if !self.aside.is_empty() || !self.briefings.is_empty() {
            feed_form(&mut digester, &(&self.aside, &self.briefings));
        }
        digester.finish()
    }
}

impl Account {
    fn feed(&self, digester: &mut Digester) {
        digester.bytes(self.path.as_bytes());
        digester.integer(self.kind as i128).integer(self.frozen.into());
        digester.integer(self.fingerprint.into());
        digester.integer(self.available).integer(self.plain).integer(self.held);
        let Some(rare) = self.rare.as_ref().filter(|rare| !rare.is_idle()) else { return };
        feed_form(digester, &rare.settings);
        digester.integer(rare.uncollected);
        rare.budgets.iter().for_each(|budget| budget.feed(digester));
        for ((_, bucket), ()) in rare.expired.iter() {
            digester.integer(bucket.0.into());
        }
        if !rare.quotas.is_empty() {
            feed_form(digester, &rare.quotas);
        }
        // Accounts that the platform did not freeze keep the digest of earlier releases.
        if rare.frozen_by_platform {
            digester.bytes(b"frozen by the platform");
        }
    }
}

impl Budget {
    fn feed(&self, digester: &mut Digester) {
        digester.bytes(self.name.as_bytes());
        feed_form(digester, &self.terms);
        feed_time(digester, Some(self.period_start));
        digester.integer(self.spent).integer(self.held);
        feed_form(digester, &self.alerted);
    }
}

impl Grant {
    fn feed(&self, digester: &mut Digester) {
        digester.bytes(self.id.as_bytes());
        digester.integer(self.account.0.into());
        digester.integer(self.bucket.map_or(-1, |bucket| bucket.0.into()));
        digester.integer(self.start.into()).integer(self.amount.micros().into());
        feed_time(digester, Some(self.created_at));
        feed_time(digester, Some(self.effective_at));
        digester.integer(self.fingerprint.into()).integer(self.revoked.into());
        feed_form(digester, &(&self.pending, &self.rare));
    }
}

impl Bucket {
    fn feed(&self, digester: &mut Digester) {
        digester.integer(self.account.0.into()).integer(self.expired.into());
        digester.integer(self.has_revoked.into());
        feed_form(digester, &(&self.rank, &self.restriction));
        for (run, part) in self.line.runs_in(Span::new(0, self.line.end())) {
            digester.integer(run.start.into()).integer(part as i128);
        }
        digester.integer(self.line.end().into());
    }
}

impl Hold {
    pub(super) fn feed(&self, digester: &mut Digester) {
        digester.bytes(self.id.as_bytes());
        digester.integer(self.account.0.into()).integer(self.kind as i128);
        digester.integer(self.state as i128).integer(self.fingerprint.into());
        digester.integer(self.amount.into()).integer(self.captured.into());
        digester.integer(self.metered.into()).integer(self.refunded.into());
        feed_time(digester, Some(self.placed_at));
        feed_time(digester, self.expires_at);
        feed_time(digester, Some(self.closed_at));
        feed_time(digester, Some(self.moved_at));
        for slice in &self.slices {
            digester.integer(slice.bucket.0.into()).integer(slice.draw.into());
            digester.integer(slice.span.start.into()).integer(slice.span.end.into());
            digester.integer(slice.captured.into()).integer(slice.cut.into());
        }
        feed_form(digester, &(&self.rare, &self.charge));
    }
}

impl Movement {
    fn feed(&self, digester: &mut Digester) {
        feed_form(digester, self);
    }
}
