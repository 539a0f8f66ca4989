//! What the expiries of a cell make of the packs that earlier cells hand over.

use super::effort;
use super::event::{Event, Pack};
use super::peaks::Peaks;

/// For each earlier cell, what goes in this one at most by a way that comes from there: at some expiry `x` of this
/// cell, everything goes that started after that cell and expires up to `x`, and what that cell, alone, leaves of its own
/// packs up to `x`; then the rest of this cell goes as it does alone. Packs that expire before this cell do not count here.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// The best of all expiries, by earlier cell; `NEVER` if there are none.
    best: Vec<i128>,
    /// The packs that arrive, those of the latest cell first, of one cell by expiry.
    packs: Vec<Arrival>,
    groups: Vec<Group>,
}

/// A pack that expires here and started before.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    pack: usize,
    /// How much better the best expiry gets by the whole of this pack, after those before it in its group.
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
    /// For the cell `here` with these expiries and the rests after them, both from the last to the first. O(k + m α(m))
    /// for k earlier cells and m expiries.
    pub(super) fn new<'a>(
        here: usize,
        expiries: impl Iterator<Item = &'a Event>,
        rests: Vec<i128>,
        packs: &[Pack],
    ) -> Self {
        effort::count(here + rests.len());
        let mut expiring = Vec::with_capacity(rests.len());
        // By cell the first expiry of what arrives from there; by expiry the next one from the same cell.
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
                this.rise(this.groups.len() - 1, packs);
            }
        }
        this
    }

    /// The best way from a cell; nothing before the ways into this one have been worked out.
    pub(super) fn best(&self, from: usize) -> i128 {
        self.best.get(from).copied().unwrap_or(0)
    }

    /// Looks again at what is left of the packs of one cell, and tells how much more the best way from there is.
    pub(super) fn review(&mut self, from: usize, packs: &[Pack]) -> i128 {
        let before = self.best[from];
        let group = self.groups.binary_search_by(|group| from.cmp(&group.from));
        self.rise(group.expect("some of its packs arrive here"), packs);
        self.best[from] - before
    }

    /// An expiry that is better by the lifts up to it would be so if all of these packs were left. It is less good by
    /// what was drawn from them. Expiries that no lift made the best lose at least as much as one before, and do not matter.
    fn rise(&mut self, index: usize, packs: &[Pack]) {
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
