//! What a cell has of each model, and how much of it is free.

use super::shape::{ModelId, WHOLE_GPU};
use crate::cell::index::interner::InternedId;
use crate::cell::nodes::node::NodeState;

/// GPU thousandths that a cell has and has free, by model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    pub(in crate::cell) capacity: u64,
    /// By model id.
    pub(super) models: Vec<ModelSupply>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelSupply {
    pub(in crate::cell) free: u64,
    /// The most memory that a GPU of this model has.
    pub(in crate::cell) gpu_memory_mib: u32,
}

impl Supply {
    /// Counts a node in that has joined, with all that is free on it.
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

    /// Counts a node out that takes no more work, with all that is free on it.
    pub fn leave(&mut self, state: &NodeState, gpus: u16) {
        self.models[state.model.index()].free -= state.free_gpu_thousandths();
        self.capacity -= u64::from(gpus) * u64::from(WHOLE_GPU);
    }

    /// Counts out what was taken on a node that has joined.
    pub fn take(&mut self, model: ModelId, thousandths: u32) {
        self.models[model.index()].free -= u64::from(thousandths);
    }

    /// Counts in what was given back on a node that has joined.
    pub fn give(&mut self, model: ModelId, thousandths: u32) {
        self.models[model.index()].free += u64::from(thousandths);
    }

    /// Free thousandths of a model.
    pub fn free(&self, model: ModelId) -> u64 {
        self.models.get(model.index()).map_or(0, |entry| entry.free)
    }

    /// The most memory that a GPU of each model ever had here, by model.
    pub fn memory_of_models(&self) -> Vec<u32> {
        self.models.iter().map(|entry| entry.gpu_memory_mib).collect()
    }

    /// Remembers the most memory that a GPU of each model ever had here.
    pub fn remember_memory(&mut self, most: &[u32]) {
        if self.models.len() < most.len() {
            self.models.resize(most.len(), ModelSupply::default());
        }
        for (entry, most) in self.models.iter_mut().zip(most) {
            entry.gpu_memory_mib = entry.gpu_memory_mib.max(*most);
        }
    }

    /// Thousandths that there are in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}
