//! A node: its resources, what is free, and exact taking and giving back.
//!
//! GPUs are counted in thousandths per device, CPU in thousandths of a core, memory in MiB. The
//! free part of a device is between zero and [`WHOLE_GPU`] thousandths: law L8.

use smallvec::SmallVec;

use crate::cell::ids::AccountId;
use crate::cell::index::interner::interned_id;
use crate::cell::schedule::shape::{GpuDemand, LabelId, ModelId, Shape, WHOLE_GPU};
pub use gpu_set::{GpuSet, MAX_GPUS};

interned_id!(
    /// A node's number in its cell.
    NodeId
);
interned_id!(
    /// A rack: nodes that are close to each other.
    RackId
);

/// What a placement's score depends on. Nodes that differ only in which device is how full have the
/// same state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeState {
    /// Its GPUs' model.
    pub model: ModelId,
    /// Memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Free thousandths of a core.
    pub free_cpu_milli: u32,
    /// Free main memory, in MiB.
    pub free_memory_mib: u32,
    /// Free thousandths per device, in rising order.
    pub free_gpus: SmallVec<[u16; 8]>,
}

impl NodeState {
    /// Free thousandths of all devices together.
    pub fn free_gpu_thousandths(&self) -> u64 {
        self.free_gpus.iter().map(|free| u64::from(*free)).sum()
    }

    /// The state after a shape is placed here; `None` if there is no room. Devices are chosen as by
    /// [`Node::pick_gpus`].
    pub fn after(&self, shape: &Shape) -> Option<NodeState> {
        let mut after = NodeState {
            model: self.model,
            gpu_memory_mib: self.gpu_memory_mib,
            free_cpu_milli: self.free_cpu_milli.checked_sub(shape.cpu_milli)?,
            free_memory_mib: self.free_memory_mib.checked_sub(shape.memory_mib)?,
            free_gpus: SmallVec::from_slice(&self.free_gpus),
        };
        // The devices taken move to their sorted position; the others stay in rising order.
        match shape.gpu {
            GpuDemand::None => {}
            GpuDemand::Share(share) => {
                let device = after.free_gpus.iter().position(|free| *free >= share)?;
                let left = after.free_gpus[device] - share;
                let place = after.free_gpus[..device].partition_point(|free| *free <= left);
                after.free_gpus[place..=device].rotate_right(1);
                after.free_gpus[place] = left;
            }
            GpuDemand::Whole(count) => {
                let count = usize::from(count);
                let first = after.free_gpus.len().checked_sub(count)?;
                if after.free_gpus[first..].iter().any(|free| *free != WHOLE_GPU) {
                    return None;
                }
                after.free_gpus.copy_within(..first, count);
                after.free_gpus[..count].fill(0);
            }
        }
        Some(after)
    }
}

/// Free resources of a node, reduced to what decides whether a shape fits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    cpu_milli: u32,
    memory_mib: u32,
    /// Free thousandths of the device with the most.
    most_of_one: u16,
    /// Devices that no job uses.
    untouched: u16,
}

impl Room {
    /// Whether there is room for a shape.
    pub fn holds(&self, shape: &Shape) -> bool {
        self.cpu_milli >= shape.cpu_milli
            && self.memory_mib >= shape.memory_mib
            && match shape.gpu {
                GpuDemand::None => true,
                GpuDemand::Share(share) => self.most_of_one >= share,
                GpuDemand::Whole(count) => self.untouched >= count,
            }
    }
}

/// The resources of a node when nothing runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    /// Its GPUs' model. All GPUs of a node are of one model.
    pub model: ModelId,
    /// How many GPUs, at most [`MAX_GPUS`].
    pub gpus: u16,
    /// Memory of each GPU, in MiB.
    pub gpu_memory_mib: u32,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Main memory, in MiB.
    pub memory_mib: u32,
    /// Labels, in rising order.
    pub labels: SmallVec<[LabelId; 4]>,
    /// Its rack.
    pub rack: RackId,
    /// The account at and below which it runs jobs. `None`: all accounts.
    pub scope: Option<AccountId>,
}

/// A node and what is free on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    spec: NodeSpec,
    /// Free thousandths per device.
    free_gpus: SmallVec<[u16; 8]>,
    free_cpu_milli: u32,
    free_memory_mib: u32,
    drained: bool,
}

impl Node {
    /// A node with everything free. `None` if it has more GPUs than [`MAX_GPUS`].
    pub fn new(mut spec: NodeSpec) -> Option<Node> {
        let gpus = usize::from(spec.gpus);
        if gpus > MAX_GPUS {
            return None;
        }
        spec.labels.sort_unstable();
        spec.labels.dedup();
        Some(Node {
            free_gpus: SmallVec::from_elem(WHOLE_GPU, gpus),
            free_cpu_milli: spec.cpu_milli,
            free_memory_mib: spec.memory_mib,
            drained: false,
            spec,
        })
    }

    /// The resources of the node when nothing runs on it.
    pub fn spec(&self) -> &NodeSpec {
        &self.spec
    }

    /// Its GPUs' model.
    pub fn model(&self) -> ModelId {
        self.spec.model
    }

    /// Free thousandths of each device.
    pub fn free_gpus(&self) -> &[u16] {
        &self.free_gpus
    }

    /// Free thousandths of all devices together.
    pub fn free_gpu_thousandths(&self) -> u32 {
        self.free_gpus.iter().map(|free| u32::from(*free)).sum()
    }

    /// How many devices no job uses.
    pub fn untouched_gpus(&self) -> u16 {
        // At most MAX_GPUS.
        self.free_gpus.iter().filter(|free| **free == WHOLE_GPU).count() as u16
    }

    /// Free thousandths of a core.
    pub fn free_cpu_milli(&self) -> u32 {
        self.free_cpu_milli
    }

    /// Free main memory, in MiB.
    pub fn free_memory_mib(&self) -> u32 {
        self.free_memory_mib
    }

    /// Whether the node takes no new work.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Stops or resumes taking new work.
    pub fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Whether its scope includes the account of a shape.
    pub fn admits(&self, shape: &Shape) -> bool {
        self.spec.scope.is_none_or(|scope| shape.scopes.contains(&scope))
    }

    /// Changes the scope of the jobs that it runs.
    pub fn set_scope(&mut self, scope: Option<AccountId>) {
        self.spec.scope = scope;
    }

    /// The part of the node's state that a placement's score depends on.
    pub fn state(&self) -> NodeState {
        let mut free_gpus = SmallVec::from_slice(&self.free_gpus);
        free_gpus.sort_unstable();
        NodeState {
            model: self.spec.model,
            gpu_memory_mib: self.spec.gpu_memory_mib,
            free_cpu_milli: self.free_cpu_milli,
            free_memory_mib: self.free_memory_mib,
            free_gpus,
        }
    }

    /// Whether nothing runs here.
    pub fn is_idle(&self) -> bool {
        self.free_cpu_milli == self.spec.cpu_milli
            && self.free_memory_mib == self.spec.memory_mib
            && self.untouched_gpus() == self.spec.gpus
    }

    /// Whether the node's scope and hardware suit a shape, however full it is.
    pub fn accepts(&self, shape: &Shape) -> bool {
        self.admits(shape) && self.is_of_kind(shape)
    }

    fn is_of_kind(&self, shape: &Shape) -> bool {
        shape.allows(self.spec.model)
            && self.spec.gpu_memory_mib >= shape.gpu_memory_mib
            && shape.labels.iter().all(|label| self.spec.labels.binary_search(label).is_ok())
    }

    /// Whether there is room for a shape now, regardless of hardware and scope.
    pub fn has_room(&self, shape: &Shape) -> bool {
        self.free_cpu_milli >= shape.cpu_milli
            && self.free_memory_mib >= shape.memory_mib
            && self.has_gpus(shape.gpu)
    }

    /// The free resources now, to compare with many shapes.
    pub fn room(&self) -> Room {
        Room {
            cpu_milli: self.free_cpu_milli,
            memory_mib: self.free_memory_mib,
            most_of_one: self.free_gpus.iter().copied().max().unwrap_or(0),
            untouched: self.untouched_gpus(),
        }
    }

    /// Whether the GPUs that are free now meet a demand.
    pub fn has_gpus(&self, demand: GpuDemand) -> bool {
        match demand {
            GpuDemand::None => true,
            GpuDemand::Share(share) => self.free_gpus.iter().any(|free| *free >= share),
            GpuDemand::Whole(count) => self.untouched_gpus() >= count,
        }
    }

    /// Whether a shape can start here now.
    pub fn fits(&self, shape: &Shape) -> bool {
        // Most nodes have no room, so that is checked first.
        !self.drained && self.has_room(shape) && self.accepts(shape)
    }

    /// Whether a shape could start here if nothing ran and the node were not drained.
    pub fn could_ever_fit(&self, shape: &Shape) -> bool {
        self.admits(shape) && self.could_serve(shape)
    }

    /// Whether the node is large enough and its hardware suits, regardless of its scope.
    pub fn could_serve(&self, shape: &Shape) -> bool {
        self.is_of_kind(shape)
            && self.spec.cpu_milli >= shape.cpu_milli
            && self.spec.memory_mib >= shape.memory_mib
            && match shape.gpu {
                GpuDemand::None => true,
                GpuDemand::Share(_) => self.spec.gpus >= 1,
                GpuDemand::Whole(count) => self.spec.gpus >= count,
            }
    }

    /// The devices for a demand: unused ones in index order, or for a share the fullest device with
    /// room for it (the lower index among equals). `None` if there are too few.
    pub fn pick_gpus(&self, demand: GpuDemand) -> Option<GpuSet> {
        match demand {
            GpuDemand::None => Some(GpuSet::EMPTY),
            GpuDemand::Share(share) => {
                let devices = self.free_gpus.iter().enumerate();
                let (_, device) = devices
                    .filter(|(_, free)| **free >= share)
                    .map(|(device, free)| (*free, device))
                    .min()?;
                GpuSet::from_indexes([device])
            }
            GpuDemand::Whole(count) => {
                let devices = self.free_gpus.iter().enumerate();
                let untouched = devices.filter(|(_, free)| **free == WHOLE_GPU);
                let picked = GpuSet::from_indexes(
                    untouched.map(|(device, _)| device).take(usize::from(count)),
                )?;
                (picked.len() == usize::from(count)).then_some(picked)
            }
        }
    }

    /// Whether [`Node::take`] would succeed.
    pub fn can_take(&self, shape: &Shape, gpus: GpuSet) -> bool {
        let each = shape.gpu.per_device();
        gpus.len() == usize::from(shape.gpu.devices())
            && gpus.iter().all(|at| self.free_gpus.get(at).is_some_and(|free| *free >= each))
            && self.free_cpu_milli >= shape.cpu_milli
            && self.free_memory_mib >= shape.memory_mib
    }

    /// Takes the resources of a shape, on these devices.
    ///
    /// # Panics
    /// If not all of it is free, or the number of devices differs from the shape's. The decision
    /// has checked both; continuing would allocate one GPU twice.
    pub fn take(&mut self, shape: &Shape, gpus: GpuSet) {
        self.check_devices(shape, gpus);
        let each = shape.gpu.per_device();
        for device in gpus.iter() {
            let free = &mut self.free_gpus[device];
            *free = free.checked_sub(each).expect("a device is taken only as far as it is free");
        }
        self.free_cpu_milli = self
            .free_cpu_milli
            .checked_sub(shape.cpu_milli)
            .expect("CPU is taken only as far as it is free");
        self.free_memory_mib = self
            .free_memory_mib
            .checked_sub(shape.memory_mib)
            .expect("memory is taken only as far as it is free");
    }

    /// Gives back what [`Node::take`] took for the same shape on the same devices.
    ///
    /// # Panics
    /// If the node would have more free than it has: something was given back twice.
    pub fn give(&mut self, shape: &Shape, gpus: GpuSet) {
        self.check_devices(shape, gpus);
        let each = shape.gpu.per_device();
        for device in gpus.iter() {
            let free = &mut self.free_gpus[device];
            *free += each;
            assert!(*free <= WHOLE_GPU, "device {device} was given back twice");
        }
        self.free_cpu_milli += shape.cpu_milli;
        assert!(self.free_cpu_milli <= self.spec.cpu_milli, "CPU was given back twice");
        self.free_memory_mib += shape.memory_mib;
        assert!(self.free_memory_mib <= self.spec.memory_mib, "memory was given back twice");
    }

    fn check_devices(&self, shape: &Shape, gpus: GpuSet) {
        let wanted = usize::from(shape.gpu.devices());
        assert_eq!(gpus.len(), wanted, "a shape takes as many devices as it asks for");
        assert!(
            gpus.iter().all(|device| device < self.free_gpus.len()),
            "a device beyond the {} of the node",
            self.free_gpus.len()
        );
    }
}

mod gpu_set;
#[cfg(test)]
mod tests;
