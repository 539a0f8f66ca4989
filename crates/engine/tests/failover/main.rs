//! Two servers on one PostgreSQL with a real ledger. The leader is killed, or paused until its
//! lease has expired and then resumed as a zombie. The other server takes over. No acknowledged
//! write is lost, the zombie writes nothing, and every owner begins with a barrier.

#[path = "../../../journal/tests/support/mod.rs"]
mod journal_support;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bursar_audit::{JournalSource, LiveNumbers, SqliteSource, verify};
use bursar_core::digest::Digest;
use bursar_core::ledger::invariant;
use bursar_core::machine::Machine;
use bursar_engine::{
    Engine, EngineOptions, LedgerCodec, Status, WallClock, replay, replay_from_genesis,
};
use bursar_journal::backup::import;
use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Epoch, Head, Journal, RecordKind};
use journal_support::postgres::TestPostgres;
use support::children;
use support::ledger_clients::{Clients, set_up};
use support::ledger_log::{Log, compare_holds};

/// First argument of a child.
const MODE: &str = "own-or-wait";
/// Failovers, alternately by a kill and by a pause.
const FAILOVERS: u64 = 6;
/// Answers of a new owner before the next failover.
const ANSWERS: u64 = 60;
/// A server that prints nothing for this long has failed.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Ids of one child.
const IDS: u64 = 1_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, first, url] = &arguments[..]
        && mode == MODE
    {
        return serve(url, first.parse().expect("the parent gives a number"));
    }
    let postgres = TestPostgres::start();
    let mut servers = Servers::new(&postgres);
    let mut leader = servers.start(1);
    servers.wait(leader, "ack", ANSWERS);
    for round in 0..FAILOVERS {
        let standby = servers.start(round + 2);
        let paused = round % 2 == 1;
        children::signal(servers.process(leader), if paused { "-STOP" } else { "-KILL" });
        servers.wait(standby, "ack", ANSWERS);
        if paused {
            // It still treats the ledger as its own and finds that it is not.
            children::signal(servers.process(leader), "-CONT");
            servers.wait(leader, "deposed", 1);
            children::kill(servers.process(leader));
        }
        leader = standby;
    }
    children::kill(servers.process(leader));
    let mut log = servers.finish();
    compare(&postgres, &mut log);
    println!("{FAILOVERS} failovers: {log}");
}

fn open(url: &str) -> Arc<PostgresJournal> {
    let mut options = PostgresOptions::new(url, "ledger-0");
    options.unsafe_single = true;
    Arc::new(PostgresJournal::open(options).expect("the server is up"))
}

/// A child: owns the ledger or waits for it, with clients that retry for ever.
fn serve(url: &str, first: u64) {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let options = EngineOptions {
        holder: format!("server-{first}"),
        lease_ttl: Duration::from_millis(900),
        retry: Duration::from_millis(50),
        ..EngineOptions::default()
    };
    let clock = Arc::new(WallClock::new());
    let engine = Engine::start(open(url), Arc::new(LedgerCodec), clock, options);
    let clients = Clients::new(engine.handle());
    clients.say(format_args!("process {}", std::process::id()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            set_up(&engine.handle());
            clients.run(first);
        });
        scope.spawn(|| {
            support::wait_until("it serves", || engine.status() == Status::Serving);
            loop {
                if matches!(engine.status(), Status::Waiting(_)) {
                    clients.say(format_args!("deposed {first}"));
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    });
}

/// The children, and their output.
struct Servers<'a> {
    postgres: &'a TestPostgres,
    children: Vec<Child>,
    processes: Vec<u64>,
    sender: Sender<(usize, String)>,
    lines: Receiver<(usize, String)>,
    log: Log,
}

impl Servers<'_> {
    fn new(postgres: &TestPostgres) -> Servers<'_> {
        let (sender, lines) = channel();
        let (children, processes) = (Vec::new(), Vec::new());
        Servers { postgres, children, processes, sender, lines, log: Log::default() }
    }

    /// Starts a server and waits until it prints its process id.
    fn start(&mut self, number: u64) -> usize {
        let url = self.postgres.url();
        let first = (number * IDS).to_string();
        let mut child = children::start(&[MODE, &first], Path::new(&url), None);
        let index = self.children.len();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            for line in output.lines() {
                // At the end of the test no more lines are needed.
                let _ = sender.send((index, line.expect("the child writes text")));
            }
        });
        self.children.push(child);
        self.processes.push(0);
        self.wait(index, "process", 1);
        index
    }

    fn process(&self, server: usize) -> u64 {
        self.processes[server]
    }

    /// Waits until a server has printed `count` lines of one kind.
    fn wait(&mut self, server: usize, kind: &str, mut count: u64) {
        while count > 0 {
            let next = self.lines.recv_timeout(START_TIMEOUT);
            let (index, line) =
                next.unwrap_or_else(|_| panic!("server {server} printed no {kind}"));
            self.read(index, &line);
            count -= u64::from(index == server && line.starts_with(kind));
        }
    }

    fn read(&mut self, index: usize, line: &str) {
        match line.split_once(' ') {
            Some(("process", number)) => {
                self.processes[index] = number.parse().expect("a process has a number");
            }
            Some(("deposed", _)) => {}
            _ => drop(self.log.read(line)),
        }
    }

    /// Reads the remaining output once all servers have ended.
    fn finish(mut self) -> Log {
        for child in &mut self.children {
            child.wait().expect("it is ours");
        }
        let (sender, _) = channel();
        self.sender = sender;
        while let Ok((index, line)) = self.lines.recv() {
            self.read(index, &line);
        }
        self.log
    }
}

/// The journal is intact. The state replayed from it matches the auditor and the clients' log.
fn compare(postgres: &TestPostgres, log: &mut Log) {
    let journal = open(&postgres.url());
    let owners = owners_that_began_with_a_barrier(&*journal);
    assert!(owners > FAILOVERS, "{owners} owners for {FAILOVERS} failovers");
    let whole = replay_from_genesis(&*journal, &LedgerCodec).expect("the journal is whole");
    let quick = replay(&*journal, &LedgerCodec).expect("the journal is whole");
    assert_eq!(quick.machine.digest(), whole.machine.digest(), "L11");
    assert_eq!(invariant::check(&whole.machine), Ok(()));
    let source = JournalSource::new(&*journal).expect("it has an identity");
    let report = verify(&source, Some(&LiveNumbers::of(&whole.machine)), |_| {});
    assert!(report.holds() && report.compared, "{report}");
    compare_holds(&whole.machine, log);
    rehearse(&*journal, whole.machine.digest());
}

/// A copy of the journal in a file verifies and replays to the same state.
fn rehearse(journal: &dyn Journal, digest: Digest) {
    let folder = journal_support::TempDir::new();
    let file = folder.path().join("copy.db");
    let batches = journal.read(Head::genesis(journal.id())).expect("the server is up");
    import(&file, journal.id(), batches).expect("there is space");
    let report = verify(&SqliteSource::open(&file).expect("it is a journal"), None, |_| {});
    assert!(report.holds(), "{report}");
    let copy = SqliteJournal::open(&file, SqliteOptions::default()).expect("it is a journal");
    let copied = replay_from_genesis(&copy, &LedgerCodec).expect("the copy is whole");
    assert_eq!(copied.machine.digest(), digest, "the copy replays to another state");
}

fn owners_that_began_with_a_barrier(journal: &dyn Journal) -> u64 {
    let (mut owner, mut owners) = (Epoch(0), 0);
    for batch in journal.read(Head::genesis(journal.id())).expect("the server is up") {
        let batch = batch.expect("the chain is whole");
        if batch.epoch != owner {
            assert!(batch.epoch > owner, "an older owner wrote after a newer one");
            let first = batch.frames().next().expect("a batch has records").expect("readable");
            assert_eq!(first.kind, RecordKind::Barrier, "the owner of {} just wrote", batch.epoch);
            (owner, owners) = (batch.epoch, owners + 1);
        }
    }
    owners
}
