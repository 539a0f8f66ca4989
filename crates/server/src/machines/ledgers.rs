//! The ledgers of this server, one for each shard, and what a request sees of them: the ledger of its tenant.

use std::collections::BTreeSet;
use std::sync::Arc;

use bursar_core::cell::ids::JobId;
use bursar_core::ledger::Ledger;
use bursar_engine::Seen;
use bursar_journal::Journal;

use crate::app::{App, SharedState};
use crate::followers::archive::ArchiveService;
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::ids::IdMaker;
use crate::machines::gateway::Gateway;
use crate::request::Failure;

/// The ledger of one shard, and what follows its journal.
pub struct LedgerService {
    /// Commands and reads.
    pub gateway: Gateway<Ledger>,
    /// Its journal.
    pub journal: Arc<dyn Journal>,
    /// What it has closed and forgotten.
    pub archive: Arc<ArchiveService>,
    /// The history follower.
    pub history: Arc<HistoryService>,
    /// Its events.
    pub feed: Arc<Feed>,
    /// Generates ids with its number.
    pub ids: Arc<IdMaker>,
}

/// The name of the ledger machine of a shard.
pub fn ledger_name(shard: u16) -> String {
    format!("ledger-{shard}")
}

/// The shard whose ledger machine has this name.
pub fn shard_named(name: &str) -> Option<u16> {
    let shard: u16 = name.strip_prefix("ledger-")?.parse().ok()?;
    (ledger_name(shard) == name).then_some(shard)
}

impl App {
    /// The state as handlers of the first shard see it.
    pub fn of_first(shared: Arc<SharedState>) -> App {
        App::of(shared, 0).expect("there is always a first ledger")
    }

    fn of(shared: Arc<SharedState>, shard: u16) -> Option<App> {
        let own = shared.ledgers.get(usize::from(shard))?;
        let (ledger, ledger_journal) = (own.gateway.clone(), Arc::clone(&own.journal));
        let (archive, history) = (Arc::clone(&own.archive), Arc::clone(&own.history));
        let (feed, ids) = (Arc::clone(&own.feed), Arc::clone(&own.ids));
        Some(App { shared, shard, ledger, ledger_journal, archive, history, feed, ids })
    }

    /// The same in another shard.
    pub fn in_shard(&self, shard: u16) -> Option<App> {
        App::of(Arc::clone(self.shared()), shard)
    }

    /// The same in every shard, by number.
    pub fn every_shard(&self) -> impl Iterator<Item = App> {
        (0..).map_while(|shard| self.in_shard(shard))
    }

    /// The same in the shard of a tenant.
    ///
    /// # Errors
    /// If this server does not have that shard.
    pub fn at_home(&self, tenant: &str) -> Result<App, Failure> {
        let shard = self.directory.current().shard(tenant);
        self.in_shard(shard).ok_or_else(|| {
            let detail = format!("{} is not served here; try again", ledger_name(shard));
            Failure::new(bursar_api::Code::Unavailable, detail)
        })
    }

    /// Looks at jobs of cells in the ledgers that have them.
    pub async fn read_jobs<T: Send + 'static>(
        &self,
        jobs: impl Iterator<Item = JobId>,
        look: impl Fn(&Ledger) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Failure> {
        let mut found = Vec::new();
        for app in self.shards_of(jobs) {
            let look = look.clone();
            let Seen { value, .. } = app.ledger.read(move |ledger| look(ledger)).await?;
            found.push(value);
        }
        Ok(found)
    }

    /// The same at once, durable or not.
    pub async fn peek_jobs<T: Send + 'static>(
        &self,
        jobs: impl Iterator<Item = JobId>,
        look: impl Fn(&Ledger) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Failure> {
        let mut found = Vec::new();
        for app in self.shards_of(jobs) {
            let look = look.clone();
            found.push(app.ledger.peek(move |ledger| look(ledger)).await?);
        }
        Ok(found)
    }

    fn shards_of(&self, jobs: impl Iterator<Item = JobId>) -> impl Iterator<Item = App> {
        let shards: BTreeSet<u16> = jobs.map(JobId::shard).collect();
        shards.into_iter().filter_map(|shard| self.in_shard(shard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_name_for_its_shard() {
        assert_eq!(shard_named(&ledger_name(0)), Some(0));
        assert_eq!(shard_named("ledger-65535"), Some(65_535));
        for other in ["ledger", "ledger-", "ledger-00", "ledger-65536", "ledger-x", "cell-0"] {
            assert_eq!(shard_named(other), None, "{other}");
        }
    }
}
