//! The deciding thread while it owns the journal: from the barrier to the first failure.
//!
//! A panic fails the request that caused it. Deciding only reads, so the state is unchanged. A
//! panic in `apply` leaves a decision applied in part, and then nothing is served before the state
//! is rebuilt from the journal.

mod timers;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bursar_core::machine::{Machine, Stuck, machine_time};
use bursar_core::time::Timestamp;
use bursar_journal::{AppendError, Journal, RecordKind, RecordTooLarge};
use bursar_seeded::{Bug, seeded};

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
const CHUNK_MESSAGES: usize = 256;

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
            if stopped && seeded(Bug::StopsWithoutFlush) {
                load.waiting.into_iter().for_each(|waiting| waiting.release(true));
                return End::Stopped;
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

    /// The machine's time. Never earlier than the last record.
    fn now(&self) -> Timestamp {
        machine_time(&self.machine, self.clock.now()).max(self.since)
    }

    /// The next message. `None` when a timer is due.
    fn wait(&mut self) -> Option<Message<C::Machine>> {
        self.pacer.poll_before_sleep(self.mailbox);
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
            if handled == CHUNK_MESSAGES || load.records.bytes() >= self.batch_bytes {
                break;
            }
            next = self.mailbox.try_next();
        }
        if handled > 0 {
            self.appender.counters.turn(turn.clock.elapsed());
        }
        // Timers made due by the messages belong to the same durable write.
        self.advance(now, load);
        self.run_postponable_steps(now, load);
        if self.answered {
            self.mark_time(now, i64::MAX, load);
        }
        false
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
