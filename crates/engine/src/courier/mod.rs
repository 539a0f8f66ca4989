//! Delivers messages from one machine to another, in order, until they have arrived.
//!
//! A message is an event of the sender's journal, numbered by the sender, densely from 1 for each
//! receiver. The receiver keeps one [`Mark`] for each sender and moves it in the same commit as the
//! effect of the message: it accepts the next number, ignores older ones and refuses later ones. A
//! courier can therefore stop anywhere, lose its state and send a message twice: no message is lost
//! and none takes effect twice. The receiver's mark is the only state that it needs.

pub(crate) mod messages;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_core::message::Mark;
use bursar_journal::{Head, Journal, JournalError};
use bursar_seeded::{Bug, seeded};
use thiserror::Error;

use crate::codec::{Codec, Hosted};
use crate::error::{EngineError, ReplayError};
use crate::replay::Decoder;
use crate::vital::Vital;
use crate::writer::durable::Durable;
use crate::writer::handle::Handle;

/// Messages delivered at once. A batch is never divided.
const MAX_DELIVERY: usize = 512;
/// How long to let the journal grow after two reads without messages. Most records of a busy sender
/// are not messages, and waking for each batch costs more than reading it.
const BATCHING_DELAY: Duration = Duration::from_millis(2);
/// The pause after a failed delivery.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A message on its way to its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage<T> {
    /// Its number among the messages from this sender to this receiver, dense from 1.
    pub number: u64,
    /// The record of the sender's journal that contains it.
    pub position: u64,
    /// The content.
    pub message: T,
}

/// Finds the messages to one receiver among the sender's events.
pub trait Outbox<M: Machine>: Send + 'static {
    /// The content of a message.
    type Message: Send + 'static;

    /// The number and content of the message in `event`, if it is one to this receiver.
    fn message(&self, event: &M::Event) -> Option<(u64, Self::Message)>;
}

/// The receiver's side.
pub trait Inbox<T>: Send + 'static {
    /// The receiver's durable mark for this sender.
    fn mark(&mut self) -> Result<Mark, EngineError>;

    /// Delivers messages in order. Returns the receiver's durable mark afterwards.
    fn deliver(&mut self, messages: Vec<SentMessage<T>>) -> Result<Mark, EngineError>;
}

/// Why a courier stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CourierError {
    /// The receiver did not answer. A retry may succeed: nothing is lost.
    #[error("not delivered: {0}")]
    Undelivered(#[from] EngineError),
    /// The sender's journal cannot be read.
    #[error(transparent)]
    Journal(#[from] ReplayError),
    /// The sender's own numbering has a gap or a repetition.
    #[error("message {found} at record {position} where {expected} was expected")]
    Numbering {
        /// The number that was expected.
        expected: u64,
        /// The number that was found.
        found: u64,
        /// The position of the record.
        position: u64,
    },
}

impl CourierError {
    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            CourierError::Undelivered(_) => true,
            CourierError::Journal(error) => error.is_retryable(),
            CourierError::Numbering { .. } => false,
        }
    }
}

impl From<JournalError> for CourierError {
    fn from(error: JournalError) -> CourierError {
        CourierError::Journal(error.into())
    }
}

/// A command with its envelope.
pub type Addressed<M> = (<M as Machine>::Envelope, <M as Machine>::Command);

/// Messages, and the last batch that was searched for them.
type Delivery<T> = (Vec<SentMessage<T>>, Head);

/// The delivery of messages in one direction between two machines.
pub struct Courier<C: Codec, O: Outbox<C::Machine>, I> {
    journal: Arc<dyn Journal>,
    codec: Arc<C>,
    outbox: O,
    inbox: I,
    decoder: Decoder<<C::Machine as Machine>::Event>,
    /// Everything up to this batch has arrived, up to this mark. Unknown after an error.
    place: Option<(Head, Mark)>,
}

impl<C, O, I> Courier<C, O, I>
where
    C: Codec,
    O: Outbox<C::Machine>,
    I: Inbox<O::Message>,
{
    /// A courier that has not yet read the receiver's mark.
    pub fn new(journal: Arc<dyn Journal>, codec: Arc<C>, outbox: O, inbox: I) -> Courier<C, O, I> {
        Courier { journal, codec, outbox, inbox, decoder: Decoder::new(), place: None }
    }

    /// The last batch of which all messages are known to have arrived.
    pub fn delivered(&self) -> u64 {
        self.place.map_or(0, |(head, _)| head.sequence)
    }

    /// Delivers one group of messages from before `until`, the durable head of the sender. Returns
    /// how many arrived; zero means that all have.
    ///
    /// # Errors
    /// After any error the courier reads the receiver's mark again.
    pub fn step(&mut self, until: Head) -> Result<usize, CourierError> {
        let result = self.carry(until);
        if result.is_err() {
            self.place = None;
        }
        result
    }

    fn carry(&mut self, until: Head) -> Result<usize, CourierError> {
        loop {
            let (from, mark) = match self.place {
                Some(place) => place,
                None => {
                    let mark = self.inbox.mark()?;
                    (self.journal.head_before(mark.position)?, mark)
                }
            };
            let (messages, head) = self.collect(from, mark, until)?;
            let count = messages.len();
            if count == 0 {
                self.place = Some((head, mark));
                if head.sequence >= until.sequence {
                    return Ok(0);
                }
                continue;
            }
            let last = messages[count - 1].number;
            let arrived = self.inbox.deliver(messages)?;
            // If the receiver did not accept everything, its mark is read again.
            let is_taken = arrived.number == last || seeded(Bug::CourierSkipsUntaken);
            self.place = is_taken.then_some((head, arrived));
            return Ok(count);
        }
    }

    /// The messages after `mark` in the batches after `from`.
    fn collect(
        &mut self,
        from: Head,
        mark: Mark,
        until: Head,
    ) -> Result<Delivery<O::Message>, CourierError> {
        let mut messages = Vec::new();
        let mut head = from;
        let mut expected = mark.number + 1;
        for batch in self.journal.read(from)? {
            let batch = batch?;
            let is_durable = batch.sequence <= until.sequence || seeded(Bug::CourierSendsUnsynced);
            if !is_durable || messages.len() >= MAX_DELIVERY {
                break;
            }
            head = batch.head();
            if !self.codec.may_hold_messages(&batch.payload) {
                continue;
            }
            let mut broken = None;
            self.decoder.batch(&*self.codec, &batch, |record, events| {
                for (number, message) in
                    events.iter().filter_map(|event| self.outbox.message(event))
                {
                    if number <= mark.number {
                        continue;
                    }
                    let position = record.position;
                    if number != expected && broken.is_none() {
                        broken =
                            Some(CourierError::Numbering { expected, found: number, position });
                    }
                    expected = number + 1;
                    messages.push(SentMessage { number, position, message });
                }
            })?;
            if let Some(broken) = broken {
                return Err(broken);
            }
        }
        Ok((messages, head))
    }

    /// Delivers on a new thread until the sender's writer ends.
    pub fn start(mut self, durable: Arc<Durable>) -> JoinHandle<Result<(), CourierError>>
    where
        C::Machine: Send,
    {
        let work = move || {
            let _vital = Vital::new("a courier between machines");
            let mut in_vain = 0u32;
            while durable.wait_beyond(self.delivered()) {
                let Some(until) = durable.head() else { continue };
                match self.step(until) {
                    Ok(0) if in_vain > 0 => durable.pause(BATCHING_DELAY),
                    Ok(0) => in_vain += 1,
                    Ok(_) => in_vain = 0,
                    Err(error) if error.is_retryable() => durable.pause(RETRY_INTERVAL),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        std::thread::Builder::new()
            .name("bursar-courier".into())
            .spawn(work)
            .expect("the system can start a thread")
    }
}

/// The inbox of a machine of this process.
pub struct EngineInbox<M: Machine, A, K> {
    handle: Handle<M>,
    address: A,
    mark: K,
}

impl<M: Machine, A, K> EngineInbox<M, A, K> {
    /// `address` makes a command of a message. `mark` reads the mark for this sender.
    pub fn new(handle: Handle<M>, address: A, mark: K) -> EngineInbox<M, A, K> {
        EngineInbox { handle, address, mark }
    }
}

impl<M, T, A, K> Inbox<T> for EngineInbox<M, A, K>
where
    M: Hosted,
    T: Send + 'static,
    A: Fn(SentMessage<T>) -> Addressed<M> + Send + 'static,
    K: Fn(&M) -> Mark + Send + Clone + 'static,
{
    fn mark(&mut self) -> Result<Mark, EngineError> {
        self.handle.read(self.mark.clone()).map(|seen| seen.value)
    }

    fn deliver(&mut self, messages: Vec<SentMessage<T>>) -> Result<Mark, EngineError> {
        let (done, answers) = channel();
        for sent in messages {
            let (envelope, command) = (self.address)(sent);
            let done = done.clone();
            // Whether the message was accepted shows in the mark. Only a missing answer is an error
            // here.
            self.handle.submit(envelope, command, move |answer| drop(done.send(answer.err())));
        }
        drop(done);
        match answers.into_iter().flatten().next() {
            Some(error) => Err(error),
            None => self.mark(),
        }
    }
}
