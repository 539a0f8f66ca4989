//! A row of basins, each of which overflows into the next.

use std::ops::SubAssign;

use super::effort;

/// An amount poured in at one basin fills that basin, then those after it. The rest overflows at
/// the end.
///
/// Full basins are skipped in one step, up to the first with room: they form one set with it, in a
/// disjoint-set forest with union by size. So n basins are filled by n calls in O(n α(n)) steps,
/// which is O(n) for every n that fits in memory.
#[derive(Clone, Debug)]
pub(super) struct Cascade<Amount> {
    /// The basins, and one unused basin at the end into which the last one overflows.
    basins: Vec<Basin<Amount>>,
}

#[derive(Clone, Copy, Debug)]
struct Basin<Amount> {
    room: Amount,
    /// The parent in its set; a root is its own parent.
    parent: usize,
    /// Of a root: the last basin of its set, the only one with room.
    last: usize,
    /// Of a root: the size of its set.
    count: usize,
}

impl<Amount: Copy + Default + Ord + SubAssign> Cascade<Amount> {
    pub(super) fn with_capacity(basins: usize) -> Self {
        let mut this = Self { basins: Vec::with_capacity(basins + 1) };
        this.push_unused();
        this
    }

    /// The number of basins.
    pub(super) fn len(&self) -> usize {
        self.basins.len() - 1
    }

    /// Adds a basin with this room at the end.
    pub(super) fn push(&mut self, room: Amount) {
        let index = self.len();
        self.basins[index].room = room;
        self.push_unused();
        if room == Amount::default() {
            self.join_next(index);
        }
    }

    /// Pours an amount in at a basin. Returns the amount that overflows at the end.
    pub(super) fn pour(&mut self, basin: usize, mut amount: Amount) -> Amount {
        let nothing = Amount::default();
        let mut root = self.root(basin);
        while amount > nothing {
            let open = self.basins[root].last;
            if open == self.len() {
                break;
            }
            let room = &mut self.basins[open].room;
            let poured = amount.min(*room);
            amount -= poured;
            *room -= poured;
            if *room == nothing {
                root = self.join_next(open);
            }
        }
        amount
    }

    /// The room left in each basin.
    pub(super) fn rooms(&self) -> impl Iterator<Item = Amount> {
        self.basins[..self.len()].iter().map(|basin| basin.room)
    }

    fn push_unused(&mut self) {
        let index = self.basins.len();
        let room = Amount::default();
        self.basins.push(Basin { room, parent: index, last: index, count: 1 });
    }

    fn root(&mut self, mut index: usize) -> usize {
        effort::count(1);
        while self.basins[index].parent != index {
            effort::count(1);
            let above = self.basins[index].parent;
            self.basins[index].parent = self.basins[above].parent;
            index = self.basins[index].parent;
        }
        index
    }

    /// Joins a full basin and the next to one set, and returns its root.
    fn join_next(&mut self, full: usize) -> usize {
        let (one, next) = (self.root(full), self.root(full + 1));
        let last = self.basins[next].last;
        let count = self.basins[one].count + self.basins[next].count;
        let (smaller, larger) = if self.basins[one].count < self.basins[next].count {
            (one, next)
        } else {
            (next, one)
        };
        self.basins[smaller].parent = larger;
        self.basins[larger].last = last;
        self.basins[larger].count = count;
        larger
    }
}
