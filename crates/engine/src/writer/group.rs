//! Groups: several commands that are decided completely or not at all, in one record.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_journal::{RecordKind, RecordTooLarge};
use bursar_seeded::{Bug, seeded};

use crate::codec::{Codec, RecordOrigin};
use crate::error::EngineError;
use crate::replay::write_group_item;
use crate::writer::handle::Aborted;
use crate::writer::handoff::Load;
use crate::writer::session::{
    CommandOf, EnvelopeOf, MAX_DECISION_BYTES, MAX_DECISION_PARTS, RefusalOf, ReplyOf, Session,
    rebuilding, too_large, unprepared,
};

impl<C: Codec> Session<'_, C> {
    /// Decides item by item on the live state, and rolls all of them back if one is refused.
    #[expect(clippy::type_complexity, reason = "the machine's own answers, and whether it wrote")]
    pub(super) fn decide_group(
        &mut self,
        items: &[(EnvelopeOf<C>, CommandOf<C>)],
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) -> Result<(Result<Vec<ReplyOf<C>>, Aborted<RefusalOf<C>>>, bool), EngineError> {
        self.advance(now, load);
        if self.broken {
            return Err(rebuilding());
        }
        let mut replies = Vec::with_capacity(items.len());
        let (mut body, mut count) = (Vec::new(), 0);
        self.machine.begin_group();
        for (index, (envelope, command)) in items.iter().enumerate() {
            let decided = self.decide_item(envelope, command, now, &mut body);
            count += self.parts();
            let large = body.len() > MAX_DECISION_BYTES || count > MAX_DECISION_PARTS;
            match decided {
                Ok(Ok(reply)) if !large => replies.push(reply),
                Ok(Err(refusal)) => {
                    self.rollback()?;
                    return Ok((Err(Aborted { index, refusal }), false));
                }
                Ok(Ok(_)) => {
                    self.rollback()?;
                    let bytes = RecordTooLarge { bytes: body.len(), most: MAX_DECISION_BYTES };
                    return Err(too_large(count, Some(bytes)));
                }
                Err(error) => {
                    self.rollback()?;
                    return Err(error);
                }
            }
        }
        self.machine.commit_group();
        let wrote = !body.is_empty();
        if wrote {
            load.records.push(RecordKind::Group, now, |out| out.append(&mut body));
            self.position += 1;
        }
        Ok((Ok(replies), wrote))
    }

    /// Decides and applies one item of a group, and writes it after the others.
    fn decide_item(
        &mut self,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
        now: Timestamp,
        body: &mut Vec<u8>,
    ) -> Result<Result<ReplyOf<C>, RefusalOf<C>>, EngineError> {
        let (machine, codec, events) = (&mut self.machine, self.codec, &mut self.events);
        events.clear();
        let decided = catch_unwind(AssertUnwindSafe(|| {
            // Missing preparation is not done here, where all other messages wait.
            if !machine.prepare(now, command) {
                return None;
            }
            let answer = machine.decide(now, envelope, command, events);
            if answer.is_ok() && !events.is_empty() {
                let origin = RecordOrigin::Command { envelope, command, accepted: true };
                write_group_item(body, |out| codec.encode(origin, events, out));
            }
            Some(answer)
        }));
        let Ok(answer) = decided else { return Err(self.panicked()) };
        let Some(answer) = answer else { return Err(unprepared()) };
        // A refused item is not applied: the whole group is rolled back.
        if answer.is_ok() {
            self.apply(now)?;
        }
        Ok(answer)
    }

    /// Rolls a group back. If applying failed in part, the rollback may fail too: the state is
    /// rebuilt.
    fn rollback(&mut self) -> Result<(), EngineError> {
        let machine = &mut self.machine;
        if seeded(Bug::KeepsHalfOfGroup) {
            machine.commit_group();
            return Ok(());
        }
        let undone = catch_unwind(AssertUnwindSafe(|| machine.rollback_group()));
        undone.map_err(|_| {
            self.broken = true;
            self.panicked()
        })
    }
}
