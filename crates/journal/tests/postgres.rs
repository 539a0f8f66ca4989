//! Journals in PostgreSQL.

mod postgres_faults;
mod postgres_manifest;
mod postgres_segments;
mod postgres_tls;
#[path = "support/sealed.rs"]
mod sealed;
mod support;
