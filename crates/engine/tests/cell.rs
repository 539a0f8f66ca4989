//! A real cell behind the engine: timers that a command makes due at once are in the same durable
//! write, the journal is complete, and messages arrive once.

use crate::support;

use std::sync::{Arc, Mutex};

use bursar_core::cell::command::{AttemptReport, Command, Heartbeat, JobSpec, ReportState};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, JobId, Origin};
use bursar_core::machine::Machine;
use bursar_core::message::{Mark, ToCell, ToLedger};
use bursar_engine::courier::{Courier, Inbox, SentMessage};
use bursar_engine::{
    CellCodec, CellToLedger, Engine, EngineError, Snapshotter, cell_inbox, replay,
    replay_from_genesis,
};
use bursar_journal::Journal;
use bursar_journal::memory::MemoryJournal;
use support::{manual_clock, memory, options};

fn start(journal: &MemoryJournal) -> Engine<CellCodec> {
    let journal: Arc<dyn Journal> = Arc::new(journal.clone());
    Engine::start(journal, Arc::new(CellCodec), manual_clock(), options("test"))
}

fn ask(engine: &Engine<CellCodec>, command: Command) {
    let answer = engine.handle().execute(Origin::component("test"), command);
    answer.expect("the engine answers").value.expect("the command is fine");
}

fn admission(number: u64) -> ToCell {
    let mut spec = JobSpec::new(JobId::new(0, number), "acme", GpuDemand::Whole(1));
    spec.max_runtime_ms = Some(3_600_000);
    ToCell::JobAdmitted(Box::new(spec))
}

fn sent(number: u64, message: ToCell) -> SentMessage<ToCell> {
    SentMessage { number, position: 10 * number, message }
}

/// Accepts every message.
#[derive(Default)]
struct Pile(Arc<Mutex<Vec<ToLedger>>>, Mark);

impl Inbox<ToLedger> for Pile {
    fn mark(&mut self) -> Result<Mark, EngineError> {
        Ok(self.1)
    }

    fn deliver(&mut self, messages: Vec<SentMessage<ToLedger>>) -> Result<Mark, EngineError> {
        for SentMessage { number, position, message } in messages {
            self.1 = Mark { number, position };
            self.0.lock().expect("no holder panics").push(message);
        }
        Ok(self.1)
    }
}

/// All messages to shard 0 in the journal.
fn messages(journal: &MemoryJournal, engine: &Engine<CellCodec>) -> Vec<ToLedger> {
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let pile = Arc::new(Mutex::new(Vec::new()));
    let inbox = Pile(Arc::clone(&pile), Mark::default());
    let outbox = CellToLedger { shard: 0 };
    let mut courier = Courier::new(shared, Arc::new(CellCodec), outbox, inbox);
    let head = engine.durable().head().expect("something is durable");
    while courier.step(head).expect("the journal is whole") > 0 {}
    let messages = pile.lock().expect("no holder panics");
    messages.clone()
}

#[test]
fn a_command_and_the_pass_that_it_causes_are_one_durable_write() {
    let journal = memory(1);
    let engine = start(&journal);
    ask(&engine, Command::RegisterNode(support::offer(8)));
    for number in 1..=8 {
        let before = engine.stats();
        let ToCell::JobAdmitted(spec) = admission(number) else { unreachable!("made above") };
        ask(&engine, Command::AdmitJob(*spec));
        let after = engine.stats();
        assert_eq!(after.batches, before.batches + 1, "one write for job {number}");
        assert!(after.records >= before.records + 2, "its placement is in it");
    }
    assert_eq!(messages(&journal, &engine).len(), 8, "each job was proposed");
    let reports = (1..=8).map(|number| AttemptReport {
        attempt: AttemptId { job: JobId::new(0, number), number: 1 },
        state: ReportState::Running,
        gpu_ms_total: 0,
        exit_code: None,
    });
    let before = engine.stats();
    let reports = reports.collect();
    ask(
        &engine,
        Command::Heartbeat(Heartbeat { node: "n0".into(), incarnation: 1, seq: 1, reports }),
    );
    assert_eq!(engine.stats().batches, before.batches + 1, "a report costs one write");
}

#[test]
fn messages_arrive_once_and_the_mark_is_durable() {
    let journal = memory(2);
    let mut engine = start(&journal);
    let mut inbox = cell_inbox(engine.handle(), 0);
    assert_eq!(inbox.mark(), Ok(Mark::default()));
    let first = || vec![sent(1, admission(1)), sent(2, admission(2))];
    assert_eq!(inbox.deliver(first()), Ok(Mark { number: 2, position: 20 }));
    // A courier without state delivers again. A delivery that skips a message is refused.
    assert_eq!(inbox.deliver(first()), Ok(Mark { number: 2, position: 20 }));
    let gap = vec![sent(4, admission(4))];
    assert_eq!(inbox.deliver(gap), Ok(Mark { number: 2, position: 20 }));
    drop(inbox);
    engine.stop();
    engine = start(&journal);
    let mut inbox = cell_inbox(engine.handle(), 0);
    assert_eq!(inbox.mark(), Ok(Mark { number: 2, position: 20 }));
    let next = vec![sent(3, ToCell::JobWithdrawn { job: JobId::new(0, 1) })];
    assert_eq!(inbox.deliver(next), Ok(Mark { number: 3, position: 30 }));
    let jobs = engine.handle().read(|cell: &Cell| {
        let known = |number| cell.why(JobId::new(0, number), cell.now()).is_some();
        (known(1), known(2), known(4))
    });
    assert_eq!(jobs.expect("it serves").value, (false, true, false));
}

#[test]
fn a_snapshot_and_the_tail_are_the_whole_cell() {
    let journal = memory(3);
    let engine = start(&journal);
    ask(&engine, Command::RegisterNode(support::offer(4)));
    for number in 1..=3 {
        let ToCell::JobAdmitted(spec) = admission(number) else { unreachable!("made above") };
        ask(&engine, Command::AdmitJob(*spec));
    }
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let mut snapshotter = Snapshotter::new(Arc::clone(&shared), Arc::new(CellCodec), 1000)
        .expect("the journal is whole");
    snapshotter.put().expect("a snapshot is made");
    for number in 4..=6 {
        let ToCell::JobAdmitted(spec) = admission(number) else { unreachable!("made above") };
        ask(&engine, Command::AdmitJob(*spec));
    }
    let live = engine.handle().read(|cell: &Cell| cell.digest()).expect("it serves").value;
    let rebuilt = replay(&*shared, &CellCodec).expect("snapshot and tail");
    assert_eq!(rebuilt.machine.digest(), live);
    assert_eq!(rebuilt.machine.check(), Ok(()));
    let whole = replay_from_genesis(&*shared, &CellCodec).expect("the journal is whole");
    assert_eq!(whole.machine.digest(), live);
}
