//! Journals in memory and files: laws, stored form, segments, archives, proofs.

mod archive;
mod backup;
mod cell_image;
#[path = "../../core/tests/cell_world/mod.rs"]
mod cell_world;
mod conformance;
mod ledger_image;
mod proofs;
mod record_format;
#[path = "support/sealed.rs"]
mod sealed;
mod seeded;
mod segment_format;
mod segments;
mod sqlite_file;
mod sqlite_tail;
mod support;
#[path = "support/traffic.rs"]
mod traffic;
