//! The operations in time order, in a balanced tree whose branches know how their halves meet.

use super::points::{Point, difference, since, sum, total};
use super::profile::Profile;
use super::segment::{Flow, Operation, Place, Reading, flow, read};

/// Tiny in this crate's unit tests, so that short histories make deep trees.
const LONGEST_SEGMENT: usize = if cfg!(test) { 3 } else { 64 };

/// No side of a branch has more than this many times the segments of the other.
const HEAVIEST: usize = 3;

/// From this ratio on the inner part of a heavy side is divided when it is moved over. With
/// [`HEAVIEST`] it is one of the pairs that keep a weight-balanced tree balanced.
const INNERMOST: usize = 2;

#[derive(Clone, Debug)]
pub(super) enum Tree {
    Segment(Vec<Operation>),
    Branch(Box<Branch>),
}

#[derive(Clone, Debug)]
pub(super) struct Branch {
    left: Tree,
    right: Tree,
    /// Every operation on the left comes before this place, none on the right does.
    split: Place,
    weight: usize,
    /// What the left half hands over: its spare credits that are valid at the split.
    carried: i128,
    left_shortage: i128,
    /// The carried credits against the room of the right half; the overflow is what stays unused
    /// on top of what the right half alone would leave unused.
    meeting: Profile,
}

/// One operation more, or one less.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    Insert(Operation),
    Remove(Operation),
}

impl Edit {
    fn place(&self) -> Place {
        match self {
            Self::Insert(operation) | Self::Remove(operation) => operation.place,
        }
    }

    fn perform(&self, operations: &mut Vec<Operation>) {
        let place = self.place();
        let index = operations.partition_point(|operation| operation.place < place);
        match self {
            Self::Insert(operation) => operations.insert(index, *operation),
            Self::Remove(operation) => {
                let removed = operations.remove(index);
                assert_eq!(removed.place, operation.place, "only what is there is removed");
            }
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::Segment(Vec::new())
    }
}

impl Tree {
    /// How many segments the tree has.
    fn weight(&self) -> usize {
        match self {
            Self::Segment(_) => 1,
            Self::Branch(branch) => branch.weight,
        }
    }

    /// Makes the edit and returns how the flow of the whole tree changed. Of the spare credits it
    /// tells only those that are valid at `horizon`, where the operations to the right begin.
    pub(super) fn edit(&mut self, edit: &Edit, horizon: i64) -> Flow {
        let change = match self {
            Self::Segment(operations) => {
                let before = flow(operations);
                edit.perform(operations);
                flow(operations).minus(&before, horizon)
            }
            Self::Branch(branch) => branch.edit(edit, horizon),
        };
        self.rebalance();
        change
    }

    /// What a replay of the operations before `place` leaves to spend at its instant.
    pub(super) fn read(&self, place: Place) -> Reading {
        match self {
            Self::Segment(operations) => read(operations, place),
            Self::Branch(branch) => branch.read(place),
        }
    }

    #[cfg(test)]
    pub(super) fn is_balanced(&self) -> bool {
        match self {
            Self::Segment(operations) => operations.len() <= LONGEST_SEGMENT,
            Self::Branch(branch) => {
                let (left, right) = (branch.left.weight(), branch.right.weight());
                branch.weight == left + right
                    && left.max(right) <= HEAVIEST * left.min(right)
                    && branch.left.is_balanced()
                    && branch.right.is_balanced()
            }
        }
    }

    /// Visits the operations before `place` in order.
    pub(super) fn visit_before(&self, place: Place, visit: &mut impl FnMut(&Operation)) {
        match self {
            Self::Segment(operations) => {
                operations.iter().take_while(|operation| operation.place < place).for_each(visit);
            }
            Self::Branch(branch) => {
                branch.left.visit_before(place, visit);
                if place > branch.split {
                    branch.right.visit_before(place, visit);
                }
            }
        }
    }

    /// Divides a segment that has grown too long and restores the balance of a branch.
    fn rebalance(&mut self) {
        match self {
            Self::Segment(operations) if operations.len() > LONGEST_SEGMENT => {
                let second = operations.split_off(operations.len() / 2);
                let split = second[0].place;
                *self = Self::join(std::mem::take(self), split, Self::Segment(second));
            }
            Self::Segment(_) => {}
            Self::Branch(branch) => {
                let (left, right) = (branch.left.weight(), branch.right.weight());
                branch.weight = left + right;
                if right > HEAVIEST * left {
                    *self = std::mem::take(self).lean_left();
                } else if left > HEAVIEST * right {
                    *self = std::mem::take(self).lean_right();
                }
            }
        }
    }

    fn lean_left(self) -> Self {
        let (left, split, right) = self.part();
        let (mut inner, mut outer_split, mut outer) = right.part();
        if inner.weight() >= INNERMOST * outer.weight() {
            let (innermost, inner_split, rest) = inner.part();
            outer = Self::join(rest, outer_split, outer);
            (inner, outer_split) = (innermost, inner_split);
        }
        Self::join(Self::join(left, split, inner), outer_split, outer)
    }

    fn lean_right(self) -> Self {
        let (left, split, right) = self.part();
        let (mut outer, mut outer_split, mut inner) = left.part();
        if inner.weight() >= INNERMOST * outer.weight() {
            let (rest, inner_split, innermost) = inner.part();
            outer = Self::join(outer, outer_split, rest);
            (inner, outer_split) = (innermost, inner_split);
        }
        Self::join(outer, outer_split, Self::join(inner, split, right))
    }

    fn part(self) -> (Self, Place, Self) {
        match self {
            Self::Branch(branch) => (branch.left, branch.split, branch.right),
            Self::Segment(_) => unreachable!("a single segment is never the heavier side"),
        }
    }

    /// Puts two trees side by side and lets them meet: linear in their size.
    fn join(left: Self, split: Place, right: Self) -> Self {
        let (handed_over, left_shortage) = left.leftover(split.at);
        Self::Branch(Box::new(Branch {
            split,
            weight: left.weight() + right.weight(),
            carried: total(&handed_over),
            left_shortage,
            meeting: Profile::new(&difference(&handed_over, &right.room())),
            left,
            right,
        }))
    }

    /// The spare credits that are valid at `horizon`, and the shortage, of the tree's [`Flow`].
    fn leftover(&self, horizon: i64) -> (Vec<Point>, i128) {
        match self {
            Self::Segment(operations) => {
                let own = flow(operations);
                (since(&own.spare, horizon).to_vec(), own.shortage)
            }
            Self::Branch(branch) => {
                let (spare, shortage) = branch.right.leftover(horizon);
                let overflow = branch.meeting.overflow();
                let absorbed = branch.carried - total(&overflow);
                (sum(&spare, since(&overflow, horizon)), branch.left_shortage + shortage - absorbed)
            }
        }
    }

    /// The room of the tree's [`Flow`].
    fn room(&self) -> Vec<Point> {
        match self {
            Self::Segment(operations) => flow(operations).room,
            Self::Branch(branch) => {
                let meeting = &branch.meeting;
                sum(&difference(&branch.left.room(), &meeting.steps()), &meeting.overflow())
            }
        }
    }
}

impl Branch {
    fn edit(&mut self, edit: &Edit, horizon: i64) -> Flow {
        if edit.place() < self.split {
            let change = self.left.edit(edit, self.split.at);
            self.meet_left(&change, horizon)
        } else {
            let change = self.right.edit(edit, horizon);
            self.meet_right(&change, horizon)
        }
    }

    fn meet_left(&mut self, change: &Flow, horizon: i64) -> Flow {
        let carried = total(&change.spare);
        let overflow = self.meeting.apply(&change.spare);
        self.carried += carried;
        self.left_shortage += change.shortage;
        Flow {
            spare: since(&overflow, horizon).to_vec(),
            room: sum(&difference(&change.room, &change.spare), &overflow),
            shortage: change.shortage + total(&overflow) - carried,
        }
    }

    fn meet_right(&mut self, change: &Flow, horizon: i64) -> Flow {
        let steps: Vec<Point> = change.room.iter().map(|&(at, amount)| (at, -amount)).collect();
        let overflow = self.meeting.apply(&steps);
        Flow {
            spare: sum(&change.spare, since(&overflow, horizon)),
            room: sum(&change.room, &overflow),
            shortage: change.shortage + total(&overflow),
        }
    }

    fn read(&self, place: Place) -> Reading {
        if place <= self.split {
            return self.left.read(place);
        }
        let own = self.right.read(place);
        // What is left of the carried credits once some expired unused and the others filled,
        // directly or by freeing credits of the right half, what had been short there.
        let extra = self.carried - self.meeting.overflow_before(place.at) - own.shortage;
        Reading {
            balance: own.balance + extra.max(0),
            shortage: self.left_shortage + (-extra).max(0),
        }
    }
}
