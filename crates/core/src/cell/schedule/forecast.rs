//! Forecast: what nodes will have free later, by time and by preemption.
//!
//! There are two orders of the nodes of each model. One lists when a number of whole GPUs will be
//! free if every attempt ends by its longest runtime; reservations use it. The other lists how many
//! whole GPUs would be free if every preemptible attempt up to a class were stopped; preemption
//! uses it. Both are approximate about shares, CPU and memory, so callers check the nodes that they
//! return.
//!
//! Nodes change with every placement, but few placements need these orders. A change therefore only
//! marks the node as stale, and the next reader refreshes the stale nodes.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::shape::{ModelId, Shape, Shapes};
use crate::cell::ids::{AttemptId, ClassRank};
use crate::cell::index::interner::InternedId;
use crate::cell::nodes::inventory::Held;
use crate::cell::nodes::node::{Node, NodeId};
use crate::time::Timestamp;

/// The forecast for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outlook {
    /// When one, two, three … whole GPUs will be free.
    whole_at: SmallVec<[Timestamp; 8]>,
    /// Whole GPUs that would be free without the preemptible attempts up to a class.
    without: SmallVec<[(ClassRank, u16); 2]>,
}

impl Outlook {
    pub(crate) fn new(node: &Node, attempts: &BTreeMap<AttemptId, Held>) -> Outlook {
        let devices = node.free_gpus().len();
        let mut free_at: SmallVec<[Timestamp; 8]> = SmallVec::from_elem(Timestamp::MIN, devices);
        let mut classes: SmallVec<[ClassRank; 2]> = SmallVec::new();
        for held in attempts.values() {
            for device in held.gpus.iter() {
                free_at[device] = free_at[device].max(held.until);
            }
            if held.preemptible && !held.fenced {
                classes.push(held.class);
            }
        }
        free_at.sort_unstable();
        classes.sort_unstable();
        classes.dedup();
        let without = classes.iter().map(|class| {
            let mut kept = crate::cell::nodes::node::GpuSet::EMPTY;
            let stays = |held: &&Held| !held.preemptible || held.fenced || held.class > *class;
            for held in attempts.values().filter(stays) {
                held.gpus.iter().for_each(|device| kept.insert(device));
            }
            // At most 64 devices.
            (*class, (devices - kept.len()) as u16)
        });
        Outlook { without: without.collect(), whole_at: free_at }
    }
}

/// The forecasts of all nodes that take work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    /// The listed forecast of each node, by node number.
    listed: Vec<Option<(ModelId, Outlook)>>,
    /// Nodes that have changed since they were listed, each once.
    stale: Vec<NodeId>,
    /// Whether a node is in `stale`, by node number.
    noted: Vec<bool>,
    /// By model and number of whole GPUs. Number zero lists every node.
    by_time: BTreeMap<(ModelId, u16), BTreeSet<(Timestamp, NodeId)>>,
    by_preemption: BTreeMap<(ModelId, ClassRank), BTreeSet<(u16, NodeId)>>,
}

impl Profile {
    /// Marks a node as stale.
    pub(crate) fn touch(&mut self, id: NodeId) {
        if self.noted.len() <= id.index() {
            self.noted.resize(id.index() + 1, false);
            self.listed.resize(id.index() + 1, None);
        }
        if !std::mem::replace(&mut self.noted[id.index()], true) {
            self.stale.push(id);
        }
    }

    pub(crate) fn is_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Refreshes the stale nodes. `outlook` returns the forecast of a node that takes work.
    pub(crate) fn refresh(&mut self, outlook: impl Fn(NodeId) -> Option<(ModelId, Outlook)>) {
        for id in std::mem::take(&mut self.stale) {
            self.noted[id.index()] = false;
            let new = outlook(id);
            match (self.listed[id.index()].take(), &new) {
                // The same hardware.
                (Some((was, old)), Some((is, new)))
                    if was == *is && old.whole_at.len() == new.whole_at.len() =>
                {
                    self.change(*is, id, &old, new);
                }
                (old, new) => {
                    if let Some((model, old)) = old {
                        self.remove(model, id, &old);
                    }
                    if let Some((model, new)) = new {
                        self.add(*model, id, new);
                    }
                }
            }
            self.listed[id.index()] = new;
        }
    }

    fn add(&mut self, model: ModelId, id: NodeId, outlook: &Outlook) {
        self.by_time.entry((model, 0)).or_default().insert((Timestamp::MIN, id));
        for (at, count) in outlook.whole_at.iter().zip(1..) {
            self.by_time.entry((model, count)).or_default().insert((*at, id));
        }
        for (class, count) in &outlook.without {
            self.by_preemption.entry((model, *class)).or_default().insert((*count, id));
        }
    }

    fn remove(&mut self, model: ModelId, id: NodeId, outlook: &Outlook) {
        self.drop_time(model, 0, Timestamp::MIN, id);
        for (at, count) in outlook.whole_at.iter().zip(1..) {
            self.drop_time(model, count, *at, id);
        }
        for (class, count) in &outlook.without {
            self.drop_preemption(model, *class, *count, id);
        }
    }

    /// Replaces a node's forecast, updating only what differs.
    fn change(&mut self, model: ModelId, id: NodeId, old: &Outlook, new: &Outlook) {
        for ((before, after), count) in old.whole_at.iter().zip(&new.whole_at).zip(1..) {
            if before != after {
                self.drop_time(model, count, *before, id);
                self.by_time.entry((model, count)).or_default().insert((*after, id));
            }
        }
        if old.without != new.without {
            for (class, count) in &old.without {
                self.drop_preemption(model, *class, *count, id);
            }
            for (class, count) in &new.without {
                self.by_preemption.entry((model, *class)).or_default().insert((*count, id));
            }
        }
    }

    fn drop_time(&mut self, model: ModelId, count: u16, at: Timestamp, id: NodeId) {
        if let Some(nodes) = self.by_time.get_mut(&(model, count)) {
            nodes.remove(&(at, id));
        }
    }

    fn drop_preemption(&mut self, model: ModelId, class: ClassRank, count: u16, id: NodeId) {
        if let Some(nodes) = self.by_preemption.get_mut(&(model, class)) {
            nodes.remove(&(count, id));
        }
    }

    /// Whether two profiles list the same nodes, regardless of their history.
    pub(crate) fn lists_the_same(&self, other: &Profile) -> bool {
        let times = |profile: &Profile| {
            let full = profile.by_time.iter().filter(|(_, nodes)| !nodes.is_empty());
            full.map(|(key, nodes)| (*key, nodes.clone())).collect::<Vec<_>>()
        };
        let classes = |profile: &Profile| {
            let full = profile.by_preemption.iter().filter(|(_, nodes)| !nodes.is_empty());
            full.map(|(key, nodes)| (*key, nodes.clone())).collect::<Vec<_>>()
        };
        times(self) == times(other) && classes(self) == classes(other)
    }

    /// Nodes of a model, ordered by when `count` whole GPUs will be free.
    pub(crate) fn by_time(
        &self,
        model: ModelId,
        count: u16,
    ) -> impl Iterator<Item = (Timestamp, NodeId)> {
        self.by_time.get(&(model, count)).into_iter().flatten().copied()
    }

    /// Nodes of a model that would have `count` whole GPUs free without the preemptible attempts up
    /// to a class. The lowest classes come first, then the nodes with the fewest GPUs to spare. A
    /// node may occur more than once.
    pub(crate) fn by_preemption(
        &self,
        model: ModelId,
        up_to: ClassRank,
        count: u16,
    ) -> impl Iterator<Item = NodeId> {
        self.by_preemption
            .range((model, ClassRank(0))..=(model, up_to))
            .flat_map(move |(_, nodes)| nodes.range((count, NodeId(0))..).map(|(_, id)| *id))
    }
}

/// When a shape will fit on a node if every attempt ends by its longest runtime; not before `now`.
pub(crate) fn fits_at(
    node: &Node,
    attempts: &BTreeMap<AttemptId, Held>,
    shapes: &Shapes,
    shape: &Shape,
    now: Timestamp,
) -> Option<Timestamp> {
    if node.fits(shape) {
        return Some(now);
    }
    let mut leaving: SmallVec<[(Timestamp, AttemptId); 8]> =
        attempts.iter().map(|(attempt, held)| (held.until, *attempt)).collect();
    leaving.sort_unstable();
    let mut later = node.clone();
    leaving.into_iter().find_map(|(until, attempt)| {
        let held = &attempts[&attempt];
        later.give(shapes.get(held.shape), held.gpus);
        later.fits(shape).then_some(until.max(now))
    })
}

/// Whole GPUs that are sufficient for a shape.
pub(crate) fn whole_gpus(shape: &Shape) -> u16 {
    shape.gpu.devices()
}
