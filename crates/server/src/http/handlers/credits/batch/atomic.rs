//! Atomic batches.
//!
//! A batch with its own idempotency key begins with a command that only stores an answer for that
//! key, in the same group. So an applied batch is known by its key, and a failed one stores its
//! refusal there, like any other refusal with the status 409.

use bursar_api::Code;
use bursar_api::credits::batch::{Operation as BatchItem, OperationResult};
use bursar_core::ledger::accounts::tally::MAX_COUNTED_IN_GROUP;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::refusal::Refusal;
use bursar_core::ledger::{Accepted, Envelope, Ledger, Refused};
use bursar_core::machine::{Machine, Preparation};
use bursar_core::name::AccountPath;
use bursar_engine::{Aborted, Transaction, Urgency};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::key::{BatchKey, EarlierBatch};
use super::operations::{Body, Promises, prepare, promise};
use super::results::{OperationOutcome, failed, outcome, rendered};
use crate::app::App;
use crate::change::{AnsweredBefore, Change, MAX_LOOKS, ReadyChange, urgency_of};
use crate::http::respond::{Answer, known};
use crate::request::{Caller, Failure, reused};

/// The stored answer to a failed batch: which operation failed, and how.
#[derive(Clone, Serialize, Deserialize)]
struct StoredFailure {
    place: usize,
    status: u16,
    body: Value,
}

/// The content of a batch.
type Items = Vec<(Envelope, Command)>;

/// A batch whose operations are all ready, each with whether its resource existed already.
struct Prepared {
    ready: Vec<(ReadyChange, bool)>,
    /// Its own key, and the tenant.
    lead: Option<(BatchKey, AccountPath)>,
    urgency: Urgency,
}

/// The outcome of a batch.
enum BatchOutcome {
    /// It is applied, or was before.
    Applied { results: Vec<OperationOutcome>, all_replayed: bool },
    /// The batch was not applied.
    BatchStop(BatchStop),
}

/// Why a batch is not applied.
enum BatchStop {
    /// One operation failed.
    By(usize, Failure),
    /// The batch as a whole is not valid, or was refused before.
    Whole(Failure),
    /// A resource that it needs was removed from memory since it was looked up.
    LookAgain,
}

pub(super) async fn run(
    app: &App,
    caller: &Caller,
    operations: &[BatchItem],
    fingerprint: Option<u128>,
) -> Answer {
    for looks in 0..MAX_LOOKS {
        if let Some(answer) = attempt(app, caller, operations, (fingerprint, looks)).await {
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
    (fingerprint, looks): (Option<u128>, u8),
) -> Option<Answer> {
    let count = operations.len();
    let mut tenant = None;
    let gathered = gather(app, caller, operations, (fingerprint, looks), &mut tenant).await;
    let mut lead = BatchKey::of(caller, fingerprint).zip(tenant);
    if let Some((key, tenant)) = &mut lead
        && let Err(failure) = key.look_up(app, [tenant.clone()].into(), looks == 0).await
    {
        return Some(Err(failure));
    }
    let stopped = match gathered {
        Ok((ready, urgency)) => {
            let prepared = Prepared { ready, lead: lead.clone(), urgency };
            match decide(app, caller, prepared).await {
                Ok(BatchOutcome::Applied { results, all_replayed }) => {
                    return Some(rendered(results, all_replayed).await);
                }
                Ok(BatchOutcome::BatchStop(stopped)) => stopped,
                Err(failure) => return Some(Err(failure)),
            }
        }
        Err(BatchStop::By(place, failure)) if matches!(failure.problem.status, 403 | 404) => {
            // What is stored under the key may have been answered to a key that may do more.
            let denied = failed(failure);
            let denied = StoredFailure { place, status: denied.status, body: denied.body };
            let kept = keep(app, lead, count, denied.clone()).await;
            let is_same = |kept: &Failure| denied.is_cause_of(kept);
            let is_last = looks + 1 == MAX_LOOKS;
            return match kept {
                Some(failure)
                    if failure.problem.code != Code::BatchAborted || is_same(&failure) =>
                {
                    Some(Err(failure))
                }
                None if !is_last => None,
                Some(_) | None => Some(Err(aborted(denied, count))),
            };
        }
        Err(stopped) => stopped,
    };
    match stopped {
        BatchStop::LookAgain => None,
        BatchStop::Whole(failure) => Some(Err(failure)),
        BatchStop::By(_, failure)
            if failure.problem.status >= 500
                || failure.problem.code == Code::IdempotencyKeyReused =>
        {
            Some(Err(failure))
        }
        BatchStop::By(place, failure) => {
            let OperationResult { status, body } = failed(failure);
            keep(app, lead, count, StoredFailure { place, status, body }).await.map(Err)
        }
    }
}

impl StoredFailure {
    /// Whether an aborted batch failed at the same operation with the same status.
    fn is_cause_of(&self, aborted: &Failure) -> bool {
        let results = aborted.problem.results.as_deref().unwrap_or_default();
        results.get(self.place).is_some_and(|result| result.status == self.status)
    }
}

impl Prepared {
    /// Decides it in one turn, or does a part of what has to be counted before. Answers are put into words at once: what
    /// they show may be forgotten soon.
    fn turn(&self, ledger: &mut dyn Transaction<Ledger>) -> Option<BatchOutcome> {
        let (mut items, stopped) = (Items::new(), |stopped| Some(BatchOutcome::BatchStop(stopped)));
        if let Some((key, tenant)) = &self.lead {
            match key.earlier(ledger.machine(), ledger.now(), tenant) {
                EarlierBatch::Other => return stopped(BatchStop::Whole(reused())),
                EarlierBatch::Refused(refused) => {
                    return stopped(BatchStop::Whole(kept(refused, self.ready.len())));
                }
                EarlierBatch::Unknown => return stopped(BatchStop::LookAgain),
                EarlierBatch::Applied => {}
                EarlierBatch::None | EarlierBatch::InMemory => {
                    items.push((key.envelope(tenant), Command::KeepBatch { aborted: None }));
                }
            }
        }
        let leading = items.len();
        let mut places = Vec::new();
        let mut before = Vec::with_capacity(self.ready.len());
        for (place, (ready, _)) in self.ready.iter().enumerate() {
            match ready.answered(ledger.machine(), ledger.now()) {
                Some(Err(failure)) => return stopped(BatchStop::By(place, failure)),
                Some(Ok(answered)) => before.push(Some(answered)),
                None => {
                    items.push((ready.envelope.clone(), ready.command.clone()));
                    places.push(place);
                    before.push(None);
                }
            }
        }
        if items.iter().any(|(_, command)| matches!(command, Command::SetBudget { .. })) {
            match ledger.prepare_group(&items) {
                Preparation::Unfinished => return None,
                Preparation::Finished => {}
                Preparation::TooMuch => return stopped(BatchStop::Whole(too_many_counts())),
            }
        }
        match ledger.execute_group(&items) {
            Ok(Ok(accepted)) => {
                let accepted = accepted.into_iter().skip(leading);
                Some(self.applied(ledger, before, accepted))
            }
            Ok(Err(Aborted {
                refusal: Refused { refusal: Refusal::Forgotten { .. }, .. },
                ..
            })) => stopped(BatchStop::LookAgain),
            Ok(Err(Aborted { index, refusal })) => stopped(match index.checked_sub(leading) {
                Some(place) => BatchStop::By(places[place], Failure::from(refusal)),
                None => BatchStop::Whole(kept(refusal, self.ready.len())),
            }),
            Err(error) => stopped(BatchStop::Whole(Failure::from(error))),
        }
    }

    fn applied(
        &self,
        ledger: &dyn Transaction<Ledger>,
        before: Vec<Option<AnsweredBefore>>,
        mut accepted: impl Iterator<Item = Accepted>,
    ) -> BatchOutcome {
        let (position, mut all_replayed) = (ledger.position(), true);
        let mut results = Vec::with_capacity(before.len());
        for (answered, (ready, existed)) in before.into_iter().zip(&self.ready) {
            let settled = match answered {
                Some(answered) => answered.at(position),
                None => {
                    let Some(accepted) = accepted.next() else { break };
                    all_replayed &= accepted.replayed;
                    ready.finish().accepted(accepted, *existed, position)
                }
            };
            results.push(outcome(Ok(settled.done(ledger.machine()))));
        }
        BatchOutcome::Applied { results, all_replayed }
    }
}

/// Decides a batch. What new budgets start with is counted before, in turns with other requests, and the batch is
/// decided in the turn that completes it: nothing changes in between.
async fn decide(app: &App, caller: &Caller, prepared: Prepared) -> Result<BatchOutcome, Failure> {
    let mut commands = prepared.ready.iter().map(|(ready, _)| &ready.command);
    let sets_budget = commands.any(|command| matches!(command, Command::SetBudget { .. }));
    let ledger = app.ledger.with_urgency(prepared.urgency);
    let (mut prepared, mut place) = (prepared, None);
    if sets_budget {
        let look = move |ledger: &Ledger| {
            let items = prepared.ready.iter();
            let items = items.map(|(ready, _)| (ready.envelope.clone(), ready.command.clone()));
            let items: Items = items.collect();
            (ledger.counted_in_group(&items).len(), prepared)
        };
        let counted;
        (counted, prepared) = app.ledger.peek(look).await?;
        place = match counted {
            0 => None,
            1..=MAX_COUNTED_IN_GROUP => {
                Some(app.counting.enter(caller.principal.tenant(), counted).await?)
            }
            _ => return Err(too_many_counts()),
        };
    }
    let posted = ledger.transact_in_turns(move |ledger| {
        let _kept_to_the_end = &place;
        prepared.turn(ledger)
    });
    Ok(posted.answer().await?.value)
}

fn too_many_counts() -> Failure {
    let reason = "an atomic batch sets at most 16 new budgets of accounts that are there; set fewer, or \
                  without atomic";
    Failure::invalid("operations", reason)
}

/// Batches that only settle and meter go first, to read as to decide.
fn urgency_of_all(changes: &[Change]) -> Urgency {
    urgency_of(changes.iter().map(Change::meters))
}

async fn gather(
    app: &App,
    caller: &Caller,
    operations: &[BatchItem],
    (fingerprint, looks): (Option<u128>, u8),
    tenant: &mut Option<AccountPath>,
) -> Result<(Vec<(ReadyChange, bool)>, Urgency), BatchStop> {
    let mut changes = Vec::with_capacity(operations.len());
    let mut failure = None;
    for (place, operation) in operations.iter().enumerate() {
        let body = operation.body.clone().map_or_else(Body::none, Body::Tree);
        match prepare(app, caller, place, operation.into(), body, fingerprint) {
            Ok(change) => match known(app, change.after_looks(looks)).await {
                Ok(Ok(change)) => changes.push(change),
                Ok(Err(_)) => failure = Some((place, long_ago())),
                Err(error) => failure = Some((place, error)),
            },
            Err(error) => failure = Some((place, error)),
        }
        if failure.is_some() {
            break;
        }
    }
    let urgency = urgency_of_all(&changes);
    let look = move |ledger: &Ledger| {
        let mut promises = Promises::new();
        let ready = changes.into_iter().map(|change| {
            if change.must_look_again(ledger, ledger.now(), &promises) {
                return Err(None);
            }
            let ready = change.ready(ledger, &promises).map_err(Some)?;
            promise(&ready.command, &mut promises);
            let existed = ready.existed(ledger);
            Ok((ready, existed))
        });
        ready.collect::<Vec<Result<(ReadyChange, bool), Option<Failure>>>>()
    };
    let seen = match urgency {
        Urgency::Urgent => {
            let ledger = app.ledger.with_urgency(urgency);
            ledger.transact(move |ledger| look(ledger.machine())).answer().await
        }
        Urgency::Ordinary | Urgency::Patient => app.ledger.read(look).await,
    };
    let mut all = Vec::new();
    for (place, ready) in seen.map_err(BatchStop::Whole)?.value.into_iter().enumerate() {
        let stopped = |failure| match failure {
            Some(failure) => BatchStop::By(place, failure),
            None => BatchStop::LookAgain,
        };
        let (ready, existed) = ready.map_err(stopped)?;
        let own = ready.tenant().clone();
        if tenant.get_or_insert_with(|| own.clone()) != &own {
            let reason = "an atomic batch stays inside one tenant";
            let field = format!("operations[{place}].path");
            return Err(BatchStop::Whole(Failure::invalid(field, reason)));
        }
        all.push((ready, existed));
    }
    match failure {
        Some((place, failure)) => Err(BatchStop::By(place, failure)),
        None => Ok((all, urgency)),
    }
}

/// A job that only history knows cannot be part of an atomic batch.
fn long_ago() -> Failure {
    let detail = "this id was used so long ago that only history knows it; repeat it by itself";
    Failure::new(Code::AlreadyExists, detail)
}

/// The answer when one operation made the batch fail, stored under the batch's key if it has one.
/// `None` if the same batch was applied meanwhile.
async fn keep(
    app: &App,
    lead: Option<(BatchKey, AccountPath)>,
    count: usize,
    stored: StoredFailure,
) -> Option<Failure> {
    let Some((key, tenant)) = lead else { return Some(aborted(stored, count)) };
    let envelope = key.envelope(&tenant);
    let text = serde_json::to_string(&stored).expect("a problem has only plain fields");
    let command = Command::KeepBatch { aborted: Some(text.into()) };
    match app.ledger.post(envelope, command).answer().await {
        Ok(seen) => match seen.value.err()? {
            Refused { refusal: Refusal::Forgotten { .. }, .. } => None,
            refused => Some(kept(refused, count)),
        },
        Err(failure) => Some(failure),
    }
}

/// The answer that was stored under a batch's key, unchanged.
fn kept(refused: Refused, count: usize) -> Failure {
    if let Refusal::BatchAborted { answer } = &refused.refusal
        && let Ok(stored) = serde_json::from_str::<StoredFailure>(answer.text())
    {
        return aborted(stored, count)
            .replayed(refused.replayed)
            .first_answered_to(refused.request);
    }
    Failure::from(refused)
}

fn aborted(stored: StoredFailure, count: usize) -> Failure {
    let StoredFailure { place, status, body } = stored;
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

#[cfg(test)]
mod tests {
    use axum::http::Method;
    use serde_json::{from_value, json};

    use super::*;
    use crate::auth::Principal;
    use crate::change::ChangePlan;
    use crate::http::handlers::credits::holds::{
        plan_capture, plan_extend, plan_release, plan_settle,
    };

    fn change(plan: Result<ChangePlan, Failure>) -> Change {
        let caller = Caller {
            principal: Principal::root(),
            method: Method::POST,
            path: "/v1/batch".to_owned(),
            idempotency_key: None,
            tenant: None,
            request: 0,
            dry_run: false,
        };
        plan.expect("it is valid").requested_by(caller, 0)
    }

    #[test]
    fn an_atomic_batch_goes_first_only_if_it_settles_and_meters_alone() {
        let body = || from_value(json!({ "total": "1" })).expect("a total");
        let settle = || change(plan_settle("h".into(), &body()));
        let capture = change(plan_capture(
            "h".into(),
            &from_value(json!({ "total": "1" })).expect("a total"),
        ));
        let release = change(plan_release("h".into(), &from_value(json!({})).expect("nothing")));
        let extend = change(plan_extend(
            "h".into(),
            &from_value(json!({ "amount": "1" })).expect("an amount"),
        ));
        assert_eq!(urgency_of_all(&[settle(), capture, release]), Urgency::Urgent);
        assert_eq!(urgency_of_all(&[settle(), extend]), Urgency::Ordinary);
    }
}
