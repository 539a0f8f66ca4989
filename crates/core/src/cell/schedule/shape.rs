//! What a job asks of each node it runs on.
//!
//! Thousands of queued jobs have a few hundred distinct shapes between them. Everything that is
//! computed per shape (does it fit, where does it fit best, what would free it) is computed once,
//! whoever asks.

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

/// All shapes ever asked for, by id.
pub type Shapes = Interner<Shape, ShapeId>;

/// How much GPU a job asks of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuDemand {
    /// CPU and memory only.
    None,
    /// A share of one GPU, in thousandths, 1 to 999.
    Share(u16),
    /// This many GPUs that nobody else uses, at least one.
    Whole(u16),
}

impl GpuDemand {
    /// `count` GPUs with `thousandths` of each. `None` if no job may ask for that: shares are of
    /// one GPU only, and nothing is more than whole.
    pub fn new(count: u16, thousandths: u16) -> Option<GpuDemand> {
        match (count, thousandths) {
            (0, 0) => Some(GpuDemand::None),
            (1, 1..WHOLE_GPU) => Some(GpuDemand::Share(thousandths)),
            (1.., WHOLE_GPU) => Some(GpuDemand::Whole(count)),
            _ => None,
        }
    }

    /// How many devices are touched.
    pub fn devices(self) -> u16 {
        match self {
            GpuDemand::None => 0,
            GpuDemand::Share(_) => 1,
            GpuDemand::Whole(count) => count,
        }
    }

    /// Thousandths taken from each device that is touched.
    pub fn per_device(self) -> u16 {
        match self {
            GpuDemand::None => 0,
            GpuDemand::Share(thousandths) => thousandths,
            GpuDemand::Whole(_) => WHOLE_GPU,
        }
    }

    /// Thousandths taken in all.
    pub fn total(self) -> u32 {
        u32::from(self.devices()) * u32::from(self.per_device())
    }
}

/// What a job asks of each node it runs on. A gang asks the same of each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// GPUs, or a share of one.
    pub gpu: GpuDemand,
    /// Models that will do, the dearest to the user first. Empty: any model.
    pub models: SmallVec<[ModelId; 4]>,
    /// Least memory of each GPU, in MiB. Zero: any.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Main memory, in MiB.
    pub memory_mib: u32,
    /// Labels that the node must carry, in rising order.
    pub labels: SmallVec<[LabelId; 2]>,
    /// Of the accounts that nodes are kept to, those that the job belongs to, in rising order: it
    /// may use their nodes besides everybody's.
    pub scopes: SmallVec<[AccountId; 1]>,
}

impl Shape {
    /// A shape that asks for GPUs alone.
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

    /// The place of a model in the order of preference, 0 the best. `None`: it will not do.
    pub fn preference(&self, model: ModelId) -> Option<usize> {
        if self.models.is_empty() {
            return Some(0);
        }
        self.models.iter().position(|allowed| *allowed == model)
    }

    /// Whether a model will do.
    pub fn allows(&self, model: ModelId) -> bool {
        self.preference(model).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_demand_is_nothing_a_share_of_one_or_whole_devices() {
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
