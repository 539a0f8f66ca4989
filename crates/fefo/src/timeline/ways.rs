//! The ways from cell to cell, and the best of them.

use std::ops::Range;

use super::arrivals::Arrivals;
use super::between::Between;
use super::cell::Cell;

/// By the cell from which and the cell to which: what goes by that way, without what starts and expires in the cells
/// between. That is what [`Arrivals`] say, and what the first cell leaves of packs that expire before the second.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways(Vec<Vec<i128>>);

/// A cell from which the best way may come.
#[derive(Clone, Copy)]
struct Candidate {
    from: usize,
    /// The first cell into which the candidate below gives as much.
    until: usize,
}

impl Ways {
    pub(super) fn new(cells: usize) -> Self {
        Self(vec![vec![0; cells]; cells])
    }

    /// Takes over what changed for the ways into a cell.
    pub(super) fn replace(&mut self, here: usize, old: &Arrivals, new: &Arrivals) {
        for (from, ways) in self.0[..here].iter_mut().enumerate() {
            ways[here] += new.best(from) - old.best(from);
        }
    }

    /// Sets the ways from a cell into some others, before which so much is left over and expires.
    pub(super) fn lead(&mut self, from: usize, to: Range<usize>, before: i128, cells: &[Cell]) {
        for here in to {
            self.0[from][here] = before + cells[here].arrivals.best(from);
        }
    }

    /// What a cell leaves of packs that expire before another.
    pub(super) fn before(&self, from: usize, here: usize, arrivals: &Arrivals) -> i128 {
        self.0[from][here] - arrivals.best(from)
    }

    /// What is gone at the start of each cell and at the end, by the best ways.
    ///
    /// A way from an earlier cell catches up with one from a later cell as both lead further, and then stays ahead: what
    /// started between, less what the later cell left of its own, only grows with the expiry. So the candidates
    /// lie on a stack, the latest on top, each with the cell at which the one below it catches up, found by bisection.
    pub(super) fn follow(&self, cells: &[Cell], between: &Between) -> Vec<i128> {
        let open: Vec<usize> = (0..cells.len()).filter(|&here| cells[here].arrivals.open()).collect();
        let mut gone = Vec::with_capacity(cells.len() + 1);
        gone.push(0);
        let mut stack: Vec<Candidate> = Vec::new();
        let mut next_open = 0;
        for (here, cell) in cells.iter().enumerate() {
            let worth = |from: usize, to: usize, gone: &[i128]| {
                gone[from + 1] + self.0[from][to] + between.sum(from, to)
            };
            let mut reached = gone[here] + cell.gone;
            if open.get(next_open) == Some(&here) {
                next_open += 1;
                while stack.last().is_some_and(|top| top.until <= here) {
                    stack.pop();
                }
                if let Some(top) = stack.last() {
                    reached = reached.max(worth(top.from, here, &gone));
                }
            }
            gone.push(reached);
            let ahead = &open[next_open..];
            loop {
                let Some(&top) = stack.last() else {
                    stack.push(Candidate { from: here, until: usize::MAX });
                    break;
                };
                let behind = |&to: &usize| worth(top.from, to, &gone) < worth(here, to, &gone);
                let until = match ahead.last() {
                    None => break,
                    Some(last) if behind(last) => usize::MAX,
                    Some(_) => ahead[ahead.partition_point(behind)],
                };
                if until == ahead[0] {
                    break;
                }
                if until < top.until {
                    stack.push(Candidate { from: here, until });
                    break;
                }
                stack.pop();
            }
        }
        gone
    }
}
