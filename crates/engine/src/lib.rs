//! Makes the decisions of a machine durable.
//!
//! One thread, the writer, owns the state of a machine. It drains its mailbox, decides and applies
//! one command after the other, and hands the records to a second thread, which appends them to the
//! journal in one durable write. Answers are sent only after that, including those of reads and
//! refusals. While a batch is being written the next one is decided. When an append fails or its
//! outcome is unknown, the state is dropped and rebuilt from the journal. Recovery and start are
//! the same code path.
//!
//! All other work happens after the commit, on separate threads: followers read the journal and
//! update projections, one of them makes snapshots, and couriers deliver messages to other
//! machines.

pub mod archiver;
pub mod clock;
mod codec;
pub mod courier;
pub mod cut;
mod error;
#[cfg(debug_assertions)]
mod fault;
mod followed;
pub mod follower;
mod lease;
pub mod recall;
mod replay;
mod snapshot;
mod vital;
mod writer;

pub use clock::{Clock, ClockAlarm, ManualClock, WallClock, wall_millis};
pub use codec::{CellCodec, Codec, CodecError, DirectoryCodec, Hosted, LedgerCodec, RecordOrigin};
pub use courier::messages::{
    CellToLedger, LedgerToCell, cell_inbox, ledger_inbox, to_cell, to_ledger,
};
pub use error::{EngineError, ReplayError};
pub use followed::{Followed, FollowerLag};
pub use lease::{BootClock, LeaseTrust, Monotonic, NotPermitted, Permit, SystemMonotonic};
pub use replay::{Replayed, copy_or_replay, replay, replay_from_genesis};
pub use snapshot::{SnapshotPace, Snapshotter};
pub use vital::{Vital, vital_failure};
pub use writer::counters::Stats;
pub use writer::durable::Durable;
pub use writer::handle::{
    Aborted, CommandAnswer, GroupAnswer, GroupDecision, Handle, Responder, Seen, Transaction,
    WorkMark, attempt,
};
pub use writer::lifecycle::Engine;
pub use writer::mailbox::{Sender, Urgency};
pub use writer::observer::{Observer, Trouble, Written};
pub use writer::options::{EngineOptions, Status};
