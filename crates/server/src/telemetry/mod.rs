//! Metrics for `/metrics`. Labels have few values: never an account, a key or an id.

mod following;
mod labels;
pub mod monotonic;
pub mod trace;

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar_engine::{FollowerLag, Stats, Status, Trouble, Written};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use self::following::FollowerMetrics;
use self::labels::{ExpiryNotice, Forwarded, GpusOf, InRegion, Machine, Refused, Request, Route};
use crate::logs::LogStatus;
use crate::machines::ledgers::ledger_name;

/// The first ledger's name in metrics.
pub const LEDGER: &str = "Ledger";

/// The name of a shard's ledger in metrics: that of the first one is older than shards.
pub fn metric_name(shard: u16) -> String {
    if shard == 0 { LEDGER.to_owned() } else { ledger_name(shard) }
}

/// The directory's name in metrics.
pub const DIRECTORY: &str = "Directory";

/// A gauge of seconds or of GPUs, which may be fractions.
type Measure = Gauge<f64, AtomicU64>;

/// The gauges of a region, computed when metrics are read.
#[derive(Clone, Debug, Default)]
pub struct RegionCounts {
    /// Registered nodes.
    pub nodes: u32,
    /// Nodes that accept jobs.
    pub ready: u32,
    /// By GPU type: thousandths of GPUs in use, and free on nodes that accept jobs.
    pub gpus: Vec<(String, u32, u32)>,
    /// Jobs that have GPUs.
    pub running: u32,
    /// Jobs that wait for GPUs.
    pub waiting: u32,
    /// Kinds of timers and messages that were set aside.
    pub set_aside: Vec<&'static str>,
}

/// All metrics.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<Request, Counter>,
    durations: Family<Route, Histogram>,
    problems: Family<Refused, Counter>,
    forwarded: Family<Forwarded, Counter>,
    in_flight: Gauge,
    only_waiting: Gauge,
    incomplete_bodies: Gauge,
    log_bytes: Gauge,
    log_files: Gauge,
    log_no_room: Gauge,
    log_pieces_refused: Counter,
    log_files_removed: Counter,
    waiting: Family<Machine, Gauge>,
    batches: Family<Machine, Counter>,
    records: Family<Machine, Counter>,
    bytes: Family<Machine, Counter>,
    largest_batch: Family<Machine, Gauge>,
    rebuilds: Family<Machine, Counter>,
    panics: Family<Machine, Counter>,
    set_aside: Family<Machine, Gauge>,
    longest_turn: Family<Machine, Measure>,
    snapshot_failures: Family<Machine, Counter>,
    renewal_failures: Family<Machine, Counter>,
    serving: Family<Machine, Gauge>,
    appends: Family<Machine, Histogram>,
    batch_sizes: Family<Machine, Histogram>,
    replayed: Family<Machine, Gauge>,
    replay_until: Family<Machine, Gauge>,
    history_position: Gauge,
    archive_position: Gauge,
    closed_in_memory: Gauge,
    checked: Counter,
    violations: Counter,
    nodes: Family<InRegion, Gauge>,
    nodes_ready: Family<InRegion, Gauge>,
    gpus: Family<GpusOf, Measure>,
    running_jobs: Family<InRegion, Gauge>,
    waiting_jobs: Family<InRegion, Gauge>,
    heartbeats: Family<InRegion, Histogram>,
    clock_skew: Family<InRegion, Measure>,
    clock_ahead: Measure,
    expiry_waits: Gauge,
    store_clock: Measure,
    expiry_warnings: Family<ExpiryNotice, Counter>,
    followers: FollowerMetrics,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 2.0, 18))
}

/// Milliseconds as seconds, the base unit of metrics.
fn seconds_of(millis: i64) -> f64 {
    let length = Duration::from_millis(millis.unsigned_abs()).as_secs_f64();
    if millis < 0 { -length } else { length }
}

/// Sets a counter to a total that is counted elsewhere. It begins again at zero with the process.
fn total(counter: &Counter, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 14))
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Creates the metrics, all zero.
    pub fn new() -> Metrics {
        let durations = Family::new_with_constructor(seconds as fn() -> Histogram);
        let appends = Family::new_with_constructor(seconds as fn() -> Histogram);
        let batch_sizes = Family::new_with_constructor(sizes as fn() -> Histogram);
        let heartbeats = Family::new_with_constructor(seconds as fn() -> Histogram);
        let metrics = Metrics {
            registry: Mutex::new(Registry::with_prefix("bursar")),
            requests: Family::default(),
            durations,
            problems: Family::default(),
            forwarded: Family::default(),
            in_flight: Gauge::default(),
            only_waiting: Gauge::default(),
            incomplete_bodies: Gauge::default(),
            log_bytes: Gauge::default(),
            log_files: Gauge::default(),
            log_no_room: Gauge::default(),
            log_pieces_refused: Counter::default(),
            log_files_removed: Counter::default(),
            waiting: Family::default(),
            batches: Family::default(),
            records: Family::default(),
            bytes: Family::default(),
            largest_batch: Family::default(),
            rebuilds: Family::default(),
            panics: Family::default(),
            set_aside: Family::default(),
            longest_turn: Family::default(),
            snapshot_failures: Family::default(),
            renewal_failures: Family::default(),
            serving: Family::default(),
            appends,
            batch_sizes,
            replayed: Family::default(),
            replay_until: Family::default(),
            history_position: Gauge::default(),
            archive_position: Gauge::default(),
            closed_in_memory: Gauge::default(),
            checked: Counter::default(),
            violations: Counter::default(),
            nodes: Family::default(),
            nodes_ready: Family::default(),
            gpus: Family::default(),
            running_jobs: Family::default(),
            waiting_jobs: Family::default(),
            heartbeats,
            clock_skew: Family::default(),
            clock_ahead: Measure::default(),
            expiry_waits: Gauge::default(),
            store_clock: Measure::default(),
            expiry_warnings: Family::default(),
            followers: FollowerMetrics::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut all = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.register("http_requests", "Requests by route and status", self.requests.clone());
        all.register_with_unit(
            "http_request_duration",
            "Time from the last header to the answer, without what the request waited for on purpose",
            Unit::Seconds,
            self.durations.clone(),
        );
        all.register("problems", "Answers that were problems, by code", self.problems.clone());
        let help = "Attempts to forward a request to the member that leads, by outcome";
        all.register("forwarded_requests", help, self.forwarded.clone());
        all.register("http_in_flight", "Requests being handled", self.in_flight.clone());
        let help = "Long polls, streams and reads that wait for a position";
        all.register("http_waiting", help, self.only_waiting.clone());
        let help = "Requests whose bodies are incomplete";
        all.register("http_incomplete_bodies", help, self.incomplete_bodies.clone());
        all.register("log_bytes", "Bytes of output of jobs that are kept", self.log_bytes.clone());
        all.register("log_files", "Files of output of jobs", self.log_files.clone());
        let help =
            "1 if no output of jobs is accepted, because the file system has too little room";
        all.register("log_no_room", help, self.log_no_room.clone());
        let help = "Pieces of output that were refused for lack of room";
        all.register("log_pieces_refused", help, self.log_pieces_refused.clone());
        let help = "Files of output that were removed in favour of newer ones";
        all.register("log_files_removed", help, self.log_files_removed.clone());
        all.register("mailbox_waiting", "Messages waiting for answers", self.waiting.clone());
        all.register("nodes", "Nodes that are registered", self.nodes.clone());
        all.register("nodes_ready", "Nodes that accept jobs", self.nodes_ready.clone());
        let help = "GPUs in use, and free on nodes that accept jobs; shares are fractions";
        all.register("gpus", help, self.gpus.clone());
        all.register("jobs_running", "Jobs that have GPUs", self.running_jobs.clone());
        all.register("jobs_waiting", "Jobs that wait in a region", self.waiting_jobs.clone());
        all.register_with_unit(
            "heartbeat_duration",
            "Time to process a node's report, without its wait for orders",
            Unit::Seconds,
            self.heartbeats.clone(),
        );
        let help = "How far the last report claimed more running time than was observed";
        let ahead = self.clock_skew.clone();
        all.register_with_unit("agent_clock_ahead", help, Unit::Seconds, ahead);
        let help = "How far the wall clock jumped ahead and is not followed; negative: how far it is \
            behind the last record; 0 if it is followed";
        all.register_with_unit("clock_ahead", help, Unit::Seconds, self.clock_ahead.clone());
        let help = "1 if no grant expires until an operator accepts the clock";
        all.register("clock_expiry_waits", help, self.expiry_waits.clone());
        let help = "How far the clock of the database is ahead of this server's; negative: behind it; \
            a server more than 2 off takes no machine";
        all.register_with_unit("store_clock_ahead", help, Unit::Seconds, self.store_clock.clone());
        self.followers.register(&mut all);
        let help = "Warnings that credits of an account expire soon, by the time before";
        all.register("expiry_warnings", help, self.expiry_warnings.clone());
        all.register("journal_batches", "Durable writes", self.batches.clone());
        all.register("journal_records", "Records written", self.records.clone());
        all.register_with_unit(
            "journal_written",
            "Size of records",
            Unit::Bytes,
            self.bytes.clone(),
        );
        let help = "The most records of one durable write";
        all.register("journal_largest_batch_records", help, self.largest_batch.clone());
        let help = "How often the state was built from the journal";
        all.register("journal_rebuilds", help, self.rebuilds.clone());
        let help = "Requests, messages and timers that panicked; each failed alone";
        all.register("machine_panics", help, self.panics.clone());
        let help = "Timers and messages that panicked three times and were set aside";
        all.register("machine_set_aside", help, self.set_aside.clone());
        let help = "The longest turn of messages, for which other tenants waited";
        let longest = self.longest_turn.clone();
        all.register_with_unit("machine_longest_turn", help, Unit::Seconds, longest);
        let help = "Snapshots that could not be stored";
        all.register("snapshot_failures", help, self.snapshot_failures.clone());
        let help = "Renewals of a lease that failed";
        all.register("lease_renewal_failures", help, self.renewal_failures.clone());
        all.register("writer_serving", "1 if the writer answers everything", self.serving.clone());
        all.register_with_unit(
            "journal_append_duration",
            "Time of one durable write",
            Unit::Seconds,
            self.appends.clone(),
        );
        let help = "Records of one durable write";
        all.register("journal_batch_records", help, self.batch_sizes.clone());
        let help = "The position up to which the state was built from the journal at the last start or rebuild";
        all.register("replay_position", help, self.replayed.clone());
        let help = "The position up to which the state had to be built";
        all.register("replay_target", help, self.replay_until.clone());
        let help = "The last position that history has";
        all.register("history_position", help, self.history_position.clone());
        let help = "The last record whose closed holds the archive has, up to what was forgotten";
        all.register("archive_position", help, self.archive_position.clone());
        let help = "Closed holds and charges, movements and kept answers in memory";
        all.register("ledger_closed_in_memory", help, self.closed_in_memory.clone());
        let help = "Accounts whose invariants were checked while running";
        all.register("self_check_accounts", help, self.checked.clone());
        let help = "Invariant violations found while running";
        all.register("self_check_violations", help, self.violations.clone());
    }

    /// Counts an answered request.
    pub fn request(
        &self,
        method: &'static str,
        route: Cow<'static, str>,
        status: u16,
        took: Duration,
    ) {
        let labels = Request { method, route, status };
        self.requests.get_or_create(&labels).inc();
        let labels = Route { route: labels.route };
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts an answer that was a problem.
    pub fn problem(&self, code: &'static str) {
        self.problems.get_or_create(&Refused { code }).inc();
    }

    /// Counts an attempt to forward a request: `answered`, `not_sent` or `unanswered`.
    pub fn forwarded(&self, outcome: &'static str) {
        self.forwarded.get_or_create(&Forwarded { outcome }).inc();
    }

    /// Counts accounts whose invariants were checked.
    pub fn checked(&self, accounts: u64) {
        self.checked.inc_by(accounts);
    }

    /// Counts an invariant violation.
    pub fn violation(&self) {
        self.violations.inc();
    }

    /// The number of invariant violations.
    pub fn violations(&self) -> u64 {
        self.violations.get()
    }

    /// Records the duration and size of a durable write.
    pub fn append(&self, machine: &str, written: Written) {
        let labels = Machine { machine: machine.to_owned() };
        self.appends.get_or_create(&labels).observe(written.took.as_secs_f64());
        self.batch_sizes.get_or_create(&labels).observe(written.records.into());
    }

    /// Logs and counts a failure that no caller receives as an answer.
    pub fn trouble(&self, machine: &str, trouble: &Trouble) {
        let labels = Machine { machine: machine.to_owned() };
        match trouble {
            Trouble::LeaseNotRenewed(error) => {
                tracing::warn!(machine, %error, "the lease was not renewed");
                self.renewal_failures.get_or_create(&labels).inc();
            }
            Trouble::NotFollowed(reason) => {
                tracing::warn!(
                    machine,
                    reason,
                    "the state that followed the journal is dropped and built again"
                );
            }
            Trouble::NotServed(reason) => tracing::warn!(machine, reason, "not served"),
            Trouble::NoSnapshot(error) => {
                tracing::error!(machine, %error, "no snapshot: the next start takes longer");
                self.snapshot_failures.get_or_create(&labels).inc();
            }
            Trouble::CopyDiffers => {
                tracing::error!(
                    machine,
                    "the state in memory is not what the journal gives: restart the server, which rebuilds it, and \
                     run `bursar audit verify`"
                );
                self.violation();
            }
        }
    }

    /// Records how long a node's report took, without its wait for orders, and how far the node's
    /// clock was ahead of what the cell observed.
    pub fn heartbeat(&self, region: &str, took: Duration, ahead_ms: Option<i64>) {
        let labels = InRegion { region: region.to_owned() };
        self.heartbeats.get_or_create(&labels).observe(took.as_secs_f64());
        if let Some(ahead) = ahead_ms {
            self.clock_skew.get_or_create(&labels).set(seconds_of(ahead));
        }
    }

    /// Records the state of the wall clock.
    pub fn time(&self, ahead_ms: i64, expiry_waits: bool) {
        self.clock_ahead.set(seconds_of(ahead_ms));
        self.expiry_waits.set(expiry_waits.into());
    }

    /// Records how far the clock of the database is ahead of this server's.
    pub fn store_clock(&self, ahead_ms: i64) {
        self.store_clock.set(seconds_of(ahead_ms));
    }

    /// Records how far the state of a machine that another server owns is behind.
    pub fn follower_lag(&self, machine: &str, lag: Option<FollowerLag>) {
        self.followers.set(machine, lag);
    }

    /// Counts a warning that credits of an account expire soon.
    pub fn expiry_warning(&self, before: &'static str) {
        self.expiry_warnings.get_or_create(&ExpiryNotice { before }).inc();
    }

    /// Records the gauges of a region.
    pub fn region(&self, region: &str, counts: &RegionCounts) {
        let labels = InRegion { region: region.to_owned() };
        self.nodes.get_or_create(&labels).set(counts.nodes.into());
        self.nodes_ready.get_or_create(&labels).set(counts.ready.into());
        self.running_jobs.get_or_create(&labels).set(counts.running.into());
        self.waiting_jobs.get_or_create(&labels).set(counts.waiting.into());
        for (gpu_type, used, free) in &counts.gpus {
            for (state, thousandths) in [("used", used), ("free", free)] {
                let gpu_type = gpu_type.clone();
                let labels = GpusOf { region: region.to_owned(), gpu_type, state };
                self.gpus.get_or_create(&labels).set(f64::from(*thousandths) / 1000.0);
            }
        }
    }

    /// Records the status of a machine's writer.
    pub fn machine(&self, machine: &str, waiting: i64, stats: &Stats, status: &Status) {
        let labels = Machine { machine: machine.to_owned() };
        let set = |gauge: &Family<Machine, Gauge>, value: u64| {
            gauge.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let count = |counter: &Family<Machine, Counter>, value: u64| {
            total(&counter.get_or_create(&labels), value);
        };
        self.waiting.get_or_create(&labels).set(waiting);
        count(&self.batches, stats.batches);
        count(&self.records, stats.records);
        count(&self.bytes, stats.bytes);
        count(&self.rebuilds, stats.rebuilds);
        count(&self.followers.continued, stats.continued);
        count(&self.panics, stats.panics);
        set(&self.largest_batch, stats.largest_batch);
        set(&self.set_aside, stats.set_aside);
        let longest = Duration::from_micros(stats.longest_turn_micros);
        self.longest_turn.get_or_create(&labels).set(longest.as_secs_f64());
        set(&self.replayed, stats.replayed);
        set(&self.replay_until, stats.replay_until);
        set(&self.serving, u64::from(*status == Status::Serving));
    }

    /// Records the number of requests with incomplete bodies.
    pub fn incomplete_bodies(&self, count: usize) {
        self.incomplete_bodies.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records the number of waiting requests.
    pub fn only_waiting(&self, count: usize) {
        self.only_waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records the size of the stored output of jobs.
    pub fn logs(&self, logs: LogStatus) {
        let shown = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.log_bytes.set(shown(logs.bytes));
        self.log_files.set(shown(logs.files));
        self.log_no_room.set(i64::from(logs.no_room));
        total(&self.log_pieces_refused, logs.refused);
        total(&self.log_files_removed, logs.removed);
    }

    /// Updates what is known of the archive.
    pub fn archive(&self, position: u64, closed_in_memory: usize) {
        self.archive_position.set(i64::try_from(position).unwrap_or(i64::MAX));
        self.closed_in_memory.set(i64::try_from(closed_in_memory).unwrap_or(i64::MAX));
    }

    /// All metrics in the Prometheus text format.
    pub fn text(&self, in_flight: usize, history_position: u64) -> String {
        self.in_flight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
        self.history_position.set(i64::try_from(history_position).unwrap_or(i64::MAX));
        let mut text = String::new();
        let all = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        encode(&mut text, &all).expect("writing to a string never fails");
        text
    }
}

#[cfg(test)]
mod tests;
