//! How long the writer waits for more before it writes a batch itself.
//!
//! Those who were just answered tend to ask again at once. Two threads that put each other to sleep
//! and wake each other up spend more time on that than a fast disk takes to write; so the writer looks
//! a moment longer before it sleeps, and decides as many as it answered before it writes.

use std::time::Duration;

use bursar_core::machine::Machine;

use crate::lease::{Monotonic, SystemMonotonic};
use crate::writer::mailbox::Mailbox;

/// Which part of a write's time may be spent on waiting for more to write.
const PATIENCE: u32 = 4;
/// A load that took as long to decide as so many writes is handed over although more could be added:
/// in a crowd this large, deciding is what everybody waits for.
const WRITES: u32 = 2;
/// The longest time for which the writer looks instead of sleeping.
const LONGEST_LOOK: Duration = Duration::from_micros(60);
/// After waiting in vain, so many batches are written without waiting.
const IMPATIENT_BATCHES: u32 = 4;

/// What is known of the last batch.
pub(crate) struct Rhythm {
    clock: SystemMonotonic,
    /// Answers that the writer itself gave at last.
    answered: usize,
    /// When it had given them.
    since: Duration,
    write_time: Duration,
    impatient: u32,
    /// When deciding began for what is not handed over yet.
    begun: Duration,
}

impl Rhythm {
    pub(crate) fn new() -> Rhythm {
        let clock = SystemMonotonic::new();
        let (since, write_time) = (Duration::ZERO, Duration::ZERO);
        let begun = Duration::ZERO;
        Rhythm { clock, answered: 0, since, write_time, impatient: 0, begun }
    }

    /// Notes that deciding for a new load begins.
    pub(crate) fn begin(&mut self) {
        self.begun = self.clock.elapsed();
    }

    /// Whether deciding took so much longer than a write that what is decided is better written by
    /// another thread, while more is decided, than together with more.
    pub(crate) fn is_long(&self, write_time: Duration) -> bool {
        self.clock.elapsed().saturating_sub(self.begun) > write_time * WRITES
    }

    /// Notes that the writer itself has just given so many answers.
    pub(crate) fn answered(&mut self, answers: usize, write_time: Duration) {
        (self.answered, self.write_time) = (answers, write_time);
        self.since = self.clock.elapsed();
        self.impatient = self.impatient.saturating_sub(1);
    }

    /// Looks for the next message before the writer sleeps.
    pub(crate) fn linger<M: Machine>(&mut self, mailbox: &Mailbox<M>) {
        if self.answered > 0 {
            let limit = (self.write_time / 2).min(LONGEST_LOOK);
            self.look(mailbox, limit);
        }
    }

    /// Waits for another message if fewer are decided than were answered before. Says whether there
    /// is one.
    pub(crate) fn more<M: Machine>(&mut self, mailbox: &Mailbox<M>, decided: usize) -> bool {
        decided < self.answered && self.look(mailbox, self.write_time / PATIENCE)
    }

    /// Looks for a message without sleeping, but lets others run.
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
                self.impatient = IMPATIENT_BATCHES;
                return false;
            }
            std::thread::yield_now();
        }
    }
}
