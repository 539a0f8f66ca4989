//! The table of operations: all that differs from one operation of the API to the next.
//!
//! Permissions, rate limits, shedding, urgency in the ledger, batches and the OpenAPI document follow from it. Handlers
//! describe their parameters and bodies beside their code; tests compare routes and methods with the table. The
//! sign-in routes below `/auth/` are outside of the table by design: browsers call them before there is a principal.

use std::collections::HashMap;
use std::sync::LazyLock;

use matchit::{Params, Router};

use crate::auth::permissions::{Reach, Roles};
use crate::net::limits::Priority;

/// What a repeat of a request does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Nothing: the operation changes nothing.
    NoEffect,
    /// Under the same `Idempotency-Key` it gets the first answer, which is stored.
    Stored,
    /// Nothing further: the sequence numbers in its body make a repeat harmless.
    ByNature,
}

/// Whether an operation may be part of a batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum InBatch {
    /// It changes one ledger, so it may.
    Part,
    /// It changes more or other things.
    Never,
}

/// One row of the table.
#[derive(Copy, Clone, Debug)]
pub struct OperationRow {
    /// The HTTP method.
    pub method: &'static str,
    /// The route as in the OpenAPI document.
    pub route: &'static str,
    /// The roles that may call it.
    pub roles: Roles,
    /// Whose data it concerns.
    pub reach: Reach,
    /// When it is shed under load, which bucket limits it, and whether it goes first in the ledger when
    /// it comes alone.
    pub priority: Priority,
    /// What a repeat does.
    pub repeats: Repeats,
    /// Whether a batch may contain it.
    pub batch: InBatch,
}

macro_rules! operations {
    ($($name:ident $method:ident $route:literal $roles:ident $reach:ident $priority:ident $repeats:ident $batch:ident,)*) => {
        /// An operation of the API.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum Operation {
            $(#[doc = concat!("`", stringify!($method), " ", $route, "`")] $name,)*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &[Operation] = &[$(Operation::$name),*];

            fn name(self) -> &'static str {
                match self { $(Operation::$name => stringify!($name),)* }
            }
        }

        const ROWS: &[OperationRow] = &[$(OperationRow {
            method: stringify!($method),
            route: $route,
            roles: Roles::$roles,
            reach: Reach::$reach,
            priority: Priority::$priority,
            repeats: Repeats::$repeats,
            batch: InBatch::$batch,
        }),*];
    };
}

operations! {
    // operation         method route                              roles    reach    priority repeats  batch
    OpenAccount          POST   "/v1/accounts"                     MONEY    Tenant   Change   Stored   Part,
    ListAccounts         GET    "/v1/accounts"                     READ     Tenant   Read     NoEffect Never,
    GetAccount           GET    "/v1/accounts/{id}"                READ     Tenant   Read     NoEffect Never,
    ChangeAccount        PATCH  "/v1/accounts/{id}"                MONEY    Tenant   Change   Stored   Part,
    FreezeAccount        POST   "/v1/accounts/{id}/freeze"         STOP     Tenant   Change   Stored   Part,
    UnfreezeAccount      POST   "/v1/accounts/{id}/unfreeze"       STOP     Tenant   Change   Stored   Part,
    Collect              POST   "/v1/accounts/{id}/collect"        MONEY    Tenant   Change   Stored   Part,
    GetBalance           GET    "/v1/accounts/{id}/balance"        READ     Tenant   Read     NoEffect Never,
    ListEntries          GET    "/v1/accounts/{id}/entries"        READ     Tenant   Read     NoEffect Never,
    GetStatement         GET    "/v1/accounts/{id}/statement"      READ     Tenant   Read     NoEffect Never,
    GetEffective         GET    "/v1/accounts/{id}/effective"      READ     Tenant   Read     NoEffect Never,
    GetSpend             GET    "/v1/accounts/{id}/spend"          READ     Tenant   Read     NoEffect Never,
    GetAccountSeries     GET    "/v1/accounts/{id}/series"         READ     Tenant   Read     NoEffect Never,
    GetForecast          GET    "/v1/accounts/{id}/forecast"       READ     Tenant   Read     NoEffect Never,
    SetBudget            PUT    "/v1/accounts/{id}/budgets/{name}" MONEY    Tenant   Change   Stored   Part,
    ListBudgets          GET    "/v1/accounts/{id}/budgets"        READ     Tenant   Read     NoEffect Never,
    GetBudget            GET    "/v1/accounts/{id}/budgets/{name}" READ     Tenant   Read     NoEffect Never,
    GetBudgetTree        GET    "/v1/accounts/{id}/budget-tree"    READ     Tenant   Read     NoEffect Never,
    RemoveBudget         DELETE "/v1/accounts/{id}/budgets/{name}" MONEY    Tenant   Change   Stored   Part,
    SetQuota             PUT    "/v1/accounts/{id}/quota"          MACHINES Tenant   Change   Stored   Never,
    GetQuota             GET    "/v1/accounts/{id}/quota"          READ     Tenant   Read     NoEffect Never,
    RemoveQuota          DELETE "/v1/accounts/{id}/quota"          MACHINES Tenant   Change   Stored   Never,
    GetTop               GET    "/v1/top"                          READ     Tenant   Read     NoEffect Never,
    IssueGrant           POST   "/v1/grants"                       MONEY    Issue    Change   Stored   Part,
    ListGrants           GET    "/v1/grants"                       READ     Tenant   Read     NoEffect Never,
    GetGrant             GET    "/v1/grants/{id}"                  READ     Tenant   Read     NoEffect Never,
    RevokeGrant          POST   "/v1/grants/{id}/revoke"           MONEY    Tenant   Change   Stored   Part,
    PlaceHold            POST   "/v1/holds"                        SPEND    Tenant   Change   Stored   Part,
    ListHolds            GET    "/v1/holds"                        READ     Tenant   Read     NoEffect Never,
    GetHold              GET    "/v1/holds/{id}"                   READ     Tenant   Read     NoEffect Never,
    ListHoldLots         GET    "/v1/holds/{id}/lots"              READ     Tenant   Read     NoEffect Never,
    CaptureHold          POST   "/v1/holds/{id}/capture"           SPEND    Tenant   Metering Stored   Part,
    ExtendHold           POST   "/v1/holds/{id}/extend"            SPEND    Tenant   Change   Stored   Part,
    SettleHold           POST   "/v1/holds/{id}/settle"            SPEND    Tenant   Metering Stored   Part,
    ReleaseHold          POST   "/v1/holds/{id}/release"           SPEND    Tenant   Metering Stored   Part,
    CreateCharge         POST   "/v1/charges"                      SPEND    Tenant   Change   Stored   Part,
    GetCharge            GET    "/v1/charges/{id}"                 READ     Tenant   Read     NoEffect Never,
    ListCharges          GET    "/v1/charges"                      READ     Tenant   Read     NoEffect Never,
    CreateRefund         POST   "/v1/refunds"                      MONEY    Tenant   Change   Stored   Part,
    ListRefunds          GET    "/v1/refunds"                      READ     Tenant   Read     NoEffect Never,
    GetRefund            GET    "/v1/refunds/{id}"                 READ     Tenant   Read     NoEffect Never,
    CreateTransfer       POST   "/v1/transfers"                    MONEY    Tenant   Change   Stored   Part,
    ListTransfers        GET    "/v1/transfers"                    READ     Tenant   Read     NoEffect Never,
    GetTransfer          GET    "/v1/transfers/{id}"               READ     Tenant   Read     NoEffect Never,
    SetPrice             PUT    "/v1/prices/{gpu_type}"            MONEY    Platform Change   Stored   Never,
    ListPrices           GET    "/v1/prices"                       ANY      Shared   Read     NoEffect Never,
    SetClass             PUT    "/v1/classes/{name}"               MACHINES Platform Change   Stored   Never,
    ListClasses          GET    "/v1/classes"                      ANY      Shared   Read     NoEffect Never,
    SubmitJob            POST   "/v1/jobs"                         SPEND    Tenant   Change   Stored   Part,
    ListJobs             GET    "/v1/jobs"                         READ     Tenant   Read     NoEffect Never,
    GetJob               GET    "/v1/jobs/{id}"                    READ     Tenant   Read     NoEffect Never,
    CancelJob            POST   "/v1/jobs/{id}/cancel"             END      Tenant   Change   Stored   Part,
    PreemptJob           POST   "/v1/jobs/{id}/preempt"            MACHINES Tenant   Change   Stored   Never,
    ExplainJob           GET    "/v1/jobs/{id}/why"                READ     Tenant   Read     NoEffect Never,
    GetJobTimeline       GET    "/v1/jobs/{id}/timeline"           READ     Tenant   Read     NoEffect Never,
    GetJobLogs           GET    "/v1/jobs/{id}/logs"               READ     Tenant   Read     NoEffect Never,
    GetQuote             POST   "/v1/quotes"                       READ     Tenant   Change   NoEffect Never,
    ReportUsage          POST   "/v1/usage"                        SPEND    Tenant   Metering Stored   Never,
    RegisterNode         POST   "/v1/nodes"                        AGENT    Tenant   Change   Stored   Never,
    HeartbeatNode        POST   "/v1/nodes/{id}/heartbeat"         AGENT    Tenant   Metering ByNature Never,
    SendNodeLog          POST   "/v1/nodes/{id}/logs"              AGENT    Tenant   Change   ByNature Never,
    ListNodes            GET    "/v1/nodes"                        ANY      Tenant   Read     NoEffect Never,
    GetNode              GET    "/v1/nodes/{id}"                   ANY      Tenant   Read     NoEffect Never,
    DrainNode            POST   "/v1/nodes/{id}/drain"             MACHINES Tenant   Change   Stored   Never,
    ResumeNode           POST   "/v1/nodes/{id}/resume"            MACHINES Tenant   Change   Stored   Never,
    DeleteNode           DELETE "/v1/nodes/{id}"                   MACHINES Tenant   Change   Stored   Never,
    ListRegions          GET    "/v1/regions"                      ANY      Shared   Read     NoEffect Never,
    GetQueue             GET    "/v1/regions/{id}/queue"           READ     Tenant   Read     NoEffect Never,
    GetRegionMap         GET    "/v1/regions/{id}/map"             READ     Tenant   Read     NoEffect Never,
    GetRegionSeries      GET    "/v1/regions/{id}/series"          READ     Tenant   Read     NoEffect Never,
    PlanMaintenance      PUT    "/v1/regions/{id}/maintenance"     MACHINES Platform Change   Stored   Never,
    GetMaintenance       GET    "/v1/regions/{id}/maintenance"     ANY      Shared   Read     NoEffect Never,
    CancelMaintenance    DELETE "/v1/regions/{id}/maintenance"     MACHINES Platform Change   Stored   Never,
    CreateKey            POST   "/v1/keys"                         ADMIN    Tenant   Change   Stored   Never,
    ListKeys             GET    "/v1/keys"                         ADMIN    Tenant   Read     NoEffect Never,
    RevokeKey            DELETE "/v1/keys/{id}"                    ADMIN    Tenant   Change   Stored   Never,
    CreateSession        POST   "/v1/session"                      ANY      Public   Change   NoEffect Never,
    GetSession           GET    "/v1/session"                      ANY      Shared   Read     NoEffect Never,
    ListSessions         GET    "/v1/sessions"                     ADMIN    Tenant   Read     NoEffect Never,
    EndSession           DELETE "/v1/session"                      ANY      Shared   Change   NoEffect Never,
    Search               GET    "/v1/search"                       READ     Tenant   Read     NoEffect Never,
    ListAudit            GET    "/v1/audit"                        AUDIT    Tenant   Read     NoEffect Never,
    GetCheckpoint        GET    "/v1/audit/checkpoint"             AUDIT    Shared   Read     NoEffect Never,
    GetProof             GET    "/v1/audit/proof"                  AUDIT    Platform Read     NoEffect Never,
    FollowEvents         GET    "/v1/events"                       READ     Tenant   Read     NoEffect Never,
    RunBatch             POST   "/v1/batch"                        END      Tenant   Change   Stored   Never,
    DryRun               POST   "/v1/dry-run"                      END      Tenant   Change   NoEffect Never,
    GetCluster           GET    "/v1/cluster"                      MACHINES Platform Read     NoEffect Never,
    DrainMember          POST   "/v1/cluster/members/{id}/drain"   MACHINES Platform Change   ByNature Never,
    ResumeMember         POST   "/v1/cluster/members/{id}/resume"  MACHINES Platform Change   ByNature Never,
    EvictMember          POST   "/v1/cluster/members/{id}/evict"   MACHINES Platform Change   ByNature Never,
    UpgradeCluster       POST   "/v1/cluster/upgrade"              MACHINES Platform Change   ByNature Never,
    ListShards           GET    "/v1/shards"                       MACHINES Platform Read     NoEffect Never,
    AddShard             POST   "/v1/shards"                       MACHINES Platform Change   Stored   Never,
    DrainShard           POST   "/v1/shards/{id}/drain"            MACHINES Platform Change   Stored   Never,
    OpenShard            POST   "/v1/shards/{id}/open"             MACHINES Platform Change   Stored   Never,
    GetClock             GET    "/v1/clock"                        ANY      Shared   Read     NoEffect Never,
    MoveClock            POST   "/v1/clock"                        ADMIN    Platform Change   Stored   Never,
    AcceptClock          POST   "/v1/clock/accept"                 MACHINES Platform Change   Stored   Never,
}

type Methods = HashMap<&'static str, Operation>;

static ROUTES: LazyLock<Router<Methods>> = LazyLock::new(|| {
    let mut routes: HashMap<&str, Methods> = HashMap::new();
    for operation in Operation::ALL {
        let row = operation.row();
        routes.entry(row.route).or_default().insert(row.method, *operation);
    }
    let mut router = Router::new();
    for (route, methods) in routes {
        router.insert(route, methods).expect("routes do not conflict");
    }
    router
});

impl Operation {
    /// Its row of the table.
    pub fn row(self) -> &'static OperationRow {
        &ROWS[self as usize]
    }

    /// Its id in the OpenAPI document: its name in small letters, as in `place_hold`.
    pub fn id(self) -> String {
        let mut id = String::new();
        for letter in self.name().chars() {
            if letter.is_uppercase() && !id.is_empty() {
                id.push('_');
            }
            id.push(letter.to_ascii_lowercase());
        }
        id
    }

    /// The operation with an id.
    pub fn with_id(id: &str) -> Option<Operation> {
        Operation::ALL.iter().copied().find(|operation| operation.id() == id)
    }

    /// The operation that a request calls, and the parameters in its path. `HEAD` is a `GET` without a body.
    pub fn find<'path>(
        method: &str,
        path: &'path str,
    ) -> Option<(Operation, Params<'static, 'path>)> {
        let method = if method == "HEAD" { "GET" } else { method };
        let matched = ROUTES.at(path).ok()?;
        Some((*matched.value.get(method)?, matched.params))
    }
}

#[cfg(test)]
mod tests {
    use bursar_api::system::key::Role;

    use super::*;

    #[test]
    fn administrators_may_do_everything_and_viewers_change_nothing() {
        for operation in Operation::ALL {
            let row = operation.row();
            assert!(row.roles.contains(Role::Admin), "{operation:?}");
            assert!(
                row.repeats == Repeats::NoEffect || !row.roles.contains(Role::Viewer),
                "{operation:?}"
            );
        }
    }

    #[test]
    fn reads_change_nothing_and_only_changes_are_parts_of_batches() {
        for operation in Operation::ALL {
            let row = operation.row();
            assert_eq!(row.method == "GET", row.priority == Priority::Read, "{operation:?}");
            assert!(row.method != "GET" || row.repeats == Repeats::NoEffect, "{operation:?}");
            assert!(row.batch == InBatch::Never || row.repeats == Repeats::Stored, "{operation:?}");
        }
    }

    #[test]
    fn a_batch_needs_the_role_of_any_operation_that_it_may_contain() {
        let parts = Operation::ALL.iter().filter(|part| part.row().batch == InBatch::Part);
        let parts: Vec<Roles> = parts.map(|part| part.row().roles).collect();
        for role in Role::ALL {
            let may = parts.iter().any(|roles| roles.contains(role));
            assert_eq!(Operation::RunBatch.row().roles.contains(role), may, "{role:?}");
        }
    }

    #[test]
    fn an_operation_is_found_by_its_method_and_path() {
        for (method, path, expected, id) in [
            ("POST", "/v1/holds", Some(Operation::PlaceHold), None),
            ("POST", "/v1/holds/h.1:x/capture", Some(Operation::CaptureHold), Some("h.1:x")),
            ("POST", "/v1/holds/settle/settle", Some(Operation::SettleHold), Some("settle")),
            (
                "HEAD",
                "/v1/accounts/acme:nlp/balance",
                Some(Operation::GetBalance),
                Some("acme:nlp"),
            ),
            ("POST", "/v1/accounts/a/balance", None, None),
            ("POST", "/v1/holds/", None, None),
            ("POST", "/v2/holds", None, None),
            ("POST", "/v1/holds//settle", Some(Operation::SettleHold), Some("")),
            ("POST", "/v1/holds/a/b/settle", None, None),
            ("POST", "/v1/holds/a/settle/", None, None),
        ] {
            let found = Operation::find(method, path);
            assert_eq!(found.as_ref().map(|found| found.0), expected, "{method} {path}");
            assert_eq!(found.as_ref().and_then(|found| found.1.get("id")), id, "{method} {path}");
        }
    }

    #[test]
    fn every_id_leads_back_to_its_operation() {
        for operation in Operation::ALL {
            assert_eq!(Operation::with_id(&operation.id()), Some(*operation));
        }
        assert_eq!(Operation::with_id("no_such"), None);
    }
}
