//! Jobs that the ledger has forgotten. The archive has each as it was at its end. Lists come from history, which has
//! the positions of their events; the journal has the events.

use std::sync::Arc;

use bursar_api::jobs::job::Job;
use bursar_core::ledger::event::Event;
use bursar_core::ledger::event::subject::Subject;
use bursar_core::ledger::holds::archive::{ArchivedHold, RecalledRecord};
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::{AccountNo, JobNo, Name};
use bursar_core::ledger::jobs::ArchivedJob;
use bursar_core::ledger::jobs::view::first_of_array;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Ledger, jobs as core};
use bursar_core::machine::Machine;
use bursar_core::name::{AccountPath, HoldId, is_at_or_below, tenant_of};
use bursar_core::time::Timestamp;
use bursar_engine::Seen;
use bursar_history::query::PastJob;
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::Journal;

use crate::app::App;
use crate::auth::Principal;
use crate::change::ambiguous;
use crate::followers::archive::ArchivedId;
use crate::followers::timeline;
use crate::ids::attempt::AttemptIds;
use crate::render::{self, time};
use crate::request::{Caller, Failure};

/// The number of jobs that are restored in one step.
const STEP_JOBS: u32 = 100;

/// A job as it was at its end, with its last hold.
pub(crate) struct Restored {
    number: JobNo,
    account: AccountNo,
    job: core::Job,
    hold: Option<Hold>,
}

/// A job from the archive, with its last hold.
pub(crate) async fn restored(app: &App, found: ArchivedJob) -> Result<Restored, Failure> {
    let ArchivedJob { number, job } = found;
    let account = job.order.account;
    let hold = match &job.hold_name {
        Some(name) => last_hold(app, account, name.clone()).await?,
        None => None,
    };
    Ok(Restored { number, account, job, hold })
}

/// A closed hold. The ledger is asked first: what it forgets meanwhile is in the archive.
async fn last_hold(app: &App, account: AccountNo, name: HoldId) -> Result<Option<Hold>, Failure> {
    let wanted = name.clone();
    let look = move |ledger: &Ledger| {
        let tenant = ledger.account(account).tenant;
        let hold = ledger.find_hold(tenant, HoldKind::Hold, &wanted);
        (tenant, hold.and_then(|number| ledger.hold(number)).cloned())
    };
    let (tenant, live) = app.ledger.peek(look).await?;
    if live.is_some() {
        return Ok(live);
    }
    let found = app.archive.recall(vec![(Resource::Hold, tenant, name.into())], Vec::new()).await?;
    let mut records = found.into_iter().flat_map(|found| found.recalled);
    Ok(records.find_map(|record| match record {
        RecalledRecord::Hold(ArchivedHold { hold, .. }) => Some(hold),
        RecalledRecord::Movement(_) => None,
    }))
}

/// Renders a restored job for the API.
pub(crate) async fn shown(app: &App, restored: Restored) -> Result<Seen<Job>, Failure> {
    let ids = app.attempt_ids;
    let mut seen = app.read(move |ledger| show(&ids, ledger, &restored)).await?;
    seen.value.as_of = time(seen.at);
    seen.value.array = render::job::array(&seen.value);
    render::job::add_messages(app, &mut seen.value).await;
    Ok(seen)
}

/// Restores a job from the journal.
fn restore(
    history: &History<Sqlite>,
    journal: &dyn Journal,
    past: PastJob,
) -> Result<Option<Restored>, HistoryError> {
    let positions = history.milestones(past.job)?;
    let events = timeline::ledger_events_at(journal, &positions);
    let events = events.map_err(HistoryError::inconsistent)?;
    let Some(job) = replay(past.job, events) else { return Ok(None) };
    let hold = match &job.hold_name {
        Some(name) => history.archived(past.tenant, HoldKind::Hold, name)?,
        None => None,
    };
    let hold = hold.map(|archived| archived.record.hold);
    Ok(Some(Restored { number: past.job, account: AccountNo(past.account), job, hold }))
}

/// Applies the events of a job's life.
fn replay(number: JobNo, events: Vec<(Timestamp, Event)>) -> Option<core::Job> {
    let mut replayed: Option<core::Job> = None;
    for (at, event) in events {
        let job = replayed.as_mut();
        match (event.subject(), job) {
            (Subject::Job(of), None) if of == number => {
                if let Event::JobSubmitted { job: _, order, after } = &event {
                    replayed = Some(core::Job::submitted(at, order, after));
                }
            }
            (Subject::Job(of), Some(job)) if of == number => job.apply(at, &event),
            (Subject::Hold(_), Some(job)) => job.apply(at, &event),
            (Subject::Job(_) | Subject::Hold(_) | Subject::Other, _) => {}
        }
    }
    replayed.filter(|job| job.ended_at.is_some())
}

fn show(ids: &AttemptIds, ledger: &Ledger, restored: &Restored) -> Job {
    render::job::render(ids, ledger, restored.number, &restored.job, restored.hold.as_ref())
}

/// A job that the ledger has forgotten.
pub(crate) struct Forgotten {
    /// Its number.
    pub(crate) number: JobNo,
    /// When it was submitted.
    pub(crate) submitted_at: Timestamp,
    /// When it ended.
    pub(crate) ended_at: Timestamp,
    /// The job, rendered for the API.
    pub(crate) job: Job,
}

/// Ended jobs with one of these names, in the tenants that are visible to the caller.
async fn ended(app: &App, caller: &Caller, ids: &[Name]) -> Result<Vec<Restored>, Failure> {
    let tenant = caller.principal.tenant().map(AccountPath::from).or_else(|| caller.tenant.clone());
    let tenants = move |ledger: &Ledger| match tenant {
        Some(tenant) => ledger.find_account(&tenant).into_iter().collect(),
        None => ledger.tenants().collect::<Vec<AccountNo>>(),
    };
    let tenants = app.ledger.read(tenants).await?.value;
    let named = |tenant| ids.iter().map(move |id| (Resource::Job, tenant, id.clone()));
    let names: Vec<ArchivedId> = tenants.into_iter().flat_map(named).collect();
    if app.archive.excludes(&names, &[]).is_some() {
        return Ok(Vec::new());
    }
    let found = app.archive.recall(names, Vec::new()).await?;
    let mut jobs = Vec::new();
    for found in found.into_iter().flat_map(|found| found.jobs) {
        jobs.push(restored(app, found).await?);
    }
    Ok(jobs)
}

/// The account and the names of the holds, newest first, of the only forgotten job with this id that is
/// visible to the caller.
pub(crate) async fn holds_of_forgotten(
    app: &App,
    caller: &Caller,
    id: &Name,
) -> Result<(AccountPath, Vec<HoldId>), Failure> {
    let found = ended(app, caller, std::slice::from_ref(id)).await?;
    let accounts: Vec<AccountNo> = found.iter().map(|one| one.account).collect();
    let look = move |ledger: &Ledger| {
        let path = |account: AccountNo| ledger.account(account).path.clone();
        accounts.into_iter().map(path).collect::<Vec<AccountPath>>()
    };
    let paths = app.ledger.peek(look).await?;
    let mut own: Vec<(Restored, AccountPath)> = found.into_iter().zip(paths).collect();
    own.retain(|(_, path)| caller.principal.sees(path));
    let Some((job, path)) = own.pop() else {
        return Err(Failure::not_found("job", id));
    };
    if !own.is_empty() {
        let others = own.iter().map(|(_, path)| path);
        return Err(ambiguous(id, others.chain([&path])));
    }
    let names: Vec<HoldId> =
        job.job.attempts.into_iter().rev().filter_map(|attempt| attempt.hold).collect();
    Ok((path, names))
}

/// Refuses an id that is that of a live job of one tenant and of a forgotten one of another, as it was when both were
/// live. Only callers without a tenant can mean either.
pub(crate) async fn require_only(
    app: &App,
    caller: &Caller,
    id: &Name,
    live: &AccountPath,
) -> Result<(), Failure> {
    if caller.principal.tenant().is_some() || caller.tenant.is_some() {
        return Ok(());
    }
    let found = ended(app, caller, std::slice::from_ref(id)).await?;
    let accounts: Vec<AccountNo> = found.iter().map(|one| one.account).collect();
    let look = move |ledger: &Ledger| {
        let path = |account: AccountNo| ledger.account(account).path.clone();
        accounts.into_iter().map(path).collect::<Vec<AccountPath>>()
    };
    let mut paths = app.ledger.peek(look).await?;
    paths.retain(|path| caller.principal.sees(path) && tenant_of(path) != tenant_of(live));
    if paths.is_empty() { Ok(()) } else { Err(ambiguous(id, paths.iter().chain([live]))) }
}

/// The only forgotten job with this id that is visible to the caller, or the first of the array with it.
pub(crate) async fn only_forgotten(
    app: &App,
    caller: &Caller,
    id: &Name,
) -> Result<Forgotten, Failure> {
    let mut found = ended(app, caller, &[id.clone(), first_of_array(id)]).await?;
    found.retain(|one| one.job.order.id.as_str() == id.as_str() || one.job.is_first_of_array());
    let (principal, ids) = (caller.principal.clone(), app.attempt_ids);
    let look = move |ledger: &Ledger| {
        let path = |one: &Restored| ledger.account(one.account).path.clone();
        let own = found.iter().filter(|one| principal.sees(&path(one)));
        let forgotten = |one: &Restored| Forgotten {
            number: one.number,
            submitted_at: one.job.submitted_at,
            ended_at: one.job.ended_at.unwrap_or(one.job.submitted_at),
            job: show(&ids, ledger, one),
        };
        own.map(|one| (path(one), forgotten(one))).collect::<Vec<(AccountPath, Forgotten)>>()
    };
    let seen = app.read(look).await?;
    let mut found = seen.value;
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(Failure::not_found("job", id)),
        (Some((_, mut found)), true) => {
            found.job.as_of = time(seen.at);
            found.job.array = render::job::array(&found.job);
            found.job.ledger_position = Some(seen.position);
            render::job::add_messages(app, &mut found.job).await;
            Ok(found)
        }
        (Some((last, _)), false) => {
            let accounts: Vec<AccountPath> = found.into_iter().map(|(path, _)| path).collect();
            Err(ambiguous(id, accounts.iter().chain([&last])))
        }
    }
}

/// The filter of a list of forgotten jobs.
#[derive(Clone)]
pub(crate) struct PastJobFilter {
    /// The caller.
    pub(crate) principal: Principal,
    /// The account at or below which they were submitted.
    pub(crate) account: Option<AccountPath>,
    /// The other filters.
    pub(crate) shown: Arc<dyn Fn(&Job) -> bool + Send + Sync>,
}

/// Up to `most` forgotten jobs with a number below `before`, newest first.
pub(crate) async fn list_forgotten(
    app: &App,
    wanted: &PastJobFilter,
    mut before: JobNo,
    most: usize,
) -> Result<Vec<(JobNo, Job)>, Failure> {
    let tenant = wanted.account.as_deref().or(wanted.principal.scope.as_deref());
    let tenant = tenant.map(|path| AccountPath::from(tenant_of(path)));
    let look = move |ledger: &Ledger| {
        let kept_from = ledger.now().plus_millis(-ledger.policy().retention_ms);
        (tenant.map(|tenant| ledger.find_account(&tenant)), kept_from)
    };
    let seen = app.ledger.read(look).await?;
    let (tenant, ended_by) = seen.value;
    // A scope that names no account has no jobs.
    if tenant == Some(None) {
        return Ok(Vec::new());
    }
    let tenant = tenant.flatten().map(|tenant| tenant.0);
    let mut found = Vec::new();
    while found.len() < most {
        let ask = app.history.ask(seen.position, move |history| {
            history.past_jobs(tenant, before, ended_by, STEP_JOBS)
        });
        let rows = ask.await?.0;
        let Some(last) = rows.last().map(|row| row.job) else { break };
        before = last;
        found.extend(shown_of(app, wanted, rows).await?);
    }
    found.truncate(most);
    Ok(found)
}

/// Of these jobs, those that the ledger has forgotten and the filter accepts.
async fn shown_of(
    app: &App,
    wanted: &PastJobFilter,
    rows: Vec<PastJob>,
) -> Result<Vec<(JobNo, Job)>, Failure> {
    let PastJobFilter { principal, account, shown } = wanted.clone();
    let look = move |ledger: &Ledger| {
        let mut rows = rows;
        rows.retain(|row| {
            let path = &ledger.account(AccountNo(row.account)).path;
            let below = |account: &AccountPath| is_at_or_below(path, account);
            let visible = principal.sees(path) && account.as_ref().is_none_or(below);
            visible && ledger.job(row.job).is_none()
        });
        rows
    };
    let rows = app.ledger.read(look).await?;
    let journal = Arc::clone(&app.ledger_journal);
    let ask = app.history.ask(rows.position, move |history| {
        let restored = rows.value.into_iter().map(|row| restore(history, &*journal, row));
        let restored: Result<Vec<Option<Restored>>, HistoryError> = restored.collect();
        Ok(restored?.into_iter().flatten().collect::<Vec<Restored>>())
    });
    let restored = ask.await?.0;
    let ids = app.attempt_ids;
    let look = move |ledger: &Ledger| {
        let jobs = restored.iter().map(|one| (one.number, show(&ids, ledger, one)));
        jobs.filter(|(_, job)| shown(job)).collect()
    };
    Ok(app.read(look).await?.value)
}
