//! The maximum of heights whose prefixes are raised.

use super::cascade::Cascade;
use super::effort;

/// Lower than any height, and far enough from the end of the range that it can be added to.
pub(super) const NEVER: i128 = -(i128::MAX / 4);

/// A list of heights with its maximum. Raising n heights n times takes O(n α(n)) steps.
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    highest: i128,
    /// How much higher each height is than all before it, from the second on. Raising a prefix
    /// raises the maximum only by the amount that exceeds these leads.
    ahead: Cascade<i128>,
}

impl Peaks {
    pub(super) fn new(heights: impl ExactSizeIterator<Item = i128>) -> Self {
        effort::count(heights.len());
        let mut ahead = Cascade::with_capacity(heights.len());
        let mut highest: Option<i128> = None;
        for height in heights {
            if let Some(before) = highest {
                ahead.push((height - before).max(0));
            }
            highest = highest.max(Some(height));
        }
        Self { highest: highest.unwrap_or(NEVER), ahead }
    }

    /// The maximum.
    pub(super) fn highest(&self) -> i128 {
        self.highest
    }

    /// Raises all heights up to and including `index`. Returns by how much that raises the maximum.
    pub(super) fn raise_up_to(&mut self, index: usize, by: i128) -> i128 {
        let lift = self.ahead.pour(index, by);
        self.highest += lift;
        lift
    }
}
