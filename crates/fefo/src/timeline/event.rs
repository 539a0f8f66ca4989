//! What happens on a timeline, and when.

/// What happens at a moment. At one instant packs start before anything is consumed, and expire after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Starts,
    Consumes,
    Expires,
}

/// The place of an event in the one order in which everything happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) at: i64,
    pub(super) kind: Kind,
    /// The first instant of the pack or the consumption: of one expiry, what starts first goes first.
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

/// A pack, in which cells it starts and expires, and what the former leaves of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pack {
    pub(super) amount: u64,
    pub(super) at: i64,
    pub(super) expires_at: i64,
    pub(super) starts_in: usize,
    pub(super) expires_in: usize,
    /// What is left of the pack at the end of the cell in which it starts, if that cell starts with nothing.
    pub(super) spare: u64,
    /// How much of that the ways to cells after its expiry count on.
    pub(super) handed_over: u64,
    /// How many consumptions of its cell come before its start and, if it expires in the same one, before its expiry.
    pub(super) starts_after: usize,
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

    /// Whether it outlives the cell in which it starts.
    pub(super) fn leaves(&self) -> bool {
        self.expires_in > self.starts_in
    }
    /// Hands over what is left of it, and tells how much more that is than before.
    pub(super) fn hand_over(&mut self) -> i128 {
        let before = std::mem::replace(&mut self.handed_over, self.spare);
        i128::from(self.spare) - i128::from(before)
    }
}
