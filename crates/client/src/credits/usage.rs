//! Usage measured by another system.

use bursar_api::credits::usage::{ReportUsage, UsageResults};

use crate::call::Call;

/// Reports usage; cumulative, so repeating it changes nothing.
pub fn report(usage: &ReportUsage) -> Call<UsageResults> {
    Call::post("/v1/usage", usage)
}
