//! The units of one bucket, as intervals.

use std::collections::BTreeMap;

use super::{FREE, LawResult, require};

/// One bucket.
pub(crate) struct BucketBook {
    pub(crate) account: u32,
    /// The common terms of its grants, as text.
    pub(crate) terms: String,
    /// Whether more grants may be added.
    pub(crate) shared: bool,
    pub(crate) expires_at: Option<i64>,
    pub(crate) expired: bool,
    pub(crate) length: u64,
    /// Intervals by first unit: the unit after the last one, and the part.
    intervals: BTreeMap<u64, (u64, u8)>,
    /// How many units are in each part.
    sums: [u64; 6],
}

impl BucketBook {
    pub(crate) fn new(
        account: u32,
        terms: String,
        shared: bool,
        expires_at: Option<i64>,
    ) -> BucketBook {
        BucketBook {
            account,
            terms,
            shared,
            expires_at,
            expired: false,
            length: 0,
            intervals: BTreeMap::new(),
            sums: [0; 6],
        }
    }

    /// Adds free units at the end and returns the first of them. `None` if there is no room.
    pub(crate) fn lay(&mut self, amount: u64) -> Option<u64> {
        let first = self.length;
        self.length = first.checked_add(amount)?;
        self.intervals.insert(first, (self.length, FREE));
        self.sums[FREE as usize] += amount;
        Some(first)
    }

    pub(crate) fn sum(&self, part: u8) -> u64 {
        self.sums[part as usize]
    }

    /// The intervals within `first..end`, clipped to it.
    fn within(&self, first: u64, end: u64) -> Vec<(u64, u64, u8)> {
        let start = self.intervals.range(..=first).next_back().map_or(first, |(start, _)| *start);
        self.intervals
            .range(start..end)
            .map(|(start, (stop, part))| (first.max(*start), end.min(*stop), *part))
            .filter(|(start, stop, _)| start < stop)
            .collect()
    }

    /// How many units of `first..end` are in each part.
    pub(crate) fn parts(&self, first: u64, end: u64) -> [u64; 6] {
        let mut parts = [0; 6];
        for (start, stop, part) in self.within(first, end) {
            parts[part as usize] += stop - start;
        }
        parts
    }

    /// The intervals of `first..end` that are in `part`.
    pub(crate) fn of_part(&self, first: u64, end: u64, part: u8) -> Vec<(u64, u64)> {
        let within = self.within(first, end).into_iter();
        within.filter(|(_, _, of)| *of == part).map(|(start, stop, _)| (start, stop)).collect()
    }

    /// Moves all units of `first..end`, which must all be in part `from`, to part `to`.
    pub(crate) fn turn(&mut self, first: u64, end: u64, from: u8, to: u8) -> LawResult<()> {
        let within = self.within(first, end);
        let covered: u64 = within.iter().map(|(start, stop, _)| stop - start).sum();
        let all = covered == end - first && within.iter().all(|(_, _, part)| *part == from);
        require(all, "L1", || {
            let are = within.iter().map(|(start, stop, part)| format!("{start}..{stop} in {part}"));
            let are: Vec<String> = are.collect();
            format!("units {first}..{end} must be in part {from} but are {}", are.join(", "))
        })?;
        for (start, stop, part) in within {
            // The interval that contains these units is split around them.
            let (whole, (whole_end, _)) = self
                .intervals
                .range(..=start)
                .next_back()
                .map(|(start, interval)| (*start, *interval))
                .expect("it was just found");
            self.intervals.remove(&whole);
            if whole < start {
                self.intervals.insert(whole, (start, part));
            }
            if stop < whole_end {
                self.intervals.insert(stop, (whole_end, part));
            }
        }
        self.sums[from as usize] -= end - first;
        self.sums[to as usize] += end - first;
        self.insert_joined(first, end, to);
        Ok(())
    }

    /// Inserts an interval and joins it to neighbours of the same part.
    fn insert_joined(&mut self, mut first: u64, mut end: u64, part: u8) {
        let left = self.intervals.range(..first).next_back().map(|(start, i)| (*start, *i));
        if let Some((start, _)) = left.filter(|(_, (stop, of))| *stop == first && *of == part) {
            self.intervals.remove(&start);
            first = start;
        }
        let right = self.intervals.get(&end).copied();
        if let Some((stop, _)) = right.filter(|(_, of)| *of == part) {
            self.intervals.remove(&end);
            end = stop;
        }
        self.intervals.insert(first, (end, part));
    }
}
