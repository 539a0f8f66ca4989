//! The ledger: accounts, grants, holds, charges, budgets of the tenants that live on one shard.
//!
//! Read in this order: [`command`], [`event`], [`refusal`] and [`answer`] (what can be asked, what
//! can happen, what can be answered); [`machine`] (dispatch); [`account`], [`grant`], [`bucket`],
//! [`spend_order`], [`draw`] (where credits are and in which order they are spent); [`hold`],
//! [`hold_record`], [`capture`], [`close`], [`charge`], [`refund`], [`transfer`] (how they move); [`budget`]; [`job`],
//! [`region`] and [`quota`] (what runs, and what cells are told and tell); [`retention`] and
//! [`archive`] (what is forgotten); [`invariant`] (what must always hold).
//!
//! Every credit is a unit on the [`fefo::Line`] of its bucket, and is at every instant exactly one
//! of free, held, spent, expired, revoked or moved. `Ledger::retag` in [`state`] is the only
//! function that changes that.

pub mod account;
pub mod answer;
pub mod answers;
pub mod archive;
pub mod aside;
pub mod bucket;
pub mod budget;
pub mod capture;
pub mod charge;
pub mod close;
pub mod collect;
pub mod command;
pub mod draw;
pub mod event;
mod fingerprint;
mod foresight;
pub mod grant;
pub mod hold;
pub mod hold_record;
pub mod id;
pub mod image;
pub mod invariant;
pub mod job;
pub mod late;
pub mod list;
pub mod machine;
pub mod names;
pub mod numbers;
mod overlay;
pub mod price;
pub mod quota;
pub mod refund;
pub mod refusal;
pub mod region;
pub mod retention;
pub mod slab;
pub mod spend_order;
pub mod state;
pub mod subject;
pub mod tally;
pub mod timer;
pub mod transfer;
pub mod undo;
pub mod validate;
pub mod view;

pub use answer::{Accepted, Answer, HoldReply, Refused, Reply};
pub use command::{Command, Envelope};
pub use event::Event;
pub use refusal::{Blocker, Refusal};
pub use state::Ledger;
