//! One hash over a whole ledger: equal on replicas, after replay, and after a group was undone.
//!
//! Everything that decisions read is fed, in an order that does not depend on hashing. Derived
//! indexes are not fed; the invariant checks cover them.

use fefo::Span;

use super::accounts::account::Account;
use super::credits::bucket::Bucket;
use super::index::idempotency::KeptEntry;
use super::state::Ledger;
use crate::digest::{Digest, Digester};

impl Ledger {
    pub(super) fn state_digest(&self) -> Digest {
        let mut digester = Digester::new();
        digester.value(self.now).value(self.policy);
        self.accounts.iter().for_each(|account| account.feed(&mut digester));
        digester.value(self.grants.len());
        self.grants.iter().for_each(|grant| _ = digester.value(grant));
        self.buckets.iter().for_each(|bucket| bucket.feed(&mut digester));
        self.holds.iter().for_each(|hold| _ = digester.value(hold));
        digester.value(self.holds.free_places());
        self.movements.iter().for_each(|movement| _ = digester.value(movement));
        digester.value(self.movements.free_places());
        for KeptEntry { at, key, kept } in self.answers.iter() {
            digester.value((at, key, kept));
        }
        let aging = &self.aging;
        digester.value((&aging.holds, &aging.movements, &aging.buckets, &aging.jobs));
        digester.value((&self.cells, self.jobs.next, &self.jobs.reviews));
        self.jobs.all.iter().for_each(|job| _ = digester.value(job));
        digester.value((&self.aside, &self.briefings));
        if aging.archived_through > 0 {
            digester.value((&aging.old_holds, aging.archived_through, &aging.recent));
            // When sums are merged depends on what was done since the last snapshot.
            digester.value(self.past_usage.merged(self.now));
        }
        digester.finish()
    }
}

impl Account {
    fn feed(&self, digester: &mut Digester) {
        digester.value((&self.path, self.kind, self.frozen, self.fingerprint));
        digester.value((self.available, self.plain, self.held));
        // An account whose rare fields are all empty again equals one that never had any.
        let details = self.details.as_ref().filter(|details| !details.is_idle());
        digester.value(details.is_some());
        let Some(details) = details else { return };
        digester.value((&details.settings, details.uncollected, &details.budgets, &details.quotas));
        for ((_, bucket), ()) in details.expired.iter() {
            digester.value(bucket);
        }
        digester.value(details.frozen_by_platform);
    }
}

impl Bucket {
    fn feed(&self, digester: &mut Digester) {
        digester.value((self.account, self.expired, self.has_revoked));
        digester.value((&self.rank, &self.restriction));
        for (run, part) in self.line.runs_in(Span::new(0, self.line.end())) {
            digester.value((run.start, part));
        }
        digester.value(self.line.end());
    }
}
