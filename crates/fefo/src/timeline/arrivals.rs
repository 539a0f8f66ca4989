//! What the expiries of a cell make of the packs that earlier cells hand over.

use super::effort;
use super::event::{Event, Kind, Pack};
use super::peaks::{NEVER, Peaks};

/// For each earlier cell, what goes in this one at most by a way that comes from there: at some expiry `x` of this
/// cell, everything goes that started after that cell and expires up to `x`, and what that cell, alone, leaves of its own
/// packs up to `x`; then the rest of this cell goes as it does alone. Packs that expire before this cell do not count here.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    open: bool,
    /// The best of all expiries, by earlier cell; `NEVER` if there are none.
    best: Vec<i128>,
    /// The packs that arrive, those of the latest cell first, of one cell by expiry.
    packs: Vec<usize>,
    groups: Vec<Group>,
    /// The best of the expiries between two packs of one group, without that group's own packs; of each group one more
    /// than it has packs. What is left of the packs of one cell may change without anything here changing.
    peaks: Vec<i128>,
}

/// The packs that one cell hands over.
#[derive(Clone, Copy, Debug)]
struct Group {
    from: usize,
    first: usize,
    end: usize,
}

impl Arrivals {
    /// For the cell `here` with these events and the rests after its expiries. O((k + m) log m) for k earlier cells
    /// and m events.
    pub(super) fn new(here: usize, events: &[Event], rests: Vec<i128>, packs: &[Pack]) -> Self {
        let expiries = events.iter().filter(|event| event.moment.kind == Kind::Expires);
        let mut arriving: Vec<(usize, usize)> = expiries
            .map(|event| event.moment.arrival)
            .enumerate()
            .filter(|&(_, pack)| packs[pack].leaves())
            .collect();
        // The sort is stable: those of one cell stay in order of expiry.
        arriving.sort_by_key(|&(_, pack)| std::cmp::Reverse(packs[pack].starts_in));
        let open = !rests.is_empty();
        let mut walk = Peaks::with_heights(rests.into_iter());
        let mut this = Self { open, best: vec![NEVER; here], ..Self::default() };
        let mut first = 0;
        for from in (0..here).rev() {
            let own =
                arriving[first..].iter().take_while(|&&(_, pack)| packs[pack].starts_in == from);
            let end = first + own.count();
            effort::count(1);
            if end == first {
                this.best[from] = walk.peak();
                continue;
            }
            this.groups.push(Group { from, first, end });
            let group = &arriving[first..end];
            walk.peaks_between(group.iter().map(|&(step, _)| step), &mut this.peaks);
            for &(step, pack) in group {
                walk.raise_from(step, i128::from(packs[pack].amount));
                this.packs.push(pack);
            }
            this.rise(this.groups.len() - 1, packs);
            first = end;
        }
        this
    }

    /// The best way from a cell; nothing before the ways into this one have been worked out.
    pub(super) fn best(&self, from: usize) -> i128 {
        self.best.get(from).copied().unwrap_or(0)
    }

    /// Whether anything expires in the cell, so that ways lead into it.
    pub(super) fn open(&self) -> bool {
        self.open
    }

    /// Looks again at what is left of the packs of one cell, and tells how much more the best way from there is.
    pub(super) fn review(&mut self, from: usize, packs: &[Pack]) -> i128 {
        let before = self.best[from];
        let group = self.groups.binary_search_by(|group| from.cmp(&group.from));
        self.rise(group.expect("some of its packs arrive here"), packs);
        self.best[from] - before
    }

    fn rise(&mut self, index: usize, packs: &[Pack]) {
        let Group { from, first, end } = self.groups[index];
        // Every group before has one peak more than packs.
        let peaks = &self.peaks[first + index..];
        effort::count(end - first);
        let mut spare = 0;
        let mut best = peaks[0];
        for (&pack, peak) in self.packs[first..end].iter().zip(&peaks[1..]) {
            spare += i128::from(packs[pack].spare);
            best = best.max(spare + peak);
        }
        self.best[from] = best;
    }
}
