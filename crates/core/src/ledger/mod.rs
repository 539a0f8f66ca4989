//! The ledger: accounts, grants, holds, charges, budgets of the tenants that live on one shard.
//!
//! Read in this order: [`command`], [`event`], [`refusal`] and [`reply`] (what can be asked, what
//! can happen, what can be answered); [`machine`] (dispatch); [`accounts`] (the tree, budgets,
//! quotas, regions); [`credits`] (where credits are and in which order they are spent); [`holds`]
//! (how they move, and what is forgotten); [`jobs`] (what runs); [`index`] (how things are found);
//! [`invariant`] (what must always hold).
//!
//! Every credit is a unit on the [`fefo::Line`] of its bucket, and is at every instant exactly one
//! of free, held, spent, expired, revoked or moved. `Ledger::retag` in [`state`] is the only
//! function that changes that.

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
pub mod state;
pub mod undo;
pub mod validate;

pub use command::{Command, Envelope, LookUp};
pub use event::Event;
pub use refusal::{Blocker, Refusal};
pub use reply::{Accepted, Answer, HoldReply, Refused, Reply};
pub use state::Ledger;
