//! Threads and tasks without which a process must not go on.
//!
//! A thread that panics is gone, and what it did no longer happens, whatever the rest of the process
//! says. Each of them holds a [`Vital`]; the process looks at [`vital_failure`] and ends.

use std::sync::{Mutex, PoisonError};

static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Held by a thread or task that must not vanish: says so if it panics.
#[derive(Debug)]
pub struct Vital(&'static str);

impl Vital {
    /// For the thread or task of this name.
    pub fn new(name: &'static str) -> Vital {
        Vital(name)
    }

    /// Says that it cannot go on, and why.
    pub fn fail(&self, reason: &str) {
        let mut failure = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| format!("{}: {reason}", self.0));
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("it panicked");
        }
    }
}

/// What has ended that must not, if anything has.
pub fn vital_failure() -> Option<String> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
