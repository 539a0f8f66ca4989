//! The effect of packs from earlier cells on the expiries of a cell.

use super::effort;
use super::event::{Event, Pack};
use super::peaks::Peaks;

/// For each earlier cell, the longest path from its end to the end of this cell. A path goes
/// through some expiry `x` of this cell. Its length is the sum of the packs that start after the
/// earlier cell and expire up to `x`, of the credits that the earlier cell alone leaves of its own
/// packs that expire up to `x`, and of what is consumed or expires in the rest of this cell when
/// that starts empty. Packs that expire before this cell are not counted here.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// The best of all expiries, by earlier cell; `NEVER` if there are none.
    best: Vec<i128>,
    /// The packs that arrive: those of the latest cell first, within a cell by expiry.
    packs: Vec<Arrival>,
    groups: Vec<Group>,
}

/// A pack that expires in this cell and started in an earlier one.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    pack: usize,
    /// By how much the whole of this pack improves the best expiry, after those before it in its
    /// group.
    lift: i128,
}

/// The packs that one cell hands over.
#[derive(Clone, Copy, Debug)]
struct Group {
    from: usize,
    first: usize,
    end: usize,
    /// The best of all expiries without these packs.
    best_without: i128,
}

impl Arrivals {
    /// For the cell `here` with these expiries and the rests after them, both from the last to the
    /// first. Takes O(k + m α(m)) for k earlier cells and m expiries.
    pub(super) fn new<'a>(
        here: usize,
        expiries: impl Iterator<Item = &'a Event>,
        rests: Vec<i128>,
        packs: &[Pack],
    ) -> Self {
        effort::count(here + rests.len());
        let mut expiring = Vec::with_capacity(rests.len());
        // `first_from`: by cell, the first expiry of a pack that arrives from there. `expiring`: by
        // expiry, the next one from the same cell.
        let mut first_from = vec![None; here];
        for (index, event) in expiries.enumerate() {
            let pack = event.moment.arrival;
            let next = if packs[pack].leaves() {
                first_from[packs[pack].starts_in].replace(index)
            } else {
                None
            };
            expiring.push((pack, next));
        }
        let arrivals = Vec::with_capacity(rests.len());
        let mut this = Self { best: vec![0; here], packs: arrivals, groups: Vec::new() };
        let mut peaks = Peaks::new(rests.into_iter());
        for from in (0..here).rev() {
            let best_without = peaks.highest();
            this.best[from] = best_without;
            let first = this.packs.len();
            let mut index = first_from[from];
            while let Some(expiry) = index {
                let (pack, next) = expiring[expiry];
                let lift = peaks.raise_up_to(expiry, i128::from(packs[pack].amount));
                this.packs.push(Arrival { pack, lift });
                index = next;
            }
            let end = this.packs.len();
            if end > first {
                this.groups.push(Group { from, first, end, best_without });
                this.update_best(this.groups.len() - 1, packs);
            }
        }
        this
    }

    /// The longest path from a cell; 0 until the paths into this one are computed.
    pub(super) fn best(&self, from: usize) -> i128 {
        self.best.get(from).copied().unwrap_or(0)
    }

    /// Recomputes the longest path from a cell after the remaining amounts of its packs changed.
    /// Returns by how much it is longer.
    pub(super) fn review(&mut self, from: usize, packs: &[Pack]) -> i128 {
        let before = self.best[from];
        let group = self.groups.binary_search_by(|group| from.cmp(&group.from));
        self.update_best(group.expect("some of its packs arrive here"), packs);
        self.best[from] - before
    }

    /// The lifts assume that all of each pack is left. An expiry is worse by the amounts drawn from
    /// the packs up to it. An expiry that no lift made the best loses at least as much as an
    /// earlier one and can be ignored.
    fn update_best(&mut self, index: usize, packs: &[Pack]) {
        let Group { from, first, end, best_without } = self.groups[index];
        effort::count(end - first);
        let (mut lifted, mut most) = (0, 0);
        for arrival in &self.packs[first..end] {
            let drawn = packs[arrival.pack].amount - packs[arrival.pack].spare;
            lifted += arrival.lift - i128::from(drawn);
            most = lifted.max(most);
        }
        self.best[from] = best_without + most;
    }
}
