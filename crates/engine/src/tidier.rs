//! The thread that keeps the journal tidy, so that nobody waits for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bursar_core::machine::Machine;
use bursar_journal::{AppendError, Journal};

use crate::handoff::Handoff;

#[derive(Default)]
struct Wish {
    wanted: bool,
    closed: bool,
}

/// Tidies the journal when somebody has noticed that it is untidy.
pub(crate) struct Tidier<M: Machine> {
    journal: Arc<dyn Journal>,
    handoff: Arc<Handoff<M>>,
    wish: Mutex<Wish>,
    changed: Condvar,
}

impl<M: Machine> Tidier<M> {
    pub(crate) fn new(journal: Arc<dyn Journal>, handoff: Arc<Handoff<M>>) -> Tidier<M> {
        Tidier { journal, handoff, wish: Mutex::default(), changed: Condvar::new() }
    }

    fn wish(&self) -> MutexGuard<'_, Wish> {
        // Two flags, each set whole.
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the journal is untidy; called after every append.
    pub(crate) fn look(&self) {
        if self.journal.is_untidy() && !std::mem::replace(&mut self.wish().wanted, true) {
            self.changed.notify_one();
        }
    }

    /// Works until it is closed, or until the first failure.
    pub(crate) fn run(&self) {
        let _guard = PanicGuard(&self.handoff);
        while self.wait() {
            let tidied = self.journal.tidy();
            // Only now: while it was at work, looking would have woken it for nothing.
            self.wish().wanted = false;
            if let Err(failure) = tidied {
                self.handoff.fail(failure);
                return;
            }
        }
    }

    /// Waits for something to do; false at the end.
    fn wait(&self) -> bool {
        let idle = |wish: &mut Wish| !wish.wanted && !wish.closed;
        let wish = self.changed.wait_while(self.wish(), idle);
        !wish.unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Ends the thread once it is done with what it does.
    pub(crate) fn close(&self) {
        self.wish().closed = true;
        self.changed.notify_one();
    }
}

/// Fails the handoff if this thread panics.
struct PanicGuard<'a, M: Machine>(&'a Handoff<M>);

impl<M: Machine> Drop for PanicGuard<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(AppendError::Unknown("the tidying thread panicked".into()));
        }
    }
}
