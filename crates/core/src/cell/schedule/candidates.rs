//! The index of placements: for each requested shape, the states that it fits, best first.
//!
//! The index is updated on demand. A change of a node touches two slots, and a shape examines only
//! the slots that were touched since its last request, each once. The cost of a decision therefore
//! depends on what changed, not on the size of the cell.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::demand::DemandMix;
use super::score::{Cost, placement_cost_from, useless};
use super::shape::{ModelId, Shape, ShapeId, Shapes};
use crate::cell::index::interner::InternedId;
use crate::cell::invariant::CellViolation;
use crate::cell::nodes::inventory::Inventory;
use crate::cell::nodes::node::{NodeId, NodeState};

/// The rank of a state for a shape: the user's preference of models first; within a model the cost,
/// then the lowest node number, which consolidates.
///
/// It is packed into two words, most significant first, because comparing ranks is most of the cost
/// of a decision.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Rank {
    /// The preference in 16 bits, the model in 32, the cost in 16.
    kind: NonZeroU64,
    /// The first node in 32 bits, the slot in 32.
    place: u64,
}

impl Rank {
    /// Added to a cost so that every cost is above zero. Costs are steps of ten thousandths of at
    /// most 64 GPUs, twice, and so far below this.
    const ZERO_COST: i64 = 1 << 15;

    fn new(preference: u16, model: ModelId, cost: Cost, first: NodeId, slot: u32) -> Rank {
        let cost = (cost.0 + Rank::ZERO_COST).clamp(1, i64::from(u16::MAX)).unsigned_abs();
        let kind = u64::from(preference) << 48 | u64::from(model.0) << 16 | cost;
        let kind = NonZeroU64::new(kind).expect("the cost is at least one");
        Rank { kind, place: u64::from(first.0) << 32 | u64::from(slot) }
    }

    /// This rank with another first node.
    fn with_first(self, first: NodeId) -> Rank {
        Rank { place: u64::from(first.0) << 32 | u64::from(self.slot()), ..self }
    }

    /// The highest rank of its model.
    pub(crate) fn end_of_model(self) -> Rank {
        Rank { kind: self.kind | u64::from(u16::MAX), place: u64::MAX }
    }

    pub(crate) fn preference(self) -> u16 {
        (self.kind.get() >> 48) as u16
    }

    pub(crate) fn model(self) -> ModelId {
        ModelId((self.kind.get() >> 16) as u32)
    }

    pub(crate) fn cost(self) -> Cost {
        Cost(i64::from(self.kind.get() as u16) - Rank::ZERO_COST)
    }

    pub(crate) fn first(self) -> NodeId {
        NodeId((self.place >> 32) as u32)
    }

    pub(crate) fn slot(self) -> u32 {
        self.place as u32
    }
}

/// The cached rank of a slot for a shape.
#[derive(Copy, Clone, Debug, Default)]
struct Seen {
    generation: u64,
    rank: Option<Rank>,
}

/// The most shapes whose index is kept. Each takes 24 bytes and more for every slot.
const MAX_INDEXED: usize = 1024;

/// The states that fit one shape.
#[derive(Clone, Debug, Default)]
struct ShapeIndex {
    ranks: BTreeSet<Rank>,
    seen: Vec<Seen>,
    /// The stamp of the last touch that was examined.
    stamp: u64,
    /// The version of the demand mix that the costs are for.
    mix: u64,
}

/// The index of a shape, and when it was last used.
#[derive(Clone, Debug)]
struct Indexed {
    shape: ShapeId,
    used: u64,
    index: ShapeIndex,
}

/// The indexes of the shapes used last. An index follows from the states alone, so it does not matter
/// to a decision whether it was kept or is made again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    kept: Vec<Indexed>,
    /// For each shape one more than its place among those kept. Zero: it is not kept.
    places: Vec<u32>,
    uses: u64,
    touches: Touches,
    worth: Worth,
}

/// How much of each slot's state typical work cannot use: the same for all shapes, and the costly
/// half of a score.
#[derive(Clone, Debug, Default)]
struct Worth {
    /// Generation of the state, version of the mix, and the cached value.
    slots: Vec<(u64, u64, u64)>,
}

impl Worth {
    fn useless(&mut self, slot: u32, generation: u64, free: &NodeState, mix: &DemandMix) -> u64 {
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, (0, 0, 0));
        }
        // A slot with a state has a generation above zero.
        let kept = &mut self.slots[index];
        if (kept.0, kept.1) != (generation, mix.version()) {
            *kept = (generation, mix.version(), useless(free, mix));
        }
        kept.2
    }
}

/// Slots in the order in which they were last touched: a linked list through a table. A slot that
/// is touched again moves to the end, so it occurs once.
#[derive(Clone, Debug, Default)]
struct Touches {
    slots: Vec<Touch>,
    /// One more than the slot touched last. Zero: none.
    last: u32,
    stamps: u64,
}

/// Neighbours are stored as slot plus one; zero is the end of the list.
#[derive(Copy, Clone, Debug, Default)]
struct Touch {
    before: u32,
    after: u32,
    stamp: u64,
}

impl Touches {
    fn touch(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Touch::default());
        }
        self.stamps += 1;
        let Touch { before, after, stamp } = self.slots[index];
        if stamp > 0 && self.last != slot + 1 {
            // Only the last slot has no successor, so `after` is a slot.
            self.slots[after as usize - 1].before = before;
            if before > 0 {
                self.slots[before as usize - 1].after = after;
            }
        }
        if self.last != slot + 1 {
            if self.last > 0 {
                self.slots[self.last as usize - 1].after = slot + 1;
            }
            self.slots[index].before = self.last;
            self.slots[index].after = 0;
            self.last = slot + 1;
        }
        self.slots[index].stamp = self.stamps;
    }

    /// Slots touched after a stamp, the latest first.
    fn since(&self, stamp: u64) -> impl Iterator<Item = u32> {
        let mut next = self.last;
        std::iter::from_fn(move || {
            let slot = next.checked_sub(1)?;
            let touch = self.slots[slot as usize];
            next = touch.before;
            (touch.stamp > stamp).then_some(slot)
        })
    }
}

impl Candidates {
    /// Marks a slot whose state or first node has changed.
    pub(crate) fn touch(&mut self, slot: u32) {
        self.touches.touch(slot);
    }

    /// The states that fit a shape, best first within each model.
    pub(crate) fn ranked(
        &mut self,
        inventory: &Inventory,
        id: ShapeId,
        shape: &Shape,
        mix: &DemandMix,
    ) -> &BTreeSet<Rank> {
        let place = self.place(id);
        self.uses += 1;
        let Indexed { used, index, .. } = &mut self.kept[place];
        *used = self.uses;
        index.seen.resize(inventory.slot_count(), Seen::default());
        if index.mix != mix.version() {
            index.score_again(inventory, shape, mix, &mut self.worth);
        }
        for slot in self.touches.since(index.stamp) {
            index.look_at(inventory, slot, shape, mix, &mut self.worth);
        }
        index.stamp = self.touches.stamps;
        &index.ranks
    }

    /// Where the index of a shape is kept. A new one replaces the one that was not used for longest.
    fn place(&mut self, shape: ShapeId) -> usize {
        if shape.index() >= self.places.len() {
            self.places.resize(shape.index() + 1, 0);
        }
        if let Some(place) = self.places[shape.index()].checked_sub(1) {
            return place as usize;
        }
        let new = Indexed { shape, used: 0, index: ShapeIndex::default() };
        let place = if self.kept.len() < MAX_INDEXED {
            self.kept.push(new);
            self.kept.len() - 1
        } else {
            let oldest = (0..self.kept.len()).min_by_key(|place| self.kept[*place].used);
            let place = oldest.unwrap_or(0);
            self.places[self.kept[place].shape.index()] = 0;
            self.kept[place] = new;
            place
        };
        self.places[shape.index()] = u32::try_from(place + 1).expect("few are kept");
        place
    }
}

impl Candidates {
    /// Compares every index with one that is computed from scratch.
    pub(crate) fn check(
        &self,
        inventory: &Inventory,
        shapes: &Shapes,
        mix: &DemandMix,
    ) -> Result<(), CellViolation> {
        let mut kept = self.clone();
        let touches = self.touches.clone();
        let mut fresh = Candidates { touches, ..Candidates::default() };
        for id in self.kept.iter().map(|indexed| indexed.shape) {
            let shape = shapes.get(id);
            let kept = kept.ranked(inventory, id, shape, mix);
            if kept != fresh.ranked(inventory, id, shape, mix) {
                return Err(format!("the index of shape {} is out of date", id.0).into());
            }
        }
        Ok(())
    }
}

impl ShapeIndex {
    /// A new mix changes the cost of a placement, but not where the shape fits.
    fn score_again(
        &mut self,
        inventory: &Inventory,
        shape: &Shape,
        mix: &DemandMix,
        worth: &mut Worth,
    ) {
        for rank in std::mem::take(&mut self.ranks) {
            self.seen[rank.slot() as usize] = Seen::default();
            self.look_at(inventory, rank.slot(), shape, mix, worth);
        }
        self.mix = mix.version();
    }

    fn look_at(
        &mut self,
        inventory: &Inventory,
        slot: u32,
        shape: &Shape,
        mix: &DemandMix,
        worth: &mut Worth,
    ) {
        let state = inventory.state(slot);
        let seen = &mut self.seen[slot as usize];
        let Some(first) = state.first else {
            if let Some(old) = seen.rank {
                self.ranks.remove(&old);
            }
            *seen = Seen::default();
            return;
        };
        let rank = if seen.generation == state.generation {
            seen.rank.map(|old| old.with_first(first))
        } else {
            rank(inventory, slot, first, shape, mix, worth)
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

/// The rank of a slot's state for a shape, if the shape fits.
fn rank(
    inventory: &Inventory,
    slot: u32,
    first: NodeId,
    shape: &Shape,
    mix: &DemandMix,
    worth: &mut Worth,
) -> Option<Rank> {
    let state = inventory.state(slot);
    let free = state.free()?;
    // Most states have no room, so that is checked first.
    if !has_room(free, shape) || !inventory.slot_accepts(slot, shape) {
        return None;
    }
    let preference = u16::try_from(shape.preference(free.model)?).unwrap_or(u16::MAX);
    let useless = worth.useless(slot, state.generation, free, mix);
    let cost = placement_cost_from(useless, free, shape, mix)?;
    Some(Rank::new(preference, free.model, cost, first, slot))
}

/// Whether there is room for a shape, regardless of model, labels and GPU memory.
fn has_room(free: &NodeState, shape: &Shape) -> bool {
    let gpus = &free.free_gpus;
    let devices = usize::from(shape.gpu.devices());
    free.free_cpu_milli >= shape.cpu_milli
        && free.free_memory_mib >= shape.memory_mib
        && devices <= gpus.len()
        // Devices are in rising order: if the last `devices` have enough, enough devices do.
        && (devices == 0 || gpus[gpus.len() - devices] >= shape.gpu.per_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ordered_by_preference_model_cost_and_node() {
        let rank = |preference, model, cost, first, slot| {
            Rank::new(preference, ModelId(model), Cost(cost), NodeId(first), slot)
        };
        let rising = [
            rank(0, 0, -12_800, 7, 7),
            rank(0, 0, 0, 1, 9),
            rank(0, 0, 0, 2, 3),
            rank(0, 0, 0, 2, 4),
            rank(0, 0, 12_800, 0, 0),
            rank(0, 5, -3, 0, 0),
            rank(1, u32::MAX, 3, u32::MAX, u32::MAX),
            rank(2, 0, -1, 0, 0),
        ];
        assert!(rising.is_sorted());
        let last = rising[6];
        assert_eq!((last.preference(), last.model(), last.cost()), (1, ModelId(u32::MAX), Cost(3)));
        assert_eq!((last.first(), last.slot()), (NodeId(u32::MAX), u32::MAX));
        assert_eq!(rising[2].with_first(NodeId(1)), rank(0, 0, 0, 1, 3));
        assert!(rising[4] < rising[0].end_of_model() && rising[0].end_of_model() < rising[5]);
    }

    /// Memory follows the shapes used last, not all that were ever used.
    #[test]
    fn the_indexes_of_the_shapes_used_last_are_kept() {
        let mut candidates = Candidates::default();
        let (inventory, mix) = (Inventory::default(), DemandMix::default());
        let most = u32::try_from(MAX_INDEXED).expect("few");
        let shape = |number: u32| Shape {
            cpu_milli: number,
            ..Shape::of_gpus(crate::cell::schedule::shape::GpuDemand::Whole(1))
        };
        let mut rank = |number: u32| {
            let ranked = candidates.ranked(&inventory, ShapeId(number), &shape(number), &mix);
            assert!(ranked.is_empty());
            let kept: BTreeSet<u32> = candidates.kept.iter().map(|kept| kept.shape.0).collect();
            let places = candidates.places.iter().filter(|place| **place > 0).count();
            assert_eq!(places, kept.len());
            kept
        };
        for number in 0..most {
            assert_eq!(rank(number).len(), number as usize + 1);
        }
        rank(0);
        let kept = rank(most);
        assert_eq!((kept.len(), kept.contains(&0), kept.contains(&1)), (MAX_INDEXED, true, false));
        assert!(!rank(1).contains(&2) && !rank(2).contains(&3));
        for number in most..5 * most {
            assert_eq!(rank(number).len(), MAX_INDEXED);
        }
    }

    #[test]
    fn touched_slots_are_met_once_and_the_latest_first() {
        let mut touches = Touches::default();
        for slot in [0, 1, 2, 1, 1, 3, 0] {
            touches.touch(slot);
        }
        assert_eq!(touches.since(0).collect::<Vec<_>>(), [0, 3, 1, 2]);
        assert_eq!(touches.since(5).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(touches.since(7).count(), 0);
        touches.touch(2);
        touches.touch(2);
        assert_eq!(touches.since(0).collect::<Vec<_>>(), [2, 0, 3, 1]);
    }
}
