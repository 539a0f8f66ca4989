//! The tables of an archive in the database of its journal.
//!
//! It has its own connections, so that nothing here delays an append. Every write is one statement of bounded size that
//! checks and locks the archive's row: once a new owner of the journal has written its epoch there, earlier owners
//! write nothing. Large changes are several statements, in an order in which each of them may be the last one.

mod rows;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use self::rows::{READING, batch_of, bytes_of, narrow, to_run};
use super::links::{ask_within, open_session, runtime};
use super::session::{Session, described, stored};
use super::{PostgresOptions, schema};
use crate::archive::{
    Archive, ArchiveContents, ArchiveFamily, ArchiveMark, ArchiveTables, EachBlock, FamilyCounts,
    GroupPlace, NewBlock, SealedRun, blocks_of,
};
use crate::chain::Epoch;
use crate::error::JournalError;

/// Rows that one statement writes, reads or deletes: about a megabyte.
const ROWS_AT_ONCE: usize = 256;
/// The bytes of blocks that end a statement earlier.
const BYTES_AT_ONCE: usize = 1 << 20;

const WRITING: &str = "writing the archive";

/// Reads what the owner of epoch `$2` may change, and keeps other owners out until the statement ends.
const OWNED: &str = "WITH owned AS (
  SELECT machine FROM bursar_archive WHERE machine = $1 AND epoch = $2
    AND EXISTS (SELECT FROM bursar_lease AS lease WHERE lease.machine = $1 AND lease.epoch = $2)
  FOR UPDATE)";

const BLOCK: &str =
    "SELECT body FROM bursar_archive_block WHERE machine = $1 AND family = $2 AND number = $3";
const PAGE: &str = "SELECT body FROM bursar_archive_page
  WHERE machine = $1 AND run = $2 AND first <= $3 ORDER BY first DESC LIMIT 1";
const FILTER_ROWS: &str = "SELECT filters, body FROM bursar_archive_filter
  JOIN unnest($2::bigint[], $3::bigint[]) AS wanted (filters, cell) USING (filters, cell)
  WHERE machine = $1";

impl Archive {
    /// The archive in the tables of a journal's database. Nothing can be written before [`Archive::own`]. Must be used
    /// and dropped by ordinary threads, never inside an asynchronous runtime.
    ///
    /// # Errors
    /// The same as those of [`super::PostgresJournal::open`].
    pub fn open_postgres(options: PostgresOptions) -> Result<Archive, JournalError> {
        Archive::new_or_damaged(Box::new(PostgresTables::open(options)?))
    }
}

/// Tables in a PostgreSQL database.
pub struct PostgresTables {
    options: PostgresOptions,
    links: Mutex<ArchiveLinks>,
    /// The epoch to write under, once it is owned.
    epoch: Mutex<Option<Epoch>>,
    // Dropped last: the sessions run on it.
    runtime: Runtime,
}

/// Two connections, so that a look-up does not wait for a write.
struct ArchiveLinks {
    writer: Arc<Session>,
    reader: Arc<Reader>,
}

/// A connection with the statements of a look-up.
struct Reader {
    session: Session,
    block: Statement,
    page: Statement,
    rows: Statement,
}

/// A hash as PostgreSQL orders it.
fn ordered(hash: u64) -> i64 {
    (hash ^ 1 << 63).cast_signed()
}

impl PostgresTables {
    /// Connects, and creates missing tables.
    fn open(options: PostgresOptions) -> Result<PostgresTables, JournalError> {
        let runtime = runtime()?;
        let writer = open_session(&runtime, &options)?;
        let prepared = schema::prepare_store(&writer, &options);
        ask_within(&runtime, &writer, options.query_deadline, prepared)?;
        let reader = Arc::new(Reader::open(&runtime, &options)?);
        let links = Mutex::new(ArchiveLinks { writer: Arc::new(writer), reader });
        Ok(PostgresTables { options, links, epoch: Mutex::new(None), runtime })
    }

    fn links(&self) -> std::sync::MutexGuard<'_, ArchiveLinks> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection for writes. A broken one is replaced.
    fn writer(&self) -> Result<Arc<Session>, JournalError> {
        let kept = Arc::clone(&self.links().writer);
        if !kept.is_broken() {
            return Ok(kept);
        }
        let fresh = Arc::new(open_session(&self.runtime, &self.options)?);
        self.links().writer = Arc::clone(&fresh);
        Ok(fresh)
    }

    /// The connection for look-ups. A broken one is replaced.
    fn reader(&self) -> Result<Arc<Reader>, JournalError> {
        let kept = Arc::clone(&self.links().reader);
        if !kept.session.is_broken() {
            return Ok(kept);
        }
        let fresh = Arc::new(Reader::open(&self.runtime, &self.options)?);
        self.links().reader = Arc::clone(&fresh);
        Ok(fresh)
    }

    fn write(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, JournalError> {
        let writer = self.writer()?;
        let statement = writer.query(WRITING, sql, params);
        ask_within(&self.runtime, &writer, self.options.query_deadline, statement)
    }

    fn look_up(
        &self,
        statement: impl FnOnce(&Reader) -> &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, JournalError> {
        let reader = self.reader()?;
        let session = &reader.session;
        ask_within(&self.runtime, session, self.options.query_deadline, async {
            let rows = session.client.query(statement(&reader), params).await;
            rows.map_err(|error| described(READING, &error))
        })
    }

    /// The machine and the epoch to write under.
    fn owner(&self) -> Result<(&str, i64), JournalError> {
        let epoch = *self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = epoch.ok_or_else(|| {
            JournalError::storage(WRITING, "this server does not own the journal")
        })?;
        Ok((&self.options.machine, stored(epoch.0)))
    }

    /// Changes something as the owner. `sql` follows [`OWNED`] and returns a row if the archive is owned.
    fn change(&self, sql: &str, more: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, JournalError> {
        let (machine, epoch) = self.owner()?;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&machine, &epoch];
        params.extend_from_slice(more);
        let rows = self.write(&format!("{OWNED} {sql}"), &params)?;
        if rows.is_empty() { Err(self.fenced()) } else { Ok(rows) }
    }

    fn fenced(&self) -> JournalError {
        JournalError::storage(WRITING, "another server owns the journal by now")
    }

    /// Deletes rows, some at a time. `which` is a condition with `$3` and `$4`.
    fn delete(&self, table: &str, which: &str, from: i64, to: i64) -> Result<(), JournalError> {
        let sql = format!(
            ", gone AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY(
                 SELECT ctid FROM {table} WHERE machine = $1 AND {which} LIMIT {ROWS_AT_ONCE}))
               AND EXISTS (SELECT FROM owned) RETURNING 1)
             SELECT (SELECT count(*) FROM gone) FROM owned"
        );
        loop {
            let deleted = self.change(&sql, &[&from, &to])?;
            if deleted.first().is_none_or(|row| row.get::<_, i64>(0) == 0) {
                return Ok(());
            }
        }
    }
}

impl Reader {
    fn open(runtime: &Runtime, options: &PostgresOptions) -> Result<Reader, JournalError> {
        let session = open_session(runtime, options)?;
        let prepared = async {
            let client = &session.client;
            let prepared = async {
                let (block, page) = (client.prepare(BLOCK).await?, client.prepare(PAGE).await?);
                Ok((block, page, client.prepare(FILTER_ROWS).await?))
            };
            prepared.await.map_err(|error| described(READING, &error))
        };
        let (block, page, rows) = ask_within(runtime, &session, options.query_deadline, prepared)?;
        Ok(Reader { session, block, page, rows })
    }

    async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, JournalError> {
        self.session.query(READING, sql, params).await
    }
}

impl ArchiveTables for PostgresTables {
    fn own(&self, epoch: Epoch) -> Result<bool, JournalError> {
        let (machine, number) = (&self.options.machine, stored(epoch.0));
        let owned = self.write(
            "INSERT INTO bursar_archive (machine, epoch, position, next_block)
             SELECT machine, $2::bigint, 0, 0 FROM bursar_lease WHERE machine = $1 AND epoch = $2
             ON CONFLICT (machine) DO UPDATE SET epoch = excluded.epoch
               WHERE bursar_archive.epoch <= excluded.epoch
             RETURNING machine",
            &[machine, &number],
        )?;
        if owned.is_empty() {
            return Err(self.fenced());
        }
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Some(epoch);
        Ok(true)
    }

    fn contents(&self) -> Result<ArchiveContents, JournalError> {
        let reader = self.reader()?;
        let machine = &self.options.machine;
        ask_within(&self.runtime, &reader.session, self.options.query_deadline, async {
            let mut contents = ArchiveContents::default();
            let mark =
                "SELECT position, next_block, blocks_0, runs_0, blocks_1, runs_1, batch, hash
                 FROM bursar_archive WHERE machine = $1";
            if let Some(row) = reader.query(mark, &[machine]).await?.first() {
                contents.mark =
                    ArchiveMark { position: schema::number(row, 0), batch: batch_of(row, 6)? };
                contents.next_block = narrow(row, 1)?;
                let counts = |at: usize| FamilyCounts {
                    blocks: schema::number(row, at),
                    runs: schema::number(row, at + 1),
                };
                contents.counts = [counts(2), counts(4)];
            }
            let runs = "SELECT number, family::bigint, last_block, newest_at, filter, filters,
                   filter_column::bigint, cells
                 FROM bursar_archive_run WHERE machine = $1 ORDER BY number";
            for row in reader.query(runs, &[machine]).await? {
                contents.runs.push(to_run(&row)?);
            }
            Ok(contents)
        })
    }

    fn append(&self, blocks: &[NewBlock], mark: ArchiveMark) -> Result<(), JournalError> {
        let mut rest = blocks;
        loop {
            let mut bytes = 0;
            let fits = |block: &&NewBlock| {
                let is_first = bytes == 0;
                bytes += block.bytes.len();
                is_first || bytes <= BYTES_AT_ONCE
            };
            let count = rest.iter().take(ROWS_AT_ONCE).take_while(fits).count();
            let (some, after) = rest.split_at(count);
            rest = after;
            // The position moves with the last of them.
            self.append_some(some, rest.is_empty().then_some(mark))?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn seal(&self, run: &SealedRun, pages: &[(u64, Vec<u8>)]) -> Result<(), JournalError> {
        let number = i64::from(run.number);
        // Left of a seal that was interrupted: it may have had fewer entries.
        self.delete("bursar_archive_page", "run BETWEEN $3 AND $4", number, number)?;
        for some in pages.chunks(ROWS_AT_ONCE) {
            let firsts: Vec<i64> = some.iter().map(|(first, _)| ordered(*first)).collect();
            let bodies: Vec<&[u8]> = some.iter().map(|(_, page)| &page[..]).collect();
            self.change(
                ", added AS (INSERT INTO bursar_archive_page (machine, run, first, body)
                   SELECT machine, $3::bigint, page.* FROM owned,
                     unnest($4::bigint[], $5::bytea[]) AS page)
                 SELECT machine FROM owned",
                &[&number, &firsts, &bodies],
            )?;
        }
        let (family, last) = (run.family as i16, i64::from(run.last_block));
        self.change(
            ", added AS (
               INSERT INTO bursar_archive_run
                 (machine, number, family, last_block, newest_at, filter)
               SELECT machine, $3::bigint, $4::smallint, $5::bigint, $6::bigint, $7::bytea
               FROM owned),
             counted AS (
               UPDATE bursar_archive SET
                 blocks_0 = CASE WHEN $4 = 0 THEN 0 ELSE blocks_0 END,
                 blocks_1 = CASE WHEN $4 = 1 THEN 0 ELSE blocks_1 END,
                 runs_0 = runs_0 + CASE WHEN $4 = 0 THEN 1 ELSE 0 END,
                 runs_1 = runs_1 + CASE WHEN $4 = 1 THEN 1 ELSE 0 END
               WHERE machine IN (SELECT machine FROM owned))
             SELECT machine FROM owned",
            &[&number, &family, &last, &run.newest_at, &run.filter],
        )
        .map(drop)
    }

    fn put_rows(&self, group: u32, rows: &[(u32, Vec<u8>)]) -> Result<(), JournalError> {
        for some in rows.chunks(ROWS_AT_ONCE) {
            let cells: Vec<i64> = some.iter().map(|(cell, _)| i64::from(*cell)).collect();
            let bodies: Vec<&[u8]> = some.iter().map(|(_, row)| &row[..]).collect();
            self.change(
                ", added AS (INSERT INTO bursar_archive_filter (machine, filters, cell, body)
                   SELECT machine, $3::bigint, row.* FROM owned,
                     unnest($4::bigint[], $5::bytea[]) AS row
                   ON CONFLICT (machine, filters, cell) DO UPDATE SET body = excluded.body)
                 SELECT machine FROM owned",
                &[&i64::from(group), &cells, &bodies],
            )?;
        }
        Ok(())
    }

    fn group(&self, runs: &[(u32, GroupPlace)]) -> Result<(), JournalError> {
        let Some((_, place)) = runs.first() else { return Ok(()) };
        let (filters, cells) = (i64::from(place.number), i64::from(place.cells));
        let numbers: Vec<i64> = runs.iter().map(|(run, _)| i64::from(*run)).collect();
        let columns: Vec<i16> = runs.iter().map(|(_, place)| i16::from(place.column)).collect();
        self.change(
            ", placed AS (
               UPDATE bursar_archive_run AS run
               SET filter = ''::bytea, filters = $3, filter_column = place.filter_column, cells = $4
               FROM owned, unnest($5::bigint[], $6::smallint[]) AS place (number, filter_column)
               WHERE run.machine = owned.machine AND run.number = place.number)
             SELECT machine FROM owned",
            &[&filters, &cells, &numbers, &columns],
        )
        .map(drop)
    }

    fn drop_run(&self, run: &SealedRun, emptied: Option<u32>) -> Result<(), JournalError> {
        let number = i64::from(run.number);
        // First, so that nothing refers to what is gone. What an interrupted call leaves is never read.
        self.change(
            ", gone AS (DELETE FROM bursar_archive_run WHERE machine IN (SELECT machine FROM owned)
                 AND number = $3 RETURNING 1),
             counted AS (
               UPDATE bursar_archive SET
                 runs_0 = runs_0 - CASE WHEN $4::smallint = 0 THEN (SELECT count(*) FROM gone) ELSE 0 END,
                 runs_1 = runs_1 - CASE WHEN $4::smallint = 1 THEN (SELECT count(*) FROM gone) ELSE 0 END
               WHERE machine IN (SELECT machine FROM owned))
             SELECT machine FROM owned",
            &[&number, &(run.family as i16)],
        )?;
        self.delete("bursar_archive_page", "run BETWEEN $3 AND $4", number, number)?;
        let blocks = format!("family = {} AND number BETWEEN $3 AND $4", run.family as i16);
        self.delete("bursar_archive_block", &blocks, 0, i64::from(run.last_block))?;
        match emptied.map(i64::from) {
            Some(filters) => {
                self.delete("bursar_archive_filter", "filters BETWEEN $3 AND $4", filters, filters)
            }
            None => Ok(()),
        }
    }

    fn block(&self, family: ArchiveFamily, number: u32) -> Result<Option<Vec<u8>>, JournalError> {
        let (machine, family, number) = (&self.options.machine, family as i16, i64::from(number));
        let rows = self.look_up(|reader| &reader.block, &[machine, &family, &number])?;
        rows.first().map(|row| bytes_of(row, 0)).transpose()
    }

    fn each_block(
        &self,
        family: ArchiveFamily,
        from: u32,
        each: &mut EachBlock<'_>,
    ) -> Result<(), JournalError> {
        let sql = format!(
            "SELECT number, newest_at, body FROM bursar_archive_block
             WHERE machine = $1 AND family = $2 AND number >= $3
             ORDER BY number LIMIT {ROWS_AT_ONCE}"
        );
        let mut from = i64::from(from);
        loop {
            let reader = self.reader()?;
            let (machine, family) = (&self.options.machine, family as i16);
            let params: [&(dyn ToSql + Sync); 3] = [machine, &family, &from];
            let page = reader.query(&sql, &params);
            let rows =
                ask_within(&self.runtime, &reader.session, self.options.query_deadline, page)?;
            for row in &rows {
                let number: u32 = narrow(row, 0)?;
                from = i64::from(number) + 1;
                each(number, row.get(1), &bytes_of(row, 2)?)?;
            }
            if rows.len() < ROWS_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn page(&self, run: u32, hash: u64) -> Result<Option<Vec<u8>>, JournalError> {
        let (machine, run, hash) = (&self.options.machine, i64::from(run), ordered(hash));
        let rows = self.look_up(|reader| &reader.page, &[machine, &run, &hash])?;
        rows.first().map(|row| bytes_of(row, 0)).transpose()
    }

    fn rows(&self, wanted: &[(u32, u32)]) -> Result<Vec<(u32, Vec<u8>)>, JournalError> {
        let groups: Vec<i64> = wanted.iter().map(|(group, _)| i64::from(*group)).collect();
        let cells: Vec<i64> = wanted.iter().map(|(_, cell)| i64::from(*cell)).collect();
        let params: [&(dyn ToSql + Sync); 3] = [&self.options.machine, &groups, &cells];
        let rows = self.look_up(|reader| &reader.rows, &params)?;
        rows.iter().map(|row| Ok((narrow(row, 0)?, bytes_of(row, 1)?))).collect()
    }

    fn clear(&self) -> Result<(), JournalError> {
        // The archive is empty from here on. The next call continues if this one is interrupted.
        let mark =
            "UPDATE bursar_archive SET position = 0, batch = NULL, hash = NULL WHERE machine IN
             (SELECT machine FROM owned) RETURNING machine";
        self.change(mark, &[])?;
        for (table, number) in [
            ("bursar_archive_run", "number"),
            ("bursar_archive_page", "run"),
            ("bursar_archive_filter", "filters"),
            ("bursar_archive_block", "number"),
        ] {
            self.delete(table, &format!("{number} BETWEEN $3 AND $4"), 0, i64::MAX)?;
        }
        let mark =
            "UPDATE bursar_archive SET next_block = 0, blocks_0 = 0, blocks_1 = 0, runs_0 = 0,
               runs_1 = 0 WHERE machine IN
             (SELECT machine FROM owned) RETURNING machine";
        self.change(mark, &[]).map(drop)
    }
}

impl PostgresTables {
    /// Appends blocks in one statement, and moves the mark if there is one.
    fn append_some(
        &self,
        blocks: &[NewBlock],
        mark: Option<ArchiveMark>,
    ) -> Result<(), JournalError> {
        let (machine, epoch) = self.owner()?;
        let families: Vec<i16> = blocks.iter().map(|block| block.family as i16).collect();
        let numbers: Vec<i64> = blocks.iter().map(|block| i64::from(block.number)).collect();
        let instants: Vec<i64> = blocks.iter().map(|block| block.newest_at).collect();
        let bodies: Vec<&[u8]> = blocks.iter().map(|block| &block.bytes[..]).collect();
        let next = blocks.last().map(|block| i64::from(block.number) + 1);
        let sql = "WITH owned AS (
               UPDATE bursar_archive SET position = coalesce($3::bigint, position),
                 next_block = coalesce($4::bigint, next_block),
                 blocks_0 = blocks_0 + $9::bigint, blocks_1 = blocks_1 + $10::bigint,
                 batch = CASE WHEN $3::bigint IS NULL THEN batch ELSE $11::bigint END,
                 hash = CASE WHEN $3::bigint IS NULL THEN hash ELSE $12::bytea END
               WHERE machine = $1 AND epoch = $2 AND position <= coalesce($3::bigint, position)
                 AND EXISTS (SELECT FROM bursar_lease AS lease
                             WHERE lease.machine = $1 AND lease.epoch = $2)
               RETURNING machine),
             added AS (
               INSERT INTO bursar_archive_block (machine, family, number, newest_at, body)
               SELECT machine, block.* FROM owned,
                 unnest($5::smallint[], $6::bigint[], $7::bigint[], $8::bytea[]) AS block)
             SELECT machine FROM owned";
        let position = mark.map(|mark| stored(mark.position));
        let batch = mark.and_then(|mark| mark.batch);
        let (batch, hash) = (batch.map(|of| stored(of.0)), batch.map(|of| of.1.0.to_vec()));
        let added = [ArchiveFamily::Objects, ArchiveFamily::Answers]
            .map(|family| blocks_of(blocks, family).cast_signed());
        let params: [&(dyn ToSql + Sync); 12] = [
            &machine, &epoch, &position, &next, &families, &numbers, &instants, &bodies, &added[0],
            &added[1], &batch, &hash,
        ];
        if !self.write(sql, &params)?.is_empty() {
            return Ok(());
        }
        let found = self.contents()?.mark.position;
        if let Some(wanted) = position.map(i64::cast_unsigned) {
            crate::archive::require_advance(found, wanted)?;
        }
        Err(self.fenced())
    }
}
