//! Usage measured by another system, such as Slurm or Kubernetes.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::amount::Amount;
use crate::credits::batch::OperationResult;

/// The most records in one request.
pub const MAX_RECORDS: usize = 1000;

/// What a job or hold used so far. Exactly one of `job` and `hold`, and exactly one of
/// `gpu_ms_total` (jobs only) and `amount_total`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageRecord {
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// The attempt of the job; the current one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// The sequence number of this report; a repeated number changes nothing.
    pub seq: u64,
    /// GPU-milliseconds in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ms_total: Option<u64>,
    /// Credits in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount_total: Option<Amount>,
    /// Whether the usage is complete, and how it ended: `succeeded`, `failed`, `cancelled` or `lost`;
    /// `true` if that is not known. The remainder of the hold is returned. Without a job the words have
    /// the same effect as `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<UsageEndedForm>)]
    pub ended: Option<UsageEnded>,
}

/// How usage ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum UsageEnded {
    /// `false`: it goes on.
    No,
    /// `true`: it ended, and nothing more is known.
    Yes,
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was lost.
    Lost,
}

/// The form of [`UsageEnded`] in the description of the API.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(as = UsageEnded)]
#[allow(dead_code, reason = "only its schema is used")]
enum UsageEndedForm {
    /// Whether it ended.
    Flag(bool),
    /// How it ended.
    Word(UsageEndWord),
}

/// How usage ended, as a word.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[allow(dead_code, reason = "only its schema is used")]
enum UsageEndWord {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was lost, with its node for example.
    Lost,
}

const WORDS: [(&str, UsageEnded); 4] = [
    ("succeeded", UsageEnded::Succeeded),
    ("failed", UsageEnded::Failed),
    ("cancelled", UsageEnded::Cancelled),
    ("lost", UsageEnded::Lost),
];

impl Serialize for UsageEnded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match WORDS.iter().find(|(_, ended)| ended == self) {
            Some((word, _)) => serializer.serialize_str(word),
            None => serializer.serialize_bool(*self == UsageEnded::Yes),
        }
    }
}

impl<'de> Deserialize<'de> for UsageEnded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UsageEnded, D::Error> {
        deserializer.deserialize_any(EndedVisitor)
    }
}

struct EndedVisitor;

impl Visitor<'_> for EndedVisitor {
    type Value = UsageEnded;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, succeeded, failed, cancelled or lost")
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<UsageEnded, E> {
        Ok(if flag { UsageEnded::Yes } else { UsageEnded::No })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<UsageEnded, E> {
        let word = WORDS.iter().find(|(word, _)| *word == text);
        word.map(|(_, ended)| *ended)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// Reports usage. Cumulative, so repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"records": [{"hold": "slurm-812", "seq": 4, "amount_total": "3.75"}]}))]
pub struct ReportUsage {
    /// The records, at most 1000.
    #[schema(min_items = 1, max_items = 1000)]
    pub records: Vec<UsageRecord>,
}

/// The result of each record, in order: the hold or job, or a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageResults {
    /// The results.
    pub results: Vec<OperationResult>,
}
