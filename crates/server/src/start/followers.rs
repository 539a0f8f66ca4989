//! What follows the journal of a ledger: the archive, history and the event feed.

use std::sync::Arc;

use bursar_journal::archive::Archive;

use super::StartError;
use super::leading::Identity;
use super::machines::LedgerWriter;
use super::storage::LedgerStorage;
use crate::config::Config;
use crate::followers::archive::{self, ArchiveService};
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::telemetry::metric_name;

/// The followers of a ledger's journal.
pub(super) struct Followers {
    pub(super) archive: ArchiveService,
    pub(super) history: HistoryService,
    pub(super) feed: Feed,
    /// The archive itself: its connections, if it has any, must not end inside the asynchronous runtime.
    pub(super) closed: Arc<Archive>,
}

impl Followers {
    /// Starts them. They share the connections of the journal, so the writer has opened them before.
    pub(super) fn start(
        config: &Config,
        identity: &Identity,
        (shard, storage): (u16, &LedgerStorage),
        writer: &LedgerWriter,
    ) -> Result<Followers, StartError> {
        let LedgerWriter { engine: ledger, followed } = writer;
        let closed = archive::open(&storage.archive, &*storage.journal);
        let closed = Arc::new(closed.map_err(StartError::Store)?);
        let archive = ArchiveService::start(
            Arc::clone(&closed),
            (Arc::clone(&storage.journal), ledger.durable()),
            ledger,
            config.ledger,
        );
        let history = HistoryService::start(
            (Arc::clone(&storage.journal), Arc::clone(followed)),
            ledger.durable(),
            &storage.history,
        )?;
        let observer = identity.observer(&metric_name(shard));
        let every = config.snapshot_every;
        let feed = Feed::start(Arc::clone(followed), ledger, every, observer)?;
        Ok(Followers { archive, history, feed, closed })
    }
}
