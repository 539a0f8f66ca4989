//! How decided records are handed to the appender or written at once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar_core::time::Timestamp;
use bursar_journal::{AppendError, RecordKind};
use bursar_seeded::{Bug, seeded};

use super::{EventOf, MAX_DECISION_BYTES, MAX_DECISION_PARTS, Session, too_large};
use crate::codec::Codec;
use crate::error::EngineError;
use crate::writer::handoff::Load;

impl<C: Codec> Session<'_, C> {
    /// Writes the load on this thread if there is nothing else to decide meanwhile. Otherwise hands
    /// it to the appender.
    pub(super) fn hand_over(&mut self, load: Load<C::Machine>) {
        let alone = load.records.records() > 0 && self.mailbox.is_empty();
        let load =
            if alone { self.appender.append_here(load, &mut self.pacer) } else { Some(load) };
        let Some(load) = load else { return };
        // A load that is rejected answers its requests with the failure. The next round ends.
        if let Ok(Some(unsent)) = self.handoff.offer(load, self.batch_bytes) {
            let owner = self.trust.holds();
            unsent.waiting.into_iter().for_each(|waiting| waiting.release(owner));
        }
    }

    /// Why nothing more may be decided: an append failed, or trust ended and the lease could not be
    /// renewed.
    pub(super) fn failure(&self) -> Option<AppendError> {
        let over = || {
            let epoch = self.trust.lease().epoch;
            let holds = self.trust.holds_or_renews(self.journal) || seeded(Bug::ReadsWithoutLease);
            (!holds).then_some(AppendError::Fenced { epoch })
        };
        self.handoff.failure().or_else(over)
    }

    /// Hands over the load in the middle of a message, so that memory and records stay bounded.
    pub(super) fn flush(&mut self, load: &mut Load<C::Machine>) {
        let full = std::mem::replace(load, Load::empty());
        // A load that is rejected answers its requests with the failure. The next round ends.
        if let Ok(Some(unsent)) = self.handoff.offer(full, self.batch_bytes) {
            let owner = self.trust.holds();
            unsent.waiting.into_iter().for_each(|waiting| waiting.release(owner));
        }
        *load = self.handoff.take_back();
        self.flushes += 1;
    }

    /// Decides, writes one record and applies it. If it fails before anything was applied, the
    /// state is unchanged. If applying fails, the state is no longer trusted.
    ///
    /// `decide` leaves its events and, if there are any, their body.
    pub(in crate::writer) fn write<T>(
        &mut self,
        load: &mut Load<C::Machine>,
        kind: RecordKind,
        at: Timestamp,
        decide: impl FnOnce(&C::Machine, &C, &mut Vec<EventOf<C>>, &mut Vec<u8>) -> T,
    ) -> Result<T, EngineError> {
        let mark = load.records.mark();
        let (machine, codec, events) = (&self.machine, self.codec, &mut self.events);
        events.clear();
        let records = &mut load.records;
        let decided = catch_unwind(AssertUnwindSafe(|| {
            let mut answer = None;
            let pushed = records.try_push(kind, at, MAX_DECISION_BYTES, |body| {
                answer = Some(decide(machine, codec, events, body));
            });
            (answer, pushed)
        }));
        let answer = match decided {
            Ok((Some(answer), Ok(()))) if self.parts() <= MAX_DECISION_PARTS => answer,
            Ok((_, pushed)) => {
                load.records.rewind(mark);
                return Err(too_large(self.parts(), pushed.err()));
            }
            Err(_) => {
                load.records.rewind(mark);
                return Err(self.panicked());
            }
        };
        if self.events.is_empty() {
            load.records.rewind(mark);
            return Ok(answer);
        }
        self.apply(at).inspect_err(|_| load.records.rewind(mark))?;
        self.position += 1;
        Ok(answer)
    }
}
