//! Changes of jobs that the ledger has forgotten: refunds, and repeats of submissions.

use bursar_api::Code;
use bursar_core::ledger::command::{Command, RefundOf};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::jobs::ArchivedJob;
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
use crate::render::AnswerBody;
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

    /// The change with what the archive has for it, or the answer to the earlier request.
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
        let mut change = change.look_up(app).await?;
        change.look_past_live_jobs(app).await?;
        if let Some(before) = change.submitted_before()
            && let Some(done) = before.answer(app).await?
        {
            return Ok(Err(done));
        }
        Ok(Ok(change))
    }

    /// Makes the look-up one from before the jobs that the ledger still has: what is decided does not carry their
    /// records, so it must be looked up again once they leave.
    async fn look_past_live_jobs(&mut self, app: &App) -> Result<(), Failure> {
        if !self.looked.jobs.is_empty() {
            let looked = self.looked.clone();
            self.looked = app.ledger.peek(move |ledger| looked.before_live_jobs(ledger)).await?;
        }
        Ok(())
    }

    /// The change with what is known of the job that is refunded.
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
        // Any other has a name that one of the array would have.
        let first = || self.plan.array.and_then(|_| self.looked.jobs.first());
        let found = named(&id).or_else(array).or_else(first)?.clone();
        let is_own = found.job.order.id == *id || found.job.is_first_of_array();
        let (fingerprint, batch) = (self.fingerprint, self.batch);
        let envelope = Envelope { fingerprint, batch, ..Envelope::default() };
        let is_same = is_own && envelope.made(short_fingerprint(found.job.order.fingerprint));
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
        let (body, position) = (Some(AnswerBody::Other(body)), seen.position);
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
            past_jobs::require_only(app, caller, id, &account).await?;
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

#[cfg(test)]
mod tests {
    use axum::http::Method;
    use bursar_core::cell::schedule::shape::GpuDemand;
    use bursar_core::credits::Credits;
    use bursar_core::ledger::command::{
        AccountKind, AccountSettings, Forget, IssueGrant, Refund, SubmitJob,
    };
    use bursar_core::ledger::holds::forgettable::Forgettable;
    use bursar_core::ledger::id::AccountNo;
    use bursar_core::ledger::jobs::{JobTerms, Offer};
    use bursar_core::machine::{advance, execute};
    use bursar_core::time::Timestamp;

    use super::*;
    use crate::auth::Principal;
    use crate::auth::permissions::Authority;
    use crate::change::{ArchiveRecords, ChangePlan};
    use crate::render::AnswerShape;

    const HOUR_MS: i64 = 3_600_000;
    const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

    struct World {
        ledger: Ledger,
        now: Timestamp,
    }

    impl World {
        /// An account with credits, and a job of it that was cancelled a year ago.
        fn new() -> World {
            World::on(Ledger::new())
        }

        fn on(ledger: Ledger) -> World {
            let now = Timestamp::from_millis(1_767_225_600_000);
            let mut world = World { ledger, now };
            let (path, kind) = (AccountPath::from("acme"), AccountKind::Org);
            let settings = AccountSettings::default();
            world.make(&Command::OpenAccount { path: path.clone(), kind, settings });
            world.make(&Command::IssueGrant(IssueGrant::purchase(
                "paid",
                path.clone(),
                Credits::from_whole(100).expect("credits"),
            )));
            world.make(&Command::OpenRegion { region: "eu".into(), shard: 1 });
            world.make(&submit("j", "first"));
            world.make(&Command::CancelJob { tenant: path, job: "j".into() });
            world.now = world.now.plus_millis(YEAR_MS);
            world
        }

        fn make(&mut self, command: &Command) {
            self.ask(Envelope::default(), command).expect("it is accepted");
        }

        fn ask(&mut self, envelope: Envelope, command: &Command) -> Result<(), Refusal> {
            advance(&mut self.ledger, self.now, |_, _| {});
            let mut events = Vec::new();
            let done = execute(&mut self.ledger, self.now, &envelope, command, &mut events);
            done.map(|_| ()).map_err(|refused| refused.refusal)
        }

        /// What an archiver writes at a position, before the ledger forgets it.
        fn archived(&mut self, through: u64) -> Forget {
            advance(&mut self.ledger, self.now, |_, _| {});
            let which = Forgettable { keep: 0, kept_from: self.now, most: 100 };
            Forget { through, ..self.ledger.forgettable(which) }
        }
    }

    fn submit(id: &str, hold: &str) -> Command {
        Command::SubmitJob(Box::new(SubmitJob {
            scope: None,
            id: id.into(),
            account: "acme".into(),
            terms: JobTerms {
                gpu_types: vec!["H100".into()],
                max_runtime_ms: Some(HOUR_MS),
                grace_ms: 60_000,
                warn_ahead_ms: 0,
                ..JobTerms::new(GpuDemand::Whole(1))
            },
            offers: vec![Offer {
                region: "eu".into(),
                gpu_type: "H100".into(),
                per_gpu_hour: Credits::from_whole(2).expect("credits"),
            }],
            payload: "{}".into(),
            submitted: "{}".into(),
            hold: hold.into(),
            array: None,
            after: Vec::new(),
        }))
    }

    fn refund(of: &str) -> Command {
        Command::Refund(Refund {
            id: "r".into(),
            tenant: "acme".into(),
            of: RefundOf::Job(of.into()),
            amount: None,
            compensate: false,
            note: None,
            recalled: Vec::new(),
        })
    }

    fn change(
        operation: Operation,
        target: Target,
        creates: Option<(Resource, Name, bool)>,
        command: Command,
    ) -> Change {
        let caller = Caller {
            principal: Principal::root(),
            method: Method::POST,
            path: "/v1/jobs".to_owned(),
            idempotency_key: None,
            tenant: Some("acme".into()),
            request: 0,
            dry_run: false,
        };
        let plan = ChangePlan {
            operation,
            authority: Authority::Role,
            target,
            build: Box::new(move |_| command),
            shape: AnswerShape::Nothing,
            creates,
            counts: None,
            array: None,
        };
        plan.requested_by(caller, 0)
    }

    fn submission() -> Change {
        let creates = Some((Resource::Job, "j".into(), true));
        let target = Target::Account("acme".into());
        change(Operation::SubmitJob, target, creates, submit("j", "second"))
    }

    fn submission_of(id: &str, array: Option<u32>) -> Change {
        let creates = Some((Resource::Job, id.into(), true));
        let target = Target::Account("acme".into());
        let mut command = submit(id, "of-the-array");
        if let Command::SubmitJob(submit) = &mut command {
            submit.array = array;
        }
        let mut change = change(Operation::SubmitJob, target, creates, command);
        change.plan.array = array;
        change
    }

    fn refunding() -> Change {
        let creates = Some((Resource::Refund, "r".into(), true));
        let target = Target::Named(Resource::Job, "j".into());
        change(Operation::CreateRefund, target, creates, refund("j"))
    }

    #[test]
    fn a_job_that_leaves_between_its_look_up_and_the_decision_is_looked_up_again() {
        for (made, looks) in [(submission as fn() -> Change, 0), (refunding, 1)] {
            let mut world = World::new();
            let forget = world.archived(9);
            assert_eq!(forget.jobs.len(), 1);
            let found = ArchiveRecords {
                position: 9,
                jobs: forget.jobs.clone(),
                ..ArchiveRecords::default()
            };
            let known = |world: &World| {
                let looked = found.clone().before_live_jobs(&world.ledger);
                let mut change = made().after_looks(looks);
                change.looked = looked;
                change
            };
            let (single, in_batch) = (known(&world), known(&world));
            let seen = in_batch.ready(&world.ledger, &[]).expect("it is ready");
            assert!(!known(&world).must_look_again(&world.ledger, world.now, &[]), "it is there");
            world.make(&Command::Forget(Box::new(forget)));
            assert!(single.must_look_again(&world.ledger, world.now, &[]), "it has left");
            let refusal = world.ask(seen.envelope, &seen.command);
            assert!(matches!(refusal, Err(Refusal::Forgotten { .. })), "{refusal:?}");
            assert_eq!(known(&world).looked.position, 9, "what only the archive has is known");
        }
    }

    #[test]
    fn a_running_job_is_cancelled_and_metered_without_the_archive() {
        let mut ledger = Ledger::new();
        ledger.forget_by_age();
        let mut world = World::on(ledger);
        let settings = AccountSettings::default();
        let (path, kind) = ("other".into(), AccountKind::Org);
        world.make(&Command::OpenAccount { path, kind, settings });
        world.make(&submit("live", "its"));
        assert!(world.ledger.forgotten_by_age().is_some());
        let target = |id: &str| Target::Named(Resource::Job, id.into());
        for operation in [Operation::CancelJob, Operation::ReportUsage] {
            for id in ["live", "never"] {
                let (tenant, job) = ("acme".into(), id.into());
                let command = Command::CancelJob { tenant, job };
                let mut change = change(operation, target(id), None, command);
                change.caller.tenant = None;
                assert_eq!(change.look_ups().target, None);
                assert!(!change.must_look_again(&world.ledger, world.now, &[]), "{id}");
            }
        }
        let mut refunding = refunding();
        refunding.caller.tenant = None;
        assert!(refunding.must_look_again(&world.ledger, world.now, &[]), "refunds need it");
    }

    #[test]
    fn an_array_does_not_take_the_id_of_a_forgotten_single_job() {
        let mut world = World::new();
        for (name, position) in [("x.0", 9), ("x.5", 10)] {
            world.make(&submit(name, &format!("hold-{position}")));
            let (tenant, job) = ("acme".into(), name.into());
            world.make(&Command::CancelJob { tenant, job });
            world.now = world.now.plus_millis(YEAR_MS);
            let forget = world.archived(position);
            let mut change = submission_of("x", Some(10));
            let names = change.look_ups().names(AccountNo(0));
            assert!(names.iter().any(|(_, _, asked)| asked == name), "{names:?}");
            let single = submission_of("x", None).look_ups().names(AccountNo(0));
            assert!(single.len() < 3, "{single:?}");
            let found = forget.jobs.iter().filter(|found| found.job.order.id.as_str() == name);
            change.looked = ArchiveRecords {
                position,
                jobs: found.cloned().collect(),
                ..ArchiveRecords::default()
            };
            let before = change.submitted_before().expect("its id is taken");
            assert!(!before.is_same);
            let mut early = submission_of("x", Some(10));
            early.looked.position = position - 1;
            let ready = submission_of("x", Some(10)).ready(&world.ledger, &[]).expect("ready");
            world.make(&Command::Forget(Box::new(forget)));
            assert!(early.must_look_again(&world.ledger, world.now, &[]));
            let envelope = Envelope { archive: Some(position - 1), ..ready.envelope };
            let refusal = world.ask(envelope, &ready.command);
            assert!(matches!(refusal, Err(Refusal::Forgotten { .. })), "{refusal:?}");
        }
    }
}
