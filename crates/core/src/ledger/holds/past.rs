//! Commands on holds, charges and movements that the ledger has forgotten. Their records come with the command. All but
//! refunds change nothing, so that nothing is restored.

use super::archive::{ArchivedHold, RecalledRecord};
use super::forget::resource_of;
use super::hold::{Hold, HoldKind, HoldState};
use crate::ledger::command::{Command, Envelope, Usage};
use crate::ledger::credits::price::Rounding;
use crate::ledger::id::AccountNo;
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Ledger, short_fingerprint};
use crate::name::MovementId;

fn archived(hold: &Hold) -> Reply {
    let record = ArchivedHold { hold: hold.clone(), counted: true };
    Reply::Archived(Box::new(RecalledRecord::Hold(record)))
}

impl Ledger {
    fn recalled_hold<'a>(
        &self,
        envelope: &'a Envelope,
        name: (AccountNo, HoldKind, &str),
    ) -> Option<&'a ArchivedHold> {
        let tenant_of =
            |account: AccountNo| self.accounts.get(account.index()).map(|account| account.tenant);
        envelope.recalled_hold(tenant_of, name)
    }

    /// The record of the hold that a command changes, if the ledger has forgotten it.
    pub(in crate::ledger) fn archived_target<'a>(
        &self,
        envelope: &'a Envelope,
        command: &Command,
    ) -> Option<&'a ArchivedHold> {
        if envelope.recalled.is_empty() {
            return None;
        }
        let (tenant, id) = command.changed_hold()?;
        let tenant = self.find_account(tenant)?;
        if self.find_hold(tenant, HoldKind::Hold, id).is_some() {
            return None;
        }
        self.recalled_hold(envelope, (tenant, HoldKind::Hold, id))
    }

    /// Decides a command on a closed hold as if the ledger still had it.
    pub(in crate::ledger) fn decide_on_archived(
        &self,
        hold: &Hold,
        command: &Command,
    ) -> Result<Reply, Refusal> {
        if hold.job().is_some() {
            return Err(Refusal::Conflict(Conflict::HeldByJob));
        }
        let closed = || Refusal::HoldClosed { state: hold.state };
        if let Command::SettleHold { usage, .. }
        | Command::ReportUsage { usage, ended: Some(_), .. } = command
        {
            return self.settled_before(hold, *usage);
        }
        if let Command::ReleaseHold { .. } = command
            && hold.state == HoldState::Released
        {
            return Ok(archived(hold));
        }
        if let Command::ExtendHold { amount: Some(_), .. } = command {
            self.require_thawed(&self.path(hold.account))?;
        }
        Err(closed())
    }

    /// The answer to a settlement of a closed hold.
    fn settled_before(&self, hold: &Hold, usage: Usage) -> Result<Reply, Refusal> {
        let metered = self.meter(hold, usage, Rounding::HalfEven);
        let same = metered.is_ok_and(|metered| metered.total == hold.metered);
        if same && hold.state == HoldState::Settled {
            Ok(archived(hold))
        } else {
            Err(Refusal::HoldClosed { state: hold.state })
        }
    }

    /// The answer to a creation whose hold or charge was made before and is forgotten.
    pub(super) fn made_before(
        &self,
        envelope: &Envelope,
        name: (AccountNo, HoldKind, &str),
    ) -> Option<Result<Reply, Refusal>> {
        let hold = &self.recalled_hold(envelope, name)?.hold;
        Some(if envelope.made(hold.fingerprint) {
            Ok(archived(hold))
        } else {
            Err(Refusal::AlreadyExists {
                what: resource_of(hold.kind),
                name: hold.id.clone().into(),
            })
        })
    }

    /// The answer to a refund, transfer or collection that was made before and is forgotten.
    pub(super) fn moved_before(
        &self,
        tenant: AccountNo,
        what: Resource,
        id: &MovementId,
        envelope: &Envelope,
    ) -> Result<Option<Reply>, Refusal> {
        let Some(parts) = envelope.recalled_movement(tenant, what, id) else { return Ok(None) };
        let same = parts
            .first()
            .is_some_and(|whole| envelope.made(short_fingerprint(whole.movement.fingerprint)));
        if same {
            Ok(Some(Reply::Archived(Box::new(RecalledRecord::Movement(parts.to_vec())))))
        } else {
            Err(Refusal::AlreadyExists { what, name: id.clone().into() })
        }
    }
}
