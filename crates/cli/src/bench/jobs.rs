//! `bursar bench jobs`: many running jobs against one server on SQLite, each metered by the reports of
//! its node, as agents send them. At the end every job is paid for to the micro-credit.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bursar_bench::load_average;
use bursar_engine::{Clock, WallClock};
use bursar_journal::Journal;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http::wire::{Connection, Target};
use super::http::world::{Process, TENANT, call, create_all, micros, wrong};
use super::{Place, mebibytes};
use crate::exit::Failure;
use crate::render::print_line;

/// GPUs, and so jobs, of one node.
const GPUS: usize = 8;
/// Accounts among which the jobs are spread.
const ACCOUNTS: usize = 100;
/// Micro-credits per GPU-hour.
const PRICE: u128 = 2_500_000;
/// Connections that carry the reports; an agent keeps its own, but here they share one process.
const CONNECTIONS: usize = 32;

#[derive(Args)]
pub(crate) struct JobsArguments {
    /// The number of jobs that run at once, eight to a node.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(8..=200_000))]
    jobs: u32,
    /// The time for which reports are measured, in seconds.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The seconds between two reports of a node.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    #[command(flatten)]
    place: Place,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct JobsBenchReport {
    jobs: usize,
    nodes: usize,
    /// From the first submission until every job runs.
    start_seconds: f64,
    reports: usize,
    reports_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    worst_ms: f64,
    /// Processor time of the server for each second of the measured time: 1 is one core.
    cores: f64,
    resident_bytes: u64,
    cell_bytes_per_report: f64,
    ledger_bytes_per_report: f64,
    /// Durable writes of the cell for each report: below 1, as reports share them.
    cell_writes_per_report: f64,
    ledger_writes_per_report: f64,
    /// Devices that were given to two attempts at once.
    double_use: usize,
    /// Jobs that cost more than was held for them.
    above_hold: usize,
    charged: String,
    load: f64,
}

/// One node, and what its agent knows.
struct Node {
    name: String,
    incarnation: u64,
    seq: u64,
    attempts: Vec<Attempt>,
}

struct Attempt {
    id: String,
    job: String,
    gpu: String,
    /// Set with the first report: the server credits no more than it has seen.
    started: Option<Instant>,
    gpu_ms: u64,
}

/// One worker with its connection and its nodes.
struct Worker {
    connection: Connection,
    target: Target,
    nodes: Vec<Node>,
}

pub(crate) fn run(arguments: &JobsArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = arguments.place.folder()?;
    let report = runtime.block_on(measure(folder.path(), arguments))?;
    let words = if arguments.json { serde_json::to_string(&report)? } else { report.words() };
    print_line(&words)
}

async fn measure(folder: &Path, arguments: &JobsArguments) -> Result<JobsBenchReport, Failure> {
    let (jobs, nodes) = (arguments.jobs as usize, (arguments.jobs as usize).div_ceil(GPUS));
    let server = Process::server(folder, None)?;
    let mut workers = set_up(&server.target, nodes).await?;
    let begun = Instant::now();
    submit(&server.target, jobs).await?;
    let mut running = 0;
    while running < jobs {
        workers = each(workers, |mut worker| async move {
            for node in 0..worker.nodes.len() {
                worker.report(node, "running").await?;
            }
            Ok(worker)
        })
        .await?;
        running = workers.iter().flat_map(|w| &w.nodes).map(|node| node.attempts.len()).sum();
    }
    let start_seconds = begun.elapsed().as_secs_f64();

    let data = folder.join("data");
    let (processor, start) = (server.processor_seconds(), Instant::now());
    let from = wall_millis();
    let (time, interval) =
        (Duration::from_secs(arguments.seconds), Duration::from_secs(arguments.interval));
    let (workers, mut micros_taken) = steadily(workers, start, time, interval).await?;
    let elapsed = start.elapsed().as_secs_f64();
    let until = wall_millis();
    let cores = (server.processor_seconds() - processor) / elapsed;
    let resident_bytes = server.resident_bytes();

    let double_use = workers.iter().flat_map(|w| &w.nodes).map(double_use).sum();
    let workers = finish(workers).await?;
    let (above_hold, charged) = check(&server.target, &workers).await?;
    drop(workers);
    drop(server);
    micros_taken.sort_unstable();
    let quantile = |part: f64| {
        let place = (micros_taken.len() as f64 * part) as usize;
        let place = place.min(micros_taken.len().saturating_sub(1));
        micros_taken.get(place).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    };
    let reports = micros_taken.len();
    let cell = written(&data.join("cell-default.db"), from, until)?;
    let ledger = written(&data.join("ledger-0.db"), from, until)?;
    let per_report = |count: usize| count as f64 / reports.max(1) as f64;
    Ok(JobsBenchReport {
        jobs,
        nodes,
        start_seconds,
        reports,
        reports_per_second: reports as f64 / elapsed,
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        worst_ms: quantile(1.0),
        cores,
        resident_bytes,
        cell_bytes_per_report: per_report(cell.bytes),
        ledger_bytes_per_report: per_report(ledger.bytes),
        cell_writes_per_report: per_report(cell.writes),
        ledger_writes_per_report: per_report(ledger.writes),
        double_use,
        above_hold,
        charged: format!("{}.{:06}", charged / 1_000_000, charged % 1_000_000),
        load: load_average(),
    })
}

/// The server's time: both read the clock of this machine.
fn wall_millis() -> i64 {
    WallClock::new().now().millis()
}

/// Bytes and durable writes of a journal in a time.
struct Written {
    bytes: usize,
    writes: usize,
}

fn written(file: &Path, from: i64, until: i64) -> Result<Written, Failure> {
    let journal = SqliteJournal::open(file, SqliteOptions::default())?;
    let mut written = Written { bytes: 0, writes: 0 };
    for batch in journal.read(journal.head_at(0)?)? {
        let batch = batch?;
        if (from..until).contains(&batch.time.millis()) {
            written.bytes += batch.payload.len();
            written.writes += 1;
        }
    }
    Ok(written)
}

/// Does the same with every worker at once.
async fn each<F>(workers: Vec<Worker>, work: impl Fn(Worker) -> F) -> Result<Vec<Worker>, Failure>
where
    F: Future<Output = Result<Worker, Failure>> + Send + 'static,
{
    let mut tasks: JoinSet<Result<Worker, Failure>> = JoinSet::new();
    for worker in workers {
        tasks.spawn(work(worker));
    }
    let mut done = Vec::new();
    while let Some(task) = tasks.join_next().await {
        done.push(task??);
    }
    Ok(done)
}

/// Prices, accounts with credits, and nodes.
async fn set_up(target: &Target, nodes: usize) -> Result<Vec<Worker>, Failure> {
    let mut connection = Connection::open(target).await?;
    let mut post = async |method: &str, path: &str, body: Value, expected: u16| {
        let request = target.request(method, path, None, &body.to_string());
        call(&mut connection, &request, expected).await
    };
    post("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "2.5" }), 200).await?;
    post("POST", "/v1/accounts", json!({ "id": TENANT, "kind": "org" }), 201).await?;
    let grant = json!({ "account": TENANT, "amount": "1000000000", "kind": "purchase" });
    post("POST", "/v1/grants", grant, 201).await?;
    for number in 0..ACCOUNTS {
        let body = json!({ "id": format!("{TENANT}:a{number}"), "kind": "user" });
        post("POST", "/v1/accounts", body, 201).await?;
    }
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::open(target).await?;
        workers.push(Worker { connection, target: target.clone(), nodes: Vec::new() });
    }
    for number in 0..nodes {
        let name = format!("node-{number}");
        workers[number % CONNECTIONS].nodes.push(Node {
            name,
            incarnation: 0,
            seq: 0,
            attempts: Vec::new(),
        });
    }
    each(workers, |mut worker| async move {
        for node in 0..worker.nodes.len() {
            worker.register(node).await?;
        }
        Ok(worker)
    })
    .await
}

async fn submit(target: &Target, jobs: usize) -> Result<(), Failure> {
    let mut connection = Connection::open(target).await?;
    let all: Vec<Value> = (0..jobs)
        .map(|number| {
            let account = format!("{TENANT}:a{}", number % ACCOUNTS);
            json!({ "method": "POST", "path": "/v1/jobs", "body": {
                "id": format!("job-{number}"), "account": account,
                "gpus": { "types": ["H100"], "count": 1 }, "max_runtime_seconds": 86_400,
                "command": ["python", "train.py"],
            }})
        })
        .collect();
    create_all(target, &mut connection, &all).await
}

impl Worker {
    async fn post(&mut self, path: &str, body: &Value, expected: u16) -> Result<Value, Failure> {
        let request = self.target.platform_request("POST", path, &body.to_string());
        call(&mut self.connection, &request, expected).await
    }

    async fn register(&mut self, node: usize) -> Result<(), Failure> {
        let name = self.nodes[node].name.clone();
        let gpus: Vec<Value> = (0..GPUS)
            .map(|n| json!({ "uuid": format!("GPU-{name}-{n}"), "type": "H100", "memory_gib": 80 }))
            .collect();
        let body = json!({
            "id": name, "region": "default", "gpus": gpus, "cpus": 128, "memory_gib": 1024,
        });
        let answer = self.post("/v1/nodes", &body, 201).await?;
        let incarnation = answer["incarnation"].as_u64();
        self.nodes[node].incarnation = incarnation.ok_or_else(|| wrong("no incarnation"))?;
        Ok(())
    }

    /// One heartbeat of a node and its orders to start.
    async fn report(&mut self, node: usize, state: &str) -> Result<u32, Failure> {
        let present = &mut self.nodes[node];
        present.seq += 1;
        for attempt in &mut present.attempts {
            let started = *attempt.started.get_or_insert_with(Instant::now);
            attempt.gpu_ms = u64::try_from(started.elapsed().as_millis()).map_err(wrong)?;
        }
        let attempts: Vec<Value> = present
            .attempts
            .iter()
            .map(|a| json!({ "id": a.id, "state": state, "gpu_ms_total": a.gpu_ms }))
            .collect();
        let (incarnation, seq) = (present.incarnation, present.seq);
        let body = json!({ "incarnation": incarnation, "seq": seq, "attempts": attempts });
        let path = format!("/v1/nodes/{}/heartbeat", present.name);
        let request = self.target.platform_request("POST", &path, &body.to_string());
        let sent = Instant::now();
        let answer = call(&mut self.connection, &request, 200).await?;
        let micros = u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX);
        for order in answer["orders"].as_array().map(Vec::as_slice).unwrap_or_default() {
            self.obey(node, order);
        }
        Ok(micros)
    }

    fn obey(&mut self, node: usize, order: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let attempts = &mut self.nodes[node].attempts;
        let id = text(&order["attempt"]);
        let known = attempts.iter().any(|attempt| attempt.id == id);
        if order["type"] == "start" && !known {
            let (job, gpu) = (text(&order["job"]), text(&order["gpus"][0]));
            attempts.push(Attempt { id, job, gpu, started: None, gpu_ms: 0 });
        }
    }
}

/// Every node reports once in each interval, spread evenly over it.
async fn steadily(
    workers: Vec<Worker>,
    start: Instant,
    time: Duration,
    interval: Duration,
) -> Result<(Vec<Worker>, Vec<u32>), Failure> {
    let mut tasks: JoinSet<Result<(Worker, Vec<u32>), Failure>> = JoinSet::new();
    for (place, mut worker) in workers.into_iter().enumerate() {
        tasks.spawn(async move {
            let count = worker.nodes.len().max(1);
            let offset = place as f64 / CONNECTIONS as f64;
            let mut micros = Vec::new();
            for turn in 0.. {
                let due = interval.mul_f64((turn as f64 + offset) / count as f64);
                if due >= time || worker.nodes.is_empty() {
                    return Ok((worker, micros));
                }
                tokio::time::sleep_until(start + due).await;
                micros.push(worker.report(turn % count, "running").await?);
            }
            unreachable!("the turns end with the time")
        });
    }
    let (mut done, mut all) = (Vec::new(), Vec::new());
    while let Some(task) = tasks.join_next().await {
        let (worker, micros) = task??;
        done.push(worker);
        all.extend(micros);
    }
    Ok((done, all))
}

/// Every job succeeds.
async fn finish(workers: Vec<Worker>) -> Result<Vec<Worker>, Failure> {
    each(workers, |mut worker| async move {
        for node in 0..worker.nodes.len() {
            worker.report(node, "succeeded").await?;
        }
        Ok(worker)
    })
    .await
}

/// Devices of a node that two of its attempts have.
fn double_use(node: &Node) -> usize {
    let devices: BTreeSet<&str> = node.attempts.iter().map(|attempt| &*attempt.gpu).collect();
    node.attempts.len() - devices.len()
}

/// What the time of a GPU costs, rounded to the nearest, ties to even.
fn cost(gpu_ms: u64) -> i128 {
    let product = PRICE * u128::from(gpu_ms);
    let (whole, rest) = (product / 3_600_000, product % 3_600_000);
    let up = rest > 1_800_000 || (rest == 1_800_000 && whole % 2 == 1);
    i128::try_from(whole + u128::from(up)).unwrap_or(i128::MAX)
}

/// Checks every job: it succeeded, and cost exactly what its node reported. Returns how many cost
/// more than was held, and what all cost together.
async fn check(target: &Target, workers: &[Worker]) -> Result<(usize, i128), Failure> {
    let mut connection = Connection::open(target).await?;
    let (mut above, mut sum) = (0, 0);
    for attempt in workers.iter().flat_map(|w| &w.nodes).flat_map(|node| &node.attempts) {
        let request = target.request("GET", &format!("/v1/jobs/{}", attempt.job), None, "");
        let job = loop {
            let job = call(&mut connection, &request, 200).await?;
            // The ledger receives the end from the cell a moment later.
            if job["state"] != "running" {
                break job;
            }
        };
        let charged = micros(&job["charged"]);
        if job["state"] != "succeeded" || charged != cost(attempt.gpu_ms) {
            let expected = cost(attempt.gpu_ms);
            return Err(wrong(format_args!("{expected} micro-credits were due: {job}")));
        }
        above += usize::from(charged > micros(&job["hold"]["amount"]));
        sum += charged;
    }
    Ok((above, sum))
}

impl JobsBenchReport {
    fn words(&self) -> String {
        format!(
            "{} jobs on {} nodes ran {:.1} s after the first was submitted\n\
             {} reports, {:.1}/s: p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms\n\
             the server used {:.2} cores and had {} resident\n\
             journal bytes for each report: {:.0} in the cell, {:.0} in the ledger; durable writes \
             {:.2} and {:.2}\n\
             GPUs in double use: {}; jobs that cost more than their hold: {}\n\
             every job paid to the micro-credit, {} credits in all; load {:.1}",
            self.jobs,
            self.nodes,
            self.start_seconds,
            self.reports,
            self.reports_per_second,
            self.p50_ms,
            self.p99_ms,
            self.worst_ms,
            self.cores,
            mebibytes(self.resident_bytes),
            self.cell_bytes_per_report,
            self.ledger_bytes_per_report,
            self.cell_writes_per_report,
            self.ledger_writes_per_report,
            self.double_use,
            self.above_hold,
            self.charged,
            self.load
        )
    }
}
