//! What starts and expires between two cells.

/// Cells are summed in groups of this many, groups of groups and so on.
const GROUP: usize = 8;

/// Amounts by the cells in which they start and expire. A sum is read in O(log k) for k cells; one amount more is
/// O(k log k) additions along rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Between {
    /// Of each level the rows, one for each cell, group, group of groups: what starts in a later one of the same
    /// group, by the cell before which it expires.
    levels: Vec<Vec<Vec<i128>>>,
}

impl Between {
    /// Sums for so many cells, of amounts that start in one and expire in another.
    pub(super) fn new(cells: usize, amounts: impl Iterator<Item = (usize, usize, u64)>) -> Self {
        let mut own = vec![vec![0; cells + 1]; cells];
        for (start, expiry, amount) in amounts {
            own[start][expiry + 1] += i128::from(amount);
        }
        for row in &mut own {
            for index in 1..row.len() {
                row[index] += row[index - 1];
            }
        }
        let mut levels = Vec::new();
        while own.len() > 1 {
            let mut later = own.clone();
            let mut groups = Vec::new();
            for group in later.chunks_mut(GROUP) {
                let mut sum = vec![0; cells + 1];
                for row in group.iter_mut().rev() {
                    for (total, amount) in sum.iter_mut().zip(row) {
                        *total += std::mem::replace(amount, *total);
                    }
                }
                groups.push(sum);
            }
            levels.push(later);
            own = groups;
        }
        Self { levels }
    }

    /// Counts one amount more.
    pub(super) fn add(&mut self, start: usize, expiry: usize, amount: u64) {
        let mut index = start;
        for level in &mut self.levels {
            for row in &mut level[index - index % GROUP..index] {
                for sum in &mut row[expiry + 1..] {
                    *sum += i128::from(amount);
                }
            }
            index /= GROUP;
        }
    }

    /// What starts after the one cell and expires before the other.
    pub(super) fn sum(&self, after: usize, before: usize) -> i128 {
        let mut index = after;
        let mut sum = 0;
        for level in &self.levels {
            sum += level[index][before];
            index /= GROUP;
        }
        sum
    }
}
