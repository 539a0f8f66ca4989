//! Looks up in history what a change needs and the ledger may have forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bursar_api::Code;
use bursar_core::credits::Credits;
use bursar_core::ledger::command::{Command, RecalledHold, RefundOf};
use bursar_core::ledger::event::{Event, NamedMovement, total};
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::state::short_fingerprint;
use bursar_core::ledger::{Envelope, Ledger, LookUp};
use bursar_core::time::Timestamp;
use bursar_history::query::Archived;
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::Journal;
use serde_json::Value;

use super::find::{exists, find, only_archived};
use super::{Change, Done, Target};
use crate::app::App;
use crate::auth::tenant_of;
use crate::followers::past_jobs::{self, Restored};
use crate::followers::timeline;
use crate::operations::Operation;
use crate::render::{self, AnswerShape, Shown};
use crate::request::{Caller, Failure};

/// An id that was not looked up. It can be decided while nothing at all was forgotten.
pub(super) const NOT_LOOKED_UP: LookUp = LookUp::Absent { through: Timestamp::MIN };

impl Change {
    /// Brings back from history what the change needs and the ledger may have forgotten. What was done before under
    /// the same id, and only history knows, is answered from there. Nothing, if that is not needed.
    pub fn recall<'a>(
        &self,
        app: &'a App,
    ) -> Option<impl Future<Output = Result<Recalled, Failure>> + Send + use<'a>> {
        let refunded = match &self.plan.target {
            Target::Named(resource, id) if self.plan.operation == Operation::CreateRefund => {
                Some((*resource, id.clone()))
            }
            Target::Named(..) | Target::Account(_) => None,
        };
        let chosen = self.plan.creates.as_ref().filter(|(_, _, chosen)| *chosen);
        let again = self.looks > 0;
        if again {
            app.has_forgotten.store(true, Ordering::Relaxed);
        }
        let created = chosen.filter(|_| again || app.may_have_forgotten());
        let created = created.map(|(resource, id, _)| (*resource, id.clone()));
        if refunded.is_none() && created.is_none() {
            return None;
        }
        let forbidden = self.plan.permit(&self.caller.principal).err();
        let mut asked = Asked {
            caller: self.caller.clone(),
            target: self.plan.target.clone(),
            shape: self.plan.shape.clone(),
            fingerprint: self.fingerprint,
            batch: self.batch,
            again,
        };
        Some(async move {
            let past = match &refunded {
                Some((Resource::Job, id)) => recall_holds(app, &asked.caller, id).await?,
                Some((resource, id)) => recall_one(app, &asked.caller, *resource, id).await?,
                None => None,
            };
            if let Some(failure) = forbidden {
                // What the ledger still has, it refuses by itself.
                return match past {
                    Some(_) => Err(failure),
                    None => Ok(Recalled::Known { looked_up: None, past: None }),
                };
            }
            if let Some(past) = &past {
                asked.target = Target::Account(past.account.clone());
            }
            let looked_up = match created {
                Some((resource, id)) => match asked.repeated(app, resource, id).await? {
                    Repeated::Before(done) => return Ok(Recalled::Answered(done)),
                    Repeated::LookedUp(looked_up) => looked_up,
                },
                None => None,
            };
            Ok(Recalled::Known { looked_up, past })
        })
    }

    /// The same after what it needs was forgotten so many times between a look-up and its decision.
    pub fn after_looks(self, looks: u8) -> Change {
        Change { looks, ..self }
    }

    /// Whether its id was looked up, if it has one that may have been used.
    pub fn is_looked_up(&self) -> bool {
        self.looked_up != Some(NOT_LOOKED_UP)
    }

    /// The same with what history said.
    pub fn knowing(mut self, looked_up: Option<LookUp>, past: Option<Past>) -> Change {
        self.looked_up = looked_up.or(self.looked_up);
        match past {
            Some(past) => self.of_past(past),
            None => self,
        }
    }

    /// The same with what history has of the hold, charge or job that is refunded.
    fn of_past(mut self, past: Past) -> Change {
        let Past { account, job_holds, records } = past;
        self.plan.target = Target::Account(account);
        let build = self.plan.build;
        self.plan.build = Box::new(move |tenant| match build(tenant) {
            Command::Refund(mut refund) => {
                refund.of = match (refund.of, job_holds) {
                    (RefundOf::Job(job), Some(holds)) => RefundOf::PastJob(job, holds),
                    (of, _) => of,
                };
                refund.recalled = records.into_iter().filter_map(recalled_hold).collect();
                Command::Refund(refund)
            }
            other => other,
        });
        self
    }
}

/// A record in the form of a command. Only closed records: the ledger has the open ones.
fn recalled_hold(archived: Archived) -> Option<RecalledHold> {
    let Archived { record, hold: _ } = archived;
    (!record.hold.is_open()).then(|| RecalledHold { record: Box::new(record) })
}

/// The result of a look-up in history.
pub enum Recalled {
    /// It was done before, and this is the answer.
    Answered(Done),
    /// It is for the ledger to decide.
    Known {
        /// What history said of the id that it creates something under.
        looked_up: Option<LookUp>,
        /// What is refunded, if that or a part of it is known only to history.
        past: Option<Past>,
    },
}

/// What history has under the id of a creation.
enum Repeated {
    /// It was done before, and only history knows it.
    Before(Done),
    /// The ledger knows whether it was done; nothing if it cannot be asked for.
    LookedUp(Option<LookUp>),
}

/// The records that history has of a refunded hold, charge or job.
pub struct Past {
    /// The account that paid.
    account: Name,
    /// The names of its holds, newest first, if it is a job that the ledger has forgotten.
    job_holds: Option<Vec<Name>>,
    /// The holds and charges that the ledger has forgotten.
    records: Vec<Archived>,
}

/// A refunded hold or charge, if the ledger has forgotten it.
async fn recall_one(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Option<Past>, Failure> {
    let found = only_archived(app, caller, resource, id).await?;
    let past = |(archived, account)| Past { account, job_holds: None, records: vec![archived] };
    Ok(found.map(past))
}

/// The records of a refunded job, if the ledger has forgotten it or one of its holds.
async fn recall_holds(app: &App, caller: &Caller, id: &Name) -> Result<Option<Past>, Failure> {
    match find(app, caller, Resource::Job, id).await {
        Ok(account) => forgotten_holds(app, account, id).await,
        Err(failure) if failure.problem.code == Code::NotFound => {
            let (account, records) = past_jobs::holds_of_forgotten(app, caller, id).await?;
            let names = records.iter().map(|archived| archived.record.hold.id.clone()).collect();
            Ok(Some(Past { account, job_holds: Some(names), records }))
        }
        // The decision reports the error.
        Err(_) => Ok(None),
    }
}

/// The holds of a job's earlier attempts that the ledger has forgotten, although it has the job.
async fn forgotten_holds(app: &App, account: Name, id: &Name) -> Result<Option<Past>, Failure> {
    let (path, wanted) = (account.clone(), id.clone());
    let look = move |ledger: &Ledger| {
        let tenant = ledger.find_account(tenant_of(&path))?;
        let job = ledger.find_job(tenant, &wanted).and_then(|job| ledger.job(job))?;
        let names = job.attempts.iter().filter_map(|attempt| attempt.hold.clone());
        let gone = |name: &Name| ledger.find_hold(tenant, HoldKind::Hold, name).is_none();
        Some((tenant, names.filter(gone).collect::<Vec<Name>>()))
    };
    let seen = app.ledger.read(look).await?;
    let Some((tenant, names)) = seen.value.filter(|(_, names)| !names.is_empty()) else {
        return Ok(None);
    };
    let ask = app.history.ask(seen.position, move |history| {
        let archived = |name: &Name| history.archived(tenant.0, HoldKind::Hold, name).transpose();
        names.iter().filter_map(archived).collect::<Result<Vec<Archived>, HistoryError>>()
    });
    Ok(Some(Past { account, job_holds: None, records: ask.await?.0 }))
}

/// The parts of the request that a look-up needs.
struct Asked {
    caller: Caller,
    target: Target,
    shape: AnswerShape,
    fingerprint: u128,
    batch: Option<u128>,
    /// Whether the ledger has forgotten more since the last look.
    again: bool,
}

/// The record that history has under an id.
enum Found {
    Hold(Archived),
    Job(Restored),
    /// The events of the record that created it.
    Movement(Vec<(Timestamp, Event)>),
}

impl Asked {
    /// The answer to what was done before under this id, if only history knows it.
    async fn repeated(&self, app: &App, resource: Resource, id: Name) -> Result<Repeated, Failure> {
        let Some(tenant) = self.tenant(app).await else { return Ok(Repeated::LookedUp(None)) };
        let (journal, path, wanted) = (Arc::clone(&app.ledger_journal), tenant.clone(), id.clone());
        let found = ask_past(app, self.again, move |history| {
            let Some(tenant) = history.account_number(&path)?.map(AccountNo) else {
                return Ok(None);
            };
            let found = look(history, &*journal, tenant, resource, &wanted)?;
            Ok(found.map(|found| (tenant, found)))
        });
        let (found, through) = found.await?;
        let absent = Repeated::LookedUp(Some(LookUp::Absent { through }));
        let Some((number, found)) = found else { return Ok(absent) };
        let wanted = id.clone();
        let is_known = move |ledger: &Ledger| exists(ledger, &tenant, resource, &wanted);
        if app.ledger.peek(is_known).await? {
            return Ok(Repeated::LookedUp(Some(LookUp::Present)));
        }
        let done = match found {
            Found::Hold(archived) => {
                let hold = archived.record.hold;
                self.same_short(hold.fingerprint, resource, &id)?;
                let seen = app.read(move |ledger| shown_hold(ledger, &hold)).await?;
                let (body, position) = (Some(seen.value), seen.position);
                Done { status: 200, body, replayed: false, position }
            }
            Found::Job(restored) => {
                self.same(restored.fingerprint(), resource, &id)?;
                let seen = past_jobs::shown(app, restored).await?;
                done(serde_json::to_value(&seen.value), seen.position)
            }
            Found::Movement(told) => {
                let mut parts: Vec<(Timestamp, NamedMovement)> = told
                    .into_iter()
                    .filter_map(|(at, event)| part(resource, &id, at, event))
                    .collect();
                let whole = parts.iter().find(|(_, part)| part.id == id);
                let Some(print) = whole.map(|(_, whole)| whole.fingerprint) else {
                    return Ok(absent);
                };
                // Another request of the same atomic batch may have chosen an id that looks like
                // that of a part.
                parts.retain(|(_, part)| part.fingerprint == print);
                self.same(print, resource, &id)?;
                let shape = self.shape.clone();
                let show = move |ledger: &Ledger| {
                    shown_movement(ledger, (resource, number), parts, &shape)
                };
                let seen = app.read(show).await?;
                done(Ok(seen.value), seen.position)
            }
        };
        Ok(Repeated::Before(done))
    }

    /// The tenant, if the caller can see the target of the change.
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

    /// Refuses a request that differs from the original.
    fn same(&self, first: u128, what: Resource, name: &Name) -> Result<(), Failure> {
        self.same_short(short_fingerprint(first), what, name)
    }

    /// Like [`Asked::same`], by the part of the hash that is stored with holds and charges.
    fn same_short(&self, first: u64, what: Resource, name: &Name) -> Result<(), Failure> {
        let (fingerprint, batch) = (self.fingerprint, self.batch);
        if (Envelope { fingerprint, batch, ..Envelope::default() }).made(first) {
            return Ok(());
        }
        Err(Failure::from(Refusal::AlreadyExists { what, name: name.clone() }))
    }
}

/// A hold or charge as a repeat of its creation is answered.
fn shown_hold(ledger: &Ledger, hold: &Hold) -> Shown {
    match hold.kind {
        HoldKind::Hold => Shown::Hold(Box::new(render::archived_hold(ledger, hold))),
        HoldKind::Charge => Shown::Charge(Box::new(render::charge(ledger, hold))),
    }
}

/// The answer to a repeat of an old change.
fn done(body: serde_json::Result<Value>, position: u64) -> Done {
    let body = body.expect("the bodies have only plain fields and string keys");
    Done { status: 200, body: Some(Shown::Other(body)), replayed: false, position }
}

/// One part of the movement with this name, if the event has it.
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
    } else if let (Resource::Collection, Event::UncollectedCollected { movement, .. }) =
        (what, &event)
    {
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
    shape: &AnswerShape,
) -> Value {
    let units = parts.iter().map(|(_, part)| total(&part.pieces)).sum();
    let amount = Credits::from_length(units).unwrap_or(Credits::MAX);
    let parts: Vec<_> =
        parts.into_iter().map(|(at, part)| ledger.recalled(what, tenant, at, part)).collect();
    render::movement(ledger, &parts[0], parts.iter(), amount, shape)
}

/// The record that history has under an id.
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
            // The jobs of an array have a number after the name.
            let first_of_array = compact_str::format_compact!("{id}.0");
            for name in [id, &first_of_array] {
                if let Some(restored) = past_jobs::restored(history, journal, tenant, name)? {
                    return Ok(Some(Found::Job(restored)));
                }
            }
            Ok(None)
        }
        Resource::Refund | Resource::Transfer | Resource::Collection => {
            let Some(position) = history.movement_position(tenant.0, resource, id)? else {
                return Ok(None);
            };
            let events = timeline::ledger_events_at(journal, &[position]);
            events.map(|events| Some(Found::Movement(events))).map_err(HistoryError::inconsistent)
        }
        // The ledger forgets none of these.
        Resource::Account
        | Resource::Grant
        | Resource::Budget
        | Resource::Region
        | Resource::Quota => Ok(None),
    }
}

/// Asks history about what the ledger may have forgotten, and says up to which instant the answer is whole. History
/// nearly always has that much; if not, or if more was forgotten since the last look, it is waited for.
async fn ask_past<T: Send + 'static>(
    app: &App,
    again: bool,
    ask: impl Fn(&History<Sqlite>) -> Result<T, HistoryError> + Clone + Send + 'static,
) -> Result<(T, Timestamp), Failure> {
    // What comes in between is in the answer, but is not promised to be.
    let whole = move |history: &History<Sqlite>| {
        let reached = history.reached()?;
        Ok((ask(history)?, reached))
    };
    if !again {
        let (at_once, kept_from) = (whole.clone(), app.clock.now().plus_millis(-app.retention_ms));
        let answer = app.history.ask(0, move |history| {
            let has_come_so_far = history.reached()? >= kept_from;
            has_come_so_far.then(|| at_once(history)).transpose()
        });
        if let Some(answer) = answer.await?.0 {
            return Ok(answer);
        }
    }
    let seen = app.ledger.read(|_| ()).await?;
    Ok(app.history.ask(seen.position, whole).await?.0)
}
