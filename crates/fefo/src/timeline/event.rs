//! Events of a timeline and their order.

/// The kind of an event. At one instant packs start before credits are consumed, and expire after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Starts,
    Consumes,
    Expires,
}

/// The place of an event in the total order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) at: i64,
    pub(super) kind: Kind,
    /// The first instant of the pack or the consumption. Of two packs with one expiry, the one that
    /// starts first is drawn first.
    pub(super) since: i64,
    /// The index among the packs or among the consumptions.
    pub(super) arrival: usize,
}

impl Moment {
    pub(super) fn consumption(at: i64, arrival: usize) -> Self {
        Self { at, kind: Kind::Consumes, since: at, arrival }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) moment: Moment,
    pub(super) amount: u64,
}

/// A pack, the cells in which it starts and expires, and what the first of them leaves of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    pub(super) amount: u64,
    pub(super) at: i64,
    pub(super) expires_at: i64,
    pub(super) starts_in: usize,
    pub(super) expires_in: usize,
    /// What is left of the pack at the end of the cell in which it starts, if that cell starts
    /// empty.
    pub(super) spare: u64,
    /// How much of `spare` is included in the paths to cells after its expiry.
    pub(super) handed_over: u64,
    /// The number of consumptions of its cell before its start.
    pub(super) starts_after: usize,
    /// The number of consumptions of its cell before its expiry, if it expires in the same cell.
    pub(super) expires_after: usize,
}

impl Pack {
    pub(super) fn new(amount: u64, at: i64, expires_at: i64) -> Self {
        Self {
            amount,
            at,
            expires_at,
            starts_in: 0,
            expires_in: 0,
            spare: 0,
            handed_over: 0,
            starts_after: 0,
            expires_after: 0,
        }
    }

    pub(super) fn start(&self, arrival: usize) -> Event {
        let moment = Moment { at: self.at, kind: Kind::Starts, since: self.at, arrival };
        Event { moment, amount: self.amount }
    }

    pub(super) fn expiry(&self, arrival: usize) -> Event {
        let moment = Moment { at: self.expires_at, kind: Kind::Expires, since: self.at, arrival };
        Event { moment, amount: self.amount }
    }

    /// Whether it expires in a later cell than the one in which it starts.
    pub(super) fn leaves(&self) -> bool {
        self.expires_in > self.starts_in
    }
    /// Sets `handed_over` to `spare` and returns the difference.
    pub(super) fn hand_over(&mut self) -> i128 {
        let before = std::mem::replace(&mut self.handed_over, self.spare);
        i128::from(self.spare) - i128::from(before)
    }
}
