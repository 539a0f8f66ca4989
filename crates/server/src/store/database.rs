//! What a database is known to hold, as a data folder's manifest says it of files: see
//! [`crate::store`]. It is looked at before anything is written.

use std::time::Duration;

use bursar_engine::cut::{CutError, check_marks};
use bursar_journal::Journal;
use bursar_journal::postgres::{PostgresOptions, PostgresStore};

use crate::start::{CellJournals, StartError};

/// How often journals are looked at that seem to be mixed: an owner of before may still have had
/// appends under way when they were read.
const LOOKS: u32 = 3;
/// How long to wait between looks: those appends end meanwhile.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// A database that this server leads.
pub(crate) struct Database {
    store: PostgresStore,
    holder: String,
}

impl Database {
    /// Refuses a database that is not whole. Writes nothing.
    pub(crate) fn look(options: PostgresOptions, holder: &str) -> Result<Database, StartError> {
        let store = PostgresStore::open(options).map_err(StartError::Store)?;
        Ok(Database { store, holder: holder.to_owned() })
    }

    /// Refuses journals of which one is older than another, unless the last server ended in order.
    pub(crate) fn check_marks(
        &self,
        ledger: &dyn Journal,
        cells: &CellJournals,
    ) -> Result<(), StartError> {
        if self.store.was_clean() {
            return Ok(());
        }
        let cells: Vec<_> =
            cells.iter().map(|(region, journal)| (region.as_str(), &**journal)).collect();
        let mut outcome = check_marks(ledger, &cells);
        for _ in 1..LOOKS {
            if !matches!(outcome, Err(CutError::Older { .. })) {
                break;
            }
            std::thread::sleep(BETWEEN_LOOKS);
            outcome = check_marks(ledger, &cells);
        }
        outcome.map_err(|error| {
            StartError::Other(format!(
                "the database: {}. No record was written. Put back the tables as they were, or \
                 restore the last backup into an empty database: bursar admin restore BACKUP --store \
                 URL",
                error.told("")
            ))
        })
    }

    /// Notes that this server begins, or that it ended in order. What is not noted costs a look at the
    /// next start.
    pub(crate) fn note(&self, clean: bool) {
        if let Err(error) = self.store.note(&self.holder, clean) {
            tracing::warn!(%error, clean, "the manifest could not be written");
        }
    }

    /// What the numbers of agents' starts are counted from.
    pub(crate) fn incarnation_base(&self) -> u32 {
        self.store.incarnation_base()
    }
}
