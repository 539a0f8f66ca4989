//! Many operations in one request.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The most operations in one batch.
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
    /// Whether all operations apply or none, within one tenant; false if absent.
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
    /// The idempotency key of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationResult {
    /// The status that the operation would have had on its own; 424 if it failed because of another one.
    #[schema(example = 201)]
    pub status: u16,
    /// The body that the operation would have had on its own.
    pub body: Value,
}

/// The results of all operations, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchResults {
    /// The results.
    pub results: Vec<OperationResult>,
}
