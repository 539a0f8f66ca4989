//! Quotas: limits on concurrent GPUs and jobs.

use bursar_api::accounts::quota::{Quota, QuotaQuery, Quotas, SetQuota};

use crate::call::{Call, Method, Nothing, path};

/// Sets or replaces the quota of an account for one region, or for every region.
pub fn set(account: &str, quota: &SetQuota) -> Call<Quota> {
    Call::put(path(&["v1", "accounts", account, "quota"]), quota)
}

/// All quotas of an account.
pub fn show(account: &str) -> Call<Quotas> {
    Call::get(path(&["v1", "accounts", account, "quota"]))
}

/// Removes the quota for one region, or for every region.
pub fn remove(account: &str, query: &QuotaQuery) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "accounts", account, "quota"])).with_query(query)
}
