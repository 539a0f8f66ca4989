//! All routes.

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Router, middleware as layer};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::handlers::accounts::{
    self, balance, budgets, forecast, history, quotas, spend, statement,
};
use super::handlers::credits::{batch, charges, grants, holds, movements, usage};
use super::handlers::jobs::{self, logs, quotes, timeline};
use super::handlers::nodes::{self, agent_logs, agents, heartbeat, map, regions};
use super::handlers::system::{
    self, audit, clock, cluster, device, directory, events, handoff, keys, search, session, shards,
    sign_in,
};
use super::shards::{ShardedHandlers, at_home};
use super::{dashboard, middleware, openapi};
use crate::app::App;

/// The routes that need no key, with their OpenAPI descriptions.
fn public() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(session::create))
}

/// The routes that need a key or a session, with their OpenAPI descriptions.
fn keyed() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(accounts::open, accounts::list))
        .routes(routes!(accounts::get, accounts::patch))
        .routes(routes!(accounts::freeze))
        .routes(routes!(accounts::unfreeze))
        .routes(routes!(accounts::collect))
        .routes(routes!(balance::get))
        .routes(routes!(statement::entries))
        .routes(routes!(statement::statement))
        .routes(routes!(forecast::forecast))
        .routes(routes!(spend::effective))
        .routes(routes!(spend::spend))
        .routes(routes!(spend::series))
        .routes(routes!(history::top))
        .routes(routes!(budgets::list))
        .routes(routes!(budgets::tree))
        .routes(routes!(budgets::set, budgets::get, budgets::remove))
        .routes(routes!(quotas::set, quotas::get, quotas::remove))
        .routes(routes!(grants::issue, grants::list))
        .routes(routes!(grants::get))
        .routes(routes!(grants::revoke))
        .routes(routes!(holds::place, holds::list))
        .routes(routes!(holds::get))
        .routes(routes!(holds::lots))
        .routes(routes!(holds::capture))
        .routes(routes!(holds::extend))
        .routes(routes!(holds::settle))
        .routes(routes!(holds::release))
        .routes(routes!(charges::charge, movements::charges))
        .routes(routes!(charges::get))
        .routes(routes!(charges::refund, movements::refunds))
        .routes(routes!(charges::transfer, movements::transfers))
        .routes(routes!(movements::refund))
        .routes(routes!(movements::transfer))
        .routes(routes!(directory::set_price))
        .routes(routes!(directory::list_prices))
        .routes(routes!(directory::set_class))
        .routes(routes!(directory::list_classes))
        .routes(routes!(jobs::submit, jobs::list))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::preempt))
        .routes(routes!(jobs::why))
        .routes(routes!(timeline::get))
        .routes(routes!(logs::get))
        .routes(routes!(quotes::quote))
        .routes(routes!(usage::report))
        .routes(routes!(agents::register, nodes::list))
        .routes(routes!(heartbeat::heartbeat))
        .routes(routes!(agent_logs::logs))
        .routes(routes!(nodes::get, nodes::delete))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::resume))
        .routes(routes!(regions::list))
        .routes(routes!(regions::queue))
        .routes(routes!(map::map))
        .routes(routes!(map::series))
        .routes(routes!(regions::plan, regions::get_plan, regions::cancel_plan))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(session::get, session::end))
        .routes(routes!(session::list))
        .routes(routes!(search::search))
        .routes(routes!(audit::list))
        .routes(routes!(audit::get_checkpoint))
        .routes(routes!(audit::get_proof))
        .routes(routes!(events::follow))
        .routes(routes!(batch::run))
        .routes(routes!(batch::dry_run::dry_run))
        .routes(routes!(cluster::get))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::resume))
        .routes(routes!(cluster::evict))
        .routes(routes!(cluster::upgrade))
        .routes(routes!(shards::list, shards::add))
        .routes(routes!(shards::drain))
        .routes(routes!(shards::open))
        .routes(routes!(clock::get, clock::set))
        .routes(routes!(clock::accept))
}

/// The OpenAPI document.
pub fn description() -> OpenApi {
    openapi::complete(keyed().merge(public()).into_openapi())
}

/// The handlers of authenticated requests in a shard.
pub(super) fn handlers(app: Arc<App>) -> Router {
    let (keyed, _) = keyed().split_for_parts();
    keyed.with_state(app)
}

/// The router of all requests. With several `shards` an authenticated request runs in its own.
pub(super) fn router(app: &Arc<App>, shards: Option<&Arc<ShardedHandlers>>) -> Router {
    let (mut keyed, _) = keyed().split_for_parts();
    if let Some(shards) = shards {
        keyed = keyed.route_layer(layer::from_fn_with_state(Arc::clone(shards), at_home));
    }
    let (public, _) = public().split_for_parts();
    let authenticate = layer::from_fn_with_state(Arc::clone(app), middleware::authenticate);
    let observe = layer::from_fn_with_state(Arc::clone(app), middleware::observe);
    keyed
        .route_layer(authenticate)
        .merge(public)
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .route("/metrics", get(system::metrics))
        .route("/openapi.json", get(system::openapi))
        .route("/docs", get(system::docs))
        .route("/docs/problems", get(system::problem_index))
        .route("/auth/methods", get(sign_in::methods))
        .route("/auth/login", get(sign_in::login))
        .route("/auth/callback", get(sign_in::callback))
        .route("/auth/cli", get(handoff::ask).post(handoff::approve))
        .route("/auth/token", post(handoff::redeem))
        .route("/auth/device", get(device::ask).post(device::decide))
        .route("/auth/device/code", post(device::begin))
        .route("/auth/device/token", post(device::redeem))
        .route("/docs/style.css", get(system::style))
        .route("/docs/problems/{code}", get(system::problem_page))
        .fallback(dashboard::answer)
        .method_not_allowed_fallback(system::no_method)
        .layer(observe)
        .with_state(Arc::clone(app))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::operations::Operation;

    #[test]
    fn the_routes_are_those_of_the_table() {
        let mut routed = BTreeSet::new();
        for (route, item) in description().paths.paths {
            for (method, operation) in [
                ("GET", item.get),
                ("POST", item.post),
                ("PUT", item.put),
                ("PATCH", item.patch),
                ("DELETE", item.delete),
            ] {
                let id = operation.and_then(|operation| operation.operation_id);
                routed.extend(id.map(|id| (id, method, route.clone())));
            }
        }
        let table: BTreeSet<_> = Operation::ALL
            .iter()
            .map(|operation| {
                (operation.id(), operation.row().method, operation.row().route.to_owned())
            })
            .collect();
        assert_eq!(routed, table);
    }
}
