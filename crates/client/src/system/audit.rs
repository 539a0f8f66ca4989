//! The audit trail and its proofs. The event feed is [`EventStream`](crate::EventStream).

use bursar_api::List;
use bursar_api::system::audit::{AuditQuery, AuditRecord, Checkpoint, Proof, ProofQuery};

use crate::call::Call;

/// Lists records, newest first.
pub fn list(query: &AuditQuery) -> Call<List<AuditRecord>> {
    Call::get("/v1/audit").with_query(query)
}

/// A signed checkpoint of the journal.
pub fn checkpoint() -> Call<Checkpoint> {
    Call::get("/v1/audit/checkpoint")
}

/// A proof that a record is in the journal.
pub fn proof(position: u64) -> Call<Proof> {
    Call::get("/v1/audit/proof").with_query(&ProofQuery { position })
}
