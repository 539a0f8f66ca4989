//! How long the writer waits for more messages before it writes a batch itself.
//!
//! Clients that were just answered often send their next request at once. Two threads that put each
//! other to sleep and wake each other up spend more time on that than a fast disk takes to write.
//! The writer therefore polls a moment longer before it sleeps, and decides as many messages as it
//! answered before it writes.

use std::time::Duration;

use bursar_core::machine::Machine;

use crate::lease::{Monotonic, SystemMonotonic};
use crate::writer::mailbox::Mailbox;

/// The fraction of a write's time that may be spent on waiting for more messages or records.
pub(crate) const WAIT_DIVISOR: u32 = 4;
/// A load that took as long to decide as this many writes is handed over although more could be
/// added. Under such load, deciding is the bottleneck.
const MAX_WRITES_OF_LOAD: u32 = 2;
/// The longest time for which the writer polls instead of sleeping.
const MAX_POLL: Duration = Duration::from_micros(60);
/// After a wait without result, this many batches are written without waiting.
pub(crate) const BATCHES_WITHOUT_WAIT: u32 = 4;

/// Decides how long the writer waits, from measurements of the last batch.
pub(crate) struct BatchPacer {
    clock: SystemMonotonic,
    /// Answers in the last batch that the writer itself wrote.
    answered: usize,
    /// When they were sent.
    since: Duration,
    write_time: Duration,
    impatient: u32,
    /// When deciding began for the load that is not handed over yet.
    begun: Duration,
}

impl BatchPacer {
    pub(crate) fn new() -> BatchPacer {
        let clock = SystemMonotonic::new();
        let (since, write_time) = (Duration::ZERO, Duration::ZERO);
        let begun = Duration::ZERO;
        BatchPacer { clock, answered: 0, since, write_time, impatient: 0, begun }
    }

    /// Starts timing the decisions of a new load.
    pub(crate) fn begin(&mut self) {
        self.begun = self.clock.elapsed();
    }

    /// Whether deciding took so much longer than a write that the load should be written by the
    /// other thread while more is decided.
    pub(crate) fn is_long(&self, write_time: Duration) -> bool {
        self.clock.elapsed().saturating_sub(self.begun) > write_time * MAX_WRITES_OF_LOAD
    }

    /// Records that the writer itself has just sent `answers` answers.
    pub(crate) fn answered(&mut self, answers: usize, write_time: Duration) {
        (self.answered, self.write_time) = (answers, write_time);
        self.since = self.clock.elapsed();
        self.impatient = self.impatient.saturating_sub(1);
    }

    /// Polls for the next message before the writer sleeps.
    pub(crate) fn poll_before_sleep<M: Machine>(&mut self, mailbox: &Mailbox<M>) {
        if self.answered > 0 {
            let limit = (self.write_time / 2).min(MAX_POLL);
            self.look(mailbox, limit);
        }
    }

    /// Waits for another message if fewer are decided than were answered before. Returns whether
    /// there is one.
    pub(crate) fn more<M: Machine>(&mut self, mailbox: &Mailbox<M>, decided: usize) -> bool {
        decided < self.answered && self.look(mailbox, self.write_time / WAIT_DIVISOR)
    }

    /// Polls for a message without sleeping, but yields to other threads.
    fn look<M: Machine>(&mut self, mailbox: &Mailbox<M>, limit: Duration) -> bool {
        let before = mailbox.posted();
        if !mailbox.is_empty() {
            return true;
        }
        if self.impatient > 0 {
            return false;
        }
        loop {
            if mailbox.posted() != before {
                return true;
            }
            if self.clock.elapsed().saturating_sub(self.since) >= limit {
                self.impatient = BATCHES_WITHOUT_WAIT;
                return false;
            }
            std::thread::yield_now();
        }
    }
}
