//! The idempotency key of a batch.

use std::collections::{BTreeMap, BTreeSet};

use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::{Envelope, Ledger, Refused};
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use bursar_engine::Transaction;
use smallvec::smallvec;

use crate::app::App;
use crate::auth::tenant_of;
use crate::change::{
    ArchiveRecords, LookUps, OperationKey, asked_tenant, being_archived, key_hash,
};
use crate::request::{Caller, Failure, reused};

/// The idempotency key of a batch.
#[derive(Clone)]
pub(super) struct BatchKey {
    pub(super) caller: Caller,
    key: Name,
    fingerprint: u128,
    /// What the archive has under it, by tenant.
    looked: BTreeMap<AccountPath, ArchiveRecords>,
}

/// Why a batch is not decided.
pub(super) enum BatchKeyError {
    /// Its key was used for another request.
    Reused,
    /// It has to be looked up in these tenants.
    Unknown(BTreeSet<AccountPath>),
}

/// The batch that was decided under a key.
pub(super) enum EarlierBatch {
    /// There was none.
    None,
    /// This one, and the ledger has its answer.
    InMemory,
    /// This one was applied, and only the archive knows it.
    Applied,
    /// This one was refused, and only the archive knows it.
    Refused(Refused),
    /// Another one.
    Other,
    /// The archive has to be asked again.
    Unknown,
}

impl BatchKey {
    pub(super) fn of(caller: &Caller, fingerprint: Option<u128>) -> Option<BatchKey> {
        let (caller, key) = (caller.clone(), caller.idempotency_key.clone()?);
        Some(BatchKey { caller, key, fingerprint: fingerprint?, looked: BTreeMap::new() })
    }

    /// Asks the archive for it in these tenants.
    pub(super) async fn look_up(
        &mut self,
        app: &App,
        tenants: BTreeSet<AccountPath>,
        first: bool,
    ) -> Result<(), Failure> {
        for tenant in tenants {
            let (keys, holds) = (smallvec![self.key.clone()], Vec::new());
            let wanted = Some(tenant.clone());
            let (target, created, array) = (None, None, None);
            let look_ups = LookUps { tenant: wanted, target, created, array, holds, keys };
            let at_once = look_ups.at_once(app).filter(|looked| looked.position > 0);
            let looked = match at_once {
                Some(looked) => looked,
                None => match look_ups.look_up(app).await {
                    Err(_) if first => ArchiveRecords::default(),
                    looked => looked?,
                },
            };
            self.looked.insert(tenant, looked);
        }
        Ok(())
    }

    /// The tenants in which changes may use it, as far as their targets say.
    pub(super) fn tenants(&self, probes: &[OperationKey]) -> BTreeSet<AccountPath> {
        let named = probes
            .iter()
            .filter_map(OperationKey::account)
            .map(|path| AccountPath::from(tenant_of(path)));
        named.chain(asked_tenant(&self.caller)).collect()
    }

    /// What was decided under it in a tenant.
    pub(super) fn earlier(
        &self,
        ledger: &Ledger,
        now: Timestamp,
        tenant: &AccountPath,
    ) -> EarlierBatch {
        let key = key_hash(tenant, &self.key);
        if let Some(kept) = ledger.kept_fingerprint(key) {
            return if kept == self.fingerprint {
                EarlierBatch::InMemory
            } else {
                EarlierBatch::Other
            };
        }
        let nothing = ArchiveRecords::default();
        let looked = self.looked.get(tenant).unwrap_or(&nothing);
        if looked.lacks_answer(ledger, now, key) {
            return EarlierBatch::Unknown;
        }
        match looked.answer(ledger, now, key) {
            None => EarlierBatch::None,
            Some((answer, _)) if answer.fingerprint != self.fingerprint => EarlierBatch::Other,
            Some((answer, _)) => match answer.answer.as_ref() {
                Ok(_) => EarlierBatch::Applied,
                Err(refusal) => {
                    let (refusal, request) = (refusal.clone(), answer.request);
                    EarlierBatch::Refused(Refused { refusal, replayed: true, request })
                }
            },
        }
    }

    /// Refuses the batch if its key, or one derived from it, was used for another request.
    pub(super) fn require_unused(
        &self,
        ledger: &Ledger,
        now: Timestamp,
        probes: &[OperationKey],
    ) -> Result<(), BatchKeyError> {
        let mut unknown = BTreeSet::new();
        for probe in probes {
            let Some(tenant) = probe.namespace(ledger, &self.caller) else { continue };
            match self.earlier(ledger, now, &tenant) {
                EarlierBatch::Other => return Err(BatchKeyError::Reused),
                EarlierBatch::Unknown => _ = unknown.insert(tenant.clone()),
                EarlierBatch::None
                | EarlierBatch::InMemory
                | EarlierBatch::Applied
                | EarlierBatch::Refused(_) => {}
            }
            match probe.is_reused(ledger, now, &tenant) {
                Some(true) => return Err(BatchKeyError::Reused),
                Some(false) => {}
                None => _ = unknown.insert(tenant),
            }
        }
        if unknown.is_empty() { Ok(()) } else { Err(BatchKeyError::Unknown(unknown)) }
    }

    /// The envelope that stores its answer in a tenant.
    pub(super) fn envelope(&self, tenant: &AccountPath) -> Envelope {
        let (actor, request) = (self.caller.principal.id.clone().into(), self.caller.request);
        Envelope {
            actor,
            fingerprint: self.fingerprint,
            key: Some(key_hash(tenant, &self.key)),
            request,
            archive: Some(self.looked.get(tenant).map_or(0, |looked| looked.position)),
            ..Envelope::default()
        }
    }

    /// Records that the key was used, in each tenant in which the batch changed something.
    pub(super) fn note(
        &self,
        ledger: &mut dyn Transaction<Ledger>,
        tenants: BTreeSet<AccountPath>,
    ) {
        for tenant in tenants {
            let earlier = self.earlier(ledger.machine(), ledger.now(), &tenant);
            if !matches!(earlier, EarlierBatch::None | EarlierBatch::Unknown) {
                continue;
            }
            // It was compared before the first operation.
            let envelope = Envelope { archive: None, ..self.envelope(&tenant) };
            // It only stores an answer, so it is never rejected.
            let _kept = ledger.execute(&envelope, &Command::KeepBatch { aborted: None });
        }
    }
}

impl BatchKeyError {
    /// The failure of a batch that is not decided.
    pub(super) fn failure(&self) -> Failure {
        match self {
            BatchKeyError::Reused => reused(),
            BatchKeyError::Unknown(_) => being_archived(),
        }
    }
}
