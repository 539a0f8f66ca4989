//! The caller of a request.

use axum::http::Method;
use bursar_core::ledger::id::Name;
use bursar_core::name::AccountPath;
use serde_json::Value;

use crate::auth::Principal;
use crate::change::fingerprint;

/// The caller of a request, and the request itself.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated key.
    pub principal: Principal,
    /// The HTTP method.
    pub method: Method,
    /// The path as it was sent.
    pub path: String,
    /// The idempotency key.
    pub idempotency_key: Option<Name>,
    /// The tenant in which ids are looked up.
    pub tenant: Option<AccountPath>,
    /// The id of the request as a number.
    pub request: u128,
    /// Whether it only asks if the change would be accepted.
    pub dry_run: bool,
}

impl Caller {
    /// The fingerprint of this request with its body. Equal requests have equal fingerprints.
    pub fn fingerprint(&self, body: &Value) -> u128 {
        fingerprint(self.method.as_str(), &self.path, body)
    }
}
