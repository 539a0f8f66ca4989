//! How the writer waits for the next messages when it has written a batch itself.
//!
//! Those who were just answered tend to ask again at once. Two threads that put each other to sleep
//! and wake each other up spend more time on that than a fast disk takes to write; so the writer looks
//! a moment longer before it sleeps, and sleeps until as many have come as it answered.

use std::time::Duration;

use bursar_core::machine::Machine;

use crate::lease::{Monotonic, SystemMonotonic};
use crate::mailbox::Mailbox;

/// Which part of a write's time may be spent on waiting for more to write.
const PATIENCE: u32 = 4;
/// The longest time for which the writer looks instead of sleeping.
const LONGEST_LOOK: Duration = Duration::from_micros(60);
/// After waiting in vain, so many batches are written without waiting.
const IMPATIENT_BATCHES: u32 = 4;

/// What is known of the last batch.
pub(crate) struct Rhythm {
    clock: SystemMonotonic,
    /// Answers that were given and not waited for yet.
    answered: usize,
    write_time: Duration,
    impatient: u32,
}

impl Rhythm {
    pub(crate) fn new() -> Rhythm {
        let clock = SystemMonotonic::new();
        Rhythm { clock, answered: 0, write_time: Duration::ZERO, impatient: 0 }
    }

    /// Notes that the writer itself has just given so many answers.
    pub(crate) fn answered(&mut self, answers: usize, write_time: Duration) {
        (self.answered, self.write_time) = (answers, write_time);
    }

    /// Waits a moment for those who were just answered, if they tend to come back.
    pub(crate) fn linger<M: Machine>(&mut self, mailbox: &Mailbox<M>) {
        let answered = std::mem::take(&mut self.answered);
        if answered == 0 {
            return;
        }
        if self.impatient > 0 {
            self.impatient -= 1;
            return;
        }
        let came = if answered == 1 {
            self.look(mailbox)
        } else {
            mailbox.gather(answered, self.write_time / PATIENCE)
        };
        if !came {
            self.impatient = IMPATIENT_BATCHES;
        }
    }

    /// Looks for a message without sleeping, but lets others run.
    fn look<M: Machine>(&self, mailbox: &Mailbox<M>) -> bool {
        let limit = (self.write_time / 2).min(LONGEST_LOOK);
        let (before, begun) = (mailbox.posted(), self.clock.elapsed());
        if !mailbox.is_empty() {
            return true;
        }
        loop {
            if mailbox.posted() != before {
                return true;
            }
            if self.clock.elapsed().saturating_sub(begun) >= limit {
                return false;
            }
            std::thread::yield_now();
        }
    }
}
