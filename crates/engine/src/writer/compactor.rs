//! The thread that compacts the journal, so that no request waits for it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_journal::{AppendError, Journal, Untidiness};

use crate::writer::handoff::Handoff;

/// How long a small backlog may wait. Later work is done together with it.
const PATIENCE: Duration = Duration::from_millis(400);

struct Wish {
    untidiness: Untidiness,
    closed: bool,
}

/// Compacts the journal when a check has found that it needs it.
pub(crate) struct Compactor<M: Machine> {
    journal: Arc<dyn Journal>,
    handoff: Arc<Handoff<M>>,
    wish: Mutex<Wish>,
    /// The urgency that the thread knows of, so that a check seldom takes the lock.
    known: AtomicU8,
    changed: Condvar,
}

impl<M: Machine> Compactor<M> {
    pub(crate) fn new(journal: Arc<dyn Journal>, handoff: Arc<Handoff<M>>) -> Compactor<M> {
        let wish = Mutex::new(Wish { untidiness: Untidiness::None, closed: false });
        Compactor { journal, handoff, wish, known: AtomicU8::new(0), changed: Condvar::new() }
    }

    fn wish(&self) -> MutexGuard<'_, Wish> {
        // Two values, each set as a whole.
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the journal needs compaction. Called after every append.
    pub(crate) fn look(&self) {
        let untidiness = self.journal.untidiness();
        if untidiness as u8 > self.known.load(Ordering::Relaxed) {
            self.note(untidiness);
        }
    }

    fn note(&self, untidiness: Untidiness) {
        self.wish().untidiness = untidiness;
        self.known.store(untidiness as u8, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Runs until it is closed, or until the first failure.
    pub(crate) fn run(&self) {
        let _guard = PanicGuard(&self.handoff);
        while self.wait() {
            match self.journal.tidy() {
                // Only now: a check during the work would have woken this thread without need.
                Ok(()) => self.note(self.journal.untidiness()),
                // Waiting for space loses nothing.
                Err(AppendError::Full(_)) => self.note(Untidiness::Some),
                Err(failure) => {
                    self.handoff.fail(failure);
                    return;
                }
            }
        }
    }

    /// Waits for work. Returns false at the end.
    fn wait(&self) -> bool {
        let idle = |wish: &mut Wish| wish.untidiness == Untidiness::None && !wish.closed;
        let wish = self.changed.wait_while(self.wish(), idle);
        let wish = wish.unwrap_or_else(PoisonError::into_inner);
        let patient = |wish: &mut Wish| wish.untidiness < Untidiness::Much && !wish.closed;
        let wish = self.changed.wait_timeout_while(wish, PATIENCE, patient);
        let (wish, _) = wish.unwrap_or_else(PoisonError::into_inner);
        !wish.closed
    }

    /// Ends the thread after its current work.
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
