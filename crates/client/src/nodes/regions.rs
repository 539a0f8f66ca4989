//! Regions, their queues and their maintenance.

use bursar_api::List;
use bursar_api::nodes::region::{Maintenance, PlanMaintenance, Queue, QueueQuery, Region};

use crate::call::{Call, Method, Nothing, path};

/// Lists regions, with what they have.
pub fn list() -> Call<List<Region>> {
    Call::get("/v1/regions")
}

/// Who waits in a region, in which order, and why.
pub fn queue(id: &str, query: &QueueQuery) -> Call<Queue> {
    Call::get(path(&["v1", "regions", id, "queue"])).with_query(query)
}

/// Plans a time in which nodes do not work, in place of an earlier plan.
pub fn plan_maintenance(id: &str, plan: &PlanMaintenance) -> Call<Maintenance> {
    Call::put(path(&["v1", "regions", id, "maintenance"]), plan)
}

/// Reads the plan.
pub fn maintenance(id: &str) -> Call<Maintenance> {
    Call::get(path(&["v1", "regions", id, "maintenance"]))
}

/// Drops the plan; nodes work again at once.
pub fn cancel_maintenance(id: &str) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "regions", id, "maintenance"]))
}
