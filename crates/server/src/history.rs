//! What was: a thread feeds history from the journal, queries ask it beside the writer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::ledger::command::Context;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::view::Balance;
use bursar_core::time::Timestamp;
use bursar_engine::Durable;
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::{Head, Journal, JournalError, StoredBatch};
use ed25519_dalek::SigningKey;
use tokio::sync::watch;

use crate::checkpoint::{Proven, Prover};
use crate::problem::Failure;

/// Batches that are fed in one transaction.
const CHUNK: usize = 256;

/// How long to let the journal grow before the next transaction, if nobody asks: a row that changes
/// several times meanwhile is written once, above all a hold that is placed and settled.
const PACE: Duration = Duration::from_millis(100);

/// How long a query waits for history to come as far as the ledger was.
const PATIENCE: Duration = Duration::from_secs(5);

/// History, and the journal for proofs.
pub struct HistoryService {
    journal: Arc<dyn Journal>,
    path: PathBuf,
    fed: watch::Receiver<u64>,
    feeding: std::thread::Thread,
    idle: Arc<Mutex<Vec<History<Sqlite>>>>,
    prover: Arc<Mutex<Prover>>,
}

impl HistoryService {
    /// Opens the file and starts the thread that feeds it; it ends with the writer. `followed` is the
    /// same journal as its followers read it.
    pub fn start(
        (journal, followed): (Arc<dyn Journal>, Arc<dyn Journal>),
        durable: Arc<Durable>,
        path: &Path,
    ) -> Result<HistoryService, String> {
        let history = open(path).map_err(|error| error.to_string())?;
        let position = history.position().map_err(|error| error.to_string())?;
        let (told, fed) = watch::channel(position);
        let feeder = Feeder { journal: followed, history, told };
        let feeding = std::thread::Builder::new()
            .name("bursar-history".into())
            .spawn(move || feeder.run(&durable))
            .map_err(|error| error.to_string())?;
        let feeding = feeding.thread().clone();
        let (path, idle) = (path.to_owned(), Arc::default());
        let prover = Arc::new(Mutex::new(Prover::new(&*journal)));
        Ok(HistoryService { journal, path, fed, feeding, idle, prover })
    }

    /// The last position that history has.
    pub fn position(&self) -> u64 {
        *self.fed.borrow()
    }

    /// Asks history, once it has come as far as `position`. Also says how far it had come.
    pub async fn ask<T: Send + 'static>(
        &self,
        position: u64,
        ask: impl FnOnce(&History<Sqlite>) -> Result<T, HistoryError> + Send + 'static,
    ) -> Result<(T, u64), Failure> {
        let mut fed = self.fed.clone();
        if *fed.borrow() < position {
            self.feeding.unpark();
        }
        let reached = fed.wait_for(|fed| *fed >= position);
        if !matches!(tokio::time::timeout(PATIENCE, reached).await, Ok(Ok(_))) {
            let detail = "history has not come so far yet; try again";
            return Err(Failure::new(Code::Unavailable, detail));
        }
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let answer = tokio::task::spawn_blocking(move || {
            let free = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = free().pop();
            let history = match taken {
                Some(history) => history,
                None => History::new(Sqlite::open_read_only(&path)?),
            };
            let answer = ask(&history).and_then(|answer| Ok((answer, history.position()?)));
            free().push(history);
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(failure),
            Err(_) => Err(Failure::new(Code::Internal, "the query failed")),
        }
    }

    /// Signs a checkpoint over at least the first `size` records, and proves one if asked to. One
    /// caller at a time: each goes on where the one before stopped reading.
    pub async fn prove(
        &self,
        key: SigningKey,
        seen: (u64, Timestamp),
        position: Option<u64>,
    ) -> Result<Proven, Failure> {
        let (journal, prover) = (Arc::clone(&self.journal), Arc::clone(&self.prover));
        let done = tokio::task::spawn_blocking(move || {
            let mut prover = prover.lock().unwrap_or_else(PoisonError::into_inner);
            prover.prove(&*journal, &key, seen, position)
        });
        let internal = |detail: String| Failure::new(Code::Internal, detail);
        done.await.map_err(|error| internal(error.to_string()))?.map_err(internal)
    }

    /// What an account had at an instant of the past, after everything that happened at it, and the
    /// position of the last record by then. `position` is how far the ledger is now.
    pub async fn balance_at(
        &self,
        position: u64,
        path: Name,
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
        other => Failure::new(Code::Unavailable, other.to_string()),
    }
}

/// Opens the file; one that cannot be used is dropped and built again.
fn open(path: &Path) -> Result<History<Sqlite>, HistoryError> {
    if let Ok(database) = Sqlite::open(path) {
        return Ok(History::new(database));
    }
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        // What is not there need not be removed.
        let _ = std::fs::remove_file(PathBuf::from(name));
    }
    Sqlite::open(path).map(History::new)
}

struct Feeder {
    journal: Arc<dyn Journal>,
    history: History<Sqlite>,
    told: watch::Sender<u64>,
}

impl Feeder {
    fn run(mut self, durable: &Durable) {
        let mut head = loop {
            match self.begin(durable) {
                Ok(head) => break head,
                // The store may come back.
                Err(reason) if !durable.is_closed() => {
                    tracing::warn!(%reason, "history could not be fed; trying again");
                    durable.pause(Duration::from_secs(1));
                }
                Err(reason) => {
                    tracing::error!(%reason, "history cannot be fed");
                    return;
                }
            }
        };
        while durable.wait_beyond(head.sequence) {
            let Some(until) = durable.head() else { continue };
            match self.feed(head, until) {
                Ok(reached) => {
                    head = reached;
                    std::thread::park_timeout(PACE);
                }
                Err(reason) => {
                    tracing::warn!(%reason, "history could not be fed; trying again");
                    durable.pause(Duration::from_secs(1));
                }
            }
        }
    }

    /// The last batch whose records are all in history. Searched by halves, not read through.
    fn begin(&self, durable: &Durable) -> Result<Head, String> {
        durable.wait_beyond(0);
        let words = |error: JournalError| error.to_string();
        let position = self.history.position().map_err(|error| error.to_string())?;
        let mut low = Head::genesis(self.journal.id());
        let mut high = self.journal.head().map_err(words)?.sequence;
        while low.sequence < high {
            let middle = low.sequence + (high - low.sequence).div_ceil(2);
            let head = self.journal.head_at(middle).map_err(words)?;
            if head.position <= position {
                low = head;
            } else {
                high = middle - 1;
            }
        }
        Ok(low)
    }

    fn feed(&mut self, after: Head, until: Head) -> Result<Head, String> {
        let mut reached = after;
        let mut chunk: Vec<StoredBatch> = Vec::with_capacity(CHUNK);
        for batch in self.journal.read(after).map_err(|error| error.to_string())? {
            let batch = batch.map_err(|error| error.to_string())?;
            if batch.sequence > until.sequence {
                break;
            }
            chunk.push(batch);
            if chunk.len() == CHUNK {
                reached = self.apply(&mut chunk, reached)?;
            }
        }
        self.apply(&mut chunk, reached)
    }

    fn apply(&mut self, chunk: &mut Vec<StoredBatch>, before: Head) -> Result<Head, String> {
        let Some(last) = chunk.last().map(StoredBatch::head) else { return Ok(before) };
        let position = self.history.apply_batches(chunk).map_err(|error| error.to_string())?;
        chunk.clear();
        self.told.send_replace(position);
        Ok(last)
    }
}
