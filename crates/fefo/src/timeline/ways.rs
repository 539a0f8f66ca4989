//! Paths between cells, and the longest of them.

use std::ops::Range;

use super::arrivals::Arrivals;
use super::cell::Cell;
use super::event::Pack;
use super::lengths::Lengths;

/// The length of the path from one cell to another: the best of its [`Arrivals`], what the first
/// cell leaves of packs that expire before the second, and the packs that start and expire in the
/// cells between.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways(Lengths);

/// A cell from which the longest path may come.
#[derive(Clone, Copy)]
struct Candidate {
    from: usize,
    /// The first cell to which the candidate below on the stack has a path of at least the same
    /// length.
    until: usize,
}

impl Ways {
    /// The paths between `cells` cells that hand nothing over, with packs as [`Lengths::new`] takes
    /// them.
    pub(super) fn new(cells: usize, packs: impl Iterator<Item = (usize, usize, u64)>) -> Self {
        Self(Lengths::new(cells, packs))
    }

    /// Adds one pack to the paths that pass over it.
    pub(super) fn pass_over(&mut self, pack: &Pack) {
        self.0.pass_over(pack.starts_in, pack.expires_in, i128::from(pack.amount));
    }

    /// Updates the paths into a cell after its arrivals changed.
    pub(super) fn replace(&mut self, here: usize, old: &Arrivals, new: &Arrivals) {
        for from in 0..here {
            self.0.add(from, here..here + 1, new.best(from) - old.best(from));
        }
    }

    /// Adds an amount that a cell hands over to a range of others.
    pub(super) fn extend(&mut self, from: usize, to: Range<usize>, more: i128) {
        if more != 0 {
            self.0.add(from, to, more);
        }
    }

    /// The length of the path from a cell to the start of another, without its arrivals there.
    pub(super) fn before(&self, from: usize, here: usize, arrivals: &Arrivals) -> i128 {
        self.0.from(from).to(here) - arrivals.best(from)
    }

    /// What is gone at the start of each cell and at the end of time, by the longest paths.
    ///
    /// A path from an earlier cell catches up with one from a later cell as both lead further, and
    /// then stays ahead: what started between, less what the later cell left of its own, only grows
    /// with the expiry. So the candidates are kept on a stack, the latest on top, each with the
    /// cell at which the one below it catches up, which is found by bisection.
    ///
    /// The longest path never ends in a cell without expiries, but one path can catch up with
    /// another there.
    pub(super) fn follow(&self, cells: &[Cell]) -> Vec<i128> {
        let mut gone = Vec::with_capacity(cells.len() + 1);
        gone.push(0);
        let mut stack: Vec<Candidate> = Vec::new();
        for (here, cell) in cells.iter().enumerate() {
            let mut reached = gone[here] + cell.gone;
            while stack.last().is_some_and(|top| top.until <= here) {
                stack.pop();
            }
            if let Some(top) = stack.last() {
                reached = reached.max(gone[top.from + 1] + self.0.from(top.from).to(here));
            }
            gone.push(reached);
            if here + 1 < cells.len() {
                self.push_candidate(here, cells.len(), &mut stack, &gone);
            }
        }
        gone
    }

    /// Pushes a cell if it is ever the best candidate, and pops those that no longer are.
    fn push_candidate(&self, here: usize, end: usize, stack: &mut Vec<Candidate>, gone: &[i128]) {
        let from_here = self.0.from(here);
        while let Some(&top) = stack.last() {
            let from_top = self.0.from(top.from);
            let lead = gone[here + 1] - gone[top.from + 1];
            let leads = |to: usize| from_top.to(to) - from_here.to(to) < lead;
            if !leads(here + 1) {
                return;
            }
            // Beyond the cell where the one below catches up with the top, the top no longer
            // matters.
            let (mut ahead, mut until) = (here + 1, top.until - 1);
            if ahead < until && !leads(until) {
                while ahead + 1 < until {
                    let middle = usize::midpoint(ahead, until);
                    if leads(middle) {
                        ahead = middle;
                    } else {
                        until = middle;
                    }
                }
                stack.push(Candidate { from: here, until });
                return;
            }
            stack.pop();
        }
        stack.push(Candidate { from: here, until: end });
    }
}
