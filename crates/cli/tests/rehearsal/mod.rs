//! Checks of every store at the end of a test: its audit holds, it can be backed up, the backup can
//! be restored, and a server on the restored store starts and answers the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bursar_api::Time;
use bursar_api::amount::Sum;
use bursar_audit::LiveNumbers;
use bursar_core::digest::Digest;
use bursar_core::ledger::Ledger;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{DirectoryCodec, LedgerCodec, replay_from_genesis};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Journal, backup};
use serde_json::Value;
use tempfile::TempDir;

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");
/// The number of accounts that are compared with the restored server.
const MAX_ASKED: usize = 20;

/// Runs the binary; returns its output if it succeeded.
#[track_caller]
fn run(arguments: &[&str]) -> String {
    said(Command::new(BURSAR).args(arguments))
}

#[track_caller]
fn said(command: &mut Command) -> String {
    let said = command.output().expect("the program is there");
    let words = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    assert!(said.status.success(), "{command:?}: {words}");
    words
}

/// Runs the binary with a data folder; returns its output if it succeeded.
#[track_caller]
pub(crate) fn tool(arguments: &[&str], data: &Path) -> String {
    run(&[arguments, &["--data", plain(data)]].concat())
}

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// A folder in memory where there is one: what is looked for here does not depend on the disk.
fn temporary() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    folder.expect("a temporary folder")
}

/// Rehearses the loss of a store whose server has ended.
#[allow(dead_code, reason = "not every test binary has such a server")]
#[track_caller]
pub(crate) fn rehearse(data: &Path) {
    tool(&["audit", "verify"], data);
    let folder = temporary();
    let backup = folder.path().join("backup");
    tool(&["admin", "backup", plain(&backup)], data);
    let known = Known::of(data, &folder.path().join("known"));
    restored(&folder, &backup, known);
}

/// Rehearses the loss of a store whose server goes on: what is known is what was copied.
#[allow(dead_code, reason = "not every test binary has such a server")]
#[track_caller]
pub(crate) fn rehearse_running(data: &Path) {
    tool(&["audit", "verify"], data);
    let folder = temporary();
    let backup = folder.path().join("backup");
    tool(&["admin", "backup", plain(&backup)], data);
    let known = Known::of(&backup, &folder.path().join("known"));
    restored(&folder, &backup, known);
}

/// Rehearses the loss of a store that only a running process sees.
#[allow(dead_code, reason = "not every test binary has such a server")]
#[track_caller]
pub(crate) fn rehearse_inside(process: u32, data: &Path) {
    let folder = temporary();
    let backup = folder.path().join("backup");
    for arguments in [&["audit", "verify"][..], &["admin", "backup", plain(&backup)]] {
        let mut command = Command::new("nsenter");
        command.args(["--target", &process.to_string(), "--user", "--preserve-credentials"]);
        command.args(["--mount", "--", BURSAR]);
        said(command.args(arguments).args(["--data", plain(data)]));
    }
    let known = Known::of(&backup, &folder.path().join("known"));
    restored(&folder, &backup, known);
}

/// Rehearses the loss of a store in PostgreSQL.
#[allow(dead_code, reason = "not every test binary has such a server")]
#[track_caller]
pub(crate) fn rehearse_postgres(store: &str) {
    run(&["audit", "verify", "--store", store]);
    let folder = temporary();
    let backup = folder.path().join("backup");
    run(&["admin", "backup", "--store", store, "--without-key", plain(&backup)]);
    let known = Known::of(&backup, &folder.path().join("known"));
    restored(&folder, &backup, known);
}

/// What a store is, as its journals say it.
struct Known {
    /// The ledgers, by number.
    ledgers: Vec<Ledger>,
    /// Keys, prices and classes.
    directory: Digest,
    /// The journal of each cell, by the name of its file.
    cells: Vec<(String, SqliteJournal)>,
}

impl Known {
    /// What a folder holds. It is looked at in a copy, so that nothing in the folder is changed.
    fn of(data: &Path, copy: &Path) -> Known {
        std::fs::create_dir(copy).expect("it is new");
        let open = |name: &str| {
            backup::copy(&data.join(name), &copy.join(name), |_| {}).expect("it can be copied");
            SqliteJournal::open(&copy.join(name), SqliteOptions::default()).expect("it is ours")
        };
        let whole = "the journal is whole";
        let names = (0..).map(|shard| format!("ledger-{shard}.db"));
        let ledgers = names.take_while(|name| data.join(name).exists());
        let ledger =
            |name: String| replay_from_genesis(&open(&name), &LedgerCodec).expect(whole).machine;
        let ledgers: Vec<Ledger> = ledgers.map(ledger).collect();
        assert!(!ledgers.is_empty(), "there is no ledger");
        let directory = replay_from_genesis(&open("directory.db"), &DirectoryCodec).expect(whole);
        let mut cells: Vec<String> = std::fs::read_dir(data)
            .expect("it is there")
            .map(|entry| {
                entry.expect("it can be listed").file_name().to_string_lossy().into_owned()
            })
            .filter(|name| name.starts_with("cell-") && name.ends_with(".db"))
            .collect();
        cells.sort();
        let cells = cells.into_iter().map(|name| {
            let journal = open(&name);
            (name, journal)
        });
        Known { ledgers, directory: directory.machine.digest(), cells: cells.collect() }
    }

    /// Whether another store is this one and then was set back: a restore journals that in each cell and
    /// changes nothing else.
    #[track_caller]
    fn expect_in(&self, restored: &Known) {
        let digests =
            |known: &Known| -> Vec<Digest> { known.ledgers.iter().map(Machine::digest).collect() };
        assert_eq!(digests(restored), digests(self), "the restored ledgers are others");
        assert_eq!(restored.directory, self.directory, "the restored directory is another");
        let names = |known: &Known| -> Vec<String> {
            known.cells.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(restored), names(self), "there are other cells");
        for ((name, was), (_, is)) in self.cells.iter().zip(&restored.cells) {
            let head = was.head().expect("it is whole");
            let found = is.head_at(head.sequence).expect("it is whole");
            assert_eq!(found, head, "the restored {name} is another");
            assert!(
                is.head().expect("it is whole").sequence > head.sequence,
                "{name}: not set back"
            );
        }
    }
}

/// Unpacks a backup and compares what a server on it answers with what is known.
#[track_caller]
fn restored(folder: &TempDir, backup: &Path, known: Known) {
    let data: PathBuf = folder.path().join("restored");
    tool(&["admin", "restore", plain(backup)], &data);
    known.expect_in(&Known::of(&data, &folder.path().join("again")));
    let server = Restored::start(&data);
    for of_other_machines in ["/v1/keys", "/v1/prices", "/v1/nodes"] {
        server.get(of_other_machines);
    }
    let ready = server.get("/readyz");
    assert_eq!(ready["ready"], true, "{ready}");
    let now = server.get("/v1/clock")["now"].clone();
    let is_quiet =
        |ledger: &Ledger| ledger.holds_from(0, u32::MAX).all(|(_, hold)| !hold.is_open());
    let is_quiet = known.ledgers.iter().all(is_quiet);
    let now: Time = now.as_str().and_then(|now| now.parse().ok()).expect("an instant");
    let now = Timestamp::from_millis(now.millis());
    let ledgers = known.ledgers.into_iter();
    let accounts: Vec<_> =
        ledgers.flat_map(|ledger| LiveNumbers::of(&at(ledger, now)).accounts).collect();
    let step = accounts.len().div_ceil(MAX_ASKED).max(1);
    for (account, available, held, uncollected) in accounts.iter().step_by(step) {
        let balance = server.get(&format!("/v1/accounts/{account}/balance"));
        // What is open may move on meanwhile: its attempts are lost, messages arrive.
        if is_quiet {
            for (name, amount) in
                [("available", available), ("held", held), ("uncollected", uncollected)]
            {
                assert_eq!(balance[name], shown(*amount), "{name}: {balance}");
            }
        }
    }
    drop(server);
    if !is_quiet {
        tool(&["audit", "verify"], &data);
    }
}

fn shown(micros: i128) -> Value {
    serde_json::to_value(Sum::from_micros(micros)).expect("an amount is text")
}

/// The ledger at a later instant, if nothing but time goes on.
fn at(mut ledger: Ledger, now: Timestamp) -> Ledger {
    while let Some(due) = ledger.next_deadline().filter(|due| *due <= now) {
        let (mut events, due) = (Vec::new(), due.max(ledger.now()));
        ledger.decide_due(due, &mut events);
        assert!(!events.is_empty(), "timers never become due");
        events.iter().for_each(|event| ledger.apply(due, event));
    }
    ledger
}

/// A server on a restored folder, at the time at which its records end.
struct Restored {
    child: Child,
    address: String,
    root: String,
}

impl Restored {
    fn start(data: &Path) -> Restored {
        let mut child = Command::new(BURSAR)
            .args(["serve", "--dev", "--clock", "manual", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .env("BURSAR_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is there");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (mut root, mut address) = (String::new(), String::new());
        for line in lines.map_while(Result::ok) {
            if let Some(key) = line.strip_prefix("root key: ") {
                key.clone_into(&mut root);
            }
            if let Some(found) = line.strip_prefix("listening on http://") {
                found.clone_into(&mut address);
                break;
            }
        }
        let server = Restored { child, address, root };
        assert!(!server.address.is_empty(), "a restored store does not start");
        server
    }

    /// The body of a good answer.
    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let (host, key) = (&self.address, &self.root);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\
             Connection: close\r\n\r\n"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        // It may have ended by itself; then it does not answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
