//! Followers of the journals: the event feed, history, copies of cells, checkpoints, the
//! self-check.

pub mod archive;
pub(crate) mod cell_copy;
pub mod checkpoint;
pub mod error;
pub mod expiry;
pub mod feed;
pub mod history;
pub(crate) mod past_jobs;
pub(crate) mod region_samples;
pub mod selfcheck;
pub(crate) mod timeline;
pub(crate) mod trail;
