//! Finds the resources that requests name.

use bursar_api::Code;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::archive::{ArchivedHold, RecalledRecord};
use bursar_core::ledger::holds::forget::resource_of;
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
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
) -> Result<AccountPath, Failure> {
    let (asker, wanted) = (caller.clone(), id.clone());
    let found =
        app.ledger.peek(move |ledger| find_in(ledger, &asker, (resource, &wanted), &[])).await?;
    if found.is_err() {
        // A refusal too is answered only when the state that it is based on is durable.
        app.ledger.read(|_| ()).await?;
    }
    found
}

/// Like [`find`], on a given state of the ledger and with what the archive has under the id.
pub(crate) fn find_in(
    ledger: &Ledger,
    caller: &Caller,
    (resource, id): (Resource, &Name),
    recalled: &[RecalledRecord],
) -> Result<AccountPath, Failure> {
    let (own, asked) = (caller.principal.tenant(), caller.tenant.as_deref());
    let missing = || Failure::not_found(noun(resource), id);
    if own.is_some() && asked.is_some() && own != asked {
        return Err(missing());
    }
    let mut found = accounts_of(ledger, own.or(asked), resource, id);
    for hold in forgotten_holds(ledger, (resource, id), recalled) {
        let path = &ledger.account(hold.account).path;
        if own.or(asked).is_none_or(|tenant| tenant == tenant_of(path)) {
            found.push(path.clone());
        }
    }
    found.retain(|account| caller.principal.sees(account));
    match found.as_slice() {
        [account] => Ok(account.clone()),
        [] => Err(missing()),
        [_, _, ..] => Err(ambiguous(id, found.iter())),
    }
}

/// The recalled holds or charges with this id that the ledger does not have, one per tenant.
fn forgotten_holds<'a>(
    ledger: &Ledger,
    (resource, id): (Resource, &Name),
    recalled: &'a [RecalledRecord],
) -> impl Iterator<Item = &'a Hold> {
    recalled.iter().filter_map(move |record| match record {
        RecalledRecord::Hold(ArchivedHold { hold, .. }) => {
            let is_wanted = resource_of(hold.kind) == resource
                && hold.id.as_str() == id.as_str()
                && hold.account.0 < ledger.account_count();
            let is_forgotten = || {
                let tenant = ledger.account(hold.account).tenant;
                ledger.find_hold(tenant, hold.kind, id).is_none()
            };
            (is_wanted && is_forgotten()).then_some(hold)
        }
        RecalledRecord::Movement(_) => None,
    })
}

/// The hold or charge with this id at or below an account of the caller's, from the ledger or from what the archive
/// has.
pub(crate) fn hold_in<'a>(
    ledger: &'a Ledger,
    caller: &Caller,
    (kind, id): (HoldKind, &Name),
    recalled: &'a [RecalledRecord],
) -> Result<&'a Hold, Failure> {
    let resource = resource_of(kind);
    let account = find_in(ledger, caller, (resource, id), recalled)?;
    let tenant = ledger.find_account(tenant_of(&account));
    let number = tenant.and_then(|tenant| ledger.find_hold(tenant, kind, id));
    let live = number.and_then(|number| ledger.hold(number));
    let of_tenant = |hold: &&Hold| Some(ledger.account(hold.account).tenant) == tenant;
    let found = live.or_else(|| forgotten_holds(ledger, (resource, id), recalled).find(of_tenant));
    found.ok_or_else(|| Failure::not_found(noun(resource), id))
}

pub(crate) fn ambiguous<'a>(id: &str, accounts: impl Iterator<Item = &'a AccountPath>) -> Failure {
    let tenants: Vec<&str> = accounts.map(|account| tenant_of(account)).collect();
    let detail = format!(
        "`{id}` exists in several tenants; repeat with the header Bursar-Tenant: {}",
        tenants.join(" or ")
    );
    Failure::new(Code::AmbiguousId, detail)
}

/// The accounts of the resources with this id, one per tenant.
pub(super) fn accounts_of(
    ledger: &Ledger,
    tenant: Option<&str>,
    resource: Resource,
    id: &str,
) -> SmallVec<[AccountPath; 1]> {
    let lookup = |tenant| {
        let account = match resource {
            Resource::Grant => {
                ledger.find_grant(tenant, id).map(|grant| ledger.grant(grant).account)
            }
            Resource::Hold => hold_account(ledger, tenant, HoldKind::Hold, id),
            Resource::Charge => hold_account(ledger, tenant, HoldKind::Charge, id),
            Resource::Job => {
                let left = || ledger.find_left_of_array(tenant, id);
                let number = ledger.find_job_or_array(tenant, id).or_else(left);
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
