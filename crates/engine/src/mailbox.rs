//! Where messages wait for the writer.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bursar_core::machine::Machine;

use crate::handle::Message;

/// The writer's end of the queue. A message that was taken too early can be put back.
pub(crate) struct Mailbox<M: Machine> {
    receiver: Receiver<Message<M>>,
    returned: Cell<Option<Message<M>>>,
}

impl<M: Machine> Mailbox<M> {
    pub(crate) fn new(receiver: Receiver<Message<M>>) -> Mailbox<M> {
        Mailbox { receiver, returned: Cell::new(None) }
    }

    /// Makes `message` the next one.
    pub(crate) fn put_back(&self, message: Message<M>) {
        let before = self.returned.replace(Some(message));
        debug_assert!(before.is_none(), "only what was just taken is put back");
    }

    /// The next message, if there is one.
    pub(crate) fn try_next(&self) -> Option<Message<M>> {
        self.returned.take().or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits for the next message; without a limit if none is given.
    pub(crate) fn next(&self, limit: Option<Duration>) -> Result<Message<M>, RecvTimeoutError> {
        if let Some(message) = self.returned.take() {
            return Ok(message);
        }
        match limit {
            Some(limit) => self.receiver.recv_timeout(limit),
            None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }
}
