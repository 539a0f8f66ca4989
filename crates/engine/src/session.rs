//! The deciding thread while it owns the journal: from the barrier to the first failure.

use std::sync::Arc;
use std::time::Duration;

use bursar_core::machine::{Machine, advance, execute, machine_time};
use bursar_core::time::Timestamp;
use bursar_journal::{AppendError, RecordKind};

use crate::appender::Appender;
use crate::clock::Clock;
use crate::codec::{Codec, Origin};
use crate::handle::{Aborted, Attended, Message, Seen, View};
use crate::handoff::{Handoff, Load, Waiting};
use crate::lease::LeaseTrust;
use crate::mailbox::Mailbox;
use crate::replay::write_group_item;
use crate::rhythm::Rhythm;

/// Messages decided before the appender gets a chance to take what there is.
const CHUNK: usize = 256;
/// Messages that the machine looks at together before the first of them is decided.
const AHEAD: usize = 16;

/// Why a session ended.
pub(crate) enum End {
    /// Somebody asked for it; everything decided was handed over.
    Stopped,
    /// The state can no longer be believed.
    Failed(AppendError),
}

pub(crate) struct Session<'a, C: Codec> {
    pub(crate) codec: &'a C,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) mailbox: &'a Mailbox<C::Machine>,
    pub(crate) handoff: Arc<Handoff<C::Machine>>,
    pub(crate) appender: Arc<Appender<C::Machine>>,
    pub(crate) rhythm: Rhythm,
    pub(crate) trust: Arc<LeaseTrust>,
    pub(crate) machine: C::Machine,
    /// The last record that was applied.
    pub(crate) position: u64,
    pub(crate) batch_bytes: usize,
    pub(crate) events: Vec<<C::Machine as Machine>::Event>,
}

impl<C: Codec> Session<'_, C> {
    /// Decides until told to stop or until something fails.
    pub(crate) fn run(&mut self) -> End {
        loop {
            // One that failed on this thread woke nobody up.
            if let Some(failure) = self.handoff.failure() {
                return End::Failed(failure);
            }
            let first = self.wait();
            if let Some(failure) = self.failure() {
                // Not decided, so not lost: whoever comes next answers it.
                if let Some(message) = first {
                    self.mailbox.put_back(message);
                }
                return End::Failed(failure);
            }
            let mut load = self.handoff.take_back();
            if load.is_empty() {
                self.rhythm.begin();
            }
            let mut stopped = self.handle_all(first, &mut load);
            while !stopped
                && load.records.bytes() < self.batch_bytes
                && !self.rhythm.is_long(self.appender.write_time())
                && self.rhythm.more(self.mailbox, load.waiting.len())
            {
                let next = self.mailbox.try_next();
                stopped = self.handle_all(next, &mut load);
            }
            self.hand_over(load);
            if stopped {
                return End::Stopped;
            }
        }
    }

    /// Has the load written: here and now if there is nothing else to decide meanwhile, by the appender
    /// otherwise.
    fn hand_over(&mut self, load: Load<C::Machine>) {
        let alone = load.records.records() > 0 && self.mailbox.is_empty();
        let load =
            if alone { self.appender.append_here(load, &mut self.rhythm) } else { Some(load) };
        let Some(load) = load else { return };
        // A load that is rejected for a failure says so by itself; the next round ends.
        if let Ok(Some(unsent)) = self.handoff.offer(load, self.batch_bytes) {
            let owner = self.trust.holds();
            unsent.waiting.into_iter().for_each(|waiting| waiting.release(owner));
        }
    }

    fn failure(&self) -> Option<AppendError> {
        let lost = || {
            let epoch = self.trust.lease().epoch;
            self.trust.is_lost().then_some(AppendError::Fenced { epoch })
        };
        self.handoff.failure().or_else(lost)
    }

    /// The next message, or nothing when something is due.
    fn wait(&mut self) -> Option<Message<C::Machine>> {
        self.rhythm.linger(self.mailbox);
        let sleep = self.machine.next_deadline().and_then(|deadline| {
            // The machine's own time may be ahead of a clock that was set back: what is due by it
            // does not wait for the clock.
            let due = deadline <= machine_time(&self.machine, self.clock.now());
            if due { Some(Duration::ZERO) } else { self.clock.until(deadline) }
        });
        self.mailbox.next(sleep)
    }

    /// Handles `first` and what else is there, at one instant; true if told to stop.
    fn handle_all(
        &mut self,
        first: Option<Message<C::Machine>>,
        load: &mut Load<C::Machine>,
    ) -> bool {
        let now = machine_time(&self.machine, self.clock.now());
        self.advance(now, load);
        let mut next = first;
        let (mut handled, mut foreseen) = (0, 0);
        while let Some(message) = next {
            if matches!(message, Message::Stop) {
                return true;
            }
            if handled == foreseen {
                foreseen += self.foresee(&message);
            }
            self.handle(message, now, load);
            handled += 1;
            // Asked before the next message is taken: one that is taken must be handled.
            if handled == CHUNK || load.records.bytes() >= self.batch_bytes {
                break;
            }
            next = self.mailbox.try_next();
        }
        // What the messages made due at once belongs to the same durable write as they do.
        self.advance(now, load);
        false
    }

    /// Lets the machine look ahead, at `next` and at what comes behind it. Says at how many messages.
    fn foresee(&self, next: &Message<C::Machine>) -> usize {
        self.mailbox.show_taken(|behind| {
            let messages = || std::iter::once(next).chain(behind.iter().take(AHEAD - 1));
            let commands = messages().filter_map(|message| match message {
                Message::Command { envelope, command, respond: _ } => Some((envelope, command)),
                Message::Group { .. }
                | Message::Query(_)
                | Message::Work(_)
                | Message::Wake
                | Message::Stop => None,
            });
            let mut coming = Vec::with_capacity(AHEAD);
            coming.extend(commands);
            if coming.len() > 1 {
                self.machine.foresee(&coming);
            }
            messages().count()
        })
    }

    fn handle(
        &mut self,
        message: Message<C::Machine>,
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) {
        match message {
            Message::Command { envelope, command, respond } => {
                let (value, wrote) = self.decide(&envelope, &command, now, load);
                let answer = Ok(Seen { value, position: self.position, at: now });
                load.waiting.push(Waiting::Command { respond, answer, wrote });
            }
            Message::Group { items, respond } => {
                let (value, wrote) = self.decide_group(&items, now, load);
                let answer = Ok(Seen { value, position: self.position, at: now });
                load.waiting.push(Waiting::Group { respond, answer, wrote });
            }
            Message::Query(query) => {
                self.advance(now, load);
                let view = View { machine: &self.machine, position: self.position, at: now };
                let read = |release| Waiting::Read { release, wrote: false };
                load.waiting.extend(query(Ok(view)).map(read));
            }
            Message::Work(work) => {
                self.advance(now, load);
                let mut desk = Desk { session: self, load: &mut *load, now, wrote: false };
                let release = work(Ok(&mut desk));
                let wrote = desk.wrote;
                load.waiting.extend(release.map(|release| Waiting::Read { release, wrote }));
            }
            Message::Wake | Message::Stop => {}
        }
    }

    /// Lets happen what is due, each at its own instant, each as one record.
    fn advance(&mut self, now: Timestamp, load: &mut Load<C::Machine>) {
        let (codec, position) = (self.codec, &mut self.position);
        advance(&mut self.machine, now, |at, events| {
            load.records.push(RecordKind::Due, at, |body| codec.encode(Origin::Due, events, body));
            *position += 1;
        });
    }

    #[expect(clippy::type_complexity, reason = "the machine's own answer, and whether it wrote")]
    fn decide(
        &mut self,
        envelope: &<C::Machine as Machine>::Envelope,
        command: &<C::Machine as Machine>::Command,
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) -> (Result<<C::Machine as Machine>::Reply, <C::Machine as Machine>::Refusal>, bool) {
        self.advance(now, load);
        self.events.clear();
        let answer = execute(&mut self.machine, now, envelope, command, &mut self.events);
        let wrote = !self.events.is_empty();
        if wrote {
            let origin = Origin::Command { envelope, command, accepted: answer.is_ok() };
            let (codec, events) = (self.codec, &self.events);
            load.records.push(RecordKind::Decision, now, |body| codec.encode(origin, events, body));
            self.position += 1;
        }
        (answer, wrote)
    }

    /// Decides item by item on the live state, and takes everything back if one is refused.
    #[expect(clippy::type_complexity, reason = "the machine's own answers, and whether it wrote")]
    fn decide_group(
        &mut self,
        items: &[(<C::Machine as Machine>::Envelope, <C::Machine as Machine>::Command)],
        now: Timestamp,
        load: &mut Load<C::Machine>,
    ) -> (
        Result<Vec<<C::Machine as Machine>::Reply>, Aborted<<C::Machine as Machine>::Refusal>>,
        bool,
    ) {
        self.advance(now, load);
        let mut replies = Vec::with_capacity(items.len());
        let mut body = Vec::new();
        self.machine.begin_group();
        for (index, (envelope, command)) in items.iter().enumerate() {
            if index.is_multiple_of(AHEAD) {
                let coming = items[index..].iter().take(AHEAD);
                let coming: Vec<_> =
                    coming.map(|(envelope, command)| (envelope, command)).collect();
                self.machine.foresee(&coming);
            }
            self.events.clear();
            match execute(&mut self.machine, now, envelope, command, &mut self.events) {
                Ok(reply) => replies.push(reply),
                Err(refusal) => {
                    self.machine.rollback_group();
                    return (Err(Aborted { index, refusal }), false);
                }
            }
            if !self.events.is_empty() {
                let origin = Origin::Command { envelope, command, accepted: true };
                write_group_item(&mut body, |out| self.codec.encode(origin, &self.events, out));
            }
        }
        self.machine.commit_group();
        let wrote = !body.is_empty();
        if wrote {
            load.records.push(RecordKind::Group, now, |out| out.append(&mut body));
            self.position += 1;
        }
        (Ok(replies), wrote)
    }
}

/// The machine, for one message.
struct Desk<'a, 'b, C: Codec> {
    session: &'a mut Session<'b, C>,
    load: &'a mut Load<C::Machine>,
    now: Timestamp,
    wrote: bool,
}

impl<C: Codec> Attended<C::Machine> for Desk<'_, '_, C> {
    fn machine(&self) -> &C::Machine {
        &self.session.machine
    }

    fn position(&self) -> u64 {
        self.session.position
    }

    fn execute(
        &mut self,
        envelope: &<C::Machine as Machine>::Envelope,
        command: &<C::Machine as Machine>::Command,
    ) -> Result<<C::Machine as Machine>::Reply, <C::Machine as Machine>::Refusal> {
        let (answer, wrote) = self.session.decide(envelope, command, self.now, self.load);
        self.wrote |= wrote;
        answer
    }
}
