//! A journal in PostgreSQL, for several servers of which one at a time owns it.
//!
//! Every append is one statement that checks epoch and head, so a deposed owner cannot write.
//! PostgreSQL's own time-outs do not stop a commit that waits for a synchronous standby, and a
//! commit whose wait was cancelled reports success with a WARNING although nothing was replicated.
//! Therefore appends have a client-side deadline. When it passes, on any WARNING and on any broken
//! connection the outcome is unknown. A cancel request is never sent.

mod address;
mod archive;
mod fitness;
mod forms;
mod laws;
mod leader;
mod leases;
mod links;
mod losses;
mod manifest;
mod members;
mod places;
mod schema;
mod segments;
mod session;
mod snapshots;
mod store;
mod tls;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bursar_core::time::Timestamp;

use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{BatchReader, Journal, Lease, Pending, first_record_at, no_snapshot};
use crate::record::Batch;
use crate::segment::{OpenSegment, Sealing, SegmentMark, SegmentStore};
use crate::snapshot::{KEPT_SNAPSHOTS, Snapshot, SnapshotMark};
pub use archive::PostgresTables;
pub use forms::NEWEST_FORM;
pub use laws::{BrokenLaw, LawOutcome, test_store};
pub use leader::{Claim, LeadRow, PostgresLeader, StoredLead};
use links::{Link, Shared};
pub use losses::{MachineHeads, StoredLoss};
pub use members::{
    Announcement, KnownMember, MemberChange, MemberStanding, MemberState, Membership, OwnedMachine,
};
use segments::Sealed;
use session::stored;
pub use store::PostgresStore;

/// Appends in progress at once.
const PIPELINE_DEPTH: usize = 4;
/// Batches fetched in one query.
const PAGE_ROWS: i64 = 64;
/// A page ends with the batch that brings it to this many bytes, so that it arrives within the
/// query deadline on a slow connection.
const PAGE_BYTES: i64 = 4 << 20;
/// A snapshot is stored in rows of this size.
const CHUNK_BYTES: usize = 1 << 20;

/// Options of a PostgreSQL journal.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The address, in libpq's form or as a `postgres://` URL, with `sslmode` and `sslrootcert`.
    /// Without `sslmode`, a connection to another machine is encrypted and its certificate
    /// verified.
    pub url: String,
    /// The name of the machine whose journal this is. One database holds many.
    pub machine: String,
    /// How long an append may take before its outcome counts as unknown.
    pub append_deadline: Duration,
    /// How long any other statement may take.
    pub query_deadline: Duration,
    /// Accept a server without a synchronous standby. If that server is lost, acknowledged batches
    /// are lost.
    pub unsafe_single: bool,
    /// Accept `sslmode=disable` to another machine. An attacker in between can then read and change
    /// everything.
    pub unsafe_plaintext: bool,
    /// The newest form of a store that is used. Only tests have a lower one than [`NEWEST_FORM`].
    pub newest_form: u32,
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
            newest_form: NEWEST_FORM,
        }
    }
}

/// A journal in PostgreSQL: see the module documentation. Has its own small runtime, so it must be
/// used and dropped by ordinary threads, never inside another asynchronous runtime.
pub struct PostgresJournal {
    id: JournalId,
    shared: Arc<Shared>,
    sealed: Arc<Sealed>,
}

impl PostgresJournal {
    /// Opens the journal of one machine. Creates missing tables and a missing journal.
    ///
    /// # Errors
    /// Rejects a standby, a server that may lose acknowledged data (no synchronous standby unless
    /// `unsafe_single`, `fsync` or `full_page_writes` off), and an unknown schema.
    pub fn open(options: PostgresOptions) -> Result<PostgresJournal, JournalError> {
        let shared = Shared::new(options)?;
        let id = shared.connect(async |session| schema::prepare(session, &shared.options).await)?;
        PostgresJournal::opened(id, shared)
    }

    /// Opens the journal of one machine for reading. Creates and changes nothing in the database.
    ///
    /// # Errors
    /// The same as those of [`PostgresJournal::open`], and a database without this journal.
    pub fn open_to_read(options: PostgresOptions) -> Result<PostgresJournal, JournalError> {
        let shared = Shared::new(options)?;
        let id = shared.connect(async |session| {
            let machine = &shared.options.machine;
            if schema::look(session, &shared.options).await?.manifest {
                manifest::check(session, Some(machine)).await?;
            }
            let missing = || manifest::refused(machine, "it has no journal in this database");
            schema::identity(session, machine).await?.ok_or_else(missing)
        })?;
        PostgresJournal::opened(id, shared)
    }

    fn opened(id: JournalId, shared: Shared) -> Result<PostgresJournal, JournalError> {
        let shared = Arc::new(shared);
        let sealed = Arc::new(Sealed::open(&shared, id)?);
        let journal = PostgresJournal { id, shared, sealed };
        journal.check_tail()?;
        Ok(journal)
    }

    fn check_tail(&self) -> Result<(), JournalError> {
        let machine = &self.shared.options.machine;
        let (head, last) =
            self.shared.query(Link::Reader, async |reader| schema::ends(reader, machine).await)?;
        if last > head.sequence {
            // Batch and head move in one statement.
            let reason =
                format!("the head is at batch {}, and {last} batches are stored", head.sequence);
            return Err(JournalError::Damaged { part: "head", reason });
        }
        if self.head_at(head.sequence)? != head {
            let reason = "it is not the batch that the journal's head names".into();
            return Err(JournalError::Corrupt { sequence: head.sequence, reason });
        }
        Ok(())
    }

    fn set_lease(&self, lease: &Lease, ttl: Duration, checked: bool) -> Result<(), LeaseError> {
        let options = &self.shared.options;
        // A renewal that takes longer is too late to be useful.
        let deadline = options.query_deadline.min(lease.ttl / 3);
        let kept = self.shared.query_within(Link::Control, deadline, async |control| {
            if checked {
                fitness::check_running(control, options).await?;
            }
            leases::extend_lease(control, &options.machine, lease.epoch, ttl).await
        })?;
        kept.then_some(()).ok_or(LeaseError::Lost { epoch: lease.epoch })
    }
}

impl Journal for PostgresJournal {
    fn id(&self) -> JournalId {
        self.id
    }

    fn head(&self) -> Result<Head, JournalError> {
        let machine = &self.shared.options.machine;
        self.shared.query(Link::Reader, async |reader| schema::head(reader, machine).await)
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        match self.shared.appender() {
            Ok(appender) => appender.begin(epoch, expected, batch),
            Err(error) => Pending::Done(Err(AppendError::Unknown(error.to_string()))),
        }
    }

    fn pipeline_depth(&self) -> usize {
        PIPELINE_DEPTH
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        let until = self.head()?;
        Ok(self.reader(after, until))
    }

    fn seal(
        &self,
        sealing: &Sealing,
        going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        self.seal_next(sealing, going)
    }

    fn sealed_segments(&self) -> Result<Vec<SegmentMark>, JournalError> {
        self.sealed.read_list()?;
        Ok(self.sealed.segments.list())
    }

    fn read_segment(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        self.sealed.segments.store().load(mark)
    }

    fn began_at(&self) -> Result<Option<Timestamp>, JournalError> {
        match self.sealed.segments.first() {
            Some(first) => Ok(Some(first.began_at)),
            None => first_record_at(self),
        }
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        if sequence == 0 {
            return Ok(Head::genesis(self.id));
        }
        self.sealed.head_at(sequence)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        let options = &self.shared.options;
        self.shared.connect(async |session| fitness::check_running(session, options).await)?;
        self.sealed.read_list()?;
        self.check_tail()
    }

    fn must_reopen(&self) -> Option<String> {
        match self.shared.appender() {
            Ok(appender) if !appender.is_broken() => None,
            Ok(_) => Some("the connection for appends ended".into()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn set_following(&self, following: bool) {
        self.shared.set_following(following);
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        let machine = &self.shared.options.machine;
        let taken = self.shared.query(Link::Control, async |control| {
            leases::acquire_lease(control, machine, holder, ttl).await
        })?;
        let epoch = taken?;
        self.sealed.own(epoch);
        Ok(Lease { epoch, holder: holder.to_owned(), ttl })
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.set_lease(lease, lease.ttl, true)
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.set_lease(lease, Duration::ZERO, false)
    }

    /// Each part has its own query deadline, so a slow connection delays only the snapshot.
    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        let machine = &self.shared.options.machine;
        let bytes = snapshot.encode(self.id);
        let mark = snapshot.mark();
        // Parts of failed snapshots would accumulate.
        self.shared.query(Link::Reader, async |reader| {
            snapshots::drop_unfinished_snapshots(reader, machine).await
        })?;
        // Chunk 0 is written last: a snapshot without it is not listed.
        for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate().rev() {
            self.shared.query(Link::Reader, async |reader| {
                snapshots::put_chunk(reader, machine, mark, number, chunk).await
            })?;
        }
        self.shared.query(Link::Reader, async |reader| {
            snapshots::keep_snapshots(reader, machine, KEPT_SNAPSHOTS).await
        })
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        let machine = &self.shared.options.machine;
        self.shared
            .query(Link::Reader, async |reader| snapshots::list_snapshots(reader, machine).await)
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        let machine = &self.shared.options.machine;
        let mut bytes = Vec::new();
        for number in 0.. {
            let chunk = self.shared.query(Link::Reader, async |reader| {
                snapshots::get_chunk(reader, machine, mark, number).await
            })?;
            match chunk {
                Some(chunk) => bytes.extend(chunk),
                None => break,
            }
        }
        if bytes.is_empty() {
            return Err(no_snapshot(mark));
        }
        Snapshot::decode(&bytes, self.id, mark)
    }
}

impl Shared {
    fn fetch(&self, after: u64, until: u64) -> Result<VecDeque<StoredBatch>, JournalError> {
        let (after, until) = (stored(after), stored(until));
        self.query(Link::Reader, async |reader| {
            let page = schema::Page { after, until, rows: PAGE_ROWS, bytes: PAGE_BYTES };
            schema::read_page(reader, &self.options.machine, page).await
        })
    }
}
