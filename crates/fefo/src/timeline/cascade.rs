//! Basins in a row, each of which runs over into the next.

use std::ops::SubAssign;

use super::effort;

/// What is poured in at one basin fills that one, then those after it; the rest runs over at the end.
///
/// Basins that are full are passed over at one go, up to the first with room: they are one set with it, in a forest of
/// disjoint sets where the smaller joins the larger. So n basins are filled in n goes with O(n α(n)) steps, which
/// is O(n) for every n that fits a memory.
#[derive(Clone, Debug)]
pub(super) struct Cascade<Amount> {
    /// And one more, that has not been dug yet and that the last ones run over into.
    basins: Vec<Basin<Amount>>,
}

#[derive(Clone, Copy, Debug)]
struct Basin<Amount> {
    room: Amount,
    /// The way to the root of its set; a root has itself here.
    towards_root: usize,
    /// Of a root: the last of its set, which alone has room, and how many there are.
    last: usize,
    count: usize,
}

impl<Amount: Copy + Default + Ord + SubAssign> Cascade<Amount> {
    pub(super) fn with_capacity(basins: usize) -> Self {
        let mut this = Self { basins: Vec::with_capacity(basins + 1) };
        this.dig();
        this
    }

    /// How many basins there are.
    pub(super) fn len(&self) -> usize {
        self.basins.len() - 1
    }

    /// Adds a basin with so much room at the end.
    pub(super) fn push(&mut self, room: Amount) {
        let index = self.len();
        self.basins[index].room = room;
        self.dig();
        if room == Amount::default() {
            self.join_next(index);
        }
    }

    /// Pours in so much at a basin, and returns what runs over at the end.
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

    /// What room is left in each.
    pub(super) fn rooms(&self) -> impl Iterator<Item = Amount> {
        self.basins[..self.len()].iter().map(|basin| basin.room)
    }

    fn dig(&mut self) {
        let index = self.basins.len();
        let room = Amount::default();
        self.basins.push(Basin { room, towards_root: index, last: index, count: 1 });
    }

    fn root(&mut self, mut index: usize) -> usize {
        effort::count(1);
        while self.basins[index].towards_root != index {
            effort::count(1);
            let above = self.basins[index].towards_root;
            self.basins[index].towards_root = self.basins[above].towards_root;
            index = self.basins[index].towards_root;
        }
        index
    }

    /// Makes one set of a full basin and the next, and returns its root.
    fn join_next(&mut self, full: usize) -> usize {
        let (one, next) = (self.root(full), self.root(full + 1));
        let last = self.basins[next].last;
        let count = self.basins[one].count + self.basins[next].count;
        let (smaller, larger) = if self.basins[one].count < self.basins[next].count {
            (one, next)
        } else {
            (next, one)
        };
        self.basins[smaller].towards_root = larger;
        self.basins[larger].last = last;
        self.basins[larger].count = count;
        larger
    }
}
