//! The asynchronous side of a machine's mailbox.

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bursar_api::Code;
use bursar_core::machine::Machine;
use bursar_engine::{EngineError, GroupAnswer, Handle, Hosted, Seen, Transaction, Urgency};
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::request::Failure;
use crate::request::meta;
use crate::telemetry::trace;

/// The answer to a command.
pub type Answered<M> = Seen<Result<<M as Machine>::Reply, <M as Machine>::Refusal>>;

/// A pending answer.
pub struct PostedWork<T> {
    receiver: oneshot::Receiver<Result<T, EngineError>>,
    machine: &'static str,
}

impl<T> PostedWork<T> {
    /// Waits for the answer.
    pub async fn answer(self) -> Result<T, Failure> {
        match self.receiver.instrument(trace::step("decide", self.machine)).await {
            Ok(answer) => answer.map_err(Failure::from),
            // The engine ended between the decision and the answer.
            Err(_) => Err(EngineError::OutcomeUnknown.into()),
        }
    }
}

/// Sends commands and reads to one machine.
pub struct Gateway<M: Hosted> {
    handle: Handle<M>,
    waiting: Arc<AtomicI64>,
}

impl<M: Hosted> Clone for Gateway<M> {
    fn clone(&self) -> Gateway<M> {
        Gateway { handle: self.handle.clone(), waiting: Arc::clone(&self.waiting) }
    }
}

/// Counts a message while its answer is pending.
struct WaitingCount(Arc<AtomicI64>);

impl WaitingCount {
    fn begin(count: &Arc<AtomicI64>) -> WaitingCount {
        count.fetch_add(1, Ordering::Relaxed);
        WaitingCount(Arc::clone(count))
    }
}

impl Drop for WaitingCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<M: Hosted> Gateway<M> {
    /// Creates the gateway of a machine.
    pub fn new(handle: Handle<M>) -> Gateway<M> {
        Gateway { handle, waiting: Arc::default() }
    }

    /// The same gateway with another urgency. Messages of one urgency are handled in the order in
    /// which they are posted; between urgencies there is no order.
    pub fn with_urgency(&self, urgency: Urgency) -> Gateway<M> {
        let waiting = Arc::clone(&self.waiting);
        Gateway { handle: self.handle.with_urgency(urgency), waiting }
    }

    /// A handle for the tenant of the current request: the machine serves tenants in turns.
    fn in_turn(&self) -> Handle<M> {
        self.handle.with_sender(meta::sender())
    }

    /// The number of messages that wait for an answer.
    pub fn waiting(&self) -> i64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Posts a command. Messages posted one after the other are decided in that order.
    pub fn post(&self, envelope: M::Envelope, command: M::Command) -> PostedWork<Answered<M>> {
        self.post_noted(envelope, command, || {})
    }

    /// Like [`Gateway::post`], and calls `note` before the answer is sent, also if its caller has
    /// gone.
    pub fn post_noted(
        &self,
        envelope: M::Envelope,
        command: M::Command,
        note: impl FnOnce() + Send + 'static,
    ) -> PostedWork<Answered<M>> {
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingCount::begin(&self.waiting);
        self.in_turn().submit(envelope, command, move |answer| {
            drop(waiting);
            note();
            // The caller may have gone; the decision stands.
            let _ = sender.send(answer);
        });
        PostedWork { receiver, machine: type_name::<M>() }
    }

    /// Posts work that reads the state and decides commands, all at one instant.
    pub fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Transaction<M>) -> T + Send + 'static,
    ) -> PostedWork<Seen<T>> {
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingCount::begin(&self.waiting);
        self.in_turn().transact(work, move |seen| {
            drop(waiting);
            // The caller may have gone; the decisions stand.
            let _ = sender.send(seen);
        });
        PostedWork { receiver, machine: type_name::<M>() }
    }

    /// Posts work in several turns. Other messages are handled between two turns.
    pub fn transact_in_turns<T: Send + 'static>(
        &self,
        turn: impl FnMut(&mut dyn Transaction<M>) -> Option<T> + Send + 'static,
    ) -> PostedWork<Seen<T>> {
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingCount::begin(&self.waiting);
        self.in_turn().transact_in_turns(turn, move |seen| {
            drop(waiting);
            let _ = sender.send(seen);
        });
        PostedWork { receiver, machine: type_name::<M>() }
    }

    /// Posts commands that are applied all or not at all.
    pub async fn group(
        &self,
        items: Vec<(M::Envelope, M::Command)>,
    ) -> Result<Seen<Result<Vec<M::Reply>, bursar_engine::Aborted<M::Refusal>>>, Failure> {
        let (sender, receiver) = oneshot::channel::<GroupAnswer<M>>();
        let waiting = WaitingCount::begin(&self.waiting);
        self.in_turn().submit_group(items, move |answer| {
            drop(waiting);
            let _ = sender.send(answer);
        });
        PostedWork { receiver, machine: type_name::<M>() }.answer().await
    }

    /// Reads the state after the commands that wait. Answers once everything that was read is
    /// durable.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
    ) -> Result<Seen<T>, Failure> {
        let (sender, receiver) = oneshot::channel();
        let waiting = WaitingCount::begin(&self.waiting);
        self.in_turn().with_urgency(Urgency::Patient).query(read, move |seen| {
            drop(waiting);
            let _ = sender.send(seen);
        });
        match receiver.instrument(trace::step("read", type_name::<M>())).await {
            Ok(seen) => seen.map_err(Failure::from),
            Err(_) => Err(Failure::new(Code::Unavailable, "the engine has ended")),
        }
    }

    /// Posts a read that is answered at once, durable or not. Only for facts that never change, or
    /// that a durable answer has already shown.
    pub fn post_peek<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
    ) -> Peeked<T> {
        let (sender, receiver) = oneshot::channel();
        self.in_turn().peek(move |machine| {
            // Caught here so that the caller gets the failure; the engine would catch it as well.
            let seen = catch_unwind(AssertUnwindSafe(|| read(machine)));
            let (seen, panic) = match seen {
                Ok(seen) => (Ok(seen), None),
                Err(panic) => (Err(EngineError::Internal), Some(panic)),
            };
            let _ = sender.send(seen);
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
        });
        Peeked(receiver)
    }

    /// Like [`Gateway::post_peek`], and waits for the result.
    pub async fn peek<T: Send + 'static>(
        &self,
        read: impl FnOnce(&M) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.post_peek(read).seen().await
    }
}

/// A pending read of the state.
pub struct Peeked<T>(oneshot::Receiver<Result<T, EngineError>>);

impl<T> Peeked<T> {
    /// Waits for the result.
    pub async fn seen(self) -> Result<T, Failure> {
        let overloaded = || Failure::new(Code::Unavailable, "too much is waiting; try again");
        self.0.await.map_err(|_| overloaded())?.map_err(Failure::from)
    }
}
