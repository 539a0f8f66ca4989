//! Compares the journal after a kill with its replays, with the auditor and with the clients' log.

use std::path::Path;
use std::sync::Arc;

use bursar_audit::{LiveNumbers, SqliteSource, verify};
use bursar_core::ledger::{Ledger, invariant};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::archiver::build_archive;
use bursar_engine::{Engine, LedgerCodec, WallClock, replay, replay_from_genesis};
use bursar_journal::backup;

use crate::child::{open, open_archive};
use crate::support::ledger_log::{Log, compare_with_archive};
use crate::support::options;
use crate::temp_dir::TempDir;

/// Opens the journal as a new process would and compares it with its replays, with the auditor's
/// balances and with the clients' log.
pub(crate) fn compare(directory: &Path, log: &mut Log) {
    let journal = open(directory);
    let whole = replay_from_genesis(&*journal, &LedgerCodec).expect("the journal is whole");
    let digest = whole.machine.digest();
    let quick = replay(&*journal, &LedgerCodec).expect("the journal is whole");
    assert_eq!(quick.skipped, [""; 0], "a snapshot was stored in part");
    assert_eq!(quick.machine.digest(), digest, "L11: from a snapshot and from the start");
    let codec = Arc::new(LedgerCodec);
    let clock = Arc::new(WallClock::new());
    let engine = Engine::start(Arc::clone(&journal), codec, clock, options("parent"));
    let live = engine.handle().read(|ledger: &Ledger| (ledger.digest(), LiveNumbers::of(ledger)));
    let (served, numbers) = live.expect("it serves").value;
    assert_eq!(served, digest, "L11: the served state is the journal's");
    engine.stop();
    let archive = open_archive(directory, &*journal);
    if archive.position() == 0 {
        build_archive(&*journal, &archive, Timestamp::MIN).expect("the journal is whole");
    }
    let forgotten = whole.machine.forgotten_through();
    assert!(archive.position() >= forgotten, "what the archive does not have was forgotten");
    drop(journal);
    let source =
        SqliteSource::open(&directory.join("journal.db")).expect("no other process has it open");
    let report = verify(&source, Some(&numbers), |_| {});
    assert!(report.holds() && report.compared, "{report}");
    assert_eq!(invariant::check(&whole.machine), Ok(()));
    compare_with_archive(&whole.machine, Some(&archive), log);
}

/// A copy of the journal verifies and replays to the same state.
pub(crate) fn rehearse(directory: &Path) {
    let folder = TempDir::new();
    let copy = folder.path().join("journal.db");
    backup::copy(&directory.join("journal.db"), &copy, |_| {}).expect("it is whole");
    let report = verify(&SqliteSource::open(&copy).expect("it is a journal"), None, |_| {});
    assert!(report.holds(), "{report}");
    let [was, is] = [directory, folder.path()].map(|directory| {
        let whole = replay_from_genesis(&*open(directory), &LedgerCodec).expect("it is whole");
        whole.machine.digest()
    });
    assert_eq!(is, was, "the copy replays to another state");
}
