//! The interface of a machine for other threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use bursar_core::machine::{Machine, Preparation};
use bursar_core::time::Timestamp;
use bursar_journal::BuilderMark;

use crate::codec::Hosted;
use crate::error::EngineError;
use crate::writer::mailbox::{NotPosted, Post, Sender, Urgency};

/// Receives an answer, once, on an engine thread. Must not block. If it is dropped without a call,
/// an engine thread panicked, and the request may have happened or not.
pub type Responder<T> = Box<dyn FnOnce(T) + Send>;

/// A value and the durable position that it was read at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// The value.
    pub value: T,
    /// The last record that the value depends on. The command's own record if it wrote one.
    pub position: u64,
    /// The machine's time.
    pub at: Timestamp,
}

/// The result of a command: the machine's answer, or why there is none.
pub type CommandAnswer<M> =
    Result<Seen<Result<<M as Machine>::Reply, <M as Machine>::Refusal>>, EngineError>;

/// The result of a group: all replies, or the first refusal, after which nothing happened.
pub type GroupAnswer<M> =
    Result<Seen<Result<Vec<<M as Machine>::Reply>, Aborted<<M as Machine>::Refusal>>>, EngineError>;

/// The result of a group before it is durable.
pub type GroupDecision<M> = Result<Vec<<M as Machine>::Reply>, Aborted<<M as Machine>::Refusal>>;

/// A group that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aborted<R> {
    /// The index of the refused command.
    pub index: usize,
    /// The reason.
    pub refusal: R,
}

/// Sends the answer of a read once the state that it saw is durable, or an error.
pub(crate) type ReadRelease = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// Reads the state. Without a state it answers at once.
pub(crate) type Query<M> =
    Box<dyn FnOnce(Result<View<'_, M>, EngineError>) -> Option<ReadRelease> + Send>;

/// The work of one message on a machine. Every read and every decision happens at the same instant,
/// without other messages in between.
pub trait Transaction<M: Machine> {
    /// The state, with all decisions so far.
    fn machine(&self) -> &M;

    /// The last record that was decided.
    fn position(&self) -> u64;

    /// The instant of all reads and decisions.
    fn now(&self) -> Timestamp;

    /// Decides a command. The decision is kept once the answer to the whole message is sent,
    /// whatever else the message does.
    ///
    /// # Errors
    /// The command failed, and nothing of it happened.
    fn execute(
        &mut self,
        envelope: &M::Envelope,
        command: &M::Command,
    ) -> Result<Result<M::Reply, M::Refusal>, EngineError>;

    /// Decides a command and changes nothing: whether it would be accepted, also by its size.
    ///
    /// # Errors
    /// The command would fail.
    fn rehearse(
        &self,
        envelope: &M::Envelope,
        command: &M::Command,
    ) -> Result<Result<M::Reply, M::Refusal>, EngineError>;

    /// Does a bounded part of the preparation of a command: see [`Machine::prepare`]. Returns
    /// whether the preparation is complete. If not, other messages have their turns before the next
    /// part.
    fn prepare(&mut self, command: &M::Command) -> bool;

    /// Prepares commands that are decided together: see [`Machine::prepare_group`].
    fn prepare_group(&mut self, items: &[(M::Envelope, M::Command)]) -> Preparation;

    /// Decides commands that all happen or none.
    ///
    /// # Errors
    /// The group failed, or was not prepared, and nothing of it happened.
    fn execute_group(
        &mut self,
        items: &[(M::Envelope, M::Command)],
    ) -> Result<GroupDecision<M>, EngineError>;

    /// Bytes of records that wait to be written. What a message adds to them delays other messages.
    fn written(&self) -> usize;

    /// A number that changes whenever the state is rebuilt. Decisions made under another number may
    /// be lost.
    fn session(&self) -> u64;

    /// The current point in the decisions, for [`Transaction::abandon`].
    fn mark(&self) -> WorkMark;

    /// Discards the decisions since `mark`, because the work that made them panicked. The state is
    /// rebuilt before anything else is served, unless nothing was decided.
    fn abandon(&mut self, mark: WorkMark) -> EngineError;
}

/// A point in the decisions of one message.
#[derive(Copy, Clone, Debug)]
pub struct WorkMark {
    pub(crate) records: BuilderMark,
    pub(crate) position: u64,
    /// How many loads were handed over in the middle of a message.
    pub(crate) flushes: u64,
}

/// Does one part of a message. If it panics, nothing of this part happened, and the rest continues.
///
/// # Errors
/// The part panicked.
pub fn attempt<M: Machine, T>(
    transaction: &mut dyn Transaction<M>,
    work: impl FnOnce(&mut dyn Transaction<M>) -> T,
) -> Result<T, EngineError> {
    let mark = transaction.mark();
    // `abandon` discards what a panic leaves behind.
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut *transaction)));
    done.map_err(|_| transaction.abandon(mark))
}

/// Reads and decides. Without a machine it answers at once.
pub(crate) type Work<M> =
    Box<dyn FnOnce(Result<&mut dyn Transaction<M>, EngineError>) -> Option<ReadRelease> + Send>;

/// The result of one turn of a long message.
pub(crate) enum Turn {
    /// The message needs another turn.
    Again,
    /// The message is complete. Its answer may have to wait.
    Done(Option<ReadRelease>),
}

/// Reads and decides in turns. Without a machine it answers at once.
pub(crate) type Turns<M> =
    Box<dyn FnMut(Result<&mut dyn Transaction<M>, EngineError>) -> Turn + Send>;

/// The state as a query sees it.
pub(crate) struct View<'a, M> {
    pub(crate) machine: &'a M,
    pub(crate) position: u64,
    pub(crate) at: Timestamp,
    /// Counts requests that panicked.
    pub(crate) panics: &'a AtomicU64,
}

pub(crate) enum Message<M: Machine> {
    Command {
        envelope: M::Envelope,
        command: M::Command,
        respond: Responder<CommandAnswer<M>>,
    },
    Group {
        items: Vec<(M::Envelope, M::Command)>,
        respond: Responder<GroupAnswer<M>>,
    },
    Query(Query<M>),
    Work(Work<M>),
    /// Work that yields to other messages between turns.
    Turns(Turns<M>),
    /// Check for failures: a lease or an append was lost.
    Wake,
    Stop,
}

impl<M: Machine> Message<M> {
    /// Answers with an error, without reading the state.
    pub(crate) fn reject(self, error: &EngineError) {
        match self {
            Message::Command { respond, .. } => respond(Err(error.clone())),
            Message::Group { respond, .. } => respond(Err(error.clone())),
            Message::Query(query) => {
                let none = query(Err(error.clone()));
                debug_assert!(none.is_none(), "a query without a state has nothing to wait for");
            }
            Message::Work(work) => {
                let none = work(Err(error.clone()));
                debug_assert!(none.is_none(), "without a machine there is nothing to wait for");
            }
            Message::Turns(mut turns) => {
                let _ = turns(Err(error.clone()));
            }
            Message::Wake | Message::Stop => {}
        }
    }
}

/// Sends commands and reads to one machine. Cheap to clone.
pub struct Handle<M: Machine> {
    pub(crate) mailbox: Post<M>,
    pub(crate) full: Arc<str>,
    pub(crate) urgency: Urgency,
    pub(crate) sender: Sender,
}

impl<M: Machine> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        let (mailbox, full) = (self.mailbox.clone(), Arc::clone(&self.full));
        Handle { mailbox, full, urgency: self.urgency, sender: self.sender }
    }
}

impl<M: Hosted> Handle<M> {
    /// The same handle with another urgency. Messages of one urgency are handled in the order in
    /// which they were sent. Between urgencies there is no order.
    pub fn with_urgency(&self, urgency: Urgency) -> Handle<M> {
        Handle { urgency, ..self.clone() }
    }

    /// The same handle for another sender. Senders take turns.
    pub fn with_sender(&self, sender: Sender) -> Handle<M> {
        Handle { sender, ..self.clone() }
    }

    /// Sends a command. `respond` receives the answer when it is durable, or at once if the mailbox
    /// is full.
    pub fn submit(
        &self,
        envelope: M::Envelope,
        command: M::Command,
        respond: impl FnOnce(CommandAnswer<M>) + Send + 'static,
    ) {
        self.post(Message::Command { envelope, command, respond: Box::new(respond) });
    }

    /// Sends commands that all happen or none, as one record.
    pub fn submit_group(
        &self,
        items: Vec<(M::Envelope, M::Command)>,
        respond: impl FnOnce(GroupAnswer<M>) + Send + 'static,
    ) {
        self.post(Message::Group { items, respond: Box::new(respond) });
    }

    /// Reads the state. `respond` receives the result of `read` once the state that it saw is
    /// durable. Due timers have run before, except those that can wait: see [`Handle::settle`].
    pub fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
        respond: impl FnOnce(Result<Seen<T>, EngineError>) + Send + 'static,
    ) {
        self.post(Message::Query(Box::new(move |view| match view {
            Ok(view) => {
                // A read changes nothing, so a panic leaves nothing behind.
                let Ok(value) = catch_unwind(AssertUnwindSafe(|| read(view.machine))) else {
                    view.panics.fetch_add(1, Ordering::Relaxed);
                    respond(Err(EngineError::Internal));
                    return None;
                };
                let seen = Seen { value, position: view.position, at: view.at };
                Some(Box::new(move |durable: Result<(), EngineError>| {
                    respond(durable.map(|()| seen));
                }))
            }
            Err(error) => {
                respond(Err(error));
                None
            }
        })));
    }

    /// Reads the state without an answer as of an instant: nothing waits for what it saw to be
    /// durable, and no time is journaled for it.
    pub fn peek(&self, look: impl FnOnce(&M) + Send + 'static) {
        self.post(Message::Query(Box::new(move |view| {
            if let Ok(view) = view
                && catch_unwind(AssertUnwindSafe(|| look(view.machine))).is_err()
            {
                view.panics.fetch_add(1, Ordering::Relaxed);
            }
            None
        })));
    }

    /// Reads the state like [`Handle::peek`], and waits for the result. Also returns the last position that the state
    /// contains. It may not be durable yet, and is not if the writer drops its state before.
    pub fn peek_with_position<T: Send + 'static>(
        &self,
        look: impl FnOnce(&M) -> T + Send + 'static,
    ) -> Result<(T, u64), EngineError> {
        let (sender, receiver) = sync_channel(1);
        self.post(Message::Query(Box::new(move |view| {
            let outcome = view.and_then(|view| {
                let seen = catch_unwind(AssertUnwindSafe(|| look(view.machine)));
                let position = view.position;
                seen.map(|value| (value, position)).map_err(|_| {
                    view.panics.fetch_add(1, Ordering::Relaxed);
                    EngineError::Internal
                })
            });
            let _ = sender.send(outcome);
            None
        })));
        receiver.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Runs `work`, which reads the state and decides commands, all at one instant. `respond`
    /// receives its result once everything that it saw and decided is durable.
    pub fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Transaction<M>) -> T + Send + 'static,
        respond: impl FnOnce(Result<Seen<T>, EngineError>) + Send + 'static,
    ) {
        self.post(Message::Work(Box::new(move |transaction| match transaction {
            Ok(transaction) => {
                let value = match attempt(transaction, work) {
                    Ok(value) => value,
                    Err(error) => {
                        respond(Err(error));
                        return None;
                    }
                };
                let (position, at) = (transaction.position(), transaction.now());
                let seen = Seen { value, position, at };
                Some(Box::new(move |durable: Result<(), EngineError>| {
                    respond(durable.map(|()| seen));
                }))
            }
            Err(error) => {
                respond(Err(error));
                None
            }
        })));
    }

    /// Like [`Handle::transact`], in as many turns as `turn` needs: until it returns a value. Other
    /// messages are handled between two turns. If the state is rebuilt in between, nothing more is
    /// decided and the outcome is unknown.
    pub fn transact_in_turns<T: Send + 'static>(
        &self,
        mut turn: impl FnMut(&mut dyn Transaction<M>) -> Option<T> + Send + 'static,
        respond: impl FnOnce(Result<Seen<T>, EngineError>) + Send + 'static,
    ) {
        let (mut respond, mut session, mut turns) = (Some(respond), None, 0_u32);
        self.post(Message::Turns(Box::new(move |transaction| {
            let answered = match transaction {
                Ok(transaction) => {
                    let now = transaction.session();
                    if *session.get_or_insert(now) == now {
                        attempt(transaction, &mut turn).map(|value| {
                            let value = value?;
                            let (position, at) = (transaction.position(), transaction.now());
                            Some(Seen { value, position, at })
                        })
                    } else {
                        Err(EngineError::OutcomeUnknown)
                    }
                }
                Err(_) if session.is_some() => Err(EngineError::OutcomeUnknown),
                Err(error) => Err(error),
            };
            match answered {
                Ok(None) => {
                    turns += 1;
                    Turn::Again
                }
                Ok(Some(seen)) => {
                    let respond = respond.take();
                    Turn::Done(Some(Box::new(move |durable: Result<(), EngineError>| {
                        if let Some(respond) = respond {
                            respond(durable.map(|()| seen));
                        }
                    })))
                }
                Err(error) => {
                    // The decisions of earlier turns are kept.
                    let error = if turns > 0 { EngineError::OutcomeUnknown } else { error };
                    if let Some(respond) = respond.take() {
                        respond(Err(error));
                    }
                    Turn::Done(None)
                }
            }
        })));
    }

    /// Sends a command and waits for the answer.
    pub fn execute(&self, envelope: M::Envelope, command: M::Command) -> CommandAnswer<M> {
        let (sender, receiver) = sync_channel(1);
        self.submit(envelope, command, move |answer| drop(sender.send(answer)));
        receiver.recv().unwrap_or(Err(EngineError::OutcomeUnknown))
    }

    /// Sends a group and waits for the answer.
    pub fn execute_group(&self, items: Vec<(M::Envelope, M::Command)>) -> GroupAnswer<M> {
        let (sender, receiver) = sync_channel(1);
        self.submit_group(items, move |answer| drop(sender.send(answer)));
        receiver.recv().unwrap_or(Err(EngineError::OutcomeUnknown))
    }

    /// Reads the state and waits for the result.
    pub fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
    ) -> Result<Seen<T>, EngineError> {
        let (sender, receiver) = sync_channel(1);
        self.query(read, move |seen| drop(sender.send(seen)));
        receiver.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Waits until all due timers have run and are durable, including those that can wait. Other
    /// messages are handled meanwhile.
    pub fn settle(&self) -> Result<Seen<()>, EngineError> {
        loop {
            let Seen { value: due, position, at } = self.read(|machine| machine.next_deadline())?;
            if due.is_none_or(|deadline| deadline > at) {
                return Ok(Seen { value: (), position, at });
            }
        }
    }

    fn post(&self, message: Message<M>) {
        match self.mailbox.send((self.urgency, self.sender), message) {
            Ok(()) => {}
            Err(NotPosted::Full(message)) => {
                message.reject(&EngineError::Unavailable(self.full.as_ref().into()));
            }
            Err(NotPosted::Gone(message)) => message.reject(&gone()),
        }
    }
}

fn gone() -> EngineError {
    EngineError::Stopped("the engine has ended".into())
}
