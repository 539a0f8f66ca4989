//! The thread that compacts the journal, so that no request waits for it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_journal::{AppendError, Journal, MaintenanceUrgency};

use crate::writer::handoff::Handoff;

/// How long a small backlog may wait. Later work is done together with it.
const COALESCE_DELAY: Duration = Duration::from_millis(400);

struct CompactionRequest {
    urgency: MaintenanceUrgency,
    closed: bool,
}

/// Compacts the journal when a check has found that it needs it.
pub(crate) struct Compactor<M: Machine> {
    journal: Arc<dyn Journal>,
    handoff: Arc<Handoff<M>>,
    request: Mutex<CompactionRequest>,
    /// The urgency that the thread knows of, so that a check seldom takes the lock.
    known: AtomicU8,
    changed: Condvar,
}

impl<M: Machine> Compactor<M> {
    pub(crate) fn new(journal: Arc<dyn Journal>, handoff: Arc<Handoff<M>>) -> Compactor<M> {
        let request =
            Mutex::new(CompactionRequest { urgency: MaintenanceUrgency::None, closed: false });
        Compactor { journal, handoff, request, known: AtomicU8::new(0), changed: Condvar::new() }
    }

    fn request(&self) -> MutexGuard<'_, CompactionRequest> {
        // Two values, each set as a whole.
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether the journal needs compaction. Called after every append.
    pub(crate) fn look(&self) {
        let urgency = self.journal.maintenance_urgency();
        if urgency as u8 > self.known.load(Ordering::Relaxed) {
            self.note(urgency);
        }
    }

    fn note(&self, urgency: MaintenanceUrgency) {
        self.request().urgency = urgency;
        self.known.store(urgency as u8, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Runs until it is closed, or until the first failure.
    pub(crate) fn run(&self) {
        let _guard = PanicGuard(&self.handoff);
        while self.wait() {
            match self.journal.compact() {
                // Only now: a check during the work would have woken this thread without need.
                Ok(()) => self.note(self.journal.maintenance_urgency()),
                // Waiting for space loses nothing.
                Err(AppendError::Full(_)) => self.note(MaintenanceUrgency::Soon),
                Err(failure) => {
                    self.handoff.fail(failure);
                    return;
                }
            }
        }
    }

    /// Waits for work. Returns false at the end.
    fn wait(&self) -> bool {
        let idle = |request: &mut CompactionRequest| {
            request.urgency == MaintenanceUrgency::None && !request.closed
        };
        let request = self.changed.wait_while(self.request(), idle);
        let request = request.unwrap_or_else(PoisonError::into_inner);
        let can_wait = |request: &mut CompactionRequest| {
            request.urgency < MaintenanceUrgency::Now && !request.closed
        };
        let request = self.changed.wait_timeout_while(request, COALESCE_DELAY, can_wait);
        let (request, _) = request.unwrap_or_else(PoisonError::into_inner);
        !request.closed
    }

    /// Ends the thread after its current work.
    pub(crate) fn close(&self) {
        self.request().closed = true;
        self.changed.notify_one();
    }
}
/// Fails the handoff if this thread panics.
struct PanicGuard<'a, M: Machine>(&'a Handoff<M>);

impl<M: Machine> Drop for PanicGuard<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(AppendError::Unknown("the compaction thread panicked".into()));
        }
    }
}
