//! Accounts: a tree whose first level is the tenant.

use std::collections::BTreeMap;

use super::budgets::BudgetBook;
use super::{Books, LawResult, require};
use crate::node::Node;

/// One account.
pub(crate) struct AccountBook {
    pub(crate) path: String,
    pub(crate) parent: Option<u32>,
    pub(crate) tenant: u32,
    pub(crate) frozen: bool,
    pub(crate) frozen_by_platform: bool,
    pub(crate) uncollected: i128,
    /// Its budgets, by name.
    pub(crate) budgets: BTreeMap<String, BudgetBook>,
}

impl Books {
    pub(super) fn account_opened(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let path = event.field(1)?.text()?.to_owned();
        require(number as usize == self.accounts.len(), "L12", || {
            format!("account {number} is opened after {} others", self.accounts.len())
        })?;
        let known = |path: &str| self.accounts.iter().position(|account| account.path == path);
        require(known(&path).is_none(), "L12", || format!("account {path} is opened twice"))?;
        let parent = match path.rsplit_once(':') {
            None => None,
            Some((parent, _)) => {
                let found = known(parent).and_then(|number| u32::try_from(number).ok());
                require(found.is_some(), "L13", || format!("{path} has no account above it"))?;
                found
            }
        };
        let tenant = parent.map_or(number, |parent| self.accounts[parent as usize].tenant);
        let budgets = BTreeMap::new();
        let book = AccountBook {
            path,
            parent,
            tenant,
            frozen: false,
            frozen_by_platform: false,
            uncollected: 0,
            budgets,
        };
        self.accounts.push(book);
        Ok(())
    }

    /// The account that an event names first.
    pub(super) fn known_account(&self, event: &Node) -> LawResult<u32> {
        let number = event.field(0)?.index()?;
        self.require_account(number)?;
        Ok(number)
    }

    pub(super) fn require_account(&self, number: u32) -> LawResult<()> {
        require((number as usize) < self.accounts.len(), "L12", || {
            format!("there is no account {number}")
        })
    }

    /// Freezes an account. The platform may also freeze an account that others froze.
    pub(super) fn freeze(&mut self, event: &Node) -> LawResult<()> {
        let number = self.known_account(event)?;
        let by_platform = event.get(1).map_or(Ok(false), Node::flag)?;
        let account = &mut self.accounts[number as usize];
        let is_new = !account.frozen || (by_platform && !account.frozen_by_platform);
        require(is_new, "L12", || format!("{} is frozen twice", account.path))?;
        account.frozen = true;
        account.frozen_by_platform = by_platform;
        Ok(())
    }

    pub(super) fn unfreeze(&mut self, event: &Node) -> LawResult<()> {
        let number = self.known_account(event)?;
        let account = &mut self.accounts[number as usize];
        require(account.frozen, "L12", || format!("{} is unfrozen twice", account.path))?;
        account.frozen = false;
        account.frozen_by_platform = false;
        Ok(())
    }

    /// Whether `upper` is `lower` or an ancestor of it.
    pub(super) fn is_above(&self, upper: u32, lower: u32) -> bool {
        let mut next = Some(lower);
        while let Some(account) = next {
            if account == upper {
                return true;
            }
            next = self.accounts[account as usize].parent;
        }
        false
    }

    pub(super) fn require_thawed(&self, account: u32) -> LawResult<()> {
        let mut next = Some(account);
        while let Some(number) = next {
            let account = &self.accounts[number as usize];
            require(!account.frozen, "frozen", || {
                format!("credits were drawn below {}, which is frozen", account.path)
            })?;
            next = account.parent;
        }
        Ok(())
    }
}
