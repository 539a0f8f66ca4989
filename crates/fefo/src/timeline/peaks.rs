//! Heights of which the first ones are raised, and the highest of them.

use super::cascade::Cascade;
use super::effort;

/// Lower than any height, and far enough from the end of the range to be added to.
pub(super) const NEVER: i128 = -(i128::MAX / 4);

/// Raised n times, n heights are O(n α(n)) steps.
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    highest: i128,
    /// How much higher than all before it each height is, from the second on. Whatever raises those before raises the
    /// highest only by what is left when these have been caught up with.
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

    /// The highest of all.
    pub(super) fn highest(&self) -> i128 {
        self.highest
    }

    /// Raises all up to and including this one, and returns how much that raises the highest.
    pub(super) fn raise_up_to(&mut self, index: usize, by: i128) -> i128 {
        let lift = self.ahead.pour(index, by);
        self.highest += lift;
        lift
    }
}
