//! Faults and the requests that caused them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::description::{Description, Operation};
use crate::requests::Made;
use crate::wire::{Answer, Outcome};
use crate::world::Client;

/// The most kinds of faults that are collected.
const ENOUGH: usize = 40;
/// Operations that may always be rejected: no account owes credits, so nothing can be collected, and on most
/// nodes attempts run; `after.rs` removes nodes. A data folder has one server, which can neither be drained nor
/// removed; `service/store/cluster.rs` does that on PostgreSQL.
const MAY_BE_REFUSED: [&str; 6] =
    ["collect", "delete_node", "drain_member", "resume_member", "evict_member", "drain_shard"];
/// The number of requests that are kept to find what stopped a machine.
const REMEMBERED: usize = 400;

#[derive(Default)]
struct Notes {
    /// By kind: the first of each, and how many there were.
    faults: BTreeMap<String, (String, usize)>,
    recent: std::collections::VecDeque<String>,
    by_status: BTreeMap<u16, usize>,
    /// Operations that succeeded at least once, and the last rejection of the others.
    done: BTreeSet<String>,
    refused: BTreeMap<String, String>,
    waiting: usize,
    closed: usize,
    is_stopped: bool,
}

/// Shared by all lanes.
#[derive(Default)]
pub(crate) struct Findings(Mutex<Notes>);

impl Findings {
    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.0.lock().expect("no lane panics with it in hand")
    }

    pub(crate) fn is_enough(&self) -> bool {
        let notes = self.notes();
        notes.is_stopped || notes.faults.len() >= ENOUGH
    }

    pub(crate) fn add(&self, kind: String, what: String) {
        self.notes().faults.entry(kind).or_insert((what, 0)).1 += 1;
    }

    /// Checks one answer.
    pub(crate) fn judge(
        &self,
        description: &Description,
        operation: &Operation,
        made: &Made,
        outcome: &Outcome,
        is_valid: bool,
    ) {
        let words = made.request.words();
        let status = match outcome {
            Outcome::Answered(answer) => answer.status.to_string(),
            Outcome::Waiting => "waiting".into(),
            Outcome::Closed(why) => why.clone(),
        };
        {
            let mut notes = self.notes();
            notes.recent.push_back(format!("{status} {words}"));
            if notes.recent.len() > REMEMBERED {
                notes.recent.pop_front();
            }
            match outcome {
                Outcome::Answered(answer) => {
                    *notes.by_status.entry(answer.status).or_insert(0) += 1;
                    if answer.status < 300 {
                        notes.done.insert(operation.id.clone());
                    } else if is_valid {
                        let problem = answer.json().unwrap_or_default();
                        let why = format!("{words}: {}", problem["detail"]);
                        notes.refused.insert(operation.id.clone(), why);
                    }
                }
                Outcome::Waiting => notes.waiting += 1,
                Outcome::Closed(_) => notes.closed += 1,
            }
        }
        let fault = match outcome {
            Outcome::Answered(answer) => fault(description, operation, made, answer),
            Outcome::Closed(why) if made.is_plain => Some(format!("no answer: {why}")),
            Outcome::Closed(_) | Outcome::Waiting => None,
        };
        if let Some(fault) = fault {
            let body = match outcome {
                Outcome::Answered(answer) => {
                    answer.body[..answer.body.len().min(600)].escape_ascii().to_string()
                }
                _ => String::new(),
            };
            let kind = format!("{}: {}", operation.id, fault.split(" (").next().unwrap_or(""));
            self.add(kind, format!("{fault}\n    {words}\n    -> {status} {body}"));
        }
    }

    /// Checks that the machines still serve: a change and a read through each. Reports the last requests if not.
    pub(crate) fn look_after(&self, root: &mut Client, lane: usize, epoch: usize) {
        let id = format!("probe-{lane}-{epoch}");
        let hold = json!({ "id": id, "account": "umbra", "amount": "0.000001" });
        for (method, target, body) in [
            ("POST", "/v1/holds".to_owned(), hold),
            ("POST", format!("/v1/holds/{id}/release"), json!({})),
            ("GET", "/v1/keys?limit=1".into(), Value::Null),
            (
                "PUT",
                "/v1/classes/probe".into(),
                json!({
                    "rank": epoch % 50, "preempts": [], "grace_seconds": 1, "default_preemptible": true
                }),
            ),
            ("GET", "/v1/regions/default/queue?limit=1".into(), Value::Null),
            ("GET", "/v1/regions/north/queue?limit=1".into(), Value::Null),
            ("GET", "/readyz".into(), Value::Null),
        ] {
            let answer = root.call(method, &target, &body);
            let status = answer.as_ref().map_or(0, |answer| answer.status);
            if status == 0 || status >= 500 {
                let mut notes = self.notes();
                notes.is_stopped = true;
                let said = answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
                let recent: Vec<String> = notes.recent.iter().cloned().collect();
                let what = format!("{said:?}; before it:\n    {}", recent.join("\n    "));
                notes.faults.insert(format!("{method} {target} answers {status}"), (what, 1));
                return;
            }
        }
    }

    /// A readable list of the faults.
    pub(crate) fn words(&self) -> Option<String> {
        let notes = self.notes();
        if notes.faults.is_empty() {
            return None;
        }
        let faults = notes.faults.iter();
        let faults =
            faults.map(|(kind, (what, times))| format!("{kind} ({times} times)\n  {what}"));
        Some(faults.collect::<Vec<_>>().join("\n\n"))
    }

    pub(crate) fn summary(&self) -> String {
        let notes = self.notes();
        let (waiting, closed) = (notes.waiting, notes.closed);
        format!("answers {:?}, {waiting} kept waiting, {closed} closed", notes.by_status)
    }

    pub(crate) fn is_done(&self, operation: &Operation) -> bool {
        self.notes().done.contains(&operation.id)
    }

    /// Operations that never succeeded: rejected requests alone test too little.
    pub(crate) fn never_done(&self, description: &Description) -> Vec<String> {
        let notes = self.notes();
        let all = description.operations.iter().map(|operation| operation.id.clone());
        let never =
            all.filter(|id| !notes.done.contains(id) && !MAY_BE_REFUSED.contains(&id.as_str()));
        never.map(|id| format!("{id}: {:?}", notes.refused.get(&id))).collect()
    }
}

fn fault(
    description: &Description,
    operation: &Operation,
    made: &Made,
    answer: &Answer,
) -> Option<String> {
    let status = answer.status;
    if status >= 500 && (status != 503 || answer.header("retry-after").is_none()) {
        return Some(format!("{status}"));
    }
    let content_type = answer.header("content-type");
    let body = answer.json();
    if status >= 400 {
        if !made.is_plain && matches!(status, 400 | 404 | 405 | 414 | 431) && answer.body.is_empty()
        {
            // Not HTTP, or not an address of the server.
            return None;
        }
        if content_type != Some("application/problem+json") {
            return Some(format!("{status} as {content_type:?}"));
        }
        let problem = body.clone().unwrap_or_default();
        if problem["status"] != status || !problem["code"].is_string() {
            return Some(format!("{status} whose problem is not one"));
        }
        if status >= 500 {
            return None;
        }
    }
    if !made.is_plain {
        return None;
    }
    if !answer.is_whole {
        return None;
    }
    description.fault(operation, status, content_type, body.as_ref())
}
