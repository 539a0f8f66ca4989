//! Decides the operations of a batch, some in each turn of the writer.

use std::collections::BTreeSet;

use bursar_core::ledger::Ledger;
use bursar_core::name::AccountPath;
use bursar_engine::{Transaction, attempt};

use super::Requested;
use super::key::{BatchKey, BatchKeyError};
use crate::app::App;
use crate::change::{Change, Decision, Done, MAX_LOOKS, OperationKey, urgency_of};
use crate::http::respond::known;
use crate::request::Failure;

/// The number of operations decided in one turn: enough to share its cost, few enough that no other
/// request waits long.
pub(super) const MAX_TURN_CHANGES: usize = 64;

/// The most bytes that a turn writes before other requests have theirs.
const MAX_TURN_BYTES: usize = 64 << 10;

/// A change to decide, or its earlier result.
type LookedUpChange = Result<Change, Result<Done, Failure>>;

/// Looks up what a change needs.
async fn recall_one(app: &App, change: Change) -> LookedUpChange {
    match known(app, change).await {
        Ok(Ok(change)) => Ok(change),
        Ok(Err(done)) => Err(Ok(done)),
        Err(failure) => Err(Err(failure)),
    }
}

/// Looks up what each change needs.
async fn recall_all(app: &App, changes: Vec<Requested>) -> Vec<LookedUpChange> {
    let mut ready = Vec::with_capacity(changes.len());
    for change in changes {
        ready.push(match change {
            Ok(mut change) => match change.must_recall(app) {
                false => Ok(change),
                true => Box::pin(recall_one(app, change)).await,
            },
            Err(failure) => Err(Err(failure)),
        });
    }
    ready
}

/// Decides one operation. If it panics, it fails alone.
fn decide_one(
    ledger: &mut dyn Transaction<Ledger>,
    known: LookedUpChange,
    key: Option<&BatchKey>,
    changed: &mut BTreeSet<AccountPath>,
) -> Decision {
    let change = match known {
        Ok(change) => change,
        Err(known) => return Decision::Done(known),
    };
    let probe = key.and_then(|_| change.probe());
    let decided = attempt(ledger, |ledger| change.decide(ledger));
    let done = match decided {
        Ok(Decision::Done(done)) => done,
        Ok(again @ Decision::LookAgain(_)) => return again,
        Err(error) => Err(error.into()),
    };
    // Stored answers use up the key: changes, and rejections that are replayed.
    let is_kept = done.as_ref().map_or_else(|no| matches!(no.problem.status, 402 | 409), |_| true);
    if let (Some(key), Some(probe), true) = (key, probe, is_kept) {
        changed.extend(probe.namespace(ledger.machine(), &key.caller));
    }
    Decision::Done(done)
}

/// Decides operations in their order. None is decided if the key of the batch was used for another
/// request.
pub(super) async fn decide_all(
    app: &App,
    tenant: Option<&str>,
    changes: Vec<Requested>,
    key: Option<BatchKey>,
) -> Result<Vec<Result<Done, Failure>>, Failure> {
    let mut left = recall_all(app, changes).await;
    // All keys are checked before the first operation.
    let mut checks = key.is_some();
    let mut key = key;
    if let Some(key) = &mut key {
        let tenants = key.tenants(&probes_of(&left));
        key.look_up(app, tenants, true).await?;
    }
    let (mut all, mut looks) = (Vec::with_capacity(left.len()), 0);
    loop {
        let count = left.len();
        let probes = if checks { probes_of(&left) } else { Vec::new() };
        match decide_some(app, tenant, left, key.clone(), probes).await? {
            Ok(TurnOutcome::Done(decided)) => {
                all.extend(decided);
                return Ok(all);
            }
            Ok(TurnOutcome::Partly(decided, change, rest)) => {
                all.extend(decided);
                checks = false;
                let rest = std::iter::once(Ok(*change)).chain(rest);
                left = recall_again(app, rest.collect()).await;
            }
            Ok(TurnOutcome::Refused(trouble, rest)) => match (trouble, &mut key) {
                (BatchKeyError::Unknown(tenants), Some(key)) if looks < MAX_LOOKS => {
                    looks += 1;
                    key.look_up(app, tenants, false).await?;
                    left = recall_again(app, rest).await;
                }
                (trouble, _) => return Err(trouble.failure()),
            },
            Err(failure) => {
                all.extend((0..count).map(|_| Err(failure.clone())));
                return Ok(all);
            }
        }
    }
}

fn probes_of(changes: &[LookedUpChange]) -> Vec<OperationKey> {
    changes.iter().filter_map(|known| known.as_ref().ok().and_then(Change::probe)).collect()
}

/// Looks up again what may have been forgotten since.
async fn recall_again(app: &App, changes: Vec<LookedUpChange>) -> Vec<LookedUpChange> {
    let mut left = Vec::with_capacity(changes.len());
    for known in changes {
        left.push(match known {
            Ok(change) => recall_one(app, change.looking_again()).await,
            Err(known) => Err(known),
        });
    }
    left
}

/// The outcome of several changes.
enum TurnOutcome {
    /// All are decided.
    Done(Vec<Result<Done, Failure>>),
    /// Some are decided; the next one must be looked up again.
    Partly(Vec<Result<Done, Failure>>, Box<Change>, Vec<LookedUpChange>),
    /// None is decided.
    Refused(BatchKeyError, Vec<LookedUpChange>),
}

/// Decides changes up to the first that must be looked up again. If it fails, no outcome is known.
async fn decide_some(
    app: &App,
    tenant: Option<&str>,
    ready: Vec<LookedUpChange>,
    key: Option<BatchKey>,
    mut probes: Vec<OperationKey>,
) -> Result<Result<TurnOutcome, Failure>, Failure> {
    let counts = ready.iter().any(|known| known.as_ref().is_ok_and(Change::must_count))
        && app.ledger.peek(Ledger::counts_in_steps).await?;
    // Operations are counted and decided one after the other, so they need one place.
    let place = if counts { Some(app.counting.enter(tenant, 1).await?) } else { None };
    let open = ready.iter().filter_map(|known| known.as_ref().ok());
    let ledger = app.ledger.with_urgency(urgency_of(open.map(Change::meters)));
    let count = ready.len();
    let (mut left, mut decided) = (ready.into_iter(), Vec::with_capacity(count));
    let posted = ledger.transact_in_turns(move |ledger| {
        let _kept_to_the_end = &place;
        let probes = std::mem::take(&mut probes);
        let (machine, now) = (ledger.machine(), ledger.now());
        if let Some(Err(trouble)) =
            key.as_ref().map(|key| key.require_unused(machine, now, &probes))
        {
            return Some(TurnOutcome::Refused(trouble, left.by_ref().collect()));
        }
        let (begun, mut changed, mut again) = (ledger.written(), BTreeSet::new(), None);
        for _ in 0..MAX_TURN_CHANGES {
            let next = left.as_slice().first().and_then(|known| known.as_ref().ok());
            if next.is_some_and(|change| !change.prepare(ledger)) {
                break;
            }
            let Some(known) = left.next() else { break };
            match decide_one(ledger, known, key.as_ref(), &mut changed) {
                Decision::Done(done) => decided.push(done),
                Decision::LookAgain(change) => {
                    again = Some((change, left.by_ref().collect()));
                    break;
                }
            }
            let written = ledger.written();
            if written < begun || written - begun >= MAX_TURN_BYTES {
                break;
            }
        }
        if let Some(key) = &key {
            key.note(ledger, changed);
        }
        left.as_slice().is_empty().then(|| {
            let decided = std::mem::take(&mut decided);
            match again {
                None => TurnOutcome::Done(decided),
                Some((change, rest)) => TurnOutcome::Partly(decided, change, rest),
            }
        })
    });
    Ok(posted.answer().await.map(|seen| seen.value))
}
