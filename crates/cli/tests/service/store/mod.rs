//! Files and databases: the archive, sealed segments, moves, damage, full disks, takeover.

mod archive;
mod cluster;
mod file_table;
mod files;
mod following;
mod forms;
mod forwarding;
mod migrate;
mod point_in_time;
mod postgres;
pub(crate) mod postgres_serve;
pub(crate) mod postgres_store;
mod retention;
mod segments;
mod shard_stores;
pub(crate) mod standby;
mod storage;
mod store_test;
mod takeover;
