//! Atomic batches.
//!
//! A batch with its own idempotency key begins with a command that only stores an answer for that
//! key, in the same group. So an applied batch is known by its key, and a failed one stores its
//! refusal there, like any other refusal with the status 409.

use bursar_api::Code;
use bursar_api::credits::batch::{Operation as BatchItem, OperationResult};
use bursar_core::ledger::accounts::tally::MAX_COUNTED_IN_GROUP;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Refusal;
use bursar_core::ledger::{Accepted, Envelope, Ledger, Refused};
use bursar_core::machine::Preparation;
use bursar_engine::{Aborted, Seen};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Body, Promises, failed, outcome, prepare, promise, rendered};
use crate::app::App;
use crate::change::{Finish, MAX_LOOKS, ReadyChange, Recalled, key_hash};
use crate::http::respond::Answer;
use crate::request::{Caller, Failure};

/// The stored answer to a failed batch: which operation failed, and how.
#[derive(Serialize, Deserialize)]
struct Told {
    place: usize,
    status: u16,
    body: Value,
}

/// The content of a batch.
type Items = Vec<(Envelope, Command)>;

/// The ledger's answer to a batch.
type Decided = Result<Vec<Accepted>, Aborted<Refused>>;

/// A batch whose operations are all ready.
struct Prepared {
    items: Items,
    /// How to answer each, and whether its resource existed already.
    finishes: Vec<(Finish, bool)>,
}

/// Why a batch is not applied.
enum Stopped {
    /// One operation failed.
    By(usize, Failure),
    /// The batch as a whole is not valid.
    Whole(Failure),
    /// A resource that it needs was removed from memory since it was looked up.
    LookAgain,
}

pub(super) async fn run(
    app: &App,
    caller: &Caller,
    operations: &[BatchItem],
    print: Option<u128>,
) -> Answer {
    for looks in 0..MAX_LOOKS {
        if let Some(answer) = attempt(app, caller, operations, (print, looks)).await {
            return answer;
        }
        // The same batch was applied before this failure was stored: its answer is the answer. Or a resource
        // was removed from memory since it was looked up.
    }
    let detail =
        "the same batch is being decided, or what it names is just being archived; try again";
    Err(Failure::new(Code::Unavailable, detail))
}

async fn attempt(
    app: &App,
    caller: &Caller,
    operations: &[BatchItem],
    (print, looks): (Option<u128>, u8),
) -> Option<Answer> {
    let count = operations.len();
    let mut tenant = None;
    let prepared = gather(app, caller, operations, (print, looks), &mut tenant).await;
    let lead = match (&caller.idempotency_key, print, tenant) {
        (Some(key), Some(fingerprint), Some(tenant)) => {
            let key = Some(key_hash(&tenant, key));
            let (actor, request) = (caller.principal.id.clone(), caller.request);
            Some(Envelope { actor, fingerprint, key, request, ..Envelope::default() })
        }
        _ => None,
    };
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(Stopped::LookAgain) => return None,
        Err(Stopped::Whole(failure)) => return Some(Err(failure)),
        Err(Stopped::By(place, failure)) => {
            return keep(app, lead, count, place, failure).await.map(Err);
        }
    };
    let Prepared { mut items, finishes } = prepared;
    let leading = usize::from(lead.is_some());
    if let Some(envelope) = &lead {
        items.insert(0, (envelope.clone(), Command::KeepBatch { aborted: None }));
    }
    let sets_budget = items.iter().any(|(_, command)| matches!(command, Command::SetBudget { .. }));
    let decided = if sets_budget {
        decide_counted(app, caller, items).await
    } else {
        app.ledger.group(items).await
    };
    let seen = match decided {
        Ok(seen) => seen,
        Err(failure) => return Some(Err(failure)),
    };
    match seen.value {
        Ok(accepted) => {
            let accepted = accepted.into_iter().skip(leading).collect();
            Some(finish(app, accepted, finishes, seen.position).await)
        }
        Err(Aborted { refusal: Refused { refusal: Refusal::Forgotten { .. }, .. }, .. }) => None,
        Err(stopped) => match stopped.index.checked_sub(leading) {
            Some(place) => {
                let failure = Failure::from(stopped.refusal);
                keep(app, lead, count, place, failure).await.map(Err)
            }
            None => Some(Err(kept(stopped.refusal, count))),
        },
    }
}

/// Computes the usage that new budgets of a batch start with, in turns with other requests, and decides
/// the batch in the turn that completes it: nothing changes in between.
async fn decide_counted(
    app: &App,
    caller: &Caller,
    items: Items,
) -> Result<Seen<Decided>, Failure> {
    let look = move |ledger: &Ledger| (ledger.counted_in_group(&items).len(), items);
    let (counted, items) = app.ledger.peek(look).await?;
    let place = match counted {
        0 => None,
        1..=MAX_COUNTED_IN_GROUP => {
            Some(app.counting.enter(caller.principal.tenant(), counted).await?)
        }
        _ => return Err(too_many_counts()),
    };
    let posted = app.ledger.attend_in_turns(move |ledger| {
        let _kept_to_the_end = &place;
        match ledger.prepare_group(&items) {
            Preparation::Unfinished => None,
            Preparation::Finished => Some(ledger.execute_group(&items).map_err(Failure::from)),
            Preparation::TooMuch => Some(Err(too_many_counts())),
        }
    });
    let Seen { value, position, at } = posted.answer().await?;
    Ok(Seen { value: value?, position, at })
}

fn too_many_counts() -> Failure {
    let reason = "an atomic batch sets at most 16 new budgets of accounts that are there; set fewer, or \
                  without atomic";
    Failure::invalid("operations", reason)
}

/// An operation whose original is only in history cannot be part of an atomic batch.
fn long_ago() -> Failure {
    let detail = "this id was used so long ago that only history knows it; repeat it by itself";
    Failure::new(Code::AlreadyExists, detail)
}

async fn gather(
    app: &App,
    caller: &Caller,
    operations: &[BatchItem],
    (print, looks): (Option<u128>, u8),
    tenant: &mut Option<Name>,
) -> Result<Prepared, Stopped> {
    let mut changes = Vec::with_capacity(operations.len());
    let mut failure = None;
    for (place, operation) in operations.iter().enumerate() {
        let body = operation.body.clone().map_or_else(Body::none, Body::Tree);
        match prepare(app, caller, place, operation.into(), body, print) {
            Ok(change) => {
                let mut change = change.after_looks(looks);
                if let Some(recall) = change.recall(app) {
                    match recall.await {
                        Ok(Recalled::Known { looked_up, past }) => {
                            change = change.knowing(looked_up, past);
                        }
                        Ok(Recalled::Answered(_)) => failure = Some((place, long_ago())),
                        Err(error) => failure = Some((place, error)),
                    }
                }
                changes.push(change);
            }
            Err(error) => failure = Some((place, error)),
        }
        if failure.is_some() {
            break;
        }
    }
    // The operation that failed in its look-up is not looked up again.
    let failed = failure.as_ref().map(|(place, _)| *place);
    let seen = app.ledger.read(move |ledger| {
        let mut promises = Promises::new();
        let ready = changes.into_iter().enumerate().map(|(place, change)| {
            if failed != Some(place) && change.must_look_again(ledger, &promises) {
                return Err(None);
            }
            let ready = change.ready(ledger, &promises).map_err(Some)?;
            promise(&ready.command, &mut promises);
            let existed = ready.existed(ledger);
            Ok((ready, existed))
        });
        ready.collect::<Vec<Result<(ReadyChange, bool), Option<Failure>>>>()
    });
    let mut prepared = Prepared { items: Vec::new(), finishes: Vec::new() };
    for (place, ready) in seen.await.map_err(Stopped::Whole)?.value.into_iter().enumerate() {
        let stopped = |failure| match failure {
            Some(failure) => Stopped::By(place, failure),
            None => Stopped::LookAgain,
        };
        let (ready, existed) = ready.map_err(stopped)?;
        let own = ready.tenant().clone();
        if tenant.get_or_insert_with(|| own.clone()) != &own {
            let reason = "an atomic batch stays inside one tenant";
            let field = format!("operations[{place}].path");
            return Err(Stopped::Whole(Failure::invalid(field, reason)));
        }
        let (envelope, command, finish) = ready.into_parts();
        prepared.items.push((envelope, command));
        prepared.finishes.push((finish, existed));
    }
    match failure {
        Some((place, failure)) => Err(Stopped::By(place, failure)),
        None => Ok(prepared),
    }
}

/// Renders the answer to an applied batch.
async fn finish(
    app: &App,
    accepted: Vec<Accepted>,
    finishes: Vec<(Finish, bool)>,
    position: u64,
) -> Answer {
    let all_replayed = accepted.iter().all(|accepted| accepted.replayed);
    let shown = app.ledger.peek(move |ledger| {
        let finished = accepted.into_iter().zip(finishes).map(|(accepted, (finish, existed))| {
            outcome(Ok(finish.settled(accepted, existed, position).done(ledger)))
        });
        finished.collect()
    });
    rendered(shown.await?, all_replayed).await
}

/// The answer when one operation made the batch fail, stored under the batch's key if it has one.
/// `None` if the same batch was applied meanwhile.
async fn keep(
    app: &App,
    lead: Option<Envelope>,
    count: usize,
    place: usize,
    failure: Failure,
) -> Option<Failure> {
    if failure.problem.status >= 500 || failure.problem.code == Code::IdempotencyKeyReused {
        return Some(failure);
    }
    let OperationResult { status, body } = failed(failure);
    let told = Told { place, status, body };
    let Some(envelope) = lead else { return Some(aborted(told, count)) };
    let text = serde_json::to_string(&told).expect("a problem has only plain fields");
    let command = Command::KeepBatch { aborted: Some(text.into()) };
    match app.ledger.post(envelope, command).answer().await {
        Ok(seen) => {
            let refused = seen.value.err()?;
            Some(kept(refused, count))
        }
        Err(failure) => Some(failure),
    }
}

/// The answer that was stored under a batch's key, unchanged.
fn kept(refused: Refused, count: usize) -> Failure {
    if let Refusal::BatchAborted { told } = &refused.refusal
        && let Ok(told) = serde_json::from_str::<Told>(told)
    {
        return aborted(told, count).replayed(refused.replayed).first_answered_to(refused.request);
    }
    Failure::from(refused)
}

fn aborted(told: Told, count: usize) -> Failure {
    let Told { place, status, body } = told;
    let code = body["code"].as_str().unwrap_or("a problem").to_owned();
    let detail = format!("operation {place} failed with {code}; nothing happened");
    let mut whole = Failure::new(Code::BatchAborted, detail);
    let mut cause = Some(OperationResult { status, body });
    let results = (0..count).map(|other| {
        cause
            .take_if(|_| other == place)
            .unwrap_or(OperationResult { status: 424, body: Value::Null })
    });
    whole.problem.results = Some(results.collect());
    whole.problem.param = Some(format!("operations[{place}]"));
    whole
}
