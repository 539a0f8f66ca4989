//! The directory: what every server needs before it can answer a request.
//!
//! API keys (hashes only), the price book, priority classes, regions, quotas of older journals, and
//! the shard of each org. It is read far more often than written, and copies share unchanged parts.
//! Read in this order: [`command`], [`event`], [`state`], [`shards`], [`key_ring`], [`price`], [`machine`].

pub mod command;
pub mod event;
pub mod key_ring;
pub mod machine;
pub mod price;
pub mod shards;
pub mod state;

pub use command::{Command, DirectoryAccepted, DirectoryRefused, Refusal, Reply};
pub use event::Event;
pub use key_ring::EndedKey;
pub use shards::ShardState;
pub use state::{ApiKey, Capability, Class, Directory, Quota, Role, Secret};
