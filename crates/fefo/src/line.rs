//! One bucket: packs laid end to end on a line of units.

use crate::orderly::Orderly;
use crate::runs::{Runs, RunsFrom};

/// The state of a unit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Part {
    /// Can be drawn.
    Free = 0,
    /// Drawn, and may still be returned.
    Held = 1,
    /// Used up; only a refund returns it.
    Spent = 2,
    /// Was free when its pack expired.
    Expired = 3,
    /// Taken back by the issuer.
    Revoked = 4,
    /// Transferred to another owner.
    Moved = 5,
}

impl Part {
    /// All parts, in the order of their numbers.
    pub const ALL: [Part; 6] =
        [Part::Free, Part::Held, Part::Spent, Part::Expired, Part::Revoked, Part::Moved];
}

/// Units `start..end` of a line.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first unit.
    pub start: u64,
    /// The unit after the last.
    pub end: u64,
}

impl Span {
    /// The units from `start` up to but not including `end`.
    pub const fn new(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    /// The number of units.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether the span has no units.
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The units that are in both spans.
    pub fn intersect(self, other: Span) -> Span {
        let start = self.start.max(other.start);
        Span { start, end: self.end.min(other.end).max(start) }
    }
}

/// The line is full: the number of its units must fit in 64 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LineFull;

/// Packs of equal rank as consecutive intervals of one line, with the state of each unit.
///
/// `P` identifies a pack. A line of one pack that is spent from the front has no heap allocation.
/// All operations are logarithmic in the number of packs and of runs of equal [`Part`]. Adjacent
/// runs of the same part are one run, so a draw over a hundred thousand packs retags one run.
#[derive(Clone, Debug)]
pub struct Line<P>(Form<P>);

#[derive(Clone, Debug)]
enum Form<P> {
    Orderly(Orderly<P>),
    Any(Box<Any<P>>),
}

/// The general form: any packs and any runs.
#[derive(Clone, Debug)]
struct Any<P> {
    end: u64,
    free: u64,
    packs: Packs<P>,
    runs: Runs,
}

#[derive(Clone, Debug)]
enum Packs<P> {
    One(P),
    /// Each pack with the unit after its last.
    Many(Vec<(u64, P)>),
}

impl<P: Copy> Line<P> {
    /// A line with one pack, all of it free.
    pub fn new(amount: u64, pack: P) -> Line<P> {
        Line(Form::Orderly(Orderly::new(amount, pack)))
    }

    /// Appends a pack and returns the units that it owns.
    pub fn append(&mut self, amount: u64, pack: P) -> Result<Span, LineFull> {
        let start = self.end();
        let end = start.checked_add(amount).ok_or(LineFull)?;
        let any = self.any();
        match &mut any.packs {
            Packs::One(first) => any.packs = Packs::Many(vec![(start, *first), (end, pack)]),
            Packs::Many(packs) => packs.push((end, pack)),
        }
        any.runs.lay(start, end);
        any.free += amount;
        any.end = end;
        Ok(Span { start, end })
    }

    /// Removes the last pack. All its units must be free. Returns `None` if it is the only pack.
    pub fn truncate(&mut self) -> Option<P> {
        let Form::Any(any) = &mut self.0 else { return None };
        let Packs::Many(packs) = &mut any.packs else { return None };
        let (end, pack) = packs.pop()?;
        let start = packs.last().map_or(0, |(end, _)| *end);
        if let [(_, first)] = packs[..] {
            any.packs = Packs::One(first);
        }
        any.runs.cut(start);
        any.free -= end - start;
        any.end = start;
        self.simplify();
        Some(pack)
    }

    /// The number of units on the line, in any state.
    pub fn end(&self) -> u64 {
        match &self.0 {
            Form::Orderly(orderly) => orderly.end,
            Form::Any(any) => any.end,
        }
    }

    /// The number of free units.
    pub fn free(&self) -> u64 {
        match &self.0 {
            Form::Orderly(orderly) => orderly.free().len(),
            Form::Any(any) => any.free,
        }
    }

    /// The number of packs.
    pub fn pack_count(&self) -> usize {
        match &self.0 {
            Form::Orderly(_) => 1,
            Form::Any(any) => match &any.packs {
                Packs::One(_) => 1,
                Packs::Many(packs) => packs.len(),
            },
        }
    }

    /// The lowest free span.
    pub fn first_free(&self) -> Option<Span> {
        match &self.0 {
            Form::Orderly(orderly) => Some(orderly.free()).filter(|free| !free.is_empty()),
            Form::Any(_) => self.free_spans(0).next(),
        }
    }

    /// The free spans from unit `from` on, lowest first.
    pub fn free_spans(&self, from: u64) -> impl Iterator<Item = Span> + '_ {
        let apart = match &self.0 {
            Form::Orderly(_) => None,
            Form::Any(any) => any.runs.free_from(from),
        };
        let among = apart.is_none().then(|| self.runs_from(from));
        let among = among.into_iter().flatten().filter(|(_, part)| *part == Part::Free);
        let apart = apart.into_iter().flatten();
        among
            .map(|(run, _)| run)
            .chain(apart.map(|(start, end)| Span { start: *start, end: *end }))
            .map(move |span| Span { start: span.start.max(from), end: span.end })
            .filter(|span| !span.is_empty())
    }

    /// The runs from the one that contains `unit` on. Some may be empty.
    fn runs_from(&self, unit: u64) -> RunsFrom<'_> {
        match &self.0 {
            Form::Orderly(orderly) => RunsFrom::Orderly(orderly.runs().into_iter()),
            Form::Any(any) => any.runs.from(unit, any.end),
        }
    }

    /// The lowest free spans that add up to `amount` units, or all of them if there are fewer
    /// units.
    pub fn lowest_free(&self, amount: u64) -> impl Iterator<Item = Span> + '_ {
        let mut left = amount;
        self.free_spans(0).map_while(move |span| {
            let taken = span.len().min(left);
            left -= taken;
            (taken > 0).then_some(Span { start: span.start, end: span.start + taken })
        })
    }

    /// The runs within `span`, in order.
    pub fn runs_in(&self, span: Span) -> impl Iterator<Item = (Span, Part)> + '_ {
        self.runs_from(span.start)
            .take_while(move |(run, _)| run.start < span.end)
            .map(move |(run, part)| (run.intersect(span), part))
            .filter(|(run, _)| !run.is_empty())
    }

    /// The number of units of `span` in each part, indexed by the part's number.
    pub fn breakdown(&self, span: Span) -> [u64; 6] {
        let mut sums = [0; 6];
        for (run, part) in self.runs_in(span) {
            sums[part as usize] += run.len();
        }
        sums
    }

    /// The packs that own the units of `span`, in order, each with the units that it owns there.
    pub fn packs_in(&self, span: Span) -> impl Iterator<Item = (Span, P)> + '_ {
        let (one, many) = match &self.0 {
            Form::Orderly(orderly) => (Some(orderly.pack), &[][..]),
            Form::Any(any) => match &any.packs {
                Packs::One(pack) => (Some(*pack), &[][..]),
                Packs::Many(packs) => (None, &packs[..]),
            },
        };
        let one = one.map(|pack| (self.end(), pack));
        let first = many.partition_point(|(end, _)| *end <= span.start);
        let mut start = first.checked_sub(1).map_or(0, |before| many[before].0);
        one.into_iter()
            .chain(many[first..].iter().copied())
            .map(move |(end, pack)| {
                let owned = Span { start, end };
                start = end;
                (owned, pack)
            })
            .take_while(move |(owned, _)| owned.start < span.end)
            .map(move |(owned, pack)| (owned.intersect(span), pack))
            .filter(|(owned, _)| !owned.is_empty())
    }

    /// Changes all units of `span` from one part to another.
    ///
    /// # Panics
    /// If a unit of `span` is not `from`. The caller's records and the line disagree, and
    /// continuing would create or lose credits.
    pub fn retag(&mut self, span: Span, from: Part, to: Part) {
        assert!(!span.is_empty() && from != to, "a retagging must change at least one unit");
        if let Form::Orderly(orderly) = &mut self.0
            && orderly.retag(span, from, to)
        {
            return;
        }
        let any = self.any();
        any.runs.retag(span, from, to, any.end);
        match (from, to) {
            (Part::Free, _) => any.free -= span.len(),
            (_, Part::Free) => any.free += span.len(),
            _ => {}
        }
        self.simplify();
    }

    /// Converts the line to the general form, if needed.
    fn any(&mut self) -> &mut Any<P> {
        if let Form::Orderly(orderly) = &self.0 {
            self.0 = Form::Any(Box::new(Any {
                end: orderly.end,
                free: orderly.free().len(),
                packs: Packs::One(orderly.pack),
                runs: Runs::of(&orderly.runs()),
            }));
        }
        match &mut self.0 {
            Form::Any(any) => any,
            Form::Orderly(_) => unreachable!("the line was just converted"),
        }
    }

    /// Converts the line to the orderly form if it fits and has at most two runs. With more runs,
    /// overlapping holds could convert it back and forth.
    fn simplify(&mut self) {
        let Form::Any(any) = &self.0 else { return };
        let Packs::One(pack) = any.packs else { return };
        if any.runs.are_at_most(2)
            && let Some(orderly) = Orderly::of(any.runs.from(0, any.end), any.end, pack)
        {
            self.0 = Form::Orderly(orderly);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A line as an array of units.
    struct Naive {
        units: Vec<Part>,
        owners: Vec<u32>,
    }

    fn maximal_runs(units: &[Part], span: Span) -> Vec<(Span, Part)> {
        let mut runs: Vec<(Span, Part)> = Vec::new();
        for unit in span.start..span.end {
            let part = units[unit as usize];
            match runs.last_mut() {
                Some((run, last)) if *last == part => run.end = unit + 1,
                _ => runs.push((Span::new(unit, unit + 1), part)),
            }
        }
        runs
    }

    fn assert_same(line: &Line<u32>, naive: &Naive) {
        let all = Span::new(0, naive.units.len() as u64);
        assert_eq!(line.end(), all.end);
        for from in [0, all.end / 3, all.end / 2] {
            let span = Span::new(from, all.end - from / 2);
            let runs: Vec<_> = line.runs_in(span).collect();
            assert_eq!(runs, maximal_runs(&naive.units, span));
            let free: Vec<_> = line.free_spans(from).collect();
            let expected: Vec<_> = maximal_runs(&naive.units, Span::new(from, all.end))
                .into_iter()
                .filter_map(|(run, part)| (part == Part::Free).then_some(run))
                .collect();
            assert_eq!(free, expected);
            if from == 0 {
                assert_eq!(line.first_free(), expected.first().copied());
            }
            let mut owners = Vec::new();
            for (owned, pack) in line.packs_in(span) {
                owners.extend(std::iter::repeat_n(pack, owned.len() as usize));
            }
            assert_eq!(owners, naive.owners[span.start as usize..span.end as usize]);
        }
        let free = naive.units.iter().filter(|part| **part == Part::Free).count();
        assert_eq!(line.free(), free as u64);
        assert_eq!(line.breakdown(all).iter().sum::<u64>(), all.end);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn a_line_agrees_with_an_array_of_units(
            first in 1u64..40,
            steps in prop::collection::vec((0u8..8, any::<u16>(), any::<u16>(), 0usize..6), 1..120),
        ) {
            let mut line = Line::new(first, 0u32);
            let mut naive = Naive {
                units: vec![Part::Free; first as usize],
                owners: vec![0; first as usize],
            };
            let mut packs = vec![first];
            for (kind, a, b, to) in steps {
                match kind {
                    0 => {
                        let amount = u64::from(a % 30) + 1;
                        let name = packs.len() as u32;
                        line.append(amount, name).unwrap();
                        packs.push(amount);
                        naive.units.extend(std::iter::repeat_n(Part::Free, amount as usize));
                        naive.owners.extend(std::iter::repeat_n(name, amount as usize));
                    }
                    1 if packs.len() > 1 => {
                        let amount = *packs.last().unwrap() as usize;
                        let kept = naive.units.len() - amount;
                        if naive.units[kept..].iter().all(|part| *part == Part::Free) {
                            line.truncate();
                            packs.pop();
                            naive.units.truncate(kept);
                            naive.owners.truncate(kept);
                        }
                    }
                    _ => {
                        let runs = maximal_runs(&naive.units, Span::new(0, naive.units.len() as u64));
                        let (run, from) = runs[usize::from(a) % runs.len()];
                        let to = Part::ALL[to];
                        if from != to {
                            let start = run.start + u64::from(b) % run.len();
                            let end = start + 1 + u64::from(a ^ b) % (run.end - start);
                            line.retag(Span::new(start, end), from, to);
                            naive.units[start as usize..end as usize].fill(to);
                        }
                    }
                }
                assert_same(&line, &naive);
            }
        }
    }

    #[test]
    fn a_line_of_one_pack_that_is_spent_from_the_front_takes_four_words() {
        assert_eq!(size_of::<Line<u32>>(), 32);
        let mut line = Line::new(10, 0u32);
        let orderly = |line: &Line<u32>| matches!(line.0, Form::Orderly(_));
        line.retag(Span::new(0, 4), Part::Free, Part::Held);
        line.retag(Span::new(0, 3), Part::Held, Part::Spent);
        line.retag(Span::new(3, 4), Part::Held, Part::Free);
        line.retag(Span::new(3, 5), Part::Free, Part::Held);
        assert!(orderly(&line));
        line.retag(Span::new(3, 4), Part::Held, Part::Free);
        assert!(!orderly(&line), "a free unit lies before a held one");
        line.retag(Span::new(4, 5), Part::Held, Part::Free);
        assert!(orderly(&line));
        line.retag(Span::new(3, 10), Part::Free, Part::Expired);
        assert!(orderly(&line), "an expired line needs no more room than before");
    }

    #[test]
    fn a_line_beyond_64_bits_is_full() {
        let mut line = Line::new(u64::MAX - 1, 0u32);
        assert_eq!(line.append(1, 1), Ok(Span::new(u64::MAX - 1, u64::MAX)));
        assert_eq!(line.append(1, 2), Err(LineFull));
        assert_eq!(line.free(), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "not Held")]
    fn retagging_units_of_another_part_panics() {
        Line::new(10, 0u32).retag(Span::new(2, 4), Part::Held, Part::Spent);
    }
}
