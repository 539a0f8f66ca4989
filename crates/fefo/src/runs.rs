//! The states of a line's units, as runs of equal parts without gaps from unit 0 to the end.
//!
//! Runs are maximal: neighbours differ. A line in the general form has few runs while few holds
//! draw from it at once. Few runs are stored in an array and searched linearly. Many runs are
//! stored in a tree, with a second tree of the free runs to find the lowest one.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use crate::line::{Part, Span};

/// The number of runs that fit in the array. The whole array fits in two cache lines.
const FEW: usize = 8;
/// At this number of runs, the trees become an array again.
const FEW_AGAIN_AT: usize = 4;

/// The runs of a line in the general form.
#[derive(Clone, Debug)]
pub(crate) enum Runs {
    /// An array.
    Few(Few),
    /// Trees.
    Many(Box<Many>),
}

/// Up to [`FEW`] runs. Array elements from `used` on have no meaning.
#[derive(Clone, Debug)]
pub(crate) struct Few {
    used: u8,
    parts: [Part; FEW],
    starts: [u64; FEW],
}

/// Any number of runs.
#[derive(Clone, Debug)]
pub(crate) struct Many {
    runs: BTreeMap<u64, Part>,
    /// The free runs, start to end.
    free: BTreeMap<u64, u64>,
}

/// The run that contains the retagged span, and its neighbours.
struct Place {
    run: Span,
    /// The part of the previous run, if the span begins where the run does.
    left: Option<Part>,
    /// The part of the next run, if the span ends where the run does.
    right: Option<Part>,
}

impl Runs {
    /// These runs, except the empty ones.
    pub(crate) fn of(runs: &[(Span, Part); 3]) -> Runs {
        let mut few = Few { used: 0, parts: [Part::Free; FEW], starts: [0; FEW] };
        for (run, part) in runs.iter().filter(|(run, _)| !run.is_empty()) {
            (few.starts[few.len()], few.parts[few.len()]) = (run.start, *part);
            few.used += 1;
        }
        Runs::Few(few)
    }

    /// Whether there are at most `few` runs.
    pub(crate) fn are_at_most(&self, few: usize) -> bool {
        match self {
            Runs::Few(row) => row.len() <= few,
            Runs::Many(many) => many.runs.len() <= few,
        }
    }

    /// Appends the free units `start..end` to the line.
    pub(crate) fn lay(&mut self, start: u64, end: u64) {
        match self {
            Runs::Few(few) => {
                let last = few.len() - 1;
                if few.parts[last] == Part::Free {
                    return;
                }
                if few.len() < FEW {
                    (few.starts[last + 1], few.parts[last + 1]) = (start, Part::Free);
                    few.used += 1;
                    return;
                }
                let mut many = few.to_many(start);
                many.lay(start, end);
                *self = Runs::Many(Box::new(many));
            }
            Runs::Many(many) => many.lay(start, end),
        }
    }

    /// Removes the units from `start` to the end of the line.
    ///
    /// # Panics
    /// If one of them is not free.
    pub(crate) fn cut(&mut self, start: u64) {
        let last = match self {
            Runs::Few(few) => {
                let last = few.len() - 1;
                Some((few.starts[last], few.parts[last]))
            }
            Runs::Many(many) => many.runs.last_key_value().map(|(start, part)| (*start, *part)),
        };
        let Some((run, Part::Free)) = last else { panic!("a pack in use cannot be removed") };
        assert!(run <= start, "a pack in use cannot be removed");
        match self {
            Runs::Few(few) => few.used -= u8::from(run == start),
            Runs::Many(many) if run == start => {
                many.runs.remove(&run);
                many.free.remove(&run);
            }
            Runs::Many(many) => {
                many.free.insert(run, start);
            }
        }
    }

    /// Changes the units of `span` from one part to another, on a line that ends at `line_end`.
    ///
    /// # Panics
    /// If a unit of `span` is not `from`.
    pub(crate) fn retag(&mut self, span: Span, from: Part, to: Part, line_end: u64) {
        match self {
            Runs::Few(few) => {
                if !few.retag(span, from, to, line_end) {
                    let mut many = few.to_many(line_end);
                    many.retag(span, from, to, line_end);
                    *self = Runs::Many(Box::new(many));
                }
            }
            Runs::Many(many) => {
                many.retag(span, from, to, line_end);
                if many.runs.len() <= FEW_AGAIN_AT {
                    *self = Runs::Few(many.to_few());
                }
            }
        }
    }

    /// The runs from the one that contains `unit` on.
    pub(crate) fn from(&self, unit: u64, line_end: u64) -> RunsFrom<'_> {
        match self {
            Runs::Few(few) => RunsFrom::Few { few, at: few.at(unit), line_end },
            Runs::Many(many) => {
                let first = many.runs.range(..=unit).next_back().map_or(unit, |(start, _)| *start);
                RunsFrom::Many { rest: many.runs.range(first..).peekable(), line_end }
            }
        }
    }

    /// The free runs from the one that contains `unit` on, if they are stored separately.
    pub(crate) fn free_from(&self, unit: u64) -> Option<btree_map::Range<'_, u64, u64>> {
        let Runs::Many(many) = self else { return None };
        let first = many.free.range(..=unit).next_back().map_or(unit, |(start, _)| *start);
        Some(many.free.range(first..))
    }
}

impl Few {
    fn len(&self) -> usize {
        usize::from(self.used)
    }

    /// The index of the run that contains `unit`.
    fn at(&self, unit: u64) -> usize {
        let mut at = self.len() - 1;
        while self.starts[at] > unit {
            // The first run starts at unit 0.
            at -= 1;
        }
        at
    }

    fn end(&self, at: usize, line_end: u64) -> u64 {
        if at + 1 < self.len() { self.starts[at + 1] } else { line_end }
    }

    /// Returns `false` and changes nothing if the result does not fit in the array.
    fn retag(&mut self, span: Span, from: Part, to: Part, line_end: u64) -> bool {
        let (at, used) = (self.at(span.start), self.len());
        let run = Span::new(self.starts[at], self.end(at, line_end));
        let place = Place {
            run,
            left: (run.start == span.start && at > 0).then(|| self.parts[at - 1]),
            right: (run.end == span.end && at + 1 < used).then(|| self.parts[at + 1]),
        };
        check(span, from, self.parts[at], &place);
        // The replacement of the run, and of the next one if that has the new part.
        let mut put = [(0, to); 3];
        let mut count = 0;
        let mut add = |start: u64, part: Part| {
            put[count] = (start, part);
            count += 1;
        };
        if run.start < span.start {
            add(run.start, from);
        }
        if place.left != Some(to) {
            add(span.start, to);
        }
        if span.end < run.end {
            add(span.end, from);
        }
        let behind = at + 1 + usize::from(place.right == Some(to));
        let total = used - (behind - at) + count;
        if total > FEW {
            return false;
        }
        if behind != at + count && behind < used {
            self.starts.copy_within(behind..used, at + count);
            self.parts.copy_within(behind..used, at + count);
        }
        for (offset, (start, part)) in put[..count].iter().enumerate() {
            (self.starts[at + offset], self.parts[at + offset]) = (*start, *part);
        }
        self.used = total as u8;
        true
    }

    fn to_many(&self, line_end: u64) -> Many {
        let mut many = Many { runs: BTreeMap::new(), free: BTreeMap::new() };
        for at in 0..self.len() {
            let (start, part) = (self.starts[at], self.parts[at]);
            many.runs.insert(start, part);
            if part == Part::Free {
                many.free.insert(start, self.end(at, line_end));
            }
        }
        many
    }
}

impl Many {
    fn lay(&mut self, start: u64, end: u64) {
        let run = match self.runs.last_key_value() {
            Some((run, Part::Free)) => *run,
            _ => {
                self.runs.insert(start, Part::Free);
                start
            }
        };
        self.free.insert(run, end);
    }

    fn to_few(&self) -> Few {
        let mut few = Few { used: 0, parts: [Part::Free; FEW], starts: [0; FEW] };
        for (at, (start, part)) in self.runs.iter().enumerate() {
            (few.starts[at], few.parts[at]) = (*start, *part);
            few.used += 1;
        }
        few
    }

    fn retag(&mut self, span: Span, from: Part, to: Part, line_end: u64) {
        let run = self.runs.range(..=span.start).next_back();
        let (start, part) = run.map(|(start, part)| (*start, *part)).expect("runs start at unit 0");
        let next = self.runs.range(span.start + 1..).next().map(|(at, part)| (*at, *part));
        let end = next.map_or(line_end, |(at, _)| at);
        let before = start.checked_sub(1).filter(|_| start == span.start);
        let place = Place {
            run: Span::new(start, end),
            left: before
                .and_then(|unit| self.runs.range(..=unit).next_back())
                .map(|(_, part)| *part),
            right: next.filter(|_| end == span.end).map(|(_, part)| part),
        };
        check(span, from, part, &place);
        // The right neighbour first: it either absorbs the span or keeps its own start.
        if span.end < end {
            self.runs.insert(span.end, from);
        } else if place.right == Some(to) {
            self.runs.remove(&end);
        }
        if place.left == Some(to) {
            self.runs.remove(&start);
        } else {
            self.runs.insert(span.start, to);
        }
        self.retag_free(span, from, to, &place);
    }

    /// Applies the retagging to the free runs.
    fn retag_free(&mut self, span: Span, from: Part, to: Part, place: &Place) {
        let run = place.run;
        if from == Part::Free {
            if run.start < span.start {
                self.free.insert(run.start, span.start);
            } else {
                self.free.remove(&run.start);
            }
            if span.end < run.end {
                self.free.insert(span.end, run.end);
            }
        } else if to == Part::Free {
            let before = self.free.range(..span.start).next_back().map(|(start, _)| *start);
            let start = before.filter(|_| place.left == Some(to)).unwrap_or(span.start);
            let end = self.free.remove(&span.end).unwrap_or(span.end);
            self.free.insert(start, end);
        }
    }
}

fn check(span: Span, from: Part, part: Part, place: &Place) {
    assert!(part == from, "units {span:?} are {part:?}, not {from:?}");
    assert!(span.end <= place.run.end, "units {span:?} are not all {from:?}");
}

/// Runs in order, each with its part.
#[derive(Clone, Debug)]
pub(crate) enum RunsFrom<'a> {
    /// Runs of a line in the orderly form. Some may be empty.
    Orderly(std::array::IntoIter<(Span, Part), 3>),
    /// Runs of the array.
    Few { few: &'a Few, at: usize, line_end: u64 },
    /// Runs of the tree.
    Many { rest: Peekable<btree_map::Range<'a, u64, Part>>, line_end: u64 },
}

impl Iterator for RunsFrom<'_> {
    type Item = (Span, Part);

    fn next(&mut self) -> Option<(Span, Part)> {
        match self {
            RunsFrom::Orderly(runs) => runs.next(),
            RunsFrom::Few { few, at, line_end } => {
                let run = (*at < few.len())
                    .then(|| (Span::new(few.starts[*at], few.end(*at, *line_end)), few.parts[*at]));
                *at += 1;
                run
            }
            RunsFrom::Many { rest, line_end } => {
                let (start, part) = rest.next()?;
                let end = rest.peek().map_or(*line_end, |(next, _)| **next);
                Some((Span::new(*start, end), *part))
            }
        }
    }
}
