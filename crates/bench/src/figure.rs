//! Figures with their spread, and readings of processor time, memory and load.

use std::time::Instant;

use serde::Serialize;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The median, minimum and maximum of several repetitions.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct Figure {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

impl Figure {
    /// Summarizes the values of all repetitions. `values` must not be empty.
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

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Processor time of this thread in seconds. Other processes do not affect it.
pub(crate) fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|time| time.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// Processor time of all threads of this process in seconds, with a resolution of 10 ms.
pub(crate) fn process_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name in parentheses may contain any character. After it come the state and ten
    // numbers, then user and system time.
    let numbers = text.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let used = numbers.split_whitespace().skip(11).take(2);
    used.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Runnable processes, averaged over the last minute; 0 if it cannot be read.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// A small deterministic generator. It picks accounts in an order that caches cannot exploit.
pub(crate) struct Shuffle(pub(crate) u64);

impl Shuffle {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % below
    }
}
