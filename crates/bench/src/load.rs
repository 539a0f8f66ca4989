//! The measured work: place and settle, through the engine and on the bare machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bursar_core::ledger::command::Policy;
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::{Command, Envelope, Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute, machine_time};
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::Timestamp;
use bursar_engine::{
    Clock, Codec, Engine, EngineOptions, LedgerCodec, ManualClock, RecordOrigin, Stats, WallClock,
    replay_from_genesis,
};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Batch, BatchBuilder, Journal, RecordKind};
use compact_str::format_compact;

use crate::BenchError;
use crate::figure::{Shuffle, now};
use crate::world::{CHARGED, ENDOWED, envelope, orgs, place, settle, setup_commands};

/// Commands per group during setup.
const SETUP_GROUP: usize = 1000;
/// Number of commands that the engine decides per reading of the clock.
const CHUNK: usize = 256;

/// The bare machine: decides, applies and encodes as the engine's deciding thread does, and keeps
/// the records for the caller.
pub(crate) struct BareLoop {
    pub(crate) ledger: Ledger,
    orgs: Vec<AccountPath>,
    shuffle: Shuffle,
    requests: u128,
    holds: u64,
    now: Timestamp,
    /// Commands that are not decided yet.
    events: Vec<Event>,
    records: BatchBuilder,
    /// Events of all records so far.
    pub(crate) event_count: u64,
}

impl BareLoop {
    pub(crate) fn new(accounts: usize, policy: Policy, start: Timestamp) -> BareLoop {
        let mut bare = BareLoop {
            ledger: Ledger::new(),
            orgs: orgs(accounts),
            shuffle: Shuffle(1),
            requests: 0,
            holds: 0,
            now: start,
            events: Vec::new(),
            records: BatchBuilder::new(),
            event_count: 0,
        };
        bare.command(&Command::SetPolicy(policy), start);
        let names = bare.orgs.clone();
        for command in setup_commands(&names, start) {
            bare.command(&command, start);
        }
        bare
    }

    fn command(&mut self, command: &Command, now: Timestamp) {
        let envelope = self.envelope();
        self.decide(&envelope, command, now);
    }

    fn envelope(&mut self) -> Envelope {
        self.requests += 1;
        envelope(self.requests, true)
    }

    fn decide(&mut self, envelope: &Envelope, command: &Command, now: Timestamp) {
        let (records, count) = (&mut self.records, &mut self.event_count);
        advance(&mut self.ledger, now, |at, events| {
            *count += events.len() as u64;
            records.push(RecordKind::Due, at, |body| {
                LedgerCodec.encode(RecordOrigin::Due, events, body)
            });
        });
        self.events.clear();
        let answer = execute(&mut self.ledger, now, envelope, command, &mut self.events);
        assert!(answer.is_ok(), "{command:?}: {answer:?}");
        self.event_count += self.events.len() as u64;
        let origin = RecordOrigin::Command { envelope, command, accepted: true };
        let events = &self.events;
        self.records
            .push(RecordKind::Decision, now, |body| LedgerCodec.encode(origin, events, body));
    }

    /// Places `count` holds at `now`, then settles them.
    pub(crate) fn pairs(&mut self, count: usize, now: Timestamp) {
        self.run_pairs(count, || now);
    }

    /// Issues commands in the order of `count` clients: all place, then all settle. Reads the clock
    /// as often as the engine does.
    fn run_pairs(&mut self, count: usize, clock: impl Fn() -> Timestamp) {
        let mut placed = Vec::with_capacity(count);
        for number in 0..count {
            let account = self.shuffle.next(self.orgs.len());
            let hold = HoldId::unchecked(format_compact!("hold{}", self.holds));
            self.holds += 1;
            let command = place(hold.clone(), &self.orgs[account]);
            placed.push((account, hold));
            self.ask(command, number, &clock);
        }
        for (number, (account, hold)) in placed.into_iter().enumerate() {
            let command = settle(&self.orgs[account], hold);
            self.ask(command, number, &clock);
        }
    }

    /// Decides a command.
    fn ask(&mut self, command: Command, number: usize, clock: &impl Fn() -> Timestamp) {
        if number.is_multiple_of(CHUNK) {
            self.now = machine_time(&self.ledger, clock());
        }
        let envelope = self.envelope();
        self.decide(&envelope, &command, self.now);
    }

    /// Checks the invariants, and that exactly `settled` pairs were charged.
    pub(crate) fn check_sums(&self, settled: u64) -> Result<(), BenchError> {
        check_sums(&self.ledger, self.orgs.len(), settled.into())
    }

    /// The records since the last call.
    pub(crate) fn take_records(&mut self) -> Option<Batch> {
        std::mem::take(&mut self.records).finish()
    }

    /// Average seconds per command and bytes per record over `time`, in the order that `in_flight`
    /// commands produce.
    pub(crate) fn run(
        &mut self,
        in_flight: usize,
        time: Duration,
        clock: &dyn Clock,
    ) -> (f64, f64) {
        let start = now();
        let (mut commands, mut bytes) = (0.0, 0.0);
        let mut payload = Vec::new();
        loop {
            self.records = BatchBuilder::reusing(payload);
            self.run_pairs(in_flight, || clock.now());
            commands += 2.0 * in_flight as f64;
            bytes += self.records.bytes() as f64;
            payload = self.take_records().expect("commands leave records").into_payload();
            let elapsed = start.elapsed();
            if elapsed >= time {
                return (elapsed.as_secs_f64() / commands, bytes / commands);
            }
        }
    }
}

/// A client that sends one command after the other.
#[derive(Clone)]
struct Client {
    account: usize,
    /// The hold that it has placed and not settled.
    hold: Option<HoldId>,
    asked: Instant,
}

/// The answers received during one turn.
pub(crate) struct Turn {
    pub(crate) answered: u64,
    pub(crate) seconds: f64,
}

/// An engine on a new journal with a fixed number of clients, each with one command in flight.
pub(crate) struct LoadedEngine {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) engine: Engine<LedgerCodec>,
    pub(crate) orgs: Vec<AccountPath>,
    shuffle: Shuffle,
    clients: Vec<Client>,
    done: Sender<(usize, bool)>,
    answers: Receiver<(usize, bool)>,
    requests: u128,
    /// The clock of an engine whose time advances with every command, and by how much.
    manual: Option<(Arc<ManualClock>, i64)>,
    holds: u64,
    /// Which placements are noted: each so many, and all from one on.
    noting: (u64, u64),
    /// Holds and the requests that placed them.
    pub(crate) noted: Vec<(u64, u128)>,
    settled: i64,
    /// How long each answer took, in microseconds.
    pub(crate) latencies: Vec<u32>,
}

impl LoadedEngine {
    pub(crate) fn new(
        file: &Path,
        accounts: usize,
        in_flight: usize,
        policy: Policy,
    ) -> Result<LoadedEngine, BenchError> {
        LoadedEngine::on_journal(sqlite(file)?, accounts, in_flight, policy)
    }

    /// Starts an engine on this journal, which must be empty.
    pub(crate) fn on_journal(
        journal: Arc<dyn Journal>,
        accounts: usize,
        in_flight: usize,
        policy: Policy,
    ) -> Result<LoadedEngine, BenchError> {
        let clock = Arc::new(WallClock::new());
        LoadedEngine::with_clock(journal, accounts, in_flight, policy, clock, None)
    }

    /// Starts an engine whose time advances by some milliseconds with every command.
    pub(crate) fn start_with_fast_clock(
        file: &Path,
        accounts: usize,
        in_flight: usize,
        policy: Policy,
        millis: i64,
    ) -> Result<LoadedEngine, BenchError> {
        let manual = Arc::new(ManualClock::new(WallClock::new().now()));
        let clock = Arc::clone(&manual);
        let manual = Some((manual, millis));
        LoadedEngine::with_clock(sqlite(file)?, accounts, in_flight, policy, clock, manual)
    }

    fn with_clock(
        journal: Arc<dyn Journal>,
        accounts: usize,
        in_flight: usize,
        policy: Policy,
        clock: Arc<dyn Clock>,
        manual: Option<(Arc<ManualClock>, i64)>,
    ) -> Result<LoadedEngine, BenchError> {
        let options = EngineOptions { mailbox: 2 * in_flight.max(512), ..EngineOptions::default() };
        let start = clock.now();
        let codec = Arc::new(LedgerCodec);
        let engine = Engine::start(Arc::clone(&journal), codec, clock, options);
        let (done, answers) = channel();
        let idle = Client { account: 0, hold: None, asked: now() };
        let mut loaded = LoadedEngine {
            journal,
            engine,
            orgs: orgs(accounts),
            shuffle: Shuffle(1),
            clients: vec![idle; in_flight],
            done,
            answers,
            requests: 0,
            manual,
            holds: 0,
            noting: (u64::MAX, u64::MAX),
            noted: Vec::new(),
            settled: 0,
            latencies: Vec::new(),
        };
        loaded.set_up(policy, start)?;
        Ok(loaded)
    }

    /// Notes which request placed each hold whose number is a multiple of `every`, or at least `from`.
    pub(crate) fn note(&mut self, every: u64, from: u64) {
        self.noting = (every.max(1), from);
    }

    fn set_up(&mut self, policy: Policy, start: Timestamp) -> Result<(), BenchError> {
        // The first successful call means that the engine serves.
        while self.engine.handle().settle().is_err() {
            std::thread::yield_now();
        }
        let handle = self.engine.handle();
        let policy = Command::SetPolicy(policy);
        let mut commands =
            std::iter::once(policy).chain(setup_commands(&self.orgs, start)).peekable();
        while commands.peek().is_some() {
            let group = commands.by_ref().take(SETUP_GROUP);
            let items = group.map(|command| {
                self.requests += 1;
                (envelope(self.requests, true), command)
            });
            let answer = handle.execute_group(items.collect())?;
            answer.value.map_err(|refused| BenchError::Wrong(format!("{refused:?}")))?;
        }
        Ok(())
    }

    /// Sends the next command of one client.
    fn ask(&mut self, number: usize) {
        self.requests += 1;
        if let Some((clock, millis)) = &self.manual {
            // Only this thread sets the clock, and only forward.
            let _ = clock.set(clock.now().plus_millis(*millis));
        }
        let client = &mut self.clients[number];
        let command = match client.hold.take() {
            Some(hold) => {
                self.settled += 1;
                settle(&self.orgs[client.account], hold)
            }
            None => {
                client.account = self.shuffle.next(self.orgs.len());
                let hold = HoldId::unchecked(format_compact!("hold{}", self.holds));
                if self.holds.is_multiple_of(self.noting.0) || self.holds >= self.noting.1 {
                    self.noted.push((self.holds, self.requests));
                }
                self.holds += 1;
                client.hold = Some(hold.clone());
                place(hold, &self.orgs[client.account])
            }
        };
        client.asked = now();
        let done = self.done.clone();
        self.engine.handle().submit(envelope(self.requests, true), command, move |answer| {
            let accepted = answer.is_ok_and(|seen| seen.value.is_ok());
            // The receiver lives as long as this engine.
            let _ = done.send((number, accepted));
        });
    }

    /// Waits for one answer and returns the number of its client.
    fn answer(&mut self) -> Result<usize, BenchError> {
        let gone = |_| BenchError::Wrong("a client got no answer".into());
        let (number, accepted) = self.answers.recv().map_err(gone)?;
        if !accepted {
            return Err(BenchError::Wrong("a command was refused".into()));
        }
        Ok(number)
    }

    /// Keeps every client busy for `time`, counted from the moment when each has received an
    /// answer.
    pub(crate) fn run(&mut self, time: Duration) -> Result<Turn, BenchError> {
        self.run_while(|_, start: Instant| start.elapsed() < time)
    }

    /// Keeps every client busy until `commands` more commands are answered.
    pub(crate) fn run_commands(&mut self, commands: u64) -> Result<Turn, BenchError> {
        self.run_while(|answered, _| answered < commands)
    }

    fn run_while(&mut self, more: impl Fn(u64, Instant) -> bool) -> Result<Turn, BenchError> {
        let clients = self.clients.len();
        (0..clients).for_each(|number| self.ask(number));
        for _ in 0..clients {
            let number = self.answer()?;
            self.ask(number);
        }
        let start = now();
        let mut answered = 0;
        while more(answered, start) {
            let number = self.answer()?;
            self.note_latency(number);
            answered += 1;
            self.ask(number);
        }
        let seconds = start.elapsed().as_secs_f64();
        for _ in 0..clients {
            self.answer()?;
        }
        Ok(Turn { answered, seconds })
    }

    fn note_latency(&mut self, number: usize) {
        let took = self.clients[number].asked.elapsed().as_micros();
        self.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
    }

    pub(crate) fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// The orgs that have placed these holds, which are in ascending order.
    pub(crate) fn orgs_of(&self, holds: impl Iterator<Item = u64>) -> Vec<AccountPath> {
        let (mut shuffle, mut next) = (Shuffle(1), 0);
        let org = |hold: u64| {
            let mut account = 0;
            while next <= hold {
                (account, next) = (shuffle.next(self.orgs.len()), next + 1);
            }
            self.orgs[account].clone()
        };
        holds.map(org).collect()
    }

    /// Settles the open holds, stops the engine, and checks that neither the live state nor a
    /// replay lost anything.
    pub(crate) fn finish(self) -> Result<(), BenchError> {
        self.finish_refunded(0)
    }

    /// The same after so many pairs were refunded.
    pub(crate) fn finish_refunded(mut self, refunded: i64) -> Result<(), BenchError> {
        for number in 0..self.clients.len() {
            if self.clients[number].hold.is_some() {
                self.ask(number);
                self.answer()?;
            }
        }
        let (orgs, settled) = (self.orgs.len(), i128::from(self.settled - refunded));
        let live = self
            .engine
            .handle()
            .read(move |ledger: &Ledger| (check_sums(ledger, orgs, settled), ledger.digest()))?;
        let (sums, digest) = live.value;
        sums?;
        self.engine.stop();
        let replayed = replay_from_genesis(&*self.journal, &LedgerCodec)?;
        if replayed.machine.digest() != digest {
            return Err(BenchError::Wrong("L11: replay gives another state".into()));
        }
        Ok(())
    }
}

fn sqlite(file: &Path) -> Result<Arc<dyn Journal>, BenchError> {
    Ok(Arc::new(SqliteJournal::open(file, SqliteOptions::default())?))
}

/// Checks the invariants, and that exactly `settled` pairs were charged to `orgs` orgs.
fn check_sums(ledger: &Ledger, orgs: usize, settled: i128) -> Result<(), BenchError> {
    invariant::check(ledger).map_err(|broken| BenchError::Wrong(format!("{broken:?}")))?;
    let accounts = (0..ledger.account_count()).map(AccountNo);
    let available: i128 = accounts.map(|number| ledger.account(number).available).sum();
    let endowed = i128::from(ENDOWED) * orgs as i128;
    let charged = i128::from(CHARGED) * settled;
    if available + charged != endowed {
        let wrong = format!("granted {endowed}, charged {charged}, available {available}");
        return Err(BenchError::Wrong(wrong));
    }
    Ok(())
}
