//! Grants: credits issued to an account.

use bursar_api::List;
use bursar_api::credits::grant::{Grant, GrantFilter, IssueGrant};

use crate::call::{Call, Method, path};

/// Issues credits to an account.
pub fn issue(grant: &IssueGrant) -> Call<Grant> {
    Call::post("/v1/grants", grant)
}

/// Reads a grant.
pub fn show(id: &str) -> Call<Grant> {
    Call::get(path(&["v1", "grants", id]))
}

/// Lists grants, newest first.
pub fn list(filter: &GrantFilter) -> Call<List<Grant>> {
    Call::get("/v1/grants").with_query(filter)
}

/// Revokes the unspent part of a grant.
pub fn revoke(id: &str) -> Call<Grant> {
    Call::new(Method::Post, path(&["v1", "grants", id, "revoke"])).with_json("{}")
}
