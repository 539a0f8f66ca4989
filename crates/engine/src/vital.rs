//! Threads and tasks that a process cannot run without.
//!
//! A thread that panics ends, and its work stops while the rest of the process continues. Each such
//! thread holds a [`Vital`]. The process checks [`vital_failure`] and exits.

use std::sync::{Mutex, PoisonError};

static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Held by a thread or task that must not end unnoticed. Records a failure if the thread panics.
#[derive(Debug)]
pub struct Vital(&'static str);

impl Vital {
    /// A guard for the thread or task of this name.
    pub fn new(name: &'static str) -> Vital {
        Vital(name)
    }

    /// Records that the thread cannot continue, and why.
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

/// The first failure of a vital thread or task, if there is one.
pub fn vital_failure() -> Option<String> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
