//! Counts steps of work, so that tests can bound it without a clock. Does nothing outside of tests.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Adds steps of work.
#[cfg(test)]
pub(super) fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps);
}

#[cfg(not(test))]
pub(super) fn count(_: usize) {}

/// The steps since the last call.
#[cfg(test)]
pub(super) fn take() -> usize {
    STEPS.take()
}
