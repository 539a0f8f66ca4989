//! The process that is killed: a ledger, its snapshots, and the clients.

use std::path::Path;
use std::sync::Arc;

use bursar_engine::follower::Follower;
use bursar_engine::{Engine, LedgerCodec, Snapshotter, WallClock};
use bursar_journal::Journal;
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
    let _follower = Follower::start(journal, codec, engine.durable(), snapshotter);
    set_up(&engine.handle());
    let clients = Clients::new(engine.handle());
    clients.say(format_args!("process {}", std::process::id()));
    let unknown = std::fs::read_to_string(directory.join(REPEAT)).expect("the parent wrote it");
    for request in unknown.lines().map(Request::parse) {
        clients.ask(request);
    }
    clients.run(first);
}
