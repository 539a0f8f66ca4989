//! How far the journal is known to be durable, for its followers.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_journal::Head;

#[derive(Debug)]
struct DurableState {
    head: Option<Head>,
    /// Followers that wait for more.
    sleeping: usize,
    closed: bool,
}

/// The durable head of one journal. The writer publishes it, followers wait for it.
#[derive(Debug)]
pub struct Durable {
    shown: Mutex<DurableState>,
    moved: Condvar,
}

impl Durable {
    /// No head is known yet.
    pub fn new() -> Durable {
        let shown = Mutex::new(DurableState { head: None, sleeping: 0, closed: false });
        Durable { shown, moved: Condvar::new() }
    }

    fn shown(&self) -> MutexGuard<'_, DurableState> {
        // Nothing that holds this lock can panic half way.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last published head.
    pub fn head(&self) -> Option<Head> {
        self.shown().head
    }

    /// Publishes that everything up to `head` is durable.
    pub fn publish(&self, head: Head) {
        self.show(head);
        self.wake();
    }

    /// Publishes `head` without waking followers. [`Durable::wake`] wakes them.
    pub(crate) fn show(&self, head: Head) {
        self.shown().head = Some(head);
    }

    /// Wakes waiting followers.
    pub(crate) fn wake(&self) {
        if self.shown().sleeping > 0 {
            self.moved.notify_all();
        }
    }

    /// Wakes all waiting followers for good.
    pub fn close(&self) {
        self.shown().closed = true;
        self.moved.notify_all();
    }

    /// Whether [`Durable::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.shown().closed
    }

    /// Waits for more than `sequence` batches. Returns false if there will be none.
    pub fn wait_beyond(&self, sequence: u64) -> bool {
        let mut shown = self.shown();
        while !shown.closed {
            if shown.head.is_some_and(|head| head.sequence > sequence) {
                return true;
            }
            shown.sleeping += 1;
            shown = self.moved.wait(shown).unwrap_or_else(PoisonError::into_inner);
            shown.sleeping -= 1;
        }
        false
    }

    /// Waits for `time`, or until it is closed.
    pub fn pause(&self, time: Duration) {
        let shown = self.shown();
        // The reason for waking does not matter: callers check again.
        let _unused = self.moved.wait_timeout_while(shown, time, |shown| !shown.closed);
    }
}

impl Default for Durable {
    fn default() -> Durable {
        Durable::new()
    }
}
