//! Scopes: the accounts whose jobs a node runs.
//!
//! A node may have an account as its scope and then runs only jobs at and below it. The scopes that
//! include a job's account are determined when the job is queued and are part of its shape.
//! Comparing a shape with a node then compares numbers, and everything cached by shape stays valid.

use smallvec::SmallVec;

use crate::cell::ids::{AccountId, JobId};
use crate::cell::jobs::job::{Request, Waiting};
use crate::cell::schedule::shape::Shape;
use crate::cell::state::Cell;
use crate::name::{is_at_or_below, tenant_of};

/// Whether scope `wide` includes all of scope `narrow`. `None` is all accounts.
pub fn covers(wide: Option<&str>, narrow: Option<&str>) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => is_at_or_below(narrow, wide),
    }
}

impl Cell {
    /// The scopes of nodes that include an account, in rising order.
    pub(crate) fn scopes_of(&self, account: AccountId) -> SmallVec<[AccountId; 1]> {
        if self.scopes.is_empty() {
            return SmallVec::new();
        }
        let path = self.accounts.path(account);
        let mut scopes: SmallVec<_> = path.filter(|id| self.scopes.contains(id)).collect();
        scopes.sort_unstable();
        scopes
    }

    /// The account at a path, as a scope of nodes. When it is new, jobs below it get new shapes.
    pub(crate) fn open_scope(&mut self, path: &str) -> AccountId {
        let scope = self.accounts.ensure(path);
        if self.scopes.insert(scope) {
            let below = self.jobs.values().filter(|job| {
                let mut path = self.accounts.path(job.account);
                path.any(|id| id == scope)
            });
            let below: Vec<JobId> = below.map(|job| job.spec.job).collect();
            below.into_iter().for_each(|job| self.reshape(job));
        }
        scope
    }

    /// Updates a job's shape to the current scopes of its account.
    fn reshape(&mut self, id: JobId) {
        let job = self.job(id);
        let waiting = job.waiting();
        let scopes = self.scopes_of(job.account);
        let shape = Shape { scopes, ..self.shapes.get(job.shape).clone() };
        let request = self.requests.get(job.request).clone();
        // In both phases the job is queued under its request.
        if matches!(waiting, Some(Waiting::Competing | Waiting::Group)) {
            self.stop_waiting(id);
        }
        let shape = self.shapes.intern(shape);
        let request = self.requests.intern(Request { shape, ..request });
        let tenant = tenant_of(&self.job(id).spec.account).to_owned();
        self.note_demand(&tenant, request);
        let job = self.job_mut(id);
        (job.shape, job.request) = (shape, request);
        match waiting {
            Some(Waiting::Competing) => self.compete(id),
            Some(Waiting::Group) => self.apply_held_by_group(id),
            Some(
                Waiting::Funds(_) | Waiting::Delayed(_) | Waiting::Nominated | Waiting::Moving,
            )
            | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_all_covers_every_account_and_an_account_its_subtree() {
        for (wide, narrow, expected) in [
            (None, None, true),
            (None, Some("a"), true),
            (Some("a"), None, false),
            (Some("a"), Some("a"), true),
            (Some("a"), Some("a:b"), true),
            (Some("a:b"), Some("a"), false),
            (Some("a"), Some("ab"), false),
        ] {
            assert_eq!(covers(wide, narrow), expected, "{wide:?} {narrow:?}");
        }
    }
}
