//! A walk whose steps change, and how high it gets.

use super::effort;

/// Lower than any height, and far enough from the end of the range to be added to.
pub(super) const NEVER: i128 = -(i128::MAX / 4);

/// A part of a walk: how far it leads, and the highest point on it.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    sum: i128,
    peak: i128,
}

const EMPTY: Stretch = Stretch { sum: 0, peak: NEVER };

impl Stretch {
    fn then(self, next: Self) -> Self {
        Self { sum: self.sum + next.sum, peak: self.peak.max(self.sum + next.peak) }
    }
}

/// Steps in a binary tree of stretches: a step is changed, and the highest point between two steps found, in
/// O(log n).
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`, the steps at the end.
    stretches: Vec<Stretch>,
    width: usize,
}

impl Peaks {
    /// The walk that has these heights after its steps.
    pub(super) fn with_heights(heights: impl ExactSizeIterator<Item = i128>) -> Self {
        let width = heights.len().next_power_of_two();
        effort::count(2 * width);
        let mut stretches = vec![EMPTY; 2 * width];
        let mut last = 0;
        for (place, height) in stretches[width..].iter_mut().zip(heights) {
            let step = height - last;
            *place = Stretch { sum: step, peak: step };
            last = height;
        }
        for index in (1..width).rev() {
            stretches[index] = stretches[2 * index].then(stretches[2 * index + 1]);
        }
        Self { stretches, width }
    }

    /// The highest point of all.
    pub(super) fn peak(&self) -> i128 {
        self.stretches[1].peak
    }

    /// Raises everything from this step on.
    pub(super) fn raise_from(&mut self, step: usize, by: i128) {
        effort::count(self.depth());
        let mut index = self.width + step;
        self.stretches[index].sum += by;
        self.stretches[index].peak += by;
        while index > 1 {
            index /= 2;
            self.stretches[index] = self.stretches[2 * index].then(self.stretches[2 * index + 1]);
        }
    }

    /// The highest point in each part that these steps begin, and in the part before the first of them.
    pub(super) fn peaks_between(&self, cuts: impl Iterator<Item = usize>, into: &mut Vec<i128>) {
        let (mut from, mut height) = (0, 0);
        for cut in cuts.chain([self.width]) {
            let part = self.part(from, cut);
            into.push(height + part.peak);
            height += part.sum;
            from = cut;
        }
    }

    fn depth(&self) -> usize {
        1 + self.width.ilog2() as usize
    }

    fn part(&self, from: usize, to: usize) -> Stretch {
        effort::count(self.depth());
        let (mut first, mut last) = (EMPTY, EMPTY);
        let (mut low, mut high) = (from + self.width, to + self.width);
        while low < high {
            if low % 2 == 1 {
                first = first.then(self.stretches[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                last = self.stretches[high].then(last);
            }
            low /= 2;
            high /= 2;
        }
        first.then(last)
    }
}
