//! What a change needs of history, because the ledger may have forgotten it.

use std::sync::Arc;

use bursar_api::Code;
use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{Command, RefundOf};
use bursar_core::ledger::event::{Event, NamedMovement, total};
use bursar_core::ledger::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::time::Timestamp;
use bursar_history::query::Archived;
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::Journal;
use serde_json::Value;

use super::find::{exists, find, remember, revive};
use super::{Done, Order, Target};
use crate::app::App;
use crate::auth::tenant_of;
use crate::http::extract::Caller;
use crate::past_jobs::{self, Restored};
use crate::problem::Failure;
use crate::render::{self, Shape, Shown};
use crate::timeline;

impl Order {
    /// Brings back from history what the change needs and the ledger may have forgotten. What was done before under
    /// the same id, and only history knows, is answered from there.
    pub fn recall<'a>(
        &self,
        app: &'a App,
    ) -> Option<impl Future<Output = Result<Recalled, Failure>> + Send + use<'a>> {
        let refunded = match &self.plan.target {
            Target::Named(resource, id) if self.plan.operation == "create_refund" => {
                Some((*resource, id.clone()))
            }
            Target::Named(..) | Target::Account(_) => None,
        };
        let chosen = self.plan.creates.as_ref().filter(|(_, _, chosen)| *chosen);
        let created = chosen.filter(|_| app.may_have_forgotten());
        let created = created.map(|(resource, id, _)| (*resource, id.clone()));
        if refunded.is_none() && created.is_none() {
            return None;
        }
        let mut asked = Asked {
            caller: self.caller.clone(),
            is_permitted: self.caller.principal.require(self.plan.operation).is_ok(),
            target: self.plan.target.clone(),
            shape: self.plan.shape.clone(),
            fingerprint: self.fingerprint,
        };
        Some(async move {
            let mut recalled = Recalled::Nothing;
            match &refunded {
                Some((Resource::Job, id)) if asked.is_permitted => {
                    if let Some(past) = recall_holds(app, &asked.caller, id).await? {
                        asked.target = Target::Account(past.account.clone());
                        recalled = Recalled::PastJob(past);
                    }
                }
                Some((resource, id)) => remember(app, &asked.caller, *resource, id).await?,
                None => {}
            }
            match created {
                // Whoever may not do this hears so when it is decided.
                Some((resource, id)) if asked.is_permitted => {
                    let answered = asked.repeated(app, resource, id).await?;
                    Ok(answered.map_or(recalled, Recalled::Answered))
                }
                Some(_) | None => Ok(recalled),
            }
        })
    }

    /// The same about a job of which only the holds were brought back.
    pub fn of_past_job(mut self, past: PastJob) -> Order {
        self.plan.target = Target::Account(past.account);
        let build = self.plan.build;
        self.plan.build = Box::new(move |tenant| match build(tenant) {
            Command::Refund(mut refund) => {
                if let RefundOf::Job(job) = refund.of {
                    refund.of = RefundOf::PastJob(job, past.holds);
                }
                Command::Refund(refund)
            }
            other => other,
        });
        self
    }
}

/// What came of looking into history.
pub enum Recalled {
    /// The ledger has all that it needs.
    Nothing,
    /// It was done before, and this is the answer.
    Answered(Done),
    /// The ledger has the holds of the job that is meant, and not the job.
    PastJob(PastJob),
}

/// A job that the ledger has forgotten.
pub struct PastJob {
    /// Who paid for it.
    account: Name,
    /// Its holds, the newest first.
    holds: Vec<Name>,
}

/// Brings the holds of a job back to the ledger, unless it has the job.
async fn recall_holds(app: &App, caller: &Caller, id: &Name) -> Result<Option<PastJob>, Failure> {
    match find(app, caller, Resource::Job, id).await {
        Err(failure) if failure.problem.code == Code::NotFound => {}
        Ok(_) | Err(_) => return Ok(None),
    }
    let (account, archived) = past_jobs::holds_of_forgotten(app, caller, id).await?;
    let holds = archived.iter().map(|archived| archived.record.hold.id.clone()).collect();
    for hold in archived {
        revive(app, hold).await?;
    }
    Ok(Some(PastJob { account, holds }))
}

/// What was asked for, as far as history is concerned.
struct Asked {
    caller: Caller,
    is_permitted: bool,
    target: Target,
    shape: Shape,
    fingerprint: u128,
}

/// What history has under an id.
enum Found {
    Hold(Archived),
    Job(Restored),
    /// The record in which it was made.
    Movement(Vec<(Timestamp, Event)>),
}

impl Asked {
    /// The answer to what was done before under this id, if only history knows it. Holds and charges come back to the
    /// ledger, which then finds them.
    async fn repeated(
        &self,
        app: &App,
        resource: Resource,
        id: Name,
    ) -> Result<Option<Done>, Failure> {
        let Some(tenant) = self.tenant(app).await else { return Ok(None) };
        let (journal, path, wanted) = (Arc::clone(&app.ledger_journal), tenant.clone(), id.clone());
        let found = ask_past(app, move |history| {
            let Some(tenant) = history.account_number(&path)?.map(AccountNo) else {
                return Ok(None);
            };
            let found = look(history, &*journal, tenant, resource, &wanted)?;
            Ok(found.map(|found| (tenant, found)))
        });
        let Some((number, found)) = found.await? else { return Ok(None) };
        let wanted = id.clone();
        let is_known = move |ledger: &Ledger| exists(ledger, &tenant, resource, &wanted);
        if app.ledger.peek(is_known).await? {
            return Ok(None);
        }
        match found {
            Found::Hold(archived) => {
                revive(app, archived).await?;
                Ok(None)
            }
            Found::Job(restored) => {
                self.same(restored.fingerprint(), resource, &id)?;
                let seen = past_jobs::shown(app, restored).await?;
                Ok(Some(done(serde_json::to_value(&seen.value), seen.position)))
            }
            Found::Movement(told) => {
                let mut parts: Vec<(Timestamp, NamedMovement)> = told
                    .into_iter()
                    .filter_map(|(at, event)| part(resource, &id, at, event))
                    .collect();
                let whole = parts.iter().find(|(_, part)| part.id == id);
                let Some(print) = whole.map(|(_, whole)| whole.fingerprint) else {
                    return Ok(None);
                };
                // Another request of the same atomic batch may have chosen a name that looks like a part's.
                parts.retain(|(_, part)| part.fingerprint == print);
                self.same(print, resource, &id)?;
                let (target, shape) = (self.target.clone(), self.shape.clone());
                let show = move |ledger: &Ledger| {
                    shown_movement(ledger, (resource, number), parts, &target, &shape)
                };
                let seen = app.read(show).await?;
                Ok(Some(done(Ok(seen.value), seen.position)))
            }
        }
    }

    /// The tenant, if the caller can see what the change is about.
    async fn tenant(&self, app: &App) -> Option<Name> {
        let account = match &self.target {
            Target::Account(path) => {
                let foreign = self.caller.tenant.as_deref().is_some_and(|t| t != tenant_of(path));
                Some(path.clone()).filter(|path| !foreign && self.caller.principal.sees(path))
            }
            Target::Named(resource, id) => find(app, &self.caller, *resource, id).await.ok(),
        };
        account.map(|path| Name::from(tenant_of(&path)))
    }

    /// Refuses what was something else the first time.
    fn same(&self, first: u128, what: Resource, name: &Name) -> Result<(), Failure> {
        if first == self.fingerprint {
            return Ok(());
        }
        Err(Failure::from(Refusal::AlreadyExists { what, name: name.clone() }))
    }
}

/// The answer to something that was done long ago.
fn done(body: serde_json::Result<Value>, position: u64) -> Done {
    let body = body.expect("the bodies have only plain fields and string keys");
    Done { status: 200, body: Some(Shown::Other(body)), replayed: false, position }
}

/// One part of the movement with this name, if the event tells of it.
fn part(
    what: Resource,
    id: &Name,
    at: Timestamp,
    event: Event,
) -> Option<(Timestamp, NamedMovement)> {
    let movement = if let (Resource::Refund, Event::Refunded { movement, .. }) = (what, &event) {
        movement
    } else if let (Resource::Transfer, Event::CreditsMoved { movement, .. }) = (what, &event) {
        movement
    } else {
        return None;
    };
    let rest = movement.id.strip_prefix(id.as_str())?;
    (rest.is_empty() || rest.starts_with(['/', '.'])).then(|| (at, movement.clone()))
}

fn shown_movement(
    ledger: &Ledger,
    (what, tenant): (Resource, AccountNo),
    parts: Vec<(Timestamp, NamedMovement)>,
    target: &Target,
    shape: &Shape,
) -> Value {
    let units = parts.iter().map(|(_, part)| total(&part.pieces)).sum();
    let amount = Credits::from_length(units).unwrap_or(Credits::MAX);
    let parts: Vec<_> =
        parts.into_iter().map(|(at, part)| ledger.recalled(what, tenant, at, part)).collect();
    let first = &parts[0];
    let body = if let Shape::Transfer { from, to } = shape {
        serde_json::to_value(render::transfer(ledger, &first.movement, (from, to), amount))
    } else {
        let mut refund = render::refund(ledger, first, parts.iter(), amount);
        // The number of its hold may be another's by now; the same request named it.
        if let Target::Named(resource, name) = target {
            let named =
                if *resource == Resource::Charge { &mut refund.charge } else { &mut refund.hold };
            *named = Some(name.to_string()).filter(|_| *resource != Resource::Job);
        }
        serde_json::to_value(refund)
    };
    body.expect("the bodies have only plain fields and string keys")
}

/// What history has under an id.
fn look(
    history: &History<Sqlite>,
    journal: &dyn Journal,
    tenant: AccountNo,
    resource: Resource,
    id: &Name,
) -> Result<Option<Found>, HistoryError> {
    let hold = |kind| Ok(history.archived(tenant.0, kind, id)?.map(Found::Hold));
    match resource {
        Resource::Hold => hold(HoldKind::Hold),
        Resource::Charge => hold(HoldKind::Charge),
        Resource::Job => {
            // The jobs of an array have numbers behind the name.
            let first_of_array = compact_str::format_compact!("{id}.0");
            for name in [id, &first_of_array] {
                if let Some(restored) = past_jobs::restored(history, journal, tenant, name)? {
                    return Ok(Some(Found::Job(restored)));
                }
            }
            Ok(None)
        }
        Resource::Refund | Resource::Transfer => {
            let Some(position) = history.movement_position(tenant.0, resource, id)? else {
                return Ok(None);
            };
            let told = timeline::ledger_events_at(journal, &[position]);
            told.map(|told| Some(Found::Movement(told))).map_err(HistoryError::Inconsistent)
        }
        // The ledger forgets none of these.
        Resource::Account
        | Resource::Grant
        | Resource::Collection
        | Resource::Budget
        | Resource::Region
        | Resource::Quota => Ok(None),
    }
}

/// Asks history about what the ledger may have forgotten. It nearly always has that much; if not, it is waited for.
async fn ask_past<T: Send + 'static>(
    app: &App,
    ask: impl Fn(&History<Sqlite>) -> Result<T, HistoryError> + Clone + Send + 'static,
) -> Result<T, Failure> {
    let (at_once, kept_from) = (ask.clone(), app.clock.now().plus_millis(-app.retention_ms));
    let answer = app.history.ask(0, move |history| {
        let has_come_so_far = history.reached()? >= kept_from;
        has_come_so_far.then(|| at_once(history)).transpose()
    });
    match answer.await?.0 {
        Some(answer) => Ok(answer),
        None => {
            let seen = app.ledger.read(|_| ()).await?;
            Ok(app.history.ask(seen.position, ask).await?.0)
        }
    }
}
