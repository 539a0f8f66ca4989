//! Archived segments of a journal in a database: they are moved to a folder, and the database says to
//! which.
//!
//! A segment is written to the folder, synced and read again. One statement then notes the folder and
//! removes its bytes from the database, so it can always be read from one of the two. The server may run
//! meanwhile: segments that are listed never change, and the newest stays, because the next continues it.

use std::path::{Path, PathBuf};

use super::PostgresJournal;
use super::links::{Link, Shared};
use super::schema;
use super::session::Session;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::segment::{ArchiveFolder, ArchiveTotals, SegmentMark, SegmentStore};

const DOING: &str = "archiving a segment";
/// The advisory lock of the process that archives: "bursarc" in ASCII.
const ARCHIVE_LOCK: i64 = 0x62_7572_7361_7263;

/// The folder that a segment was moved to.
pub(super) fn folder_of(
    shared: &Shared,
    mark: &SegmentMark,
) -> Result<Option<PathBuf>, JournalError> {
    shared.query(Link::Reader, async |reader| {
        if !schema::has_places(reader).await? {
            return Ok(None);
        }
        let sql = "SELECT folder FROM bursar_segment_place WHERE machine = $1 AND digest = $2";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&shared.options.machine, &&mark.digest.0[..]];
        let rows = reader.query("reading where a segment is", sql, &params).await?;
        Ok(rows.first().map(|row| PathBuf::from(row.get::<_, String>(0))))
    })
}

/// The connection of the only process that archives, and what it moves.
struct Move<'a> {
    journal: &'a PostgresJournal,
    session: &'a Session,
    target: ArchiveFolder,
}

impl PostgresJournal {
    /// Moves its sealed segments into a folder under `to`, but for the newest. Every server of the store
    /// must find that folder under the same path.
    ///
    /// # Errors
    /// Every segment can be read where it is remembered, and the next call continues.
    pub fn archive_segments(&self, to: &Path) -> Result<ArchiveTotals, JournalError> {
        let marks = self.sealed_segments()?;
        let Some((_, older)) = marks.split_last() else { return Ok(ArchiveTotals::default()) };
        // Not one that is replaced if it breaks: the lock ends with it.
        let session = self.shared.session(Link::Control)?;
        lock(&self.shared, &session)?;
        let target = ArchiveFolder::make(to, &self.shared.options.machine, self.id);
        let moved =
            target.and_then(|target| Move { journal: self, session: &session, target }.all(older));
        let unlock = "SELECT pg_advisory_unlock($1)";
        let unlocked = self.shared.query_on(&session, async |session| {
            session.query(DOING, unlock, &[&ARCHIVE_LOCK]).await
        });
        let totals = moved?;
        unlocked?;
        Ok(ArchiveTotals { kept: 1, ..totals })
    }
}

fn lock(shared: &Shared, session: &Session) -> Result<(), JournalError> {
    let alone = shared.query_on(session, async |session| {
        if !schema::has_places(session).await? {
            return Err(JournalError::Refused(
                "the tables are those of an earlier build: start a server of this build once, then \
                 archive"
                    .into(),
            ));
        }
        session.query(DOING, "SELECT pg_try_advisory_lock($1)", &[&ARCHIVE_LOCK]).await
    })?;
    if alone.first().is_some_and(|row| row.get(0)) {
        return Ok(());
    }
    let holder = "it archives segments".into();
    Err(JournalError::Locked { journal: shared.options.machine.clone(), holder })
}

impl Move<'_> {
    fn all(&self, older: &[SegmentMark]) -> Result<ArchiveTotals, JournalError> {
        let mut totals = ArchiveTotals::default();
        for mark in older {
            let known = folder_of(&self.journal.shared, mark)?;
            if known.is_some() && !self.is_in_database(mark)? {
                totals.before += 1;
                continue;
            }
            // Named if it is missing or altered.
            let segment = self.journal.sealed.segments.store().load(mark)?;
            self.target.store(mark, &segment)?;
            self.note(mark)?;
            totals.moved += 1;
            totals.bytes += mark.bytes;
        }
        Ok(totals)
    }

    fn is_in_database(&self, mark: &SegmentMark) -> Result<bool, JournalError> {
        let sql = "SELECT FROM bursar_segment_part WHERE machine = $1 AND digest = $2 LIMIT 1";
        let shared = &self.journal.shared;
        let found = shared.query_on(self.session, async |session| {
            session.query(DOING, sql, &[&shared.options.machine, &&mark.digest.0[..]]).await
        })?;
        Ok(!found.is_empty())
    }

    /// Notes where a segment is now, and removes it from the database.
    fn note(&self, mark: &SegmentMark) -> Result<(), JournalError> {
        let folder = self.target.path().to_str().ok_or_else(|| {
            let folder = self.target.path().display();
            JournalError::Refused(format!("{folder}: give a folder whose name is UTF-8"))
        })?;
        let sql = "WITH placed AS (
               INSERT INTO bursar_segment_place (machine, digest, folder)
               SELECT machine, digest, $3 FROM bursar_segment WHERE machine = $1 AND digest = $2
               ON CONFLICT (machine, digest) DO UPDATE SET folder = excluded.folder
               RETURNING machine, digest)
             DELETE FROM bursar_segment_part AS part USING placed
             WHERE part.machine = placed.machine AND part.digest = placed.digest";
        let shared = &self.journal.shared;
        shared.query_on(self.session, async |session| {
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&shared.options.machine, &&mark.digest.0[..], &folder];
            session.query(DOING, sql, &params).await.map(drop)
        })
    }
}
