//! The cell: nodes, queue, shares and placement of one region.
//!
//! # How to drive it
//! A [`Cell`] is a [`Machine`](crate::machine::Machine). Everything it is asked is a [`Command`],
//! everything that happens is an [`Event`]. Scheduling passes are due steps: after each command,
//! [`advance`](crate::machine::advance) places what can be placed.
//!
//! 1. `RegisterNode` adds a node; `Heartbeat` keeps it alive, carries what its attempts do, and
//!    afterwards [`Cell::orders`] says what the node must do.
//! 2. `AdmitJob` queues a job. A pass answers with `PlacementProposed` (GPUs are taken);
//!    `ConfirmPlacement` or `RefusePlacement` must follow.
//! 3. The node's next order is to start; its report of `Running` starts the meter; its report of
//!    `Succeeded`, `Failed` or `Stopped` ends the attempt (`AttemptEnded`, `JobEnded`), or a
//!    preemption, a lost node or a drain puts the job back into the queue.
//! 4. What a ledger is told of all this follows in the same decision as [`Event::LedgerTold`], and
//!    what a ledger says comes as `Command::from(ToCell)` with [`Origin::Ledger`]: see [`messages`].
//! 5. [`Cell::why`] tells every reason why a job waits, [`Cell::fair_shares`] where accounts stand.
//!
//! # How it reads
//! [`command`] and [`event`] are the outside; `machine` dispatches; `schedule` is the pass, step by
//! step; one file per noun holds what is decided and applied about it.

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
