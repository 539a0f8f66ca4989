//! Accounts: a tree of at most eight levels, whose first level is the tenant.

use smallvec::SmallVec;

use super::budget::Budget;
use super::quota::{PolicyChange, Quota};
use crate::ledger::command::{AccountKind, AccountSettings, ClearedSettings, Envelope};
use crate::ledger::credits::spend_order::{BucketOrder, FirstBucket};
use crate::ledger::event::Event;
use crate::ledger::id::AccountNo;
use crate::ledger::refusal::{Blocker, Refusal, Resource};
use crate::ledger::reply::{AccountReply, Reply};
use crate::ledger::state::{Ledger, short_fingerprint};
use crate::ledger::undo::Undo;
use crate::name::{AccountPath, MAX_DEPTH, Region, parent_of};

/// The most accounts of one tenant, itself included. An account is never removed.
pub const MAX_ACCOUNTS_PER_TENANT: u32 = 100_000;

/// One account.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its full path.
    pub path: AccountPath,
    /// The parent account; `None` for a tenant.
    pub parent: Option<AccountNo>,
    /// The first account of its path.
    pub tenant: AccountNo,
    /// What it represents.
    pub kind: AccountKind,
    /// Whether new spending at and below it is stopped.
    pub frozen: bool,
    /// The hash of the request that opened it.
    pub fingerprint: u64,
    /// Free units of its own grants.
    pub available: i128,
    /// Free units of its own grants without a restriction.
    pub plain: i128,
    /// Held units of its own grants.
    pub held: i128,
    /// Its own buckets that can be drawn from.
    pub open: BucketOrder,
    /// The number of open buckets with a restriction.
    pub restricted_open: u32,
    /// The open bucket that is spent first, if known.
    pub first_bucket: FirstBucket,
    /// Fields that most accounts do not need.
    pub details: Option<Box<AccountDetails>>,
}

impl Account {
    /// An account without credits.
    pub(in crate::ledger) fn empty(
        path: AccountPath,
        kind: AccountKind,
        parent: Option<AccountNo>,
        tenant: AccountNo,
    ) -> Account {
        Account {
            path,
            parent,
            tenant,
            kind,
            frozen: false,
            fingerprint: 0,
            available: 0,
            plain: 0,
            held: 0,
            open: BucketOrder::new(),
            restricted_open: 0,
            first_bucket: FirstBucket::UNKNOWN,
            details: None,
        }
    }
}

/// Fields that most accounts do not need.
#[derive(Clone, Debug, Default)]
pub struct AccountDetails {
    /// Settings that differ from the defaults.
    pub settings: AccountSettings,
    /// Usage of its holds for which no credits were found.
    pub uncollected: i128,
    /// The sum of `uncollected` over the account and its descendants. Derived from those accounts.
    pub owed_below: i128,
    /// Budgets over its subtree, by name.
    pub budgets: Vec<Budget>,
    /// Its own buckets that have expired and that late usage can still reach.
    pub expired: BucketOrder,
    /// Its quotas: the one for all regions first, then by region.
    pub quotas: Vec<(Option<Region>, Quota)>,
    /// Whether the platform froze it. Only the platform can then unfreeze it.
    pub frozen_by_platform: bool,
}

/// An account and its ancestors, nearest first.
pub type Path = SmallVec<[AccountNo; MAX_DEPTH]>;

impl AccountDetails {
    /// Whether all fields have their default values. `owed_below` is ignored because it is derived.
    pub(in crate::ledger) fn is_idle(&self) -> bool {
        self.settings == AccountSettings::default()
            && self.uncollected == 0
            && self.budgets.is_empty()
            && self.expired.is_empty()
            && self.quotas.is_empty()
            && !self.frozen_by_platform
    }
}

impl Account {
    /// Usage for which no credits were found.
    pub fn uncollected(&self) -> i128 {
        self.details.as_ref().map_or(0, |details| details.uncollected)
    }

    /// Whether the platform froze it.
    pub fn is_frozen_by_platform(&self) -> bool {
        self.details.as_ref().is_some_and(|details| details.frozen_by_platform)
    }

    /// Its budgets.
    pub fn budgets(&self) -> &[Budget] {
        self.details.as_ref().map_or(&[], |details| &details.budgets)
    }
}

impl AccountSettings {
    /// Resets the settings that are cleared.
    fn clear(&mut self, cleared: ClearedSettings) {
        let ClearedSettings { name, metadata, compensation_ttl_ms, overdraft_limit } = cleared;
        self.name = self.name.take().filter(|_| !name);
        self.metadata = self.metadata.take().filter(|_| !metadata);
        self.compensation_ttl_ms = self.compensation_ttl_ms.filter(|_| !compensation_ttl_ms);
        self.overdraft_limit = self.overdraft_limit.filter(|_| !overdraft_limit);
    }

    /// Takes the settings that a change contains and keeps the others.
    fn merge(&mut self, change: &AccountSettings) {
        let AccountSettings {
            name,
            weight_milli,
            home_region,
            metadata,
            compensation_ttl_ms,
            overdraft_limit,
        } = change;
        self.name = name.clone().or(self.name.take());
        self.weight_milli = weight_milli.or(self.weight_milli);
        self.home_region = home_region.clone().or(self.home_region.take());
        self.metadata = metadata.clone().or(self.metadata.take());
        self.compensation_ttl_ms = compensation_ttl_ms.or(self.compensation_ttl_ms);
        self.overdraft_limit = overdraft_limit.or(self.overdraft_limit);
    }
}

/// An empty change of settings.
pub(super) const UNCHANGED: (&AccountSettings, ClearedSettings) = (
    &AccountSettings {
        name: None,
        weight_milli: None,
        home_region: None,
        metadata: None,
        compensation_ttl_ms: None,
        overdraft_limit: None,
    },
    ClearedSettings {
        name: false,
        metadata: false,
        compensation_ttl_ms: false,
        overdraft_limit: false,
    },
);

impl Ledger {
    /// The account with this path.
    pub fn find_account(&self, path: &str) -> Option<AccountNo> {
        let is_it = |number: u32| self.accounts[number as usize].path == path;
        self.account_names.find(self.account_names.hash_of(&path), is_it).map(AccountNo)
    }

    pub(in crate::ledger) fn existing_account(
        &self,
        path: &AccountPath,
    ) -> Result<AccountNo, Refusal> {
        self.find_account(path)
            .ok_or_else(|| Refusal::NotFound { what: Resource::Account, name: path.clone().into() })
    }

    /// An account.
    pub fn account(&self, account: AccountNo) -> &Account {
        &self.accounts[account.index()]
    }

    /// An account and its ancestors, nearest first.
    pub fn path(&self, account: AccountNo) -> Path {
        let mut path = Path::new();
        let mut next = Some(account);
        while let Some(account) = next {
            path.push(account);
            next = self.account(account).parent;
        }
        path
    }

    /// Whether `ancestor` is the account or above it.
    pub fn is_at_or_below(&self, account: AccountNo, ancestor: AccountNo) -> bool {
        self.path(account).contains(&ancestor)
    }

    /// The setting of the nearest account on the path for which `pick` returns one.
    pub fn inherited<T>(
        &self,
        account: AccountNo,
        pick: impl Fn(&AccountSettings) -> Option<T>,
    ) -> Option<T> {
        self.path(account).into_iter().find_map(|account| {
            self.account(account).details.as_ref().and_then(|r| pick(&r.settings))
        })
    }

    /// Refuses if any account on the path is frozen, and names all frozen ones.
    pub(in crate::ledger) fn require_thawed(&self, path: &Path) -> Result<(), Refusal> {
        if !path.iter().any(|account| self.account(*account).frozen) {
            return Ok(());
        }
        let frozen = path.iter().filter(|account| self.account(**account).frozen);
        let blockers =
            frozen.map(|account| Blocker::Frozen { account: self.account(*account).path.clone() });
        Err(Refusal::AccountFrozen { blockers: blockers.collect() })
    }

    pub(in crate::ledger) fn decide_open_account(
        &self,
        envelope: &Envelope,
        path: &AccountPath,
        kind: AccountKind,
        settings: &AccountSettings,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        if let Some(account) = self.find_account(path) {
            return if envelope.made(self.account(account).fingerprint) {
                Ok(self.account_reply(account, UNCHANGED, None))
            } else {
                Err(Refusal::AlreadyExists { what: Resource::Account, name: path.clone().into() })
            };
        }
        if let Some(parent) = parent_of(path) {
            let parent = self.find_account(parent).ok_or(Refusal::InvalidField {
                field: "id",
                reason: "the parent account does not exist; open it first",
            })?;
            if !may_contain(self.account(parent).kind, kind) {
                return Err(Refusal::InvalidField {
                    field: "kind",
                    reason: "the parent must be of a wider kind; only teams and projects may \
                             nest in their own kind",
                });
            }
            let tenant = self.account(parent).tenant;
            if self.tenant_accounts.get(&tenant).is_some_and(|own| *own >= MAX_ACCOUNTS_PER_TENANT)
            {
                return Err(Refusal::InvalidField {
                    field: "id",
                    reason: "a tenant has at most 100000 accounts, and none is ever removed; use one \
                             that it has",
                });
            }
        }
        let account = AccountNo(u32::try_from(self.accounts.len()).unwrap_or(u32::MAX));
        events.push(Event::AccountOpened {
            account,
            path: path.clone(),
            kind,
            settings: settings.clone(),
            fingerprint: envelope.fingerprint,
        });
        if let Some(weight) = settings.weight_milli {
            self.push_new_policy(path, weight, events);
        }
        let settings = settings.clone();
        Ok(Reply::Account(Box::new(AccountReply {
            account,
            settings,
            frozen: false,
            uncollected: 0,
        })))
    }

    /// The reply to a change of an account: the account after the change.
    pub(super) fn account_reply(
        &self,
        number: AccountNo,
        (change, cleared): (&AccountSettings, ClearedSettings),
        frozen: Option<bool>,
    ) -> Reply {
        let account = self.account(number);
        let mut settings =
            account.details.as_ref().map(|details| details.settings.clone()).unwrap_or_default();
        settings.clear(cleared);
        settings.merge(change);
        Reply::Account(Box::new(AccountReply {
            account: number,
            settings,
            frozen: frozen.unwrap_or(account.frozen),
            uncollected: account.uncollected(),
        }))
    }

    pub(in crate::ledger) fn decide_change_account(
        &self,
        path: &AccountPath,
        settings: &AccountSettings,
        cleared: ClearedSettings,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        if *settings != AccountSettings::default() || cleared != ClearedSettings::default() {
            events.push(Event::AccountChanged { account, settings: settings.clone(), cleared });
            let weight_milli = settings.weight_milli;
            if weight_milli.is_some() {
                let change = PolicyChange { weight_milli, ..PolicyChange::default() };
                self.push_policy(account, &change, events);
            }
        }
        Ok(self.account_reply(account, (settings, cleared), None))
    }

    pub(in crate::ledger) fn decide_freeze(
        &self,
        path: &AccountPath,
        by_platform: bool,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        let own = self.account(account);
        if own.frozen && (!by_platform || own.is_frozen_by_platform()) {
            return Ok(self.account_reply(account, UNCHANGED, None));
        }
        events.push(Event::AccountFrozen { account, by_platform });
        if !own.frozen {
            let change = PolicyChange { frozen: Some(true), ..PolicyChange::default() };
            self.push_policy(account, &change, events);
        }
        Ok(self.account_reply(account, UNCHANGED, Some(true)))
    }

    pub(in crate::ledger) fn decide_unfreeze(
        &self,
        path: &AccountPath,
        by_platform: bool,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        let own = self.account(account);
        if !own.frozen {
            return Ok(self.account_reply(account, UNCHANGED, None));
        }
        if own.is_frozen_by_platform() && !by_platform {
            return Err(Refusal::FrozenByPlatform { account: path.clone() });
        }
        events.push(Event::AccountUnfrozen { account });
        let change = PolicyChange { frozen: Some(false), ..PolicyChange::default() };
        self.push_policy(account, &change, events);
        Ok(self.account_reply(account, UNCHANGED, Some(false)))
    }

    pub(in crate::ledger) fn apply_account_opened(
        &mut self,
        account: AccountNo,
        path: &AccountPath,
        kind: AccountKind,
        settings: &AccountSettings,
        fingerprint: u128,
    ) {
        assert_eq!(account.index(), self.accounts.len(), "accounts are numbered in order");
        let parent = parent_of(path).and_then(|parent| self.find_account(parent));
        let tenant = parent.map_or(account, |parent| self.account(parent).tenant);
        let details = (*settings != AccountSettings::default()).then(|| {
            Box::new(AccountDetails { settings: settings.clone(), ..AccountDetails::default() })
        });
        self.push_account(Account {
            fingerprint: short_fingerprint(fingerprint),
            details,
            ..Account::empty(path.clone(), kind, parent, tenant)
        });
        self.remember(|| Undo::AccountOpened);
    }

    /// Adds an account under the next number.
    pub(in crate::ledger) fn push_account(&mut self, account: Account) {
        let number = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
        let hash = self.account_names.hash_of(&account.path.as_str());
        self.account_names.insert(hash, number);
        *self.tenant_accounts.entry(account.tenant).or_default() += 1;
        self.accounts.push(account);
    }

    pub(in crate::ledger) fn apply_account_changed(
        &mut self,
        account: AccountNo,
        change: &AccountSettings,
        cleared: ClearedSettings,
    ) {
        self.remember_account(account);
        self.rare_account(account).settings.clear(cleared);
        self.rare_account(account).settings.merge(change);
    }

    pub(in crate::ledger) fn apply_frozen(&mut self, account: AccountNo, by_platform: bool) {
        self.remember_account(account);
        self.accounts[account.index()].frozen = true;
        if by_platform {
            self.rare_account(account).frozen_by_platform = true;
        }
    }

    pub(in crate::ledger) fn apply_unfrozen(&mut self, account: AccountNo) {
        self.remember_account(account);
        let account = &mut self.accounts[account.index()];
        account.frozen = false;
        if let Some(details) = &mut account.details {
            details.frozen_by_platform = false;
        }
    }

    /// Changes the uncollected usage of an account.
    pub(in crate::ledger) fn change_owed(&mut self, account: AccountNo, by: i128) {
        for above in self.path(account) {
            self.remember_account(above);
            self.rare_account(above).owed_below += by;
        }
        self.rare_account(account).uncollected += by;
    }

    pub(in crate::ledger) fn rare_account(&mut self, account: AccountNo) -> &mut AccountDetails {
        self.accounts[account.index()].details.get_or_insert_default()
    }
}

/// Whether an account of kind `parent` may have a direct child of kind `child`.
fn may_contain(parent: AccountKind, child: AccountKind) -> bool {
    match (parent, child) {
        (AccountKind::Team, AccountKind::Team) | (AccountKind::Project, AccountKind::Project) => {
            true
        }
        _ => parent < child,
    }
}
