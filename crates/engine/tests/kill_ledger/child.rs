//! The process that is killed: a ledger, its snapshots, and the clients.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_engine::archiver::{Archiver, ClosedWindow};
use bursar_engine::follower::Follower;
use bursar_engine::{Engine, LedgerCodec, Snapshotter, WallClock};
use bursar_journal::Journal;
use bursar_journal::archive::Archive;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};

use crate::support::ledger_clients::{Clients, Request, set_up};
use crate::support::options;

/// First argument of the child.
pub(crate) const MODE: &str = "serve-until-killed";
/// The file with the requests to repeat.
pub(crate) const REPEAT: &str = "repeat";

pub(crate) fn open(directory: &Path) -> Arc<dyn Journal> {
    // A low limit, so that kills also hit checkpoints.
    let options = SqliteOptions { checkpoint_pages: 60, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(&directory.join("journal.db"), options);
    Arc::new(journal.expect("the lock died with its holder"))
}

pub(crate) const ARCHIVE: &str = "archive.db";

pub(crate) fn open_archive(directory: &Path, journal: &dyn Journal) -> Archive {
    Archive::open(&directory.join(ARCHIVE), journal.id())
        .expect("the file is whole")
        .with_runs_of(512)
}

/// Serves its own clients until it is killed.
pub(crate) fn serve(directory: &Path, first: u64) {
    // A client that fails ends the child. The parent notices that its log is too short.
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
    let _follower = Follower::start(Arc::clone(&journal), codec, engine.durable(), snapshotter);
    set_up(&engine.handle());
    let archive = Arc::new(open_archive(directory, &*journal));
    // No window: kills hit the archive and the forgetting.
    let window = ClosedWindow { keep: 0, most: 64 };
    let _archiver = Archiver::start(
        journal,
        engine.handle(),
        engine.durable(),
        Arc::clone(&archive),
        window,
        Duration::from_millis(1),
    );
    let clients = Clients::new(engine.handle()).with_archive(archive);
    clients.say(format_args!("process {}", std::process::id()));
    let unknown = std::fs::read_to_string(directory.join(REPEAT)).expect("the parent wrote it");
    for request in unknown.lines().map(Request::parse) {
        clients.ask(request);
    }
    clients.run(first);
}
