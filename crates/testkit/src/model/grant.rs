//! Grants: issuing, revoking, and returning units to them.

use bursar_core::ledger::command::{GrantKind, IssueGrant};
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::name::GrantId;
use bursar_core::time::Timestamp;

use super::Model;
use super::account::tenant;
use super::answer::Reply;
use super::check::invalid;
use super::state::{Grant, Micros};

/// The state of units before they were returned.
#[derive(Copy, Clone)]
pub(super) enum From {
    Held,
    Spent,
}

impl Model {
    pub(super) fn issue_grant(
        &mut self,
        fingerprint: u128,
        issue: &IssueGrant,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(&issue.account)?;
        if let Ok(existing) = self.find_grant(tenant(&issue.account), &issue.id) {
            let grant = &self.grants[existing];
            return if grant.fingerprint == fingerprint {
                Ok(Reply::Grant { grant: existing, parts: grant.parts() })
            } else {
                Err(Refusal::AlreadyExists { what: Resource::Grant, name: issue.id.clone().into() })
            };
        }
        let effective_at = issue.effective_at.map_or(self.now, Timestamp::millis);
        let expires_at = issue.expires_at.map(Timestamp::millis);
        if expires_at.is_some_and(|last| last < self.now || last < effective_at) {
            return Err(invalid("expires_at"));
        }
        let grant = self.add_grant(Grant {
            name: issue.id.clone(),
            account,
            kind: issue.kind,
            amount: Micros::from(issue.amount.micros()),
            effective_at,
            expires_at,
            priority: issue.priority,
            restriction: issue.restriction.clone().unwrap_or_default(),
            fingerprint,
            ..Grant::empty()
        });
        Ok(Reply::Grant { grant, parts: self.grants[grant].parts() })
    }

    /// Adds a grant with its terms filled in, all of it free.
    pub(super) fn add_grant(&mut self, mut grant: Grant) -> usize {
        let number = self.grants.len();
        grant.spendable_from = grant.effective_at.max(self.now);
        grant.free = grant.amount;
        let is_active = grant.spendable_from <= self.now;
        self.grants.push(grant);
        if is_active {
            self.activate(number);
        }
        number
    }

    /// Adds a grant that has no name from a command.
    pub(super) fn add_unnamed_grant(&mut self, mut grant: Grant) {
        let mut name = format!("grant_auto-{}", self.grants.len());
        while self.find_grant(self.tenant_of(grant.account), &name.as_str().into()).is_ok() {
            name.push('x');
        }
        grant.name = name.into();
        self.add_grant(grant);
    }

    /// Makes a grant spendable and assigns its bucket. Grants of one bucket differ only in names
    /// and amounts. A grant with a share cap has its own bucket, and no bucket has more units than
    /// 64 bits can count.
    pub(super) fn activate(&mut self, number: usize) {
        let grant = &self.grants[number];
        let is_alike = |other: &&Grant| {
            other.is_active
                && other.account == grant.account
                && other.kind == grant.kind
                && other.expires_at == grant.expires_at
                && other.priority == grant.priority
                && other.restriction == grant.restriction
                && other.restriction.max_share_micro.is_none()
        };
        let newest = self.grants.iter().filter(is_alike).map(|other| other.bucket).max();
        let units = |bucket: usize| -> Micros {
            let in_bucket = self.grants.iter().filter(|other| other.is_active);
            in_bucket.filter(|other| other.bucket == bucket).map(|other| other.amount).sum()
        };
        let fits = |bucket: &usize| units(*bucket) + grant.amount <= Micros::from(u64::MAX);
        let unused = self.grants.iter().map(|other| other.bucket).max().unwrap_or(0) + 1;
        let bucket = newest.filter(fits).unwrap_or(unused);
        self.grants[number].bucket = bucket;
        self.grants[number].is_active = true;
    }

    pub(super) fn revoke_grant(&mut self, tenant: &str, name: &GrantId) -> Result<Reply, Refusal> {
        let number = self.find_grant(tenant, name)?;
        if !self.grants[number].is_active {
            self.activate(number);
        }
        let grant = &mut self.grants[number];
        grant.is_revoked = true;
        grant.revoked += grant.free;
        grant.free = 0;
        Ok(Reply::Grant { grant: number, parts: grant.parts() })
    }

    pub(super) fn find_grant(&self, tenant: &str, name: &GrantId) -> Result<usize, Refusal> {
        self.grants
            .iter()
            .position(|grant| grant.name == *name && self.tenant_of(grant.account) == tenant)
            .ok_or_else(|| Refusal::NotFound { what: Resource::Grant, name: name.clone().into() })
    }

    /// Sums units by bucket, in the order of the first units of each bucket.
    pub(super) fn by_bucket(&self, units: &[(usize, Micros)]) -> Vec<(usize, Micros)> {
        let mut sums: Vec<(usize, Micros)> = Vec::new();
        for (grant, units) in units {
            let bucket = self.grants[*grant].bucket;
            match sums.iter_mut().find(|(first, _)| self.grants[*first].bucket == bucket) {
                Some((_, sum)) => *sum += units,
                None => sums.push((*grant, *units)),
            }
        }
        sums
    }

    /// Returns units to a grant. Returns how many of them had expired in the meantime.
    pub(super) fn give_back(&mut self, grant: usize, units: Micros, from: From) -> Micros {
        let grant = &mut self.grants[grant];
        match from {
            From::Held => grant.held -= units,
            From::Spent => grant.spent -= units,
        }
        if grant.is_revoked {
            grant.revoked += units;
            0
        } else if grant.is_expired {
            grant.expired += units;
            units
        } else {
            grant.free += units;
            0
        }
    }

    /// Issues a compensation for units that had expired when they were returned: one grant per
    /// bucket, in order.
    pub(super) fn compensate(&mut self, expired: &[(usize, Micros)]) {
        for (source, amount) in self.by_bucket(expired) {
            let grant = &self.grants[source];
            let (account, priority) = (grant.account, grant.priority);
            let mut restriction = grant.restriction.clone();
            restriction.max_share_micro = None;
            let ttl_ms = self.compensation_ttl_ms(account);
            self.add_unnamed_grant(Grant {
                account,
                kind: GrantKind::Compensation,
                amount,
                effective_at: self.now,
                expires_at: Some(Timestamp::from_millis(self.now).plus_millis(ttl_ms).millis()),
                priority,
                restriction,
                ..Grant::empty()
            });
        }
    }

    fn compensation_ttl_ms(&self, account: usize) -> i64 {
        self.path_to_root(account)
            .into_iter()
            .find_map(|on_path| self.accounts[on_path].compensation_ttl_ms)
            .unwrap_or(self.policy.compensation_ttl_ms)
    }
}
