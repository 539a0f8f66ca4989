//! The process that is killed: a ledger, its snapshots, and the clients.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, Context, GrantKind, IssueGrant, OnExpiry, PlaceHold, Usage,
};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::{Command, Envelope, Ledger};
use bursar_engine::follower::Follower;
use bursar_engine::{Engine, Handle, LedgerCodec, Snapshotter, WallClock};
use bursar_journal::Journal;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};

use crate::support::options;

/// First argument of the child.
pub(crate) const MODE: &str = "serve-until-killed";
/// What the org was given, what a hold takes, what of it is charged, in µ.
pub(crate) const GRANTED: i64 = 1_000_000_000_000;
pub(crate) const HELD: i64 = 10;
pub(crate) const CHARGED: i64 = 6;
/// The file with the requests that are to be repeated.
pub(crate) const REPEAT: &str = "repeat";
const CLIENTS: u64 = 8;

/// What a client asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    Place(u64),
    Settle(u64),
}

impl Request {
    pub(crate) fn parse(text: &str) -> Request {
        let (what, id) = text.split_once(' ').expect("every request has two words");
        let id = id.parse().expect("every request names an id");
        match what {
            "place" => Request::Place(id),
            "settle" => Request::Settle(id),
            other => panic!("the child asks for {other}"),
        }
    }

    fn command(self) -> Command {
        let micros = |amount| Credits::from_micros(amount).expect("a small amount");
        match self {
            Request::Place(id) => Command::PlaceHold(PlaceHold {
                id: hold_name(id),
                account: "acme".into(),
                amount: micros(HELD),
                ttl_ms: Some(86_400_000),
                context: Context::default(),
                on_expiry: OnExpiry::HonorHold,
                rate: None,
                gpu_ms: 0,
                reference: None,
            }),
            Request::Settle(id) => Command::SettleHold {
                tenant: "acme".into(),
                hold: hold_name(id),
                usage: Usage::Total(micros(CHARGED)),
                cause: Cause::Holder,
            },
        }
    }

    /// The same for every repetition, whoever repeats it.
    fn envelope(self) -> Envelope {
        let number = match self {
            Request::Place(id) => 2 * u128::from(id),
            Request::Settle(id) => 2 * u128::from(id) + 1,
        };
        let fingerprint = number + 1_000;
        Envelope { actor: "client".into(), fingerprint, key: Some(fingerprint) }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Request::Place(id) => write!(f, "place {id}"),
            Request::Settle(id) => write!(f, "settle {id}"),
        }
    }
}

pub(crate) fn hold_name(id: u64) -> Name {
    format!("hold-{id}").into()
}

pub(crate) fn open(directory: &Path) -> Arc<dyn Journal> {
    // Few pages, so that kills also hit checkpoints.
    let options = SqliteOptions { checkpoint_pages: 60, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(&directory.join("journal.db"), options);
    Arc::new(journal.expect("the lock died with its holder"))
}

/// Serves its own clients until it is killed.
pub(crate) fn serve(directory: &Path, first: u64) {
    // One client that fails ends the child, and the parent sees that its log is too short.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let journal = open(directory);
    let codec = Arc::new(LedgerCodec);
    let clock = Arc::new(WallClock::new());
    let engine = Engine::start(Arc::clone(&journal), Arc::clone(&codec), clock, options("child"));
    let snapshotter = Snapshotter::new(Arc::clone(&journal), Arc::clone(&codec), 200);
    let snapshotter = snapshotter.expect("the journal is whole");
    let _follower = Follower::start(journal, codec, engine.durable(), snapshotter);
    set_up(&engine.handle());
    let clients = Clients { handle: engine.handle(), output: Mutex::new(std::io::stdout()) };
    clients.say(format_args!("process {}", std::process::id()));
    let unknown = std::fs::read_to_string(directory.join(REPEAT)).expect("the parent wrote it");
    for request in unknown.lines().map(Request::parse) {
        clients.ask(request);
    }
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    clients.ask(Request::Place(id));
                    clients.ask(Request::Settle(id));
                }
            });
        }
    });
}

/// Opens the account and gives it credits, once: repetitions get the stored answer.
fn set_up(handle: &Handle<Ledger>) {
    let open = Command::OpenAccount {
        path: "acme".into(),
        kind: AccountKind::Org,
        settings: AccountSettings::default(),
    };
    let grant = Command::IssueGrant(IssueGrant {
        id: "grant".into(),
        account: "acme".into(),
        amount: Credits::from_micros(GRANTED).expect("a possible amount"),
        kind: GrantKind::Purchase,
        effective_at: None,
        expires_at: None,
        priority: 100,
        restriction: None,
        reference: None,
        metadata: None,
    });
    for (key, command) in [(1, open), (2, grant)] {
        let envelope = Envelope { actor: "root".into(), fingerprint: key, key: Some(key) };
        handle.execute(envelope, command).expect("it serves").value.expect("accepted");
    }
}

struct Clients {
    handle: Handle<Ledger>,
    output: Mutex<std::io::Stdout>,
}

impl Clients {
    /// Asks, and says so before and after.
    fn ask(&self, request: Request) {
        self.say(format_args!("try {request}"));
        let answer = self.handle.execute(request.envelope(), request.command());
        answer.expect("the disk works").value.expect("there are credits enough");
        self.say(format_args!("ack {request}"));
    }

    /// One write for each line; when the parent is gone, so is the need for it.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        let mut output = self.output.lock().expect("no panic");
        let written = output.write_all(format!("{line}\n").as_bytes());
        if written.and_then(|()| output.flush()).is_err() {
            std::process::exit(1);
        }
    }
}
