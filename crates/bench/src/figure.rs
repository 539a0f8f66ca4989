//! Numbers with their spread, and what the machine was doing meanwhile.

use std::time::Instant;

use serde::Serialize;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The median of several repetitions, the least and the most.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct Figure {
    /// The value in the middle.
    pub median: f64,
    /// The smallest one.
    pub least: f64,
    /// The largest one.
    pub most: f64,
}

impl Figure {
    /// Of the values of all repetitions; at least one.
    pub fn of(mut values: Vec<f64>) -> Figure {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        Figure { median: values[values.len() / 2], least, most }
    }

    /// A value that was measured once.
    pub fn once(value: f64) -> Figure {
        Figure { median: value, least: value, most: value }
    }
}

/// Nanoseconds per operation, over `rounds` calls of `round`.
pub(crate) fn measure(rounds: usize, operations: usize, mut round: impl FnMut(usize)) -> Figure {
    let time = |number| {
        let start = now();
        round(number);
        start.elapsed().as_nanos() as f64 / operations as f64
    };
    Figure::of((0..rounds).map(time).collect())
}

/// Bytes of memory that this process has resident.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Seconds that this thread has had a processor for, which other processes do not stretch.
pub(crate) fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|time| time.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// The same for all threads of this process together, in hundredths.
pub(crate) fn process_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything, come the state and ten numbers, then ours.
    let numbers = text.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let used = numbers.split_whitespace().skip(11).take(2);
    used.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// How many processes were runnable, on average over the last minute; 0 where nobody knows.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// A small deterministic generator: which account is next must not be a pattern that caches like.
pub(crate) struct Shuffle(pub(crate) u64);

impl Shuffle {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % below
    }
}
