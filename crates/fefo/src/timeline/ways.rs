//! The ways from cell to cell, and the best of them.

use std::ops::Range;

use super::arrivals::Arrivals;
use super::between::Between;
use super::cell::Cell;
use super::effort;

/// By the cell from which and the cell to which: what goes by that way, without what starts and expires in the cells
/// between. That is what [`Arrivals`] say, and what the first cell leaves of packs that expire before the second.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    cells: usize,
    /// A row for each cell from which they come.
    ways: Vec<i128>,
}

/// A cell from which the best way may come.
#[derive(Clone, Copy)]
struct Candidate {
    from: usize,
    /// The first cell into which the candidate below gives as much.
    until: usize,
}

impl Ways {
    pub(super) fn new(cells: usize) -> Self {
        Self { cells, ways: vec![0; cells * cells] }
    }

    /// Takes over what changed for the ways into a cell.
    pub(super) fn replace(&mut self, here: usize, old: &Arrivals, new: &Arrivals) {
        effort::count(here);
        for from in 0..here {
            self.ways[from * self.cells + here] += new.best(from) - old.best(from);
        }
    }

    /// Sets the ways from a cell into some others, before which so much is left over and expires.
    pub(super) fn lead(&mut self, from: usize, to: Range<usize>, before: i128, cells: &[Cell]) {
        effort::count(to.len());
        let row = &mut self.ways[from * self.cells..];
        for here in to {
            row[here] = before + cells[here].arrivals.best(from);
        }
    }

    /// What a cell leaves of packs that expire before another.
    pub(super) fn before(&self, from: usize, here: usize, arrivals: &Arrivals) -> i128 {
        self.ways[from * self.cells + here] - arrivals.best(from)
    }

    /// What is gone at the start of each cell and at the end, by the best ways.
    ///
    /// A way from an earlier cell catches up with one from a later cell as both lead further, and then stays ahead: what
    /// started between, less what the later cell left of its own, only grows with the expiry. So the candidates
    /// lie on a stack, the latest on top, each with the cell at which the one below it catches up, found by bisection.
    pub(super) fn follow(&self, cells: &[Cell], between: &Between) -> Vec<i128> {
        let open: Vec<usize> =
            (0..cells.len()).filter(|&here| cells[here].arrivals.open()).collect();
        let mut gone = Vec::with_capacity(cells.len() + 1);
        gone.push(0);
        let mut stack: Vec<Candidate> = Vec::new();
        let mut passed = 0;
        for (here, cell) in cells.iter().enumerate() {
            let mut reached = gone[here] + cell.gone;
            if open.get(passed) == Some(&here) {
                passed += 1;
                while stack.last().is_some_and(|top| top.until <= here) {
                    stack.pop();
                }
                if let Some(top) = stack.last() {
                    reached = reached.max(self.worth(top.from, here, &gone, between));
                }
            }
            gone.push(reached);
            let ahead = &open[passed..];
            if !ahead.is_empty() {
                self.compete(here, ahead, &mut stack, &gone, between);
            }
        }
        gone
    }

    /// Puts a cell on the stack if it is ever the best, and takes those off that no longer are.
    fn compete(
        &self,
        here: usize,
        ahead: &[usize],
        stack: &mut Vec<Candidate>,
        gone: &[i128],
        between: &Between,
    ) {
        while let Some(&top) = stack.last() {
            let (behind, ahead_of) = (self.from(top.from), self.from(here));
            let lead = gone[here + 1] - gone[top.from + 1];
            let leads = |&to: &usize| {
                behind[to] - ahead_of[to] + between.sum_up_to(top.from, here, to) < lead
            };
            if !leads(&ahead[0]) {
                return;
            }
            // Where the one below has caught up with the top, the top no longer matters.
            let rivals = &ahead[..ahead.partition_point(|&to| to < top.until)];
            if rivals.last().is_some_and(|last| !leads(last)) {
                let until = rivals[rivals.partition_point(leads)];
                stack.push(Candidate { from: here, until });
                return;
            }
            stack.pop();
        }
        stack.push(Candidate { from: here, until: usize::MAX });
    }

    /// What is gone after a cell if the best way comes from that other one.
    fn worth(&self, from: usize, to: usize, gone: &[i128], between: &Between) -> i128 {
        gone[from + 1] + self.from(from)[to] + between.sum(from, to)
    }

    fn from(&self, cell: usize) -> &[i128] {
        &self.ways[cell * self.cells..][..self.cells]
    }
}
