//! The directory: what every server must know before it can answer anybody.
//!
//! API keys (hashes only), the price book, priority classes, regions, quotas, and on which shard
//! each org lives. Read-mostly; copies of it share what they have in common. Read in this order:
//! [`command`], [`event`], [`state`], [`key_ring`], [`price`], [`machine`].

pub mod command;
pub mod event;
pub mod key_ring;
pub mod machine;
pub mod price;
pub mod state;

pub use command::{Accepted, Command, Refusal, Refused, Reply};
pub use event::Event;
pub use state::{ApiKey, Capability, Class, Directory, Quota, Role, Secret};
