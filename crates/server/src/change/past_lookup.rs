//! Changes of jobs that the ledger has forgotten: refunds, and repeats of submissions.

use bursar_api::Code;
use bursar_core::ledger::command::{Command, RefundOf};
use bursar_core::ledger::holds::archive::ArchivedJob;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::jobs::view::first_of_array;
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::state::short_fingerprint;
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::name::{AccountPath, HoldId};

use super::archive_lookup::holds_of_job;
use super::find::{exists, find};
use super::{Change, Done, Target};
use crate::app::App;
use crate::auth::tenant_of;
use crate::followers::past_jobs;
use crate::operations::Operation;
use crate::render::Shown;
use crate::request::{Caller, Failure};

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

    /// Whether it refunds a job, whose holds have to be known.
    pub(super) fn refunds_a_job(&self) -> bool {
        self.refunded_job().is_some()
    }

    /// The job that it submits, if the caller chose its id.
    fn submitted_job(&self) -> Option<&Name> {
        let chosen = self.plan.creates.as_ref().filter(|(_, _, chosen)| *chosen);
        chosen.filter(|(what, ..)| *what == Resource::Job).map(|(_, id, _)| id)
    }

    /// Whether it refunds a job that may have been forgotten since it was asked for. It was there at the first look,
    /// or never.
    pub(super) fn lacks_job(&self) -> bool {
        self.refunded_job().is_some() && self.looks == 0
    }

    /// The same change with what the archive has, or the answer to what was done before.
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
        let change = change.look_up(app).await?;
        if let Some(before) = change.submitted_before()
            && let Some(done) = before.answer(app).await?
        {
            return Ok(Err(done));
        }
        Ok(Ok(change))
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

    /// What the archive has under the id of the job that it submits, if the caller may submit it.
    fn submitted_before(&self) -> Option<SubmittedBefore> {
        let (id, tenant) = (self.submitted_job()?.clone(), self.tenant_of_submission()?);
        let named =
            |name: &str| self.looked.jobs.iter().find(|found| found.job.order.id.as_str() == name);
        let array = || named(&first_of_array(&id)).filter(|found| found.job.is_first_of_array());
        let found = named(&id).or_else(array)?.clone();
        let (fingerprint, batch) = (self.fingerprint, self.batch);
        let envelope = Envelope { fingerprint, batch, ..Envelope::default() };
        let is_same = envelope.made(short_fingerprint(found.job.order.fingerprint));
        Some(SubmittedBefore { id, tenant, found, is_same })
    }

    /// The tenant of a submitted job, if the caller may submit it.
    fn tenant_of_submission(&self) -> Option<AccountPath> {
        let Target::Account(path) = &self.plan.target else { return None };
        let principal = &self.caller.principal;
        let is_foreign = self.caller.tenant.as_deref().is_some_and(|of| of != tenant_of(path));
        let may_submit = !is_foreign && principal.sees(path) && self.plan.permit(principal).is_ok();
        may_submit.then(|| AccountPath::from(tenant_of(path)))
    }
}

/// A job that was submitted under the same id.
struct SubmittedBefore {
    id: Name,
    tenant: AccountPath,
    found: ArchivedJob,
    /// Whether by the same request.
    is_same: bool,
}

impl SubmittedBefore {
    /// The answer, if the ledger does not know the job.
    async fn answer(self, app: &App) -> Result<Option<Done>, Failure> {
        let SubmittedBefore { id, tenant, found, is_same } = self;
        let wanted = id.clone();
        let is_known = move |ledger: &Ledger| exists(ledger, &tenant, Resource::Job, &wanted);
        if app.ledger.peek(is_known).await? {
            return Ok(None);
        }
        if !is_same {
            let (what, name) = (Resource::Job, id);
            return Err(Failure::from(Refusal::AlreadyExists { what, name }));
        }
        let restored = past_jobs::restored(app, found).await?;
        let seen = past_jobs::shown(app, restored).await?;
        let body = serde_json::to_value(&seen.value);
        let body = body.expect("the bodies have only plain fields and string keys");
        let (body, position) = (Some(Shown::Other(body)), seen.position);
        Ok(Some(Done { status: 200, body, replayed: false, position }))
    }
}

/// The holds of a refunded job.
struct Past {
    /// The account that paid, if only the archive has the job.
    account: Option<AccountPath>,
    /// The names of its holds, the newest first.
    holds: Vec<HoldId>,
}

/// The holds of a refunded job, from the ledger or from the archive.
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
