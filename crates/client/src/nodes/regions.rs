//! Regions, their queues and their maintenance.

use bursar_api::List;
use bursar_api::nodes::map::{MapQuery, RegionMap, RegionSeries, RegionSeriesQuery};
use bursar_api::nodes::region::{Maintenance, PlanMaintenance, Queue, QueueQuery, Region};

use crate::call::{Call, Method, Nothing, path};

/// Lists regions with their capacity.
pub fn list() -> Call<List<Region>> {
    Call::get("/v1/regions")
}

/// The queue of a region: waiting jobs in order, and what blocks them.
pub fn queue(id: &str, query: &QueueQuery) -> Call<Queue> {
    Call::get(path(&["v1", "regions", id, "queue"])).with_query(query)
}

/// The nodes and GPUs of a region, and the jobs that have them.
pub fn map(id: &str, query: &MapQuery) -> Call<RegionMap> {
    Call::get(path(&["v1", "regions", id, "map"])).with_query(query)
}

/// A figure of a region over time.
pub fn series(id: &str, query: &RegionSeriesQuery) -> Call<RegionSeries> {
    Call::get(path(&["v1", "regions", id, "series"])).with_query(query)
}

/// Schedules maintenance. Replaces an earlier schedule.
pub fn plan_maintenance(id: &str, plan: &PlanMaintenance) -> Call<Maintenance> {
    Call::put(path(&["v1", "regions", id, "maintenance"]), plan)
}

/// Reads the maintenance window.
pub fn maintenance(id: &str) -> Call<Maintenance> {
    Call::get(path(&["v1", "regions", id, "maintenance"]))
}

/// Cancels maintenance; nodes accept new attempts again immediately.
pub fn cancel_maintenance(id: &str) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "regions", id, "maintenance"]))
}
