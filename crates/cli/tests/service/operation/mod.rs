//! A server in operation: the event feed, reads, bounds, clocks, self-checks and recorded histories.

mod aside;
mod bounds;
pub(crate) mod feed;
mod histories;
mod http2;
mod load;
mod reading;
pub(crate) mod self_check;
mod system;
mod time;
mod traces;
mod verify;
