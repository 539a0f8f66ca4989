//! First-expiring-first-out pools of credits.

pub mod timeline;
pub use timeline::Timeline;
