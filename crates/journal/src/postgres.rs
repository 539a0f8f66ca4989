//! A journal in PostgreSQL, for several servers of which one at a time owns it.
//!
//! Every append is one statement that checks epoch and head, so a deposed owner cannot write. A
//! commit that waits for a synchronous standby cannot be stopped by PostgreSQL's own time-outs, and
//! one whose wait was cancelled answers success with a WARNING although nothing was replicated.
//! Hence: appends have a deadline of ours, and its passing, any WARNING and any broken connection
//! make the outcome unknown. A cancel request is never sent.

mod address;
mod schema;
mod session;
mod tls;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{BatchReader, Journal, Lease, Pending, RowSource, checked_head, no_snapshot};
use crate::record::Batch;
use crate::snapshot::{KEPT, Snapshot, SnapshotMark};
use session::{Appender, Session, stored};

/// Appends under way at once.
const PIPELINE_DEPTH: usize = 4;
/// Batches fetched in one query.
const PAGE_ROWS: i64 = 64;
/// A snapshot is stored in rows of this size.
const CHUNK_BYTES: usize = 1 << 20;

/// How to open a PostgreSQL journal.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Where, in libpq's words or as a `postgres://` address, with `sslmode` and `sslrootcert`.
    /// Without `sslmode`, the way to another machine is encrypted and its certificate checked.
    pub url: String,
    /// The name of the machine whose journal this is; one database holds many.
    pub machine: String,
    /// How long an append may take before its outcome counts as unknown.
    pub append_deadline: Duration,
    /// How long anything else may take.
    pub query_deadline: Duration,
    /// Accept a server without a synchronous standby: its loss is then the loss of
    /// acknowledged batches.
    pub unsafe_single: bool,
    /// Accept `sslmode=disable` to another machine: whoever is in between reads and changes all.
    pub unsafe_plaintext: bool,
}

impl PostgresOptions {
    /// Safe defaults for `machine` in the database at `url`.
    pub fn new(url: impl Into<String>, machine: impl Into<String>) -> PostgresOptions {
        PostgresOptions {
            url: url.into(),
            machine: machine.into(),
            append_deadline: Duration::from_secs(5),
            query_deadline: Duration::from_secs(30),
            unsafe_single: false,
            unsafe_plaintext: false,
        }
    }
}

/// See the module's documentation. Has a small runtime of its own, so it must be used and dropped by
/// ordinary threads, never inside another asynchronous runtime.
pub struct PostgresJournal {
    id: JournalId,
    shared: Arc<Shared>,
}

struct Shared {
    options: PostgresOptions,
    links: Mutex<Option<Links>>,
    // Dropped last: the sessions live on it.
    runtime: Runtime,
}

/// Three connections, so that a long read delays no append and no renewal.
#[derive(Clone)]
struct Links {
    appender: Arc<Appender>,
    control: Arc<Session>,
    reader: Arc<Session>,
}

impl PostgresJournal {
    /// Opens the journal of one machine, and creates tables and journal where they are missing.
    ///
    /// # Errors
    /// Refuses a standby, a server that may lose what it acknowledged (no synchronous standby
    /// unless `unsafe_single`, `fsync` or `full_page_writes` off), and a schema it does not know.
    pub fn open(options: PostgresOptions) -> Result<PostgresJournal, JournalError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("bursar-postgres")
            .enable_all()
            .build()
            .map_err(|error| JournalError::storage("starting the PostgreSQL thread", error))?;
        let shared = Shared { options, links: Mutex::new(None), runtime };
        let links = shared.connect()?;
        let id = shared.block_on(schema::prepare(&links.control, &shared.options))?;
        *shared.links() = Some(links);
        let journal = PostgresJournal { id, shared: Arc::new(shared) };
        journal.check_tail()?;
        Ok(journal)
    }

    fn check_tail(&self) -> Result<(), JournalError> {
        let head = self.head()?;
        if self.head_at(head.sequence)? != head {
            let reason = "it is not the batch that the journal's head names".into();
            return Err(JournalError::Corrupt { sequence: head.sequence, reason });
        }
        Ok(())
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Option<Links>> {
        // Nothing that holds this lock can panic half way.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_links(&self) -> Result<Links, JournalError> {
        self.links()
            .clone()
            .ok_or_else(|| JournalError::storage("using the journal", "it must be reopened"))
    }

    fn connect(&self) -> Result<Links, JournalError> {
        let open = || self.block_on(Session::open(&self.options));
        let (appends, control, reader) = (open()?, open()?, open()?);
        let deadline = self.options.append_deadline;
        let appender = self.block_on(Appender::start(appends, &self.options.machine, deadline))?;
        Ok(Links {
            appender: Arc::new(appender),
            control: Arc::new(control),
            reader: Arc::new(reader),
        })
    }

    /// Runs a query within the query deadline.
    fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        self.runtime.block_on(async {
            tokio::time::timeout(self.options.query_deadline, work).await.unwrap_or_else(|_| {
                Err(JournalError::storage("waiting for PostgreSQL", "no answer in time"))
            })
        })
    }
}

impl Journal for PostgresJournal {
    fn id(&self) -> JournalId {
        self.id
    }

    fn head(&self) -> Result<Head, JournalError> {
        let links = self.shared.open_links()?;
        self.shared.block_on(schema::head(&links.reader, &self.shared.options.machine))
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        match self.shared.open_links() {
            Ok(links) => links.appender.begin(epoch, expected, batch),
            Err(error) => Pending::Done(Err(AppendError::Unknown(error.to_string()))),
        }
    }

    fn pipeline_depth(&self) -> usize {
        PIPELINE_DEPTH
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        let until = self.head()?;
        let rows = Rows {
            shared: Arc::clone(&self.shared),
            after: after.sequence,
            until: until.sequence,
            fetched: VecDeque::new(),
        };
        Ok(BatchReader::new(Box::new(rows), after, until))
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        if sequence == 0 {
            return Ok(Head::genesis(self.id));
        }
        let mut rows = self.shared.fetch(sequence - 1, sequence)?;
        checked_head(sequence, rows.pop_front())
    }

    fn reopen(&self) -> Result<(), JournalError> {
        // Those who read meanwhile keep the old connections until the new ones are good.
        let links = self.shared.connect()?;
        self.shared.block_on(schema::check_server(&links.control, &self.shared.options))?;
        *self.shared.links() = Some(links);
        self.check_tail()
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        let links = self.shared.open_links()?;
        let machine = &self.shared.options.machine;
        let taken =
            self.shared.block_on(schema::acquire_lease(&links.control, machine, holder, ttl))?;
        let epoch = taken?;
        Ok(Lease { epoch, holder: holder.to_owned(), ttl })
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        let links = self.shared.open_links()?;
        let machine = &self.shared.options.machine;
        let kept = self.shared.block_on(schema::extend_lease(
            &links.control,
            machine,
            lease.epoch,
            lease.ttl,
        ))?;
        kept.then_some(()).ok_or(LeaseError::Lost { epoch: lease.epoch })
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        let ended = Lease { ttl: Duration::ZERO, ..lease.clone() };
        self.renew_lease(&ended)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        let links = self.shared.open_links()?;
        let machine = &self.shared.options.machine;
        let bytes = snapshot.encode(self.id);
        self.shared.block_on(async {
            // Chunk 0 comes last: a snapshot without it is not listed.
            for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate().rev() {
                schema::put_chunk(&links.reader, machine, snapshot.mark(), number, chunk).await?;
            }
            schema::keep_snapshots(&links.reader, machine, KEPT).await
        })
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        let links = self.shared.open_links()?;
        self.shared.block_on(schema::list_snapshots(&links.reader, &self.shared.options.machine))
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        let links = self.shared.open_links()?;
        let machine = &self.shared.options.machine;
        let bytes = self.shared.block_on(schema::get_snapshot(&links.reader, machine, mark))?;
        Snapshot::decode(&bytes.ok_or_else(|| no_snapshot(mark))?, self.id, mark)
    }
}

struct Rows {
    shared: Arc<Shared>,
    after: u64,
    until: u64,
    fetched: VecDeque<StoredBatch>,
}

impl Shared {
    fn fetch(&self, after: u64, until: u64) -> Result<VecDeque<StoredBatch>, JournalError> {
        let links = self.open_links()?;
        self.block_on(schema::read_page(
            &links.reader,
            &self.options.machine,
            stored(after),
            stored(until),
            PAGE_ROWS,
        ))
    }
}

impl RowSource for Rows {
    fn next_row(&mut self) -> Result<Option<StoredBatch>, JournalError> {
        if self.fetched.is_empty() {
            self.fetched = self.shared.fetch(self.after, self.until)?;
        }
        let row = self.fetched.pop_front();
        if let Some(row) = &row {
            self.after = row.sequence;
        }
        Ok(row)
    }
}
