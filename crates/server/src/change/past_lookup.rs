//! Looks up in history the jobs that the ledger has forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bursar_api::Code;
use bursar_core::ledger::command::{Command, RefundOf};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::state::short_fingerprint;
use bursar_core::ledger::{Envelope, Ledger, LookUp};
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::Timestamp;
use bursar_history::{History, HistoryError, Sqlite};

use super::archive_lookup::holds_of_job;
use super::find::{exists, find};
use super::{Change, Done, Target};
use crate::app::App;
use crate::auth::tenant_of;
use crate::followers::past_jobs::{self, Restored};
use crate::operations::Operation;
use crate::render::Shown;
use crate::request::{Caller, Failure};

/// An id that was not looked up. It can be decided while nothing at all was forgotten.
pub(super) const NOT_LOOKED_UP: LookUp = LookUp::Absent { through: Timestamp::MIN };

impl Change {
    /// The job that it refunds.
    fn refunded_job(&self) -> Option<&Name> {
        match &self.plan.target {
            Target::Named(Resource::Job, id) if self.plan.operation == Operation::CreateRefund => {
                Some(id)
            }
            Target::Named(..) | Target::Account(_) => None,
        }
    }

    /// The job that it submits, if the caller chose its id.
    fn submitted_job(&self) -> Option<&Name> {
        let chosen = self.plan.creates.as_ref().filter(|(_, _, chosen)| *chosen);
        chosen.filter(|(what, ..)| *what == Resource::Job).map(|(_, id, _)| id)
    }

    /// Whether it is about a job.
    pub(super) fn may_need_history(&self) -> bool {
        self.refunded_job().is_some() || self.submitted_job().is_some()
    }

    /// Whether history may have something that it needs.
    pub(super) fn must_ask_history(&self, app: &App) -> bool {
        self.refunded_job().is_some()
            || (self.submitted_job().is_some() && app.may_have_forgotten())
    }

    /// Whether a job was forgotten since history was asked for its id.
    pub(super) fn must_ask_history_again(&self, ledger: &Ledger, account: &AccountPath) -> bool {
        let outdated = self.looked_up.filter(|looked_up| ledger.is_outdated(*looked_up));
        let (Some(looked_up), Some(id)) = (outdated, self.submitted_job()) else { return false };
        ledger.must_look_up(looked_up, Resource::Job, account, id)
    }

    /// Whether it refunds a job that may have been forgotten since it was asked for. It was there at the first look,
    /// or never.
    pub(super) fn lacks_job(&self) -> bool {
        self.refunded_job().is_some() && self.looks == 0
    }

    /// The same change with what the archive and history have, or the answer to what was done before.
    pub async fn recalled(self, app: &App) -> Result<Result<Change, Done>, Failure> {
        let mut change = self;
        if let Some(id) = change.refunded_job().cloned() {
            let caller = change.caller.clone();
            let forbidden = change.plan.permit(&caller.principal).err();
            let past = holds_of(app, &caller, &id).await?;
            if let (Some(failure), true) = (forbidden, past.account.is_some()) {
                return Err(failure);
            }
            change = change.of_past(past);
        }
        let submitted = change.submitted_job().filter(|_| {
            let again = change.looks > 0;
            if again {
                app.has_forgotten.store(true, Ordering::Relaxed);
            }
            app.may_have_forgotten()
        });
        if let Some(id) = submitted.cloned()
            && change.plan.permit(&change.caller.principal).is_ok()
        {
            let asked = Asked::of(&change);
            match asked.repeated(app, id).await? {
                Repeated::Before(done) => return Ok(Err(done)),
                Repeated::LookedUp(looked_up) => {
                    change.looked_up = looked_up.or(change.looked_up);
                }
            }
        }
        change.look_up(app).await.map(Ok)
    }

    /// The same with what is known of the job that is refunded.
    fn of_past(mut self, past: Past) -> Change {
        let Past { account, holds } = past;
        self.holds.clone_from(&holds);
        if let Some(account) = account {
            self.plan.target = Target::Account(account);
            let build = self.plan.build;
            self.plan.build = Box::new(move |tenant| match build(tenant) {
                Command::Refund(mut refund) => {
                    refund.of = match refund.of {
                        RefundOf::Job(job) => RefundOf::PastJob(job, holds),
                        of => of,
                    };
                    Command::Refund(refund)
                }
                other => other,
            });
        }
        self
    }
}

/// The result of looking up the id of a submitted job.
enum Repeated {
    /// It was done before, and only history knows it.
    Before(Done),
    /// The ledger knows whether it was done; nothing if it cannot be asked for.
    LookedUp(Option<LookUp>),
}

/// The holds of a refunded job.
struct Past {
    /// The account that paid, if only history has the job.
    account: Option<AccountPath>,
    /// The names of its holds, the newest first.
    holds: Vec<HoldId>,
}

/// The holds of a refunded job, from the ledger or from history.
async fn holds_of(app: &App, caller: &Caller, id: &Name) -> Result<Past, Failure> {
    match find(app, caller, Resource::Job, id).await {
        Ok(account) => {
            let wanted = id.clone();
            let look = move |ledger: &Ledger| {
                let tenant = ledger.find_account(tenant_of(&account));
                tenant.map(|tenant| holds_of_job(ledger, tenant, &wanted)).unwrap_or_default()
            };
            Ok(Past { account: None, holds: app.ledger.peek(look).await? })
        }
        Err(failure) if failure.problem.code == Code::NotFound => {
            let (account, holds) = past_jobs::holds_of_forgotten(app, caller, id).await?;
            Ok(Past { account: Some(account), holds })
        }
        // The decision reports the error.
        Err(_) => Ok(Past { account: None, holds: Vec::new() }),
    }
}

/// The parts of the request that a look-up needs.
struct Asked {
    caller: Caller,
    target: Target,
    fingerprint: u128,
    batch: Option<u128>,
    /// Whether the ledger has forgotten more since the last look.
    again: bool,
}

impl Asked {
    fn of(change: &Change) -> Asked {
        let Change { plan, caller, fingerprint, batch, looks, .. } = change;
        let (caller, target) = (caller.clone(), plan.target.clone());
        Asked { caller, target, fingerprint: *fingerprint, batch: *batch, again: *looks > 0 }
    }

    /// The answer to what was submitted before under this id, if only history knows it.
    async fn repeated(&self, app: &App, id: Name) -> Result<Repeated, Failure> {
        let Some(tenant) = self.tenant(app).await else { return Ok(Repeated::LookedUp(None)) };
        let (journal, path, wanted) = (Arc::clone(&app.ledger_journal), tenant.clone(), id.clone());
        let found = ask_past(app, self.again, move |history| {
            let Some(tenant) = history.account_number(&path)?.map(AccountNo) else {
                return Ok(None);
            };
            // The jobs of an array have a number after the name.
            let first_of_array = compact_str::format_compact!("{wanted}.0");
            for name in [&wanted, &first_of_array] {
                if let Some(found) = past_jobs::restored(history, &*journal, tenant, name)? {
                    return Ok(Some(found));
                }
            }
            Ok(None::<Restored>)
        });
        let (found, through) = found.await?;
        let absent = Repeated::LookedUp(Some(LookUp::Absent { through }));
        let Some(restored) = found else { return Ok(absent) };
        let wanted = id.clone();
        let is_known = move |ledger: &Ledger| exists(ledger, &tenant, Resource::Job, &wanted);
        if app.ledger.peek(is_known).await? {
            return Ok(Repeated::LookedUp(Some(LookUp::Present)));
        }
        self.same(restored.fingerprint(), &id)?;
        let seen = past_jobs::shown(app, restored).await?;
        let body = serde_json::to_value(&seen.value);
        let body = body.expect("the bodies have only plain fields and string keys");
        let (body, position) = (Some(Shown::Other(body)), seen.position);
        Ok(Repeated::Before(Done { status: 200, body, replayed: false, position }))
    }

    /// The tenant, if the caller can see the target of the change.
    async fn tenant(&self, app: &App) -> Option<AccountPath> {
        let account = match &self.target {
            Target::Account(path) => {
                let foreign = self.caller.tenant.as_deref().is_some_and(|t| t != tenant_of(path));
                Some(path.clone()).filter(|path| !foreign && self.caller.principal.sees(path))
            }
            Target::Named(resource, id) => find(app, &self.caller, *resource, id).await.ok(),
        };
        account.map(|path| AccountPath::from(tenant_of(&path)))
    }

    /// Refuses a request that differs from the original.
    fn same(&self, first: u128, name: &Name) -> Result<(), Failure> {
        let (fingerprint, batch) = (self.fingerprint, self.batch);
        let envelope = Envelope { fingerprint, batch, ..Envelope::default() };
        if envelope.made(short_fingerprint(first)) {
            return Ok(());
        }
        let (what, name) = (Resource::Job, name.clone());
        Err(Failure::from(Refusal::AlreadyExists { what, name }))
    }
}

/// Reads from history what the ledger may have forgotten. Returns the result and the instant up to which it is
/// complete. History is nearly always far enough; if not, or if more was forgotten since the last look-up, the call
/// waits for history.
async fn ask_past<T: Send + 'static>(
    app: &App,
    again: bool,
    ask: impl Fn(&History<Sqlite>) -> Result<T, HistoryError> + Clone + Send + 'static,
) -> Result<(T, Timestamp), Failure> {
    // Later records may be included.
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
