//! Many operations in one request.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The most operations of one batch.
pub const MAX_OPERATIONS: usize = 1000;

/// Operations on ledger resources, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"operations": [
    {"method": "POST", "path": "/v1/charges", "body": {"account": "acme:nlp", "amount": "1"}}
], "atomic": true}))]
pub struct Batch {
    /// The operations, at most 1000.
    #[schema(min_items = 1, max_items = 1000)]
    pub operations: Vec<Operation>,
    /// All or nothing, inside one tenant; false if absent.
    #[serde(default)]
    pub atomic: bool,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The method.
    #[schema(example = "POST")]
    pub method: String,
    /// The path, without a query.
    #[schema(example = "/v1/charges")]
    pub path: String,
    /// The body.
    #[serde(default)]
    pub body: Option<Value>,
    /// Its own idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What one operation came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationResult {
    /// The status that it would have had alone; 424 if another one made it fail.
    #[schema(example = 201)]
    pub status: u16,
    /// The body that it would have had alone.
    pub body: Value,
}

/// What all operations came to, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchResults {
    /// The results.
    pub results: Vec<OperationResult>,
}
