//! Names and keys in use, and for how long: each has one effect (L5).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Books, LawResult, require};
use crate::node::Node;

/// Names and keys in use, oldest first.
pub(crate) struct Memory {
    retention_ms: i64,
    answers: BTreeSet<Vec<u8>>,
    answer_queue: VecDeque<Vec<u8>>,
    hold_names: BTreeSet<(u32, u64, String)>,
    hold_queue: VecDeque<u32>,
    /// Holds of jobs that stay for the whole retention.
    old_hold_queue: VecDeque<u32>,
    archived_through: u64,
    movements: BTreeMap<u32, (u32, u64, String)>,
    movement_names: BTreeSet<(u32, u64, String)>,
    movement_queue: VecDeque<u32>,
    buckets: BTreeSet<u32>,
    bucket_queue: VecDeque<u32>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            // 35 days, until a policy is set.
            retention_ms: 35 * 24 * 3_600_000,
            answers: BTreeSet::new(),
            answer_queue: VecDeque::new(),
            hold_names: BTreeSet::new(),
            hold_queue: VecDeque::new(),
            old_hold_queue: VecDeque::new(),
            archived_through: 0,
            movements: BTreeMap::new(),
            movement_names: BTreeSet::new(),
            movement_queue: VecDeque::new(),
            buckets: BTreeSet::new(),
            bucket_queue: VecDeque::new(),
        }
    }
}

impl Memory {
    pub(super) fn set_policy(&mut self, event: &Node) -> LawResult<()> {
        for key in 0..4 {
            let positive = event.field(key)?.time()? > 0;
            require(positive, "format", || "a policy with no retention".to_owned())?;
        }
        self.retention_ms = event.field(1)?.time()?;
        Ok(())
    }

    pub(super) fn answered(&mut self, event: &Node) -> LawResult<()> {
        let key = event.field(0)?.bytes()?.to_vec();
        require(key.len() == 16, "format", || "a key has 16 bytes".to_owned())?;
        event.field(2)?.tagged()?;
        self.answer_queue.push_back(key.clone());
        require(self.answers.insert(key), "L5", || "a key is answered twice".to_owned())
    }

    /// Registers the name of a hold or charge. Returns false if it is taken.
    pub(super) fn name_hold(&mut self, tenant: u32, kind: u64, name: &str) -> bool {
        self.hold_names.insert((tenant, kind, name.to_owned()))
    }

    pub(super) fn hold_closed(&mut self, number: u32) {
        self.hold_queue.push_back(number);
    }

    /// Registers the number and name of a movement. Returns false if one of them is taken.
    pub(super) fn movement_made(&mut self, number: u32, name: (u32, u64, String)) -> bool {
        self.movement_queue.push_back(number);
        let new = self.movement_names.insert(name.clone());
        new && self.movements.insert(number, name).is_none()
    }

    pub(super) fn bucket_expired(&mut self, number: u32) {
        self.buckets.insert(number);
        self.bucket_queue.push_back(number);
    }

    /// Whether late usage can still reach an expired bucket.
    pub(super) fn reaches(&self, bucket: u32) -> bool {
        self.buckets.contains(&bucket)
    }
}

impl Books {
    pub(super) fn forgotten(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let memory = &mut self.memory;
        let early = || EARLY.to_owned();
        for _ in 0..event.unsigned_or_zero(0)? {
            let key = memory.answer_queue.pop_front();
            require(key.is_some_and(|key| memory.answers.remove(&key)), "L5", early)?;
        }
        if let Some(archived) = event.get(5) {
            return self.forgotten_with_archive(event, archived);
        }
        for _ in 0..event.unsigned_or_zero(1)? {
            let number = memory.hold_queue.pop_front();
            let hold = number.and_then(|number| Some((number, self.holds.get(&number)?)));
            let Some((number, hold)) = hold else {
                return require(false, "L5", early);
            };
            if hold.moved_at.saturating_add(memory.retention_ms) >= at {
                memory.hold_queue.push_back(number);
                continue;
            }
            let tenant = self.accounts[hold.account as usize].tenant;
            memory.hold_names.remove(&(tenant, hold.kind, hold.name.clone()));
            self.holds.remove(&number);
        }
        for _ in 0..event.unsigned_or_zero(2)? {
            let number = memory.movement_queue.pop_front();
            let name = number.and_then(|number| memory.movements.remove(&number));
            require(name.is_some_and(|name| memory.movement_names.remove(&name)), "L5", early)?;
        }
        for _ in 0..event.unsigned_or_zero(3)? {
            let number = memory.bucket_queue.pop_front();
            require(number.is_some_and(|number| memory.buckets.remove(&number)), "L5", early)?;
        }
        Ok(())
    }

    /// Holds and movements that the archive has: all that were examined, but for those whose places are listed.
    fn forgotten_with_archive(&mut self, event: &Node, archived: &Node) -> LawResult<()> {
        let through = archived.field(0)?.unsigned()?;
        let advances = through >= self.memory.archived_through && through > 0;
        require(advances, "L5", || "the archive went back".to_owned())?;
        self.memory.archived_through = through;
        let (kept, longer) = (places(archived, 2)?, places(archived, 3)?);
        let holds = event.unsigned_or_zero(1)?;
        for place in 0..holds + archived.unsigned_or_zero(1)? {
            let is_old = place >= holds;
            let memory = &mut self.memory;
            let queue = if is_old { &mut memory.old_hold_queue } else { &mut memory.hold_queue };
            let Some(number) = queue.pop_front() else {
                return require(false, "L5", || EARLY.to_owned());
            };
            if kept.contains(&place) {
                queue.push_back(number);
            } else if longer.contains(&place) {
                memory.old_hold_queue.push_back(number);
            } else {
                let hold = self.holds.remove(&number);
                let closed = hold.as_ref().is_some_and(|hold| hold.state != 0);
                require(closed, "L6", || format!("hold {number} is forgotten while it is open"))?;
                let Some(hold) = hold else { continue };
                let tenant = self.accounts[hold.account as usize].tenant;
                memory.hold_names.remove(&(tenant, hold.kind, hold.name));
            }
        }
        let kept = places(archived, 4)?;
        for place in 0..event.unsigned_or_zero(2)? {
            let memory = &mut self.memory;
            let Some(number) = memory.movement_queue.pop_front() else {
                return require(false, "L5", || EARLY.to_owned());
            };
            if kept.contains(&place) {
                memory.movement_queue.push_back(number);
                continue;
            }
            let name = memory.movements.remove(&number);
            let known = name.is_some_and(|name| memory.movement_names.remove(&name));
            require(known, "L5", || EARLY.to_owned())?;
        }
        Ok(())
    }
}

const EARLY: &str = "more is forgotten than was kept";

/// A list of places in a field.
fn places(node: &Node, key: u64) -> LawResult<BTreeSet<u64>> {
    let list = node.get(key).map_or(Ok(&[][..]), Node::list)?;
    Ok(list.iter().map(Node::unsigned).collect::<Result<_, _>>()?)
}
