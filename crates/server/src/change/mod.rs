//! One change of the ledger, from the request to the answer. Handlers and batches share it.

mod archive_lookup;
mod done;
mod find;
mod fingerprint;
mod past_lookup;
mod ready;
mod used_key;

use bursar_core::ledger::command::{Command, RecalledHold};
use bursar_core::ledger::holds::archive::RecalledRecord;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{JobNo, Name};
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::name::{AccountPath, HoldId};
use bursar_engine::{Seen, Transaction, Urgency};

use crate::app::App;
use crate::auth::permissions::Authority;
use crate::auth::{Principal, tenant_of};
use crate::machines::gateway::PostedWork;
use crate::net::counting::CountPlace;
use crate::net::limits::Priority;
use crate::operations::Operation;
use crate::render::AnswerShape;
use crate::request::{Caller, Failure};
pub(crate) use archive_lookup::{ArchiveRecords, LookUps, asked_tenant, may_have_forgotten};
pub use done::{AcceptedChange, AnsweredBefore, Done, Finish};
pub use find::find;
pub(crate) use find::{ambiguous, find_in, hold_in};
pub use fingerprint::{fingerprint, fingerprint_of, key_hash};
pub use ready::{OperationKey, ReadyChange};
pub(crate) use used_key::being_archived;

/// The target of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An account, by its path.
    Account(AccountPath),
    /// A resource, by its id within the tenant.
    Named(Resource, Name),
}

type Build = Box<dyn FnOnce(AccountPath) -> Command + Send>;

/// A precondition on the ledger and the tenant, checked at the instant of the decision.
type Check = Box<dyn FnOnce(&Ledger, &AccountPath) -> Result<(), Failure> + Send>;

/// A requested change, before its tenant is known.
pub struct ChangePlan {
    /// The operation.
    pub operation: Operation,
    /// What it needs beyond the operation's role.
    pub authority: Authority,
    /// The target.
    pub target: Target,
    /// Builds the command once the tenant is known.
    pub build: Build,
    /// The form of the answer.
    pub shape: AnswerShape,
    /// The resource that it creates, its id, and whether the caller chose the id.
    pub creates: Option<(Resource, Name, bool)>,
    /// The command, if its decision needs a count that may take several turns.
    pub counts: Option<Box<Command>>,
    /// How many jobs it submits, if they are an array.
    pub array: Option<u32>,
}

/// The namespace of idempotency keys of requests without a tenant. No account has this name.
pub const PLATFORM: &str = "*";

/// The namespace in earlier releases; a tenant of this name shared it.
pub const OLD_PLATFORM: &str = "platform";

/// A requested change with everything that its decision needs.
pub struct Change {
    plan: ChangePlan,
    caller: Caller,
    fingerprint: u128,
    /// The hash of the batch whose idempotency key it is derived from.
    batch: Option<u128>,
    /// A further precondition, checked unless the request was answered before.
    check: Option<Check>,
    /// What the archive has under its names and its key.
    looked: ArchiveRecords,
    /// The holds of the job that it refunds.
    holds: Vec<HoldId>,
    /// How often it was looked up again.
    looks: u8,
}

/// How often one change is looked up again. Once is enough unless all that is kept is forgotten between a look-up and
/// its decision.
pub const MAX_LOOKS: u8 = 3;

/// What the decision of a change comes to.
pub enum Decision {
    /// The change was decided.
    Done(Result<Done, Failure>),
    /// Something that it needs was forgotten since it was looked up: nothing is decided before it is looked up
    /// again.
    LookAgain(Box<Change>),
}

impl ChangePlan {
    /// Refuses a caller without the permission.
    fn permit(&self, principal: &Principal) -> Result<(), Failure> {
        principal.require(self.operation)?;
        principal.require_authority(self.authority)
    }

    /// Adds the caller and the fingerprint of the request.
    pub fn requested_by(self, caller: Caller, fingerprint: u128) -> Change {
        Change {
            plan: self,
            caller,
            fingerprint,
            batch: None,
            check: None,
            looked: ArchiveRecords::default(),
            holds: Vec::new(),
            looks: 0,
        }
    }
}

/// What comes of a change before anything is counted for it.
pub enum Uncounted {
    /// It needed no count in steps.
    Decided(Decision),
    /// It has to be counted first.
    Returned(Box<Change>),
}

impl Change {
    /// Marks it as an operation of a batch: its idempotency key is derived from the batch's.
    pub fn in_batch(self, batch: Option<u128>) -> Change {
        Change { batch, ..self }
    }

    /// Adds a precondition. A repeat under an idempotency key is answered without checking it.
    pub fn only_if(
        self,
        check: impl FnOnce(&Ledger, &AccountPath) -> Result<(), Failure> + Send + 'static,
    ) -> Change {
        Change { check: Some(Box::new(check)), ..self }
    }

    /// Checks whether its key was used for another batch; `None` if the key is its own.
    pub fn probe(&self) -> Option<OperationKey> {
        let (key, batch) = (self.caller.idempotency_key.clone()?, self.batch?);
        let looked = self.looked.clone();
        Some(OperationKey { target: self.plan.target.clone(), key, batch, looked })
    }

    /// Posts it alone: what ends or meters goes first under load.
    pub fn post(self, app: &App) -> PostedWork<Seen<Decision>> {
        // Settlements and metering free credits and must not wait behind what takes them.
        let urgency = if self.meters() { Urgency::Urgent } else { Urgency::Ordinary };
        let ledger = app.ledger.with_urgency(urgency);
        ledger.transact(|ledger| self.decide(ledger))
    }

    /// Whether it settles or meters something.
    pub fn meters(&self) -> bool {
        self.plan.operation.row().priority == Priority::Metering
    }

    /// Whether a count must precede the decision.
    pub fn must_count(&self) -> bool {
        self.plan.counts.is_some()
    }

    /// The tenant that asks; none for the platform.
    pub fn tenant(&self) -> Option<&str> {
        self.caller.principal.tenant()
    }

    /// Decides it at once, unless it has to be counted in steps before: then it comes back.
    pub fn post_uncounted(self, app: &App) -> PostedWork<Seen<Uncounted>> {
        app.ledger.transact(|ledger| {
            let command = self.to_be_counted();
            if command.is_some_and(|command| ledger.machine().must_count_in_steps(command)) {
                return Uncounted::Returned(Box::new(self));
            }
            Uncounted::Decided(self.decide(ledger))
        })
    }

    /// Counts and decides it in turns with others, in a place for counts.
    pub fn post_counted(self, app: &App, place: CountPlace) -> PostedWork<Seen<Decision>> {
        let mut change = Some((self, place));
        app.ledger.transact_in_turns(move |ledger| {
            change.as_ref().is_none_or(|(change, _)| change.prepare(ledger)).then_some(())?;
            Some(change.take()?.0.decide(ledger))
        })
    }

    /// Does a part of what has to be counted before it is decided. Says whether that is all.
    pub fn prepare(&self, ledger: &mut dyn Transaction<Ledger>) -> bool {
        self.to_be_counted().is_none_or(|command| ledger.prepare(command))
    }

    /// The command that something has to be counted for. Nothing is for a caller that may not ask.
    fn to_be_counted(&self) -> Option<&Command> {
        let command = self.plan.counts.as_deref()?;
        let principal = &self.caller.principal;
        let seen = match &self.plan.target {
            Target::Account(path) => principal.sees(path),
            Target::Named(..) => false,
        };
        (seen && self.plan.permit(principal).is_ok()).then_some(command)
    }

    /// Decides it and puts the answer into words, all at one instant.
    pub fn decide(mut self, ledger: &mut dyn Transaction<Ledger>) -> Decision {
        if !self.must_look_again(ledger.machine(), ledger.now(), &[]) {
            return Decision::Done(self.decide_known(ledger));
        }
        if self.looks < MAX_LOOKS {
            self.looks += 1;
            return Decision::LookAgain(Box::new(self));
        }
        Decision::Done(Err(self.not_known()))
    }

    /// The failure of a change whose id is being forgotten again and again.
    fn not_known(&self) -> Failure {
        let (what, name) = match (&self.plan.creates, &self.plan.target) {
            (Some((what, name, _)), _) => (*what, name.clone()),
            (None, Target::Named(what, name)) => (*what, name.clone()),
            (None, Target::Account(path)) => (Resource::Account, path.clone().into()),
        };
        Failure::from(Refusal::Forgotten { what, name })
    }

    /// Sets the number of look-ups made so far.
    pub fn after_looks(self, looks: u8) -> Change {
        Change { looks, ..self }
    }

    /// The change, counted as looked up at least once.
    pub fn looking_again(self) -> Change {
        let looks = self.looks.max(1);
        self.after_looks(looks)
    }

    fn decide_known(mut self, ledger: &mut dyn Transaction<Ledger>) -> Result<Done, Failure> {
        let (check, dry_run) = (self.check.take(), self.caller.dry_run);
        let ready = self.ready(ledger.machine(), &[])?;
        if let Some(answered) = ready.answered(ledger.machine(), ledger.now()) {
            return answered.map(|settled| settled.at(ledger.position()).done(ledger.machine()));
        }
        if let Some(check) = check.filter(|_| !ready.was_answered(ledger.machine())) {
            check(ledger.machine(), &ready.tenant)?;
        }
        if dry_run {
            return ready.rehearse(ledger);
        }
        let existed = ready.existed(ledger.machine());
        let accepted = ledger.execute(&ready.envelope, &ready.command)??;
        let change = ready.finish.accepted(accepted, existed, ledger.position());
        Ok(change.done(ledger.machine()))
    }

    /// Checks scope and role, and finds the tenant.
    pub fn ready(self, ledger: &Ledger, promised: &Promised) -> Result<ReadyChange, Failure> {
        let is_compared = self.is_compared();
        let Change { plan, caller, fingerprint, batch, looked, .. } = self;
        let tenant = match &plan.target {
            Target::Account(path) => {
                let foreign = caller.tenant.as_deref().is_some_and(|t| t != tenant_of(path));
                if foreign || !caller.principal.sees(path) {
                    return Err(Failure::not_found("account", path));
                }
                AccountPath::from(tenant_of(path))
            }
            Target::Named(resource, id) => {
                // A resource that the same batch creates need not be found.
                let created =
                    promised.iter().find(|(what, name, _)| what == resource && name == id);
                let account = match created {
                    Some((_, _, account)) => account.clone(),
                    None => find_in(ledger, &caller, (*resource, id), &looked.records)?,
                };
                AccountPath::from(tenant_of(&account))
            }
        };
        plan.permit(&caller.principal)?;
        if plan.authority == Authority::IssueForJobs
            && !caller.principal.may_issue
            && of_a_region(ledger, &caller, &plan.target, &looked.records)
        {
            let detail = "this server lets the platform refund what a region charged for a job; use \
                          a key whose scope is \"*\", or one that such a key gave the capability \
                          `issue`";
            return Err(Failure::forbidden(detail));
        }
        let key = caller.idempotency_key.as_deref().map(|key| key_hash(&tenant, key));
        let creates = plan.creates.is_some();
        let chosen = plan.creates.filter(|(_, _, chosen)| *chosen);
        let mut command = asked_by(&caller.principal, (plan.build)(tenant.clone()));
        if let Command::Refund(refund) = &mut command {
            refund.recalled = looked.records.iter().filter_map(recalled_hold).collect();
        }
        Ok(ReadyChange {
            envelope: Envelope {
                actor: caller.principal.id.into(),
                fingerprint,
                key,
                batch,
                request: caller.request,
                archive: is_compared.then_some(looked.position),
                recalled: looked.records.clone(),
            },
            command,
            tenant,
            finish: Finish { shape: plan.shape, creates },
            chosen: chosen.map(|(resource, id, _)| (resource, id)),
            looked,
        })
    }
}

/// Whether a region charged what a refund returns: not so for charges, holds without a job, jobs that
/// run outside Bursar, and what the same batch creates. Of a job that the ledger has forgotten, whose
/// refund names its account, it is assumed.
fn of_a_region(
    ledger: &Ledger,
    caller: &Caller,
    target: &Target,
    recalled: &[RecalledRecord],
) -> bool {
    let is_placed = |job: JobNo| ledger.job(job).is_none_or(|job| !job.order.terms.external);
    match target {
        Target::Named(Resource::Job, id) => {
            let Ok(account) = find_in(ledger, caller, (Resource::Job, id), recalled) else {
                return false;
            };
            let tenant = ledger.find_account(tenant_of(&account));
            tenant.and_then(|tenant| ledger.find_job_or_array(tenant, id)).is_none_or(is_placed)
        }
        Target::Named(Resource::Hold, id) => {
            let hold = hold_in(ledger, caller, (HoldKind::Hold, id), recalled);
            let details = hold.ok().and_then(|hold| hold.details.as_ref());
            details.and_then(|details| details.job).is_some_and(is_placed)
        }
        Target::Named(..) => false,
        Target::Account(_) => true,
    }
}

/// A record in the form of a refund.
fn recalled_hold(record: &RecalledRecord) -> Option<RecalledHold> {
    match record {
        RecalledRecord::Hold(record) => Some(RecalledHold { record: Box::new(record.clone()) }),
        RecalledRecord::Movement(_) => None,
    }
}

/// Adds to a command what it stores about the caller.
fn asked_by(principal: &Principal, mut command: Command) -> Command {
    if let Command::FreezeAccount { by_platform, .. }
    | Command::UnfreezeAccount { by_platform, .. } = &mut command
    {
        *by_platform = principal.is_of_platform();
    } else if let Command::SubmitJob(submit) = &mut command {
        submit.scope = principal.scope.clone();
    }
    command
}

/// Settlements and metering go first under load, also together: they free credits and must not wait
/// behind what takes them. Anything else among them waits with the rest.
pub fn urgency_of(meters: impl Iterator<Item = bool>) -> Urgency {
    let mut meters = meters.peekable();
    let first = meters.peek().is_some() && meters.all(|meters| meters);
    if first { Urgency::Urgent } else { Urgency::Ordinary }
}

/// The resources that earlier operations of the same batch create: kind, id, account.
pub type Promised = [(Resource, Name, AccountPath)];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fingerprint_depends_on_method_path_and_body_and_on_nothing_else() {
        let body = json!({"a": 1, "b": "x"});
        let same = bursar_api::json::parse(br#"{ "b": "x", "a": 1 }"#).expect("valid");
        let hash = fingerprint("POST", "/v1/holds", &body);
        assert_eq!(hash, fingerprint("POST", "/v1/holds", &same));
        for other in [
            fingerprint("PUT", "/v1/holds", &body),
            fingerprint("POST", "/v1/hold", &body),
            fingerprint("POST", "/v1/holds", &json!({"a": 1})),
        ] {
            assert_ne!(hash, other);
        }
        assert_ne!(key_hash("ab", "c"), key_hash("a", "bc"));
    }

    #[test]
    fn operations_go_first_only_if_all_of_them_settle_or_meter() {
        let urgency = |meters: &[bool]| urgency_of(meters.iter().copied());
        assert_eq!(urgency(&[true, true]), Urgency::Urgent);
        assert_eq!(urgency(&[true, false]), Urgency::Ordinary);
        assert_eq!(urgency(&[]), Urgency::Ordinary, "all are known already");
    }
}
