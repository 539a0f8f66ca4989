//! Messages to and from the pool.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::resources::{Amounts, Shortage};

/// A message with its sender and receiver.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    pub(super) src: String,
    pub(super) dest: String,
    pub(super) body: Reply,
}

/// Requests.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Request {
    /// Allocates resources, all or nothing.
    Allocate { requirements: Vec<Requirement> },
    /// Releases resources.
    Release { allocation_id: String },
    /// Submits jobs of a category with a concurrency limit.
    SubmitJob { category: String, concurrency_limit: u64, jobs: u64 },
    /// Reports that running jobs of a category have ended.
    FinishJob { category: String, jobs: u64 },
    /// Sent by test harnesses before anything else; nothing depends on it.
    Init,
}

/// The types of [`Request`], to distinguish unknown requests from malformed ones.
const KNOWN: [&str; 5] = ["allocate", "release", "submit_job", "finish_job", "init"];

#[derive(Debug, Deserialize)]
pub(super) struct Requirement {
    #[serde(rename = "type")]
    pub(super) resource: String,
    pub(super) amount: u64,
}

impl Request {
    /// Parses a body.
    pub(super) fn read(body: &Value) -> Result<Request, RequestError> {
        let Some(kind) = body.get("type").and_then(Value::as_str) else {
            return Err(RequestError::malformed("the body needs a `type`"));
        };
        if !KNOWN.contains(&kind) {
            return Err(RequestError {
                code: NOT_SUPPORTED,
                text: format!("no such type: {kind}"),
            });
        }
        Request::deserialize(body).map_err(|error| RequestError::malformed(&error.to_string()))
    }
}

/// The type of the request is unknown.
const NOT_SUPPORTED: u32 = 10;
/// A field of the request is missing or not valid.
const MALFORMED: u32 = 12;
/// The request names something that does not exist.
const UNKNOWN_ID: u32 = 20;

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) code: u32,
    pub(super) text: String,
}

impl RequestError {
    pub(super) fn malformed(text: &str) -> RequestError {
        RequestError { code: MALFORMED, text: text.into() }
    }

    pub(super) fn unknown(what: &str, id: &str) -> RequestError {
        RequestError { code: UNKNOWN_ID, text: format!("no such {what}: {id}") }
    }
}

/// Replies. Fields are in the order that clients expect.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Reply {
    Allocated { in_reply_to: i64, allocation_id: String, resources: Named },
    Queued { in_reply_to: i64, reason: &'static str, available: Named, required: Required },
    Released { in_reply_to: i64, allocation_id: String, resources_freed: Named },
    JobsSubmitted { in_reply_to: i64, queued: u64, running: u64, waiting: u64 },
    JobsFinished { in_reply_to: i64, finished: u64, running: u64, waiting: u64 },
    InitOk { in_reply_to: i64 },
    Error { in_reply_to: Option<i64>, code: u32, text: String },
}

/// Amounts by name, in their own order.
#[derive(Clone, Debug)]
pub(super) struct Named(Vec<(String, u64)>);

impl From<&Amounts> for Named {
    fn from(amounts: &Amounts) -> Named {
        Named(amounts.iter().map(|(name, amount)| (name.to_string(), amount)).collect())
    }
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, amount) in &self.0 {
            map.serialize_entry(name, amount)?;
        }
        map.end()
    }
}

/// The required amounts of the short resources: a plain number if it is one resource.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Required {
    One(u64),
    Several(Named),
}

/// The reply to a request that has to wait.
pub(super) fn queued(in_reply_to: i64, shortages: &[Shortage]) -> Reply {
    let named = |amount: fn(&Shortage) -> u64| {
        Named(shortages.iter().map(|one| (one.resource.clone(), amount(one))).collect())
    };
    let required = match shortages {
        [only] => Required::One(only.required),
        _ => Required::Several(named(|shortage| shortage.required)),
    };
    let available = named(|shortage| shortage.available);
    Reply::Queued { in_reply_to, reason: "Insufficient resources", available, required }
}
