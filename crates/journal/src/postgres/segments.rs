//! Sealed segments in the database: their bytes in parts, and the list of them.
//!
//! A segment is written in parts and read again. One statement then lists it: from there on its
//! batches are read from it and from nowhere else. Their rows are deleted afterwards, some at a
//! time. Every statement checks that this server still owns the journal. Whatever is interrupted,
//! the next sealing does again. `docs/adr/0023-filters-of-old-runs-on-disk.md` explains why these are not
//! partitions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bursar_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::links::{Link, Shared};
use super::places::folder_of;
use super::schema::{self, digest, number};
use super::session::{Session, stored};
use super::{CHUNK_BYTES, PostgresJournal};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{JournalError, SegmentFault};
use crate::journal::{BatchReader, Journal, RowSource, checked_head};
use crate::segment::{
    OpenSegment, Sealing, SegmentDamage, SegmentMark, SegmentStore, SegmentWriter, Segments,
    altered, check_chain, open_file, write_rows,
};

const DOING: &str = "sealing a segment";
/// Rows that are deleted by one statement.
const ROWS_AT_ONCE: i64 = 256;

/// Reads what the owner of epoch `$2` may change, and keeps other owners out until the statement
/// ends.
const OWNED: &str = "WITH owned AS (
  SELECT machine FROM bursar_sealing WHERE machine = $1 AND epoch = $2
    AND EXISTS (SELECT FROM bursar_lease AS lease WHERE lease.machine = $1 AND lease.epoch = $2)
  FOR UPDATE)";

/// The bytes of the segments of one machine.
pub(super) struct StoredSegments {
    shared: Arc<Shared>,
    id: JournalId,
}

/// Where segments are until they are archived.
const TABLE: &str = "the table bursar_segment_part";

impl StoredSegments {
    /// The bytes that the database has of a segment.
    fn bytes(&self, mark: &SegmentMark) -> Result<Vec<u8>, JournalError> {
        let mut bytes = Vec::new();
        for part in 0.. {
            let found = self.shared.query(Link::Reader, async |reader| {
                let sql = "SELECT bytes FROM bursar_segment_part
                           WHERE machine = $1 AND digest = $2 AND part = $3";
                let machine = &self.shared.options.machine;
                reader.query("reading a segment", sql, &[machine, &&mark.digest.0[..], &part]).await
            })?;
            let Some(row) = found.first() else { break };
            bytes.extend_from_slice(row.get(0));
        }
        Ok(bytes)
    }
}

impl SegmentStore for StoredSegments {
    fn load(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        let bytes = self.bytes(mark)?;
        let is_there = !bytes.is_empty();
        let reason = match OpenSegment::open(bytes, self.id) {
            Ok(segment) if segment.mark() == mark => return Ok(segment),
            Ok(_) => SegmentDamage::OtherSegment,
            Err(reason) => reason,
        };
        // It may have been archived, also while it was read.
        let mut places = vec![TABLE.to_owned()];
        if let Some(folder) = folder_of(&self.shared, mark)? {
            if let Some(segment) = open_file(mark, self.id, &folder.join(mark.name()))? {
                return Ok(segment);
            }
            places.push(folder.display().to_string());
        }
        Err(mark.error(match is_there {
            true => SegmentFault::Altered { place: TABLE.to_owned(), reason },
            false => SegmentFault::Missing { places: places.join(" and in ") },
        }))
    }
}

/// The segments of one journal, and how it seals more.
pub(super) struct Sealed {
    pub(super) segments: Segments<StoredSegments>,
    shared: Arc<Shared>,
    id: JournalId,
    /// The epoch that was acquired last.
    epoch: Mutex<Option<Epoch>>,
    /// One thread at a time seals.
    alone: Mutex<()>,
    /// Up to this batch there were not enough for a segment.
    looked_until: AtomicU64,
}

fn to_mark(row: &Row) -> Result<SegmentMark, JournalError> {
    let last = number(row, 1);
    Ok(SegmentMark {
        first: number(row, 0),
        last,
        first_position: number(row, 2),
        last_position: number(row, 3),
        began_at: Timestamp::from_millis(row.get(4)),
        previous: digest(row, 5, last)?,
        hash: digest(row, 6, last)?,
        digest: digest(row, 7, last)?,
        bytes: number(row, 8),
    })
}

/// The list of segments, which is empty in tables of earlier builds.
async fn list(
    session: &Session,
    machine: &str,
    id: JournalId,
) -> Result<Vec<SegmentMark>, JournalError> {
    if !schema::has_segments(session).await? {
        return Ok(Vec::new());
    }
    let sql = "SELECT first, last, first_position, last_position, began_at, previous, hash, digest,
                 bytes FROM bursar_segment WHERE machine = $1 ORDER BY first";
    let rows = session.query("reading the list of segments", sql, &[&machine]).await?;
    let marks = rows.iter().map(to_mark).collect::<Result<Vec<_>, _>>()?;
    check_chain(id, &marks)?;
    Ok(marks)
}

impl Sealed {
    /// The segments of a journal that is open.
    pub(super) fn open(shared: &Arc<Shared>, id: JournalId) -> Result<Sealed, JournalError> {
        let store = StoredSegments { shared: Arc::clone(shared), id };
        let sealed = Sealed {
            segments: Segments::new(store, id, Vec::new()),
            shared: Arc::clone(shared),
            id,
            epoch: Mutex::new(None),
            alone: Mutex::new(()),
            looked_until: AtomicU64::new(0),
        };
        sealed.read_list()?;
        Ok(sealed)
    }

    /// Reads the list again: another server may have sealed more.
    pub(super) fn read_list(&self) -> Result<(), JournalError> {
        let machine = &self.shared.options.machine;
        let list =
            self.shared.query(Link::Reader, async |reader| list(reader, machine, self.id).await)?;
        self.segments.replace(list);
        Ok(())
    }

    /// Seals under this epoch from now on.
    pub(super) fn own(&self, epoch: Epoch) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Some(epoch);
    }

    /// The head at a batch, in a segment or in the table.
    pub(super) fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        let stored = || {
            let mut rows = self.shared.fetch(sequence - 1, sequence)?;
            if rows.is_empty() {
                self.read_list()?;
            }
            checked_head(sequence, rows.pop_front())
        };
        self.segments.head_at(sequence, stored)
    }

    fn change(&self, sql: &str, more: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, JournalError> {
        let epoch = *self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let (machine, epoch) = (&self.shared.options.machine, epoch.map_or(0, |e| stored(e.0)));
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![machine, &epoch];
        params.extend_from_slice(more);
        let sql = format!("{OWNED} {sql}");
        let rows = self
            .shared
            .query(Link::Reader, async |session| session.query(DOING, &sql, &params).await)?;
        if rows.is_empty() { Err(deposed()) } else { Ok(rows) }
    }

    /// Keeps earlier owners from sealing.
    fn claim(&self, epoch: Epoch) -> Result<(), JournalError> {
        let machine = &self.shared.options.machine;
        let claimed = self.shared.query(Link::Reader, async |session| {
            let sql = "INSERT INTO bursar_sealing (machine, epoch)
                 SELECT machine, $2::bigint FROM bursar_lease WHERE machine = $1 AND epoch = $2
                 ON CONFLICT (machine) DO UPDATE SET epoch = excluded.epoch
                   WHERE bursar_sealing.epoch <= excluded.epoch
                 RETURNING machine";
            session.query(DOING, sql, &[machine, &stored(epoch.0)]).await
        })?;
        if claimed.is_empty() { Err(deposed()) } else { Ok(()) }
    }

    /// Deletes the rows of sealed batches, and parts of segments that were never listed.
    fn discard(&self, going: &dyn Fn() -> bool) -> Result<(), JournalError> {
        let sequence = stored(self.segments.end().sequence);
        let delete = |table: &str, which: &str, some: i64| {
            let sql = format!(
                ", gone AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY(
                     SELECT ctid FROM {table} WHERE machine = $1 AND {which} LIMIT {some}))
                   AND EXISTS (SELECT FROM owned) RETURNING 1)
                 SELECT (SELECT count(*) FROM gone) FROM owned"
            );
            while going() {
                let deleted = self.change(&sql, &[&sequence])?;
                if deleted.first().is_none_or(|row| row.get::<_, i64>(0) == 0) {
                    break;
                }
            }
            Ok(())
        };
        delete("bursar_batch", "sequence <= $3", ROWS_AT_ONCE)?;
        let orphaned = "$3::bigint IS NOT NULL AND digest NOT IN (
             SELECT digest FROM bursar_segment AS segment WHERE segment.machine = $1)";
        delete("bursar_segment_part", orphaned, 16)
    }

    /// The last batch of the next segment, if there are enough batches that no snapshot needs. The
    /// batch that the manifest names stays as well.
    fn due(&self, oldest: u64, sealing: &Sealing) -> Result<Option<u64>, JournalError> {
        let machine = &self.shared.options.machine;
        let after = self.segments.end().sequence;
        self.shared.query(Link::Reader, async |session| {
            let sql = "SELECT sequence FROM bursar_machine WHERE machine = $1";
            let known = session.query(DOING, sql, &[machine]).await?;
            let known = known.first().map_or(0, |row| number(row, 0));
            let until = oldest.min(known).saturating_sub(1);
            if until <= after || self.looked_until.load(Ordering::Relaxed) == until {
                return Ok(None);
            }
            let sql = "SELECT sequence FROM (
                 SELECT sequence, sum(octet_length(payload)) OVER (ORDER BY sequence) AS bytes
                 FROM bursar_batch WHERE machine = $1 AND sequence > $2 AND sequence <= $3) AS sums
               WHERE bytes >= $4::bigint ORDER BY sequence LIMIT 1";
            let bytes = stored(sealing.segment_bytes);
            let params: [&(dyn ToSql + Sync); 4] =
                [machine, &stored(after), &stored(until), &bytes];
            let found = session.query(DOING, sql, &params).await?;
            if found.is_empty() {
                self.looked_until.store(until, Ordering::Relaxed);
            }
            Ok(found.first().map(|row| number(row, 0)))
        })
    }

    /// Writes a segment and lists it.
    fn store(&self, mark: &SegmentMark, bytes: &[u8]) -> Result<(), JournalError> {
        let digest = &mark.digest.0[..];
        for (part, some) in (0_i32..).zip(bytes.chunks(CHUNK_BYTES)) {
            self.change(
                ", added AS (INSERT INTO bursar_segment_part (machine, digest, part, bytes)
                   SELECT machine, $3::bytea, $4::integer, $5::bytea FROM owned
                   ON CONFLICT (machine, digest, part) DO UPDATE SET bytes = excluded.bytes)
                 SELECT machine FROM owned",
                &[&digest, &part, &some],
            )?;
        }
        let segment = self.segments.store().load(mark)?;
        segment.check().map_err(|reason| altered(mark, reason))?;
        let numbers = [mark.first, mark.last, mark.first_position, mark.last_position, mark.bytes];
        let [first, last, first_position, last_position, length] = numbers.map(stored);
        self.change(
            "INSERT INTO bursar_segment (machine, first, last, first_position, last_position,
               began_at, previous, hash, digest, bytes)
             SELECT machine, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bytea,
               $9::bytea, $10::bytea, $11::bigint FROM owned
             WHERE $3::bigint - 1 = (SELECT coalesce(max(last), 0) FROM bursar_segment AS segment
                                     WHERE segment.machine = $1)
               AND $11::bigint = (SELECT sum(octet_length(bytes)) FROM bursar_segment_part AS part
                                  WHERE part.machine = $1 AND part.digest = $10)
             RETURNING machine",
            &[
                &first,
                &last,
                &first_position,
                &last_position,
                &mark.began_at.millis(),
                &&mark.previous.0[..],
                &&mark.hash.0[..],
                &digest,
                &length,
            ],
        )?;
        self.segments.add(*mark);
        Ok(())
    }
}

fn deposed() -> JournalError {
    JournalError::storage(DOING, "another server owns the journal by now")
}

impl PostgresJournal {
    pub(super) fn seal_next(
        &self,
        sealing: &Sealing,
        going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        let sealed = &self.sealed;
        let _alone = sealed.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = *sealed.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        // Only an owner seals.
        let Some(epoch) = epoch else { return Ok(None) };
        let oldest = self.list_snapshots()?.last().map_or(0, |mark| mark.sequence);
        let Some(last) = sealed.due(oldest, sealing)? else { return Ok(None) };
        sealed.claim(epoch)?;
        // An earlier owner may have sealed after this one has opened the journal.
        sealed.read_list()?;
        sealed.discard(going)?;
        let continued = sealed.segments.continued()?;
        let before = continued.0.sequence;
        if last <= before {
            return Ok(None);
        }
        let writer = SegmentWriter::begin(Vec::new(), self.id, continued, sealing.level)?;
        let mut rows = Rows::new(&self.shared, sealed, before, last);
        let written = write_rows(writer, &mut rows, last, sealing.signer.as_ref(), going)?;
        let Some((bytes, mark)) = written else { return Ok(None) };
        sealed.store(&mark, &bytes)?;
        sealed.discard(going)?;
        Ok(Some(mark))
    }

    /// Reads the batches after `after` up to `until`.
    pub(super) fn reader(&self, after: Head, until: Head) -> BatchReader {
        let rows = Rows::new(&self.shared, &self.sealed, after.sequence, until.sequence);
        BatchReader::new(Box::new(rows), after, until)
    }
}

/// Batches in order: from sealed segments, then from the table, page by page. Batches may be sealed
/// while they are read, also by another server.
struct Rows {
    shared: Arc<Shared>,
    sealed: Arc<Sealed>,
    after: u64,
    until: u64,
    fetched: VecDeque<StoredBatch>,
}

impl Rows {
    fn new(shared: &Arc<Shared>, sealed: &Arc<Sealed>, after: u64, until: u64) -> Rows {
        let (shared, sealed) = (Arc::clone(shared), Arc::clone(sealed));
        Rows { shared, sealed, after, until, fetched: VecDeque::new() }
    }

    /// Fetches the next batches of a segment, if they are in one.
    fn fetch_sealed(&mut self, next: u64) -> Result<bool, JournalError> {
        let segments = &self.sealed.segments;
        let Some(mark) = segments.covering(next) else { return Ok(false) };
        self.fetched = segments.batches(&mark, next, self.until)?;
        Ok(true)
    }
}

impl RowSource for Rows {
    fn next_row(&mut self) -> Result<Option<StoredBatch>, JournalError> {
        let next = self.after.saturating_add(1);
        if self.fetched.is_empty() && next <= self.until && !self.fetch_sealed(next)? {
            self.fetched = self.shared.fetch(self.after, self.until)?;
            if self.fetched.front().is_none_or(|row| row.sequence != next) {
                self.sealed.read_list()?;
                self.fetch_sealed(next)?;
            }
        }
        let row = self.fetched.pop_front();
        if let Some(row) = &row {
            self.after = row.sequence;
        }
        Ok(row)
    }
}
