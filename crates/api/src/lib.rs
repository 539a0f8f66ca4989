//! What travels over the HTTP interface: bodies, amounts, times, problems. No logic.
//!
//! One file per resource. Requests refuse fields they do not know; answers may grow new ones.
//! [`json`] is the strict reader that every request body goes through, [`problem`] the one form of
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

pub use amount::Amount;
pub use list::{List, Page};
pub use problem::{Blocker, BlockerType, Code, Problem};
pub use time::Time;

/// The form of an id that a caller may choose, as a regular expression.
pub const ID_PATTERN: &str = "^[A-Za-z0-9._:-]{1,64}$";

/// The form of an account path, as a regular expression.
pub const ACCOUNT_PATTERN: &str = "^[a-z0-9][a-z0-9._-]{0,62}(:[a-z0-9][a-z0-9._-]{0,62}){0,7}$";
