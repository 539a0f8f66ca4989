//! Commands about grants.

use bursar_core::ledger::command::{Command, GrantKind, IssueGrant, Transfer};
use bursar_core::name::{AccountPath, GrantId};

use super::Generator;
use super::amount::{credits, near};
use crate::model::Model;

impl Generator {
    pub(super) fn issue_grant(&mut self) -> Command {
        let is_capped = self.random.chance(self.flavor.capped);
        // Only promotions may be capped; a few others try it nevertheless.
        let kind = if is_capped && self.random.chance(98) {
            GrantKind::Promotion
        } else {
            *self.random.pick(&GrantKind::ALL)
        };
        let restriction = self.restriction(is_capped);
        let amount = match self.random.index(100) {
            0 => 0,
            1..=60 => self.scale.amount(&mut self.random),
            _ => self.scale.amount(&mut self.random).saturating_mul(4),
        };
        Command::IssueGrant(IssueGrant {
            id: self.grant_name(),
            account: self.path(),
            amount: credits(amount),
            kind,
            effective_at: self.effective_at(),
            expires_at: self.expiry(),
            priority: *self.random.pick(&[100, 100, 100, 100, 0, 50, 255]),
            restriction,
            reference: None,
            metadata: None,
        })
    }

    /// A name for a new grant; sometimes one that the ledger could generate.
    fn grant_name(&mut self) -> GrantId {
        if self.random.chance(1) {
            return format!("grant_auto-{}", self.random.index(30)).into();
        }
        self.new_name("g")
    }

    pub(super) fn revoke_grant(&mut self, model: &Model) -> Command {
        let (tenant, grant) = self.some_grant(model);
        Command::RevokeGrant { tenant, grant }
    }

    fn some_grant(&mut self, model: &Model) -> (AccountPath, GrantId) {
        if model.grant_count() > 0 {
            let number = self.recent(model.grant_count());
            let grant = model.grant_view(number);
            return (self.tenant_near(&grant.account), grant.name);
        }
        ("acme".into(), "g1".into())
    }

    /// An index into a list, more often near its end.
    pub(super) fn recent(&mut self, length: usize) -> usize {
        let oldest = self.random.index(length);
        oldest + self.random.index(length - oldest)
    }

    /// The tenant of a path; sometimes the other one.
    pub(super) fn tenant_near(&mut self, path: &str) -> AccountPath {
        if self.random.once_in(100) {
            return "umbrella".into();
        }
        path.split(':').next().unwrap_or(path).into()
    }

    pub(super) fn transfer(&mut self, model: &Model) -> Command {
        let mut from = model.account_view(self.random.index(model.account_count()));
        for _ in 0..3 {
            if from.available == 0 {
                from = model.account_view(self.random.index(model.account_count()));
            }
        }
        let to = if self.random.chance(92) {
            let same_tenant: Vec<AccountPath> = (self.paths.iter())
                .map(|(path, _)| path)
                .filter(|path| path.split(':').next() == from.path.split(':').next())
                .cloned()
                .collect();
            self.random.pick(&same_tenant).clone()
        } else {
            self.path()
        };
        let amount = near(&mut self.random, from.available, self.scale);
        Command::Transfer(Transfer {
            id: self.new_name("t"),
            from: from.path,
            to,
            amount: credits(amount),
            note: None,
        })
    }
}
