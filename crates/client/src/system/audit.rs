//! The audit trail and its proofs. The event feed is [`EventStream`](crate::EventStream).

use bursar_api::List;
use bursar_api::system::audit::{
    AuditQuery, AuditRecord, Checkpoint, CheckpointQuery, Proof, ProofQuery,
};

use crate::call::Call;

/// Lists records, newest first.
pub fn list(query: &AuditQuery) -> Call<List<AuditRecord>> {
    Call::get("/v1/audit").with_query(query)
}

/// A signed checkpoint of the journal of a machine: the ledger's if absent.
pub fn checkpoint(machine: Option<&str>) -> Call<Checkpoint> {
    let machine = machine.map(str::to_owned);
    Call::get("/v1/audit/checkpoint").with_query(&CheckpointQuery { machine })
}

/// A proof that a record is in the journal of a machine: the ledger's if absent.
pub fn proof(machine: Option<&str>, position: u64) -> Call<Proof> {
    let machine = machine.map(str::to_owned);
    Call::get("/v1/audit/proof").with_query(&ProofQuery { machine, position })
}
