//! One change of the ledger, from the request to the answer. Handlers and batches share it.

mod archive_lookup;
mod find;

use bursar_api::Code;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::{Accepted, Envelope, Ledger, LookUp, Reply};
use bursar_engine::{Seen, Transaction, Urgency};
use serde_json::Value;

use crate::app::App;
use crate::auth::permissions::Authority;
use crate::auth::{Principal, tenant_of};
use crate::machines::gateway::Posted;
use crate::net::counting::CountPlace;
use crate::net::limits::Priority;
use crate::operations::Operation;
use crate::render::{self, AnswerShape, Shown};
use crate::request::{Caller, Failure};
use archive_lookup::NOT_LOOKED_UP;
pub use archive_lookup::Recalled;
use find::exists;
pub(crate) use find::{ambiguous, find_in};
pub use find::{find, only_forgotten};

/// The target of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An account, by its path.
    Account(Name),
    /// A resource, by its id within the tenant.
    Named(Resource, Name),
}

type Build = Box<dyn FnOnce(Name) -> Command + Send>;

/// A precondition on the ledger and the tenant, checked at the instant of the decision.
type Check = Box<dyn FnOnce(&Ledger, &Name) -> Result<(), Failure> + Send>;

/// A requested change, before its tenant is known.
pub struct Plan {
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
}

/// A hash over parts, each prefixed with its length.
fn hash_parts(parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}

/// The fingerprint of a whole request. Equal requests have equal fingerprints.
pub fn fingerprint(method: &str, path: &str, body: &Value) -> u128 {
    let mut canonical = Vec::new();
    bursar_api::json::canonical(body, &mut canonical);
    fingerprint_of(method, path, &canonical)
}

/// Like [`fingerprint`], for a body in canonical form.
pub fn fingerprint_of(method: &str, path: &str, canonical: &[u8]) -> u128 {
    hash_parts(&[method.as_bytes(), path.as_bytes(), canonical])
}

/// The hash under which an answer is stored.
pub fn key_hash(scope: &str, key: &str) -> u128 {
    hash_parts(&[scope.as_bytes(), key.as_bytes()])
}

/// The namespace of idempotency keys of requests without a tenant. No account has this name.
pub const PLATFORM: &str = "*";

/// The namespace in earlier releases; a tenant of this name shared it.
pub const OLD_PLATFORM: &str = "platform";

/// A requested change with everything that its decision needs.
pub struct Change {
    plan: Plan,
    caller: Caller,
    fingerprint: u128,
    /// The hash of the batch whose idempotency key it is derived from.
    batch: Option<u128>,
    /// A further precondition, checked unless the request was answered before.
    check: Option<Check>,
    /// What the archive said of the id that it creates something under.
    looked_up: Option<LookUp>,
    /// How often it was looked up again.
    looks: u8,
}

/// How often one change is looked up again. Once is enough unless all that is kept is forgotten between a look-up and
/// its decision.
pub const MAX_LOOKS: u8 = 3;

/// What the decision of a change comes to.
pub enum Decision {
    /// It is decided.
    Done(Result<Done, Failure>),
    /// Something that it needs was forgotten since it was looked up: nothing is decided before it is looked up
    /// again.
    LookAgain(Box<Change>),
}

impl Plan {
    /// Refuses a caller without the permission.
    fn permit(&self, principal: &Principal) -> Result<(), Failure> {
        principal.require(self.operation)?;
        principal.require_authority(self.authority)
    }

    /// Adds the caller and the fingerprint of the request.
    pub fn requested_by(self, caller: Caller, fingerprint: u128) -> Change {
        let chosen = self.creates.as_ref().is_some_and(|(_, _, chosen)| *chosen);
        let looked_up = chosen.then_some(NOT_LOOKED_UP);
        Change { plan: self, caller, fingerprint, batch: None, check: None, looked_up, looks: 0 }
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
        check: impl FnOnce(&Ledger, &Name) -> Result<(), Failure> + Send + 'static,
    ) -> Change {
        Change { check: Some(Box::new(check)), ..self }
    }

    /// Checks whether its key was used for another batch; `None` if the key is its own.
    pub fn probe(&self) -> Option<Probe> {
        let (key, batch) = (self.caller.idempotency_key.clone()?, self.batch?);
        Some(Probe { target: self.plan.target.clone(), key, batch })
    }

    /// Posts it alone: what ends or meters goes first under load.
    pub fn post(self, app: &App) -> Posted<Seen<Decision>> {
        // Settlements and metering free credits and must not wait behind what takes them.
        let first = self.plan.operation.row().priority == Priority::Metering;
        let urgency = if first { Urgency::Urgent } else { Urgency::Ordinary };
        let ledger = app.ledger.with_urgency(urgency);
        ledger.attend(|ledger| self.decide(ledger))
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
    pub fn post_uncounted(self, app: &App) -> Posted<Seen<Uncounted>> {
        app.ledger.attend(|ledger| {
            let command = self.to_be_counted();
            if command.is_some_and(|command| ledger.machine().must_count_in_steps(command)) {
                return Uncounted::Returned(Box::new(self));
            }
            Uncounted::Decided(self.decide(ledger))
        })
    }

    /// Counts and decides it in turns with others, in a place for counts.
    pub fn post_counted(self, app: &App, place: CountPlace) -> Posted<Seen<Decision>> {
        let mut change = Some((self, place));
        app.ledger.attend_in_turns(move |ledger| {
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
        if !self.must_look_again(ledger.machine(), &[]) {
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
            (None, Target::Account(path)) => (Resource::Account, path.clone()),
        };
        Failure::from(Refusal::Forgotten { what, name })
    }

    /// Whether something that it needs may have been forgotten since it was looked up.
    pub fn must_look_again(&self, ledger: &Ledger, promised: &Promised) -> bool {
        let Change { plan, caller, .. } = self;
        let refunds = plan.operation == Operation::CreateRefund;
        let outdated = self.looked_up.filter(|looked_up| ledger.is_outdated(*looked_up));
        if (!refunds && outdated.is_none()) || plan.permit(&caller.principal).is_err() {
            return false;
        }
        let account = match &plan.target {
            Target::Account(path) => Some(path.clone()).filter(|path| caller.principal.sees(path)),
            Target::Named(what, id) => {
                let mut promised = promised.iter();
                let created = promised.find(|(its, name, _)| (its, name) == (what, id));
                let account = created.map(|(_, _, account)| account.clone());
                match account.map_or_else(|| find_in(ledger, caller, *what, id), Ok) {
                    Ok(account) => Some(account),
                    // What is refunded was there at the first look, or never.
                    Err(failure) => {
                        return refunds
                            && failure.problem.code == Code::NotFound
                            && self.looks == 0;
                    }
                }
            }
        };
        let chosen = plan.creates.as_ref().filter(|(_, _, chosen)| *chosen);
        let (Some(looked_up), Some(account), Some((what, id, _))) = (outdated, account, chosen)
        else {
            return false;
        };
        ledger.must_look_up(looked_up, *what, &account, id)
    }

    fn decide_known(mut self, ledger: &mut dyn Transaction<Ledger>) -> Result<Done, Failure> {
        let check = self.check.take();
        let ready = self.ready(ledger.machine(), &[])?;
        if let Some(check) = check.filter(|_| !ready.was_answered(ledger.machine())) {
            check(ledger.machine(), &ready.tenant)?;
        }
        let existed = ready.existed(ledger.machine());
        let accepted = ledger.execute(&ready.envelope, &ready.command)??;
        let (_, _, finish) = ready.into_parts();
        let settled = finish.settled(accepted, existed, ledger.position());
        Ok(settled.done(ledger.machine()))
    }

    /// Checks scope and role, and finds the tenant.
    pub fn ready(self, ledger: &Ledger, promised: &Promised) -> Result<ReadyChange, Failure> {
        let Change { plan, caller, fingerprint, batch, looked_up, check: _, looks: _ } = self;
        let tenant = match &plan.target {
            Target::Account(path) => {
                let foreign = caller.tenant.as_deref().is_some_and(|t| t != tenant_of(path));
                if foreign || !caller.principal.sees(path) {
                    return Err(Failure::not_found("account", path));
                }
                Name::from(tenant_of(path))
            }
            Target::Named(resource, id) => {
                // A resource that the same batch creates need not be found.
                let created =
                    promised.iter().find(|(what, name, _)| what == resource && name == id);
                let account = match created {
                    Some((_, _, account)) => account.clone(),
                    None => find_in(ledger, &caller, *resource, id)?,
                };
                Name::from(tenant_of(&account))
            }
        };
        plan.permit(&caller.principal)?;
        let key = caller.idempotency_key.as_deref().map(|key| key_hash(&tenant, key));
        let creates = plan.creates.is_some();
        let chosen = plan.creates.filter(|(_, _, chosen)| *chosen);
        let command = asked_by(&caller.principal, (plan.build)(tenant.clone()));
        Ok(ReadyChange {
            envelope: Envelope {
                actor: caller.principal.id,
                fingerprint,
                key,
                batch,
                request: caller.request,
                looked_up,
                ..Envelope::default()
            },
            command,
            tenant,
            finish: Finish { shape: plan.shape, creates },
            chosen: chosen.map(|(resource, id, _)| (resource, id)),
        })
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

/// The idempotency key of a batch's operation.
pub struct Probe {
    target: Target,
    key: Name,
    batch: u128,
}

impl Probe {
    /// The tenant in whose namespace the key is, as far as it is known before the decision.
    pub fn namespace(&self, ledger: &Ledger, caller: &Caller) -> Option<Name> {
        let tenant = match &self.target {
            Target::Account(path) => {
                return caller.principal.sees(path).then(|| tenant_of(path).into());
            }
            Target::Named(resource, id) => find_in(ledger, caller, *resource, id).ok(),
        };
        let tenant = tenant.as_deref().map(tenant_of);
        tenant.or_else(|| caller.principal.tenant()).map(Name::from)
    }

    /// Whether the key was used for another request.
    pub fn is_reused(&self, ledger: &Ledger, namespace: &str) -> bool {
        let kept = ledger.kept_fingerprint(key_hash(namespace, &self.key));
        kept.is_some_and(|kept| kept != self.batch)
    }
}

/// A change that can be decided.
pub struct ReadyChange {
    /// The caller and the idempotency key.
    pub envelope: Envelope,
    /// The command.
    pub command: Command,
    tenant: Name,
    finish: Finish,
    /// The resource that it creates, if the caller chose the id.
    chosen: Option<(Resource, Name)>,
}

impl ReadyChange {
    /// The tenant.
    pub fn tenant(&self) -> &Name {
        &self.tenant
    }

    /// Whether an answer is stored under its key, to this request or to another.
    fn was_answered(&self, ledger: &Ledger) -> bool {
        self.envelope.key.is_some_and(|key| ledger.kept_fingerprint(key).is_some())
    }

    /// Whether the resource that it creates exists already.
    pub fn existed(&self, ledger: &Ledger) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_some_and(|(resource, id)| exists(ledger, &self.tenant, *resource, id))
    }

    /// The parts, for callers that decide the change themselves.
    pub fn into_parts(self) -> (Envelope, Command, Finish) {
        (self.envelope, self.command, self.finish)
    }
}

/// The resources that earlier operations of the same batch create: kind, id, account.
pub type Promised = [(Resource, Name, Name)];

/// A finished change.
#[derive(Debug)]
pub struct Done {
    /// The HTTP status.
    pub status: u16,
    /// The body; `None` for 204.
    pub body: Option<Shown>,
    /// Whether this is the stored answer to an earlier request.
    pub replayed: bool,
    /// The ledger's position.
    pub position: u64,
}

/// How to render the answer to a change.
pub struct Finish {
    shape: AnswerShape,
    creates: bool,
}

impl Finish {
    /// An accepted change whose answer is not rendered yet.
    pub fn settled(self, accepted: Accepted, existed: bool, position: u64) -> Settled {
        let status = match (&self.shape, self.creates) {
            (AnswerShape::Nothing, _) => 204,
            // A stored answer has the status of the first one.
            (_, true) if accepted.replayed && !accepted.unchanged => 201,
            (_, true) if !accepted.replayed && !existed => 201,
            (_, true | false) => 200,
        };
        let Accepted { reply, replayed, unchanged: _ } = accepted;
        Settled { reply, shape: self.shape, status, replayed, position }
    }
}

/// An accepted change whose answer is not rendered yet.
pub struct Settled {
    reply: Reply,
    shape: AnswerShape,
    status: u16,
    replayed: bool,
    position: u64,
}

impl Settled {
    /// Renders the answer.
    pub fn done(self, ledger: &Ledger) -> Done {
        let body = match &self.shape {
            AnswerShape::Nothing => None,
            shape => Some(render::reply(ledger, &self.reply, shape)),
        };
        Done { status: self.status, body, replayed: self.replayed, position: self.position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fingerprint_depends_on_method_path_and_body_and_on_nothing_else() {
        let body = json!({"a": 1, "b": "x"});
        let same = bursar_api::json::parse(br#"{ "b": "x", "a": 1 }"#).expect("valid");
        let print = fingerprint("POST", "/v1/holds", &body);
        assert_eq!(print, fingerprint("POST", "/v1/holds", &same));
        for other in [
            fingerprint("PUT", "/v1/holds", &body),
            fingerprint("POST", "/v1/hold", &body),
            fingerprint("POST", "/v1/holds", &json!({"a": 1})),
        ] {
            assert_ne!(print, other);
        }
        assert_ne!(key_hash("ab", "c"), key_hash("a", "bc"));
    }
}
