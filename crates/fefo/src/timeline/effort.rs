//! How much work is done, so that tests can bound it without a clock. Nothing at all otherwise.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts steps of work.
#[cfg(test)]
pub(super) fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps);
}

#[cfg(not(test))]
pub(super) fn count(_: usize) {}

/// The steps since the last look.
#[cfg(test)]
pub(super) fn take() -> usize {
    STEPS.take()
}
