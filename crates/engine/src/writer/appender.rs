//! The thread that appends batches and sends the answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_journal::{AppendError, Epoch, Head, Journal, Pending};
use bursar_seeded::{Bug, seeded};

use crate::lease::{LeaseTrust, Monotonic, SystemMonotonic};
use crate::writer::compactor::Compactor;
use crate::writer::counters::Counters;
use crate::writer::durable::Durable;
use crate::writer::handoff::{Handoff, Load, PendingAnswer, reject_all};
use crate::writer::observer::{Observer, Written};
use crate::writer::pacing::{BATCHES_WITHOUT_WAIT, BatchPacer, WAIT_DIVISOR};

/// An append in progress, with the answers that wait for it. Without an append the answers wait
/// only for earlier ones.
struct AppendInFlight<M: Machine> {
    pending: Option<Pending>,
    waiting: Vec<PendingAnswer<M>>,
    records: u32,
    /// Bytes of its records.
    bytes: usize,
    /// When it began, on the stopwatch.
    begun: Duration,
}

/// What is known when an append has completed.
struct Gathering {
    /// Answers just sent, and answers already waiting.
    answers: usize,
    /// How long the write took.
    write_time: Duration,
}

pub(crate) struct Appender<M: Machine> {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) handoff: Arc<Handoff<M>>,
    pub(crate) compactor: Arc<Compactor<M>>,
    pub(crate) durable: Arc<Durable>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) trust: Arc<LeaseTrust>,
    pub(crate) epoch: Epoch,
    pub(crate) stopwatch: SystemMonotonic,
    pub(crate) observer: Observer,
    /// How many appends may be in progress at once; at least one.
    pub(crate) depth: usize,
    /// The head after all appends in progress. Locked by the thread that appends.
    pub(crate) expected: Mutex<Head>,
    /// How long the last write took, in nanoseconds.
    pub(crate) write_nanos: AtomicU64,
}

impl<M: Machine> Appender<M> {
    /// Runs until the handoff is closed and empty, or until the first failure.
    pub(crate) fn run(&self) {
        // If a responder panics, no thread may wait for this one for ever.
        let _guard = PanicGuard(Arc::clone(&self.handoff));
        let depth = self.depth;
        let mut flying = VecDeque::with_capacity(depth);
        let mut impatient = 0;
        loop {
            if flying.len() < depth
                && let Some(load) = self.handoff.take(flying.is_empty())
            {
                flying.push_back(self.begin(load, &mut self.expected()));
                continue;
            }
            let Some(oldest) = flying.pop_front() else { return };
            let gathering = match self.finish_append(oldest, &mut self.expected()) {
                Ok(gathering) => gathering,
                Err((failure, waiting)) => {
                    reject_all(waiting, &failure);
                    self.give_up(failure, flying);
                    return;
                }
            };
            if impatient > 0 {
                impatient -= 1;
            } else if flying.is_empty() && !self.gather(&gathering) {
                impatient = BATCHES_WITHOUT_WAIT;
            }
        }
    }

    /// Clients that were just answered often send their next request at once. A short wait for them
    /// makes one large batch instead of two that each cost a write.
    fn gather(&self, gathering: &Gathering) -> bool {
        let limit = gathering.write_time / WAIT_DIVISOR;
        gathering.answers < 2 || self.handoff.gather(gathering.answers, limit)
    }

    /// How long the last write took.
    pub(crate) fn write_time(&self) -> Duration {
        Duration::from_nanos(self.write_nanos.load(Ordering::Relaxed))
    }

    fn expected(&self) -> MutexGuard<'_, Head> {
        // A head is replaced as a whole.
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a load on the writer's thread and sends its answers. Returns the load if another
    /// append is in progress, or if the journal pipelines appends. With nothing else to decide, the
    /// handover to another thread only costs time.
    pub(crate) fn append_here(&self, load: Load<M>, pacer: &mut BatchPacer) -> Option<Load<M>> {
        if self.depth > 1 {
            return Some(load);
        }
        let mut expected = match self.expected.try_lock() {
            Ok(expected) => expected,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The appender is still completing the previous append.
            Err(TryLockError::WouldBlock) => return Some(load),
        };
        if !self.handoff.begin_here() {
            return Some(load);
        }
        let flying = self.begin(load, &mut expected);
        match self.finish_append(flying, &mut expected) {
            Ok(gathering) => pacer.answered(gathering.answers, gathering.write_time),
            Err((failure, waiting)) => {
                reject_all(waiting, &failure);
                self.handoff.fail(failure);
            }
        }
        None
    }

    fn begin(&self, load: Load<M>, expected: &mut Head) -> AppendInFlight<M> {
        let Load { records, mut waiting } = load;
        if seeded(Bug::AnswersBeforeDurable) {
            waiting.drain(..).for_each(|waiting| waiting.release(true));
        }
        let begun = self.stopwatch.elapsed();
        let bytes = records.bytes();
        let mut written = 0;
        let pending = records.finish().map(|batch| {
            self.counters.batch(&batch);
            written = batch.records();
            let after = *expected;
            if self.depth > 1 {
                // The next append may begin before this one has completed and returned its head.
                *expected = after.after(self.epoch, &batch);
            }
            self.journal.begin_append(self.epoch, after, batch)
        });
        AppendInFlight { pending, waiting, records: written, bytes, begun }
    }

    /// Waits for one append and sends its answers.
    fn finish_append(
        &self,
        oldest: AppendInFlight<M>,
        expected: &mut Head,
    ) -> Result<Gathering, (AppendError, Vec<PendingAnswer<M>>)> {
        let AppendInFlight { pending, mut waiting, records, bytes, begun } = oldest;
        match pending.map(Pending::wait) {
            Some(Ok(head)) => {
                if self.depth == 1 {
                    *expected = head;
                }
                self.durable.show(head);
            }
            Some(Err(failure)) => return Err((failure, waiting)),
            None => {}
        }
        let owner = self.trust.holds();
        let write_time = self.stopwatch.elapsed().saturating_sub(begun);
        if records > 0 {
            let nanos = u64::try_from(write_time.as_nanos()).unwrap_or(u64::MAX);
            self.write_nanos.store(nanos, Ordering::Relaxed);
            self.observer.notify(Written { took: write_time, records });
        }
        let answers = waiting.len() + self.handoff.landed();
        for waiting in waiting.drain(..) {
            waiting.release(owner);
        }
        // Followers are woken after the answers are sent, because clients wait for those.
        self.durable.wake();
        self.handoff.reuse(waiting, bytes);
        self.compactor.look();
        Ok(Gathering { answers, write_time })
    }

    /// Rejects the appends after a failed one. The kind of the failure decides their outcome.
    fn give_up(&self, failure: AppendError, flying: VecDeque<AppendInFlight<M>>) {
        for later in flying {
            // Each was sent. Only the journal knows whether it was written.
            let outcome = later.pending.map(Pending::wait);
            let own = match outcome {
                Some(Err(AppendError::Fenced { .. })) => failure_behind(&failure),
                Some(Err(own)) => own,
                Some(Ok(_)) | None => AppendError::Unknown("it followed a failed append".into()),
            };
            reject_all(later.waiting, &own);
        }
        self.handoff.fail(failure);
    }
}

/// The outcome of an append that was fenced only because the one before it failed: never written.
fn failure_behind(first: &AppendError) -> AppendError {
    match first {
        AppendError::Full(reason) => AppendError::Full(reason.clone()),
        AppendError::Fenced { epoch } => AppendError::Fenced { epoch: *epoch },
        AppendError::Unknown(reason) => AppendError::Unknown(reason.clone()),
        AppendError::Corrupt(reason) => AppendError::Corrupt(reason.clone()),
    }
}

/// Fails the handoff if this thread panics.
struct PanicGuard<M: Machine>(Arc<Handoff<M>>);

impl<M: Machine> Drop for PanicGuard<M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(AppendError::Unknown("the appending thread panicked".into()));
        }
    }
}
