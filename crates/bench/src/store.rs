//! Durable pairs per second through an engine whose journal is in PostgreSQL.

use std::sync::Arc;

use bursar_core::ledger::command::Policy;
use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use serde::Serialize;

use crate::BenchError;
use crate::engine::{Effort, percentiles};
use crate::figure::Figure;
use crate::load::LoadedEngine;

/// Results at one number of commands in flight.
#[derive(Clone, Debug, Serialize)]
pub struct StoreRate {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Number of orgs, each with ten grants.
    pub accounts: usize,
    /// Pairs of place and settle per second. Both commands are durable when they are answered.
    pub pairs_per_second: Figure,
    /// Median time to an answer.
    pub latency_ms: f64,
    /// 99th percentile of the time to an answer.
    pub latency_p99_ms: f64,
    /// Records in the average batch. A batch is one row and one commit.
    pub mean_batch: f64,
}

/// Measures the engine on a new journal in the database at `url`, which must have a synchronous
/// standby. Ends with a check of the invariants, the sums and a replay.
pub fn store_rate(url: &str, in_flight: usize, effort: Effort) -> Result<StoreRate, BenchError> {
    let accounts = effort.accounts;
    let options = PostgresOptions::new(url, format!("bench-{accounts}-{in_flight}"));
    let journal = Arc::new(PostgresJournal::open(options)?);
    let mut loaded = LoadedEngine::on_journal(journal, accounts, in_flight, Policy::default())?;
    let before = loaded.stats();
    let mut rates = Vec::with_capacity(effort.repetitions);
    for _ in 0..effort.repetitions {
        let turn = loaded.run(effort.time)?;
        rates.push(turn.answered as f64 / turn.seconds / 2.0);
    }
    let after = loaded.stats();
    let (latency_ms, latency_p99_ms) = percentiles(&mut loaded.latencies);
    loaded.finish()?;
    let batches = (after.batches - before.batches).max(1) as f64;
    Ok(StoreRate {
        in_flight,
        accounts,
        pairs_per_second: Figure::of(rates),
        latency_ms,
        latency_p99_ms,
        mean_batch: (after.records - before.records) as f64 / batches,
    })
}
