//! The deciding thread while it owns the journal: from the barrier to the first failure.
//!
//! A panic fails the request that caused it. Deciding only reads, so the state is unchanged. A
//! panic in `apply` leaves a decision applied in part, and then nothing is served before the state
//! is rebuilt from the journal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bursar_core::machine::{DuePart, Machine, Stuck, machine_time, next_due};
use bursar_core::time::Timestamp;
use bursar_journal::{AppendError, Journal, RecordKind, RecordTooLarge};

use crate::clock::Clock;
use crate::codec::{Codec, RecordOrigin};
use crate::error::EngineError;
use crate::lease::{LeaseTrust, Monotonic};
use crate::writer::appender::Appender;
use crate::writer::handle::{Message, Seen, Turn, Turns, View};
use crate::writer::handoff::{Handoff, Load, PendingAnswer};
use crate::writer::mailbox::Mailbox;
use crate::writer::pacing::BatchPacer;
use crate::writer::strikes::{Key, MAX_STRIKES, Strikes};
use crate::writer::transaction::OpenTransaction;
use crate::writer::turn_budget::TurnBudget;

type EventOf<C> = <<C as Codec>::Machine as Machine>::Event;
pub(super) type EnvelopeOf<C> = <<C as Codec>::Machine as Machine>::Envelope;
pub(super) type CommandOf<C> = <<C as Codec>::Machine as Machine>::Command;
pub(super) type ReplyOf<C> = <<C as Codec>::Machine as Machine>::Reply;
pub(super) type RefusalOf<C> = <<C as Codec>::Machine as Machine>::Refusal;

/// Messages decided before the load is offered to the appender.
const CHUNK: usize = 256;

/// Due steps that can wait, in one round of messages. Messages wait for no more of them.
const MAX_POSTPONABLE_STEPS: usize = 8;
/// The largest record of one decision, one group or one due step. A quarter of the largest record
/// that can be read.
pub(crate) const MAX_DECISION_BYTES: usize = 16 << 20;
/// The most parts of one decision: events, and the pieces of credits in them. A hold drawn from as
/// many pieces takes a fraction of a second.
pub(crate) const MAX_DECISION_PARTS: usize = 100_000;

/// Why a session ended.
pub(crate) enum End {
    /// A stop was requested. All decisions were handed over.
    Stopped,
    /// The state can no longer be trusted.
    Failed(AppendError),
    /// A panic left a decision applied in part. The state must be rebuilt.
    Broken,
    /// A due timer can neither run nor be set aside.
    TimerPanics,
}

pub(crate) struct Session<'a, C: Codec> {
    pub(crate) codec: &'a C,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) mailbox: &'a Mailbox<C::Machine>,
    pub(crate) handoff: Arc<Handoff<C::Machine>>,
    pub(crate) appender: Arc<Appender<C::Machine>>,
    pub(crate) pacer: BatchPacer,
    pub(crate) trust: Arc<LeaseTrust>,
    pub(crate) journal: &'a dyn Journal,
    pub(crate) machine: C::Machine,
    /// The last record that was applied.
    pub(crate) position: u64,
    /// Whether the clock is too far ahead to be trusted, and this is not handled yet.
    pub(crate) doubted: bool,
    /// The time of the barrier. Nothing is journaled or answered as of an earlier instant.
    pub(crate) since: Timestamp,
    pub(crate) batch_bytes: usize,
    pub(crate) events: Vec<<C::Machine as Machine>::Event>,
    /// Failures of timers and messages that are retried. Outlives the session.
    pub(crate) strikes: &'a Strikes,
    /// A decision is applied in part. Nothing may be served from this state.
    pub(crate) broken: bool,
    /// A due timer can neither run nor be set aside.
    pub(crate) hopeless: bool,
    /// Messages and steps that were handled.
    pub(crate) handled: u64,
    /// Due steps that can wait and are left in this round.
    pub(crate) steps_left: usize,
    /// Loads that were handed over in the middle of a message.
    pub(crate) flushes: u64,
    /// How often the state was rebuilt before.
    pub(crate) number: u64,
    /// Whether this round sends answers as of its instant.
    pub(crate) answered: bool,
}

impl<C: Codec> Session<'_, C> {
    /// Decides until asked to stop or until something fails.
    pub(crate) fn run(&mut self) -> End {
        loop {
            // An append that failed on this thread woke no thread, so the failure is checked here.
            if let Some(failure) = self.handoff.failure() {
                return End::Failed(failure);
            }
            let first = self.wait();
            if let Some(failure) = self.failure() {
                // Not decided, so not lost: the next session answers it.
                if let Some(message) = first {
                    self.mailbox.put_back(message);
                }
                return End::Failed(failure);
            }
            let mut load = self.handoff.take_back();
            if load.is_empty() {
                self.pacer.begin();
            }
            let mut stopped = self.handle_all(first, &mut load);
            while !stopped
                && !self.broken
                && load.records.bytes() < self.batch_bytes
                && !self.pacer.is_long(self.appender.write_time())
                && self.pacer.more(self.mailbox, load.waiting.len())
            {
                let next = self.mailbox.try_next();
                stopped = self.handle_all(next, &mut load);
            }
            self.hand_over(load);
            if self.broken {
                return if self.hopeless { End::TimerPanics } else { End::Broken };
            }
            if stopped {
                return End::Stopped;
            }
        }
    }

    /// Writes the load on this thread if there is nothing else to decide meanwhile. Otherwise hands
    /// it to the appender.
    fn hand_over(&mut self, load: Load<C::Machine>) {
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
    fn failure(&self) -> Option<AppendError> {
        let over = || {
            let epoch = self.trust.lease().epoch;
            let holds = self.trust.holds_or_renews(self.journal);
            (!holds).then_some(AppendError::Fenced { epoch })
        };
        self.handoff.failure().or_else(over)
    }

    /// The machine's time. Never earlier than the last record.
    fn now(&self) -> Timestamp {
        machine_time(&self.machine, self.clock.now()).max(self.since)
    }

    /// The next message. `None` when a timer is due.
    fn wait(&mut self) -> Option<Message<C::Machine>> {
        self.pacer.linger(self.mailbox);
        let sleep = self.machine.next_deadline().and_then(|deadline| {
            // The machine's time may be ahead of a clock that was set back. Timers that are due by
            // the machine's time do not wait for the clock.
            let due = deadline <= self.now();
            if due { Some(Duration::ZERO) } else { self.clock.until(deadline) }
        });
        self.mailbox.next(sleep)
    }

    /// Handles `first` and the other waiting messages at one instant. Returns true if asked to
    /// stop.
    fn handle_all(
        &mut self,
        first: Option<Message<C::Machine>>,
        load: &mut Load<C::Machine>,
    ) -> bool {
        let now = self.now();
        self.doubt_clock(load);
        self.answered = false;
        self.steps_left = MAX_POSTPONABLE_STEPS;
        self.advance(now, load);
        let mut next = first;
        let mut handled = 0;
        let mut turn = TurnBudget::begin(load);
        while let Some(message) = next {
            if self.broken {
                // Not decided, so not lost: it is handled when the state is rebuilt.
                self.mailbox.put_back(message);
                return false;
            }
            if matches!(message, Message::Stop) {
                self.mark_time(now, 0, load);
                return true;
            }
            let is_plain = matches!(message, Message::Command { .. });
            self.handle(message, now, load);
            handled += 1;
            self.handled += 1;
            // Checked before the next message is taken: a taken message must be handled. After a turn
            // the answers are not held back for the messages of the next one.
            if turn.is_spent(handled, is_plain, load) {
                self.mailbox.give_back();
                break;
            }
            if handled == CHUNK || load.records.bytes() >= self.batch_bytes {
                break;
            }
            next = self.mailbox.try_next();
        }
        if handled > 0 {
            self.appender.counters.turn(turn.clock.elapsed());
        }
        // Timers made due by the messages belong to the same durable write.
        self.advance(now, load);
        self.use_quiet(now, load);
        if self.answered {
            self.mark_time(now, i64::MAX, load);
        }
        false
    }

    /// Runs due steps that can wait, while no message and no answer waits.
    fn use_quiet(&mut self, now: Timestamp, load: &mut Load<C::Machine>) {
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
    fn mark_time(&mut self, now: Timestamp, ahead: i64, load: &mut Load<C::Machine>) {
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

    fn handle(
        &mut self,
        message: Message<C::Machine>,
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) {
        match message {
            Message::Command { envelope, command, respond } => {
                match self.decide(&envelope, &command, now, load) {
                    Ok((value, wrote)) => {
                        self.answered = true;
                        let answer = Ok(Seen { value, position: self.position, at: now });
                        load.waiting.push(PendingAnswer::Command { respond, answer, wrote });
                    }
                    Err(error) => {
                        self.strike_message(&envelope, &command, &error, now, load);
                        let (answer, wrote) = (Err(error), false);
                        load.waiting.push(PendingAnswer::Command { respond, answer, wrote });
                    }
                }
            }
            Message::Group { items, respond } => {
                let (answer, wrote) = match self.decide_group(&items, now, load) {
                    Ok((value, wrote)) => {
                        self.answered = true;
                        (Ok(Seen { value, position: self.position, at: now }), wrote)
                    }
                    Err(error) => (Err(error), false),
                };
                load.waiting.push(PendingAnswer::Group { respond, answer, wrote });
            }
            Message::Query(query) => {
                self.advance(now, load);
                let (machine, position) = (&self.machine, self.position);
                let panics = &self.appender.counters.panics;
                let view = View { machine, position, at: now, panics };
                let view = if self.broken { Err(rebuilding()) } else { Ok(view) };
                let read = |release| PendingAnswer::Read { release, wrote: false };
                let waiting = query(view).map(read);
                self.answered |= waiting.is_some();
                load.waiting.extend(waiting);
            }
            Message::Work(work) => {
                self.advance(now, load);
                if self.broken {
                    let none = work(Err(rebuilding()));
                    debug_assert!(none.is_none(), "without a machine there is nothing to wait for");
                    return;
                }
                let mut open =
                    OpenTransaction { session: self, load: &mut *load, now, wrote: false };
                let release = work(Ok(&mut open));
                let wrote = open.wrote;
                self.answered |= release.is_some();
                load.waiting.extend(release.map(|release| PendingAnswer::Read { release, wrote }));
            }
            Message::Turns(turns) => self.take_turn(turns, now, load),
            Message::Wake | Message::Stop => {}
        }
    }

    /// Gives a long message one turn, and queues it again if it needs another one.
    fn take_turn(
        &mut self,
        mut turns: Turns<C::Machine>,
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) {
        self.advance(now, load);
        if self.broken {
            let _ = turns(Err(rebuilding()));
            return;
        }
        let mut open = OpenTransaction { session: self, load: &mut *load, now, wrote: false };
        match turns(Ok(&mut open)) {
            Turn::Again => self.mailbox.put_behind(Message::Turns(turns)),
            // Earlier turns may have written, so after a lost lease the answer must not be treated
            // as a read.
            Turn::Done(release) => {
                let wrote = true;
                self.answered |= release.is_some();
                load.waiting.extend(release.map(|release| PendingAnswer::Read { release, wrote }));
            }
        }
    }

    /// Decides what an untrusted clock means, once, before anything happens by that clock.
    fn doubt_clock(&mut self, load: &mut Load<C::Machine>) {
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
    pub(super) fn advance(&mut self, now: Timestamp, load: &mut Load<C::Machine>) {
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
    fn next_due(&mut self, now: Timestamp) -> Option<(Timestamp, DuePart)> {
        let (deadline, part) = next_due(&self.machine, now, &mut self.steps_left)?;
        if part == DuePart::Pressing && self.strikes.of(Key::Due(deadline)) > 0 {
            return next_due(&self.machine, now, &mut 1);
        }
        Some((deadline, part))
    }

    /// Hands over the load in the middle of a message, so that memory and records stay bounded.
    fn flush(&mut self, load: &mut Load<C::Machine>) {
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
    pub(super) fn write<T>(
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

    /// Applies the events of one decision. If that fails nothing may be served before the state is
    /// rebuilt.
    pub(super) fn apply(&mut self, at: Timestamp) -> Result<(), EngineError> {
        let (machine, events) = (&mut self.machine, &self.events);
        let applied = catch_unwind(AssertUnwindSafe(|| {
            events.iter().for_each(|event| machine.apply(at, event));
        }));
        applied.map_err(|_| {
            self.broken = true;
            self.panicked()
        })
    }

    /// The number of parts of the events of one decision.
    pub(super) fn parts(&self) -> usize {
        self.events.iter().map(C::Machine::parts).sum()
    }

    pub(super) fn panicked(&self) -> EngineError {
        self.appender.counters.panics.fetch_add(1, Ordering::Relaxed);
        EngineError::Internal
    }

    /// Counts the failures of a message that is redelivered until it is accepted, and sets it aside
    /// after three.
    fn strike_message(
        &mut self,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
        error: &EngineError,
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) {
        let failed = matches!(error, EngineError::Internal | EngineError::TooLarge(_));
        let Some((sender, number)) = C::Machine::message_name(envelope, command).filter(|_| failed)
        else {
            return;
        };
        let key = Key::Message { sender, number };
        self.strikes.add(key);
        if self.broken || self.strikes.of(key) < MAX_STRIKES {
            return;
        }
        let aside = self.write(load, RecordKind::Decision, now, |machine, codec, events, body| {
            machine.decide_set_aside(Stuck::Message(envelope, command), events);
            let origin = RecordOrigin::Command { envelope, command, accepted: true };
            codec.encode(origin, events, body);
        });
        if aside.is_ok() && !self.events.is_empty() {
            self.appender.counters.set_aside.fetch_add(1, Ordering::Relaxed);
            self.strikes.clear(key);
        }
    }

    #[expect(clippy::type_complexity, reason = "the machine's own answer, and whether it wrote")]
    pub(super) fn decide(
        &mut self,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) -> Result<(Result<ReplyOf<C>, RefusalOf<C>>, bool), EngineError> {
        self.advance(now, load);
        if self.broken {
            return Err(rebuilding());
        }
        let answer =
            self.write(load, RecordKind::Decision, now, |machine, codec, events, body| {
                let answer = machine.decide(now, envelope, command, events);
                if !events.is_empty() {
                    let accepted = answer.is_ok();
                    let origin = RecordOrigin::Command { envelope, command, accepted };
                    codec.encode(origin, events, body);
                }
                answer
            })?;
        Ok((answer, !self.events.is_empty()))
    }
}

/// The answer to messages that arrive while nothing can be served.
pub(super) fn rebuilding() -> EngineError {
    EngineError::Unavailable("the state is being rebuilt".into())
}

/// The answer to a group whose preparation exceeds what one decision may do.
pub(super) fn unprepared() -> EngineError {
    EngineError::Unavailable("what this needs to know is being counted".into())
}

/// Names the limit that a decision exceeds.
pub(super) fn too_large(parts: usize, record: Option<RecordTooLarge>) -> EngineError {
    let size = match record {
        Some(RecordTooLarge { bytes, most }) if bytes > most => {
            format!("{bytes} bytes, at most {most} are allowed")
        }
        _ => format!(
            "{parts} events and pieces of credits, at most {MAX_DECISION_PARTS} are allowed"
        ),
    };
    EngineError::TooLarge(format!(
        "this would write {size} in one step; ask for less at once, or in several requests"
    ))
}
