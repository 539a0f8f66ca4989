//! How a machine's events and state become bytes and come back.

mod cell;
mod directory;
mod ledger;

use bursar_core::machine::Machine;
use thiserror::Error;

pub use cell::CellCodec;
pub use directory::DirectoryCodec;
pub use ledger::LedgerCodec;

/// A machine whose parts may travel between threads. Every such machine is one.
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

/// Why the events of a record happened; a codec may store it with them, for the audit.
pub enum Origin<'a, M: Machine> {
    /// Somebody asked.
    Command {
        /// Who, and under which key.
        envelope: &'a M::Envelope,
        /// What.
        command: &'a M::Command,
        /// Whether it was accepted.
        accepted: bool,
    },
    /// It fell due.
    Due,
}

/// The stored form of one machine's events and state.
///
/// Bytes once written must stay readable: `decode(encode(events)) == events` for every version that
/// was ever released.
pub trait Codec: Send + Sync + 'static {
    /// The machine whose events these are.
    type Machine: Hosted;

    /// The state before the first event.
    fn genesis(&self) -> Self::Machine;

    /// Writes the events of one decision behind what is in `body`.
    fn encode(
        &self,
        origin: Origin<'_, Self::Machine>,
        events: &[<Self::Machine as Machine>::Event],
        body: &mut Vec<u8>,
    );

    /// Reads them back, behind what is in `events`.
    fn decode(
        &self,
        body: &[u8],
        events: &mut Vec<<Self::Machine as Machine>::Event>,
    ) -> Result<(), CodecError>;

    /// Pushes what happens when the clock has gone further ahead of the last record than can be
    /// believed, before anything that is due by it.
    fn doubt_clock(
        &self,
        _machine: &Self::Machine,
        _events: &mut Vec<<Self::Machine as Machine>::Event>,
    ) {
    }

    /// Whether there may be a letter to another machine among the events in the payload of a batch. Where there is
    /// certainly none, a courier need not read them.
    fn may_hold_letters(&self, _payload: &[u8]) -> bool {
        true
    }

    /// Writes a whole state, for a snapshot.
    fn encode_state(&self, machine: &Self::Machine) -> Vec<u8>;

    /// Reads it back.
    fn decode_state(&self, bytes: &[u8]) -> Result<Self::Machine, CodecError>;
}

/// Why bytes are not events or not a state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CodecError(pub String);
