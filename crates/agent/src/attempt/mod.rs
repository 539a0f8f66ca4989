//! One attempt of a job on this node: its process, its supervisor, its output and its record.

pub mod environment;
pub mod exec;
pub mod output;
pub mod process;
pub mod record;
pub mod supervise;
