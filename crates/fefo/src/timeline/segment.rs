//! A short run of operations, replayed in full whenever it is looked at.

use super::points::{Point, difference, since};

/// The place of an operation: by instant, additions first, then in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) at: i64,
    pub(super) consumes: bool,
    /// The index among the operations of the same kind.
    pub(super) arrival: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) place: Place,
    pub(super) amount: u64,
    /// The last instant of a pack. Meaningless for a consumption, which lasts for its own instant.
    pub(super) expires_at: i64,
}

/// What a run of operations, started with nothing, leaves behind; or how that changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Credits of the run that it did not use, by expiry.
    pub(super) spare: Vec<Point>,
    /// Demand by instant less used credits by expiry. Summed up to `x`: the demand up to `x` that
    /// the run did not serve from credits expiring up to `x`, and so the most that foreign credits
    /// expiring up to `x` can do here.
    pub(super) room: Vec<Point>,
    /// Demand that the run could not serve.
    pub(super) shortage: i128,
}

impl Flow {
    /// The change from `other`, without the spare credits that expire before `horizon`.
    pub(super) fn minus(&self, other: &Self, horizon: i64) -> Self {
        Self {
            spare: difference(since(&self.spare, horizon), since(&other.spare, horizon)),
            room: difference(&self.room, &other.room),
            shortage: self.shortage - other.shortage,
        }
    }
}

/// What is spendable at a place and how much was short before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) balance: i128,
    pub(super) shortage: i128,
}

/// Credits of a run that share one expiry.
struct Lot {
    expires_at: i64,
    granted: i128,
    left: i128,
}

#[derive(Default)]
struct Replay {
    lots: Vec<Lot>,
    demand: Vec<Point>,
    shortage: i128,
}

impl Replay {
    fn of(operations: &[Operation]) -> Self {
        let mut replay = Self::default();
        for operation in operations {
            let amount = i128::from(operation.amount);
            if operation.place.consumes {
                replay.consume(operation.place.at, amount);
            } else {
                replay.add(operation.expires_at, amount);
            }
        }
        replay
    }

    fn first_valid(&self, instant: i64) -> usize {
        self.lots.partition_point(|lot| lot.expires_at < instant)
    }

    fn add(&mut self, expires_at: i64, amount: i128) {
        let index = self.first_valid(expires_at);
        match self.lots.get_mut(index) {
            Some(lot) if lot.expires_at == expires_at => {
                lot.granted += amount;
                lot.left += amount;
            }
            Some(_) | None => {
                self.lots.insert(index, Lot { expires_at, granted: amount, left: amount });
            }
        }
    }

    fn consume(&mut self, at: i64, amount: i128) {
        match self.demand.last_mut() {
            Some(last) if last.0 == at => last.1 += amount,
            Some(_) | None => self.demand.push((at, amount)),
        }
        let mut wanted = amount;
        let first = self.first_valid(at);
        for lot in &mut self.lots[first..] {
            let taken = wanted.min(lot.left);
            lot.left -= taken;
            wanted -= taken;
            if wanted == 0 {
                return;
            }
        }
        self.shortage += wanted;
    }
}

/// Replays a run from nothing and tells what it leaves behind.
pub(super) fn flow(operations: &[Operation]) -> Flow {
    let replay = Replay::of(operations);
    let visible = |amount: fn(&Lot) -> i128| -> Vec<Point> {
        let points = replay.lots.iter().map(|lot| (lot.expires_at, amount(lot)));
        points.filter(|point| point.1 != 0).collect()
    };
    let used = visible(|lot| lot.granted - lot.left);
    Flow {
        spare: visible(|lot| lot.left),
        room: difference(&replay.demand, &used),
        shortage: replay.shortage,
    }
}

/// Replays the part of a run that comes before `place`.
pub(super) fn read(operations: &[Operation], place: Place) -> Reading {
    let before = operations.partition_point(|operation| operation.place < place);
    let replay = Replay::of(&operations[..before]);
    let valid = &replay.lots[replay.first_valid(place.at)..];
    Reading { balance: valid.iter().map(|lot| lot.left).sum(), shortage: replay.shortage }
}
