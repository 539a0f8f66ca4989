//! Where credits meet room: the one-dimensional core of a merge.
//!
//! A profile is a walk along time. A positive step at `x` is credits that expire at `x`, a
//! negative one is room (demand that such credits may still serve). Credits fill the room that
//! opened at or before their expiry; what finds none overflows at that instant. With `slack` the
//! room left so far, one step `s` does `overflow = max(0, s - slack)`, `slack = max(0, slack - s)`.
//!
//! Steps live in blocks of about √n, each with the sum and the highest prefix of its steps: enough
//! to pass a block without looking inside whenever nothing overflows in it.

use super::points::Point;

/// Tiny in this crate's unit tests, so that short walks have many blocks.
const SMALLEST_CAPACITY: usize = if cfg!(test) { 2 } else { 32 };

#[derive(Clone, Debug)]
pub(super) struct Profile {
    blocks: Vec<Block>,
    capacity: usize,
}

#[derive(Clone, Debug)]
struct Block {
    steps: Vec<Point>,
    sum: i128,
    /// The greatest sum over the non-empty prefixes of `steps`.
    peak: i128,
}

impl Block {
    fn new(steps: Vec<Point>) -> Self {
        let (mut sum, mut peak) = (0, i128::MIN);
        for step in &steps {
            sum += step.1;
            peak = peak.max(sum);
        }
        Self { steps, sum, peak }
    }

    fn last(&self) -> i64 {
        self.steps.last().expect("a profile keeps no empty block").0
    }

    fn slack_after(&self, slack: i128) -> i128 {
        slack.max(self.peak) - self.sum
    }
}

/// The walk before and after a change, step by step, and where their overflows differ.
struct Comparison {
    slack_before: i128,
    slack_after: i128,
    overflow: Vec<Point>,
}

impl Comparison {
    fn step(&mut self, instant: i64, before: i128, after: i128) {
        let spilled_before = (before - self.slack_before).max(0);
        let spilled_after = (after - self.slack_after).max(0);
        self.slack_before = (self.slack_before - before).max(0);
        self.slack_after = (self.slack_after - after).max(0);
        if spilled_before != spilled_after {
            self.overflow.push((instant, spilled_after - spilled_before));
        }
    }

    fn has_converged(&self) -> bool {
        self.slack_before == self.slack_after
    }

    /// Passes an unchanged block, looking inside only if the overflow in it differs.
    fn pass(&mut self, block: &Block) {
        if self.has_converged() || block.peak <= self.slack_before.min(self.slack_after) {
            self.slack_before = block.slack_after(self.slack_before);
            self.slack_after = block.slack_after(self.slack_after);
        } else {
            for &(instant, step) in &block.steps {
                self.step(instant, step, step);
            }
        }
    }

    /// Passes a block while adding `changes` to its steps; returns the new steps.
    fn rewrite(&mut self, steps: &[Point], changes: &[Point]) -> Vec<Point> {
        let mut rewritten = Vec::with_capacity(steps.len() + changes.len());
        let (mut i, mut j) = (0, 0);
        while i < steps.len() || j < changes.len() {
            let instant = match (steps.get(i), changes.get(j)) {
                (Some(step), Some(change)) => step.0.min(change.0),
                (Some(step), None) => step.0,
                (None, Some(change)) => change.0,
                (None, None) => break,
            };
            let mut before = 0;
            if i < steps.len() && steps[i].0 == instant {
                before = steps[i].1;
                i += 1;
            }
            let mut after = before;
            if j < changes.len() && changes[j].0 == instant {
                after += changes[j].1;
                j += 1;
            }
            self.step(instant, before, after);
            if after != 0 {
                rewritten.push((instant, after));
            }
        }
        rewritten
    }
}

impl Profile {
    /// The profile of sorted `steps`.
    pub(super) fn new(steps: &[Point]) -> Self {
        let capacity = steps.len().isqrt().max(SMALLEST_CAPACITY);
        let blocks = steps.chunks(capacity / 2).map(|chunk| Block::new(chunk.to_vec())).collect();
        Self { blocks, capacity }
    }

    pub(super) fn steps(&self) -> Vec<Point> {
        self.blocks.iter().flat_map(|block| block.steps.iter().copied()).collect()
    }

    /// What overflows, and when.
    pub(super) fn overflow(&self) -> Vec<Point> {
        let mut slack = 0;
        let mut overflow = Vec::new();
        for &(instant, step) in self.blocks.iter().flat_map(|block| &block.steps) {
            if step > slack {
                overflow.push((instant, step - slack));
            }
            slack = (slack - step).max(0);
        }
        overflow
    }

    /// What overflows at instants strictly before `instant`.
    pub(super) fn overflow_before(&self, instant: i64) -> i128 {
        let (mut height, mut highest) = (0, 0);
        for block in &self.blocks {
            if block.last() >= instant {
                for step in block.steps.iter().take_while(|step| step.0 < instant) {
                    height += step.1;
                    highest = highest.max(height);
                }
                break;
            }
            highest = highest.max(height + block.peak);
            height += block.sum;
        }
        highest
    }

    /// Adds sorted `changes` to the steps; returns the change of the overflow.
    pub(super) fn apply(&mut self, changes: &[Point]) -> Vec<Point> {
        if self.blocks.is_empty() {
            *self = Self::new(changes);
            return self.overflow();
        }
        let mut comparison = Comparison { slack_before: 0, slack_after: 0, overflow: Vec::new() };
        let mut remaining = changes;
        let mut outgrown = Vec::new();
        let last_index = self.blocks.len() - 1;
        for (index, block) in self.blocks.iter_mut().enumerate() {
            if remaining.is_empty() && comparison.has_converged() {
                break;
            }
            let end = if index == last_index { i64::MAX } else { block.last() };
            let (here, later) =
                remaining.split_at(remaining.partition_point(|change| change.0 <= end));
            remaining = later;
            if here.is_empty() {
                comparison.pass(block);
                continue;
            }
            *block = Block::new(comparison.rewrite(&block.steps, here));
            if block.steps.is_empty() || block.steps.len() > self.capacity {
                outgrown.push(index);
            }
        }
        self.tidy(&outgrown);
        comparison.overflow
    }

    /// Drops empty blocks, divides full ones, and regroups when there are too many of them.
    fn tidy(&mut self, outgrown: &[usize]) {
        for &index in outgrown.iter().rev() {
            let steps = std::mem::take(&mut self.blocks[index].steps);
            let parts = steps.chunks(self.capacity / 2).map(|part| Block::new(part.to_vec()));
            self.blocks.splice(index..=index, parts);
        }
        if self.blocks.len() > 4 * self.capacity {
            *self = Self::new(&self.steps());
        }
    }
}
