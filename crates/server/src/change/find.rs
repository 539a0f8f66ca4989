//! Finds the resources that requests name.

use bursar_api::Code;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_history::query::Archived;
use smallvec::SmallVec;

use crate::app::App;
use crate::auth::tenant_of;
use crate::request::{Caller, Failure};

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

/// The account of a resource, if the caller can see it.
pub async fn find(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Name, Failure> {
    let (asker, wanted) = (caller.clone(), id.clone());
    let found = app.ledger.peek(move |ledger| find_in(ledger, &asker, resource, &wanted)).await?;
    if found.is_err() {
        // A refusal too is answered only when the state that it is based on is durable.
        app.ledger.read(|_| ()).await?;
    }
    found
}

/// Like [`find`], on a given state of the ledger.
pub(crate) fn find_in(
    ledger: &Ledger,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Name, Failure> {
    let (own, asked) = (caller.principal.tenant(), caller.tenant.as_deref());
    let missing = || Failure::not_found(noun(resource), id);
    if own.is_some() && asked.is_some() && own != asked {
        return Err(missing());
    }
    let mut found = accounts_of(ledger, own.or(asked), resource, id);
    found.retain(|account| caller.principal.sees(account));
    match found.as_slice() {
        [account] => Ok(account.clone()),
        [] => Err(missing()),
        [_, _, ..] => Err(ambiguous(id, found.iter())),
    }
}

/// Closed holds or charges that the ledger has forgotten, from history, with the paths of their
/// accounts. Only those that the caller can see; one per tenant.
async fn forgotten(
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
    let tenant = caller.principal.tenant().map(Name::from).or_else(|| caller.tenant.clone());
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
        let known = move |ledger: &Ledger| {
            let is_known = account.0 < ledger.account_count();
            is_known.then(|| ledger.account(account).path.clone())
        };
        let Some(path) = app.ledger.peek(known).await? else { continue };
        if caller.principal.sees(&path) && !archived.record.hold.is_open() {
            found.push((archived, path));
        }
    }
    Ok(found)
}

/// The only forgotten hold or charge with this id that the caller can mean.
pub async fn only_forgotten(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Hold, Failure> {
    let found = only_archived(app, caller, resource, id).await?;
    let missing = || Failure::not_found(noun(resource), id);
    found.map(|(archived, _)| archived.record.hold).ok_or_else(missing)
}

/// The archived record of that hold or charge, with the path of its account; `None` if the ledger
/// has it.
pub(super) async fn only_archived(
    app: &App,
    caller: &Caller,
    resource: Resource,
    id: &Name,
) -> Result<Option<(Archived, Name)>, Failure> {
    let mut found = forgotten(app, caller, resource, id).await?;
    let Some(last) = found.pop() else { return Ok(None) };
    if found.is_empty() {
        return Ok(Some(last));
    }
    let accounts: Vec<Name> = found.into_iter().map(|(_, path)| path).collect();
    Err(ambiguous(id, accounts.iter().chain([&last.1])))
}

pub(crate) fn ambiguous<'a>(id: &Name, accounts: impl Iterator<Item = &'a Name>) -> Failure {
    let tenants: Vec<&str> = accounts.map(|account| tenant_of(account)).collect();
    let detail = format!(
        "`{id}` exists in several tenants; repeat with the header Bursar-Tenant: {}",
        tenants.join(" or ")
    );
    Failure::new(Code::AmbiguousId, detail)
}

/// The accounts of the resources with this id, one per tenant.
fn accounts_of(
    ledger: &Ledger,
    tenant: Option<&str>,
    resource: Resource,
    id: &str,
) -> SmallVec<[Name; 1]> {
    let lookup = |tenant| {
        let account = match resource {
            Resource::Grant => {
                ledger.find_grant(tenant, id).map(|grant| ledger.grant(grant).account)
            }
            Resource::Hold => hold_account(ledger, tenant, HoldKind::Hold, id),
            Resource::Charge => hold_account(ledger, tenant, HoldKind::Charge, id),
            Resource::Job => {
                let number = ledger.find_job_or_array(tenant, id);
                let job = number.and_then(|number| ledger.job(number));
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

/// Whether a resource with this id exists.
pub(super) fn exists(ledger: &Ledger, tenant: &str, resource: Resource, id: &str) -> bool {
    let Some(tenant) = ledger.find_account(tenant) else { return false };
    match resource {
        Resource::Account => ledger.find_account(id).is_some(),
        Resource::Grant => ledger.find_grant(tenant, id).is_some(),
        Resource::Hold => ledger.find_hold(tenant, HoldKind::Hold, id).is_some(),
        Resource::Charge => ledger.find_hold(tenant, HoldKind::Charge, id).is_some(),
        Resource::Refund | Resource::Transfer | Resource::Collection => {
            ledger.find_movement(tenant, resource, id).is_some()
        }
        Resource::Job => ledger.find_job_or_array(tenant, id).is_some(),
        Resource::Budget | Resource::Region | Resource::Quota => false,
    }
}
