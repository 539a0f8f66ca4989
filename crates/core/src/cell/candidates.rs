//! Where a shape fits best, kept up to date by need.
//!
//! For each shape that was asked for, the states that it fits, best first. A change of a node
//! touches two slots; a shape looks only at the slots that were touched since it was last asked
//! for. So a decision costs what changed, not what there is.

use std::collections::BTreeSet;

use super::demand::DemandMix;
use super::intern::InternedId;
use super::inventory::Inventory;
use super::node::NodeId;
use super::score::{Cost, placement_cost};
use super::shape::{ModelId, Shape, ShapeId};

/// Where a state stands for a shape: the user's preference of models first; within a model the
/// cost, then the lowest node number, which consolidates.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) preference: u16,
    pub(crate) model: ModelId,
    pub(crate) cost: Cost,
    pub(crate) first: NodeId,
    pub(crate) slot: u32,
}

/// What is remembered of a slot for a shape.
#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    generation: u64,
    rank: Option<Rank>,
}

/// The states that fit one shape.
#[derive(Clone, Debug, Default)]
struct ShapeIndex {
    ranks: BTreeSet<Rank>,
    seen: Vec<Seen>,
    /// How much of the log was read. Zero: nothing.
    position: u64,
    /// The demand mix that the costs are for.
    mix: u64,
}

/// The index of all shapes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    shapes: Vec<ShapeIndex>,
    /// Slots touched, in order.
    log: Vec<u32>,
    /// How much of the log was dropped.
    dropped: u64,
}

impl Candidates {
    /// Notes that a slot has another state, or another first node.
    pub(crate) fn touch(&mut self, slot: u32) {
        self.log.push(slot);
    }

    /// The states that fit a shape, best first within each model.
    pub(crate) fn ranked(
        &mut self,
        inventory: &Inventory,
        id: ShapeId,
        shape: &Shape,
        mix: &DemandMix,
    ) -> &BTreeSet<Rank> {
        self.trim(inventory.slot_count());
        if id.index() >= self.shapes.len() {
            self.shapes.resize_with(id.index() + 1, ShapeIndex::default);
        }
        let end = self.dropped + self.log.len() as u64;
        let index = &mut self.shapes[id.index()];
        if index.mix != mix.version() {
            *index = ShapeIndex { mix: mix.version(), ..ShapeIndex::default() };
        }
        index.seen.resize(inventory.slot_count(), Seen::default());
        if index.position < self.dropped.max(1) {
            for slot in 0..u32::try_from(inventory.slot_count()).expect("fewer than 2^32 slots") {
                index.look_at(inventory, slot, shape, mix);
            }
        } else {
            let from = usize::try_from(index.position - self.dropped).expect("within the log");
            for slot in &self.log[from..] {
                index.look_at(inventory, *slot, shape, mix);
            }
        }
        index.position = end;
        &index.ranks
    }

    /// Reading a log longer than the table is no cheaper than reading the table.
    fn trim(&mut self, slots: usize) {
        if self.log.len() > 1024 + 2 * slots {
            self.dropped += self.log.len() as u64;
            self.log.clear();
        }
    }
}

impl ShapeIndex {
    fn look_at(&mut self, inventory: &Inventory, slot: u32, shape: &Shape, mix: &DemandMix) {
        let state = inventory.state(slot);
        let seen = &mut self.seen[slot as usize];
        let Some(first) = state.nodes.first().copied() else {
            if let Some(old) = seen.rank {
                self.ranks.remove(&old);
            }
            *seen = Seen::default();
            return;
        };
        let rank = if seen.generation == state.generation {
            seen.rank.map(|old| Rank { first, ..old })
        } else {
            rank(inventory, slot, first, shape, mix)
        };
        if rank != seen.rank {
            if let Some(old) = seen.rank {
                self.ranks.remove(&old);
            }
            if let Some(new) = rank {
                self.ranks.insert(new);
            }
        }
        *seen = Seen { generation: state.generation, rank };
    }
}

/// Where the state of a slot stands for a shape, if the shape fits.
fn rank(
    inventory: &Inventory,
    slot: u32,
    first: NodeId,
    shape: &Shape,
    mix: &DemandMix,
) -> Option<Rank> {
    let node = &inventory.node(first).node;
    if !node.fits(shape) {
        return None;
    }
    let preference = u16::try_from(shape.preference(node.model())?).unwrap_or(u16::MAX);
    let cost = placement_cost(&node.state(), shape, mix)?;
    Some(Rank { preference, model: node.model(), cost, first, slot })
}
