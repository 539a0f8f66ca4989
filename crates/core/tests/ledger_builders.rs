//! Commands with the usual fields, for tests that are about other fields.
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::Credits;
use bursar_core::ledger::command::{Policy, SubmitJob};
use bursar_core::ledger::jobs::{JobTerms, Offer};

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

/// A job of `acme` on one H100 for at most an hour, at a price per hour.
pub(crate) fn submission(id: &str, hold: &str, per_gpu_hour: Credits) -> SubmitJob {
    SubmitJob {
        scope: None,
        id: id.into(),
        account: "acme".into(),
        terms: JobTerms {
            gpu_types: vec!["H100".into()],
            max_runtime_ms: Some(HOUR_MS),
            grace_ms: 60_000,
            warn_ahead_ms: 0,
            ..JobTerms::new(GpuDemand::Whole(1))
        },
        offers: vec![Offer { region: "eu".into(), gpu_type: "H100".into(), per_gpu_hour }],
        payload: "{}".into(),
        submitted: "{}".into(),
        hold: hold.into(),
        array: None,
        after: Vec::new(),
    }
}
