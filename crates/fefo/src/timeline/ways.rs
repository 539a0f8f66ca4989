//! The ways from cell to cell, and the best of them.

use std::ops::Range;

use super::arrivals::Arrivals;
use super::cell::Cell;
use super::event::Pack;
use super::lengths::Lengths;

/// What goes by the way from one cell to another: what [`Arrivals`] say, what the first cell leaves of packs that expire
/// before the second, and what starts and expires in the cells between.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways(Lengths);

/// A cell from which the best way may come.
#[derive(Clone, Copy)]
struct Candidate {
    from: usize,
    /// The first cell into which the candidate below gives as much.
    until: usize,
}

impl Ways {
    /// The ways between so many cells that hand nothing over, with packs as [`Lengths::new`] takes them.
    pub(super) fn new(cells: usize, packs: impl Iterator<Item = (usize, usize, u64)>) -> Self {
        Self(Lengths::new(cells, packs))
    }

    /// Counts one pack more on the ways that pass over it.
    pub(super) fn pass_over(&mut self, pack: &Pack) {
        self.0.pass_over(pack.starts_in, pack.expires_in, i128::from(pack.amount));
    }

    /// Takes over what changed for the ways into a cell.
    pub(super) fn replace(&mut self, here: usize, old: &Arrivals, new: &Arrivals) {
        for from in 0..here {
            self.0.add(from, here..here + 1, new.best(from) - old.best(from));
        }
    }

    /// Takes over that so much more is handed over from a cell to some others.
    pub(super) fn extend(&mut self, from: usize, to: Range<usize>, more: i128) {
        if more != 0 {
            self.0.add(from, to, more);
        }
    }

    /// The way from a cell to the start of another, before anything of it arrives there.
    pub(super) fn before(&self, from: usize, here: usize, arrivals: &Arrivals) -> i128 {
        self.0.get(from, here) - arrivals.best(from)
    }

    /// What is gone at the start of each cell and at the end, by the best ways.
    ///
    /// A way from an earlier cell catches up with one from a later cell as both lead further, and then stays ahead: what
    /// started between, less what the later cell left of its own, only grows with the expiry. So the candidates
    /// lie on a stack, the latest on top, each with the cell at which the one below it catches up, found by bisection.
    pub(super) fn follow(&self, cells: &[Cell]) -> Vec<i128> {
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
                    reached = reached.max(gone[top.from + 1] + self.0.get(top.from, here));
                }
            }
            gone.push(reached);
            let ahead = &open[passed..];
            if !ahead.is_empty() {
                self.compete(here, ahead, &mut stack, &gone);
            }
        }
        gone
    }

    /// Puts a cell on the stack if it is ever the best, and takes those off that no longer are.
    fn compete(&self, here: usize, ahead: &[usize], stack: &mut Vec<Candidate>, gone: &[i128]) {
        while let Some(&top) = stack.last() {
            let lead = gone[here + 1] - gone[top.from + 1];
            let leads = |&to: &usize| self.0.get(top.from, to) - self.0.get(here, to) < lead;
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
}
