//! The cell: nodes, queue, shares and placement of one region.
//!
//! # How to use it
//! A [`Cell`] is a [`Machine`](crate::machine::Machine): [`Command`]s in, [`Event`]s out.
//! Scheduling passes are due steps: after each command, [`advance`](crate::machine::advance) places
//! what can be placed.
//!
//! 1. `RegisterNode` adds a node. `Heartbeat` renews its lease and reports its attempts; afterwards
//!    [`Cell::orders`] returns the node's orders.
//! 2. `AdmitJob` queues a job. A pass answers with `PlacementProposed` (GPUs are taken);
//!    `ConfirmPlacement` or `RefusePlacement` must follow.
//! 3. The node's next order is to start. Its report of `Running` starts metering; its report of
//!    `Succeeded`, `Failed` or `Stopped` ends the attempt (`AttemptEnded`, `JobEnded`). A
//!    preemption, a lost node or a drain requeues the job.
//! 4. Messages to a ledger follow in the same decision as [`Event::LedgerMessageSent`]. Messages from a
//!    ledger arrive as `Command::from(ToCell)` with [`Origin::Ledger`]: see [`messages`].
//! 5. [`Cell::why`] returns every reason why a job waits, [`Cell::fair_shares`] the shares of
//!    accounts.
//!
//! # How to read it
//! [`command`] and [`event`] are the interface. `machine` dispatches. `schedule` is the pass, step
//! by step. One file per noun contains what is decided and applied about it.

pub mod command;
pub mod config;
mod digest;
pub mod event;
pub mod ids;
pub mod image;
pub mod index;
pub mod invariant;
pub mod jobs;
mod machine;
pub mod messages;
pub mod nodes;
pub mod schedule;
pub mod share;
mod state;

pub use command::{Command, Origin, Refusal, Reply};
pub use config::CellConfig;
pub use event::Event;
pub use ids::{AttemptId, ClassRank, JobId};
pub use jobs::orders::{Order, OrderKind, StartOrder};
pub use nodes::owner::NodeKey;
pub use state::Cell;
