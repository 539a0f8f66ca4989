//! What starts and expires between two cells.

use super::effort;

/// Cells are summed in groups of this many, groups of groups and so on.
const GROUP: usize = 8;

/// Amounts by the cells in which they start and expire. A sum is read in O(log k) for k cells; one amount more is
/// O(k log k) additions along rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Between {
    cells: usize,
    /// A level has a row for each cell, the next for each group, the next for each group of groups: what starts in a later
    /// one of the same group, by the cell before which it expires.
    levels: Vec<Vec<i128>>,
}

impl Between {
    /// Sums for so many cells, of amounts that start in one and expire in another.
    pub(super) fn new(cells: usize, amounts: impl Iterator<Item = (usize, usize, u64)>) -> Self {
        let mut own = vec![0; cells * cells];
        for (start, expiry, amount) in amounts {
            if expiry + 1 < cells {
                own[start * cells + expiry + 1] += i128::from(amount);
            }
        }
        for row in own.chunks_mut(cells) {
            let mut sum = 0;
            for amount in row {
                sum += *amount;
                *amount = sum;
            }
        }
        let mut levels = Vec::new();
        while own.len() > cells {
            let mut groups = Vec::with_capacity(own.len().div_ceil(GROUP));
            for group in own.chunks_mut(GROUP * cells) {
                let mut later = vec![0; cells];
                for row in group.chunks_mut(cells).rev() {
                    for (sum, amount) in later.iter_mut().zip(row) {
                        *sum += std::mem::replace(amount, *sum);
                    }
                }
                groups.extend(later);
            }
            levels.push(std::mem::replace(&mut own, groups));
        }
        effort::count(levels.iter().map(Vec::len).sum());
        Self { cells, levels }
    }

    /// Counts one amount more.
    pub(super) fn add(&mut self, start: usize, expiry: usize, amount: u64) {
        let mut index = start;
        for level in &mut self.levels {
            let group = (index - index % GROUP) * self.cells..index * self.cells;
            for row in level[group].chunks_mut(self.cells) {
                effort::count(self.cells - expiry);
                for sum in &mut row[expiry + 1..] {
                    *sum += i128::from(amount);
                }
            }
            index /= GROUP;
        }
    }

    /// What starts after a cell, but not after a later one, and expires before a third.
    pub(super) fn sum_up_to(&self, after: usize, up_to: usize, before: usize) -> i128 {
        let (mut first, mut last) = (after, up_to);
        let mut sum = 0;
        for level in &self.levels {
            // From here on both say the same.
            if first == last {
                break;
            }
            effort::count(1);
            sum += level[first * self.cells + before] - level[last * self.cells + before];
            first /= GROUP;
            last /= GROUP;
        }
        sum
    }

    /// What starts after the one cell and expires before the other.
    pub(super) fn sum(&self, after: usize, before: usize) -> i128 {
        effort::count(self.levels.len());
        let mut index = after;
        let mut sum = 0;
        for level in &self.levels {
            sum += level[index * self.cells + before];
            index /= GROUP;
        }
        sum
    }
}
