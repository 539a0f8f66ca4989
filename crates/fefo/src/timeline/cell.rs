//! An interval of time that is replayed as a whole when one of its events changes.

use super::arrivals::Arrivals;
use super::cascade::Cascade;
use super::effort;
use super::event::{Event, Kind, Moment, Pack};

#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// The first moment of the cell. The first cell has none.
    pub(super) begins: Option<Moment>,
    pub(super) events: Vec<Event>,
    /// What is consumed or expires in it if it starts empty.
    pub(super) gone: i128,
    /// The sum of the packs that start in it.
    pub(super) started: i128,
    /// The packs that start in it and expire in a later cell, by expiry.
    pub(super) leaving: Vec<usize>,
    /// What is left of them at its end if it starts empty.
    pub(super) spare: i128,
    /// The effect of packs of earlier cells that expire in it.
    pub(super) arrivals: Arrivals,
}

impl Cell {
    pub(super) fn new(events: &[Event]) -> Self {
        let begins = events.first().map(|event| event.moment);
        Self { begins, events: events.to_vec(), ..Self::default() }
    }

    pub(super) fn insert(&mut self, event: Event) {
        let index = self.events.partition_point(|other| other.moment < event.moment);
        self.events.insert(index, event);
    }

    pub(super) fn remove(&mut self, moment: Moment) {
        let index = self.events.partition_point(|other| other.moment < moment);
        let removed = self.events.remove(index);
        assert_eq!(removed.moment, moment, "only recorded events are removed");
    }

    /// Records that a pack starts in the cell and expires in a later one.
    pub(super) fn leave(&mut self, pack: usize, packs: &[Pack]) {
        let expiry = |pack: usize| packs[pack].expiry(pack).moment;
        let index = self.leaving.partition_point(|&other| expiry(other) < expiry(pack));
        self.leaving.insert(index, pack);
    }

    pub(super) fn expiries(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter().filter(|event| event.moment.kind == Kind::Expires)
    }

    /// Replays the cell from empty. Computes `gone`, and what is left at its end of the packs that
    /// start in it.
    ///
    /// The packs that expire first are drawn as if there were no others. So the packs are taken in
    /// the order of their expiry, and each fills the open rest of the consumptions from its start
    /// on.
    pub(super) fn spend(&mut self, packs: &mut [Pack]) {
        effort::count(self.events.len());
        let mut consumptions = Cascade::with_capacity(self.events.len());
        (self.gone, self.started, self.spare) = (0, 0, 0);
        for event in &self.events {
            let pack = event.moment.arrival;
            match event.moment.kind {
                Kind::Starts => {
                    self.started += i128::from(event.amount);
                    packs[pack].starts_after = consumptions.len();
                }
                Kind::Consumes => {
                    self.gone += i128::from(event.amount);
                    consumptions.push(event.amount);
                }
                Kind::Expires if packs[pack].leaves() => {}
                Kind::Expires => {
                    packs[pack].expires_after = consumptions.len();
                    let left = consumptions.pour(packs[pack].starts_after, event.amount);
                    self.gone += i128::from(left);
                }
            }
        }
        for &pack in &self.leaving {
            let pack = &mut packs[pack];
            pack.spare = consumptions.pour(pack.starts_after, pack.amount);
            self.spare += i128::from(pack.spare);
        }
    }

    /// For each expiry in the cell, from the last to the first: the packs that start in the cell
    /// and expire up to there, plus what is consumed or expires after it if the rest of the cell
    /// starts empty.
    ///
    /// One backward replay computes all rests. The usable amount of the packs inside an interval is
    /// the same in both directions. Backwards, a pack is lost at its start, so the one that starts
    /// last is drawn first.
    pub(super) fn rests(&self, packs: &[Pack]) -> Vec<i128> {
        effort::count(self.events.len());
        let is_own = |event: &&Event| !packs[event.moment.arrival].leaves();
        let own = self.expiries().filter(is_own);
        let mut inside: i128 = own.map(|event| i128::from(event.amount)).sum();
        let mut gone = 0;
        let mut consumptions = Cascade::with_capacity(self.events.len());
        let mut rests = Vec::with_capacity(self.events.len());
        let consumed =
            self.events.iter().filter(|event| event.moment.kind == Kind::Consumes).count();
        for event in self.events.iter().rev() {
            match event.moment.kind {
                Kind::Starts if is_own(&event) => {
                    let pack = &packs[event.moment.arrival];
                    let left = consumptions.pour(consumed - pack.expires_after, pack.amount);
                    gone += i128::from(left);
                }
                Kind::Starts => {}
                Kind::Consumes => {
                    gone += i128::from(event.amount);
                    consumptions.push(event.amount);
                }
                Kind::Expires => {
                    rests.push(inside + gone);
                    if is_own(&event) {
                        inside -= i128::from(event.amount);
                    }
                }
            }
        }
        rests
    }

    /// The balance at `moment`. The cell starts with `arriving`, the amounts held of the packs that
    /// arrive and expire in it before `moment`, by expiry, and with `later`, the amount held that
    /// expires after `moment`.
    pub(super) fn balance(
        &self,
        moment: Moment,
        packs: &[Pack],
        arriving: Vec<u64>,
        mut later: i128,
    ) -> i128 {
        let passed = self.events.partition_point(|event| event.moment < moment);
        let events = &self.events[..passed];
        effort::count(passed);
        let mut consumptions = Cascade::with_capacity(passed);
        let mut arriving = arriving.into_iter();
        for event in events {
            let pack = event.moment.arrival;
            match event.moment.kind {
                Kind::Starts => {}
                Kind::Consumes => consumptions.push(event.amount),
                Kind::Expires => {
                    let (place, amount) = if packs[pack].leaves() {
                        (0, arriving.next().expect("`arriving` has an amount for every arrival"))
                    } else {
                        (packs[pack].starts_after, event.amount)
                    };
                    // Credits that overflow have expired.
                    consumptions.pour(place, amount);
                }
            }
        }
        let mut missing = consumptions.rooms();
        for event in events {
            let pack = event.moment.arrival;
            match event.moment.kind {
                Kind::Starts if packs[pack].expiry(pack).moment < moment => {}
                Kind::Starts => later += i128::from(event.amount),
                Kind::Consumes => {
                    let missing = missing.next().expect("one for each consumption");
                    later -= i128::from(missing).min(later);
                }
                Kind::Expires => {}
            }
        }
        later
    }
}
