//! Commands with the usual fields, for tests that are about other fields.

use bursar_core::cell::ids::ClassRank;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::Credits;
use bursar_core::ledger::command::{GrantKind, IssueGrant, Policy, SubmitJob};
use bursar_core::ledger::jobs::{JobTerms, Offer, OnExhausted, Reserve};

const HOUR_MS: i64 = 3_600_000;

/// Everything that is closed may be forgotten after an hour.
pub(crate) fn short_memory() -> Policy {
    Policy {
        idempotency_ttl_ms: HOUR_MS,
        retention_ms: HOUR_MS,
        lateness_ms: HOUR_MS,
        compensation_ttl_ms: HOUR_MS,
        ..Policy::default()
    }
}

/// A grant without a beginning, an end or a restriction.
pub(crate) fn purchase(id: &str, account: &str, amount: Credits) -> IssueGrant {
    IssueGrant {
        id: id.into(),
        account: account.into(),
        amount,
        kind: GrantKind::Purchase,
        effective_at: None,
        expires_at: None,
        priority: 100,
        restriction: None,
        reference: None,
        metadata: None,
    }
}

/// A job of `acme` on one H100 for at most an hour, at a price per hour.
pub(crate) fn submission(id: &str, hold: &str, per_gpu_hour: Credits) -> SubmitJob {
    SubmitJob {
        scope: None,
        id: id.into(),
        account: "acme".into(),
        terms: JobTerms {
            external: false,
            class: "normal".into(),
            rank: ClassRank::NORMAL,
            gpu: GpuDemand::Whole(1),
            gpu_types: vec!["H100".into()],
            nodes: 1,
            gpu_memory_mib: 0,
            cpu_milli: 0,
            memory_mib: 0,
            labels: Vec::new(),
            max_runtime_ms: Some(HOUR_MS),
            preemptible: true,
            resumable: false,
            grace_ms: 60_000,
            reserve: Reserve::Full,
            on_exhausted: OnExhausted::Stop,
            group: None,
            max_requeues: 0,
            warn_ahead_ms: 0,
        },
        offers: vec![Offer { region: "eu".into(), gpu_type: "H100".into(), per_gpu_hour }],
        payload: "{}".into(),
        submitted: "{}".into(),
        hold: hold.into(),
        array: None,
        after: Vec::new(),
    }
}
