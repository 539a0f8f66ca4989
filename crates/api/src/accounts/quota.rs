//! Quotas: limits on concurrent GPUs and jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Sets or replaces the quota of an account for one region, or for every region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"gpus": {"H100": 8, "*": 16}, "running_jobs": 10}))]
pub struct SetQuota {
    /// The region; every region if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub region: Option<String>,
    /// GPUs in use at once by type; `*` is the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<BTreeMap<String, u32>>,
    /// Jobs running at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_jobs: Option<u32>,
    /// Jobs waiting at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_jobs: Option<u32>,
}

/// The quota of an account for one region, or for every region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// The account.
    pub account: String,
    /// The region; every region if absent.
    pub region: Option<String>,
    /// GPUs in use at once by type; `*` is the total.
    pub gpus: BTreeMap<String, u32>,
    /// Jobs running at once.
    pub running_jobs: Option<u32>,
    /// Jobs waiting at once.
    pub waiting_jobs: Option<u32>,
}

/// All quotas of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// The account.
    pub account: String,
    /// The quota for every region, or for the requested one: GPUs in use at once by type; `*` is the total.
    pub gpus: BTreeMap<String, u32>,
    /// The same: jobs running at once.
    pub running_jobs: Option<u32>,
    /// The same: jobs waiting at once.
    pub waiting_jobs: Option<u32>,
    /// The quotas: the one for every region first, then by region.
    pub data: Vec<Quota>,
    /// Always false: an account has few quotas.
    pub has_more: bool,
    /// Always absent.
    pub next_cursor: Option<String>,
}

/// Which quota to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QuotaQuery {
    /// The region; the quota for every region if absent.
    pub region: Option<String>,
}

/// Which quotas to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QuotaFilter {
    /// Only the quota that was set for this region; all if absent.
    pub region: Option<String>,
}
