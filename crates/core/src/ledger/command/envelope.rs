//! Who sent a command, under which key, and what the archive has of it.

use crate::ledger::holds::archive::{ArchivedHold, RecalledRecord};
use crate::ledger::holds::hold::HoldKind;
use crate::ledger::id::{AccountNo, Name};
use crate::ledger::refusal::Resource;
use crate::ledger::state::{Movement, short_fingerprint};

/// The author of a command and its idempotency key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The API key or component that sent the command, for the audit trail.
    pub actor: Name,
    /// A hash of the whole request (method, path, body): equal requests have equal ones.
    pub fingerprint: u128,
    /// A hash of tenant and idempotency key, if the request carried one.
    pub key: Option<u128>,
    /// The hash of the batch that contains the request, if the key is derived from the key of the
    /// batch. The key then identifies the whole batch.
    pub batch: Option<u128>,
    /// The id of the request; zero if it has none. A kept refusal stores it, so that a repeated
    /// answer is identical.
    pub request: u128,
    /// The position of the archive in which the idempotency key and the names of the command were looked up. Nothing
    /// is checked if it is absent.
    pub archive: Option<u64>,
    /// What the archive has under those names.
    pub recalled: Vec<RecalledRecord>,
}

impl Envelope {
    /// The record of a forgotten hold or charge that came with the command.
    pub(in crate::ledger) fn recalled_hold(
        &self,
        tenant_of: impl Fn(AccountNo) -> Option<AccountNo>,
        (tenant, kind, id): (AccountNo, HoldKind, &str),
    ) -> Option<&ArchivedHold> {
        self.recalled.iter().find_map(|recalled| match recalled {
            RecalledRecord::Hold(record) => {
                let hold = &record.hold;
                let own = tenant_of(hold.account) == Some(tenant);
                (own && hold.kind == kind && hold.id == id).then_some(record)
            }
            RecalledRecord::Movement(_) => None,
        })
    }

    /// The parts of a forgotten refund, transfer or collection that came with the command.
    pub(in crate::ledger) fn recalled_movement(
        &self,
        tenant: AccountNo,
        what: Resource,
        id: &str,
    ) -> Option<&[Movement]> {
        self.recalled.iter().find_map(|recalled| match recalled {
            RecalledRecord::Hold(_) => None,
            RecalledRecord::Movement(parts) => {
                let whole = parts.first()?;
                let own = whole.tenant == tenant && whole.what == what && whole.movement.id == id;
                own.then_some(parts.as_slice())
            }
        })
    }

    /// The hash of the request or batch that the idempotency key identifies.
    pub fn keyed_fingerprint(&self) -> u128 {
        self.batch.unwrap_or(self.fingerprint)
    }

    /// Whether the same request created the resource that stores this shortened hash. In journals
    /// of earlier releases, a resource created by a batch with a key stores the hash of the batch.
    pub fn made(&self, kept: u64) -> bool {
        let is_kept = |fingerprint| short_fingerprint(fingerprint) == kept;
        is_kept(self.fingerprint) || self.batch.is_some_and(is_kept)
    }
}
