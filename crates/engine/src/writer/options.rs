//! The options of an engine, and the state of its writer.

use std::time::Duration;

use crate::lease::Permit;
use crate::writer::observer::Observer;

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The name of the lease holder. Two servers must have different names.
    pub holder: String,
    /// Messages that may wait. Further ones are refused at once.
    pub mailbox: usize,
    /// How long the store keeps a lease that is not renewed.
    pub lease_ttl: Duration,
    /// A batch of this many bytes is handed over before more is decided.
    pub batch_bytes: usize,
    /// The pause before the next attempt to take over, or to write after the disk was full.
    pub retry: Duration,
    /// Receives durable writes and troubles.
    pub observer: Observer,
    /// How far the clock may be ahead of the last record when the machine is taken over. Beyond
    /// that the machine decides which timers must wait: see [`Codec::doubt_clock`].
    pub max_gap: Duration,
    /// Whether this process may own machines.
    pub permit: Permit,
    /// Whether the state follows the journal while this process may not own the machine.
    pub follow: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            holder: "bursar".into(),
            mailbox: 16_384,
            lease_ttl: Duration::from_secs(10),
            batch_bytes: 4 << 20,
            retry: Duration::from_secs(1),
            observer: Observer::default(),
            max_gap: Duration::MAX,
            permit: Permit::default(),
            follow: false,
        }
    }
}

/// The state of the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Takes over the journal and rebuilds the state.
    Starting,
    /// Answers everything.
    Serving,
    /// Answers reads only: the disk is full.
    ReadOnly,
    /// Cannot take over yet, and why.
    Waiting(String),
    /// Ended, and why. Only a new process can serve again.
    Stopped(String),
}
