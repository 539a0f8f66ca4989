//! The ledger: what scenarios cannot say in text.

mod ledger_archive;
mod ledger_bounds;
mod ledger_builders;
mod ledger_doubt;
mod ledger_forget;
mod ledger_funding;
mod ledger_jobs;
mod ledger_look_up;
mod name_keys;
