//! Sources of batches: rows as they are stored, not verified yet.

use std::cell::Cell;
use std::path::Path;

use bursar_journal::merkle::VerifyingKey;
use bursar_journal::{Head, Journal, JournalError, StoredBatch};
use rusqlite::{Connection, OpenFlags};

use crate::segment::{Folders, Listed, Reader, list};
use crate::tail::{MAX_TRIES, RETRY_INTERVAL, Tail, TailBatches};

/// One stored batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBatch {
    /// Its number.
    pub sequence: u64,
    /// The number of its first record.
    pub first_position: u64,
    /// How many records it declares.
    pub records: u32,
    /// The epoch of the owner that wrote it.
    pub epoch: u64,
    /// The time of its last record, in milliseconds.
    pub time: i64,
    /// The records.
    pub payload: Vec<u8>,
    /// The hash of the batch before.
    pub previous: [u8; 32],
    /// The hash of this batch.
    pub hash: [u8; 32],
}

impl From<StoredBatch> for RawBatch {
    fn from(batch: StoredBatch) -> RawBatch {
        RawBatch {
            sequence: batch.sequence,
            first_position: batch.first_position,
            records: batch.records,
            epoch: batch.epoch.0,
            time: batch.time.millis(),
            payload: batch.payload,
            previous: batch.previous.0,
            hash: batch.hash.0,
        }
    }
}

/// The end of the journal according to the store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RawHead {
    /// The number of the last batch.
    pub sequence: u64,
    /// The number of the last record.
    pub position: u64,
    /// The hash of the last batch.
    pub hash: [u8; 32],
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    /// The journal's own reader found a fault.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A sealed segment is missing or altered.
    #[error("segment {name} (batches {first} to {last}): {reason}")]
    Segment {
        /// The name of its file.
        name: String,
        /// Number of its first batch.
        first: u64,
        /// Number of its last batch.
        last: u64,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The tail could not be read.
    #[error("reading the tail: {0}")]
    Tail(std::io::Error),
    /// This part of the file was altered.
    #[error("the journal's {0} does not match its checksum")]
    Checksum(&'static str),
}

/// A journal to verify.
pub trait Source {
    /// The declared identity of the journal.
    fn journal(&self) -> [u8; 16];

    /// The declared head.
    fn head(&self) -> RawHead;

    /// Passes the batches to `take` in the order of their sequence numbers, until it returns false.
    ///
    /// # Errors
    /// A row cannot be read. All rows before it were passed.
    fn each(&self, take: &mut dyn FnMut(RawBatch) -> bool) -> Result<(), SourceError>;

    /// How many signatures of sealed segments the last [`Source::each`] has verified.
    fn signatures(&self) -> u64 {
        0
    }
}

/// Batches in memory.
#[derive(Clone, Debug)]
pub struct Batches {
    /// The identity of the journal.
    pub journal: [u8; 16],
    /// The declared head.
    pub head: RawHead,
    /// The batches.
    pub batches: Vec<RawBatch>,
}

impl Source for Batches {
    fn journal(&self) -> [u8; 16] {
        self.journal
    }

    fn head(&self) -> RawHead {
        self.head
    }

    fn each(&self, take: &mut dyn FnMut(RawBatch) -> bool) -> Result<(), SourceError> {
        for batch in &self.batches {
            if !take(batch.clone()) {
                break;
            }
        }
        Ok(())
    }
}

/// Any open journal. This is how a PostgreSQL store is verified. The journal's own reader checks
/// each batch first and stops at a bad one. The auditor checks everything again.
pub struct JournalSource<'a> {
    journal: &'a dyn Journal,
    head: RawHead,
    keys: Vec<VerifyingKey>,
    signatures: Cell<u64>,
}

impl<'a> JournalSource<'a> {
    /// The journal up to its current head.
    pub fn new(journal: &'a dyn Journal) -> Result<JournalSource<'a>, JournalError> {
        let head = journal.head()?;
        let Head { sequence, position, hash } = head;
        let head = RawHead { sequence, position, hash: hash.0 };
        Ok(JournalSource { journal, head, keys: Vec::new(), signatures: Cell::new(0) })
    }

    /// The same. One of these keys must have signed each sealed segment.
    #[must_use]
    pub fn signed_by(self, keys: Vec<VerifyingKey>) -> JournalSource<'a> {
        JournalSource { keys, ..self }
    }
}

impl Source for JournalSource<'_> {
    fn journal(&self) -> [u8; 16] {
        self.journal.id().0
    }

    fn head(&self) -> RawHead {
        self.head
    }

    fn each(&self, take: &mut dyn FnMut(RawBatch) -> bool) -> Result<(), SourceError> {
        let mut end = Head::genesis(self.journal.id());
        let mut reader = Reader::new(self.journal(), &self.keys);
        for mark in self.journal.sealed_segments()? {
            let segment = self.journal.read_segment(&mark)?;
            if !reader.each(&mark.into(), segment.bytes(), take)? {
                return Ok(());
            }
            end = mark.end();
        }
        self.signatures.set(reader.signatures);
        for batch in self.journal.read(end)? {
            let batch = batch?;
            // The journal may have grown since its head was read.
            if batch.sequence > self.head.sequence || !take(batch.into()) {
                break;
            }
        }
        Ok(())
    }

    fn signatures(&self) -> u64 {
        self.signatures.get()
    }
}

/// A SQLite journal, readable while a server writes it. Reads the tail first and then the database
/// in one read transaction, so that head, list of segments and batches are consistent. Segments
/// never change.
pub struct SqliteSource {
    connection: Connection,
    journal: [u8; 16],
    head: RawHead,
    segments: Vec<Listed>,
    folders: Folders,
    /// Batches that are not in the database yet.
    behind: Vec<RawBatch>,
    keys: Vec<VerifyingKey>,
    signatures: Cell<u64>,
}

impl SqliteSource {
    /// Opens the journal file.
    ///
    /// # Errors
    /// The file is not a journal, or its identity or head does not match its checksum.
    pub fn open(path: &Path) -> Result<SqliteSource, SourceError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let (journal, stored, behind) = begin(&connection, path)?;
        let head = behind.head(stored);
        let (segments, folders) = (list(&connection, &journal)?, Folders::of(path));
        let (behind, keys, signatures) = (behind.batches, Vec::new(), Cell::new(0));
        Ok(SqliteSource { connection, journal, head, segments, folders, behind, keys, signatures })
    }

    /// The same. One of these keys must have signed each sealed segment.
    #[must_use]
    pub fn signed_by(self, keys: Vec<VerifyingKey>) -> SqliteSource {
        SqliteSource { keys, ..self }
    }
}

/// Begins a read transaction of the journal in `path`. Returns the journal's identity, the
/// database's head, and the batches in the tail after it.
fn begin(
    connection: &Connection,
    path: &Path,
) -> Result<([u8; 16], RawHead, TailBatches), SourceError> {
    let mut tries = 0;
    loop {
        let tail = Tail::read(path).map_err(SourceError::Tail)?;
        connection.execute_batch("BEGIN")?;
        let (journal, head) = read_ends(connection)?;
        let behind = tail.behind(journal, head);
        tries += 1;
        // A batch that is still missing after this many reads was lost.
        if behind.whole || tries == MAX_TRIES {
            return Ok((journal, head, behind));
        }
        connection.execute_batch("ROLLBACK")?;
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// The identity and the head, verified.
fn read_ends(connection: &Connection) -> Result<([u8; 16], RawHead), SourceError> {
    let (journal, sum): ([u8; 16], Vec<u8>) = connection.query_row(
        "SELECT journal, checksum FROM identity WHERE only = 1",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if row_checksum("identity", &[&journal])[..] != sum[..] {
        return Err(SourceError::Checksum("identity"));
    }
    let (sequence, position, hash, sum): (i64, i64, [u8; 32], Vec<u8>) = connection.query_row(
        "SELECT sequence, position, hash, checksum FROM head WHERE only = 1",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    )?;
    let (sequence, position) = (sequence.cast_unsigned(), position.cast_unsigned());
    let head = RawHead { sequence, position, hash };
    if head_checksum(head)[..] != sum[..] {
        return Err(SourceError::Checksum("head"));
    }
    Ok((journal, head))
}

fn head_checksum(head: RawHead) -> [u8; 32] {
    let fields = [&head.sequence.to_le_bytes()[..], &head.position.to_le_bytes(), &head.hash];
    row_checksum("head", &fields)
}

pub(crate) fn row_checksum(part: &str, fields: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bursar row v1\0").update(part.as_bytes());
    for field in fields {
        hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
    }
    *hasher.finalize().as_bytes()
}

impl Source for SqliteSource {
    fn journal(&self) -> [u8; 16] {
        self.journal
    }

    fn head(&self) -> RawHead {
        self.head
    }

    fn each(&self, take: &mut dyn FnMut(RawBatch) -> bool) -> Result<(), SourceError> {
        let mut reader = Reader::new(self.journal, &self.keys);
        for segment in &self.segments {
            if !reader.each(segment, &self.folders.read(segment)?, take)? {
                return Ok(());
            }
        }
        self.signatures.set(reader.signatures);
        // Rows of sealed batches are leftovers.
        let sealed = self.segments.last().map_or(0, |last| last.last);
        let mut statement = self.connection.prepare(
            "SELECT sequence, first_position, records, epoch, time, previous, hash, payload
                 FROM batch WHERE sequence > ?1 ORDER BY sequence",
        )?;
        let mut rows = statement.query([sealed.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let read = || -> rusqlite::Result<RawBatch> {
                Ok(RawBatch {
                    sequence: row.get::<_, i64>(0)?.cast_unsigned(),
                    first_position: row.get::<_, i64>(1)?.cast_unsigned(),
                    records: row.get(2)?,
                    epoch: row.get::<_, i64>(3)?.cast_unsigned(),
                    time: row.get(4)?,
                    previous: row.get(5)?,
                    hash: row.get(6)?,
                    payload: row.get(7)?,
                })
            };
            if !take(read()?) {
                return Ok(());
            }
        }
        for batch in &self.behind {
            if !take(batch.clone()) {
                break;
            }
        }
        Ok(())
    }
    fn signatures(&self) -> u64 {
        self.signatures.get()
    }
}
