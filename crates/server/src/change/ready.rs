//! A change that has everything it needs from the archive, and what its idempotency key names.

use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Accepted, Envelope, Ledger, Refused};
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use bursar_engine::Transaction;

use super::Target;
use super::archive_lookup::ArchiveRecords;
use super::done::{AnsweredBefore, Done, Finish};
use super::find::{exists, find_in};
use super::fingerprint::key_hash;
use crate::auth::tenant_of;
use crate::request::{Caller, Failure, reused};

/// The idempotency key of a batch's operation.
pub struct OperationKey {
    pub(super) target: Target,
    pub(super) key: Name,
    pub(super) batch: u128,
    pub(super) looked: ArchiveRecords,
}

impl OperationKey {
    /// The account that it names.
    pub fn account(&self) -> Option<&AccountPath> {
        match &self.target {
            Target::Account(path) => Some(path),
            Target::Named(..) => None,
        }
    }

    /// The tenant in whose namespace the key is, as far as it is known before the decision.
    pub fn namespace(&self, ledger: &Ledger, caller: &Caller) -> Option<AccountPath> {
        let tenant = match &self.target {
            Target::Account(path) => {
                return caller.principal.sees(path).then(|| tenant_of(path).into());
            }
            Target::Named(resource, id) => {
                find_in(ledger, caller, (*resource, id), &self.looked.records).ok()
            }
        };
        let tenant = tenant.as_deref().map(tenant_of);
        tenant.or_else(|| caller.principal.tenant()).map(AccountPath::from)
    }

    /// Whether the key was used for another request; `None` if the archive has to be asked again.
    pub fn is_reused(&self, ledger: &Ledger, now: Timestamp, namespace: &str) -> Option<bool> {
        let key = key_hash(namespace, &self.key);
        if let Some(kept) = ledger.kept_fingerprint(key) {
            return Some(kept != self.batch);
        }
        if self.looked.lacks_answer(ledger, now, key) {
            return None;
        }
        let answer = self.looked.answer(ledger, now, key);
        Some(answer.is_some_and(|(answer, _)| answer.fingerprint != self.batch))
    }
}

/// A change that can be decided.
pub struct ReadyChange {
    /// The caller and the idempotency key.
    pub envelope: Envelope,
    /// The command.
    pub command: Command,
    pub(super) tenant: AccountPath,
    pub(super) finish: Finish,
    /// The resource that it creates, if the caller chose the id.
    pub(super) chosen: Option<(Resource, Name)>,
    pub(super) looked: ArchiveRecords,
}

impl ReadyChange {
    /// The answer that the archive has to an earlier request under its key, if the ledger has forgotten it.
    pub fn answered(
        &self,
        ledger: &Ledger,
        now: Timestamp,
    ) -> Option<Result<AnsweredBefore, Failure>> {
        let (answer, shown) = self.looked.answer(ledger, now, self.envelope.key?)?;
        if answer.fingerprint != self.envelope.keyed_fingerprint() {
            return Some(Err(reused()));
        }
        let request = answer.request;
        Some(match &*answer.answer {
            Ok(reply) => Ok(AnsweredBefore {
                accepted: Accepted {
                    reply: reply.clone(),
                    replayed: true,
                    unchanged: request != 0,
                },
                of: answer.of.clone(),
                shown: shown.clone(),
                finish: self.finish.clone(),
            }),
            Err(refusal) => {
                let refusal = refusal.clone();
                Err(Failure::from(Refused { refusal, replayed: true, request }))
            }
        })
    }

    /// The tenant.
    pub fn tenant(&self) -> &AccountPath {
        &self.tenant
    }

    /// Whether an answer is stored under its key, to this request or to another.
    pub(super) fn was_answered(&self, ledger: &Ledger) -> bool {
        self.envelope.key.is_some_and(|key| ledger.kept_fingerprint(key).is_some())
    }

    /// Whether the resource that it creates exists already.
    pub fn existed(&self, ledger: &Ledger) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_some_and(|(resource, id)| exists(ledger, &self.tenant, *resource, id))
    }

    /// Decides it without applying or storing the decision. A change that would be accepted has no answer.
    pub(super) fn rehearse(&self, ledger: &dyn Transaction<Ledger>) -> Result<Done, Failure> {
        let _ = ledger.rehearse(&self.envelope, &self.command)??;
        Ok(Done { status: 204, body: None, replayed: false, position: ledger.position() })
    }

    /// How to render its answer.
    pub fn finish(&self) -> Finish {
        self.finish.clone()
    }
}
