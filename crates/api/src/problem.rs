//! Errors: RFC 9457 problem details with a closed list of codes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Sum;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:literal, $title:literal, $retryable:literal;)*) => {
        /// What went wrong. A closed list; each has a page under `docs/problems/`.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The name of the code.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code),* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Code::$name => $status),* }
            }

            /// The title, the same for every problem with this code.
            pub const fn title(self) -> &'static str {
                match self { $(Code::$name => $title),* }
            }

            /// Whether the same request may succeed later without being changed.
            pub const fn is_retryable(self) -> bool {
                match self { $(Code::$name => $retryable),* }
            }
        }
    };
}

codes! {
    /// The body is not JSON, has a key twice, or nests too deep; or the request's framing is unclear.
    MalformedJson = "malformed_json", 400, "The request or its JSON cannot be read", false;
    /// No key, or one that is unknown, expired or revoked.
    Unauthenticated = "unauthenticated", 401, "A valid API key is needed", false;
    /// Not enough credits can be drawn.
    InsufficientCredits = "insufficient_credits", 402, "Not enough credits", true;
    /// A hard budget is exceeded.
    BudgetExceeded = "budget_exceeded", 402, "Budget exceeded", true;
    /// The key does not allow this.
    Forbidden = "forbidden", 403, "The key does not allow this", false;
    /// It does not exist, or the key cannot see it.
    NotFound = "not_found", 404, "Not found", false;
    /// The path exists, but not with this method.
    MethodNotAllowed = "method_not_allowed", 405, "The path does not take this method", false;
    /// The id exists with different content.
    AlreadyExists = "already_exists", 409, "The id is taken", false;
    /// The id exists in several tenants.
    AmbiguousId = "ambiguous_id", 409, "The id exists in several tenants", false;
    /// The idempotency key was used for another request.
    IdempotencyKeyReused = "idempotency_key_reused", 409, "The idempotency key was used for another request", false;
    /// Not allowed in the current state.
    Conflict = "conflict", 409, "Not allowed in the current state", false;
    /// The hold was closed before, in another way.
    HoldClosed = "hold_closed", 409, "The hold is closed", false;
    /// The sequence number was seen with another total.
    SequenceConflict = "sequence_conflict", 409, "The sequence number was seen with another total", false;
    /// An account on the path is frozen.
    AccountFrozen = "account_frozen", 409, "The account is frozen", true;
    /// A newer incarnation of the node has registered.
    StaleIncarnation = "stale_incarnation", 409, "A newer incarnation of the node has registered", false;
    /// An atomic batch failed as a whole.
    BatchAborted = "batch_aborted", 409, "The batch failed as a whole", false;
    /// The body is larger than 4 MiB.
    BodyTooLarge = "body_too_large", 413, "The body is too large", false;
    /// The body is not declared as JSON.
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be application/json", false;
    /// A field, parameter or header is not valid.
    InvalidField = "invalid_field", 422, "A field is not valid", false;
    /// No node could ever satisfy the request.
    Unsatisfiable = "unsatisfiable", 422, "Nothing could ever satisfy this", false;
    /// Usage was reported too late.
    TooLate = "too_late", 422, "Too late", false;
    /// Too many requests.
    RateLimited = "rate_limited", 429, "Too many requests", true;
    /// The service cannot answer now; nothing was changed.
    Unavailable = "unavailable", 503, "Not available now", true;
    /// The change may or may not have been made; repeat with the same idempotency key.
    OutcomeUnknown = "outcome_unknown", 503, "The outcome is unknown", true;
    /// The disk is full; nothing was changed.
    StorageFull = "storage_full", 503, "The storage is full", true;
    /// The server failed.
    Internal = "internal", 500, "The service failed", true;
}

impl utoipa::PartialSchema for Code {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .enum_values(Some(Code::ALL.iter().map(|code| code.as_str())))
            .description(Some("What went wrong. A closed list; each has a page of its own."))
            .into()
    }
}

impl ToSchema for Code {}

/// An error, as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The address of the page that explains the code.
    #[serde(rename = "type")]
    #[schema(example = "/docs/problems/insufficient_credits")]
    pub kind: String,
    /// A title. Every problem with this code has the same one.
    pub title: String,
    /// The HTTP status.
    #[schema(example = 402)]
    pub status: u16,
    /// What happened here, and what to do next.
    pub detail: String,
    /// The code.
    pub code: Code,
    /// The field, parameter or header that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// Whether the same request may succeed later without being changed.
    pub retryable: bool,
    /// The id of this request, as in the `Bursar-Request-Id` header and in the logs.
    #[schema(example = "req_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
    pub request_id: String,
    /// The server that can answer, if this one is a standby; also in the `Bursar-Owner` header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://bursar-1.example")]
    pub owner: Option<String>,
    /// Everything that blocks, never only the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blockers: Option<Vec<Blocker>>,
    /// The result of each operation of an aborted batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<crate::credits::batch::OperationResult>>,
}

impl Problem {
    /// A problem with a code and a detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("/docs/problems/{}", code.as_str()),
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            code,
            param: None,
            retryable: code.is_retryable(),
            request_id: String::new(),
            owner: None,
            blockers: None,
            results: None,
        }
    }

    /// Names the field, parameter or header that is wrong.
    pub fn with_param(mut self, param: impl Into<String>) -> Problem {
        self.param = Some(param.into());
        self
    }
}

/// Kinds of blocker.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockerType {
    /// Too few credits.
    Credits,
    /// A hard budget is exceeded.
    Budget,
    /// A quota is used up.
    Quota,
    /// An account is frozen.
    Frozen,
    /// No free capacity.
    Capacity,
    /// Not all nodes of a gang fit at once.
    Gang,
    /// No node has an acceptable GPU type.
    GpuType,
    /// No GPU has enough memory.
    Memory,
    /// The concurrency group is full.
    Group,
    /// Another job must end first.
    Dependency,
    /// Capacity is reserved for another job.
    Reservation,
    /// Other jobs have precedence.
    Priority,
    /// No acceptable region.
    Region,
    /// Nodes are being drained.
    Drain,
}

/// One blocker and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: BlockerType,
    /// The account concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// What blocks.
    pub detail: String,
    /// How to fix it.
    pub fix: String,
    /// The number of the scheduler's rule that makes the job wait, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u8>,
    /// The budget's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// The budget's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Sum>,
    /// Credits spent in the budget's period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<Sum>,
    /// Credits held in the budget's period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Sum>,
    /// The requested amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<Sum>,
    /// The spendable credits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spendable: Option<Sum>,
    /// When the budget's next period begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_end: Option<crate::Time>,
}

impl Blocker {
    /// A blocker without numbers.
    pub fn new(kind: BlockerType, detail: impl Into<String>, fix: impl Into<String>) -> Blocker {
        Blocker {
            kind,
            account: None,
            detail: detail.into(),
            fix: fix.into(),
            rule: None,
            budget: None,
            limit: None,
            spent: None,
            held: None,
            requested: None,
            spendable: None,
            period_end: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_as_its_name_everywhere() {
        for code in Code::ALL {
            let written = serde_json::to_value(code).expect("a plain string");
            assert_eq!(written, code.as_str());
            let schema = serde_json::to_value(<Code as utoipa::PartialSchema>::schema());
            let schema = schema.expect("a plain schema");
            assert!(schema["enum"].as_array().is_some_and(|names| names.contains(&written)));
        }
    }
}
