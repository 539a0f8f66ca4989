//! Looks up in the archive what a request names and the ledger may have forgotten.
//!
//! The archive is asked before the ledger decides. If the ledger has forgotten more since, it is asked again: the ledger
//! compares the position of the look-up with what it has forgotten. So nothing takes effect twice, however far the
//! archive lags.

use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::archive::{ArchivedAnswer, ArchivedName, RecalledRecord};
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::jobs::ArchivedJob;
use bursar_core::ledger::jobs::view::job_of_array;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::Timestamp;
use bursar_engine::recall::Recall;
use smallvec::SmallVec;

use super::find::{accounts_of, find, find_in};
use super::{Change, MAX_LOOKS, Target, key_hash};
use crate::app::App;
use crate::auth::tenant_of;
use crate::followers::archive::ArchivedId;
use crate::operations::Operation;
use crate::request::{Caller, Failure};

/// What the archive has under the names and the idempotency key of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArchiveRecords {
    /// The position of the archive; 0 if it was not asked.
    pub(crate) position: u64,
    /// Holds, charges and movements.
    pub(crate) records: Vec<RecalledRecord>,
    /// Jobs.
    pub(crate) jobs: Vec<ArchivedJob>,
    /// Answers, each with what it shows if the archive has that.
    pub(crate) answers: Vec<(ArchivedAnswer, Vec<RecalledRecord>)>,
}

impl ArchiveRecords {
    /// What the archive has under an idempotency key.
    pub(super) async fn under_key(app: &App, key: u128) -> Result<ArchiveRecords, Failure> {
        Ok(ArchiveRecords::of(app.archive.recall(Vec::new(), vec![key]).await?))
    }

    fn of(found: Vec<Recall>) -> ArchiveRecords {
        let mut looked = ArchiveRecords { position: u64::MAX, ..ArchiveRecords::default() };
        for found in found {
            looked.position = looked.position.min(found.position);
            looked.jobs.extend(found.jobs);
            match found.answer {
                Some(answer) => looked.answers.push((answer, found.recalled)),
                None => looked.records.extend(found.recalled),
            }
        }
        looked
    }

    /// These records. If the ledger still has one of the jobs, the position is lowered by one: the look-up then counts
    /// as made before that job is forgotten.
    pub(super) fn before_live_jobs(mut self, ledger: &Ledger) -> ArchiveRecords {
        let is_live = |found: &ArchivedJob| ledger.job(found.number) == Some(&found.job);
        if self.jobs.iter().any(is_live) {
            self.position = self.position.saturating_sub(1);
        }
        self
    }

    /// The answer to an earlier request under a key, if it is retained and the ledger has forgotten it.
    pub(crate) fn answer(
        &self,
        ledger: &Ledger,
        now: Timestamp,
        key: u128,
    ) -> Option<&(ArchivedAnswer, Vec<RecalledRecord>)> {
        let mut answers = self.answers.iter();
        let found = answers
            .find(|(answer, _)| answer.key == key && ledger.promises_answer(now, answer.at))?;
        ledger.kept_fingerprint(key).is_none().then_some(found)
    }

    /// Whether an answer is outdated, or shows something that neither the ledger nor the look-up has.
    pub(crate) fn lacks_answer(&self, ledger: &Ledger, now: Timestamp, key: u128) -> bool {
        if ledger.kept_fingerprint(key).is_some() {
            return false;
        }
        let incomplete = |(answer, shown): &(ArchivedAnswer, Vec<RecalledRecord>)| {
            let of = answer.of.as_ref();
            of.is_some_and(|of| shown.is_empty() && !has(ledger, of))
        };
        ledger.may_have_forgotten_key(key, self.position)
            || self.answer(ledger, now, key).is_some_and(incomplete)
    }
}

fn has(ledger: &Ledger, of: &ArchivedName) -> bool {
    match of.what {
        Resource::Hold => ledger.find_hold(of.tenant, HoldKind::Hold, &of.name).is_some(),
        Resource::Charge => ledger.find_hold(of.tenant, HoldKind::Charge, &of.name).is_some(),
        what => ledger.find_movement(of.tenant, what, &of.name).is_some(),
    }
}

/// Whether the archive has things of this kind.
pub(super) fn is_archived(what: Resource) -> bool {
    match what {
        Resource::Hold
        | Resource::Charge
        | Resource::Refund
        | Resource::Transfer
        | Resource::Collection
        | Resource::Job => true,
        Resource::Account
        | Resource::Grant
        | Resource::Budget
        | Resource::Region
        | Resource::Quota => false,
    }
}

/// The names and the key that are looked up.
#[derive(Clone, Debug)]
pub(crate) struct LookUps {
    /// The tenant, if the request says which.
    pub(crate) tenant: Option<AccountPath>,
    /// What the request changes or shows. It may be in any tenant, if none is known.
    pub(crate) target: Option<(Resource, Name)>,
    /// What it creates.
    pub(crate) created: Option<(Resource, Name)>,
    /// How many jobs, if it is an array of them.
    pub(crate) array: Option<u32>,
    /// Other holds.
    pub(crate) holds: Vec<HoldId>,
    /// Its idempotency keys.
    pub(crate) keys: SmallVec<[Name; 1]>,
}

impl LookUps {
    /// The look-ups of a read.
    pub(crate) fn of_target(caller: &Caller, target: (Resource, Name)) -> LookUps {
        let (tenant, target) = (asked_tenant(caller), Some(target));
        let (created, array) = (None, None);
        LookUps { tenant, target, created, array, holds: Vec::new(), keys: SmallVec::new() }
    }

    pub(super) fn names(&self, tenant: AccountNo) -> SmallVec<[ArchivedId; 2]> {
        let holds = self.holds.iter().map(|hold| (Resource::Hold, tenant, hold.clone().into()));
        let named = [&self.target, &self.created].into_iter().flatten();
        let array = self.created.iter().filter(|(what, _)| *what == Resource::Job);
        let count = self.array.unwrap_or(1);
        let array = array.flat_map(|(what, id)| {
            (0..count).map(|index| (*what, tenant, job_of_array(id, index)))
        });
        named.map(|(what, id)| (*what, tenant, id.clone())).chain(array).chain(holds).collect()
    }

    fn keys(&self, tenant: &str) -> SmallVec<[u128; 1]> {
        self.keys.iter().map(|key| key_hash(tenant, key)).collect()
    }

    /// Asks the archive, if that needs no read; `None` if it may have something. Without a known tenant nothing is
    /// looked up: the ledger says whether it has to be.
    pub(crate) fn at_once(&self, app: &App) -> Option<ArchiveRecords> {
        let tenant = self.tenant.as_deref();
        let number = tenant.and_then(|tenant| app.archive.known_tenant(tenant));
        let (Some(tenant), Some(number)) = (tenant, number) else {
            return Some(ArchiveRecords::default());
        };
        let position = app.archive.excludes(&self.names(number), &self.keys(tenant))?;
        Some(ArchiveRecords { position, ..ArchiveRecords::default() })
    }

    /// Asks the archive.
    pub(crate) async fn look_up(self, app: &App) -> Result<ArchiveRecords, Failure> {
        let Some(tenant) = self.tenant.clone() else { return self.in_all_tenants(app).await };
        match app.archive.tenant(&app.ledger, &tenant).await? {
            Some(number) => self.in_tenant(app, (tenant, number)).await,
            // Nothing was ever stored under it.
            None => Ok(ArchiveRecords::default()),
        }
    }

    async fn in_tenant(
        &self,
        app: &App,
        (tenant, number): (AccountPath, AccountNo),
    ) -> LookupResult {
        let (names, keys) = (self.names(number), self.keys(&tenant));
        if let Some(position) = app.archive.excludes(&names, &keys) {
            return Ok(ArchiveRecords { position, ..ArchiveRecords::default() });
        }
        Ok(ArchiveRecords::of(app.archive.recall(names.into_vec(), keys.into_vec()).await?))
    }

    /// Looks the target up in every tenant, then the rest in those that have it.
    async fn in_all_tenants(self, app: &App) -> LookupResult {
        let Some((what, id)) = self.target.clone() else { return Ok(ArchiveRecords::default()) };
        let look = move |ledger: &Ledger| {
            let named = |tenant: AccountNo| {
                let path = ledger.account(tenant).path.clone();
                let is_live = !accounts_of(ledger, Some(&path), what, &id).is_empty();
                (path, tenant, is_live)
            };
            ledger.tenants().map(named).collect::<Vec<(AccountPath, AccountNo, bool)>>()
        };
        let tenants = app.ledger.read(look).await?.value;
        let target =
            LookUps { created: None, holds: Vec::new(), keys: SmallVec::new(), ..self.clone() };
        let mut all =
            ArchiveRecords { position: app.archive.position(), ..ArchiveRecords::default() };
        for (path, number, is_live) in tenants {
            let mut found = target.in_tenant(app, (path.clone(), number)).await?;
            if is_live || !found.records.is_empty() || !found.jobs.is_empty() {
                found = self.in_tenant(app, (path, number)).await?;
            }
            all.position = all.position.min(found.position);
            all.records.extend(found.records);
            all.jobs.extend(found.jobs);
            all.answers.extend(found.answers);
        }
        Ok(all)
    }
}

type LookupResult = Result<ArchiveRecords, Failure>;

/// The tenant of a caller, or the one that its request names.
pub(crate) fn asked_tenant(caller: &Caller) -> Option<AccountPath> {
    caller.principal.tenant().map(AccountPath::from).or_else(|| caller.tenant.clone())
}

/// Whether something with this id may have been forgotten since it was looked up, in a tenant that the caller may mean.
pub(crate) fn may_have_forgotten(
    ledger: &Ledger,
    caller: &Caller,
    (what, id): (Resource, &Name),
    looked_up: u64,
) -> bool {
    if !is_archived(what) || ledger.forgotten_through() <= looked_up {
        return false;
    }
    let gone = |tenant| {
        let is_live = || {
            let path = &ledger.account(tenant).path;
            !accounts_of(ledger, Some(path), what, id).is_empty()
        };
        ledger.may_have_forgotten(what, tenant, id, looked_up) && !is_live()
    };
    match asked_tenant(caller) {
        Some(tenant) => ledger.find_account(&tenant).is_some_and(gone),
        None => ledger.tenants().any(gone),
    }
}

impl Change {
    /// What has to be looked up in the archive.
    pub(super) fn look_ups(&self) -> LookUps {
        let archived = |named: &(Resource, Name)| is_archived(named.0);
        let (tenant, target) = match &self.plan.target {
            Target::Account(path) => (Some(AccountPath::from(tenant_of(path))), None),
            Target::Named(what, id) => (asked_tenant(&self.caller), Some((*what, id.clone()))),
        };
        let chosen = self.plan.creates.as_ref().filter(|(_, _, chosen)| *chosen);
        LookUps {
            tenant,
            target: target.filter(|_| self.is_target_archived()),
            created: chosen.map(|(what, id, _)| (*what, id.clone())).filter(archived),
            array: self.plan.array,
            holds: self.holds.clone(),
            keys: self.caller.idempotency_key.clone().into_iter().collect(),
        }
    }

    /// Whether what the archive has of its target counts. A forgotten job can be refunded alone.
    fn is_target_archived(&self) -> bool {
        match self.plan.target {
            Target::Named(Resource::Job, _) => self.refunds_a_job(),
            Target::Named(what, _) => is_archived(what),
            Target::Account(_) => false,
        }
    }

    /// Whether something has to be read before it is decided.
    pub fn must_recall(&mut self, app: &App) -> bool {
        if self.looks > 0 || self.refunds_a_job() {
            return true;
        }
        match self.look_ups().at_once(app) {
            Some(looked) => self.looked = looked,
            None => return true,
        }
        false
    }

    /// Asks the archive. The first time it may be silent: the ledger says whether that matters.
    pub(super) async fn look_up(mut self, app: &App) -> Result<Change, Failure> {
        let first = self.looks == 0;
        let mut look_ups = self.look_ups();
        if look_ups.tenant.is_none()
            && look_ups.target.is_none()
            && let Target::Named(what, id) = &self.plan.target
        {
            // The archive does not have such things: the ledger says whose it is.
            let found = find(app, &self.caller, *what, id).await;
            look_ups.tenant = found.ok().map(|path| AccountPath::from(tenant_of(&path)));
        }
        self.looked = match look_ups.look_up(app).await {
            Err(_) if first => ArchiveRecords::default(),
            looked => looked?,
        };
        Ok(self)
    }

    /// Whether something that it needs may have been forgotten since it was looked up.
    pub fn must_look_again(
        &self,
        ledger: &Ledger,
        now: Timestamp,
        promised: &super::Promised,
    ) -> bool {
        let Change { plan, caller, looked, .. } = self;
        // A caller without the permission must not learn whether its target exists by a look-up that was left out.
        let is_permitted = plan.permit(&caller.principal).is_ok();
        let is_current = ledger.forgotten_through() <= looked.position;
        if is_current && looked.answers.is_empty() && !self.refunds_a_job() {
            return false;
        }
        let is_promised = |what: Resource, id: &Name| {
            promised.iter().any(|(its, name, _)| (*its, name) == (what, id))
        };
        let account = match &plan.target {
            Target::Account(path) if caller.principal.sees(path) => path.clone(),
            Target::Account(_) => return false,
            Target::Named(what, id) => {
                let mut created = promised.iter();
                let created = created.find(|(its, name, _)| (its, name) == (what, id));
                let account = created.map(|(_, _, account)| Ok(account.clone()));
                let named = (*what, id);
                let may_have_left = || {
                    self.is_target_archived()
                        && may_have_forgotten(ledger, caller, named, looked.position)
                };
                let may_be_elsewhere =
                    || asked_tenant(caller).is_none() && !is_promised(*what, id) && may_have_left();
                match account.unwrap_or_else(|| find_in(ledger, caller, named, &looked.records)) {
                    // Another tenant may have one of the same name.
                    Ok(_) if may_be_elsewhere() => return true,
                    Ok(account) => account,
                    Err(failure) if failure.problem.code != bursar_api::Code::NotFound => {
                        return false;
                    }
                    Err(_) => {
                        return may_have_left() || self.lacks_job();
                    }
                }
            }
        };
        if !is_permitted {
            return false;
        }
        let gone = |what: Resource, id: &Name| {
            !is_promised(what, id) && ledger.must_ask_archive(looked.position, what, &account, id)
        };
        let look_ups = self.look_ups();
        let tenant = tenant_of(&account);
        // The ids that the server makes are compared as well, once anything is.
        let made = plan.creates.as_ref().filter(|(what, ..)| is_archived(*what));
        look_ups.target.iter().any(|(what, id)| gone(*what, id))
            || (self.is_compared()
                && made.is_some_and(|(what, id, _)| {
                    let mut indexes = 1..plan.array.unwrap_or(1);
                    gone(*what, id) || indexes.any(|index| gone(*what, &job_of_array(id, index)))
                }))
            || look_ups.keys(tenant).iter().any(|key| looked.lacks_answer(ledger, now, *key))
            || self.lacks_holds(ledger, tenant)
    }

    /// Whether the ledger compares the position of the look-up: something of it was looked up.
    pub(super) fn is_compared(&self) -> bool {
        let LookUps { tenant: _, target, created, array: _, holds, keys } = self.look_ups();
        target.is_some() || created.is_some() || !holds.is_empty() || !keys.is_empty()
    }

    /// Whether it refunds a job one of whose holds neither the ledger nor the look-up has.
    fn lacks_holds(&self, ledger: &Ledger, tenant: &str) -> bool {
        let Target::Named(Resource::Job, id) = &self.plan.target else { return false };
        if self.plan.operation != Operation::CreateRefund || self.looks >= MAX_LOOKS {
            return false;
        }
        let Some(tenant) = ledger.find_account(tenant) else { return false };
        holds_of_job(ledger, tenant, id).iter().any(|name| {
            let mut records = self.looked.records.iter();
            ledger.find_hold(tenant, HoldKind::Hold, name).is_none()
                && !records
                    .any(|record| matches!(record, RecalledRecord::Hold(of) if of.hold.id == *name))
        })
    }
}

/// The names of the holds of a job that the ledger has.
pub(super) fn holds_of_job(ledger: &Ledger, tenant: AccountNo, id: &Name) -> Vec<HoldId> {
    let job = ledger.find_job(tenant, id).and_then(|job| ledger.job(job));
    let attempts = job.into_iter().flat_map(|job| &job.attempts);
    attempts.filter_map(|attempt| attempt.hold.clone()).collect()
}
