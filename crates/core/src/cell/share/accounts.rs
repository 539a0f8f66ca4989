//! The account tree of a cell: weights, usage, quotas, and the lanes of waiting jobs.

use smallvec::SmallVec;

use super::decay::{Decay, ScaledUsage, ShareKey};
use super::lanes::Lane;
use super::quota::{CellQuota, InUse};
use crate::cell::command::DEFAULT_WEIGHT;
use crate::cell::ids::{AccountId, ClassRank};
use crate::cell::index::bitset::Bits;
use crate::cell::index::interner::InternedId;
use crate::name::{AccountPath, parent_of};
use crate::name_hash::NameMap;
use crate::time::Timestamp;

/// An account with its limits, usage and lanes.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) path: AccountPath,
    pub(crate) parent: Option<AccountId>,
    pub(crate) children: Vec<AccountId>,
    pub(crate) weight: u32,
    pub(crate) frozen: bool,
    pub(crate) quota: CellQuota,
    pub(crate) in_use: InUse,
    /// Usage of its own jobs and of all jobs below.
    pub(crate) usage: ScaledUsage,
    /// Usage of its own jobs only.
    pub(crate) own_usage: ScaledUsage,
    /// Micro-credits per hour of its own attempts and of all attempts below.
    pub(crate) rate: u64,
    /// Micro-credits per hour of its own attempts only.
    pub(crate) own_rate: u64,
    /// Requests that its quota blocks.
    pub(crate) blocked: Bits,
    /// The lanes of waiting jobs at and below it, by class in rising order.
    pub(crate) lanes: SmallVec<[(ClassRank, Lane); 1]>,
}

impl Account {
    /// Its sort key among its siblings.
    pub(crate) fn key(&self) -> ShareKey {
        ShareKey::new(self.usage, self.weight)
    }

    /// The sort key of its own jobs among its children: as a child of weight one.
    pub(crate) fn own_key(&self) -> ShareKey {
        ShareKey::new(self.own_usage, DEFAULT_WEIGHT)
    }

    pub(crate) fn lane(&self, class: ClassRank) -> Option<&Lane> {
        self.lanes.iter().find(|(rank, _)| *rank == class).map(|(_, lane)| lane)
    }

    pub(crate) fn lane_mut(&mut self, class: ClassRank) -> &mut Lane {
        let index = match self.lanes.binary_search_by_key(&class, |(rank, _)| *rank) {
            Ok(index) => index,
            Err(index) => {
                self.lanes.insert(index, (class, Lane::default()));
                index
            }
        };
        &mut self.lanes[index].1
    }
}

/// All accounts that this cell knows, as a tree under one root.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    accounts: Vec<Account>,
    by_path: NameMap<AccountPath, AccountId>,
    pub(crate) decay: Decay,
}

#[cfg(test)]
thread_local! {
    /// How many accounts were looked at.
    pub(crate) static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The account above all tenants.
pub(crate) const ROOT: AccountId = AccountId(0);

impl Accounts {
    pub(crate) fn new(decay: Decay) -> Accounts {
        let mut accounts = Accounts { accounts: Vec::new(), by_path: NameMap::default(), decay };
        accounts.add(AccountPath::default(), None);
        accounts
    }

    fn add(&mut self, path: AccountPath, parent: Option<AccountId>) -> AccountId {
        let index = u32::try_from(self.accounts.len()).expect("fewer than 2^32 accounts");
        self.by_path.insert(path.clone(), AccountId(index));
        self.accounts.push(Account {
            path,
            parent,
            children: Vec::new(),
            weight: DEFAULT_WEIGHT,
            frozen: false,
            quota: CellQuota::default(),
            in_use: InUse::default(),
            usage: 0,
            own_usage: 0,
            rate: 0,
            own_rate: 0,
            blocked: Bits::default(),
            lanes: SmallVec::new(),
        });
        if let Some(parent) = parent {
            self.get_mut(parent).children.push(AccountId(index));
        }
        AccountId(index)
    }

    pub(crate) fn find(&self, path: &str) -> Option<AccountId> {
        self.by_path.get(path).copied()
    }

    /// The account at a path; it and missing ancestors are added.
    pub(crate) fn ensure(&mut self, path: &str) -> AccountId {
        if let Some(id) = self.find(path) {
            return id;
        }
        let parent = match parent_of(path) {
            Some(parent) => self.ensure(parent),
            None => ROOT,
        };
        self.add(AccountPath::unchecked(path), Some(parent))
    }

    pub(crate) fn get(&self, id: AccountId) -> &Account {
        #[cfg(test)]
        VISITS.set(VISITS.get() + 1);
        &self.accounts[id.index()]
    }

    pub(crate) fn get_mut(&mut self, id: AccountId) -> &mut Account {
        &mut self.accounts[id.index()]
    }

    /// All accounts, parents before children.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (AccountId, &Account)> {
        self.accounts.iter().enumerate().map(|(index, account)| {
            #[cfg(test)]
            VISITS.set(VISITS.get() + 1);
            (AccountId(u32::try_from(index).expect("fewer than 2^32 accounts")), account)
        })
    }

    /// An account and its ancestors, the root last.
    pub(crate) fn path(&self, id: AccountId) -> impl Iterator<Item = AccountId> {
        std::iter::successors(Some(id), |id| self.get(*id).parent)
    }

    /// Changes the usage of an account and its ancestors and updates every order that depends on
    /// it.
    pub(crate) fn charge(&mut self, id: AccountId, add: ScaledUsage, subtract: ScaledUsage) {
        let changed = |usage: ScaledUsage| usage.saturating_add(add).saturating_sub(subtract);
        let account = self.get_mut(id);
        let before = account.own_key();
        account.own_usage = changed(account.own_usage);
        let after = account.own_key();
        for (_, lane) in &mut account.lanes {
            lane.reorder(id, before, after);
        }
        let mut next = Some(id);
        while let Some(id) = next {
            let account = self.get_mut(id);
            let before = account.key();
            account.usage = changed(account.usage);
            let after = account.key();
            next = account.parent;
            if let Some(parent) = next {
                for (_, lane) in &mut self.get_mut(parent).lanes {
                    lane.reorder(id, before, after);
                }
            }
        }
    }

    /// Changes a weight and the order of the siblings.
    pub(crate) fn set_weight(&mut self, id: AccountId, weight: u32) {
        let account = self.get_mut(id);
        let before = account.key();
        account.weight = weight;
        let after = account.key();
        if let Some(parent) = account.parent {
            for (_, lane) in &mut self.get_mut(parent).lanes {
                lane.reorder(id, before, after);
            }
        }
    }

    /// Shifts all usage down if the factor has become large.
    pub(crate) fn rebase(&mut self, at: Timestamp) -> Option<u32> {
        let shift = self.decay.rebase(at)?;
        self.rewrite_usage(|usage| usage >> shift);
        Some(shift)
    }

    /// Continues with another half-life from now on.
    pub(crate) fn set_half_life(&mut self, half_life_ms: i64, at: Timestamp) {
        let old = std::mem::replace(&mut self.decay, Decay::new(half_life_ms, at));
        let factor = old.factor(at);
        self.rewrite_usage(|usage| (usage / factor) << 32);
    }

    fn rewrite_usage(&mut self, new: impl Fn(ScaledUsage) -> ScaledUsage) {
        for account in &mut self.accounts {
            account.usage = new(account.usage);
            account.own_usage = new(account.own_usage);
        }
        for index in 0..self.accounts.len() {
            let mut lanes = std::mem::take(&mut self.accounts[index].lanes);
            for (_, lane) in &mut lanes {
                lane.reorder_all(|child| {
                    let account = &self.accounts[child.index()];
                    if child.index() == index { account.own_key() } else { account.key() }
                });
            }
            self.accounts[index].lanes = lanes;
        }
    }

    /// Adds the rate of an attempt to an account and its ancestors.
    pub(crate) fn add_rate(&mut self, id: AccountId, rate: u64) {
        self.get_mut(id).own_rate += rate;
        self.for_path(id, |account| account.rate += rate);
    }

    pub(crate) fn remove_rate(&mut self, id: AccountId, rate: u64) {
        self.get_mut(id).own_rate -= rate;
        self.for_path(id, |account| account.rate -= rate);
    }

    /// Applies a change to an account and its ancestors.
    pub(crate) fn for_path(&mut self, id: AccountId, mut change: impl FnMut(&mut Account)) {
        let mut next = Some(id);
        while let Some(id) = next {
            let account = self.get_mut(id);
            change(account);
            next = account.parent;
        }
    }
}
