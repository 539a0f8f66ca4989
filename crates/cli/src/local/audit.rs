//! `bursar audit verify`, `prove` and `check`, with code that is independent of the writer.

use std::path::{Path, PathBuf};

use bursar_audit::proof::{self, Proven};
use bursar_audit::{
    JournalSource, LiveNumbers, Progress, Report, Source, SqliteSource, verify, verify_chain,
};
use bursar_client::api::words::counted;
use bursar_core::ledger::Ledger;
use bursar_engine::{DirectoryCodec, LedgerCodec, replay_from_genesis};
use bursar_journal::postgres::{PostgresJournal, PostgresOptions, PostgresStore};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Journal, JournalId, backup};
use bursar_server::backup::cells::{self, copy_cells};
use bursar_server::backup::{BackupError, Watch, check_directory, ledgers};
use bursar_server::followers::checkpoint::load_key;
use bursar_server::machines::ledgers::ledger_name;
use bursar_server::store::{DIRECTORY, Manifest};
use clap::{Args, Subcommand};
use ed25519_dalek::VerifyingKey;
use serde_json::{Value, json};

use super::{TerminalProgress, check_folder, failed, ledger_file};
use crate::command::system::verify::RemoteArguments;
use crate::exit::{Exit, Failure};
use crate::render::format::{Format, print};

/// The machine of which a record is proven if none is named.
const FIRST_LEDGER: &str = "ledger-0";

/// Audits a journal.
#[derive(Subcommand)]
pub(crate) enum LocalAudit {
    /// Recompute the chain and every balance from the events, and compare with a replay by the ledger.
    #[command(after_help = "Examples:\n  bursar audit verify --data /var/lib/bursar\n  \
        bursar audit verify --store postgres://db/bursar -o json\n  \
        bursar audit verify --server https://bursar.example --since checkpoint.json\n\n\
        Works beside a running server. Exit code 0 only if all holds; otherwise the first bad record \
        is named. Every sealed segment must be signed by the key that the store names, or by one of \
        --public-key. Without --data and --store it asks the server for proofs: who signed the journal, \
        that it only grew since an earlier checkpoint, and that records are where it says; balances \
        are re-derived only from a store. Of several ledgers each is verified; with -o json the answer then \
        has a list, `ledgers`.")]
    Verify(VerifyArguments),
    /// Write the proof that a record is in the journal, for third parties.
    #[command(
        after_help = "Example:\n  bursar audit prove --data /var/lib/bursar 1200 > proof.json"
    )]
    Prove {
        /// The folder of a SQLite store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The ledger whose journal has the record.
        #[arg(long, value_name = "NAME", default_value = FIRST_LEDGER)]
        machine: String,
        /// The position of the record.
        position: u64,
    },
    /// Check a proof with only the journal's identity and the public key.
    #[command(
        after_help = "Example:\n  bursar audit check proof.json --journal ID --public-key KEY"
    )]
    Check {
        /// The proof.
        file: PathBuf,
        /// The identity of the journal, as 32 hexadecimal digits.
        #[arg(long, value_name = "HEX")]
        journal: String,
        /// The public key of the checkpoints, as 64 hexadecimal digits.
        #[arg(long, value_name = "HEX")]
        public_key: String,
    },
}

/// What to verify: a store, or a server by its proofs.
#[derive(Args)]
pub(crate) struct VerifyArguments {
    /// The folder of a SQLite store.
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// The address of a PostgreSQL store.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long, requires = "store")]
    unsafe_plaintext_postgres: bool,
    #[command(flatten)]
    remote: RemoteArguments,
}

impl LocalAudit {
    /// The arguments for a server, if no store was given.
    pub(crate) fn remote(&self) -> Option<&RemoteArguments> {
        match self {
            LocalAudit::Verify(VerifyArguments { data: None, store: None, remote, .. }) => {
                Some(remote)
            }
            LocalAudit::Verify(_) | LocalAudit::Prove { .. } | LocalAudit::Check { .. } => None,
        }
    }
}

pub(crate) fn run(command: LocalAudit, format: Format) -> Result<(), Failure> {
    match command {
        LocalAudit::Verify(VerifyArguments { data: Some(data), remote, .. }) => {
            ledger_file(&data)?;
            check_folder(&data)?;
            // The server may have the journal open and continue to write: both parts read one copy.
            let folder = tempfile::tempdir()?;
            // The cells first: every message that they received is then in the copy of the ledger.
            let cells = copy_cells(&data, folder.path()).map_err(failed)?;
            let directory = Manifest::file(folder.path(), DIRECTORY);
            backup::copy_to_read(&Manifest::file(&data, DIRECTORY), &directory)?;
            check_directory(&open_source(&directory)?, &Aside).map_err(failed)?;
            let mut copies = Vec::new();
            for machine in (0..ledgers(&data).map_err(failed)?).map(ledger_name) {
                let copy = Manifest::file(folder.path(), &machine);
                backup::copy_to_read(&Manifest::file(&data, &machine), &copy)?;
                copies.push((machine, copy));
            }
            let manifest = Manifest::read(&data)?;
            let keys =
                signers(&remote, &manifest.map_or_else(Vec::new, |manifest| manifest.signers()))?;
            let signed =
                |file: &Path| open_source(file).map(|source| source.signed_by(keys.clone()));
            let (mut books, mut reports) = (Vec::new(), Vec::new());
            for (machine, copy) in copies {
                // One after the other: the ledger opens its journal exclusively.
                let broken = verify(&open_source(&copy)?, None, |_| {}).problem.is_some();
                let live = if broken { None } else { Some(replayed(&open_copy(&copy)?)?) };
                let report = verify_with_bar(&signed(&copy)?, live.as_ref());
                if report.problem.is_none() {
                    books.push(replay_from_genesis(&open_copy(&copy)?, &LedgerCodec)?.machine);
                }
                reports.push((machine, report));
            }
            conclude(&reports, format)?;
            for (region, file) in cells {
                let report = verify_chain(&signed(&file)?, |_| {});
                cells::conclude(&region, &report).map_err(failed)?;
                cells::check(&region, &open_copy(&file)?, &books, &Aside).map_err(failed)?;
            }
            Ok(())
        }
        LocalAudit::Verify(VerifyArguments {
            data: None,
            store,
            unsafe_plaintext_postgres,
            remote,
        }) => {
            let url = store.unwrap_or_default();
            let options = |machine: &str| {
                let mut options = PostgresOptions::new(url.clone(), machine);
                // Nothing is written, so a single server is safe.
                options.unsafe_single = true;
                options.unsafe_plaintext = unsafe_plaintext_postgres;
                options
            };
            let open = |machine: &str| PostgresJournal::open_to_read(options(machine));
            let directory = open(DIRECTORY)?;
            check_directory(&JournalSource::new(&directory)?, &Aside).map_err(failed)?;
            let directory = replay_from_genesis(&directory, &DirectoryCodec)?.machine;
            let keys = signers(&remote, &PostgresStore::signers_at(&options("store"))?)?;
            let (mut books, mut reports) = (Vec::new(), Vec::new());
            // A shard that was just added has no machine yet.
            for machine in (0..=directory.last_made_shard()).map(ledger_name) {
                let journal = open(&machine)?;
                let source = JournalSource::new(&journal)?.signed_by(keys.clone());
                // A broken journal has no state to compare with.
                let live = verify(&source, None, |_| {}).problem.is_none();
                let live = live.then(|| replayed(&journal)).transpose()?;
                let report = verify_with_bar(&source, live.as_ref());
                if report.problem.is_none() {
                    books.push(replay_from_genesis(&journal, &LedgerCodec)?.machine);
                }
                reports.push((machine, report));
            }
            conclude(&reports, format)?;
            // Every ledger knows all regions.
            for (_, book) in books.iter().take(1).flat_map(Ledger::cells) {
                let journal = open(&format!("cell-{}", book.region))?;
                let source = JournalSource::new(&journal)?.signed_by(keys.clone());
                let report = verify_chain(&source, |_| {});
                cells::conclude(&book.region, &report).map_err(failed)?;
                cells::check(&book.region, &journal, &books, &Aside).map_err(failed)?;
            }
            Ok(())
        }
        LocalAudit::Prove { data, machine, position } => prove(&data, &machine, position),
        LocalAudit::Check { file, journal, public_key } => check(&file, &journal, &public_key),
    }
}

/// Says on stderr what it checks besides: the output is the report of the ledgers.
struct Aside;

impl Watch for Aside {
    fn verified(&self, _: Progress) {}

    fn say(&self, line: &str) -> Result<(), BackupError> {
        self.note(line);
        Ok(())
    }

    fn note(&self, line: &str) {
        eprintln!("{line}");
    }
}

/// The keys that signed the sealed segments of a store: those that were given, or those that the
/// store names.
fn signers(given: &RemoteArguments, known: &[String]) -> Result<Vec<VerifyingKey>, Failure> {
    match given.public_keys() {
        [] => known.iter().map(|key| public_key(key, "the key of the store")).collect(),
        given => given.iter().map(|key| public_key(key, "--public-key")).collect(),
    }
}

/// A public key of 64 hexadecimal digits.
pub(crate) fn public_key(text: &str, flag: &str) -> Result<VerifyingKey, Failure> {
    VerifyingKey::from_bytes(&bytes(text, flag)?).map_err(|error| Failure::new(flag, error))
}

fn open_source(file: &Path) -> Result<SqliteSource, Failure> {
    SqliteSource::open(file).map_err(|reason| Failure::new(file.display(), reason))
}

fn open_copy(file: &Path) -> Result<SqliteJournal, Failure> {
    Ok(SqliteJournal::open(file, SqliteOptions::default())?)
}

fn verify_with_bar(source: &dyn Source, live: Option<&LiveNumbers>) -> Report {
    let bar = TerminalProgress::new();
    let report = verify(source, live, |progress| bar.verified(progress));
    bar.finish();
    report
}

/// The numbers of the ledger after replaying the journal.
fn replayed(journal: &dyn Journal) -> Result<LiveNumbers, Failure> {
    let ledger = replay_from_genesis(journal, &LedgerCodec)?.machine;
    Ok(LiveNumbers::of(&ledger))
}

/// Shows the reports of all ledgers. Fails if one does not hold.
fn conclude(reports: &[(String, Report)], format: Format) -> Result<(), Failure> {
    let holds = reports.iter().all(|(_, report)| report.holds());
    match (reports, format) {
        ([(_, one)], Format::Json) => print(&format!("{:#}\n", one.to_json()))?,
        ([(_, one)], _) => print(&one.to_string())?,
        (several, Format::Json) => {
            let ledger = |(machine, report): &(String, Report)| {
                let mut shown = report.to_json();
                shown["machine"] = machine.as_str().into();
                shown
            };
            let ledgers: Vec<Value> = several.iter().map(ledger).collect();
            print(&format!("{:#}\n", json!({ "ok": holds, "ledgers": ledgers })))?;
        }
        (several, _) => {
            for (machine, report) in several {
                print(&format!("ledger   {machine}\n{report}"))?;
            }
        }
    }
    let mut bad = reports.iter().filter(|(_, report)| !report.holds());
    let Some((machine, report)) = bad.next() else { return Ok(()) };
    let why = match &report.problem {
        Some(problem) => problem.to_string(),
        None => {
            let places = counted(report.differences.len(), "place");
            format!("the ledger and its journal differ in {places}")
        }
    };
    let next = "keep this store as it is and restore the last good backup beside it";
    let failure = |why: String| Failure::because(Exit::Failed, why).with_next(next);
    if reports.len() == 1 {
        return Err(failure(why));
    }
    let others = bad.map(|(machine, _)| format!("{machine} is bad as well"));
    let first = failure(format!("{machine}: {why}"));
    Err(others.fold(first, |failure, other| failure.with_particular(other)))
}

fn prove(data: &Path, machine: &str, position: u64) -> Result<(), Failure> {
    ledger_file(data)?;
    let known: Vec<String> = (0..ledgers(data).map_err(failed)?).map(ledger_name).collect();
    if !known.iter().any(|name| name == machine) {
        let why = format!("--machine {machine}: there is no such ledger");
        let next = format!("its ledgers are: {}", known.join(", "));
        return Err(Failure::because(Exit::Usage, why).with_next(next));
    }
    let source = open_source(&Manifest::file(data, machine))?;
    let key = load_key(&data.join("checkpoint.key"))?;
    let head = verify(&source, None, |_| {});
    let until = head.until.ok_or_else(|| Failure::new("the journal", "it has no record yet"))?;
    let signed = proof::sign_checkpoint(&source, &key, until)?;
    let mut file = proof::prove_record(&source, position, &signed)?;
    // Included for convenience; a checker must have both from another source.
    file["journal"] = hex(&source.journal()).into();
    file["public_key"] = hex(key.verifying_key().as_bytes()).into();
    print(&format!("{file:#}\n"))
}

fn check(file: &Path, journal: &str, public_key: &str) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file)?;
    let journal = JournalId(bytes(journal, "--journal")?);
    let key = self::public_key(public_key, "--public-key")?;
    let proven = proof::check(&text, journal, key)
        .map_err(|error| Failure::because(Exit::Refused, error.to_string()))?;
    match proven {
        Proven::Record { position, checkpoint, .. } => print(&format!(
            "record {position} is among the first {} of the journal\n",
            counted(checkpoint.size, "record")
        )),
        Proven::Continued { older, newer } => print(&format!(
            "the journal of {} continues the one of {}\n",
            counted(newer.size, "record"),
            older.size
        )),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly `N` bytes of hexadecimal digits.
pub(crate) fn bytes<const N: usize>(text: &str, flag: &str) -> Result<[u8; N], Failure> {
    let wrong = || Failure::because(Exit::Usage, format!("{flag}: give {} hex digits", 2 * N));
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}
