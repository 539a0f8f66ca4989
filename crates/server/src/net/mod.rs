//! Connections and the protection against too many or slow ones: limits, shedding, waits and
//! stalls.

pub mod answers;
pub mod bodies;
mod connections;
pub mod counting;
pub(crate) mod framing;
pub mod limits;
pub(crate) mod notify;
pub mod serve;
pub mod shed;
pub mod stall_timeout;
pub(crate) mod turns;
mod unread;
pub mod waits;
