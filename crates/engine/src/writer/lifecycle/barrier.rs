//! The first record of a writer. Until it is durable, nothing but reads is answered.

use std::time::Duration;

use bursar_core::machine::{Machine, machine_time};
use bursar_core::time::Timestamp;
use bursar_journal::{AppendError, Batch, Head};
use bursar_seeded::{Bug, seeded};

use super::{Next, Writer, after_journal_error, last_time};
use crate::codec::Codec;
use crate::error::EngineError;
use crate::lease::{LeaseTrust, Monotonic, SystemMonotonic};
use crate::replay::Replayed;
use crate::writer::handle::{Message, View};
use crate::writer::handoff::PendingAnswer;
use crate::writer::options::Status;

/// The record after which all records are written by this owner.
pub(super) struct Barrier {
    pub(super) head: Head,
    /// Its time.
    pub(super) since: Timestamp,
    /// Whether the clock is too far ahead of the record before it to be trusted.
    pub(super) doubted: bool,
}

impl<C: Codec> Writer<C> {
    /// Appends the barrier and returns its time. On a full disk it answers reads until there is
    /// space.
    pub(super) fn barrier(
        &self,
        replayed: &Replayed<C::Machine>,
        trust: &LeaseTrust,
    ) -> Result<Barrier, Next> {
        let last = match last_time(&*self.journal, replayed.head) {
            Ok(last) => last,
            Err(error) => return Err(after_journal_error(&error)),
        };
        let max_gap = i64::try_from(self.options.max_gap.as_millis()).unwrap_or(i64::MAX);
        let gap = self.clock.now().millis_since(last.max(replayed.machine.now()));
        let doubted = replayed.head.sequence > 0 && gap > max_gap;
        self.clock.at_least(last);
        loop {
            let now = machine_time(&replayed.machine, self.clock.now());
            // Timers that were due while no server ran are journaled after this record, at their
            // own instant.
            let due = replayed.machine.next_deadline().map_or(now, |deadline| deadline.min(now));
            let at = machine_time(&replayed.machine, due).max(last);
            if seeded(Bug::SkipsBarrier) {
                return Ok(Barrier { head: replayed.head, since: at, doubted });
            }
            match self.journal.append(trust.lease().epoch, replayed.head, Batch::barrier(at)) {
                Ok(head) => return Ok(Barrier { head, since: at, doubted }),
                Err(AppendError::Full(_)) => self.show(Status::ReadOnly),
                Err(AppendError::Corrupt(error)) => return Err(Next::Stop(error.to_string())),
                Err(error @ (AppendError::Fenced { .. } | AppendError::Unknown(_))) => {
                    return Err(Next::Later(error.to_string()));
                }
            }
            if self.answer_reads_for_a_while(replayed, at, trust) {
                return Err(Next::Stop("asked to".into()));
            }
            if trust.has_ended() {
                return Err(Next::Again);
            }
        }
    }

    /// Answers reads from the durable state and refuses everything else. Returns true if asked to
    /// stop.
    fn answer_reads_for_a_while(
        &self,
        replayed: &Replayed<C::Machine>,
        at: Timestamp,
        trust: &LeaseTrust,
    ) -> bool {
        self.each_message_for_a_while(self.options.retry, |message| match message {
            Message::Query(query) => {
                let position = replayed.head.position;
                let panics = &self.counters.panics;
                let view = View { machine: &replayed.machine, position, at, panics };
                let read = |release| PendingAnswer::<C::Machine>::Read { release, wrote: false };
                let waiting = query(Ok(view)).map(read);
                waiting.into_iter().for_each(|waiting| waiting.release(trust.holds()));
            }
            other @ (Message::Command { .. }
            | Message::Group { .. }
            | Message::Work(_)
            | Message::Turns(_)
            | Message::Wake
            | Message::Stop) => other.reject(&EngineError::StorageFull),
        })
    }

    /// Refuses everything. Returns true if asked to stop.
    pub(super) fn refuse_for_a_while(&self, error: &EngineError, pause: Duration) -> bool {
        self.each_message_for_a_while(pause, |message| message.reject(error))
    }

    /// Handles messages for that time. Returns true if asked to stop.
    fn each_message_for_a_while(
        &self,
        time: Duration,
        mut handle: impl FnMut(Message<C::Machine>),
    ) -> bool {
        let pause = SystemMonotonic::new();
        loop {
            let left = time.saturating_sub(pause.elapsed());
            if left.is_zero() {
                return false;
            }
            match self.mailbox.next(Some(left)) {
                Some(Message::Stop) => return true,
                Some(message) => handle(message),
                None => return false,
            }
        }
    }
}
