//! Typical work of a cell, for which placement keeps room.
//!
//! [`Demand`] counts the requested shapes, and older requests count less and less. From time to
//! time the counts are condensed into a [`DemandMix`], against which nodes are scored. A mix
//! changes rarely and has a version, so scores are cached for as long as it is current.

mod image;

use std::collections::BTreeMap;

use super::shape::{GpuDemand, ModelId, Shape, ShapeId, Shapes, WHOLE_GPU};
use super::supply::Supply;
use crate::cell::index::interner::InternedId;
use crate::cell::nodes::node::NodeState;

pub use image::{DemandImage, KindImage, MixImage};

/// The weights of a mix add up to about this: one in fixed point with 16 fraction bits.
pub const ONE: u64 = 1 << 16;

/// Kinds are kept in the order of their weight until they cover this percentage of all requests.
/// The rest is noise that only costs time.
const COVERED_PERCENT: u64 = 95;

/// What a job needs on a node, as far as fragmentation is concerned. Main memory and labels are
/// left out: they rarely matter and would multiply the kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Kind {
    gpu: GpuDemand,
    cpu_milli: u32,
    restriction: Restriction,
}

/// The models that a kind accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Restriction {
    /// In rising order. Empty: any model.
    models: Vec<ModelId>,
    /// Least memory of each GPU, in MiB.
    gpu_memory_mib: u32,
}

impl Restriction {
    fn of(shape: &Shape) -> Restriction {
        let mut models = shape.models.to_vec();
        models.sort_unstable();
        models.dedup();
        Restriction { models, gpu_memory_mib: shape.gpu_memory_mib }
    }

    fn allows(&self, model: ModelId, gpu_memory_mib: u32) -> bool {
        gpu_memory_mib >= self.gpu_memory_mib
            && (self.models.is_empty() || self.models.binary_search(&model).is_ok())
    }

    fn is_none(&self) -> bool {
        self.models.is_empty() && self.gpu_memory_mib == 0
    }
}

/// The typical work of a cell, condensed for scoring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DemandMix {
    version: u64,
    /// Kinds that need GPUs, grouped by what they need of each device, in rising order.
    levels: Vec<Level>,
    /// The weight of kinds that use no GPU.
    without_gpu: u64,
    /// The weight of all kinds.
    weight: u64,
    /// Average CPU and memory per whole GPU.
    pub(super) cpu_milli_per_gpu: u64,
    pub(super) memory_mib_per_gpu: u64,
    /// GPU demand that only some models can serve, in parts of [`ONE`] of all GPU demand.
    restricted: Vec<(Restriction, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Level {
    /// Thousandths of each device.
    per_device: u16,
    kinds: Vec<(Kind, u64)>,
    /// The weight of all of `kinds`.
    weight: u64,
    /// The kinds that any model can serve, reduced to what a score needs: adding these up is most
    /// of the cost of a decision.
    plain: Vec<Plain>,
    /// The most devices and the most CPU that one of `plain` needs, and the weight of all.
    most: Plain,
    /// Indexes in `kinds` of the kinds that only some models can serve.
    restricted: Vec<usize>,
}

/// What a kind needs besides its part of each device, and its weight.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Plain {
    devices: u16,
    cpu_milli: u32,
    weight: u64,
}

impl Plain {
    fn fits(&self, devices: u16, free_cpu_milli: u32) -> bool {
        devices >= self.devices && free_cpu_milli >= self.cpu_milli
    }
}

impl Level {
    fn new(per_device: u16, kinds: Vec<(Kind, u64)>) -> Level {
        let weight = kinds.iter().map(|(_, weight)| weight).sum();
        let is_restricted = |index: &usize| !kinds[*index].0.restriction.is_none();
        let restricted: Vec<usize> = (0..kinds.len()).filter(is_restricted).collect();
        let plain: Vec<Plain> = kinds
            .iter()
            .filter(|(kind, _)| kind.restriction.is_none())
            .map(|(kind, weight)| Plain {
                devices: kind.gpu.devices(),
                cpu_milli: kind.cpu_milli,
                weight: *weight,
            })
            .collect();
        let most = plain.iter().fold(Plain::default(), |most, kind| Plain {
            devices: most.devices.max(kind.devices),
            cpu_milli: most.cpu_milli.max(kind.cpu_milli),
            weight: most.weight + kind.weight,
        });
        Level { per_device, kinds, weight, plain, most, restricted }
    }

    /// The weight of the kinds that fit a node on which `devices` devices have enough left.
    fn fitting(&self, devices: u16, state: &NodeState) -> u64 {
        let cpu = state.free_cpu_milli;
        let plain = if self.most.fits(devices, cpu) {
            self.most.weight
        } else {
            self.plain.iter().filter(|kind| kind.fits(devices, cpu)).map(|kind| kind.weight).sum()
        };
        let restricted = self.restricted.iter().map(|index| &self.kinds[*index]);
        let fitting = restricted.filter(|(kind, _)| {
            devices >= kind.gpu.devices()
                && cpu >= kind.cpu_milli
                && kind.restriction.allows(state.model, state.gpu_memory_mib)
        });
        plain + fitting.map(|(_, weight)| weight).sum::<u64>()
    }
}

impl Default for DemandMix {
    /// The mix before any request: jobs of one GPU.
    fn default() -> DemandMix {
        let shape = Shape::of_gpus(GpuDemand::Whole(1));
        DemandMix::new(0, [(&shape, 1)])
    }
}

impl DemandMix {
    /// Condenses shapes with their weights. Their order does not matter.
    pub fn new<'a>(version: u64, shapes: impl IntoIterator<Item = (&'a Shape, u64)>) -> DemandMix {
        let mut weights: BTreeMap<Kind, u64> = BTreeMap::new();
        let mut restricted: BTreeMap<Restriction, u128> = BTreeMap::new();
        let (mut gpu, mut cpu, mut memory) = (0u128, 0u128, 0u128);
        for (shape, weight) in shapes {
            let restriction = Restriction::of(shape);
            let asked = u128::from(shape.gpu.total()) * u128::from(weight);
            if shape.gpu != GpuDemand::None {
                gpu += asked;
                cpu += u128::from(shape.cpu_milli) * u128::from(weight);
                memory += u128::from(shape.memory_mib) * u128::from(weight);
            }
            if asked > 0 && !restriction.is_none() {
                *restricted.entry(restriction.clone()).or_default() += asked;
            }
            let kind = Kind { gpu: shape.gpu, cpu_milli: shape.cpu_milli, restriction };
            *weights.entry(kind).or_default() += weight;
        }
        // Averages of 32-bit numbers and fractions of one: they fit.
        let per_gpu =
            |sum: u128| (sum * u128::from(WHOLE_GPU)).checked_div(gpu).unwrap_or(0) as u64;
        let share = |asked: u128| (asked * u128::from(ONE)).checked_div(gpu).unwrap_or(0) as u64;
        let (levels, without_gpu) = condense(weights);
        DemandMix {
            version,
            weight: weight_of(&levels, without_gpu),
            levels,
            without_gpu,
            cpu_milli_per_gpu: per_gpu(cpu),
            memory_mib_per_gpu: per_gpu(memory),
            restricted: restricted.into_iter().map(|(set, asked)| (set, share(asked))).collect(),
        }
    }

    /// Changes whenever scores may change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// GPU thousandths of a node that typical work cannot use, on average, times [`ONE`].
    ///
    /// Work that does not fit can use no idle GPU. Work that fits can use every device with enough
    /// left for it.
    pub fn fragments(&self, state: &NodeState) -> u64 {
        let idle = state.free_gpu_thousandths();
        let mut lost = self.weight * idle;
        // Devices and levels are in rising order: a device too full for one level is too full for
        // the next ones.
        let (mut fitting, mut usable) = (state.free_gpus.as_slice(), idle);
        for level in &self.levels {
            while let Some((fullest, rest)) = fitting.split_first()
                && *fullest < level.per_device
            {
                usable -= u64::from(*fullest);
                fitting = rest;
            }
            if fitting.is_empty() {
                break;
            }
            // At most 64 devices.
            lost -= usable * level.fitting(fitting.len() as u16, state);
        }
        lost
    }

    /// How scarce a model is: thousandths of a GPU of later work displaced for each GPU of the
    /// model taken now.
    ///
    /// Demand that only some models can serve is compared with what is free of them. So work that
    /// could run anywhere avoids the models that other work depends on, the more so the fuller they
    /// are.
    pub fn scarcity(&self, model: ModelId, supply: &Supply) -> u32 {
        let Some(own) = supply.models.get(model.index()) else { return 0 };
        let mut scarcity = 0u64;
        for (restriction, share) in &self.restricted {
            if !restriction.allows(model, own.gpu_memory_mib) {
                continue;
            }
            let allowed =
                supply.models.iter().zip(0u32..).filter(|(entry, index)| {
                    restriction.allows(ModelId(*index), entry.gpu_memory_mib)
                });
            let free: u64 = allowed.map(|(entry, _)| entry.free).sum();
            // The restricted demand if requests equalled the cell's capacity.
            let asked = u128::from(*share) * u128::from(supply.capacity) / u128::from(ONE);
            let ratio = asked * 1000 / u128::from(free.max(u64::from(WHOLE_GPU)));
            // The sum is capped, so an overflowing ratio may be the cap.
            scarcity += u64::try_from(ratio).unwrap_or(u64::MAX).min(MAX_SCARCE);
        }
        scarcity.min(MAX_SCARCE) as u32
    }
}

/// The cap on scarcity: ten GPUs of demand for each free one.
const MAX_SCARCE: u64 = 10_000;

/// The weight of all kinds of a mix.
fn weight_of(levels: &[Level], without_gpu: u64) -> u64 {
    levels.iter().map(|level| level.weight).sum::<u64>() + without_gpu
}

/// Keeps the heaviest kinds, scales their weights to [`ONE`] and groups them.
fn condense(weights: BTreeMap<Kind, u64>) -> (Vec<Level>, u64) {
    let total: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
    let mut kinds: Vec<(Kind, u64)> = weights.into_iter().collect();
    // Stable: equal weights stay in the order of their kinds.
    kinds.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    let mut kept = 0u128;
    let cut = kinds.iter().position(|(_, weight)| {
        kept += u128::from(*weight);
        kept * 100 >= total * u128::from(COVERED_PERCENT)
    });
    kinds.truncate(cut.map_or(0, |last| last + 1));
    let mut levels: BTreeMap<u16, Vec<(Kind, u64)>> = BTreeMap::new();
    for (kind, weight) in kinds {
        // A part of one: it fits.
        let scaled = (u128::from(weight) * u128::from(ONE)).checked_div(kept).unwrap_or(0) as u64;
        levels.entry(kind.gpu.per_device()).or_default().push((kind, scaled));
    }
    let idle_kinds = levels.remove(&0).unwrap_or_default();
    let without_gpu = idle_kinds.iter().map(|(_, weight)| weight).sum();
    let levels =
        levels.into_iter().map(|(per_device, kinds)| Level::new(per_device, kinds)).collect();
    (levels, without_gpu)
}

/// Counts requested shapes and condenses them into a mix from time to time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Demand {
    /// By shape id.
    counts: Vec<u64>,
    total: u64,
    /// Observations since the mix was computed.
    news: u64,
    mix: DemandMix,
}

/// When the total reaches this, all counts are halved, so that old requests decay.
const MEMORY: u64 = 65_536;

/// A mix is recomputed after at least this many observations.
const MIN_CHANGES: u64 = 16;

impl Demand {
    /// Counts a shape that a job requests on `nodes` nodes.
    pub fn observe(&mut self, shape: ShapeId, nodes: u32) {
        let index = shape.index();
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += u64::from(nodes);
        self.total += u64::from(nodes);
        self.news += u64::from(nodes);
        if self.total >= MEMORY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// Recomputes the mix if enough was observed, and returns whether it did.
    ///
    /// The mix is recomputed when a quarter of the total is new: often at first, once in thousands
    /// of jobs later.
    pub fn refresh(&mut self, shapes: &Shapes) -> bool {
        if self.news < MIN_CHANGES || self.news < self.total / 4 {
            return false;
        }
        let counted = shapes.values().iter().zip(self.counts.iter().copied());
        self.mix = DemandMix::new(self.mix.version + 1, counted.filter(|(_, count)| *count > 0));
        self.news = 0;
        true
    }

    /// The current mix.
    pub fn mix(&self) -> &DemandMix {
        &self.mix
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smallvec::SmallVec;

    use super::*;

    fn state(model: u32, free_cpu_milli: u32, free_gpus: &[u16]) -> NodeState {
        let mut free_gpus = SmallVec::from_slice(free_gpus);
        free_gpus.sort_unstable();
        let (gpu_memory_mib, free_memory_mib) = (40_960, 524_288);
        NodeState {
            model: ModelId(model),
            gpu_memory_mib,
            free_cpu_milli,
            free_memory_mib,
            free_gpus,
        }
    }

    fn on_models(gpu: GpuDemand, models: &[u32]) -> Shape {
        let models = models.iter().copied().map(ModelId).collect();
        Shape { models, ..Shape::of_gpus(gpu) }
    }

    #[test]
    fn fragments_are_the_idle_gpus_that_typical_work_cannot_use() {
        let half = Shape::of_gpus(GpuDemand::Share(500));
        let pair = Shape { cpu_milli: 8000, ..Shape::of_gpus(GpuDemand::Whole(2)) };
        let mix = DemandMix::new(1, [(&half, 1), (&pair, 1)]);
        // Halves cannot use the device with 400 left; pairs cannot use the two partly used devices.
        let lost = (400 + 400 + 700) * ONE / 2;
        assert_eq!(mix.fragments(&state(0, 8000, &[1000, 400, 700, 1000])), lost);
        // With too little CPU for a pair, pairs cannot use any device.
        let lost = (400 + 3100) * ONE / 2;
        assert_eq!(mix.fragments(&state(0, 7999, &[1000, 400, 700, 1000])), lost);
    }

    #[test]
    fn work_without_gpus_or_for_other_models_can_use_nothing() {
        let on_cpu = Shape { cpu_milli: 1000, ..Shape::of_gpus(GpuDemand::None) };
        let elsewhere = on_models(GpuDemand::Whole(1), &[3]);
        let larger = Shape { gpu_memory_mib: 81_920, ..Shape::of_gpus(GpuDemand::Whole(1)) };
        let mix = DemandMix::new(1, [(&on_cpu, 1), (&elsewhere, 2), (&larger, 1)]);
        assert_eq!(mix.fragments(&state(0, 64_000, &[1000; 8])), 8000 * ONE);
        assert_eq!(mix.fragments(&state(3, 64_000, &[1000; 8])), 8000 * ONE / 2);
    }

    #[test]
    fn a_model_is_scarce_when_others_depend_on_it_and_little_is_free() {
        let anywhere = Shape::of_gpus(GpuDemand::Whole(1));
        let only_second = on_models(GpuDemand::Whole(1), &[1]);
        let mix = DemandMix::new(1, [(&anywhere, 3), (&only_second, 1)]);
        let mut supply = Supply::default();
        (0..3).for_each(|_| supply.join(&state(0, 0, &[1000; 8]), 8));
        supply.join(&state(1, 0, &[1000; 8]), 8);
        assert_eq!(mix.scarcity(ModelId(0), &supply), 0);
        // A quarter of the demand for 32 GPUs can only use 8.
        assert_eq!(mix.scarcity(ModelId(1), &supply), 1000);
        supply.take(ModelId(1), 6000);
        assert_eq!(mix.scarcity(ModelId(1), &supply), 4000);
        supply.take(ModelId(1), 2000);
        assert_eq!(u64::from(mix.scarcity(ModelId(1), &supply)), 8000);
        supply.give(ModelId(1), 8000);
        assert_eq!(mix.scarcity(ModelId(1), &supply), 1000);
        assert_eq!(mix.scarcity(ModelId(9), &supply), 0);
    }

    #[test]
    fn a_memory_floor_makes_large_gpus_scarce() {
        let large = Shape { gpu_memory_mib: 80_000, ..Shape::of_gpus(GpuDemand::Whole(1)) };
        let mix = DemandMix::new(1, [(&large, 1)]);
        let mut supply = Supply::default();
        supply.join(&state(0, 0, &[1000; 8]), 8);
        supply.join(&NodeState { gpu_memory_mib: 81_920, ..state(1, 0, &[1000; 8]) }, 8);
        assert_eq!(mix.scarcity(ModelId(0), &supply), 0);
        assert_eq!(mix.scarcity(ModelId(1), &supply), 2000);
    }

    #[test]
    fn old_requests_decay() {
        let mut shapes = Shapes::new();
        let old = shapes.intern(Shape::of_gpus(GpuDemand::Whole(8)));
        let new = shapes.intern(Shape::of_gpus(GpuDemand::Share(500)));
        let mut demand = Demand::default();
        demand.observe(old, 1000);
        assert!(demand.refresh(&shapes));
        let halves_only = DemandMix::new(2, [(shapes.get(new), 1)]);
        let probe = state(0, 0, &[500, 1000, 1000]);
        assert_ne!(demand.mix().fragments(&probe), halves_only.fragments(&probe));
        (0..100_000).for_each(|_| demand.observe(new, 1));
        assert!(demand.refresh(&shapes));
        assert_eq!(demand.mix().fragments(&probe), halves_only.fragments(&probe));
        assert!(demand.total <= MEMORY);
    }

    #[test]
    fn a_mix_is_recomputed_often_at_first_and_rarely_later() {
        let mut shapes = Shapes::new();
        let only = shapes.intern(Shape::of_gpus(GpuDemand::Whole(1)));
        let mut demand = Demand::default();
        let mut refreshes = Vec::new();
        for job in 1..=100_000u32 {
            demand.observe(only, 1);
            if demand.refresh(&shapes) {
                refreshes.push(job);
            }
        }
        assert_eq!(refreshes[..3], [16, 32, 48]);
        assert!(refreshes.len() < 50, "{} in all", refreshes.len());
        assert_eq!(demand.mix().version(), refreshes.len() as u64);
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let gpu = prop_oneof![
            Just(GpuDemand::None),
            (1..WHOLE_GPU).prop_map(GpuDemand::Share),
            (1..9u16).prop_map(GpuDemand::Whole),
        ];
        (gpu, 0..100_000u32, prop::collection::vec(0..4u32, 0..3))
            .prop_map(|(gpu, cpu_milli, models)| Shape { cpu_milli, ..on_models(gpu, &models) })
    }

    proptest! {
        #[test]
        fn fragments_agree_with_a_literal_reading_of_the_definition(
            kinds in prop::collection::btree_set(shapes(), 4),
            cpu in 0..100_000u32,
            model in 0..4u32,
            gpus in prop::collection::vec(0..=WHOLE_GPU, 0..9),
        ) {
            let state = state(model, cpu, &gpus);
            let mix = DemandMix::new(1, kinds.iter().map(|kind| (kind, 1)));
            let idle: u64 = gpus.iter().map(|free| u64::from(*free)).sum();
            let mut lost = 0;
            for kind in &kinds {
                let large: Vec<u16> =
                    gpus.iter().copied().filter(|free| *free >= kind.gpu.per_device()).collect();
                let usable = kind.gpu != GpuDemand::None
                    && kind.allows(state.model)
                    && cpu >= kind.cpu_milli
                    && large.len() >= usize::from(kind.gpu.devices());
                let used: u64 = large.iter().map(|free| u64::from(*free)).sum();
                lost += if usable { idle - used } else { idle };
            }
            // Kinds that differ only in the order of their models are one kind, with the same sum.
            prop_assert_eq!(mix.fragments(&state), lost * (ONE / 4));
        }

        #[test]
        fn the_order_in_which_shapes_are_counted_does_not_matter(
            mut counted in prop::collection::vec((shapes(), 1..100u64), 1..40),
            turn in any::<prop::sample::Index>(),
        ) {
            let mix = |counted: &[(Shape, u64)]| {
                DemandMix::new(1, counted.iter().map(|(shape, weight)| (shape, *weight)))
            };
            let one = mix(&counted);
            let turn = turn.index(counted.len());
            counted.rotate_left(turn);
            prop_assert_eq!(one, mix(&counted));
        }
    }
}
