//! The published placement policies, scored exactly as by their authors.
//!
//! All but Random give each feasible node an integer score. The highest score wins; among equals,
//! the first node in the seed's order. Rounding down is part of each policy, because it creates
//! ties.

use bursar_core::cell::nodes::node::{GpuSet, Node};
use bursar_core::cell::schedule::demand::Demand;
use bursar_core::cell::schedule::score::{placement_cost, scarcity_cost};
use bursar_core::cell::schedule::shape::{GpuDemand, ModelId, Shape, ShapeId, Shapes, WHOLE_GPU};
use bursar_core::cell::schedule::supply::Supply;

use crate::placement::Host;

/// Scores nodes for a shape.
pub trait Scorer {
    /// Called before a task is placed. Returns whether earlier scores are invalid.
    fn arrived(&mut self, _shape: ShapeId) -> bool {
        false
    }

    /// The score of a node that fits; higher is better. Depends only on the host and the shape.
    fn score(&self, host: &Host, shape: &Shape) -> i64;

    /// The devices to use on the chosen node. `None` if there are too few.
    fn devices(&self, host: &Host, shape: &Shape) -> Option<GpuSet> {
        host.node.pick_gpus(shape.gpu)
    }

    /// The amount added to the score of every node of a model, in the current state.
    fn score_of_model(&self, _model: ModelId, _shape: &Shape) -> i64 {
        0
    }

    /// Called after a task was placed.
    fn placed(&mut self, _model: ModelId, _shape: &Shape) {}
}

/// The score of the cell. It starts without knowledge of the workload and learns it from arrivals.
pub struct Bursar {
    shapes: Shapes,
    demand: Demand,
    supply: Supply,
}

impl Bursar {
    /// Knows only the nodes.
    pub fn new(hosts: &[Host], shapes: &Shapes) -> Bursar {
        let mut supply = Supply::default();
        for host in hosts {
            supply.join(&host.node.state(), host.node.spec().gpus);
        }
        Bursar { shapes: shapes.clone(), demand: Demand::default(), supply }
    }
}

impl Scorer for Bursar {
    fn arrived(&mut self, shape: ShapeId) -> bool {
        self.demand.observe(shape, 1);
        self.demand.refresh(&self.shapes)
    }

    fn score(&self, host: &Host, shape: &Shape) -> i64 {
        let cost = placement_cost(&host.node.state(), shape, self.demand.mix());
        -cost.expect("only hosts with room are scored").0
    }

    fn score_of_model(&self, model: ModelId, shape: &Shape) -> i64 {
        -scarcity_cost(shape, self.demand.mix().scarcity(model, &self.supply)).0
    }

    fn placed(&mut self, model: ModelId, shape: &Shape) {
        self.supply.take(model, shape.gpu.total());
    }
}

/// The largest machine of the published clusters, used to scale scores.
const LARGEST_CPU_MILLI: f64 = 128_000.0;
const LARGEST_GPU_THOUSANDTHS: f64 = 8_000.0;

/// Free CPU and GPU as fractions of the largest machine.
fn free_shares(node: &Node) -> (f64, f64) {
    (
        f64::from(node.free_cpu_milli()) / LARGEST_CPU_MILLI,
        f64::from(node.free_gpu_thousandths()) / LARGEST_GPU_THOUSANDTHS,
    )
}

/// Requested CPU and GPU as fractions of the largest machine.
fn asked_shares(shape: &Shape) -> (f64, f64) {
    (
        f64::from(shape.cpu_milli) / LARGEST_CPU_MILLI,
        f64::from(shape.gpu.total()) / LARGEST_GPU_THOUSANDTHS,
    )
}

/// The node with the least left over; CPU and GPU have equal weight.
pub struct BestFit;

impl Scorer for BestFit {
    fn score(&self, host: &Host, shape: &Shape) -> i64 {
        let (free_cpu, free_gpu) = free_shares(&host.node);
        let (cpu, gpu) = asked_shares(shape);
        let left = 0.5 * (free_cpu - cpu) + 0.5 * (free_gpu - gpu);
        (100.0 * (1.0 - left)) as i64
    }
}

/// The node whose free resources are least aligned with the request.
pub struct DotProduct;

impl Scorer for DotProduct {
    fn score(&self, host: &Host, shape: &Shape) -> i64 {
        let (free_cpu, free_gpu) = free_shares(&host.node);
        let (cpu, gpu) = asked_shares(shape);
        (100.0 * (1.0 - (free_cpu * cpu + free_gpu * gpu) / 2.0)) as i64
    }
}

/// Prefers shared GPUs, then free GPUs of used nodes, then empty nodes.
pub struct Packing;

impl Scorer for Packing {
    fn score(&self, host: &Host, shape: &Shape) -> i64 {
        if shape.gpu == GpuDemand::None {
            return 0;
        }
        let untouched = i64::from(host.node.untouched_gpus());
        if untouched == i64::from(host.node.spec().gpus) {
            return (33 - untouched).max(untouched);
        }
        let fitting = host.node.free_gpus().iter().filter(|free| **free >= shape.gpu.per_device());
        match fitting.min() {
            Some(free) if *free < WHOLE_GPU => 100 - i64::from(*free) / 10 / 10,
            _ => (50 - i64::from(shape.gpu.devices())).max(33),
        }
    }
}

/// Prefers nodes that already run tasks of the same GPU size, so that sizes stay separate.
pub struct Clustering;

impl Scorer for Clustering {
    fn score(&self, host: &Host, shape: &Shape) -> i64 {
        if shape.gpu == GpuDemand::None {
            return 0;
        }
        let same = host.sizes & size_class(shape.gpu) != 0;
        let band = match (same, host.sizes.count_ones()) {
            (true, 1) => 75,
            (true, _) => 50,
            (false, 0) => 25,
            (false, _) => 0,
        };
        band + 25 * (8_000 - i64::from(host.node.free_gpu_thousandths())) / 8_000
    }
}

/// One bit per GPU size: shares, then 1, 2, 3… whole GPUs. Zero for tasks without a GPU.
pub fn size_class(gpu: GpuDemand) -> u64 {
    match gpu {
        GpuDemand::None => 0,
        GpuDemand::Share(_) => 1,
        GpuDemand::Whole(count) => 1 << count.min(63),
    }
}

/// Fragmentation-gradient descent (ATC'23): the node whose free GPUs become least fragmented for
/// the typical tasks of the workload.
pub struct Fgd {
    typical: Vec<TypicalTask>,
}

/// A task type, without its memory, and its frequency.
struct TypicalTask {
    shape: Shape,
    popularity: f64,
}

/// The free resources of a node. A copy, so that a placement can be tried.
struct FreeResources<'a> {
    node: &'a Node,
    cpu_milli: u32,
    gpus: smallvec::SmallVec<[u16; 8]>,
}

impl Fgd {
    /// Uses the most popular task types until they make up 95 % of all tasks.
    pub fn new<'a>(tasks: impl Iterator<Item = &'a Shape>) -> Fgd {
        let mut counts = std::collections::BTreeMap::new();
        let mut total = 0u64;
        for task in tasks {
            // The authors consider only CPU and GPU.
            let kind = Shape { memory_mib: 0, ..task.clone() };
            *counts.entry(kind).or_insert(0u64) += 1;
            total += 1;
        }
        let mut kinds: Vec<_> = counts.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut covered = 0;
        let cut = kinds.iter().position(|(_, count)| {
            covered += count;
            covered * 100 >= total * 95
        });
        kinds.truncate(cut.map_or(kinds.len(), |last| last + 1));
        let kept: u64 = kinds.iter().map(|(_, count)| count).sum();
        let typical = kinds
            .into_iter()
            .map(|(shape, count)| TypicalTask { shape, popularity: count as f64 / kept as f64 })
            .collect();
        Fgd { typical }
    }

    /// GPU thousandths of a node that typical tasks cannot use, on average.
    fn fragments(&self, remains: &FreeResources<'_>) -> f64 {
        let idle: u32 = remains.gpus.iter().map(|free| u32::from(*free)).sum();
        let lost = |task: &Shape| {
            let per_device = task.gpu.per_device();
            let fitting = remains.gpus.iter().filter(|free| **free >= per_device).count();
            let fits = task.gpu != GpuDemand::None
                && task.allows(remains.node.model())
                && remains.cpu_milli >= task.cpu_milli
                && fitting >= usize::from(task.gpu.devices());
            if !fits {
                return idle;
            }
            let too_small = remains.gpus.iter().filter(|free| **free < per_device);
            too_small.map(|free| u32::from(*free)).sum()
        };
        self.typical.iter().map(|task| task.popularity * f64::from(lost(&task.shape))).sum()
    }

    /// The score of using these devices, from 0 to 100.
    fn score_of(&self, node: &Node, before: f64, shape: &Shape, gpus: GpuSet) -> i64 {
        let mut after = FreeResources {
            node,
            cpu_milli: node.free_cpu_milli() - shape.cpu_milli,
            gpus: smallvec::SmallVec::from_slice(node.free_gpus()),
        };
        for device in gpus.iter() {
            after.gpus[device] -= shape.gpu.per_device();
        }
        let gain = (before - self.fragments(&after)) / 1000.0;
        (100.0 / (1.0 + (-gain).exp())) as i64
    }

    /// The best score on a node, and its devices.
    fn best(&self, node: &Node, shape: &Shape) -> Option<(i64, GpuSet)> {
        let before = self.fragments(&FreeResources {
            node,
            cpu_milli: node.free_cpu_milli(),
            gpus: smallvec::SmallVec::from_slice(node.free_gpus()),
        });
        let GpuDemand::Share(share) = shape.gpu else {
            let gpus = node.pick_gpus(shape.gpu)?;
            return Some((self.score_of(node, before, shape, gpus), gpus));
        };
        let mut best: Option<(i64, GpuSet)> = None;
        for (device, free) in node.free_gpus().iter().enumerate() {
            if *free < share {
                continue;
            }
            let gpus = GpuSet::from_indexes([device])?;
            let score = self.score_of(node, before, shape, gpus);
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, gpus));
            }
        }
        best
    }
}

impl Scorer for Fgd {
    fn score(&self, host: &Host, shape: &Shape) -> i64 {
        self.best(&host.node, shape).map_or(0, |(score, _)| score)
    }

    fn devices(&self, host: &Host, shape: &Shape) -> Option<GpuSet> {
        self.best(&host.node, shape).map(|(_, gpus)| gpus)
    }
}
