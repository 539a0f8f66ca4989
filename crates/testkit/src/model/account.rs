//! Accounts: a list of paths.

use bursar_core::ledger::command::{AccountKind, AccountSettings, ClearedSettings};
use bursar_core::ledger::refusal::{Blocker, Refusal, Resource};
use bursar_core::name::AccountPath;

use super::Model;
use super::answer::Reply;
use super::check::invalid;
use super::state::Account;

impl Model {
    pub(super) fn open_account(
        &mut self,
        fingerprint: u128,
        path: &AccountPath,
        kind: AccountKind,
        settings: &AccountSettings,
    ) -> Result<Reply, Refusal> {
        if let Ok(existing) = self.find_account(path) {
            return if self.accounts[existing].fingerprint == fingerprint {
                Ok(Reply::Account { path: path.clone() })
            } else {
                Err(Refusal::AlreadyExists { what: Resource::Account, name: path.clone().into() })
            };
        }
        let parent = match path.rsplit_once(':') {
            None => None,
            Some((parent, _)) => Some(self.find_account(parent).map_err(|_| invalid("id"))?),
        };
        let above = parent.map(|parent| self.accounts[parent].kind);
        if !may_be_below(kind, above) {
            return Err(invalid("kind"));
        }
        self.accounts.push(Account {
            path: path.clone(),
            kind,
            parent,
            frozen: false,
            frozen_by_platform: false,
            uncollected: 0,
            compensation_ttl_ms: settings.compensation_ttl_ms,
            fingerprint,
        });
        Ok(Reply::Account { path: path.clone() })
    }

    pub(super) fn change_account(
        &mut self,
        path: &AccountPath,
        settings: &AccountSettings,
        cleared: ClearedSettings,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(path)?;
        if cleared.compensation_ttl_ms {
            self.accounts[account].compensation_ttl_ms = None;
        }
        if settings.compensation_ttl_ms.is_some() {
            self.accounts[account].compensation_ttl_ms = settings.compensation_ttl_ms;
        }
        Ok(Reply::Account { path: path.clone() })
    }

    pub(super) fn freeze(
        &mut self,
        path: &AccountPath,
        by_platform: bool,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(path)?;
        self.accounts[account].frozen = true;
        self.accounts[account].frozen_by_platform |= by_platform;
        Ok(Reply::Account { path: path.clone() })
    }

    /// Only the platform can lift a freeze by the platform.
    pub(super) fn unfreeze(
        &mut self,
        path: &AccountPath,
        by_platform: bool,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(path)?;
        if self.accounts[account].frozen_by_platform && !by_platform {
            return Err(Refusal::FrozenByPlatform { account: path.clone() });
        }
        self.accounts[account].frozen = false;
        self.accounts[account].frozen_by_platform = false;
        Ok(Reply::Account { path: path.clone() })
    }

    pub(super) fn find_account(&self, path: &str) -> Result<usize, Refusal> {
        self.accounts
            .iter()
            .position(|account| account.path == path)
            .ok_or_else(|| Refusal::NotFound { what: Resource::Account, name: path.into() })
    }

    /// The account and its ancestors, up to the root.
    pub(super) fn path_to_root(&self, account: usize) -> Vec<usize> {
        let mut path = vec![account];
        let mut above = self.accounts[account].parent;
        while let Some(parent) = above {
            path.push(parent);
            above = self.accounts[parent].parent;
        }
        path
    }

    /// The first segment of an account's path.
    pub(super) fn tenant_of(&self, account: usize) -> &str {
        tenant(&self.accounts[account].path)
    }

    /// Every frozen account from here to the root, nearest first.
    pub(super) fn frozen_above(&self, account: usize) -> Vec<Blocker> {
        self.path_to_root(account)
            .into_iter()
            .map(|on_path| &self.accounts[on_path])
            .filter(|on_path| on_path.frozen)
            .map(|on_path| Blocker::Frozen { account: on_path.path.clone() })
            .collect()
    }

    pub(super) fn refuse_if_frozen(&self, account: usize) -> Result<(), Refusal> {
        let blockers = self.frozen_above(account);
        if blockers.is_empty() { Ok(()) } else { Err(Refusal::AccountFrozen { blockers }) }
    }
}

/// The first segment of a path.
pub(super) fn tenant(path: &str) -> &str {
    path.split(':').next().unwrap_or(path)
}

/// Teams may nest in teams and projects in projects. Otherwise each level is narrower than the one
/// above it.
fn may_be_below(kind: AccountKind, above: Option<AccountKind>) -> bool {
    match above {
        None => true,
        Some(above) => match kind {
            AccountKind::Org => false,
            AccountKind::Team => matches!(above, AccountKind::Org | AccountKind::Team),
            AccountKind::Project => {
                matches!(above, AccountKind::Org | AccountKind::Team | AccountKind::Project)
            }
            AccountKind::User => {
                matches!(above, AccountKind::Org | AccountKind::Team | AccountKind::Project)
            }
        },
    }
}
