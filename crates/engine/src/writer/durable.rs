//! How far the journal is known to be durable, for whoever follows it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_journal::Head;

#[derive(Debug)]
struct Shown {
    head: Option<Head>,
    /// Followers that sleep until there is more.
    sleeping: usize,
    closed: bool,
}

/// The durable head of one journal. The writer publishes, followers wait.
#[derive(Debug)]
pub struct Durable {
    shown: Mutex<Shown>,
    moved: Condvar,
}

impl Durable {
    /// Nothing is known yet.
    pub fn new() -> Durable {
        let shown = Mutex::new(Shown { head: None, sleeping: 0, closed: false });
        Durable { shown, moved: Condvar::new() }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // Nothing that holds this lock can panic half way.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last head that was published.
    pub fn head(&self) -> Option<Head> {
        self.shown().head
    }

    /// Says that everything up to `head` is durable.
    pub fn publish(&self, head: Head) {
        self.show(head);
        self.wake();
    }

    /// The same for whoever looks; those who sleep are woken by [`Durable::wake`].
    pub(crate) fn show(&self, head: Head) {
        self.shown().head = Some(head);
    }

    /// Wakes the followers that sleep, if there are any.
    pub(crate) fn wake(&self) {
        if self.shown().sleeping > 0 {
            self.moved.notify_all();
        }
    }

    /// Wakes all who wait, for good.
    pub fn close(&self) {
        self.shown().closed = true;
        self.moved.notify_all();
    }

    /// Whether [`Durable::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.shown().closed
    }

    /// Waits for more than `sequence` batches; false if there will be none.
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

    /// Waits a while, or until it is closed.
    pub fn pause(&self, time: Duration) {
        let shown = self.shown();
        // Why it woke does not matter: callers look again.
        let _unused = self.moved.wait_timeout_while(shown, time, |shown| !shown.closed);
    }
}

impl Default for Durable {
    fn default() -> Durable {
        Durable::new()
    }
}
