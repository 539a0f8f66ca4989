//! The history follower: a thread feeds history from the journal; queries do not use the writer.

mod feeder;

use std::collections::BTreeMap;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::ledger::accounts::view::Balance;
use bursar_core::ledger::command::Context;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use bursar_engine::Durable;
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::sqlite::cut_database;
use bursar_journal::{Head, Journal, JournalError};
use ed25519_dalek::SigningKey;
use tokio::sync::watch;
use tracing::Instrument;

use feeder::Feeder;

use crate::followers::checkpoint::{ProvenCheckpoint, Prover};
use crate::followers::error::FollowerError;
use crate::net::turns::{Turn, Turns};
use crate::request::Failure;
use crate::telemetry::trace;

/// How long the journal grows before the next records are taken in, while no query waits. A row
/// that changes several times meanwhile is written once, above all a hold that is placed and
/// settled.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// How long a query waits for history to reach the ledger's position.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The most queries that run at once; each has a thread and a connection with its own cache.
const MAX_QUERIES: usize = 16;

/// History, and the journal for proofs.
pub struct HistoryService {
    journal: Arc<dyn Journal>,
    path: PathBuf,
    fed: watch::Receiver<u64>,
    feeding: std::thread::Thread,
    /// The number of queries that wait for a position.
    waiting: Arc<AtomicUsize>,
    idle: Arc<Mutex<Vec<History<Sqlite>>>>,
    turns: Arc<Turns>,
    prover: Arc<Mutex<Prover>>,
    /// The provers of other machines, by name: one for each cell, and the directory's.
    others: Mutex<BTreeMap<String, Arc<Mutex<Prover>>>>,
}

impl HistoryService {
    /// Opens the file and starts the thread that feeds it. The thread ends with the writer.
    /// `followed` is the same journal as its followers read it.
    pub fn start(
        (journal, followed): (Arc<dyn Journal>, Arc<dyn Journal>),
        durable: Arc<Durable>,
        path: &Path,
    ) -> Result<HistoryService, FollowerError> {
        HistoryService::paced((journal, followed), durable, path, FOLLOW_INTERVAL)
    }

    fn paced(
        (journal, followed): (Arc<dyn Journal>, Arc<dyn Journal>),
        durable: Arc<Durable>,
        path: &Path,
        pace: Duration,
    ) -> Result<HistoryService, FollowerError> {
        let mut history = open(path)?;
        let is_good = is_of(&history, &*journal).unwrap_or_else(|reason| {
            tracing::warn!(file = %path.display(), %reason, "history cannot be read");
            false
        });
        if !is_good {
            tracing::warn!("history does not match the journal's hash; rebuilding");
            drop(history);
            remove(path);
            history = open(path)?;
        }
        let position = history.position()?;
        tracing::info!(position, "history continues from here");
        let (progress, fed) = watch::channel(position);
        let waiting = Arc::<AtomicUsize>::default();
        let kept = Head::genesis(followed.id());
        let waits = Arc::clone(&waiting);
        let feeder = Feeder { journal: followed, history, kept, progress, pace, waiting: waits };
        let feeding = std::thread::Builder::new()
            .name("bursar-history".into())
            .spawn(move || feeder.run(&durable))?;
        let feeding = feeding.thread().clone();
        let (path, idle) = (path.to_owned(), Arc::default());
        let prover = Arc::new(Mutex::new(Prover::new(&*journal)));
        let turns = Turns::new("queries of the past", MAX_QUERIES);
        Ok(HistoryService {
            journal,
            path,
            fed,
            feeding,
            waiting,
            idle,
            turns,
            prover,
            others: Mutex::default(),
        })
    }

    /// The last position that history has.
    pub fn position(&self) -> u64 {
        *self.fed.borrow()
    }

    /// Waits for a turn to read the past on a thread of its own. Queries of history need none: they
    /// take one themselves.
    pub(crate) async fn turn(&self) -> Result<Turn, Failure> {
        self.turns.take().await
    }

    /// Queries history once it has reached `position`. Also returns the position that it has.
    pub async fn ask<T: Send + 'static>(
        &self,
        position: u64,
        ask: impl FnOnce(&History<Sqlite>) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<(T, u64), Failure> {
        if self.position() < position {
            let step = trace::step("catch up", "history");
            self.wait_for(position).instrument(step).await?;
        }
        let turn = self.turn().instrument(trace::step("turn", "history")).await?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let answer = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let free = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = free().pop();
            let history = match taken {
                Some(history) => history,
                None => History::new(Sqlite::open_read_only(&path)?),
            };
            let answer = ask(&history).and_then(|answer| Ok((answer, history.position()?)));
            // There are as many connections as queries ran at once.
            free().push(history);
            answer
        });
        match answer.instrument(trace::step("query", "history")).await {
            Ok(answer) => answer.map_err(failure),
            Err(_) => Err(Failure::new(Code::Internal, "the query failed")),
        }
    }

    /// Waits until history has reached `position`. The feeding thread does not pause meanwhile.
    async fn wait_for(&self, position: u64) -> Result<(), Failure> {
        let _waiting = WaitingReads::begin(&self.waiting);
        self.feeding.unpark();
        let mut fed = self.fed.clone();
        let reached = fed.wait_for(|fed| *fed >= position);
        match tokio::time::timeout(CATCH_UP_TIMEOUT, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                let detail = "history has not reached this position yet; try again";
                Err(Failure::new(Code::Unavailable, detail))
            }
        }
    }

    /// Signs a checkpoint over at least the first `size` records, and proves one on request. One
    /// caller at a time: each continues where the previous one stopped reading.
    pub async fn prove(
        &self,
        key: SigningKey,
        seen: (u64, Timestamp),
        position: Option<u64>,
    ) -> Result<ProvenCheckpoint, Failure> {
        let (journal, prover) = (Arc::clone(&self.journal), Arc::clone(&self.prover));
        self.proven(journal, prover, move |prover, journal| {
            prover.prove(journal, &key, seen, position)
        })
        .await
    }

    /// Like [`HistoryService::prove`], for the whole journal of another machine.
    pub async fn prove_of(
        &self,
        (machine, journal): (&str, &Arc<dyn Journal>),
        key: SigningKey,
        now: Timestamp,
        position: Option<u64>,
    ) -> Result<ProvenCheckpoint, Failure> {
        let prover = {
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Mutex::new(Prover::new(&**journal)));
            Arc::clone(others.entry(machine.to_owned()).or_insert_with(new))
        };
        self.proven(Arc::clone(journal), prover, move |prover, journal| {
            let size = journal.head()?.position;
            prover.prove(journal, &key, (size, now), position)
        })
        .await
    }

    async fn proven(
        &self,
        journal: Arc<dyn Journal>,
        prover: Arc<Mutex<Prover>>,
        prove: impl FnOnce(&mut Prover, &dyn Journal) -> Result<ProvenCheckpoint, FollowerError>
        + Send
        + 'static,
    ) -> Result<ProvenCheckpoint, Failure> {
        let turn = self.turn().await?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut prover = prover.lock().unwrap_or_else(PoisonError::into_inner);
            prove(&mut prover, &*journal)
        });
        let internal = |detail: String| Failure::new(Code::Internal, detail);
        let proven = done.await.map_err(|error| internal(error.to_string()))?;
        proven.map_err(|error| internal(error.to_string()))
    }

    /// The balance of an account at a past instant, after everything that happened at it, and the
    /// position of the last record by then. `position` is the present position of the ledger.
    pub async fn balance_at(
        &self,
        position: u64,
        path: AccountPath,
        context: Context,
        at: Timestamp,
    ) -> Result<(Balance, u64), Failure> {
        let ask = self.ask(position, move |history| {
            Ok((history.balance_at(&path, &context, at)?, history.position_at(at)?))
        });
        Ok(ask.await?.0)
    }
}

fn failure(error: HistoryError) -> Failure {
    match error {
        HistoryError::BadCursor => {
            Failure::invalid("cursor", "pass the next_cursor of the page before")
        }
        HistoryError::TooMuch { .. } | HistoryError::PartsOfHours { .. } => {
            Failure::invalid("from", error.to_string())
        }
        HistoryError::Inconsistent(_) => {
            tracing::error!(reason = %error, "history cannot answer");
            Failure::new(Code::Unavailable, error.to_string())
        }
        HistoryError::Storage { .. }
        | HistoryError::Full { .. }
        | HistoryError::Gap { .. }
        | HistoryError::Record { .. }
        | HistoryError::Batch(_)
        | HistoryError::Journal(_)
        | HistoryError::Refused(_) => Failure::new(Code::Unavailable, error.to_string()),
    }
}

/// Opens the file. An unusable file is removed and built again.
fn open(path: &Path) -> Result<History<Sqlite>, HistoryError> {
    if cut_database(path).is_some() {
        tracing::warn!(file = %path.display(), "history is incomplete; rebuilding");
        remove(path);
    }
    make_private(path);
    if let Ok(database) = Sqlite::open(path) {
        return Ok(History::new(database));
    }
    remove(path);
    make_private(path);
    Sqlite::open(path).map(History::new)
}

/// Makes the file readable by its owner only. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    let made = options.append(true).create(true).mode(0o600).open(path);
    let private = std::fs::Permissions::from_mode(0o600);
    // Any fault of the file is reported when it is opened as a database.
    let _ = made.and_then(|file| file.set_permissions(private));
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        // A missing file need not be removed.
        let _ = std::fs::remove_file(PathBuf::from(name));
    }
}

/// Whether history belongs to this journal: the journal has history's last batch with the same
/// hash, and history has nothing beyond it.
fn is_of(history: &History<Sqlite>, journal: &dyn Journal) -> Result<bool, FollowerError> {
    let followed = history.followed(journal)?;
    let head = journal.head()?;
    if followed.sequence > head.sequence || history.position()? > head.position {
        return Ok(false);
    }
    match journal.head_at(followed.sequence) {
        Ok(found) => Ok(found == followed),
        Err(JournalError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A query that waits for a position.
struct WaitingReads<'a>(&'a AtomicUsize);

impl WaitingReads<'_> {
    fn begin(count: &AtomicUsize) -> WaitingReads<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        WaitingReads(count)
    }
}

impl Drop for WaitingReads<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
