//! What is said to the pool and what it says.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::resources::{Amounts, Shortage};

/// A message to somebody.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    pub(super) src: String,
    pub(super) dest: String,
    pub(super) body: Reply,
}

/// What may be asked.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Request {
    /// Resources, all of them at once.
    Allocate { requirements: Vec<Requirement> },
    /// Resources come back.
    Release { allocation_id: String },
    /// Jobs of a category, of which only so many run at once.
    SubmitJob { category: String, concurrency_limit: u64, jobs: u64 },
    /// Running jobs of a category have ended.
    FinishJob { category: String, jobs: u64 },
    /// Sent by test harnesses before anything else; nothing depends on it.
    Init,
}

/// The types of [`Request`], to tell what is unknown from what is malformed.
const KNOWN: [&str; 5] = ["allocate", "release", "submit_job", "finish_job", "init"];

#[derive(Debug, Deserialize)]
pub(super) struct Requirement {
    #[serde(rename = "type")]
    pub(super) resource: String,
    pub(super) amount: u64,
}

impl Request {
    /// Reads a body.
    pub(super) fn read(body: &Value) -> Result<Request, Complaint> {
        let Some(kind) = body.get("type").and_then(Value::as_str) else {
            return Err(Complaint::malformed("the body needs a `type`"));
        };
        if !KNOWN.contains(&kind) {
            return Err(Complaint { code: NOT_SUPPORTED, text: format!("no such type: {kind}") });
        }
        Request::deserialize(body).map_err(|error| Complaint::malformed(&error.to_string()))
    }
}

/// The request is of no known type.
const NOT_SUPPORTED: u32 = 10;
/// The request lacks something or says what makes no sense.
const MALFORMED: u32 = 12;
/// The request names something that is not there.
const UNKNOWN_ID: u32 = 20;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) code: u32,
    pub(super) text: String,
}

impl Complaint {
    pub(super) fn malformed(text: &str) -> Complaint {
        Complaint { code: MALFORMED, text: text.into() }
    }

    pub(super) fn unknown(what: &str, id: &str) -> Complaint {
        Complaint { code: UNKNOWN_ID, text: format!("no such {what}: {id}") }
    }
}

/// What is answered. Fields are in the order in which readers expect them.
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

/// What was asked for of that which is short: a number if it is one resource.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Required {
    One(u64),
    Several(Named),
}

/// The answer to a request that has to wait.
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
