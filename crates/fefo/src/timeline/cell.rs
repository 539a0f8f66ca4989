//! A stretch of time on its own: what happens in it, replayed in full whenever something changes there.

use std::cmp::Reverse;

use super::arrivals::Arrivals;
use super::effort;
use super::event::{Event, Kind, Moment, Pack};
use super::held::Held;

#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// Where the one before it ends.
    pub(super) begins: Option<Moment>,
    pub(super) events: Vec<Event>,
    /// What goes in it if it starts with nothing.
    pub(super) gone: i128,
    /// What starts in it.
    pub(super) started: i128,
    /// The packs that start in it and outlive it, by the cell in which they expire.
    pub(super) leaving: Vec<usize>,
    /// What is left of them at its end if it starts with nothing.
    pub(super) spare: i128,
    /// What happens when packs of earlier cells expire in it.
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
        assert_eq!(removed.moment, moment, "only what is there is removed");
    }

    pub(super) fn expiries(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.moment.kind == Kind::Expires)
    }

    /// Replays the cell from nothing: what goes, and what is left at its end of the packs that start in it.
    pub(super) fn spend(&mut self, packs: &mut [Pack]) {
        effort::count(self.events.len());
        let mut held = Held::new();
        (self.gone, self.started, self.spare) = (0, 0, 0);
        self.leaving.clear();
        for event in &self.events {
            let pack = event.moment.arrival;
            match event.moment.kind {
                Kind::Starts => {
                    self.started += i128::from(event.amount);
                    packs[pack].spare = 0;
                    if packs[pack].leaves() {
                        self.leaving.push(pack);
                    }
                    held.put(Reverse(packs[pack].expiry(pack).moment), pack, event.amount);
                }
                Kind::Consumes => {
                    self.gone += i128::from(event.amount);
                    held.take(event.amount);
                }
                Kind::Expires => self.gone += i128::from(held.give_up(pack)),
            }
        }
        for (pack, left) in held.portions() {
            packs[pack].spare = left;
            self.spare += i128::from(left);
        }
        self.leaving.sort_unstable_by_key(|&pack| packs[pack].expires_in);
    }

    /// For each expiry in the cell: the packs that start in the cell and expire up to there, and what goes after it
    /// if the rest of the cell starts with nothing.
    ///
    /// All rests at once are one replay backwards. How much of the packs inside a stretch of time can be used is the
    /// same seen from either end; backwards a pack is lost at its start, so the one that starts last is drawn first.
    pub(super) fn rests(&self, packs: &[Pack]) -> Vec<i128> {
        effort::count(self.events.len());
        let is_own = |event: &&Event| !packs[event.moment.arrival].leaves();
        let own = self.expiries().filter(is_own);
        let mut inside: i128 = own.map(|event| i128::from(event.amount)).sum();
        let mut gone = 0;
        let mut held = Held::new();
        let mut rests = Vec::new();
        for event in self.events.iter().rev() {
            let pack = event.moment.arrival;
            match event.moment.kind {
                Kind::Starts => gone += i128::from(held.give_up(pack)),
                Kind::Consumes => {
                    gone += i128::from(event.amount);
                    held.take(event.amount);
                }
                Kind::Expires => {
                    rests.push(inside + gone);
                    if is_own(&event) {
                        inside -= i128::from(event.amount);
                        held.put(packs[pack].start(pack).moment, pack, event.amount);
                    }
                }
            }
        }
        rests.reverse();
        rests
    }

    /// What is left at `moment` if the cell starts with `first`, portions of packs that expire in it before
    /// `moment`, and `later` that outlives `moment`.
    pub(super) fn balance(
        &self,
        moment: Moment,
        packs: &[Pack],
        first: impl Iterator<Item = (usize, u64)>,
        mut later: i128,
    ) -> i128 {
        effort::count(self.events.len());
        let mut held = Held::new();
        for (pack, left) in first {
            held.put(Reverse(packs[pack].expiry(pack).moment), pack, left);
        }
        for event in self.events.iter().take_while(|event| event.moment < moment) {
            let pack = event.moment.arrival;
            match event.moment.kind {
                Kind::Starts => {
                    let expiry = packs[pack].expiry(pack).moment;
                    if expiry < moment {
                        held.put(Reverse(expiry), pack, event.amount);
                    } else {
                        later += i128::from(event.amount);
                    }
                }
                Kind::Consumes => {
                    let missing = i128::from(held.take(event.amount));
                    later -= missing.min(later);
                }
                Kind::Expires => {
                    held.give_up(pack);
                }
            }
        }
        // What expires before the moment has been given up by now.
        later
    }
}
