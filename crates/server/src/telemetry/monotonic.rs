//! Measures durations, for metrics and for the windows of failed sign-ins. No decision of a machine depends on them.

use std::time::{Duration, Instant};

/// A stopwatch that runs from its creation.
#[derive(Copy, Clone, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts the stopwatch.
    #[expect(
        clippy::disallowed_methods,
        reason = "durations are measured here, never for a machine"
    )]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
