//! Time divided into cells, and the paths between them.

use std::sync::OnceLock;

use super::arrivals::Arrivals;
use super::cell::Cell;
use super::event::{Event, Kind, Moment, Pack};
use super::peaks::Peaks;
use super::ways::Ways;

/// One in this crate's unit tests, so that short histories have many cells.
const SMALLEST_CELL: usize = if cfg!(test) { 1 } else { 16 };

/// A cell may grow to this many times its planned length before time is divided again.
const MAX_CELL_GROWTH: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) packs: Vec<Pack>,
    cells: Vec<Cell>,
    /// The maximum number of events of a cell.
    longest_cell: usize,
    ways: Ways,
    /// The amount consumed or expired at the start of each cell and at the end of time.
    /// Consumptions count in full, including their shortfall. Computed on first use after an edit.
    gone: OnceLock<Vec<i128>>,
}

impl Default for Grid {
    fn default() -> Self {
        let mut grid = Self {
            packs: Vec::new(),
            cells: vec![Cell::default()],
            longest_cell: 0,
            ways: Ways::default(),
            gone: OnceLock::new(),
        };
        grid.divide();
        grid
    }
}

impl Grid {
    pub(super) fn add(&mut self, amount: u64, at: i64, expires_at: i64) {
        let arrival = self.packs.len();
        let mut pack = Pack::new(amount, at, expires_at);
        let (start, expiry) = (pack.start(arrival), pack.expiry(arrival));
        pack.starts_in = self.cell_of(start.moment);
        pack.expires_in = self.cell_of(expiry.moment);
        self.packs.push(pack);
        self.cells[pack.starts_in].insert(start);
        self.cells[pack.expires_in].insert(expiry);
        if self.is_too_long(pack.starts_in) || self.is_too_long(pack.expires_in) {
            return self.divide();
        }
        if pack.leaves() {
            self.cells[pack.starts_in].leave(arrival, &self.packs);
        }
        self.ways.pass_over(&pack);
        self.cells[pack.starts_in].spend(&mut self.packs);
        // A pack that expires in a later cell does not affect what its first cell receives.
        self.receive(pack.expires_in);
        self.hand_over(pack.starts_in);
    }

    pub(super) fn consume(&mut self, amount: u64, moment: Moment) {
        let cell = self.cell_of(moment);
        self.cells[cell].insert(Event { moment, amount });
        self.consumption_changed(cell);
    }

    /// Removes a consumption.
    pub(super) fn forget(&mut self, moment: Moment) {
        let cell = self.cell_of(moment);
        self.cells[cell].remove(moment);
        self.consumption_changed(cell);
    }

    /// The amount consumed or expired at the end of time.
    pub(super) fn gone(&self) -> i128 {
        *self.settled().last().expect("there is at least one cell")
    }

    /// The spendable amount after all events before `moment`.
    pub(super) fn balance(&self, moment: Moment) -> i128 {
        let here = self.cell_of(moment);
        let gone = self.settled();
        // Of the credits that expire up to some instant, the sum of those gone and held at the
        // start of this cell is the maximum over all earlier cells of: what was gone at the end of
        // that cell, what it left over, and what started since.
        let before =
            |from: usize| gone[from + 1] + self.ways.before(from, here, &self.cells[here].arrivals);
        let mut peaks = Peaks::new((0..here).map(before));
        let mut reached = gone[here];
        let mut arriving = Vec::new();
        let expiries = self.cells[here].expiries().take_while(|event| event.moment < moment);
        for event in expiries {
            let pack = &self.packs[event.moment.arrival];
            if !pack.leaves() {
                continue;
            }
            peaks.raise_up_to(pack.starts_in, i128::from(pack.spare));
            if let Some(earlier) = pack.starts_in.checked_sub(1) {
                peaks.raise_up_to(earlier, i128::from(pack.amount - pack.spare));
            }
            let held = peaks.highest().max(reached) - reached;
            reached += held;
            arriving
                .push(u64::try_from(held).expect("the held part of a pack is at most its amount"));
        }
        let mut started = 0;
        let mut all = gone[here];
        for (from, cell) in self.cells[..here].iter().enumerate().rev() {
            all = all.max(gone[from + 1] + cell.spare + started);
            started += cell.started;
        }
        let later = all.max(reached) - reached;
        self.cells[here].balance(moment, &self.packs, arriving, later)
    }

    /// All events in order.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.cells.iter().flat_map(|cell| &cell.events)
    }

    /// The cell that contains `moment`: the last one that begins at or before it.
    fn cell_of(&self, moment: Moment) -> usize {
        let begun =
            self.cells.partition_point(|cell| cell.begins.is_none_or(|begin| begin <= moment));
        begun.saturating_sub(1)
    }

    fn is_too_long(&self, cell: usize) -> bool {
        self.cells[cell].events.len() > self.longest_cell
    }

    fn consumption_changed(&mut self, cell: usize) {
        if self.is_too_long(cell) {
            return self.divide();
        }
        self.cells[cell].spend(&mut self.packs);
        self.receive(cell);
        self.hand_over(cell);
    }

    /// Divides time again, into cells with equal numbers of events, in O(n α(n)).
    ///
    /// An edit costs as many steps as a cell has events, and k log k steps to follow the paths
    /// between k cells. Both are equal with cells of about √(n log n) events. The steps along the
    /// paths are cheaper: a third of that length is best, and any length from a quarter to a half
    /// is within a tenth of it.
    fn divide(&mut self) {
        let events: Vec<Event> = self.events().copied().collect();
        let digits = events.len().checked_ilog2().unwrap_or(0) as usize;
        let planned = ((events.len() * digits).isqrt() / 3).max(SMALLEST_CELL);
        self.longest_cell = MAX_CELL_GROWTH * planned;
        self.cells = events.chunks(planned).map(Cell::new).collect();
        if self.cells.is_empty() {
            self.cells.push(Cell::default());
        }
        for (index, cell) in self.cells.iter().enumerate() {
            for event in &cell.events {
                match event.moment.kind {
                    Kind::Starts => self.packs[event.moment.arrival].starts_in = index,
                    Kind::Consumes => {}
                    Kind::Expires => self.packs[event.moment.arrival].expires_in = index,
                }
            }
        }
        for event in events.iter().filter(|event| event.moment.kind == Kind::Expires) {
            let pack = &mut self.packs[event.moment.arrival];
            pack.handed_over = 0;
            if pack.leaves() {
                self.cells[pack.starts_in].leaving.push(event.moment.arrival);
            }
        }
        let amounts = self.packs.iter().map(|pack| (pack.starts_in, pack.expires_in, pack.amount));
        self.ways = Ways::new(self.cells.len(), amounts);
        for cell in &mut self.cells {
            cell.spend(&mut self.packs);
        }
        for index in 0..self.cells.len() {
            self.receive(index);
        }
        for index in 0..self.cells.len() {
            self.hand_over(index);
        }
    }

    /// Computes the paths into a cell.
    fn receive(&mut self, here: usize) {
        let cell = &mut self.cells[here];
        let rests = cell.rests(&self.packs);
        let arrivals = Arrivals::new(here, cell.expiries().rev(), rests, &self.packs);
        self.ways.replace(here, &cell.arrivals, &arrivals);
        cell.arrivals = arrivals;
    }

    /// Updates the paths out of a cell.
    fn hand_over(&mut self, from: usize) {
        // Every edit ends here. It invalidates the amounts that are gone.
        self.gone.take();
        let leaving = std::mem::take(&mut self.cells[from].leaving);
        let mut more = 0;
        let mut next = from + 1;
        for &pack in &leaving {
            let here = self.packs[pack].expires_in;
            // The first pack of this cell that expires there.
            if here >= next {
                self.ways.extend(from, next..here + 1, more);
                let change = self.cells[here].arrivals.review(from, &self.packs);
                self.ways.extend(from, here..here + 1, change);
                next = here + 1;
            }
            more += self.packs[pack].hand_over();
        }
        self.ways.extend(from, next..self.cells.len(), more);
        self.cells[from].leaving = leaving;
    }

    /// Follows the longest paths from the beginning to the end of time.
    fn settled(&self) -> &[i128] {
        self.gone.get_or_init(|| self.ways.follow(&self.cells))
    }
}
