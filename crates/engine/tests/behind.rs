//! A job that runs while the wall clock is behind the last record: time goes on at nine tenths of
//! the monotonic clock, and the job is charged for it.

use crate::support;

use std::sync::{Arc, Mutex};

use bursar_core::cell::command::{AttemptReport, Command, Heartbeat, ReportState};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, JobId, Origin};
use bursar_core::credits::Credits;
use bursar_core::ledger::command::{AccountKind, AccountSettings, IssueGrant, SubmitJob};
use bursar_core::ledger::id::CellNo;
use bursar_core::ledger::jobs::{JobState, JobTerms, Offer};
use bursar_core::ledger::{self, Envelope, Ledger};
use bursar_core::time::Timestamp;
use bursar_engine::clock::Readings;
use bursar_engine::courier::Courier;
use bursar_engine::{
    CellCodec, CellToLedger, Clock, Engine, LedgerCodec, LedgerToCell, WallClock, cell_inbox,
    ledger_inbox,
};
use bursar_journal::Journal;
use bursar_journal::memory::MemoryJournal;
use support::{memory, options};

const DAY_MS: i64 = 86_400_000;
/// A millisecond of a GPU costs one micro-credit.
const PER_GPU_HOUR: u64 = 3_600_000;

/// A ledger and a cell on one clock, whose readings the test sets.
struct World {
    readings: Arc<Mutex<Readings>>,
    ledger: Engine<LedgerCodec>,
    cell: Engine<CellCodec>,
    journals: [MemoryJournal; 2],
    reports: u64,
}

impl World {
    fn new() -> World {
        let readings = Readings { wall: 1_767_225_600_000, monotonic: 0 };
        let readings = Arc::new(Mutex::new(readings));
        let shared = Arc::clone(&readings);
        let clock = WallClock::with_readings(move || *shared.lock().expect("no holder panics"));
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let journals = [memory(1), memory(2)];
        let [ledger, cell] =
            journals.each_ref().map(|journal| -> Arc<dyn Journal> { Arc::new(journal.clone()) });
        let ledger =
            Engine::start(ledger, Arc::new(LedgerCodec), Arc::clone(&clock), options("ledger"));
        let cell = Engine::start(cell, Arc::new(CellCodec), clock, options("cell"));
        World { readings, ledger, cell, journals, reports: 0 }
    }

    /// Moves the clocks.
    fn tick(&self, wall: i64, monotonic: i64) {
        let mut readings = self.readings.lock().expect("no holder panics");
        readings.wall += wall;
        readings.monotonic += monotonic;
    }

    fn order(&self, command: ledger::Command) {
        let answer = self.ledger.handle().execute(Envelope::default(), command);
        answer.expect("it serves").value.expect("the command is fine");
        self.carry();
    }

    fn ask(&self, command: Command) {
        let answer = self.cell.handle().execute(Origin::component("test"), command);
        answer.expect("it serves").value.expect("the command is fine");
        self.carry();
    }

    /// Delivers messages in both directions until there are none.
    fn carry(&self) {
        let [ledger, cell] = self
            .journals
            .each_ref()
            .map(|journal| -> Arc<dyn Journal> { Arc::new(journal.clone()) });
        let there = cell_inbox(self.cell.handle(), 0);
        let back = ledger_inbox(self.ledger.handle(), CellNo(0), "eu".into());
        let outbox = LedgerToCell { cell: CellNo(0) };
        let mut there = Courier::new(ledger, Arc::new(LedgerCodec), outbox, there);
        let mut back = Courier::new(cell, Arc::new(CellCodec), CellToLedger { shard: 0 }, back);
        loop {
            // A machine that has only begun to start has nothing to send.
            let mut carried = 0;
            if let Some(head) = self.ledger.durable().head() {
                carried += there.step(head).expect("the journal is whole");
            }
            if let Some(head) = self.cell.durable().head() {
                carried += back.step(head).expect("the journal is whole");
            }
            if carried == 0 {
                return;
            }
        }
    }

    /// One report of the node: its only attempt has this state and usage.
    fn report(&mut self, attempt: AttemptId, state: ReportState, gpu_ms_total: u64) {
        self.reports += 1;
        let report = AttemptReport { attempt, state, gpu_ms_total, exit_code: None };
        self.ask(Command::Heartbeat(Heartbeat {
            node: "n0".into(),
            incarnation: 1,
            seq: self.reports,
            reports: [report].into_iter().collect(),
        }));
    }

    /// The time of the cell.
    fn now(&self) -> Timestamp {
        self.cell.handle().read(|_: &Cell| ()).expect("it serves").at
    }

    /// Runs a job for so many seconds of the monotonic clock while the wall clock is behind. Returns
    /// the time that passed for the cell, the usage that counts, and the charge.
    fn run(&mut self, name: &str, seconds: u64) -> (i64, u64, u64) {
        self.order(submit(name));
        let number = self
            .ledger
            .handle()
            .read(|ledger: &Ledger| ledger.jobs_before(None).next().map(|(number, _)| number));
        let number = number.expect("it serves").value.expect("it was submitted");
        let attempt = AttemptId { job: JobId::new(0, number.0), number: 1 };
        self.report(attempt, ReportState::Running, 0);
        let begun = self.now();
        for passed in (20..=seconds).step_by(20) {
            self.tick(20_000, 20_000);
            let state =
                if passed == seconds { ReportState::Succeeded } else { ReportState::Running };
            self.report(attempt, state, passed * 1000);
        }
        let passed = self.now().millis_since(begun);
        let look = move |ledger: &Ledger| {
            let job = ledger.job(number).expect("it is kept");
            assert_eq!(job.state, JobState::Succeeded);
            let end = job.attempts[0].end.as_ref().expect("it has ended");
            (end.gpu_ms, end.charged)
        };
        let (gpu_ms, charged) = self.ledger.handle().read(look).expect("it serves").value;
        (passed, gpu_ms, charged)
    }
}

fn submit(name: &str) -> ledger::Command {
    let terms = JobTerms {
        gpu_types: vec!["H100".into()],
        max_runtime_ms: Some(3_600_000),
        ..JobTerms::new(GpuDemand::Whole(1))
    };
    let per_gpu_hour = Credits::from_length(PER_GPU_HOUR).expect("small");
    ledger::Command::SubmitJob(Box::new(SubmitJob {
        scope: None,
        hold: format!("h-{name}").into(),
        id: name.into(),
        account: "acme".into(),
        terms,
        offers: vec![Offer { gpu_type: "H100".into(), region: "eu".into(), per_gpu_hour }],
        payload: "{}".into(),
        submitted: "{}".into(),
        array: None,
        after: Vec::new(),
    }))
}

#[test]
fn a_job_is_charged_while_the_wall_clock_is_behind() {
    let mut world = World::new();
    let (kind, settings) = (AccountKind::Org, AccountSettings::default());
    world.order(ledger::Command::OpenAccount { path: "acme".into(), kind, settings });
    world.order(ledger::Command::OpenRegion { region: "eu".into(), shard: 0 });
    world.order(ledger::Command::IssueGrant(IssueGrant::purchase(
        "g",
        "acme",
        Credits::from_length(100 * PER_GPU_HOUR).expect("small"),
    )));
    world.ask(Command::RegisterNode(support::offer(1)));
    // The wall clock was a day ahead, and is set right.
    let before = world.now();
    world.tick(-DAY_MS, 0);
    assert_eq!(world.now(), before, "time does not run back");
    // The agent says 20 s. The cell saw 18 s, and believes up to five more.
    assert_eq!(world.run("short", 20), (18_000, 20_000, 20_000));
    // Over a longer time the slack is used up: nine tenths and five seconds.
    assert_eq!(world.run("long", 100), (90_000, 95_000, 95_000));
    assert!(world.now().millis_since(before) < DAY_MS, "it is still behind");
}
