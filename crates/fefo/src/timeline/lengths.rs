//! How long the ways from cell to cell are.

use std::ops::Range;

use super::effort;

/// Lengths by the cell from which and the cell to which. For k cells, one length is read in O(1), and all ways that pass
/// over a pack get longer in O(k).
///
/// The cells are taken together in about √k blocks of as many. What is added for a whole block of either is kept
/// once for the block, so that a length is the sum of four numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    cells: usize,
    blocks: usize,
    /// The block of a cell is its number without so many of the last digits, in binary.
    shift: u32,
    cell_to_cell: Vec<i128>,
    cell_to_block: Vec<i128>,
    block_to_cell: Vec<i128>,
    block_to_block: Vec<i128>,
}

impl Lengths {
    /// The ways between so many cells, as long as what starts and expires in the cells between their ends. The packs
    /// are told by the cells in which they start and expire, and their amounts.
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

    /// The ways from one cell.
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

    /// Makes the ways from one cell into some others longer.
    pub(super) fn add(&mut self, from: usize, to: Range<usize>, amount: i128) {
        add(&mut self.cell_to_cell, self.cells, from..from + 1, to, amount);
    }

    /// Makes all ways longer that pass over a pack: from cells before its start to cells after its expiry.
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

/// The ways from one cell to all others.
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

/// Adds an amount in some columns of some rows.
fn add(table: &mut [i128], width: usize, rows: Range<usize>, columns: Range<usize>, amount: i128) {
    effort::count(rows.len() * columns.len());
    for row in rows {
        for length in &mut table[row * width..][columns.clone()] {
            *length += amount;
        }
    }
}
