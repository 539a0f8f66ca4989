//! Encodes a machine's events and state, and decodes them.

mod cell;
mod directory;
mod ledger;

use bursar_core::machine::Machine;
use thiserror::Error;

pub use cell::CellCodec;
pub use directory::DirectoryCodec;
pub use ledger::LedgerCodec;

/// A machine whose parts can be sent between threads. Implemented for every such machine.
pub trait Hosted:
    Machine<
        Command: Send + 'static,
        Event: Send + 'static,
        Reply: Send + 'static,
        Refusal: Send + 'static,
        Envelope: Send + 'static,
    > + Send
    + 'static
{
}

impl<M> Hosted for M where
    M: Machine<
            Command: Send + 'static,
            Event: Send + 'static,
            Reply: Send + 'static,
            Refusal: Send + 'static,
            Envelope: Send + 'static,
        > + Send
        + 'static
{
}

/// Why the events of a record happened. A codec may store it with them for audits.
pub enum RecordOrigin<'a, M: Machine> {
    /// A command was sent.
    Command {
        /// The author, and the idempotency key.
        envelope: &'a M::Envelope,
        /// The command.
        command: &'a M::Command,
        /// Whether it was accepted.
        accepted: bool,
    },
    /// A timer was due.
    Due,
}

/// The stored form of one machine's events and state.
///
/// Written bytes must stay readable: `decode(encode(events)) == events` for every released version.
pub trait Codec: Send + Sync + 'static {
    /// The machine.
    type Machine: Hosted;

    /// The state before the first event.
    fn genesis(&self) -> Self::Machine;

    /// Appends the encoded events of one decision to `body`.
    fn encode(
        &self,
        origin: RecordOrigin<'_, Self::Machine>,
        events: &[<Self::Machine as Machine>::Event],
        body: &mut Vec<u8>,
    );

    /// Appends the decoded events to `events`.
    fn decode(
        &self,
        body: &[u8],
        events: &mut Vec<<Self::Machine as Machine>::Event>,
    ) -> Result<(), CodecError>;

    /// Adds the events that are needed when the clock is too far ahead of the last record to be
    /// trusted. They precede everything that is due by that clock.
    fn doubt_clock(
        &self,
        _machine: &Self::Machine,
        _events: &mut Vec<<Self::Machine as Machine>::Event>,
    ) {
    }

    /// Whether the payload of a batch may contain a message to another machine. If not, a courier
    /// need not decode it.
    fn may_hold_messages(&self, _payload: &[u8]) -> bool {
        true
    }

    /// Encodes a whole state, for a snapshot.
    fn encode_state(&self, machine: &Self::Machine) -> Vec<u8>;

    /// Decodes a state.
    fn decode_state(&self, bytes: &[u8]) -> Result<Self::Machine, CodecError>;
}

/// Why bytes are not valid events or not a valid state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CodecError(pub String);
