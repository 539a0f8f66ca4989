//! Measures how long things take. Never decides anything.

use std::time::{Duration, Instant};

/// Runs from its making.
#[derive(Copy, Clone, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts to measure.
    #[expect(clippy::disallowed_methods, reason = "durations are measured here, for metrics only")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
