//! The tables, their migrations, and the statements that read them. Statements on leases and snapshots are in
//! files of their own.

use std::collections::VecDeque;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use tokio_postgres::Row;

use super::PostgresOptions;
use super::fitness::{check_rights, check_server};
use super::forms::{self, FORMS_SINCE};
use super::manifest;
use super::session::{Session, described};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::JournalError;

/// Each entry is one version. Entries are added at the end and never changed.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE bursar_journal (
  machine text PRIMARY KEY, journal bytea NOT NULL CHECK (length(journal) = 16));
CREATE TABLE bursar_head (
  machine text PRIMARY KEY REFERENCES bursar_journal,
  sequence bigint NOT NULL, position bigint NOT NULL, hash bytea NOT NULL,
  epoch bigint NOT NULL) WITH (fillfactor = 20);
CREATE TABLE bursar_lease (
  machine text PRIMARY KEY REFERENCES bursar_journal,
  epoch bigint NOT NULL, holder text NOT NULL, until timestamptz NOT NULL) WITH (fillfactor = 20);
CREATE TABLE bursar_batch (
  machine text NOT NULL REFERENCES bursar_journal, sequence bigint NOT NULL,
  first_position bigint NOT NULL, records integer NOT NULL, epoch bigint NOT NULL,
  time bigint NOT NULL, previous bytea NOT NULL, hash bytea NOT NULL, payload bytea NOT NULL,
  PRIMARY KEY (machine, sequence));
ALTER TABLE bursar_batch ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE bursar_snapshot (
  machine text NOT NULL REFERENCES bursar_journal, sequence bigint NOT NULL,
  chunk integer NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (machine, sequence, chunk));
ALTER TABLE bursar_snapshot ALTER COLUMN bytes SET STORAGE EXTERNAL;
",
    "
CREATE TABLE bursar_store (
  only_row boolean PRIMARY KEY CHECK (only_row), journals bigint NOT NULL,
  term bigint NOT NULL, holder text NOT NULL, url text NOT NULL, until timestamptz NOT NULL)
  WITH (fillfactor = 20);
INSERT INTO bursar_store SELECT true, count(*), 0, '', '', '-infinity' FROM bursar_journal;
",
    "
ALTER TABLE bursar_store
  ADD COLUMN store bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()),
  ADD COLUMN format integer NOT NULL DEFAULT 1,
  ADD COLUMN incarnation_base bigint NOT NULL DEFAULT 0,
  ADD COLUMN clean boolean NOT NULL DEFAULT false;
CREATE TABLE bursar_machine (
  machine text PRIMARY KEY, store bytea NOT NULL, journal bytea NOT NULL,
  sequence bigint NOT NULL, position bigint NOT NULL, hash bytea NOT NULL) WITH (fillfactor = 20);
INSERT INTO bursar_machine
  SELECT machine, store, journal,
         coalesce(sequence, 0), coalesce(position, 0), coalesce(hash, '')
  FROM bursar_store, bursar_journal LEFT JOIN bursar_head USING (machine);
",
    "
ALTER TABLE bursar_store ADD COLUMN signer text;
",
    "
CREATE TABLE bursar_archive (
  machine text PRIMARY KEY REFERENCES bursar_journal, epoch bigint NOT NULL,
  position bigint NOT NULL, next_block bigint NOT NULL) WITH (fillfactor = 20);
CREATE TABLE bursar_archive_block (
  machine text NOT NULL, family smallint NOT NULL, number bigint NOT NULL,
  newest_at bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (machine, family, number));
CREATE TABLE bursar_archive_run (
  machine text NOT NULL, number bigint NOT NULL, family smallint NOT NULL,
  last_block bigint NOT NULL, newest_at bigint NOT NULL, filter bytea NOT NULL,
  filters bigint, filter_column smallint, cells bigint, PRIMARY KEY (machine, number));
CREATE TABLE bursar_archive_page (
  machine text NOT NULL, run bigint NOT NULL, first bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (machine, run, first));
CREATE TABLE bursar_archive_filter (
  machine text NOT NULL, filters bigint NOT NULL, cell bigint NOT NULL, body bytea NOT NULL,
  PRIMARY KEY (machine, filters, cell));
ALTER TABLE bursar_archive_run ALTER COLUMN filter SET STORAGE EXTERNAL;
ALTER TABLE bursar_archive_page ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE bursar_archive_filter ALTER COLUMN body SET STORAGE EXTERNAL;
",
    "
CREATE TABLE bursar_sealing (
  machine text PRIMARY KEY REFERENCES bursar_journal, epoch bigint NOT NULL)
  WITH (fillfactor = 20);
CREATE TABLE bursar_segment (
  machine text NOT NULL REFERENCES bursar_journal, first bigint NOT NULL, last bigint NOT NULL,
  first_position bigint NOT NULL, last_position bigint NOT NULL, began_at bigint NOT NULL,
  previous bytea NOT NULL, hash bytea NOT NULL, digest bytea NOT NULL, bytes bigint NOT NULL,
  PRIMARY KEY (machine, first));
CREATE TABLE bursar_segment_part (
  machine text NOT NULL REFERENCES bursar_journal, digest bytea NOT NULL, part integer NOT NULL,
  bytes bytea NOT NULL, PRIMARY KEY (machine, digest, part));
ALTER TABLE bursar_segment_part ALTER COLUMN bytes SET STORAGE EXTERNAL;
ALTER TABLE bursar_store ADD COLUMN earlier_signers text[] NOT NULL DEFAULT '{}';
",
    // The archive has another form: it is built again.
    "
TRUNCATE bursar_archive_block, bursar_archive_run, bursar_archive_page, bursar_archive_filter;
UPDATE bursar_archive SET position = 0, next_block = 0;
ALTER TABLE bursar_archive ADD COLUMN batch bigint, ADD COLUMN hash bytea,
  ADD COLUMN blocks_0 bigint NOT NULL DEFAULT 0, ADD COLUMN runs_0 bigint NOT NULL DEFAULT 0,
  ADD COLUMN blocks_1 bigint NOT NULL DEFAULT 0, ADD COLUMN runs_1 bigint NOT NULL DEFAULT 0;
ALTER TABLE bursar_archive_block ALTER COLUMN body SET STORAGE EXTERNAL;
",
    "
CREATE TABLE bursar_member (
  member text PRIMARY KEY, start text NOT NULL, url text NOT NULL, build text NOT NULL,
  draining boolean NOT NULL, seen timestamptz NOT NULL) WITH (fillfactor = 20);
",
    "
ALTER TABLE bursar_store ADD COLUMN loss text,
  ADD COLUMN losses_accepted bigint NOT NULL DEFAULT 0;
",
    "
ALTER TABLE bursar_store ADD COLUMN lease_ms bigint NOT NULL DEFAULT 3000;
",
    "
CREATE TABLE bursar_segment_place (
  machine text NOT NULL REFERENCES bursar_journal, digest bytea NOT NULL, folder text NOT NULL,
  PRIMARY KEY (machine, digest));
",
    "
ALTER TABLE bursar_store ADD COLUMN form integer NOT NULL DEFAULT 0;
ALTER TABLE bursar_member ADD COLUMN form integer NOT NULL DEFAULT 0;
",
];

/// The first version with a manifest.
const MANIFEST_SINCE: usize = 3;
/// The first version with segments, whose manifest names the keys that signed them.
const SEGMENTS_SINCE: usize = 6;
/// The first version whose manifest names the key that signs checkpoints.
const SIGNER_SINCE: usize = 4;
/// The first version whose members say which build they are.
const MEMBERS_SINCE: usize = 8;

/// The optional parts of a store's tables. Tables of earlier builds lack some.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) manifest: bool,
    pub(super) signer: bool,
}

/// The tables after all migrations.
const TABLES: &str = "(VALUES ('bursar_journal'), ('bursar_head'), ('bursar_lease'), \
     ('bursar_batch'), ('bursar_snapshot'), ('bursar_store'), ('bursar_machine'), \
     ('bursar_archive'), ('bursar_archive_block'), ('bursar_archive_run'), ('bursar_archive_page'), \
     ('bursar_archive_filter'), ('bursar_sealing'), ('bursar_segment'), \
     ('bursar_segment_part'), ('bursar_segment_place'), ('bursar_member')) AS ours (name)";

/// The advisory lock that serialises two servers that start at once: "bursar" in ASCII.
const MIGRATION_LOCK: i64 = 0x6275_7273_6172;

/// Checks the server, the role and the manifest of the store, and migrates the tables. Nothing is
/// written to an incomplete store.
pub(super) async fn prepare_store(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    prepare_tables(session, options).await?;
    manifest::check(session, None).await.map(drop)
}

async fn prepare_tables(session: &Session, options: &PostgresOptions) -> Result<(), JournalError> {
    check_server(session, options).await?;
    let known = version(session).await?.unwrap_or(0);
    if known > MIGRATIONS.len() {
        return Err(too_new(known));
    }
    if known < FORMS_SINCE {
        migrate(session, options).await?;
    }
    forms::check(session, options).await?;
    check_rights(session).await
}

/// Checks a store that is only read. Returns which parts its tables have.
pub(super) async fn look(
    session: &Session,
    options: &PostgresOptions,
) -> Result<Parts, JournalError> {
    check_server(session, options).await?;
    match version(session).await? {
        None | Some(0) => {
            check_untouched(session).await?;
            Err(JournalError::Refused(
                "there is no store in this database: give the address that `bursar serve --store` \
                 was given"
                    .into(),
            ))
        }
        Some(known) if known > MIGRATIONS.len() => Err(too_new(known)),
        Some(known) => {
            if known >= FORMS_SINCE {
                forms::check(session, options).await?;
            }
            Ok(Parts { manifest: known >= MANIFEST_SINCE, signer: known >= SIGNER_SINCE })
        }
    }
}

/// The key that signs the checkpoints of a store, if it is known. Nothing else is checked.
pub(super) async fn known_signer(session: &Session) -> Result<Option<String>, JournalError> {
    match version(session).await? {
        Some(known) if known >= SIGNER_SINCE => manifest::signer(session).await,
        Some(_) | None => Ok(None),
    }
}

/// The keys that signed the checkpoints of a store, the present one first. Nothing else is checked.
pub(super) async fn known_signers(session: &Session) -> Result<Vec<String>, JournalError> {
    let mut signers: Vec<String> = known_signer(session).await?.into_iter().collect();
    if version(session).await?.is_some_and(|known| known >= SEGMENTS_SINCE) {
        let sql = "SELECT earlier_signers FROM bursar_store";
        let rows = session.query("reading the manifest", sql, &[]).await?;
        let earlier: Vec<String> = rows.first().map_or_else(Vec::new, |row| row.get(0));
        signers.extend(earlier.into_iter().rev());
    }
    Ok(signers)
}

pub(super) fn leaseless() -> JournalError {
    JournalError::Damaged { part: "lease", reason: "it is missing".into() }
}

pub(super) fn storeless() -> JournalError {
    JournalError::Damaged { part: "store", reason: "its row is missing".into() }
}

/// Finds or creates the machine's journal, after the store was prepared.
pub(super) async fn prepare(
    session: &Session,
    options: &PostgresOptions,
) -> Result<JournalId, JournalError> {
    prepare_tables(session, options).await?;
    manifest::check(session, Some(&options.machine)).await?;
    let fresh = JournalId::random()?;
    let genesis = Head::genesis(fresh);
    // A machine is listed in the same statement that creates its journal.
    session
        .query(
            "creating the journal",
            "WITH created AS (
               INSERT INTO bursar_journal VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING machine),
             head AS (
               INSERT INTO bursar_head (machine, sequence, position, hash, epoch)
               SELECT machine, 0, 0, $3, 0 FROM created),
             lease AS (
               INSERT INTO bursar_lease (machine, epoch, holder, until)
               SELECT machine, 0, '', '-infinity' FROM created),
             listed AS (
               INSERT INTO bursar_machine (machine, store, journal, sequence, position, hash)
               SELECT machine, store, $2, 0, 0, $3 FROM created, bursar_store)
             UPDATE bursar_store SET journals = journals + 1 WHERE EXISTS (SELECT FROM created)",
            &[&options.machine, &&fresh.0[..], &&genesis.hash.0[..]],
        )
        .await?;
    identity(session, &options.machine)
        .await?
        .ok_or_else(|| JournalError::Damaged { part: "identity", reason: "it is missing".into() })
}

/// The identity of a machine's journal, if it has one.
pub(super) async fn identity(
    session: &Session,
    machine: &str,
) -> Result<Option<JournalId>, JournalError> {
    let rows = session
        .query(
            "reading the journal's identity",
            "SELECT journal, EXISTS (SELECT FROM bursar_lease WHERE machine = $1)
             FROM bursar_journal WHERE machine = $1",
            &[&machine],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if !row.get::<_, bool>(1) {
        return Err(leaseless());
    }
    let id: Vec<u8> = row.get(0);
    id.try_into().map(|id| Some(JournalId(id))).map_err(|_| JournalError::Damaged {
        part: "identity",
        reason: "it is not 16 bytes".into(),
    })
}

/// Whether a table exists.
async fn has_table(session: &Session, name: &str) -> Result<bool, JournalError> {
    // Not `to_regclass`: inside a transaction it may cache that the table did not exist.
    let there = "SELECT count(*) > 0 FROM pg_class
         WHERE relname = $1::text AND pg_table_is_visible(oid)";
    let rows = session.query("looking for a table", there, &[&name]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Whether the tables have segments. Those of earlier builds have none.
pub(super) async fn has_segments(session: &Session) -> Result<bool, JournalError> {
    has_table(session, "bursar_segment").await
}

/// Whether the tables say where archived segments are. Those of earlier builds have none.
pub(super) async fn has_places(session: &Session) -> Result<bool, JournalError> {
    has_table(session, "bursar_segment_place").await
}

/// The version of the tables of a store.
pub(super) async fn schema_version(session: &Session) -> Result<u64, JournalError> {
    let known = version(session).await?.ok_or_else(storeless)?;
    Ok(u64::try_from(known).unwrap_or(u64::MAX))
}

/// The last applied migration. `None` if the table of versions does not exist.
pub(super) async fn version(session: &Session) -> Result<Option<usize>, JournalError> {
    let doing = "reading the version of the tables";
    if !has_table(session, "bursar_schema").await? {
        return Ok(None);
    }
    let rows =
        session.query(doing, "SELECT coalesce(max(version), 0) FROM bursar_schema", &[]).await?;
    let version = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    Ok(Some(usize::try_from(version).unwrap_or(usize::MAX)))
}

fn too_new(version: usize) -> JournalError {
    JournalError::Refused(format!(
        "the tables have schema version {version}; this build knows versions up to {}",
        MIGRATIONS.len()
    ))
}

async fn run(session: &Session, sql: &str) -> Result<(), JournalError> {
    let done = session.client.batch_execute(sql).await;
    done.map_err(|error| described("migrating the tables", &error))
}

/// Begins a transaction in which no other one changes the tables.
pub(super) async fn begin_alone(session: &Session) -> Result<(), JournalError> {
    run(session, &format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).await
}

/// Ends a transaction: commits it or, after an error, rolls it back.
pub(super) async fn end<T>(
    session: &Session,
    outcome: Result<T, JournalError>,
) -> Result<T, JournalError> {
    let done = match outcome {
        Ok(done) => done,
        Err(error) => {
            // Closing the connection rolls it back as well.
            let _ = run(session, "ROLLBACK").await;
            return Err(error);
        }
    };
    run(session, "COMMIT").await?;
    if session.warned() {
        let reason = "the server committed with a warning: it may not be replicated";
        return Err(JournalError::storage("migrating the tables", reason));
    }
    Ok(done)
}

/// Applies missing migrations, if the store is complete after them.
async fn migrate(session: &Session, options: &PostgresOptions) -> Result<(), JournalError> {
    begin_alone(session).await?;
    let migrated = apply_missing(session, options.newest_form).await;
    end(session, migrated).await
}

/// Applies missing migrations inside a transaction. A new store has the form `newest`.
pub(super) async fn apply_missing(session: &Session, newest: u32) -> Result<(), JournalError> {
    let known = version(session).await?.unwrap_or(0);
    if known == 0 {
        check_untouched(session).await?;
        let sql = "CREATE TABLE IF NOT EXISTS bursar_schema (version integer NOT NULL)";
        run(session, sql).await?;
    }
    let missing = MIGRATIONS.get(known..).ok_or_else(|| too_new(known))?;
    if known >= 2 {
        manifest::check_count(session).await?;
    }
    if (MEMBERS_SINCE..FORMS_SINCE).contains(&known) {
        forms::check_members_gone(session).await?;
    }
    for (index, sql) in missing.iter().enumerate() {
        run(session, sql).await?;
        let version = known + index + 1;
        run(session, &format!("INSERT INTO bursar_schema VALUES ({version})")).await?;
    }
    if known == 0 {
        run(session, &format!("UPDATE bursar_store SET form = {newest}")).await?;
    }
    manifest::check(session, None).await.map(drop)
}

/// Rejects a database that has tables of a store but not the table of versions.
async fn check_untouched(session: &Session) -> Result<(), JournalError> {
    let sql = format!("SELECT name FROM {TABLES} WHERE to_regclass(name) IS NOT NULL LIMIT 1");
    let rows = session.query("looking for tables", &sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let found: &str = row.get(0);
    Err(manifest::refused(
        "bursar_schema",
        &format!("the table is missing or empty, and the table {found} is there"),
    ))
}

fn damaged(part: &'static str) -> impl Fn(tokio_postgres::Error) -> JournalError {
    move |error| JournalError::Damaged { part, reason: error.to_string() }
}

pub(super) fn number(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).cast_unsigned()
}

pub(super) fn digest(row: &Row, column: usize, sequence: u64) -> Result<Digest, JournalError> {
    let bytes: Vec<u8> = row.try_get(column).map_err(damaged("hash"))?;
    let reason = "a hash is not 32 bytes".to_owned();
    bytes.try_into().map(Digest).map_err(|_| JournalError::Corrupt { sequence, reason })
}

pub(super) async fn head(session: &Session, machine: &str) -> Result<Head, JournalError> {
    let (head, _) = ends(session, machine).await?;
    Ok(head)
}

/// The head, and the last stored batch, or 0. One statement, because another server may append
/// between two.
pub(super) async fn ends(session: &Session, machine: &str) -> Result<(Head, u64), JournalError> {
    let rows = session
        .query(
            "reading the head",
            "SELECT sequence, position, hash, coalesce(
               (SELECT max(sequence) FROM bursar_batch WHERE bursar_batch.machine = $1), 0)
             FROM bursar_head WHERE machine = $1",
            &[&machine],
        )
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| JournalError::Damaged { part: "head", reason: "it is missing".into() })?;
    let sequence = number(row, 0);
    let head = Head { sequence, position: number(row, 1), hash: digest(row, 2, sequence)? };
    Ok((head, number(row, 3)))
}

/// The batches to read at once.
pub(super) struct Page {
    pub(super) after: i64,
    pub(super) until: i64,
    pub(super) rows: i64,
    pub(super) bytes: i64,
}

pub(super) async fn read_page(
    session: &Session,
    machine: &str,
    page: Page,
) -> Result<VecDeque<StoredBatch>, JournalError> {
    let rows = session
        .query(
            "reading batches",
            "SELECT sequence, first_position, records, epoch, time, previous, hash, payload
             FROM (
               SELECT *, sum(octet_length(payload)) OVER (ORDER BY sequence)
                         - octet_length(payload) AS bytes_before
               FROM (SELECT * FROM bursar_batch
                     WHERE machine = $1 AND sequence > $2 AND sequence <= $3
                     ORDER BY sequence LIMIT $4) AS next) AS page
             WHERE bytes_before < $5 ORDER BY sequence",
            &[&machine, &page.after, &page.until, &page.rows, &page.bytes],
        )
        .await?;
    rows.iter().map(to_batch).collect()
}

fn to_batch(row: &Row) -> Result<StoredBatch, JournalError> {
    let sequence = number(row, 0);
    Ok(StoredBatch {
        sequence,
        first_position: number(row, 1),
        records: row.get::<_, i32>(2).cast_unsigned(),
        epoch: Epoch(number(row, 3)),
        // A time outside the years 0 to 9999 differs from the hashed one and is found by the hash.
        time: Timestamp::from_millis(row.get(4)),
        previous: digest(row, 5, sequence)?,
        hash: digest(row, 6, sequence)?,
        payload: row.get(7),
    })
}
