//! Overload, and constant load for a long time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar_bench::load_average;
use serde::Serialize;

use super::super::mebibytes;
use super::load::{SPENT, Visited, Work, closed, open};
use super::world::{self, Process};
use crate::exit::Failure;

/// Connections of the closed loops.
const CONNECTIONS: usize = 256;
/// Connections of the overload: more than the server handles at once, so that it has to shed.
const OVERLOAD_CONNECTIONS: usize = 1536;
/// Requests that the server handles at once.
const IN_FLIGHT: u32 = 1024;
/// How many times as many requests come as can be answered.
const TIMES: f64 = 3.0;

/// The result of an overload.
#[derive(Debug, Serialize)]
pub(super) struct Overload {
    peak_requests_per_second: f64,
    offered_requests_per_second: f64,
    goodput_requests_per_second: f64,
    /// Goodput for each request of the peak.
    goodput_ratio: f64,
    reads_answered: f64,
    holds_answered: f64,
    settlements_answered: f64,
    /// From request to answer, of what was answered well.
    p50_ms: f64,
    p99_ms: f64,
    /// The same at the peak.
    peak_p99_ms: f64,
    /// Processor time of the server for each request that was answered well: at the peak, under
    /// overload.
    peak_server_micros: f64,
    server_micros: f64,
    /// Requests that found every connection of the client busy.
    turned_away: u64,
    /// Answered with something else than success or 503.
    failed: u64,
    recovered_requests_per_second: f64,
    /// Requests after the overload for each request of the peak.
    recovery_ratio: f64,
    in_flight_limit: u32,
    load: f64,
}

fn part(counted: &[AtomicU64; 2]) -> f64 {
    let [sent, done] = counted.each_ref().map(|count| count.load(Ordering::Relaxed) as f64);
    done / sent.max(1.0)
}

/// Peak, three times the peak, and the peak again.
pub(super) async fn overload(
    folder: &Path,
    accounts: u32,
    time: Duration,
) -> Result<Overload, Failure> {
    let accounts = accounts as usize;
    let server = Process::server(folder, Some(IN_FLIGHT))?;
    world::set_up(&server.target, accounts).await?;
    let work = Work::Pairs { accounts };
    let before = server.processor_seconds();
    let peak = closed(&server.target, CONNECTIONS, work, time, None).await?;
    let peak_seconds = server.processor_seconds() - before;
    let offered = peak.per_second() * TIMES;
    let visited = open(&server.target, OVERLOAD_CONNECTIONS, accounts, offered, time).await?;
    let visited_seconds = server.processor_seconds() - before - peak_seconds;
    let Visited { counts, settled, answered } = visited;
    let recovered = closed(&server.target, CONNECTIONS, work, time, None).await?;
    let pairs = peak.requests / 2 + recovered.requests / 2 + settled;
    world::check_conservation(&server.target, accounts, i128::from(pairs) * SPENT).await?;
    let done = [&counts.reads, &counts.holds, &counts.settlements];
    let done: u64 = done.iter().map(|kind| kind[1].load(Ordering::Relaxed)).sum();
    let goodput = done as f64 / time.as_secs_f64();
    Ok(Overload {
        peak_requests_per_second: peak.per_second(),
        offered_requests_per_second: offered,
        goodput_requests_per_second: goodput,
        goodput_ratio: goodput / peak.per_second(),
        reads_answered: part(&counts.reads),
        holds_answered: part(&counts.holds),
        settlements_answered: part(&counts.settlements),
        p50_ms: answered.quantile_ms(0.5),
        p99_ms: answered.quantile_ms(0.99),
        peak_p99_ms: peak.quantile_ms(0.99),
        peak_server_micros: peak_seconds * 1e6 / peak.requests as f64,
        server_micros: visited_seconds * 1e6 / answered.requests as f64,
        turned_away: counts.turned_away.load(Ordering::Relaxed),
        failed: counts.failed.load(Ordering::Relaxed),
        recovered_requests_per_second: recovered.per_second(),
        recovery_ratio: recovered.per_second() / peak.per_second(),
        in_flight_limit: IN_FLIGHT,
        load: load_average(),
    })
}

impl Overload {
    pub(super) fn words(&self) -> String {
        format!(
            "peak {:.0} requests/s; offered {:.0}; answered well {:.0}: {:.2} of the peak\n\
             answered: settlements {:.1} %, holds {:.1} %, reads {:.1} %; {} found no connection; \
             {} failed otherwise\nof what was answered well p50 {:.0} ms, p99 {:.0} ms (at the peak {:.0} ms); \
             server {:.1} µs each (at the peak {:.1} µs)\nafterwards {:.0} requests/s: {:.2} of the peak\n\
             at most {} in flight; all accounted for; load {:.1}",
            self.peak_requests_per_second,
            self.offered_requests_per_second,
            self.goodput_requests_per_second,
            self.goodput_ratio,
            self.settlements_answered * 100.0,
            self.holds_answered * 100.0,
            self.reads_answered * 100.0,
            self.turned_away,
            self.failed,
            self.p50_ms,
            self.p99_ms,
            self.peak_p99_ms,
            self.server_micros,
            self.peak_server_micros,
            self.recovered_requests_per_second,
            self.recovery_ratio,
            self.in_flight_limit,
            self.load
        )
    }
}

/// Memory over a long time at half load.
#[derive(Debug, Serialize)]
pub(super) struct Soak {
    seconds: f64,
    requests_per_second: f64,
    requests: u64,
    resident_start_bytes: u64,
    resident_end_bytes: u64,
    /// Memory for each pair that is remembered.
    bytes_per_pair: f64,
    p99_ms: f64,
    load: f64,
}

/// Runs half of the peak load for a while.
pub(super) async fn soak(folder: &Path, accounts: u32, time: Duration) -> Result<Soak, Failure> {
    let accounts = accounts as usize;
    let server = Process::server(folder, None)?;
    world::set_up(&server.target, accounts).await?;
    let work = Work::Pairs { accounts };
    let warm = Duration::from_secs(3);
    let peak = closed(&server.target, CONNECTIONS, work, warm, None).await?;
    let resident_start_bytes = server.resident_bytes();
    let half = Some(peak.per_second() / 2.0);
    let done = closed(&server.target, CONNECTIONS, work, time, half).await?;
    let resident_end_bytes = server.resident_bytes();
    let pairs = peak.requests / 2 + done.requests / 2;
    world::check_conservation(&server.target, accounts, i128::from(pairs) * SPENT).await?;
    let grown = resident_end_bytes.saturating_sub(resident_start_bytes);
    Ok(Soak {
        seconds: done.seconds,
        requests_per_second: done.per_second(),
        requests: done.requests,
        resident_start_bytes,
        resident_end_bytes,
        bytes_per_pair: grown as f64 / (done.requests as f64 / 2.0),
        p99_ms: done.quantile_ms(0.99),
        load: load_average(),
    })
}

impl Soak {
    pub(super) fn words(&self) -> String {
        format!(
            "{:.0} s at {:.0} requests/s, half of the peak: {} requests, p99 {:.2} ms\n\
             resident {} at the start, {} at the end: {:.0} bytes for each pair\nall accounted for; load {:.1}",
            self.seconds,
            self.requests_per_second,
            self.requests,
            self.p99_ms,
            mebibytes(self.resident_start_bytes),
            mebibytes(self.resident_end_bytes),
            self.bytes_per_pair,
            self.load
        )
    }
}
