//! Which shard a request of a key of the platform concerns.

use axum::http::{HeaderMap, Method, Uri};
use bursar_core::name::AccountPath;
use serde_json::Value;

use crate::auth::tenant_of;
use crate::http::extract::PLATFORM_TENANT;
use crate::http::handlers::credits::batch::decoded;
use crate::machines::ledgers::shard_named;
use crate::operations::Operation;
use crate::request::Failure;

/// A collection of things with ids.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Collection {
    Grants,
    Holds,
    Charges,
    Refunds,
    Transfers,
    Jobs,
}

impl Collection {
    /// As in paths.
    pub(super) fn path(self) -> &'static str {
        match self {
            Collection::Grants => "grants",
            Collection::Holds => "holds",
            Collection::Charges => "charges",
            Collection::Refunds => "refunds",
            Collection::Transfers => "transfers",
            Collection::Jobs => "jobs",
        }
    }
}

/// Where to find the tenant in a body.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum InBody {
    /// In this field, an account or the scope of a key.
    Account(&'static str),
    /// In the path of the account that is opened.
    NewAccount,
    /// By the charge, hold or job that is refunded.
    Refunded,
    /// In the operation that is rehearsed.
    Rehearsed,
}

/// What a body names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing that is known here.
    Nothing,
    Tenant(AccountPath),
    /// An org that may be new.
    NewOrg(AccountPath),
    Named(Collection, String),
}

/// What has several parts that may belong to several shards.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Parted {
    Operations,
    UsageRecords,
    /// Records of a report that is rehearsed.
    RehearsedRecords,
}

/// Which shard a request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// What it concerns is no ledger's, or every ledger's.
    First,
    /// That with this number, if there is one.
    Shard(Option<u16>),
    /// That of a tenant.
    Tenant(AccountPath),
    /// That which knows an id.
    Named(Collection, String),
    /// That of what its body names.
    Body(InBody),
    /// Those of its parts.
    Batch(Parted),
    /// All: a list.
    List,
    /// All: a ranking.
    Top,
    /// All: a search.
    Search,
    /// All: a stream of events.
    Events,
}

/// A parameter of a query.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(uri.query().unwrap_or("").as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn tenant(path: &str) -> AccountPath {
    AccountPath::unchecked(tenant_of(path))
}

/// The tenant of an account in a path.
fn tenant_in(segment: &str) -> AccountPath {
    tenant(&decoded(segment))
}

/// A list of what the accounts of a parameter have, or of all.
fn listed(uri: &Uri, name: &str) -> Way {
    parameter(uri, name).map_or(Way::List, |account| Way::Tenant(tenant(&account)))
}

/// Which shard a request concerns.
pub(super) fn way(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Way, Failure> {
    let Some((operation, params)) = Operation::find(method.as_str(), uri.path()) else {
        return Ok(Way::First);
    };
    let id = params.get("id").unwrap_or_default();
    let asked = headers.get("bursar-tenant").and_then(|value| value.to_str().ok());
    let asked = asked.filter(|tenant| *tenant != PLATFORM_TENANT);
    let found = of_operation(operation, id, uri);
    Ok(match (asked, found) {
        (
            Some(asked),
            Way::Named(..) | Way::Batch(_) | Way::Body(InBody::Refunded | InBody::Rehearsed),
        ) => Way::Tenant(tenant(asked)),
        (_, found) => found,
    })
}

fn of_operation(operation: Operation, id: &str, uri: &Uri) -> Way {
    use Operation as Of;
    let named = |of: Collection| Way::Named(of, id.to_owned());
    match operation {
        Of::OpenAccount => Way::Body(InBody::NewAccount),
        Of::ListAccounts => {
            let prefix = parameter(uri, "prefix").filter(|prefix| prefix.contains(':'));
            let within = parameter(uri, "parent").or(prefix);
            within.map_or(Way::List, |path| Way::Tenant(tenant(&path)))
        }
        Of::GetAccount
        | Of::ChangeAccount
        | Of::FreezeAccount
        | Of::UnfreezeAccount
        | Of::Collect
        | Of::GetBalance
        | Of::ListEntries
        | Of::GetStatement
        | Of::GetEffective
        | Of::GetSpend
        | Of::GetAccountSeries
        | Of::GetForecast
        | Of::SetBudget
        | Of::ListBudgets
        | Of::GetBudget
        | Of::GetBudgetTree
        | Of::RemoveBudget
        | Of::SetQuota
        | Of::GetQuota
        | Of::RemoveQuota => Way::Tenant(tenant_in(id)),
        Of::GetTop => Way::Top,
        Of::IssueGrant | Of::PlaceHold | Of::CreateCharge | Of::SubmitJob | Of::GetQuote => {
            Way::Body(InBody::Account("account"))
        }
        Of::CreateTransfer => Way::Body(InBody::Account("from")),
        Of::CreateKey => Way::Body(InBody::Account("scope")),
        Of::CreateRefund => Way::Body(InBody::Refunded),
        Of::DryRun => Way::Body(InBody::Rehearsed),
        Of::ListGrants
        | Of::ListHolds
        | Of::ListCharges
        | Of::ListRefunds
        | Of::ListTransfers
        | Of::ListJobs => listed(uri, "account"),
        Of::GetGrant | Of::RevokeGrant => named(Collection::Grants),
        Of::GetHold
        | Of::ListHoldLots
        | Of::CaptureHold
        | Of::ExtendHold
        | Of::SettleHold
        | Of::ReleaseHold => named(Collection::Holds),
        Of::GetCharge => named(Collection::Charges),
        Of::GetRefund => named(Collection::Refunds),
        Of::GetTransfer => named(Collection::Transfers),
        Of::GetJob
        | Of::CancelJob
        | Of::PreemptJob
        | Of::ExplainJob
        | Of::GetJobTimeline
        | Of::GetJobLogs => named(Collection::Jobs),
        Of::RunBatch => Way::Batch(Parted::Operations),
        Of::ReportUsage => Way::Batch(Parted::UsageRecords),
        Of::Search => Way::Search,
        Of::FollowEvents => Way::Events,
        Of::ListAudit | Of::GetCheckpoint | Of::GetProof => of_audit(uri),
        Of::SetPrice
        | Of::ListPrices
        | Of::SetClass
        | Of::ListClasses
        | Of::RegisterNode
        | Of::HeartbeatNode
        | Of::SendNodeLog
        | Of::ListNodes
        | Of::GetNode
        | Of::DrainNode
        | Of::ResumeNode
        | Of::DeleteNode
        | Of::ListRegions
        | Of::GetQueue
        | Of::GetRegionMap
        | Of::GetRegionSeries
        | Of::PlanMaintenance
        | Of::GetMaintenance
        | Of::CancelMaintenance
        | Of::ListKeys
        | Of::RevokeKey
        | Of::CreateSession
        | Of::GetSession
        | Of::ListSessions
        | Of::EndSession
        | Of::GetCluster
        | Of::DrainMember
        | Of::ResumeMember
        | Of::EvictMember
        | Of::UpgradeCluster
        | Of::ListShards
        | Of::AddShard
        | Of::DrainShard
        | Of::OpenShard
        | Of::GetClock
        | Of::MoveClock
        | Of::AcceptClock => Way::First,
    }
}

/// The journal of the machine that is named, or that of the account or job.
fn of_audit(uri: &Uri) -> Way {
    // The account or job of a record of a cell is known to its ledger.
    let ledger = parameter(uri, "machine").filter(|machine| machine.starts_with("ledger-"));
    if let Some(machine) = ledger {
        return Way::Shard(shard_named(&machine));
    }
    if let Some(account) = parameter(uri, "account") {
        return Way::Tenant(tenant(&account));
    }
    match parameter(uri, "job") {
        Some(job) => Way::Named(Collection::Jobs, job),
        None => Way::First,
    }
}

impl InBody {
    /// Finds what the body names.
    pub(super) fn find(self, body: &[u8]) -> Found {
        match bursar_api::json::parse(body) {
            Ok(body) => self.find_in(&body),
            Err(_) => Found::Nothing,
        }
    }

    fn find_in(self, body: &Value) -> Found {
        let text = |field: &str| body.get(field).and_then(Value::as_str);
        match self {
            InBody::Account(field) => match text(field) {
                Some(account) if AccountPath::is_valid(account) => Found::Tenant(tenant(account)),
                _ => Found::Nothing,
            },
            InBody::NewAccount => match text("id") {
                Some(path) if !AccountPath::is_valid(path) => Found::Nothing,
                Some(path) if tenant_of(path) == path => Found::NewOrg(tenant(path)),
                Some(path) => Found::Tenant(tenant(path)),
                None => Found::Nothing,
            },
            InBody::Refunded => {
                let fields = [
                    ("charge", Collection::Charges),
                    ("hold", Collection::Holds),
                    ("job", Collection::Jobs),
                ];
                let mut named = fields.into_iter().filter_map(|(field, of)| {
                    text(field).map(|id| Found::Named(of, id.to_owned()))
                });
                named.next().unwrap_or(Found::Nothing)
            }
            InBody::Rehearsed => of_part(body).unwrap_or(Found::Nothing),
        }
    }
}

/// What an operation of a batch names; `None` if it is not an operation.
pub(super) fn of_part(operation: &Value) -> Option<Found> {
    let method = operation.get("method")?.as_str()?;
    let path = operation.get("path")?.as_str()?;
    let uri = Uri::try_from(path).ok()?;
    let (found, params) = Operation::find(method, uri.path())?;
    let nothing = Value::Null;
    let body = operation.get("body").unwrap_or(&nothing);
    Some(match of_operation(found, params.get("id").unwrap_or_default(), &uri) {
        Way::Tenant(tenant) => Found::Tenant(tenant),
        Way::Named(of, id) => Found::Named(of, id),
        // An operation of a batch is no batch.
        Way::Body(InBody::Rehearsed) => Found::Nothing,
        Way::Body(find) => find.find_in(body),
        Way::First
        | Way::Shard(_)
        | Way::Batch(_)
        | Way::List
        | Way::Top
        | Way::Search
        | Way::Events => Found::Nothing,
    })
}

/// Whether an operation that is rehearsed is a report of usage.
pub(super) fn is_report(operation: &[u8]) -> bool {
    let Ok(operation) = bursar_api::json::parse(operation) else { return false };
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let (Some(method), Some(path)) = (text("method"), text("path")) else { return false };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    matches!(Operation::find(method, path), Some((Operation::ReportUsage, _)))
}

/// What a record of usage names.
pub(super) fn of_record(record: &Value) -> Found {
    let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
    match (text("job"), text("hold")) {
        (Some(job), _) => Found::Named(Collection::Jobs, job),
        (None, Some(hold)) => Found::Named(Collection::Holds, hold),
        (None, None) => Found::Nothing,
    }
}

/// What an operation creates under an id of its caller.
pub(super) fn created(operation: &Value) -> Option<(Collection, String)> {
    let path = operation.get("path")?.as_str()?;
    let of = match path {
        "/v1/grants" => Collection::Grants,
        "/v1/holds" => Collection::Holds,
        "/v1/charges" => Collection::Charges,
        "/v1/jobs" => Collection::Jobs,
        _ => return None,
    };
    Some((of, operation.get("body")?.get("id")?.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(method: &str, uri: &str) -> Way {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let uri = Uri::try_from(uri).expect("a path");
        way(&method, &uri, &HeaderMap::new()).expect("it is known")
    }

    #[test]
    fn the_way_of_a_request_follows_from_what_it_names() {
        let acme = || Way::Tenant("acme".into());
        assert_eq!(found("GET", "/v1/accounts/acme:nlp/balance"), acme());
        assert_eq!(found("GET", "/v1/accounts/acme%3Anlp"), acme());
        assert_eq!(found("GET", "/v1/accounts?parent=acme:nlp"), acme());
        assert_eq!(found("GET", "/v1/accounts?prefix=acme%3Anl"), acme());
        assert_eq!(found("GET", "/v1/accounts?prefix=ac"), Way::List);
        assert_eq!(found("GET", "/v1/grants?account=acme:nlp&limit=3"), acme());
        assert_eq!(found("GET", "/v1/grants"), Way::List);
        assert_eq!(found("HEAD", "/v1/holds/h1"), Way::Named(Collection::Holds, "h1".into()));
        assert_eq!(found("POST", "/v1/holds"), Way::Body(InBody::Account("account")));
        assert_eq!(found("GET", "/v1/audit?machine=ledger-1"), Way::Shard(Some(1)));
        assert_eq!(found("GET", "/v1/audit?machine=ledger-x"), Way::Shard(None));
        assert_eq!(found("GET", "/v1/audit?machine=cell-eu"), Way::First);
        assert_eq!(found("GET", "/v1/audit?account=acme:x"), acme());
        assert_eq!(found("GET", "/nowhere"), Way::First);
        let mut headers = HeaderMap::new();
        headers.insert("bursar-tenant", "acme".parse().expect("a value"));
        let asked = |method, uri: &'static str| {
            way(&method, &Uri::from_static(uri), &headers).expect("it is known")
        };
        assert_eq!(asked(Method::GET, "/v1/holds/h1"), acme());
        assert_eq!(asked(Method::GET, "/v1/holds"), Way::List, "the header says whose id is meant");
        assert_eq!(asked(Method::PUT, "/v1/prices/H100"), Way::First);
    }

    #[test]
    fn a_body_names_its_tenant() {
        let find = |find: InBody, body: Value| find.find(body.to_string().as_bytes());
        let account = InBody::Account("account");
        assert_eq!(find(account, json!({"account": "a:b"})), Found::Tenant("a".into()));
        for wrong in [json!({}), json!({"account": 3}), json!({"account": "A B"}), json!([])] {
            assert_eq!(find(account, wrong), Found::Nothing);
        }
        assert_eq!(find(InBody::NewAccount, json!({"id": "a"})), Found::NewOrg("a".into()));
        assert_eq!(find(InBody::NewAccount, json!({"id": "a:b"})), Found::Tenant("a".into()));
        let hold = Found::Named(Collection::Holds, "h".into());
        assert_eq!(find(InBody::Refunded, json!({"hold": "h"})), hold);
        let operation = json!({"method": "POST", "path": "/v1/holds/h/settle", "body": {}});
        assert_eq!(find(InBody::Rehearsed, operation), hold);
        let operation = json!({"method": "POST", "path": "/v1/charges", "body": {"account": "a"}});
        assert_eq!(find(InBody::Rehearsed, operation), Found::Tenant("a".into()));
    }
}
