//! Transfers and collections, and the names of all movements.

use bursar_core::ledger::command::{Context, Transfer};
use bursar_core::ledger::refusal::{Blocker, Conflict, Refusal, Resource};
use bursar_core::name::{AccountPath, MovementId};

use super::Model;
use super::account::tenant;
use super::answer::Reply;
use super::draw::{largest, plan, total};
use super::hold::credits;
use super::state::{Grant, Micros, Movement};

impl Model {
    pub(super) fn transfer(
        &mut self,
        fingerprint: u128,
        transfer: &Transfer,
    ) -> Result<Reply, Refusal> {
        let from = self.find_account(&transfer.from)?;
        let to = self.find_account(&transfer.to)?;
        let tenant = tenant(&transfer.from);
        if let Some(reply) =
            self.movement_again(Resource::Transfer, tenant, &transfer.id, fingerprint)?
        {
            return Ok(reply);
        }
        self.refuse_if_frozen(from)?;
        let amount = Micros::from(transfer.amount.micros());
        let sources = self.sources_own(from);
        let Some(plan) = plan(&sources, amount, None) else {
            let blocker = Blocker::Credits {
                account: transfer.from.clone(),
                requested: transfer.amount,
                spendable: total(&sources),
            };
            return Err(Refusal::InsufficientCredits { blockers: vec![blocker] });
        };
        for (number, units) in &plan {
            self.grants[*number].free -= units;
            self.grants[*number].moved += units;
        }
        for (source, amount) in self.by_bucket(&plan) {
            let source = &self.grants[source];
            let child = Grant {
                account: to,
                kind: source.kind,
                amount,
                effective_at: self.now,
                expires_at: source.expires_at,
                priority: source.priority,
                restriction: source.restriction.clone(),
                ..Grant::empty()
            };
            self.add_unnamed_grant(child);
        }
        Ok(self.add_movement(Resource::Transfer, tenant, &transfer.id, fingerprint, plan))
    }

    pub(super) fn collect(
        &mut self,
        fingerprint: u128,
        path: &AccountPath,
        name: &MovementId,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(path)?;
        let tenant = tenant(path);
        if let Some(reply) = self.movement_again(Resource::Collection, tenant, name, fingerprint)? {
            return Ok(reply);
        }
        self.refuse_if_frozen(account)?;
        let uncollected = self.accounts[account].uncollected;
        if uncollected == 0 {
            return Err(Refusal::Conflict(Conflict::NothingUncollected));
        }
        let sources = self.sources_now(account, &Context::default());
        let amount = largest(&sources, uncollected.min(Micros::from(i64::MAX)), None);
        if amount == 0 {
            let blocker = Blocker::Credits {
                account: path.clone(),
                requested: credits(uncollected.min(Micros::from(i64::MAX))),
                spendable: 0,
            };
            return Err(Refusal::InsufficientCredits { blockers: vec![blocker] });
        }
        let plan = plan(&sources, amount, None).unwrap_or_default();
        for (grant, units) in &plan {
            self.spend(*grant, *units);
        }
        self.accounts[account].uncollected -= amount;
        Ok(self.add_movement(Resource::Collection, tenant, name, fingerprint, plan))
    }

    /// The first answer, if the same request has already made a movement with this name.
    pub(super) fn movement_again(
        &self,
        what: Resource,
        tenant: &str,
        name: &MovementId,
        fingerprint: u128,
    ) -> Result<Option<Reply>, Refusal> {
        let existing = self.movements.iter().find(|movement| {
            movement.what == what && movement.tenant == tenant && movement.name == *name
        });
        match existing {
            None => Ok(None),
            Some(movement) if movement.fingerprint == fingerprint => {
                Ok(Some(movement.reply.clone()))
            }
            Some(_) => Err(Refusal::AlreadyExists { what, name: name.clone().into() }),
        }
    }

    pub(super) fn add_movement(
        &mut self,
        what: Resource,
        tenant: &str,
        name: &MovementId,
        fingerprint: u128,
        lots: Vec<(usize, Micros)>,
    ) -> Reply {
        let amount = lots.iter().map(|(_, units)| units).sum();
        let reply = Reply::Movement { what, name: name.clone(), amount };
        self.movements.push(Movement {
            what,
            tenant: tenant.into(),
            name: name.clone(),
            fingerprint,
            reply: reply.clone(),
            lots,
        });
        reply
    }
}
