//! The published packing experiment: the share of GPUs in use as tasks arrive.
//!
//! Tasks arrive one after another and never leave. Each is offered once: it is placed or dropped.
//! The result is the share of all GPUs in use when the arrived tasks request x % of them.

use bursar_core::cell::index::interner::{InternedId, Interner};
use bursar_core::cell::nodes::node::{GpuSet, Node, NodeSpec, RackId};
use bursar_core::cell::schedule::shape::{GpuDemand, ModelId, Shape, ShapeId, Shapes};
use smallvec::SmallVec;

use crate::parallel::in_parallel;
use crate::policy::{BestFit, Bursar, Clustering, DotProduct, Fgd, Packing, Scorer, size_class};
use crate::random::Dice;
use crate::statistics::Spread;
use crate::traces::{NodeRow, TaskRow};

/// A placement policy of the study.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementPolicy {
    /// The policy of the cell.
    Bursar,
    /// Fragmentation-gradient descent.
    Fgd,
    /// The node with the least resources left over.
    BestFit,
    /// Shared GPUs first, then used nodes.
    Packing,
    /// Nodes that run tasks of the same size.
    Clustering,
    /// Alignment of the free resources with the requested ones.
    DotProd,
    /// Any node that fits.
    Random,
}

impl PlacementPolicy {
    /// All policies, ours first.
    pub const ALL: [PlacementPolicy; 7] = [
        PlacementPolicy::Bursar,
        PlacementPolicy::Fgd,
        PlacementPolicy::BestFit,
        PlacementPolicy::Packing,
        PlacementPolicy::Clustering,
        PlacementPolicy::DotProd,
        PlacementPolicy::Random,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            PlacementPolicy::Bursar => "bursar",
            PlacementPolicy::Fgd => "fgd",
            PlacementPolicy::BestFit => "bestfit",
            PlacementPolicy::Packing => "packing",
            PlacementPolicy::Clustering => "clustering",
            PlacementPolicy::DotProd => "dotprod",
            PlacementPolicy::Random => "random",
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<PlacementPolicy> {
        PlacementPolicy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// A node with the state that policies need.
#[derive(Clone, Debug)]
pub struct Host {
    /// The node.
    pub node: Node,
    /// The GPU sizes that run here, one bit each; see [`size_class`].
    pub sizes: u64,
    /// The number of changes to the node.
    changes: u32,
}

/// A cluster and the tasks that arrive.
pub struct Experiment {
    nodes: Vec<Node>,
    shapes: Shapes,
    /// In the order of their names.
    tasks: Vec<ShapeId>,
    capacity: u64,
    /// The number of models.
    models: u32,
}

/// GPUs in use, in per cent of all, by the per cent of all GPUs that the arrived tasks request.
pub type Curve = Vec<Option<f64>>;

/// The arrivals, in per cent of the capacity, at which results are reported.
pub const REPORTED: [usize; 6] = [80, 90, 95, 100, 110, 130];

/// GPUs in use at an arrival of `x` per cent over several seeds; `None` if a seed has no value
/// there.
pub fn spread_at(curves: &[Curve], x: usize) -> Option<Spread> {
    let values: Option<Vec<f64>> =
        curves.iter().map(|curve| curve.get(x).copied().flatten()).collect();
    Spread::of(&values?)
}

impl Experiment {
    /// The experiment on a cluster and a list of tasks. `None` if there is no GPU or no task that
    /// requests one, because then there is nothing to measure.
    pub fn new(nodes: &[NodeRow], tasks: &[TaskRow]) -> Option<Experiment> {
        let mut models: Interner<String, ModelId> = Interner::new();
        let nodes: Vec<Node> = nodes.iter().map(|row| node(row, &mut models)).collect();
        let capacity = nodes.iter().map(|node| u64::from(node.free_gpu_thousandths())).sum();
        if capacity == 0 || tasks.iter().all(|task| task.gpu == GpuDemand::None) {
            return None;
        }
        let mut by_name: Vec<&TaskRow> = tasks.iter().collect();
        by_name.sort_by(|one, other| one.name.cmp(&other.name));
        let mut shapes = Shapes::new();
        let tasks = by_name
            .into_iter()
            .map(|row| {
                shapes.intern(Shape {
                    gpu: row.gpu,
                    models: row.models.iter().map(|model| models.intern(model.clone())).collect(),
                    cpu_milli: row.cpu_milli,
                    memory_mib: row.memory_mib,
                    ..Shape::of_gpus(row.gpu)
                })
            })
            .collect();
        let models = u32::try_from(models.len()).expect("fewer models than rows in a file");
        Some(Experiment { nodes, shapes, tasks, capacity, models })
    }

    /// Runs one policy on many seeds, on all cores. Calls `done` after each.
    pub fn run_all(
        &self,
        policy: PlacementPolicy,
        seeds: &[u64],
        inflate: f64,
        done: &(dyn Fn() + Sync),
    ) -> Vec<Curve> {
        in_parallel(seeds, |seed| {
            let curve = self.run(policy, *seed, inflate);
            done();
            curve
        })
    }

    /// Runs one policy on one seed. Tasks arrive up to `inflate` times the capacity.
    pub fn run(&self, policy: PlacementPolicy, seed: u64, inflate: f64) -> Curve {
        let arrivals = self.arrivals(seed, inflate);
        let mut hosts = self.hosts(seed);
        let tasks = self.tasks.iter().map(|task| self.shapes.get(*task));
        match policy {
            PlacementPolicy::Bursar => {
                let scorer = Bursar::new(&hosts, &self.shapes);
                self.offer_all(&arrivals, &mut hosts, self.chooser(scorer))
            }
            PlacementPolicy::Fgd => {
                self.offer_all(&arrivals, &mut hosts, self.chooser(Fgd::new(tasks)))
            }
            PlacementPolicy::BestFit => {
                self.offer_all(&arrivals, &mut hosts, self.chooser(BestFit))
            }
            PlacementPolicy::Packing => {
                self.offer_all(&arrivals, &mut hosts, self.chooser(Packing))
            }
            PlacementPolicy::Clustering => {
                self.offer_all(&arrivals, &mut hosts, self.chooser(Clustering))
            }
            PlacementPolicy::DotProd => {
                self.offer_all(&arrivals, &mut hosts, self.chooser(DotProduct))
            }
            PlacementPolicy::Random => {
                let dice = Dice::new(seed, CHOICES);
                self.offer_all(&arrivals, &mut hosts, RandomChooser { dice })
            }
        }
    }

    fn chooser<S>(&self, scorer: S) -> Chooser<S> {
        Chooser { scorer, kept: vec![Vec::new(); self.shapes.len()], models: self.models }
    }

    /// The tasks in random order, then random copies of them up to `inflate` times the capacity.
    fn arrivals(&self, seed: u64, inflate: f64) -> Vec<ShapeId> {
        let mut arrivals = self.tasks.clone();
        Dice::new(seed, ORDER_OF_TASKS).shuffle(&mut arrivals);
        let limit = (inflate * self.capacity as f64) as u64;
        let mut asked: u64 =
            arrivals.iter().map(|task| u64::from(self.shapes.get(*task).gpu.total())).sum();
        let mut dice = Dice::new(seed, COPIES);
        loop {
            let copy = self.tasks[dice.below(self.tasks.len())];
            let gpu = self.shapes.get(copy).gpu;
            // The authors compare with the demand on one device; kept for comparability.
            if asked + u64::from(gpu.per_device()) > limit {
                return arrivals;
            }
            asked += u64::from(gpu.total());
            arrivals.push(copy);
        }
    }

    /// The empty nodes in random order.
    fn hosts(&self, seed: u64) -> Vec<Host> {
        let host = |node: &Node| Host { node: node.clone(), sizes: 0, changes: 0 };
        let mut hosts: Vec<Host> = self.nodes.iter().map(host).collect();
        Dice::new(seed, ORDER_OF_NODES).shuffle(&mut hosts);
        hosts
    }

    /// Offers each task once and measures after each.
    fn offer_all(
        &self,
        arrivals: &[ShapeId],
        hosts: &mut [Host],
        mut chooser: impl Choose,
    ) -> Curve {
        let mut meter = Meter { capacity: self.capacity, arrived: 0, used: 0, sums: Vec::new() };
        for task in arrivals {
            let shape = self.shapes.get(*task);
            let placed = chooser.choose(hosts, *task, shape);
            if let Some((place, gpus)) = placed {
                let host = &mut hosts[place];
                host.node.take(shape, gpus);
                host.sizes |= size_class(shape.gpu);
                host.changes += 1;
            }
            meter.record(shape.gpu, placed.is_some());
        }
        meter.curve()
    }
}

fn node(row: &NodeRow, models: &mut Interner<String, ModelId>) -> Node {
    Node::new(NodeSpec {
        model: models.intern(row.model.clone()),
        gpus: row.gpus,
        gpu_memory_mib: 0,
        cpu_milli: row.cpu_milli,
        memory_mib: row.memory_mib,
        labels: SmallVec::new(),
        scope: None,
        rack: RackId(0),
    })
    .expect("the reader refuses nodes with too many GPUs")
}

/// The random streams.
const ORDER_OF_TASKS: u64 = 0;
const COPIES: u64 = 1;
const ORDER_OF_NODES: u64 = 2;
const CHOICES: u64 = 3;

/// Computes the curve.
struct Meter {
    capacity: u64,
    arrived: u64,
    used: u64,
    /// By x: the sum of the shares in use, and the number of arrivals.
    sums: Vec<(f64, u32)>,
}

impl Meter {
    fn record(&mut self, gpu: GpuDemand, placed: bool) {
        self.arrived += u64::from(gpu.total());
        if placed {
            self.used += u64::from(gpu.total());
        }
        let capacity = self.capacity as f64;
        let x = (100.0 * self.arrived as f64 / capacity).round() as usize;
        if self.sums.len() <= x {
            self.sums.resize(x + 1, (0.0, 0));
        }
        self.sums[x].0 += 100.0 * self.used as f64 / capacity;
        self.sums[x].1 += 1;
    }

    fn curve(self) -> Curve {
        let mean = |(sum, count): (f64, u32)| (count > 0).then(|| sum / f64::from(count));
        self.sums.into_iter().map(mean).collect()
    }
}

/// Chooses the node and the devices for a task; `None` if it fits nowhere.
trait Choose {
    fn choose(&mut self, hosts: &[Host], id: ShapeId, shape: &Shape) -> Option<(usize, GpuSet)>;
}

/// Chooses the host with the highest score, the first one among equals.
///
/// A score depends only on the host and the shape, so it is cached until the host changes.
struct Chooser<S> {
    scorer: S,
    /// Cached scores, by shape, then by host.
    kept: Vec<Vec<CachedScore>>,
    models: u32,
}

#[derive(Copy, Clone)]
struct CachedScore {
    /// The number of changes of the host when it was scored.
    changes: u32,
    /// `None`: the shape does not fit.
    score: Option<i64>,
}

impl<S: Scorer> Choose for Chooser<S> {
    fn choose(&mut self, hosts: &[Host], id: ShapeId, shape: &Shape) -> Option<(usize, GpuSet)> {
        if self.scorer.arrived(id) {
            self.kept.iter_mut().for_each(Vec::clear);
        }
        let models = (0..self.models).map(ModelId);
        let of_model: SmallVec<[i64; 16]> =
            models.map(|model| self.scorer.score_of_model(model, shape)).collect();
        let kept = &mut self.kept[id.index()];
        kept.resize(hosts.len(), CachedScore { changes: u32::MAX, score: None });
        let mut best: Option<(i64, usize)> = None;
        for (place, (host, kept)) in hosts.iter().zip(kept).enumerate() {
            if kept.changes != host.changes {
                let fits = host.node.fits(shape);
                let score = fits.then(|| self.scorer.score(host, shape));
                *kept = CachedScore { changes: host.changes, score };
            }
            let Some(score) = kept.score else { continue };
            let score = score + of_model[host.node.model().index()];
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, place));
            }
        }
        let (_, place) = best?;
        let gpus = self.scorer.devices(&hosts[place], shape)?;
        self.scorer.placed(hosts[place].node.model(), shape);
        Some((place, gpus))
    }
}

/// Chooses any host that fits, and for a share any of its devices that fits.
struct RandomChooser {
    dice: Dice,
}

impl Choose for RandomChooser {
    fn choose(&mut self, hosts: &[Host], _: ShapeId, shape: &Shape) -> Option<(usize, GpuSet)> {
        let fitting: Vec<usize> =
            (0..hosts.len()).filter(|place| hosts[*place].node.fits(shape)).collect();
        if fitting.is_empty() {
            return None;
        }
        let place = fitting[self.dice.below(fitting.len())];
        let node = &hosts[place].node;
        let GpuDemand::Share(share) = shape.gpu else {
            return Some((place, node.pick_gpus(shape.gpu)?));
        };
        let devices = 0..node.free_gpus().len();
        let fitting: Vec<usize> =
            devices.filter(|device| node.free_gpus()[*device] >= share).collect();
        let device = fitting[self.dice.below(fitting.len())];
        Some((place, GpuSet::from_indexes([device])?))
    }
}
