//! The types of the HTTP interface: bodies, amounts, times, problems. No logic.
//!
//! One file per resource. Requests reject unknown fields; answers may gain new ones.
//! [`json`] is the strict parser of request bodies, [`problem`] the format of
//! every error.

pub mod accounts;
pub mod amount;
pub mod credits;
pub mod jobs;
pub mod json;
pub mod list;
pub mod nodes;
pub mod problem;
pub mod system;
pub mod terminal;
pub mod time;
pub mod words;

pub use amount::Amount;
pub use list::{List, Page};
pub use problem::{Blocker, BlockerType, Code, Problem};
pub use time::Time;

/// The pattern of an id chosen by a caller.
pub const ID_PATTERN: &str = "^[A-Za-z0-9._:-]{1,64}$";

/// The pattern of an account path.
pub const ACCOUNT_PATTERN: &str = "^[a-z0-9][a-z0-9._-]{0,62}(:[a-z0-9][a-z0-9._-]{0,62}){0,7}$";
