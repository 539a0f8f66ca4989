//! How others talk to a machine.

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

/// Takes an answer, once, on a thread of the engine: it must not block. One that is dropped without an
/// answer means that a thread of the engine panicked: what was asked may have happened or not.
pub type Responder<T> = Box<dyn FnOnce(T) + Send>;

/// A value and the durable position that it was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<T> {
    /// What was asked for.
    pub value: T,
    /// The last record that it depends on; the command's own record if it wrote one.
    pub position: u64,
    /// The machine's time.
    pub at: Timestamp,
}

/// What a command said: the machine's own answer, or why there is none.
pub type Answer<M> =
    Result<Seen<Result<<M as Machine>::Reply, <M as Machine>::Refusal>>, EngineError>;

/// What a group said: all replies, or the first refusal, after which nothing happened.
pub type GroupAnswer<M> =
    Result<Seen<Result<Vec<<M as Machine>::Reply>, Aborted<<M as Machine>::Refusal>>>, EngineError>;

/// The same before it is durable.
pub type GroupDecision<M> = Result<Vec<<M as Machine>::Reply>, Aborted<<M as Machine>::Refusal>>;

/// A group that did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aborted<R> {
    /// Which of its commands was refused.
    pub index: usize,
    /// Why.
    pub refusal: R,
}

/// Answers a read once what it saw is durable, or says why not.
pub(crate) type ReadRelease = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// Looks at the state; without one it answers at once.
pub(crate) type Query<M> =
    Box<dyn FnOnce(Result<View<'_, M>, EngineError>) -> Option<ReadRelease> + Send>;

/// A machine while its writer attends to one message: every look and every decision is at the same
/// instant, with nobody else in between.
pub trait Attended<M: Machine> {
    /// The state, with everything that was decided so far.
    fn machine(&self) -> &M;

    /// The last record that was decided.
    fn position(&self) -> u64;

    /// The instant of all of it.
    fn now(&self) -> Timestamp;

    /// Decides a command. It stands once the answer to the whole message is given, whatever else the
    /// message asks for.
    ///
    /// # Errors
    /// The command failed, and nothing of it happened.
    fn execute(
        &mut self,
        envelope: &M::Envelope,
        command: &M::Command,
    ) -> Result<Result<M::Reply, M::Refusal>, EngineError>;

    /// Does a bounded part of what a command needs before it is decided: see [`Machine::prepare`]. Says
    /// whether there is no more to do. Otherwise others have their turns before the next part.
    fn prepare(&mut self, command: &M::Command) -> bool;

    /// The same for commands that are decided together: see [`Machine::prepare_group`].
    fn prepare_group(&mut self, items: &[(M::Envelope, M::Command)]) -> Preparation;

    /// Decides commands that happen all or not at all.
    ///
    /// # Errors
    /// The group failed, or was not prepared, and nothing of it happened.
    fn execute_group(
        &mut self,
        items: &[(M::Envelope, M::Command)],
    ) -> Result<GroupDecision<M>, EngineError>;

    /// Bytes of records that wait to be written. What a message adds to them is what it costs others.
    fn written(&self) -> usize;

    /// A number that changes whenever the state was rebuilt: what was decided under another one may
    /// be lost.
    fn session(&self) -> u64;

    /// Where the decisions stand, for [`Attended::abandon`].
    fn mark(&self) -> WorkMark;

    /// Takes back what was decided since `mark`, because the work that decided it panicked. The state
    /// is rebuilt before anything else is served, unless nothing was decided.
    fn abandon(&mut self, mark: WorkMark) -> EngineError;
}

/// Where the decisions of one message stand.
#[derive(Copy, Clone, Debug)]
pub struct WorkMark {
    pub(crate) records: BuilderMark,
    pub(crate) position: u64,
    /// How many loads were handed over in the middle of a message.
    pub(crate) flushes: u64,
}

/// Does one part of a message. If it panics, nothing of this part happened, and the rest goes on.
///
/// # Errors
/// The part panicked.
pub fn attempt<M: Machine, T>(
    attended: &mut dyn Attended<M>,
    work: impl FnOnce(&mut dyn Attended<M>) -> T,
) -> Result<T, EngineError> {
    let mark = attended.mark();
    // What a panic leaves behind is taken back by `abandon`.
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut *attended)));
    done.map_err(|_| attended.abandon(mark))
}

/// Looks and decides; without a machine it answers at once.
pub(crate) type Work<M> =
    Box<dyn FnOnce(Result<&mut dyn Attended<M>, EngineError>) -> Option<ReadRelease> + Send>;

/// What a turn of a long message came to.
pub(crate) enum Turn {
    /// There is more to do.
    Again,
    /// It is over; the answer may have to wait.
    Done(Option<ReadRelease>),
}

/// Looks and decides for a while; without a machine it answers at once.
pub(crate) type Turns<M> = Box<dyn FnMut(Result<&mut dyn Attended<M>, EngineError>) -> Turn + Send>;

/// What a query gets to see.
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
        respond: Responder<Answer<M>>,
    },
    Group {
        items: Vec<(M::Envelope, M::Command)>,
        respond: Responder<GroupAnswer<M>>,
    },
    Query(Query<M>),
    Work(Work<M>),
    /// Work that lets others have their turns.
    Turns(Turns<M>),
    /// Look around: a lease or an append was lost.
    Wake,
    Stop,
}

impl<M: Machine> Message<M> {
    /// Answers without looking.
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
    /// The same with another urgency. What is sent one after the other by handles of one urgency is
    /// handled in that order; between urgencies there is no order.
    pub fn with_urgency(&self, urgency: Urgency) -> Handle<M> {
        Handle { urgency, ..self.clone() }
    }

    /// The same for a sender: senders take turns.
    pub fn with_sender(&self, sender: Sender) -> Handle<M> {
        Handle { sender, ..self.clone() }
    }

    /// Sends a command. `respond` gets the answer when it is durable, or at once if the mailbox is
    /// full.
    pub fn submit(
        &self,
        envelope: M::Envelope,
        command: M::Command,
        respond: impl FnOnce(Answer<M>) + Send + 'static,
    ) {
        self.post(Message::Command { envelope, command, respond: Box::new(respond) });
    }

    /// Sends commands that happen all or not at all, as one record.
    pub fn submit_group(
        &self,
        items: Vec<(M::Envelope, M::Command)>,
        respond: impl FnOnce(GroupAnswer<M>) + Send + 'static,
    ) {
        self.post(Message::Group { items, respond: Box::new(respond) });
    }

    /// Looks at the state. `respond` gets what `read` saw once that is durable. Everything that is
    /// due by the clock has happened before, but for what can wait: [`Handle::settle`] waits for that.
    pub fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
        respond: impl FnOnce(Result<Seen<T>, EngineError>) + Send + 'static,
    ) {
        self.post(Message::Query(Box::new(move |view| match view {
            Ok(view) => {
                // A look changes nothing, so a panic leaves nothing behind.
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

    /// Looks at the state and tells no instant: nothing waits for what it saw to be durable, and no time is
    /// journaled for it.
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

    /// Lets `work` look at the state and decide commands, all at one instant. `respond` gets what it
    /// returned once everything that it saw and decided is durable.
    pub fn attend<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Attended<M>) -> T + Send + 'static,
        respond: impl FnOnce(Result<Seen<T>, EngineError>) + Send + 'static,
    ) {
        self.post(Message::Work(Box::new(move |attended| match attended {
            Ok(attended) => {
                let value = match attempt(attended, work) {
                    Ok(value) => value,
                    Err(error) => {
                        respond(Err(error));
                        return None;
                    }
                };
                let (position, at) = (attended.position(), attended.now());
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

    /// Like [`Handle::attend`], in as many turns as `turn` needs: until it returns something. Between
    /// two turns others have theirs. If the state is rebuilt in between, nothing more is decided and
    /// the outcome is unknown.
    pub fn attend_in_turns<T: Send + 'static>(
        &self,
        mut turn: impl FnMut(&mut dyn Attended<M>) -> Option<T> + Send + 'static,
        respond: impl FnOnce(Result<Seen<T>, EngineError>) + Send + 'static,
    ) {
        let (mut respond, mut session, mut turns) = (Some(respond), None, 0_u32);
        self.post(Message::Turns(Box::new(move |attended| {
            let answered = match attended {
                Ok(attended) => {
                    let now = attended.session();
                    if *session.get_or_insert(now) == now {
                        attempt(attended, &mut turn).map(|value| {
                            let value = value?;
                            let (position, at) = (attended.position(), attended.now());
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
                    // What earlier turns decided stands.
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
    pub fn execute(&self, envelope: M::Envelope, command: M::Command) -> Answer<M> {
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

    /// Looks at the state and waits for what was seen.
    pub fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
    ) -> Result<Seen<T>, EngineError> {
        let (sender, receiver) = sync_channel(1);
        self.query(read, move |seen| drop(sender.send(seen)));
        receiver.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Waits until everything that is due by the clock has happened and is durable, also what can wait.
    /// Others have their turns meanwhile.
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
