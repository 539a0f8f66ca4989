//! The machine as the work of one message sees it.

use bursar_core::machine::{Machine, Preparation};
use bursar_core::time::Timestamp;
use bursar_journal::RecordTooLarge;

use crate::codec::{Codec, RecordOrigin};
use crate::error::EngineError;
use crate::writer::handle::{GroupDecision, Transaction, WorkMark};
use crate::writer::handoff::Load;
use crate::writer::session::{
    CommandOf, EnvelopeOf, MAX_DECISION_BYTES, MAX_DECISION_PARTS, RefusalOf, ReplyOf, Session,
    too_large,
};

/// The machine, for one message.
pub(super) struct OpenTransaction<'a, 'b, C: Codec> {
    pub(super) session: &'a mut Session<'b, C>,
    pub(super) load: &'a mut Load<C::Machine>,
    pub(super) now: Timestamp,
    pub(super) wrote: bool,
}

impl<C: Codec> Transaction<C::Machine> for OpenTransaction<'_, '_, C> {
    fn machine(&self) -> &C::Machine {
        // Ends the work: a state with a decision applied in part is never shown.
        assert!(!self.session.broken, "the state is being rebuilt");
        &self.session.machine
    }

    fn position(&self) -> u64 {
        self.session.position
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn execute(
        &mut self,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
    ) -> Result<Result<ReplyOf<C>, RefusalOf<C>>, EngineError> {
        let (answer, wrote) = self.session.decide(envelope, command, self.now, self.load)?;
        self.wrote |= wrote;
        Ok(answer)
    }

    fn rehearse(
        &self,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
    ) -> Result<Result<ReplyOf<C>, RefusalOf<C>>, EngineError> {
        let (mut events, mut body) = (Vec::new(), Vec::new());
        let answer = self.machine().decide(self.now, envelope, command, &mut events);
        let parts = events.iter().map(C::Machine::parts).sum();
        if parts > MAX_DECISION_PARTS {
            return Err(too_large(parts, None));
        }
        if !events.is_empty() {
            let origin = RecordOrigin::Command { envelope, command, accepted: answer.is_ok() };
            self.session.codec.encode(origin, &events, &mut body);
        }
        if body.len() > MAX_DECISION_BYTES {
            let record = RecordTooLarge { bytes: body.len(), most: MAX_DECISION_BYTES };
            return Err(too_large(parts, Some(record)));
        }
        Ok(answer)
    }

    fn prepare(&mut self, command: &CommandOf<C>) -> bool {
        // A state with a decision applied in part is not prepared: the work ends at its next read.
        self.session.broken || self.session.machine.prepare(self.now, command)
    }

    fn prepare_group(&mut self, items: &[(EnvelopeOf<C>, CommandOf<C>)]) -> Preparation {
        if self.session.broken {
            return Preparation::Finished;
        }
        self.session.machine.prepare_group(self.now, items)
    }

    fn execute_group(
        &mut self,
        items: &[(EnvelopeOf<C>, CommandOf<C>)],
    ) -> Result<GroupDecision<C::Machine>, EngineError> {
        let (answer, wrote) = self.session.decide_group(items, self.now, self.load)?;
        self.wrote |= wrote;
        Ok(answer)
    }

    fn written(&self) -> usize {
        self.load.records.bytes()
    }

    fn session(&self) -> u64 {
        self.session.number
    }

    fn mark(&self) -> WorkMark {
        let (records, session) = (self.load.records.mark(), &self.session);
        WorkMark { records, position: session.position, flushes: session.flushes }
    }

    fn abandon(&mut self, mark: WorkMark) -> EngineError {
        let error = self.session.panicked();
        if self.load.records.mark() == mark.records && self.session.flushes == mark.flushes {
            return error;
        }
        self.session.broken = true;
        if self.session.flushes != mark.flushes {
            // It was handed over in the middle, so it may be durable.
            return EngineError::OutcomeUnknown;
        }
        self.load.records.rewind(mark.records);
        self.session.position = mark.position;
        error
    }
}
