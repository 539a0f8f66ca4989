//! The shard of a request that is sent with a key of the platform.

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
    /// Its segment in paths.
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

/// Where a body names its tenant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum InBody {
    /// In this field: an account, or the scope of a key.
    Account(&'static str),
    /// In the path of the account that is opened.
    NewAccount,
    /// Through the charge, hold or job that is refunded.
    Refunded,
    /// In the operation of a dry run.
    Rehearsed,
}

/// What decides the shard of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodySubject {
    /// Its fields name no tenant, account or id.
    Nothing,
    Tenant(AccountPath),
    /// An org that may be new.
    NewOrg(AccountPath),
    Named(Collection, String),
}

/// A request whose parts may belong to several shards.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestParts {
    Operations,
    UsageRecords,
    /// Records in the dry run of a report.
    RehearsedRecords,
}

/// How the shard of a request is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShardRoute {
    /// The first shard: the request concerns no ledger, or all ledgers in the same way.
    First,
    /// The shard with this number, if it exists.
    Shard(Option<u16>),
    /// The shard of a tenant.
    Tenant(AccountPath),
    /// The shard that knows an id.
    Named(Collection, String),
    /// The shard of what the body names.
    Body(InBody),
    /// The shards of its parts.
    Batch(RequestParts),
    /// All shards: a list.
    List,
    /// All shards: a ranking.
    Top,
    /// All shards: a search.
    Search,
    /// All shards: a stream of events.
    Events,
}

/// A parameter of a query.
pub(super) fn parameter(uri: &Uri, name: &str) -> Option<String> {
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

/// A list filtered by the account in a query parameter; without it a list over all shards.
fn listed(uri: &Uri, name: &str) -> ShardRoute {
    parameter(uri, name).map_or(ShardRoute::List, |account| ShardRoute::Tenant(tenant(&account)))
}

/// How the shard of a request is found.
pub(super) fn route(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<ShardRoute, Failure> {
    let Some((operation, params)) = Operation::find(method.as_str(), uri.path()) else {
        return Ok(ShardRoute::First);
    };
    let id = params.get("id").unwrap_or_default();
    let asked = headers.get("bursar-tenant").and_then(|value| value.to_str().ok());
    let asked = asked.filter(|tenant| *tenant != PLATFORM_TENANT);
    let found = of_operation(operation, id, uri);
    Ok(match (asked, found) {
        (
            Some(asked),
            ShardRoute::Named(..)
            | ShardRoute::Batch(_)
            | ShardRoute::Body(InBody::Refunded | InBody::Rehearsed),
        ) => ShardRoute::Tenant(tenant(asked)),
        (_, found) => found,
    })
}

fn of_operation(operation: Operation, id: &str, uri: &Uri) -> ShardRoute {
    use Operation as Of;
    let named = |of: Collection| ShardRoute::Named(of, id.to_owned());
    match operation {
        Of::OpenAccount => ShardRoute::Body(InBody::NewAccount),
        Of::ListAccounts => {
            let prefix = parameter(uri, "prefix").filter(|prefix| prefix.contains(':'));
            let within = parameter(uri, "parent").or(prefix);
            within.map_or(ShardRoute::List, |path| ShardRoute::Tenant(tenant(&path)))
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
        | Of::RemoveQuota => ShardRoute::Tenant(tenant_in(id)),
        Of::GetTop => ShardRoute::Top,
        Of::IssueGrant | Of::PlaceHold | Of::CreateCharge | Of::SubmitJob | Of::GetQuote => {
            ShardRoute::Body(InBody::Account("account"))
        }
        Of::CreateTransfer => ShardRoute::Body(InBody::Account("from")),
        Of::CreateKey => ShardRoute::Body(InBody::Account("scope")),
        Of::CreateRefund => ShardRoute::Body(InBody::Refunded),
        Of::DryRun => ShardRoute::Body(InBody::Rehearsed),
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
        Of::RunBatch => ShardRoute::Batch(RequestParts::Operations),
        Of::ReportUsage => ShardRoute::Batch(RequestParts::UsageRecords),
        Of::Search => ShardRoute::Search,
        Of::FollowEvents => ShardRoute::Events,
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
        | Of::AcceptClock => ShardRoute::First,
    }
}

/// The shard of the machine in the query, or of the account or job.
fn of_audit(uri: &Uri) -> ShardRoute {
    // The account or job of a record of a cell is known to its ledger.
    let ledger = parameter(uri, "machine").filter(|machine| machine.starts_with("ledger-"));
    if let Some(machine) = ledger {
        return ShardRoute::Shard(shard_named(&machine));
    }
    if let Some(account) = parameter(uri, "account") {
        return ShardRoute::Tenant(tenant(&account));
    }
    match parameter(uri, "job") {
        Some(job) => ShardRoute::Named(Collection::Jobs, job),
        None => ShardRoute::First,
    }
}

impl InBody {
    /// Finds what the body names.
    pub(super) fn find(self, body: &[u8]) -> BodySubject {
        match bursar_api::json::parse(body) {
            Ok(body) => self.find_in(&body),
            Err(_) => BodySubject::Nothing,
        }
    }

    fn find_in(self, body: &Value) -> BodySubject {
        let text = |field: &str| body.get(field).and_then(Value::as_str);
        match self {
            InBody::Account(field) => match text(field) {
                Some(account) if AccountPath::is_valid(account) => {
                    BodySubject::Tenant(tenant(account))
                }
                _ => BodySubject::Nothing,
            },
            InBody::NewAccount => match text("id") {
                Some(path) if !AccountPath::is_valid(path) => BodySubject::Nothing,
                Some(path) if tenant_of(path) == path => BodySubject::NewOrg(tenant(path)),
                Some(path) => BodySubject::Tenant(tenant(path)),
                None => BodySubject::Nothing,
            },
            InBody::Refunded => {
                let fields = [
                    ("charge", Collection::Charges),
                    ("hold", Collection::Holds),
                    ("job", Collection::Jobs),
                ];
                let mut named = fields.into_iter().filter_map(|(field, of)| {
                    text(field).map(|id| BodySubject::Named(of, id.to_owned()))
                });
                named.next().unwrap_or(BodySubject::Nothing)
            }
            InBody::Rehearsed => of_part(body).unwrap_or(BodySubject::Nothing),
        }
    }
}

/// What decides the shard of an operation in a batch; `None` if it is not an operation.
pub(super) fn of_part(operation: &Value) -> Option<BodySubject> {
    let method = operation.get("method")?.as_str()?;
    let path = operation.get("path")?.as_str()?;
    let uri = Uri::try_from(path).ok()?;
    let (found, params) = Operation::find(method, uri.path())?;
    let nothing = Value::Null;
    let body = operation.get("body").unwrap_or(&nothing);
    Some(match of_operation(found, params.get("id").unwrap_or_default(), &uri) {
        ShardRoute::Tenant(tenant) => BodySubject::Tenant(tenant),
        ShardRoute::Named(of, id) => BodySubject::Named(of, id),
        // An operation of a batch is no batch.
        ShardRoute::Body(InBody::Rehearsed) => BodySubject::Nothing,
        ShardRoute::Body(find) => find.find_in(body),
        ShardRoute::First
        | ShardRoute::Shard(_)
        | ShardRoute::Batch(_)
        | ShardRoute::List
        | ShardRoute::Top
        | ShardRoute::Search
        | ShardRoute::Events => BodySubject::Nothing,
    })
}

/// Whether the operation of a dry run is a report of usage.
pub(super) fn is_report(operation: &[u8]) -> bool {
    let Ok(operation) = bursar_api::json::parse(operation) else { return false };
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let (Some(method), Some(path)) = (text("method"), text("path")) else { return false };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    matches!(Operation::find(method, path), Some((Operation::ReportUsage, _)))
}

/// What decides the shard of a record of usage.
pub(super) fn of_record(record: &Value) -> BodySubject {
    let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
    match (text("job"), text("hold")) {
        (Some(job), _) => BodySubject::Named(Collection::Jobs, job),
        (None, Some(hold)) => BodySubject::Named(Collection::Holds, hold),
        (None, None) => BodySubject::Nothing,
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

    fn found(method: &str, uri: &str) -> ShardRoute {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let uri = Uri::try_from(uri).expect("a path");
        route(&method, &uri, &HeaderMap::new()).expect("it is known")
    }

    #[test]
    fn the_way_of_a_request_follows_from_what_it_names() {
        let acme = || ShardRoute::Tenant("acme".into());
        assert_eq!(found("GET", "/v1/accounts/acme:nlp/balance"), acme());
        assert_eq!(found("GET", "/v1/accounts/acme%3Anlp"), acme());
        assert_eq!(found("GET", "/v1/accounts?parent=acme:nlp"), acme());
        assert_eq!(found("GET", "/v1/accounts?prefix=acme%3Anl"), acme());
        assert_eq!(found("GET", "/v1/accounts?prefix=ac"), ShardRoute::List);
        assert_eq!(found("GET", "/v1/grants?account=acme:nlp&limit=3"), acme());
        assert_eq!(found("GET", "/v1/grants"), ShardRoute::List);
        assert_eq!(
            found("HEAD", "/v1/holds/h1"),
            ShardRoute::Named(Collection::Holds, "h1".into())
        );
        assert_eq!(found("POST", "/v1/holds"), ShardRoute::Body(InBody::Account("account")));
        assert_eq!(found("GET", "/v1/audit?machine=ledger-1"), ShardRoute::Shard(Some(1)));
        assert_eq!(found("GET", "/v1/audit?machine=ledger-x"), ShardRoute::Shard(None));
        assert_eq!(found("GET", "/v1/audit?machine=cell-eu"), ShardRoute::First);
        assert_eq!(found("GET", "/v1/audit?account=acme:x"), acme());
        assert_eq!(found("GET", "/nowhere"), ShardRoute::First);
        let mut headers = HeaderMap::new();
        headers.insert("bursar-tenant", "acme".parse().expect("a value"));
        let asked = |method, uri: &'static str| {
            route(&method, &Uri::from_static(uri), &headers).expect("it is known")
        };
        assert_eq!(asked(Method::GET, "/v1/holds/h1"), acme());
        assert_eq!(
            asked(Method::GET, "/v1/holds"),
            ShardRoute::List,
            "the header says whose id is meant"
        );
        assert_eq!(asked(Method::PUT, "/v1/prices/H100"), ShardRoute::First);
    }

    #[test]
    fn a_body_names_its_tenant() {
        let find = |find: InBody, body: Value| find.find(body.to_string().as_bytes());
        let account = InBody::Account("account");
        assert_eq!(find(account, json!({"account": "a:b"})), BodySubject::Tenant("a".into()));
        for wrong in [json!({}), json!({"account": 3}), json!({"account": "A B"}), json!([])] {
            assert_eq!(find(account, wrong), BodySubject::Nothing);
        }
        assert_eq!(find(InBody::NewAccount, json!({"id": "a"})), BodySubject::NewOrg("a".into()));
        assert_eq!(find(InBody::NewAccount, json!({"id": "a:b"})), BodySubject::Tenant("a".into()));
        let hold = BodySubject::Named(Collection::Holds, "h".into());
        assert_eq!(find(InBody::Refunded, json!({"hold": "h"})), hold);
        let operation = json!({"method": "POST", "path": "/v1/holds/h/settle", "body": {}});
        assert_eq!(find(InBody::Rehearsed, operation), hold);
        let operation = json!({"method": "POST", "path": "/v1/charges", "body": {"account": "a"}});
        assert_eq!(find(InBody::Rehearsed, operation), BodySubject::Tenant("a".into()));
    }
}
