//! Jobs, what they refer to, their quotes, their timelines and their priority classes.

pub mod class;
pub mod expand;
pub mod job;
pub mod quote;
pub mod timeline;
