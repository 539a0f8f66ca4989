//! Lengths of the paths between cells.

use std::ops::Range;

use super::effort;

/// Lengths by source and target cell. For k cells, reading one length takes O(1), and lengthening
/// all paths that pass over a pack takes O(k).
///
/// The cells are grouped into about √k blocks of about √k cells. An amount added to a whole block
/// is stored once for the block, so a length is the sum of four numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    cells: usize,
    blocks: usize,
    /// The block of a cell is its number shifted right by this many bits.
    shift: u32,
    cell_to_cell: Vec<i128>,
    cell_to_block: Vec<i128>,
    block_to_cell: Vec<i128>,
    block_to_block: Vec<i128>,
}

impl Lengths {
    /// The paths between `cells` cells. The length of a path is the sum of the packs that start and
    /// expire in the cells between its ends. A pack is given by its start cell, its expiry cell and
    /// its amount.
    pub(super) fn new(cells: usize, packs: impl Iterator<Item = (usize, usize, u64)>) -> Self {
        effort::count(cells * cells);
        let mut lengths = vec![0; cells * cells];
        for (start, expiry, amount) in packs {
            if expiry + 1 < cells {
                lengths[start * cells + expiry + 1] += i128::from(amount);
            }
        }
        let mut later = vec![0; cells];
        for row in lengths.chunks_mut(cells).rev() {
            let mut sum = 0;
            for (length, later) in row.iter_mut().zip(&mut later) {
                sum += *length;
                *length = *later;
                *later += sum;
            }
        }
        let shift = cells.ilog2() / 2;
        let blocks = ((cells - 1) >> shift) + 1;
        Self {
            cells,
            blocks,
            shift,
            cell_to_cell: lengths,
            cell_to_block: vec![0; cells * blocks],
            block_to_cell: vec![0; blocks * cells],
            block_to_block: vec![0; blocks * blocks],
        }
    }

    /// The paths from one cell.
    pub(super) fn from(&self, cell: usize) -> Row<'_> {
        let block = cell >> self.shift;
        Row {
            shift: self.shift,
            cell_to_cell: row(&self.cell_to_cell, self.cells, cell),
            cell_to_block: row(&self.cell_to_block, self.blocks, cell),
            block_to_cell: row(&self.block_to_cell, self.cells, block),
            block_to_block: row(&self.block_to_block, self.blocks, block),
        }
    }

    /// Lengthens the paths from one cell to a range of others.
    pub(super) fn add(&mut self, from: usize, to: Range<usize>, amount: i128) {
        add(&mut self.cell_to_cell, self.cells, from..from + 1, to, amount);
    }

    /// Lengthens all paths that pass over a pack: from cells before its start to cells after its
    /// expiry.
    pub(super) fn pass_over(&mut self, start: usize, expiry: usize, amount: i128) {
        let (cells, blocks) = (self.cells, self.blocks);
        let (start_block, next_block) = (start >> self.shift, (expiry >> self.shift) + 1);
        let from = start_block << self.shift..start;
        let to = expiry + 1..cells.min(next_block << self.shift);
        add(&mut self.cell_to_cell, cells, from.clone(), to.clone(), amount);
        add(&mut self.cell_to_block, blocks, from, next_block..blocks, amount);
        add(&mut self.block_to_cell, cells, 0..start_block, to, amount);
        add(&mut self.block_to_block, blocks, 0..start_block, next_block..blocks, amount);
    }
}

/// The paths from one cell to all others.
pub(super) struct Row<'a> {
    shift: u32,
    cell_to_cell: &'a [i128],
    cell_to_block: &'a [i128],
    block_to_cell: &'a [i128],
    block_to_block: &'a [i128],
}

impl Row<'_> {
    pub(super) fn to(&self, cell: usize) -> i128 {
        effort::count(1);
        let block = cell >> self.shift;
        self.cell_to_cell[cell]
            + self.cell_to_block[block]
            + self.block_to_cell[cell]
            + self.block_to_block[block]
    }
}

fn row(table: &[i128], width: usize, index: usize) -> &[i128] {
    &table[index * width..][..width]
}

/// Adds an amount to a range of columns in a range of rows.
fn add(table: &mut [i128], width: usize, rows: Range<usize>, columns: Range<usize>, amount: i128) {
    effort::count(rows.len() * columns.len());
    for row in rows {
        for length in &mut table[row * width..][columns.clone()] {
            *length += amount;
        }
    }
}
