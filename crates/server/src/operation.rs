//! One change of the ledger, from what was asked to what is answered. Handlers and batches share it.

use std::sync::{Mutex, PoisonError};

use bursar_api::Code;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::hold::{Hold, HoldKind};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Accepted, Envelope, Ledger, Refused, Reply};
use bursar_engine::{Seen, Urgency};
use bursar_history::query::Archived;
use serde_json::Value;

use crate::app::App;
use crate::auth::tenant_of;
use crate::gateway::{Gateway, Peeked, Posted};
use crate::http::extract::Caller;
use crate::problem::Failure;
use crate::render::{self, Shape};

/// What a change is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An account, by its path.
    Account(Name),
    /// Something that has an id within its tenant.
    Named(Resource, Name),
}

type Build = Box<dyn FnOnce(Name) -> Command + Send>;

/// A change that was asked for, before it is known which tenant it concerns.
pub struct Plan {
    /// The operation, for the permissions.
    pub operation: &'static str,
    /// What it is about.
    pub target: Target,
    /// Makes the command, once the tenant is known.
    pub build: Build,
    /// What the answer looks like.
    pub shape: Shape,
    /// What it creates, and whether the caller chose the id.
    pub creates: Option<(Resource, Name, bool)>,
}

/// A hash over parts, each with its length.
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

/// The hash of a whole request: equal requests have equal ones.
pub fn fingerprint(method: &str, path: &str, body: &Value) -> u128 {
    let mut canonical = Vec::new();
    bursar_api::json::canonical(body, &mut canonical);
    hash_parts(&[method.as_bytes(), path.as_bytes(), &canonical])
}

/// The hash under which an answer is kept.
pub fn key_hash(scope: &str, key: &str) -> u128 {
    hash_parts(&[scope.as_bytes(), key.as_bytes()])
}

/// The scope of idempotency keys for what belongs to no tenant.
pub const PLATFORM: &str = "platform";

/// A change that is ready to be decided.
pub struct Ready {
    /// Who asks, and under which key.
    pub envelope: Envelope,
    /// What.
    pub command: Command,
    tenant: Name,
    shape: Shape,
    /// What it creates under an id that the caller chose.
    chosen: Option<(Name, Resource, Name)>,
    creates: bool,
}

/// A finished change.
#[derive(Debug)]
pub struct Done {
    /// The status.
    pub status: u16,
    /// The body; none for 204.
    pub body: Option<Value>,
    /// Whether this answer was kept from the first time.
    pub replayed: bool,
    /// The ledger's position.
    pub position: u64,
}

/// Where things are that earlier operations of the same batch create: resource, id, account.
pub type Promised = [(Resource, Name, Name)];

impl Plan {
    /// Checks scope and role, and finds the tenant.
    pub async fn resolve(
        self,
        app: &App,
        caller: &Caller,
        fingerprint: u128,
        promised: &Promised,
    ) -> Result<Ready, Failure> {
        let tenant = match &self.target {
            Target::Account(path) => {
                let foreign = caller.tenant.as_deref().is_some_and(|t| t != tenant_of(path));
                if foreign || !caller.principal.sees(path) {
                    return Err(Failure::not_found("account", path));
                }
                Name::from(tenant_of(path))
            }
            Target::Named(resource, id) => {
                if self.operation == "create_refund" {
                    remember(app, caller, *resource, id).await?;
                }
                let account = find(app, caller, *resource, id, promised).await?;
                Name::from(tenant_of(&account))
            }
        };
        caller.principal.require(self.operation)?;
        let key = caller.idempotency_key.as_deref().map(|key| key_hash(&tenant, key));
        let creates = self.creates.is_some();
        let chosen = self.creates.filter(|(_, _, chosen)| *chosen);
        let chosen = chosen.map(|(resource, id, _)| (tenant.clone(), resource, id));
        Ok(Ready {
            envelope: Envelope { actor: caller.principal.id.clone(), fingerprint, key },
            command: (self.build)(tenant.clone()),
            tenant,
            shape: self.shape,
            chosen,
            creates,
        })
    }
}

fn noun(resource: Resource) -> &'static str {
    match resource {
        Resource::Account => "account",
        Resource::Grant => "grant",
        Resource::Hold => "hold",
        Resource::Charge => "charge",
        Resource::Refund | Resource::Transfer | Resource::Collection => "movement",
        Resource::Budget => "budget",
        Resource::Job => "job",
        Resource::Region => "region",
        Resource::Quota => "quota",
    }
}

/// The account of something that has an id, if the caller can see it.
pub async fn find(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
    promised: &Promised,
) -> Result<Name, Failure> {
    let own = caller.principal.tenant().map(str::to_owned);
    let asked = caller.tenant.clone();
    let missing = || Failure::not_found(noun(resource), id);
    if own.is_some() && asked.is_some() && own != asked {
        return Err(missing());
    }
    // What the same batch creates is meant, and need not be looked for.
    let created = promised.iter().find(|(what, name, _)| *what == resource && name == id);
    if let Some((_, _, account)) = created {
        return Ok(account.clone());
    }
    let wanted = id.clone();
    let tenant = own.or(asked);
    let found =
        app.ledger.peek(move |ledger| accounts_of(ledger, tenant.as_deref(), resource, &wanted));
    let mut found = found.await?;
    found.retain(|account| caller.principal.sees(account));
    match found.as_slice() {
        [account] => Ok(account.clone()),
        [] => {
            // A refusal too is answered only when what it saw is durable.
            app.ledger.read(|_| ()).await?;
            Err(missing())
        }
        [_, _, ..] => Err(ambiguous(id, found.iter())),
    }
}

/// Closed holds or charges that the ledger has forgotten, as history has them, with the paths of
/// their accounts: those that the caller can see, one per tenant.
pub async fn forgotten(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Vec<(Archived, Name)>, Failure> {
    let kind = match resource {
        Resource::Hold => HoldKind::Hold,
        Resource::Charge => HoldKind::Charge,
        Resource::Account
        | Resource::Grant
        | Resource::Refund
        | Resource::Transfer
        | Resource::Collection
        | Resource::Budget
        | Resource::Job
        | Resource::Region
        | Resource::Quota => return Ok(Vec::new()),
    };
    let tenant = caller.principal.tenant().map(str::to_owned).or_else(|| caller.tenant.clone());
    let wanted = id.clone();
    let look = move |ledger: &Ledger| {
        if !accounts_of(ledger, tenant.as_deref(), resource, &wanted).is_empty() {
            return Vec::new();
        }
        match tenant {
            Some(tenant) => ledger.find_account(&tenant).into_iter().collect(),
            None => ledger.tenants().collect::<Vec<AccountNo>>(),
        }
    };
    let seen = app.ledger.read(look).await?;
    let (tenants, wanted) = (seen.value, id.clone());
    if tenants.is_empty() {
        return Ok(Vec::new());
    }
    let ask = app.history.ask(seen.position, move |history| {
        let mut found = Vec::new();
        for tenant in tenants {
            found.extend(history.archived(tenant.0, kind, &wanted)?);
        }
        Ok(found)
    });
    let mut found = Vec::new();
    for archived in ask.await?.0 {
        let account = archived.record.hold.account;
        let path = app.ledger.peek(move |ledger| ledger.account(account).path.clone()).await?;
        if caller.principal.sees(&path) && archived.digest.is_some() {
            found.push((archived, path));
        }
    }
    Ok(found)
}

/// The one hold or charge that the ledger has forgotten and the caller means.
pub async fn only_forgotten(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Hold, Failure> {
    let mut found = forgotten(app, caller, resource, id).await?;
    match found.pop() {
        None => Err(Failure::not_found(noun(resource), id)),
        Some((archived, _)) if found.is_empty() => Ok(archived.record.hold),
        Some((_, last)) => {
            let accounts: Vec<Name> = found.into_iter().map(|(_, path)| path).collect();
            Err(ambiguous(id, accounts.iter().chain([&last])))
        }
    }
}

pub(crate) fn ambiguous<'a>(id: &Name, accounts: impl Iterator<Item = &'a Name>) -> Failure {
    let tenants: Vec<&str> = accounts.map(|account| tenant_of(account)).collect();
    let detail = format!(
        "`{id}` exists in several tenants; repeat with the header Bursar-Tenant: {}",
        tenants.join(" or ")
    );
    Failure::new(Code::AmbiguousId, detail)
}

/// Brings a closed hold or charge that the ledger has forgotten back from history, for a late refund.
async fn remember(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<(), Failure> {
    for (archived, _) in forgotten(app, caller, resource, id).await? {
        let Some(digest) = archived.digest else { continue };
        let envelope = Envelope { actor: "history".into(), fingerprint: 0, key: None };
        let command = Command::ReviveHold { record: Box::new(archived.record), digest };
        // Refused if somebody else was faster: then it is there.
        app.ledger.post(envelope, command).answer().await?.value.ok();
    }
    Ok(())
}

/// The accounts of the things with this id, one per tenant.
fn accounts_of(ledger: &Ledger, tenant: Option<&str>, resource: Resource, id: &str) -> Vec<Name> {
    let lookup = |tenant| {
        let account = match resource {
            Resource::Grant => {
                ledger.find_grant(tenant, id).map(|grant| ledger.grant(grant).account)
            }
            Resource::Hold => hold_account(ledger, tenant, HoldKind::Hold, id),
            Resource::Charge => hold_account(ledger, tenant, HoldKind::Charge, id),
            Resource::Job => {
                let job = ledger.find_job(tenant, id).and_then(|number| ledger.job(number));
                job.map(|job| job.order.account)
            }
            Resource::Account
            | Resource::Refund
            | Resource::Transfer
            | Resource::Collection
            | Resource::Budget
            | Resource::Region
            | Resource::Quota => None,
        };
        account.map(|account| ledger.account(account).path.clone())
    };
    match tenant {
        Some(tenant) => ledger.find_account(tenant).and_then(lookup).into_iter().collect(),
        None => ledger.tenants().filter_map(lookup).collect(),
    }
}

fn hold_account(ledger: &Ledger, tenant: AccountNo, kind: HoldKind, id: &str) -> Option<AccountNo> {
    let hold = ledger.find_hold(tenant, kind, id)?;
    ledger.hold(hold).map(|hold| hold.account)
}

/// Whether a thing with this id is there.
fn exists(ledger: &Ledger, tenant: &str, resource: Resource, id: &str) -> bool {
    let Some(tenant) = ledger.find_account(tenant) else { return false };
    match resource {
        Resource::Account => ledger.find_account(id).is_some(),
        Resource::Grant => ledger.find_grant(tenant, id).is_some(),
        Resource::Hold => ledger.find_hold(tenant, HoldKind::Hold, id).is_some(),
        Resource::Charge => ledger.find_hold(tenant, HoldKind::Charge, id).is_some(),
        Resource::Refund | Resource::Transfer | Resource::Collection => {
            ledger.find_movement(tenant, resource, id).is_some()
        }
        Resource::Job => {
            // The jobs of an array have numbers behind the name.
            let first = compact_str::format_compact!("{id}.0");
            [id, &first].iter().any(|name| ledger.find_job(tenant, name).is_some())
        }
        Resource::Budget | Resource::Region | Resource::Quota => false,
    }
}

/// Keeps the looks and the commands of one id in order, so that exactly one of two equal creations
/// is told that it created the thing.
#[derive(Debug)]
pub struct Stripes(Vec<Mutex<()>>);

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes((0..256).map(|_| Mutex::new(())).collect())
    }
}

/// A change that is being decided.
pub struct Running {
    existed: Option<Peeked<bool>>,
    answer: Posted<Seen<Result<Accepted, Refused>>>,
    shape: Shape,
    creates: bool,
}

impl Ready {
    /// The tenant that it concerns.
    pub fn tenant(&self) -> &Name {
        &self.tenant
    }

    /// Whether the thing was there before this command; posted, not yet answered.
    pub fn post_existed(&self, ledger: &Gateway<Ledger>) -> Option<Peeked<bool>> {
        let (tenant, resource, id) = self.chosen.clone()?;
        Some(ledger.post_peek(move |ledger| exists(ledger, &tenant, resource, &id)))
    }

    /// Posts the command. Posted one after the other, commands are decided in that order.
    pub fn post(self, app: &App) -> Running {
        self.post_to(app, &app.ledger)
    }

    /// Posts a command that has no order among others: what ends or meters goes first under load.
    pub fn post_alone(self, app: &App) -> Running {
        let ledger = app.ledger.with_urgency(urgency(&self.command));
        self.post_to(app, &ledger)
    }

    fn post_to(self, app: &App, ledger: &Gateway<Ledger>) -> Running {
        let stripe = self.chosen.as_ref().map(|(tenant, _, id)| {
            let place = key_hash(tenant, id) % 256;
            &app.stripes.0[place as usize]
        });
        let guard = stripe.map(|stripe| stripe.lock().unwrap_or_else(PoisonError::into_inner));
        let existed = self.post_existed(ledger);
        let answer = ledger.post(self.envelope, self.command);
        drop(guard);
        Running { existed, answer, shape: self.shape, creates: self.creates }
    }

    /// What the answer to this change looks like, for those who post it themselves.
    pub fn into_parts(self) -> (Envelope, Command, Finish) {
        (self.envelope, self.command, Finish { shape: self.shape, creates: self.creates })
    }
}

/// Settlements and metering free credits and must not wait behind what takes them.
fn urgency(command: &Command) -> Urgency {
    let first = matches!(
        command,
        Command::CaptureHold { .. } | Command::SettleHold { .. } | Command::ReleaseHold { .. }
    );
    if first { Urgency::Urgent } else { Urgency::Ordinary }
}

/// How to answer a change.
pub struct Finish {
    shape: Shape,
    creates: bool,
}

impl Finish {
    /// An accepted change whose answer is not in words yet.
    pub fn settled(self, accepted: Accepted, existed: bool, position: u64) -> Settled {
        let status = match (&self.shape, self.creates) {
            (Shape::Nothing, _) => 204,
            (_, true) if !existed || accepted.replayed => 201,
            (_, true | false) => 200,
        };
        let Accepted { reply, replayed } = accepted;
        Settled { reply, shape: self.shape, status, replayed, position }
    }
}

/// An accepted change whose answer is not in words yet.
pub struct Settled {
    reply: Reply,
    shape: Shape,
    status: u16,
    replayed: bool,
    position: u64,
}

impl Settled {
    fn done(self, ledger: &Ledger) -> Done {
        let body = match &self.shape {
            Shape::Nothing => None,
            shape => Some(render::reply(ledger, &self.reply, shape)),
        };
        Done { status: self.status, body, replayed: self.replayed, position: self.position }
    }
}

/// Answers that are put into words in one look: enough to share its cost, few enough that nobody
/// waits long behind it.
const AT_ONCE: usize = 64;

/// Puts answers into words.
pub async fn show(app: &App, settled: Vec<Settled>) -> Result<Vec<Done>, Failure> {
    let mut shown = Vec::with_capacity(settled.len());
    let mut looks = Vec::new();
    let mut left = settled.into_iter();
    loop {
        let some: Vec<Settled> = left.by_ref().take(AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        looks.push(app.ledger.post_peek(move |ledger| {
            some.into_iter().map(|settled| settled.done(ledger)).collect::<Vec<Done>>()
        }));
    }
    for look in looks {
        shown.extend(look.seen().await?);
    }
    Ok(shown)
}

impl Running {
    /// Waits for the answer.
    pub async fn settled(self) -> Result<Settled, Failure> {
        let seen = self.answer.answer().await?;
        let accepted = seen.value?;
        let existed = match self.existed {
            Some(existed) => existed.seen().await?,
            None => false,
        };
        let finish = Finish { shape: self.shape, creates: self.creates };
        Ok(finish.settled(accepted, existed, seen.position))
    }

    /// Waits for the answer and puts it into words.
    pub async fn done(self, app: &App) -> Result<Done, Failure> {
        let settled = self.settled().await?;
        app.ledger.peek(move |ledger| settled.done(ledger)).await
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
