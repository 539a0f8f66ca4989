//! Timers of the machine: run when they are due, and the time that answers rely on.

use std::sync::atomic::Ordering;

use bursar_core::machine::{DuePart, Machine, Stuck, machine_time, next_due};
use bursar_core::time::Timestamp;
use bursar_journal::RecordKind;

use super::Session;
use crate::codec::{Codec, RecordOrigin};
use crate::writer::handoff::Load;
use crate::writer::strikes::{Key, MAX_STRIKES};
use crate::writer::turn_budget::TurnBudget;

impl<C: Codec> Session<'_, C> {
    /// Runs due steps that can wait, while no message and no answer waits.
    pub(super) fn run_postponable_steps(&mut self, now: Timestamp, load: &mut Load<C::Machine>) {
        let mut turn = TurnBudget::begin(load);
        while !self.broken
            && load.waiting.is_empty()
            && self.machine.next_patient_deadline().is_some_and(|deadline| deadline <= now)
            && self.mailbox.is_empty()
            && !turn.is_spent(0, false, load)
        {
            self.steps_left = 1;
            self.advance(now, load);
        }
    }

    /// Journals the time if answers are more than `ahead` milliseconds ahead of the last record. A
    /// restart then continues from there.
    pub(super) fn mark_time(&mut self, now: Timestamp, ahead: i64, load: &mut Load<C::Machine>) {
        let passed = now.millis_since(self.machine.now().max(self.since));
        if self.broken || passed <= 0 {
            return;
        }
        if self.clock.mark_after().is_none_or(|after| passed <= after.min(ahead)) {
            return;
        }
        load.records.push(RecordKind::Barrier, now, |_| {});
        self.position += 1;
        self.since = now;
    }

    /// Decides what an untrusted clock means, once, before anything happens by that clock.
    pub(super) fn doubt_clock(&mut self, load: &mut Load<C::Machine>) {
        if !std::mem::take(&mut self.doubted) {
            return;
        }
        let at = machine_time(&self.machine, self.since);
        let decided = self.write(load, RecordKind::Due, at, |machine, codec, events, body| {
            codec.doubt_clock(machine, events);
            codec.encode(RecordOrigin::Due, events, body);
        });
        self.broken |= decided.is_err();
    }

    /// Runs due timers, each at its own instant or after the barrier, each step as one record.
    /// Timers that can wait get only the steps that are left in this round. A step that fails is
    /// retried for its first timer alone. A timer that fails three times is set aside.
    pub(in crate::writer) fn advance(&mut self, now: Timestamp, load: &mut Load<C::Machine>) {
        while !self.broken
            && let Some((deadline, part)) = self.next_due(now)
        {
            let at = machine_time(&self.machine, deadline).max(self.since);
            let failed = self.strikes.of(Key::Due(deadline));
            let decided = self.write(load, RecordKind::Due, at, |machine, codec, events, body| {
                match failed {
                    0 if part == DuePart::Pressing => machine.decide_pressing_due(at, events),
                    0 => machine.decide_due(at, events),
                    1..MAX_STRIKES => machine.decide_one_due(at, events),
                    _ => machine.decide_set_aside(Stuck::Due, events),
                }
                assert!(!events.is_empty(), "a deadline without events would be due for ever");
                codec.encode(RecordOrigin::Due, events, body);
            });
            match decided {
                Ok(()) => {
                    self.strikes.clear(Key::Due(deadline));
                    if failed >= MAX_STRIKES {
                        self.appender.counters.set_aside.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(_) if failed >= MAX_STRIKES => self.hopeless = true,
                Err(_) => self.strikes.add(Key::Due(deadline)),
            }
            // A due timer cannot be skipped, so the machine cannot continue without it.
            self.broken |= self.hopeless;
            self.handled += 1;
            if load.records.bytes() >= self.batch_bytes {
                self.flush(load);
            }
        }
    }

    /// The next due step. A failed timer is retried alone once it is the first of all. Until then
    /// all timers before it run, whether they can wait or not.
    pub(super) fn next_due(&mut self, now: Timestamp) -> Option<(Timestamp, DuePart)> {
        let (deadline, part) = next_due(&self.machine, now, &mut self.steps_left)?;
        if part == DuePart::Pressing && self.strikes.of(Key::Due(deadline)) > 0 {
            return next_due(&self.machine, now, &mut 1);
        }
        Some((deadline, part))
    }
}
