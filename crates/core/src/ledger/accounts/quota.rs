//! Quotas: limits on the GPUs and jobs of an account's subtree, for one region or for all.
//!
//! Cells enforce GPU and running-job limits at placement, with the last policy that they received.
//! The limit on waiting jobs is enforced here at submission, because only a submission can be
//! refused.

use std::collections::BTreeMap;

use super::account::Path;
use super::account::UNCHANGED;
use crate::cell::command::{AccountPolicy, DEFAULT_WEIGHT, QuotaSpec};
use crate::ledger::event::Event;
use crate::ledger::id::{AccountNo, CellNo, Name};
use crate::ledger::refusal::{Blocker, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::message::ToCell;
use crate::name::{AccountPath, GpuModel, Region};

/// Limits on what an account uses at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quota {
    /// GPUs by type; `*` is the total.
    pub gpus: BTreeMap<Name, u32>,
    /// Jobs running at once.
    pub running_jobs: Option<u32>,
    /// Jobs waiting at once.
    pub waiting_jobs: Option<u32>,
}

/// A pending change of an account's policy.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct PolicyChange<'a> {
    pub(in crate::ledger) weight_milli: Option<u32>,
    pub(in crate::ledger) frozen: Option<bool>,
    /// The region of a quota, and the quota; `None` if it is removed.
    pub(in crate::ledger) quota: Option<(Option<&'a Region>, Option<&'a Quota>)>,
}

impl Quota {
    /// The part that a cell enforces. Waiting jobs are limited by the ledger, at submission.
    fn in_cell(&self) -> QuotaSpec {
        let thousandths = |count: u32| count.saturating_mul(1000);
        let types = self.gpus.iter().filter(|(name, _)| *name != "*");
        QuotaSpec {
            gpus: types
                .map(|(name, count)| (GpuModel::unchecked(name.clone()), thousandths(*count)))
                .collect(),
            total_gpus: self.gpus.get("*").map(|count| thousandths(*count)),
            running_jobs: self.running_jobs,
            waiting_jobs: None,
        }
    }
}

impl Ledger {
    /// The quotas of an account: the one for all regions first, then by region.
    pub fn quotas(&self, account: AccountNo) -> &[(Option<Region>, Quota)] {
        self.account(account).details.as_ref().map_or(&[], |details| &details.quotas)
    }

    /// The quota of an account that applies in a region: its own for that region, or the one for
    /// all regions.
    pub fn quota_in(&self, account: AccountNo, region: &str) -> Option<&Quota> {
        let quotas = self.quotas(account);
        let of = |wanted: Option<&str>| {
            quotas.iter().find(|(region, _)| region.as_deref() == wanted).map(|(_, quota)| quota)
        };
        of(Some(region)).or_else(|| of(None))
    }

    pub(in crate::ledger) fn decide_set_quota(
        &self,
        path: &AccountPath,
        region: Option<&Region>,
        quota: &Quota,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        let present = self.quotas(account).iter().find(|(own, _)| own.as_ref() == region);
        if present.is_some_and(|(_, present)| present == quota) {
            return Ok(self.account_reply(account, UNCHANGED, None));
        }
        let (own, numbers) = (region.cloned(), quota.clone());
        events.push(Event::QuotaSet { account, region: own, quota: numbers });
        let change = PolicyChange { quota: Some((region, Some(quota))), ..PolicyChange::default() };
        self.push_policy(account, &change, events);
        Ok(self.account_reply(account, UNCHANGED, None))
    }

    pub(in crate::ledger) fn decide_remove_quota(
        &self,
        path: &AccountPath,
        region: Option<&Region>,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        if !self.quotas(account).iter().any(|(own, _)| own.as_ref() == region) {
            return Err(Refusal::NotFound { what: Resource::Quota, name: path.clone().into() });
        }
        events.push(Event::QuotaRemoved { account, region: region.cloned() });
        let change = PolicyChange { quota: Some((region, None)), ..PolicyChange::default() };
        self.push_policy(account, &change, events);
        Ok(Reply::Done)
    }

    /// Sends the new policy of an account to the cells concerned.
    pub(super) fn push_policy(
        &self,
        account: AccountNo,
        change: &PolicyChange<'_>,
        events: &mut Vec<Event>,
    ) {
        for (cell, book) in self.cells() {
            let elsewhere = change
                .quota
                .is_some_and(|(region, _)| region.is_some_and(|region| *region != book.region));
            if !elsewhere {
                let policy = self.policy_in(account, &book.region, Some(change));
                self.send(cell, ToCell::AccountPolicyChanged(Box::new(policy)), events);
            }
        }
    }

    /// Sends the weight of a new account to every cell.
    pub(super) fn push_new_policy(&self, path: &AccountPath, weight: u32, events: &mut Vec<Event>) {
        for (cell, _) in self.cells() {
            let policy = AccountPolicy { weight, ..AccountPolicy::new(path.clone()) };
            self.send(cell, ToCell::AccountPolicyChanged(Box::new(policy)), events);
        }
    }

    /// The policy of an account in the cell of a region.
    pub(in crate::ledger) fn policy_in(
        &self,
        account: AccountNo,
        region: &Region,
        change: Option<&PolicyChange<'_>>,
    ) -> AccountPolicy {
        let own = self.account(account);
        let weight = own.details.as_ref().and_then(|details| details.settings.weight_milli);
        let weight = change.and_then(|change| change.weight_milli).or(weight);
        let changed = change.and_then(|change| change.quota);
        let of = |wanted: Option<&Region>| match changed {
            Some((region, quota)) if region == wanted => quota,
            _ => {
                let mut quotas = self.quotas(account).iter();
                quotas.find(|(own, _)| own.as_ref() == wanted).map(|(_, quota)| quota)
            }
        };
        let quota = of(Some(region)).or_else(|| of(None));
        AccountPolicy {
            path: own.path.clone(),
            weight: weight.unwrap_or(DEFAULT_WEIGHT),
            frozen: change.and_then(|change| change.frozen).unwrap_or(own.frozen),
            quota: quota.map(Quota::in_cell).unwrap_or_default(),
        }
    }

    /// Accounts from `from` on whose policy differs from the default that cells assume.
    pub(in crate::ledger) fn accounts_with_policy(
        &self,
        from: AccountNo,
    ) -> impl Iterator<Item = AccountNo> {
        let rest = self.accounts.get(from.index()..).unwrap_or_default();
        let all = (from.0..).map(AccountNo).zip(rest);
        let special = all.filter(|(_, account)| {
            let details = account.details.as_ref();
            let weight = details.and_then(|details| details.settings.weight_milli);
            account.frozen
                || weight.is_some_and(|weight| weight != DEFAULT_WEIGHT)
                || details.is_some_and(|details| !details.quotas.is_empty())
        });
        special.map(|(number, _)| number)
    }

    /// Every quota that does not allow `more` waiting jobs in one of the cells, nearest first.
    pub(in crate::ledger) fn blocking_quotas(
        &self,
        path: &Path,
        cells: &[CellNo],
        more: u32,
    ) -> Vec<Blocker> {
        let mut blockers = Vec::new();
        for account in path {
            if self.quotas(*account).is_empty() {
                continue;
            }
            for cell in cells {
                let region = &self.cells[cell.index()].region;
                let limit = self.quota_in(*account, region).and_then(|quota| quota.waiting_jobs);
                let Some(limit) = limit else { continue };
                let waiting = self.jobs.index.waiting.get(&(*account, *cell)).copied().unwrap_or(0);
                if waiting.saturating_add(more) > limit {
                    blockers.push(Blocker::WaitingJobs {
                        account: self.account(*account).path.clone(),
                        region: region.clone(),
                        limit,
                        waiting,
                        requested: more,
                    });
                }
            }
        }
        blockers
    }

    pub(in crate::ledger) fn apply_quota(
        &mut self,
        account: AccountNo,
        region: Option<&Region>,
        quota: Option<&Quota>,
    ) {
        self.remember_account(account);
        let quotas = &mut self.rare_account(account).quotas;
        let place = quotas.binary_search_by(|(own, _)| own.as_ref().cmp(&region));
        match (place, quota) {
            (Ok(at), Some(quota)) => quotas[at].1 = quota.clone(),
            (Err(at), Some(quota)) => quotas.insert(at, (region.cloned(), quota.clone())),
            (Ok(at), None) => drop(quotas.remove(at)),
            (Err(_), None) => {}
        }
    }
}
