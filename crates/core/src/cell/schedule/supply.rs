//! The GPUs of a cell by model, in total and free.

use super::shape::{ModelId, WHOLE_GPU};
use crate::cell::index::interner::InternedId;
use crate::cell::nodes::node::NodeState;

/// GPU thousandths of a cell, in total and free by model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Supply {
    pub(in crate::cell) capacity: u64,
    /// By model id.
    pub(super) models: Vec<ModelSupply>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelSupply {
    pub(in crate::cell) free: u64,
    /// The most memory that a GPU of this model has had.
    pub(in crate::cell) gpu_memory_mib: u32,
}

impl Supply {
    /// Adds a node that takes work, with its free GPUs.
    pub fn join(&mut self, state: &NodeState, gpus: u16) {
        let index = state.model.index();
        if self.models.len() <= index {
            self.models.resize(index + 1, ModelSupply::default());
        }
        let entry = &mut self.models[index];
        entry.gpu_memory_mib = entry.gpu_memory_mib.max(state.gpu_memory_mib);
        entry.free += state.free_gpu_thousandths();
        self.capacity += u64::from(gpus) * u64::from(WHOLE_GPU);
    }

    /// Removes a node that takes no more work, with its free GPUs.
    pub fn leave(&mut self, state: &NodeState, gpus: u16) {
        self.models[state.model.index()].free -= state.free_gpu_thousandths();
        self.capacity -= u64::from(gpus) * u64::from(WHOLE_GPU);
    }

    /// Subtracts GPUs that were taken on a node that takes work.
    pub fn take(&mut self, model: ModelId, thousandths: u32) {
        self.models[model.index()].free -= u64::from(thousandths);
    }

    /// Adds GPUs that were given back on a node that takes work.
    pub fn give(&mut self, model: ModelId, thousandths: u32) {
        self.models[model.index()].free += u64::from(thousandths);
    }

    /// Free thousandths of a model.
    pub fn free(&self, model: ModelId) -> u64 {
        self.models.get(model.index()).map_or(0, |entry| entry.free)
    }

    /// The most memory that a GPU of each model ever had, by model.
    pub fn memory_of_models(&self) -> Vec<u32> {
        self.models.iter().map(|entry| entry.gpu_memory_mib).collect()
    }

    /// Restores the most memory that a GPU of each model ever had.
    pub fn remember_memory(&mut self, most: &[u32]) {
        if self.models.len() < most.len() {
            self.models.resize(most.len(), ModelSupply::default());
        }
        for (entry, most) in self.models.iter_mut().zip(most) {
            entry.gpu_memory_mib = entry.gpu_memory_mib.max(*most);
        }
    }

    /// Thousandths of all GPUs on nodes that take work.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}
