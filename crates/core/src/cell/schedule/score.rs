//! The score of a placement: its cost in room for typical work.
//!
//! The cost has four parts, all in thousandths of a GPU and added without weights:
//! 1. Fragmentation: how much of the node's free GPUs typical work can no longer use
//!    ([`DemandMix::fragments`]).
//! 2. Stranding: free GPUs that would lack CPU or memory.
//! 3. Scarcity of the model ([`DemandMix::scarcity`]), the same for all nodes of a model.
//! 4. Among equals, the node with the lowest id, so that work consolidates.
//!
//! The first two depend only on the node's state, the shape and the mix, and are cached by these.
//! The third changes with every placement, but only per model.

use super::demand::{DemandMix, ONE};
use super::shape::{Shape, WHOLE_GPU};
use crate::cell::nodes::node::NodeState;

/// The cost of a placement; lower is better. In steps of ten thousandths of a GPU: smaller
/// differences are noise, and treating them as equal lets the order of nodes consolidate the work.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub i64);

/// Thousandths of a GPU in one step of [`Cost`].
const STEP: i64 = 10;

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost(self.0 + other.0)
    }
}

/// The cost of placing a shape on a node in this state, without the model's scarcity. `None` if
/// there is no room. A share goes to the fullest device with room for it.
///
/// Model, GPU memory, labels and drain are not checked here: see
/// [`Node::fits`](crate::cell::nodes::node::Node::fits).
pub fn placement_cost(state: &NodeState, shape: &Shape, mix: &DemandMix) -> Option<Cost> {
    placement_cost_from(useless(state, mix), state, shape, mix)
}

/// [`placement_cost`] for a state of which [`useless`] is known.
pub(crate) fn placement_cost_from(
    useless_before: u64,
    state: &NodeState,
    shape: &Shape,
    mix: &DemandMix,
) -> Option<Cost> {
    let after = state.after(shape)?;
    // At most 64 devices of 1000 thousandths, twice, in units of 2^-16: far below 2^63.
    let rise = useless(&after, mix) as i64 - useless_before as i64;
    Some(Cost(ceiling(rise, STEP * ONE as i64)))
}

/// GPU thousandths of a node that typical work cannot use, times [`ONE`].
pub(crate) fn useless(state: &NodeState, mix: &DemandMix) -> u64 {
    mix.fragments(state) + stranded(state, mix)
}

/// The cost of using a model with this scarcity.
pub fn scarcity_cost(shape: &Shape, scarcity: u32) -> Cost {
    let thousandths = i64::from(shape.gpu.total()) * i64::from(scarcity) / i64::from(WHOLE_GPU);
    Cost(ceiling(thousandths, STEP))
}

/// GPU thousandths that would lack CPU or memory if the rest of the node were filled with average
/// work, times [`ONE`].
fn stranded(state: &NodeState, mix: &DemandMix) -> u64 {
    let idle = state.free_gpu_thousandths() * ONE;
    let supported = |free: u32, per_gpu: u64| {
        (u64::from(free) * u64::from(WHOLE_GPU) * ONE).checked_div(per_gpu).unwrap_or(u64::MAX)
    };
    let by_cpu = supported(state.free_cpu_milli, mix.cpu_milli_per_gpu);
    let by_memory = supported(state.free_memory_mib, mix.memory_mib_per_gpu);
    idle.saturating_sub(by_cpu.min(by_memory))
}

/// Division that rounds up.
fn ceiling(value: i64, step: i64) -> i64 {
    -(-value).div_euclid(step)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::cell::schedule::shape::{GpuDemand, ModelId};
    use crate::cell::schedule::supply::Supply;

    fn state(free_cpu_milli: u32, free_memory_mib: u32, free_gpus: &[u16]) -> NodeState {
        let mut free_gpus = SmallVec::from_slice(free_gpus);
        free_gpus.sort_unstable();
        NodeState {
            model: ModelId(0),
            gpu_memory_mib: 0,
            free_cpu_milli,
            free_memory_mib,
            free_gpus,
        }
    }

    fn shape(gpu: GpuDemand, cpu_milli: u32, memory_mib: u32) -> Shape {
        Shape { cpu_milli, memory_mib, ..Shape::of_gpus(gpu) }
    }

    /// Half of the jobs need one GPU, half need half a GPU, with 10 cores and 10 GiB per GPU.
    fn mix() -> DemandMix {
        let whole = shape(GpuDemand::Whole(1), 10_000, 10_240);
        let half = shape(GpuDemand::Share(500), 5_000, 5_120);
        DemandMix::new(1, [(&whole, 1), (&half, 1)])
    }

    fn cost(state: &NodeState, shape: &Shape) -> i64 {
        placement_cost(state, shape, &mix()).expect("there is room").0
    }

    #[test]
    fn a_half_costs_less_where_a_gpu_is_half_used_already() {
        let half = shape(GpuDemand::Share(500), 5_000, 5_120);
        let started = state(75_000, 81_920, &[1000, 1000, 500]);
        let untouched = state(80_000, 81_920, &[1000, 1000, 1000]);
        // Whole jobs could not use the rest of the partly used device, so using it up costs less
        // than nothing.
        assert_eq!(cost(&started, &half), -25);
        assert_eq!(cost(&untouched, &half), 25);
    }

    #[test]
    fn a_job_with_much_cpu_costs_what_it_strands() {
        let hungry = shape(GpuDemand::Whole(1), 30_000, 10_240);
        let ample = state(100_000, 131_072, &[1000; 4]);
        let tight = state(40_000, 131_072, &[1000; 4]);
        assert_eq!(cost(&ample, &hungry), 0);
        // 10 cores are left for three GPUs that need 30.
        assert_eq!(cost(&tight, &hungry), 200);
    }

    #[test]
    fn memory_strands_gpus_as_cpu_does() {
        let hungry = shape(GpuDemand::Whole(1), 10_000, 30_720);
        assert_eq!(cost(&state(100_000, 40_960, &[1000; 4]), &hungry), 200);
    }

    #[test]
    fn there_is_no_cost_where_there_is_no_room() {
        let job = shape(GpuDemand::Whole(2), 1000, 1024);
        let mix = mix();
        assert_eq!(placement_cost(&state(64_000, 65_536, &[1000, 999]), &job, &mix), None);
        assert_eq!(placement_cost(&state(999, 65_536, &[1000, 1000]), &job, &mix), None);
        assert_eq!(placement_cost(&state(64_000, 1023, &[1000, 1000]), &job, &mix), None);
    }

    #[test]
    fn a_job_for_any_model_costs_more_on_the_one_that_others_need() {
        let anywhere = shape(GpuDemand::Whole(1), 0, 0);
        let mut bound = anywhere.clone();
        bound.models.push(ModelId(1));
        let mix = DemandMix::new(1, [(&anywhere, 1), (&bound, 1)]);
        let mut supply = Supply::default();
        let node = state(0, 0, &[1000; 8]);
        supply.join(&node, 8);
        supply.join(&NodeState { model: ModelId(1), ..node }, 8);
        let costs =
            [0, 1].map(|model| scarcity_cost(&anywhere, mix.scarcity(ModelId(model), &supply)).0);
        // Half of the demand for 16 GPUs can only use 8 of them: each GPU taken there displaces one
        // GPU of work.
        assert_eq!(costs, [0, 100]);
    }

    #[test]
    fn costs_round_up_to_whole_steps_on_either_side_of_zero() {
        assert_eq!(
            [11, 10, 1, 0, -1, -10, -11].map(|cost| ceiling(cost, 10)),
            [2, 1, 1, 0, 0, -1, -1]
        );
    }
}
