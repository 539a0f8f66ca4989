//! One operation as of a batch, decided and not applied.

use std::sync::Arc;

use axum::extract::State;
use bursar_api::credits::batch::Operation as BatchItem;
use bursar_api::json::convert;

use super::operations::{Body, caller_of, cost_of, decoded, plan};
use crate::app::App;
use crate::http::extract::Tree;
use crate::http::handlers::accounts::quotas;
use crate::http::handlers::credits::usage;
use crate::http::respond::{Answer, change};
use crate::http::shards::HomesOfParts;
use crate::operations::Operation;
use crate::request::Caller;

/// Says whether a change of a ledger resource, a quota or a report of usage would be accepted now.
/// Nothing is changed or stored.
///
/// The answer to a change that would be refused is that of the change itself.
#[utoipa::path(post, path = "/v1/dry-run", tag = "operations", operation_id = "dry_run",
    request_body = BatchItem,
    responses((status = 204, description = "It would be accepted")))]
pub(in crate::http) async fn dry_run(
    State(app): State<Arc<App>>,
    caller: Caller,
    homes: HomesOfParts,
    Tree(body): Tree,
) -> Answer {
    let mut operation: BatchItem = convert(body)?;
    caller.principal.require(Operation::DryRun)?;
    let cost = cost_of((&operation).into(), operation.body.as_ref());
    app.limits.take_operations(&caller.principal, cost.into())?;
    let body = operation.body.take().map_or_else(Body::none, Body::Tree);
    operation.idempotency_key = None;
    let asked = Caller { idempotency_key: None, dry_run: true, ..caller };
    let own = caller_of(&asked, 0, (&operation).into())?;
    let fingerprint = body.fingerprint((&operation).into());
    let (path, query) = operation.path.split_once('?').unwrap_or((&operation.path, ""));
    let found = Operation::find(&operation.method, path);
    // Batches take neither quotas nor usage.
    let plan = match found {
        Some((Operation::ReportUsage, _)) => {
            return usage::rehearse(&app, own, &homes, body.tree()?).await;
        }
        Some((Operation::SetQuota, params)) => {
            quotas::plan_set(id_in(params.get("id")), body.tree()?)?
        }
        Some((Operation::RemoveQuota, params)) => {
            quotas::plan_remove(id_in(params.get("id")), region_of(query), body.tree()?)?
        }
        _ => plan(&app, &own, (&operation).into(), body)?,
    };
    change(&app, own, fingerprint, plan).await
}

fn id_in(segment: Option<&str>) -> String {
    decoded(segment.unwrap_or_default()).into_owned()
}

/// The region that a query names.
fn region_of(query: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "region").map(|(_, region)| region.into_owned())
}
