//! The ledger: accounts, grants, holds, charges, budgets and jobs of the tenants of one shard.
//!
//! Read in this order: [`command`], [`event`], [`refusal`] and [`reply`] (the interface);
//! [`machine`] (dispatch); [`accounts`] (the tree, budgets, quotas, regions); [`credits`] (grants,
//! buckets and the spend order); [`holds`] (movements of credits, and retention); [`jobs`];
//! [`index`] (tables, look-ups and timers); [`sharing`] (with the copy that follows); [`invariant`]
//! (the laws).
//!
//! Every micro-credit is a unit on the [`fefo::Line`] of its bucket. At every instant it is exactly
//! one of free, held, spent, expired, revoked or moved. Only `Ledger::retag` in [`state`] changes
//! that.

pub mod accounts;
pub mod command;
pub mod credits;
mod digest;
pub mod event;
pub mod holds;
pub mod id;
pub mod image;
pub mod index;
pub mod invariant;
pub mod jobs;
pub mod machine;
pub mod refusal;
pub mod reply;
pub mod sharing;
pub mod state;
pub mod undo;
pub mod validate;

pub use command::{Command, Envelope};
pub use event::Event;
pub use refusal::{Blocker, Refusal};
pub use reply::{Accepted, HoldReply, LedgerAnswer, Refused, Reply};
pub use state::Ledger;
