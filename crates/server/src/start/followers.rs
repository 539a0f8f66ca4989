//! What follows the journal of the ledger: the archive, history and the event feed.

use std::sync::Arc;

use bursar_journal::archive::Archive;

use super::StartError;
use super::leading::Identity;
use super::machines::Writers;
use super::storage::Storage;
use crate::config::Config;
use crate::followers::archive::{self, ArchiveService};
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::telemetry::LEDGER;

/// The followers of the ledger's journal.
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
        storage: &Storage,
        writers: &Writers,
    ) -> Result<Followers, StartError> {
        let Writers { ledger, followed, .. } = writers;
        let closed = archive::open(&storage.archive, &*storage.ledger);
        let closed = Arc::new(closed.map_err(StartError::Store)?);
        let archive = ArchiveService::start(
            Arc::clone(&closed),
            (Arc::clone(&storage.ledger), ledger.durable()),
            ledger,
            config.ledger,
        );
        let history = HistoryService::start(
            (Arc::clone(&storage.ledger), Arc::clone(followed)),
            ledger.durable(),
            storage.history.path(),
        )?;
        let observer = identity.observer(LEDGER);
        let every = config.snapshot_every;
        let feed = Feed::start(Arc::clone(followed), ledger, every, observer)?;
        Ok(Followers { archive, history, feed, closed })
    }
}
