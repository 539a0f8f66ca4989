//! How fast a cell decides: the loops of `bursar bench cell` and `cargo bench -p bursar-sim`.
//!
//! Three kinds of work on a cell with 5 GPUs per node, 10 to 16 queued jobs per node, 150 shapes
//! whose popularity falls as in the published traces (half of the jobs have one of seven shapes),
//! and 1 000 accounts in 100 tenants:
//! - *fill*: an empty cell with a full queue places jobs until nothing fits;
//! - *confirm*: the ledger confirms all these placements;
//! - *churn*: in the full cell an attempt ends, its GPUs go to the next job, the ledger confirms,
//!   and another job is admitted, 20 000 times.
//!
//! A decision is one step of a pass or one command, decided and applied. All invariants are checked
//! at the end of each kind.

use std::time::{Duration, Instant};

use bursar_core::cell::command::{
    AttemptReport, Command, Heartbeat, JobSpec, NodeOffer, Origin, ReportState,
};
use bursar_core::cell::event::Event;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, ClassRank, JobId};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;

/// A small deterministic generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The 150 shapes, the most popular first.
fn shapes() -> Vec<(GpuDemand, u32, u32)> {
    let mut numbers = Random(42);
    (0..150u64)
        .map(|index| {
            let gpu = match index % 10 {
                0 | 3 | 5 | 7 => GpuDemand::Whole(1),
                1 | 4 | 8 => GpuDemand::Share(50 * (1 + numbers.below(19) as u16)),
                2 => GpuDemand::Whole(2),
                6 => GpuDemand::Whole(4),
                _ => GpuDemand::None,
            };
            let cpu = 1000 * (1 + numbers.below(12) as u32);
            let memory = 1024 * (1 + numbers.below(48) as u32);
            (gpu, cpu, memory)
        })
        .collect()
}

fn offer(index: usize) -> NodeOffer {
    let (model, gpus) = match index % 4 {
        0 => ("G2", 8),
        1 => ("T4", 2),
        2 => ("G3", 8),
        _ => ("P100", 2),
    };
    NodeOffer {
        name: format!("node-{index}").into(),
        rack: format!("rack-{}", index / 16).into(),
        model: model.into(),
        gpus,
        gpu_memory_mib: 32 * 1024,
        cpu_milli: 96_000,
        memory_mib: 384 * 1024,
        uuids: Vec::new(),
        labels: Vec::new(),
        scope: None,
    }
}

struct Bench {
    cell: Cell,
    now: Timestamp,
    numbers: Random,
    shapes: Vec<(GpuDemand, u32, u32)>,
    next_job: u64,
    running: Vec<(AttemptId, u32)>,
    unanswered: Vec<AttemptId>,
    seq: Vec<u64>,
    samples: Vec<Duration>,
    placements: u64,
    events: Vec<Event>,
}

impl Bench {
    fn new(nodes: usize) -> Bench {
        let mut bench = Bench {
            cell: Cell::new(),
            now: Timestamp::from_millis(1_600_000_000_000),
            numbers: Random(7),
            shapes: shapes(),
            next_job: 1,
            running: Vec::new(),
            unanswered: Vec::new(),
            seq: vec![0; nodes],
            samples: Vec::new(),
            placements: 0,
            events: Vec::new(),
        };
        for index in 0..nodes {
            bench.command(&Command::RegisterNode(offer(index)));
        }
        bench
    }

    /// Admits a job. Its shape is drawn by a product of uniform numbers, so that the first shapes
    /// are popular and the tail is long.
    fn admit(&mut self) {
        let a = self.numbers.below(150);
        let b = self.numbers.below(150);
        let c = self.numbers.below(150);
        let (gpu, cpu, memory) = self.shapes[(a * b * c / (150 * 150)) as usize];
        let account = self.numbers.below(1000);
        let account = format!("t{}:u{}", account / 10, account % 10);
        let mut spec = JobSpec::new(JobId(self.next_job), account, gpu);
        spec.cpu_milli = cpu;
        spec.memory_mib = memory;
        spec.class = ClassRank::NORMAL;
        spec.max_runtime_ms = Some(3_600_000 * (1 + self.numbers.below(3) as i64));
        self.next_job += 1;
        self.command(&Command::AdmitJob(spec));
    }

    fn command(&mut self, command: &Command) {
        let begin = now();
        self.events.clear();
        let reply =
            self.cell.decide(self.now, &Origin::component("bench"), command, &mut self.events);
        reply.expect("every command of the benchmark is accepted");
        self.apply(begin);
    }

    fn apply(&mut self, begin: Instant) {
        let at = self.now;
        for event in &self.events {
            self.cell.apply(at, event);
        }
        self.samples.push(begin.elapsed());
        for event in &self.events {
            if let Event::PlacementProposed { attempt, placements, .. } = event {
                self.placements += 1;
                self.unanswered.push(*attempt);
                self.running.push((*attempt, placements[0].node.0));
            }
        }
    }

    /// Runs all due timers.
    fn pass(&mut self) {
        while self.cell.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            let begin = now();
            self.events.clear();
            self.cell.decide_due(self.now, &mut self.events);
            self.apply(begin);
        }
    }

    /// Confirms all proposals, as the ledger does.
    fn confirm(&mut self) {
        while let Some(attempt) = self.unanswered.pop() {
            self.command(&Command::ConfirmPlacement { attempt, price: 1_000_000, funded_ms: None });
        }
    }

    fn settle(&mut self) {
        self.pass();
        self.confirm();
    }

    /// Ends a random attempt.
    fn finish_one(&mut self) {
        let index = self.numbers.below(self.running.len() as u64) as usize;
        let (attempt, node) = self.running.swap_remove(index);
        let node = node as usize;
        self.seq[node] += 1;
        self.command(&Command::Heartbeat(Heartbeat {
            node: format!("node-{node}").into(),
            incarnation: 1,
            seq: self.seq[node],
            reports: vec![AttemptReport {
                attempt,
                state: ReportState::Succeeded,
                gpu_ms_total: 1000,
                exit_code: Some(0),
            }],
        }));
        self.settle();
    }

    fn measure(
        &mut self,
        name: &'static str,
        nodes: usize,
        work: impl FnOnce(&mut Bench),
    ) -> SpeedMeasurement {
        self.samples.clear();
        let before = self.placements;
        let (begin, busy) = (now(), busy_ns());
        work(self);
        let wall = begin.elapsed();
        // Processor time, if the system reports it, excludes other work on the machine.
        let busy = match busy_ns().saturating_sub(busy) {
            0 => wall,
            nanos => Duration::from_nanos(nanos),
        };
        self.cell.check_without_reasons().expect("all invariants hold");
        let placements = self.placements - before;
        self.samples.sort_unstable();
        let count = self.samples.len();
        let quantile = |part: usize| self.samples[(count - 1) * part / 1000].as_nanos() as u64;
        SpeedMeasurement {
            name,
            nodes,
            placements,
            decisions: count,
            per_second: (placements as f64 / busy.as_secs_f64()) as u64,
            mean_ns: (busy.as_nanos() / count.max(1) as u128) as u64,
            wall_ms: wall.as_millis() as u64,
            p50_ns: quantile(500),
            p99_ns: quantile(990),
            p999_ns: quantile(999),
            max_ns: quantile(1000),
            waiting: self.cell.queue(usize::MAX).len(),
            rss_mib: resident_mib(),
        }
    }
}

/// The figures of one kind of work.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SpeedMeasurement {
    /// The kind of work: `fill`, `confirm` or `churn`.
    pub name: &'static str,
    /// Nodes of the cell.
    pub nodes: usize,
    /// Jobs placed.
    pub placements: u64,
    /// Steps and commands decided and applied.
    pub decisions: usize,
    /// Placements per second of processor time.
    pub per_second: u64,
    /// Mean processor time of a decision.
    pub mean_ns: u64,
    /// Wall-clock time of all the work.
    pub wall_ms: u64,
    /// Median wall-clock time of a decision.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Jobs waiting at the end.
    pub waiting: usize,
    /// Resident memory of the process at the end.
    pub rss_mib: u64,
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Processor time of this process in nanoseconds; 0 if the system does not report it.
fn busy_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

/// Resident memory of this process; 0 if the system does not report it.
fn resident_mib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    resident.map_or(0, |pages| pages * 4 / 1024)
}

/// Runs the three kinds of work on a cell with this many nodes.
pub fn run(nodes: usize) -> Vec<SpeedMeasurement> {
    let mut bench = Bench::new(nodes);
    for _ in 0..nodes * 16 {
        bench.admit();
    }
    let fill = bench.measure("fill", nodes, Bench::pass);
    let confirm = bench.measure("confirm", nodes, Bench::confirm);
    let missing = (nodes * 10).saturating_sub(fill.waiting);
    for _ in 0..missing {
        bench.admit();
    }
    bench.settle();
    let churn = bench.measure("churn", nodes, |bench| {
        for _ in 0..20_000 {
            bench.finish_one();
            bench.admit();
            bench.settle();
        }
    });
    vec![fill, confirm, churn]
}
