//! The archive of what the ledger has closed and forgotten: opened beside the journal, written by a thread, asked by
//! requests that name something old.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use bursar_engine::archiver::{ArchiveStepError, ArchiveWork, Archiver, ClosedWindow};
use bursar_engine::recall::{Recall, recall_with_keys};
use bursar_engine::{Durable, Engine, LedgerCodec};
use bursar_journal::archive::{Archive, ArchiveFamily};
use bursar_journal::postgres::PostgresOptions;
use bursar_journal::record::ledger::{answer_key, object_key};
use bursar_journal::sqlite::cut_database;
use bursar_journal::{Journal, JournalError};
use serde::{Deserialize, Serialize};

use crate::machines::gateway::Gateway;
use crate::net::turns::Turns;
use crate::request::Failure;

/// The pause of the thread while there is little to archive.
const IDLE_INTERVAL: Duration = Duration::from_millis(50);
/// The most look-ups that run at once, each on a thread. Queries of history have others.
const MAX_LOOK_UPS: usize = 32;
/// The most that leaves memory in one decision, so that no request waits long for it.
const MAX_STEP_ENTRIES: usize = 1024;

/// How often, and after which pause each, a request looks whether the archive was compared with the journal. That is
/// done right after a start.
const MAX_COMPARED_CHECKS: u32 = 400;
const COMPARED_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Which keys refund the jobs that a region ran, and their holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobRefunds {
    /// Those that refund everything else: the roles `admin` and `billing`.
    #[default]
    Billing,
    /// Of these, only keys of the platform and those with the capability `issue`.
    Platform,
}

/// What the ledger keeps in memory, and which refunds it takes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerOptions {
    /// How many closed holds and charges, how many movements and how many answers stay in memory.
    pub closed_memory: usize,
    /// Which keys refund the jobs that a region ran.
    pub job_refunds: JobRefunds,
}

impl Default for LedgerOptions {
    fn default() -> LedgerOptions {
        let (closed_memory, job_refunds) = (ClosedWindow::default().keep, JobRefunds::default());
        LedgerOptions { closed_memory, job_refunds }
    }
}

impl LedgerOptions {
    fn window(self) -> ClosedWindow {
        ClosedWindow { keep: self.closed_memory, most: MAX_STEP_ENTRIES }
    }
}

/// A hold, charge or movement, by its kind, tenant and id.
pub type ArchivedId = (Resource, AccountNo, Name);

/// Where an archive is stored.
pub(crate) enum ArchivePlace {
    /// A file beside the journal.
    File(PathBuf),
    /// Tables in the database of the journal.
    Tables(Box<PostgresOptions>),
}

/// Opens the archive of a journal.
pub(crate) fn open(place: &ArchivePlace, journal: &dyn Journal) -> Result<Archive, JournalError> {
    match place {
        ArchivePlace::File(path) => open_file(path, journal),
        ArchivePlace::Tables(options) => Archive::open_postgres((**options).clone()),
    }
}

/// Opens the archive beside a journal. A file that is damaged, or of another journal, is renamed, and a new one is
/// made: the archive is built again from the journal.
fn open_file(path: &Path, journal: &dyn Journal) -> Result<Archive, JournalError> {
    let cut = cut_database(path).filter(|_| path.exists());
    let opened = match cut {
        Some(_) => Err(JournalError::Refused("it is incomplete".into())),
        None => Archive::open(path, journal.id()),
    };
    let reason = match opened {
        Ok(archive) => return Ok(archive),
        Err(error) if is_unusable(&error) => error.to_string(),
        Err(error) => return Err(named(path, &error)),
    };
    let aside = set_aside(path).map_err(|error| named(path, &error))?;
    tracing::error!(
        file = %path.display(), aside = %aside.display(), reason,
        "the archive cannot be used. It was renamed and is built again from the journal; remove the renamed file when \
         it is of no use"
    );
    Archive::open(path, journal.id()).map_err(|error| named(path, &error))
}

/// Whether a file will never be readable as the archive of this journal.
fn is_unusable(error: &JournalError) -> bool {
    let words = error.to_string();
    matches!(error, JournalError::Refused(_))
        || ["not a database", "malformed", "damaged", "no such table"]
            .iter()
            .any(|fault| words.contains(fault))
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> JournalError {
    JournalError::Refused(format!(
        "{}: the archive of closed holds cannot be opened: {error}. Nothing was changed. Make the file readable and \
         writable, or remove it while the server is stopped: it is built again from the journal",
        path.display()
    ))
}

/// Renames the file and those beside it.
fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let beside = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let names = (1..).map(|number| beside(path, &format!(".unusable-{number}")));
    let aside = names.into_iter().find(|aside| !aside.exists()).unwrap_or_else(|| path.to_owned());
    for end in ["-wal", "-shm"] {
        if beside(path, end).exists() {
            std::fs::rename(beside(path, end), beside(&aside, end))?;
        }
    }
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

/// The archive of a ledger, and the thread that writes it.
pub struct ArchiveService {
    archive: Arc<Archive>,
    /// The numbers of tenants, which never change.
    tenants: RwLock<HashMap<AccountPath, AccountNo>>,
    state: Arc<Mutex<ArchiveState>>,
    turns: Arc<Turns>,
    /// Ends with the writer.
    _archiver: Archiver,
}

/// What the thread last reported.
#[derive(Default)]
struct ArchiveState {
    is_building: bool,
    trouble: Option<String>,
}

fn lock(state: &Mutex<ArchiveState>) -> MutexGuard<'_, ArchiveState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ArchiveService {
    /// Starts the thread that archives what is closed and lets the ledger forget it.
    pub(crate) fn start(
        archive: Arc<Archive>,
        (journal, durable): (Arc<dyn Journal>, Arc<Durable>),
        ledger: &Arc<Engine<LedgerCodec>>,
        options: LedgerOptions,
    ) -> ArchiveService {
        let state = Arc::<Mutex<ArchiveState>>::default();
        let noted = Arc::clone(&state);
        let note = move |work: Result<ArchiveWork, &ArchiveStepError>| report(&noted, work);
        let (written, pace) = (Arc::clone(&archive), (options.window(), IDLE_INTERVAL));
        let (handle, engine) = (ledger.handle(), Arc::downgrade(ledger));
        let epoch = move || Some(engine.upgrade()?.tenure()?.lease().epoch);
        let archiver = Archiver::watched((journal, durable), handle, written, pace, epoch, note);
        let turns = Turns::new("look-ups in the archive", MAX_LOOK_UPS);
        ArchiveService { archive, tenants: RwLock::default(), state, turns, _archiver: archiver }
    }

    /// The position of the archive; 0 while it is built.
    pub fn position(&self) -> u64 {
        self.archive.position()
    }

    /// The number of a tenant, if it was asked before.
    pub(crate) fn known_tenant(&self, tenant: &str) -> Option<AccountNo> {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(tenant).copied()
    }

    /// The number of a tenant, if there is one of this name.
    pub(crate) async fn tenant(
        &self,
        ledger: &Gateway<Ledger>,
        tenant: &AccountPath,
    ) -> Result<Option<AccountNo>, Failure> {
        if let Some(number) = self.known_tenant(tenant) {
            return Ok(Some(number));
        }
        let path = tenant.clone();
        // Durable: an account that is not may yet get another number.
        let found = ledger.read(move |ledger| ledger.find_account(&path)).await?.value;
        if let Some(number) = found {
            let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
            tenants.insert(tenant.clone(), number);
        }
        Ok(found)
    }

    /// The position of the archive if it certainly has nothing under these names and keys. Reads nothing.
    pub(crate) fn excludes(&self, names: &[ArchivedId], keys: &[u128]) -> Option<u64> {
        let position = self.archive.position();
        let mut least = (position > 0).then_some(position)?;
        for (what, tenant, name) in names {
            let key = object_key(*what, *tenant, name);
            least = least.min(self.archive.excludes(ArchiveFamily::Objects, &key)?);
        }
        for key in keys {
            least = least.min(self.archive.excludes(ArchiveFamily::Answers, &answer_key(*key))?);
        }
        Some(least)
    }

    /// What it has under these names and keys.
    pub(crate) async fn recall(
        &self,
        names: Vec<ArchivedId>,
        keys: Vec<u128>,
    ) -> Result<Vec<Recall>, Failure> {
        for _ in 0..MAX_COMPARED_CHECKS {
            let is_compared = self.archive.position() > 0 || self.archive.mark().position == 0;
            if is_compared {
                break;
            }
            tokio::time::sleep(COMPARED_CHECK_INTERVAL).await;
        }
        let turn = self.turns.take().await?;
        let archive = Arc::clone(&self.archive);
        let look = move || {
            let _turn = turn;
            recall_with_keys(&archive, &names, &keys)
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(self.unavailable(&error.to_string())),
            Err(_) => Err(Failure::new(Code::Internal, "the archive could not be asked")),
        }
    }

    /// The answer while it cannot be read, with the reason.
    fn unavailable(&self, reason: &str) -> Failure {
        tracing::error!(
            reason,
            "the archive cannot be read. If it stays so, stop the server and remove the archive's file: it is built again \
             from the journal"
        );
        let state = lock(&self.state);
        let building = "the archive of what was closed is being built from the journal";
        let detail = match (&state.trouble, state.is_building) {
            (Some(trouble), _) => format!("{reason}; {trouble}"),
            (None, true) => building.to_owned(),
            (None, false) => reason.to_owned(),
        };
        Failure::new(
            Code::Unavailable,
            format!("what this request names may be in the archive, which cannot answer: {detail}"),
        )
    }
}

/// Keeps what the thread reports, and logs each trouble once.
fn report(state: &Mutex<ArchiveState>, work: Result<ArchiveWork, &ArchiveStepError>) {
    let mut state = lock(state);
    state.is_building = work.as_ref().is_ok_and(|work| *work == ArchiveWork::Building);
    match work {
        Ok(ArchiveWork::Building) => tracing::info!("the archive is built from the journal"),
        Ok(ArchiveWork::Done) => {
            if state.trouble.take().is_some() {
                tracing::info!("the archive is written again");
            }
        }
        Err(error) => {
            let trouble = error.to_string();
            if state.trouble.as_ref() != Some(&trouble) {
                tracing::error!(
                    reason = trouble,
                    "the archive cannot be written; what is closed stays in memory, trying again"
                );
            }
            state.trouble = Some(trouble);
        }
    }
}
