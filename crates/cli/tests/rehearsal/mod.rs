//! What every store is good for at the end of a test: its audit holds, it can be copied, the copy can
//! be unpacked, and a server on what was unpacked starts and answers the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bursar_api::Time;
use bursar_api::amount::Sum;
use bursar_audit::LiveNumbers;
use bursar_core::ledger::Ledger;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{LedgerCodec, replay_from_genesis};
use bursar_journal::backup;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use serde_json::Value;
use tempfile::TempDir;

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");
/// Of so many accounts the restored server is asked.
const MAX_ASKED: usize = 20;

/// Runs the binary; says what it wrote if it ended well.
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

/// Runs the binary with a data folder; says what it wrote if it ended well.
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
    let known = ledger_of(data, &folder.path().join("known.db"));
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
    let known = ledger_of(&backup, &folder.path().join("known.db"));
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
    let known = ledger_of(&backup, &folder.path().join("known.db"));
    restored(&folder, &backup, known);
}

/// Rehearses the loss of a store in PostgreSQL.
#[allow(dead_code, reason = "not every test binary has such a server")]
#[track_caller]
pub(crate) fn rehearse_postgres(store: &str) {
    run(&["audit", "verify", "--store", store]);
    let folder = temporary();
    let backup = folder.path().join("backup");
    run(&["admin", "backup", "--store", store, plain(&backup)]);
    let known = ledger_of(&backup, &folder.path().join("known.db"));
    restored(&folder, &backup, known);
}

/// The ledger of a folder as its journal says it is. Nothing in the folder is changed.
fn ledger_of(data: &Path, copy: &Path) -> Ledger {
    backup::copy(&data.join("ledger-0.db"), copy, |_| {}).expect("it can be copied");
    let journal = SqliteJournal::open(copy, SqliteOptions::default()).expect("it is ours");
    replay_from_genesis(&journal, &LedgerCodec).expect("the journal is whole").machine
}

/// Unpacks a backup and compares what a server on it answers with what is known.
#[track_caller]
fn restored(folder: &TempDir, backup: &Path, known: Ledger) {
    let data: PathBuf = folder.path().join("restored");
    tool(&["admin", "restore", plain(backup)], &data);
    let again = ledger_of(&data, &folder.path().join("again.db"));
    assert_eq!(again.digest(), known.digest(), "the restored ledger is another");
    let server = Restored::start(&data);
    let ready = server.get("/readyz");
    assert_eq!(ready["ready"], true, "{ready}");
    let now = server.get("/v1/clock")["now"].clone();
    let is_quiet = known.holds_from(0, u32::MAX).all(|(_, hold)| !hold.is_open());
    let now: Time = now.as_str().and_then(|now| now.parse().ok()).expect("an instant");
    let known = LiveNumbers::of(&at(known, Timestamp::from_millis(now.millis())));
    let step = known.accounts.len().div_ceil(MAX_ASKED).max(1);
    for (account, available, held, uncollected) in known.accounts.iter().step_by(step) {
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
        assert!(!events.is_empty(), "something is due for ever");
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
