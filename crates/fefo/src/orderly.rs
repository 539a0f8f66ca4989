//! A line with one pack that is spent from the front. Most lines have this form.

use crate::line::{Part, Span};

/// A pack whose units are, in this order: spent, held, and a rest of equal units.
///
/// A pack keeps this form while one hold after the other draws from it, and after it has expired.
/// It takes four words and no heap allocation.
#[derive(Clone, Debug)]
pub(crate) struct Orderly<P> {
    pub(crate) pack: P,
    /// Where the spent units end.
    spent: u64,
    /// Where the held units end.
    held: u64,
    /// Where the line ends.
    pub(crate) end: u64,
    /// The part of the units after the held ones; free if there are none.
    rest: Part,
}

impl<P> Orderly<P> {
    /// A pack of free units.
    pub(crate) fn new(end: u64, pack: P) -> Orderly<P> {
        Orderly { pack, spent: 0, held: 0, end, rest: Part::Free }
    }

    /// A pack with these runs, if they are in that order.
    pub(crate) fn of(
        runs: impl Iterator<Item = (Span, Part)>,
        end: u64,
        pack: P,
    ) -> Option<Orderly<P>> {
        let mut made = Orderly::new(end, pack);
        let mut whole = true;
        for (run, part) in runs {
            let goes_on = match part {
                Part::Spent => made.held == run.start && made.spent == run.start,
                Part::Held => made.held == run.start,
                Part::Free | Part::Expired | Part::Revoked | Part::Moved => run.end == end,
            };
            whole &= goes_on;
            match part {
                Part::Spent => (made.spent, made.held) = (run.end, run.end),
                Part::Held => made.held = run.end,
                Part::Free | Part::Expired | Part::Revoked | Part::Moved => made.rest = part,
            }
        }
        whole.then_some(made)
    }

    /// The free units.
    pub(crate) fn free(&self) -> Span {
        let start = if self.rest == Part::Free { self.held } else { self.end };
        Span { start, end: self.end }
    }

    /// The runs, in order. Some may be empty.
    pub(crate) fn runs(&self) -> [(Span, Part); 3] {
        [
            (Span::new(0, self.spent), Part::Spent),
            (Span::new(self.spent, self.held), Part::Held),
            (Span::new(self.held, self.end), self.rest),
        ]
    }

    /// Changes units from one part to another, if the pack keeps its form. If not, returns `false`
    /// and changes nothing.
    pub(crate) fn retag(&mut self, span: Span, from: Part, to: Part) -> bool {
        use Part::{Held, Spent};
        let nothing_held = self.spent == self.held;
        let begins_rest = from == self.rest && span.start == self.held && span.end <= self.end;
        let joins_rest = to == self.rest || self.held == self.end;
        match (from, to) {
            (Held, Spent) if span.start == self.spent && span.end <= self.held => {
                self.spent = span.end;
            }
            (Spent, Held) if span.end == self.spent => self.spent = span.start,
            (Held | Spent, Held | Spent) => return false,
            (Held, _) if joins_rest && span.end == self.held && span.start >= self.spent => {
                (self.held, self.rest) = (span.start, to);
            }
            (Spent, _) if joins_rest && nothing_held && span.end == self.held => {
                (self.spent, self.held, self.rest) = (span.start, span.start, to);
            }
            (Held | Spent, _) => return false,
            (_, Held) if begins_rest => self.held = span.end,
            (_, Spent) if begins_rest && nothing_held => {
                (self.spent, self.held) = (span.end, span.end);
            }
            (_, Held | Spent) => return false,
            _ if begins_rest && span.end == self.end => self.rest = to,
            _ => return false,
        }
        if self.held == self.end {
            self.rest = Part::Free;
        }
        true
    }
}
