//! Usage measured by another system, such as Slurm or Kubernetes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Amount;
use crate::credits::batch::OperationResult;

/// The most records in one request.
pub const MAX_RECORDS: usize = 1000;

/// What a job or hold used so far. Exactly one of `job` and `hold`, and exactly one of
/// `gpu_ms_total` (jobs only) and `amount_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageRecord {
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The attempt of the job; the current one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// The sequence number of this report; a repeated number changes nothing.
    pub seq: u64,
    /// GPU-milliseconds in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ms_total: Option<u64>,
    /// Credits in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_total: Option<Amount>,
    /// Whether the usage is complete: the remainder of the hold is returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<bool>,
}

/// Reports usage. Cumulative, so repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"records": [{"hold": "slurm-812", "seq": 4, "amount_total": "3.75"}]}))]
pub struct ReportUsage {
    /// The records, at most 1000.
    #[schema(min_items = 1, max_items = 1000)]
    pub records: Vec<UsageRecord>,
}

/// The result of each record, in order: the hold or job, or a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageResults {
    /// The results.
    pub results: Vec<OperationResult>,
}
