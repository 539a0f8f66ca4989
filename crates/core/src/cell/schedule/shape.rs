//! Shapes: what a job needs on each of its nodes.
//!
//! Thousands of queued jobs have a few hundred distinct shapes. Everything that is computed per
//! shape (whether it fits, where it fits best, what would free it) is computed once for all of
//! these jobs.

use smallvec::SmallVec;

use crate::cell::ids::AccountId;
use crate::cell::index::interner::{Interner, interned_id};

/// Thousandths in a whole GPU.
pub const WHOLE_GPU: u16 = 1000;

interned_id!(
    /// A GPU model, such as H100.
    ModelId
);
interned_id!(
    /// A node label with its value, such as `zone=a`.
    LabelId
);
interned_id!(
    /// An interned [`Shape`].
    ShapeId
);

/// All shapes that were ever requested, by id.
pub type Shapes = Interner<Shape, ShapeId>;

/// How much GPU a job needs on a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuDemand {
    /// CPU and memory only.
    None,
    /// A share of one GPU, in thousandths, 1 to 999.
    Share(u16),
    /// This many whole GPUs, at least one, not shared with other jobs.
    Whole(u16),
}

impl GpuDemand {
    /// `count` GPUs with `thousandths` of each. `None` if no job may request this: shares are of a
    /// single GPU, and at most a whole one.
    pub fn new(count: u16, thousandths: u16) -> Option<GpuDemand> {
        match (count, thousandths) {
            (0, 0) => Some(GpuDemand::None),
            (1, 1..WHOLE_GPU) => Some(GpuDemand::Share(thousandths)),
            (1.., WHOLE_GPU) => Some(GpuDemand::Whole(count)),
            _ => None,
        }
    }

    /// How many devices it uses.
    pub fn devices(self) -> u16 {
        match self {
            GpuDemand::None => 0,
            GpuDemand::Share(_) => 1,
            GpuDemand::Whole(count) => count,
        }
    }

    /// Thousandths of each used device.
    pub fn per_device(self) -> u16 {
        match self {
            GpuDemand::None => 0,
            GpuDemand::Share(thousandths) => thousandths,
            GpuDemand::Whole(_) => WHOLE_GPU,
        }
    }

    /// Thousandths of all devices together.
    pub fn total(self) -> u32 {
        u32::from(self.devices()) * u32::from(self.per_device())
    }
}

/// What a job needs on each of its nodes. All nodes of a gang need the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// GPUs, or a share of one.
    pub gpu: GpuDemand,
    /// Accepted models, the most preferred first. Empty: any model.
    pub models: SmallVec<[ModelId; 4]>,
    /// Least memory of each GPU, in MiB. Zero: any.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Main memory, in MiB.
    pub memory_mib: u32,
    /// Labels that the node must have, in rising order.
    pub labels: SmallVec<[LabelId; 2]>,
    /// The scopes of nodes that include the job's account, in rising order. The job may use nodes
    /// with these scopes and nodes without one.
    pub scopes: SmallVec<[AccountId; 1]>,
}

impl Shape {
    /// A shape that needs only GPUs.
    pub fn of_gpus(gpu: GpuDemand) -> Shape {
        Shape {
            gpu,
            models: SmallVec::new(),
            gpu_memory_mib: 0,
            cpu_milli: 0,
            memory_mib: 0,
            labels: SmallVec::new(),
            scopes: SmallVec::new(),
        }
    }

    /// The position of a model in the order of preference, 0 the best. `None`: not accepted.
    pub fn preference(&self, model: ModelId) -> Option<usize> {
        if self.models.is_empty() {
            return Some(0);
        }
        self.models.iter().position(|allowed| *allowed == model)
    }

    /// Whether a model is accepted.
    pub fn allows(&self, model: ModelId) -> bool {
        self.preference(model).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_demand_is_none_a_share_of_one_gpu_or_whole_gpus() {
        for (count, thousandths, expected) in [
            (0, 0, Some(GpuDemand::None)),
            (1, 1, Some(GpuDemand::Share(1))),
            (1, 999, Some(GpuDemand::Share(999))),
            (1, 1000, Some(GpuDemand::Whole(1))),
            (8, 1000, Some(GpuDemand::Whole(8))),
            (0, 500, None),
            (1, 0, None),
            (1, 1001, None),
            (2, 500, None),
            (8, 0, None),
        ] {
            assert_eq!(GpuDemand::new(count, thousandths), expected, "{count} × {thousandths}");
        }
        assert_eq!(GpuDemand::Whole(8).total(), 8000);
        assert_eq!(GpuDemand::Share(460).total(), 460);
    }

    #[test]
    fn models_are_preferred_in_the_order_given() {
        let mut shape = Shape::of_gpus(GpuDemand::Whole(1));
        assert_eq!(shape.preference(ModelId(7)), Some(0));
        shape.models = SmallVec::from_slice(&[ModelId(3), ModelId(1)]);
        assert_eq!(shape.preference(ModelId(3)), Some(0));
        assert_eq!(shape.preference(ModelId(1)), Some(1));
        assert!(!shape.allows(ModelId(7)));
    }
}
