//! The map of a region, and its figures over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::amount::Sum;
use bursar_api::nodes::map::{
    GpuUse, LargestGang, MapGpu, MapNode, MapQuery, RegionMap, RegionMetric, RegionPoint,
    RegionSeries, RegionSeriesQuery,
};
use bursar_core::cell::ids::JobId;
use bursar_core::cell::nodes::view::{HeldDevices, NodeView};
use bursar_core::cell::{Cell, NodeKey};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;

use super::regions::{all_known_jobs, cell_of};
use super::{WHOLE_GPU_MILLI, place_after, read_place, state};
use crate::app::App;
use crate::auth::Principal;
use crate::followers::region_samples::RegionSample;
use crate::http::convert::instant;
use crate::http::extract::{Params, Path};
use crate::http::respond::{Answer, json};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// Jobs and accounts that the caller cannot see.
const OTHER: &str = "other";
/// The time that a series covers if it is not given: a day.
const DEFAULT_SPAN_MS: i64 = 24 * 3600 * 1000;

/// A part of a GPU, from thousandths.
fn part(thousandths: u16) -> Sum {
    Sum::from_thousandths(thousandths)
}

/// A node as the cell knows it: which job has which device.
struct MappedNode {
    node: MapNode,
    key: NodeKey,
    /// For each use of a GPU: the device, its place among the uses, and the job.
    uses: Vec<(usize, usize, JobId)>,
}

fn look_at(cell: &Cell, view: &NodeView<'_>) -> MappedNode {
    let offer = view.offer;
    let key = NodeKey::new(offer.name.as_str(), offer.scope.as_deref());
    let gpu = |device: usize| MapGpu {
        uuid: offer.uuids.get(device).map(ToString::to_string).unwrap_or_default(),
        kind: offer.model.to_string(),
        used: Vec::new(),
    };
    let mut node = MapNode {
        id: offer.name.to_string(),
        rack: Some(offer.rack.to_string()).filter(|rack| !rack.is_empty()),
        state: state(view),
        gpus: (0..view.free.len()).map(gpu).collect(),
    };
    let mut uses = Vec::new();
    for HeldDevices { attempt, devices, thousandths, is_running } in cell.held_devices(&key) {
        for device in devices {
            let Some(gpu) = node.gpus.get_mut(device) else { continue };
            let (job, account) = (OTHER.to_owned(), OTHER.to_owned());
            uses.push((device, gpu.used.len(), attempt.job));
            gpu.used.push(GpuUse { job, account, share: part(thousandths), running: is_running });
        }
    }
    MappedNode { node, key, uses }
}

/// The largest gang of each type on nodes that take work: of all numbers of GPUs per node the one with
/// the most GPUs in total, on the fewest nodes.
fn largest_gangs<'a>(nodes: impl Iterator<Item = NodeView<'a>>) -> Vec<LargestGang> {
    // How many nodes have exactly so many whole GPUs free.
    let mut free: BTreeMap<&str, BTreeMap<u32, u32>> = BTreeMap::new();
    for view in nodes.filter(NodeView::is_open) {
        let whole = view.free.iter().filter(|free| **free == WHOLE_GPU_MILLI).count();
        let counts = free.entry(view.offer.model.as_str()).or_default();
        *counts.entry(u32::try_from(whole).unwrap_or(0)).or_default() += 1;
    }
    let gang = |(kind, counts): (&str, BTreeMap<u32, u32>)| {
        let mut nodes = 0;
        let mut best = LargestGang { kind: kind.to_owned(), gpus: 0, nodes: 0, gpus_per_node: 0 };
        for (gpus_per_node, count) in counts.into_iter().rev().filter(|(gpus, _)| *gpus > 0) {
            nodes += count;
            let gpus = nodes.saturating_mul(gpus_per_node);
            if gpus > best.gpus {
                best = LargestGang { gpus, nodes, gpus_per_node, ..best };
            }
        }
        best
    };
    free.into_iter().map(gang).collect()
}

/// A page of a map before the names of jobs are known.
struct Page {
    nodes: Vec<MappedNode>,
    has_more: bool,
    largest_gang: Vec<LargestGang>,
    at: Timestamp,
}

fn look(cell: &Cell, principal: &Principal, size: usize, after: Option<&NodeKey>) -> Page {
    let seen = |view: &NodeView<'_>| principal.sees_node(view.offer.scope.as_deref());
    let page = cell.nodes_by_name(after).filter(seen).take(size + 1);
    let mut nodes: Vec<MappedNode> = page.map(|view| look_at(cell, &view)).collect();
    let has_more = nodes.len() > size;
    nodes.truncate(size);
    let largest_gang = largest_gangs(cell.nodes().filter(seen));
    Page { nodes, has_more, largest_gang, at: cell.now() }
}

/// The nodes and GPUs of a region, and the jobs that have them.
///
/// Jobs and accounts outside the key's scope appear as `other`.
#[utoipa::path(get, path = "/v1/regions/{id}/map", tag = "nodes", operation_id = "get_region_map",
    params(("id" = String, Path, description = "The region's name"), MapQuery),
    responses((status = 200, description = "The map", body = RegionMap)))]
pub(in crate::http) async fn map(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<MapQuery>,
) -> Answer {
    caller.principal.require(Operation::GetRegionMap)?;
    let size = match query.limit.unwrap_or(250) {
        limit @ 1..=1000 => limit as usize,
        _ => return Err(Failure::invalid("limit", "must be between 1 and 1000")),
    };
    let after = read_place(query.cursor.as_deref())?;
    let cell = cell_of(&app, &id)?;
    let principal = caller.principal.clone();
    let page = cell.look(move |cell| look(cell, &principal, size, after.as_ref())).await?;
    let mut jobs: Vec<JobId> =
        page.nodes.iter().flat_map(|node| node.uses.iter().map(|(_, _, job)| *job)).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let known = all_known_jobs(&app, jobs).await?;
    let next = page.nodes.last().filter(|_| page.has_more);
    let next_cursor = next.map(|node| place_after(&node.key));
    let named = |mut looked: MappedNode| {
        for (device, place, job) in looked.uses {
            let Some((name, account, _, _)) = known.get(&job) else { continue };
            if caller.principal.sees(account) {
                let used = &mut looked.node.gpus[device].used[place];
                (used.job, used.account) = (name.to_string(), account.to_string());
            }
        }
        looked.node
    };
    let map = RegionMap {
        region: id,
        nodes: page.nodes.into_iter().map(named).collect(),
        has_more: page.has_more,
        next_cursor,
        largest_gang: page.largest_gang,
        as_of: time(page.at),
    };
    Ok(json(StatusCode::OK, &map))
}

/// The figure of a sample for a caller; `None` if it was not recorded.
fn figure(sample: &RegionSample, metric: RegionMetric, principal: &Principal) -> Option<Sum> {
    match metric {
        RegionMetric::GpusAllocated => {
            Some(Sum::from_thousandths(sample.gpus_seen(principal).allocated))
        }
        RegionMetric::GpusUsable => Some(Sum::from_thousandths(sample.gpus_seen(principal).usable)),
        RegionMetric::JobsWaiting => {
            sample.jobs_of(principal).map(|counts| Sum::from_whole(counts.waiting))
        }
        RegionMetric::JobsRunning => {
            sample.jobs_of(principal).map(|counts| Sum::from_whole(counts.running))
        }
    }
}

/// Evenly spaced instants, the first and last included.
fn instants(
    query: &RegionSeriesQuery,
    now: Timestamp,
) -> Result<impl Iterator<Item = Timestamp> + use<>, Failure> {
    let to = query.to.map_or(now, instant);
    let from = query.from.map_or(to.plus_millis(-DEFAULT_SPAN_MS), instant);
    if from >= to {
        return Err(Failure::invalid("from", "must be before `to`"));
    }
    let points = match query.points.unwrap_or(200) {
        points @ 2..=1000 => i64::from(points),
        _ => return Err(Failure::invalid("points", "must be between 2 and 1000")),
    };
    let (first, span) = (i128::from(from.millis()), i128::from(to.millis() - from.millis()));
    Ok((0..points).map(move |point| {
        let at = first + span * i128::from(point) / i128::from(points - 1);
        Timestamp::from_millis(i64::try_from(at).unwrap_or(i64::MAX))
    }))
}

/// A figure of a region over time.
///
/// Figures are recorded at the end of each minute, for 100 days with a growing distance, and begin
/// anew when the server starts.
#[utoipa::path(get, path = "/v1/regions/{id}/series", tag = "nodes",
    operation_id = "get_region_series",
    params(("id" = String, Path, description = "The region's name"), RegionSeriesQuery),
    responses((status = 200, description = "The series", body = RegionSeries)))]
pub(in crate::http) async fn series(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<RegionSeriesQuery>,
) -> Answer {
    caller.principal.require(Operation::GetRegionSeries)?;
    let cell = cell_of(&app, &id)?;
    let (now, metric) = (app.clock.now(), query.metric);
    let instants = instants(&query, now)?;
    let present = cell.look(move |cell| RegionSample::take(cell, now)).await?;
    let samples = cell.samples();
    let principal = &caller.principal;
    let value = |at: Timestamp| {
        if at > now {
            return None;
        }
        if samples.present_from().is_none_or(|from| at >= from) {
            return figure(&present, metric, principal);
        }
        samples.at(at).and_then(|sample| figure(&sample, metric, principal))
    };
    let point = |at: Timestamp| Some(RegionPoint { at: time(at), value: value(at)? });
    let points = instants.filter_map(point).collect();
    drop(samples);
    let series = RegionSeries { region: id, metric, points, as_of: time(now) };
    Ok(json(StatusCode::OK, &series))
}
