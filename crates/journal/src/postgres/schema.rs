//! The tables, how they came to be, and every statement but the append.

use std::collections::VecDeque;
use std::time::Duration;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use tokio_postgres::Row;

use super::PostgresOptions;
use super::session::{Session, described, stored};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{JournalError, LeaseError};
use crate::snapshot::SnapshotMark;

/// Each entry is one version; entries are added at the end and never changed.
const MIGRATIONS: &[&str] = &["
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
"];

/// Two servers that start at once take turns by this advisory lock: "bursar" in ASCII.
const MIGRATION_LOCK: i64 = 0x6275_7273_6172;

/// Checks the server, brings the tables up to date and finds or creates the machine's journal.
pub(super) async fn prepare(
    session: &Session,
    options: &PostgresOptions,
) -> Result<JournalId, JournalError> {
    check_server(session, options).await?;
    migrate(session).await?;
    let fresh = JournalId::random()?;
    let genesis = Head::genesis(fresh);
    session
        .query(
            "creating the journal",
            "WITH created AS (
               INSERT INTO bursar_journal VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING machine),
             head AS (
               INSERT INTO bursar_head (machine, sequence, position, hash, epoch)
               SELECT machine, 0, 0, $3, 0 FROM created)
             INSERT INTO bursar_lease (machine, epoch, holder, until)
             SELECT machine, 0, '', '-infinity' FROM created",
            &[&options.machine, &&fresh.0[..], &&genesis.hash.0[..]],
        )
        .await?;
    let rows = session
        .query(
            "reading the journal's identity",
            "SELECT journal FROM bursar_journal WHERE machine = $1",
            &[&options.machine],
        )
        .await?;
    let id = rows.first().map(|row| row.get::<_, Vec<u8>>(0)).and_then(|id| id.try_into().ok());
    id.map(JournalId).ok_or_else(|| JournalError::Damaged {
        part: "identity",
        reason: "it is not 16 bytes".into(),
    })
}

/// Refuses a server that may forget what it acknowledged.
pub(super) async fn check_server(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    let rows = session
        .query(
            "reading the server's settings",
            "SELECT pg_is_in_recovery(), current_setting('fsync') = 'on',
                    current_setting('full_page_writes') = 'on',
                    current_setting('synchronous_standby_names') <> ''",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Err(JournalError::storage("reading the server's settings", "no answer"));
    };
    let refuse = |reason: &str| Err(JournalError::Refused(reason.to_owned()));
    if row.get(0) {
        return refuse("the server is a standby: connect to the primary");
    }
    if !row.get::<_, bool>(1) || !row.get::<_, bool>(2) {
        return refuse("the server runs with fsync or full_page_writes off: switch both on");
    }
    if !row.get::<_, bool>(3) && !options.unsafe_single {
        return refuse(
            "the server has no synchronous standby, so its loss would lose acknowledged credits: \
             set synchronous_standby_names, or accept the risk with --unsafe-single-postgres",
        );
    }
    Ok(())
}

async fn migrate(session: &Session) -> Result<(), JournalError> {
    let doing = "migrating the tables";
    let run = async |sql: &str| {
        session.client.batch_execute(sql).await.map_err(|error| described(doing, &error))
    };
    run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});
         CREATE TABLE IF NOT EXISTS bursar_schema (version integer NOT NULL)"
    ))
    .await?;
    let rows =
        session.query(doing, "SELECT coalesce(max(version), 0) FROM bursar_schema", &[]).await?;
    let version = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    let known = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = MIGRATIONS.get(known..) else {
        run("ROLLBACK").await?;
        return Err(JournalError::Refused(format!(
            "the tables have schema version {version}; this build knows versions up to {}",
            MIGRATIONS.len()
        )));
    };
    for (index, sql) in missing.iter().enumerate() {
        run(sql).await?;
        run(&format!("INSERT INTO bursar_schema VALUES ({})", known + index + 1)).await?;
    }
    run("COMMIT").await
}

fn damaged(part: &'static str) -> impl Fn(tokio_postgres::Error) -> JournalError {
    move |error| JournalError::Damaged { part, reason: error.to_string() }
}

fn number(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).cast_unsigned()
}

fn digest(row: &Row, column: usize, sequence: u64) -> Result<Digest, JournalError> {
    let bytes: Vec<u8> = row.try_get(column).map_err(damaged("hash"))?;
    let reason = "a hash is not 32 bytes".to_owned();
    bytes.try_into().map(Digest).map_err(|_| JournalError::Corrupt { sequence, reason })
}

pub(super) async fn head(session: &Session, machine: &str) -> Result<Head, JournalError> {
    let rows = session
        .query(
            "reading the head",
            "SELECT sequence, position, hash FROM bursar_head WHERE machine = $1",
            &[&machine],
        )
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| JournalError::Damaged { part: "head", reason: "it is missing".into() })?;
    let sequence = number(row, 0);
    Ok(Head { sequence, position: number(row, 1), hash: digest(row, 2, sequence)? })
}

pub(super) async fn read_page(
    session: &Session,
    machine: &str,
    after: i64,
    until: i64,
    rows: i64,
) -> Result<VecDeque<StoredBatch>, JournalError> {
    let rows = session
        .query(
            "reading batches",
            "SELECT sequence, first_position, records, epoch, time, previous, hash, payload
             FROM bursar_batch WHERE machine = $1 AND sequence > $2 AND sequence <= $3
             ORDER BY sequence LIMIT $4",
            &[&machine, &after, &until, &rows],
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
        // Outside the years 0 to 9999 this differs from what was hashed, and is found by the hash.
        time: Timestamp::from_millis(row.get(4)),
        previous: digest(row, 5, sequence)?,
        hash: digest(row, 6, sequence)?,
        payload: row.get(7),
    })
}

/// Takes the lease if it is free, ran out or was the same holder's, and fences earlier epochs in
/// the same statement: the head's row carries the epoch that may append.
pub(super) async fn acquire_lease(
    session: &Session,
    machine: &str,
    holder: &str,
    ttl: Duration,
) -> Result<Result<Epoch, LeaseError>, JournalError> {
    let doing = "taking the lease";
    let ttl = ttl.as_secs_f64();
    let taken = session
        .query(
            doing,
            "WITH taken AS (
               UPDATE bursar_lease SET epoch = epoch + 1, holder = $2,
                 until = clock_timestamp() + make_interval(secs => $3)
               WHERE machine = $1 AND (until < clock_timestamp() OR holder = $2)
               RETURNING epoch)
             UPDATE bursar_head SET epoch = taken.epoch FROM taken WHERE machine = $1
             RETURNING taken.epoch",
            &[&machine, &holder, &ttl],
        )
        .await?;
    if let Some(row) = taken.first() {
        return Ok(Ok(Epoch(number(row, 0))));
    }
    let held = session
        .query(
            doing,
            "SELECT holder,
               greatest(0, ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint
             FROM bursar_lease WHERE machine = $1",
            &[&machine],
        )
        .await?;
    let (holder, remaining_ms) =
        held.first().map_or((String::new(), 0), |row| (row.get(0), number(row, 1)));
    Ok(Err(LeaseError::Held { holder, remaining_ms }))
}

/// Sets how long the lease of `epoch` still lasts; false if it is somebody else's by now.
pub(super) async fn extend_lease(
    session: &Session,
    machine: &str,
    epoch: Epoch,
    ttl: Duration,
) -> Result<bool, JournalError> {
    let rows = session
        .query(
            "renewing the lease",
            "UPDATE bursar_lease SET until = clock_timestamp() + make_interval(secs => $3)
             WHERE machine = $1 AND epoch = $2 RETURNING epoch",
            &[&machine, &stored(epoch.0), &ttl.as_secs_f64()],
        )
        .await?;
    Ok(!rows.is_empty())
}

pub(super) async fn put_chunk(
    session: &Session,
    machine: &str,
    mark: SnapshotMark,
    chunk: usize,
    bytes: &[u8],
) -> Result<(), JournalError> {
    let chunk = i32::try_from(chunk).unwrap_or(i32::MAX);
    session
        .query(
            "writing a snapshot",
            "INSERT INTO bursar_snapshot VALUES ($1, $2, $3, $4)
             ON CONFLICT (machine, sequence, chunk) DO UPDATE SET bytes = excluded.bytes",
            &[&machine, &stored(mark.sequence), &chunk, &bytes],
        )
        .await
        .map(|_| ())
}

/// Forgets all snapshots but the newest `kept`, and unfinished ones older than these.
pub(super) async fn keep_snapshots(
    session: &Session,
    machine: &str,
    kept: usize,
) -> Result<(), JournalError> {
    let kept = i64::try_from(kept).unwrap_or(i64::MAX);
    session
        .query(
            "forgetting old snapshots",
            "DELETE FROM bursar_snapshot WHERE machine = $1 AND sequence < (
               SELECT min(sequence) FROM (
                 SELECT sequence FROM bursar_snapshot WHERE machine = $1 AND chunk = 0
                 ORDER BY sequence DESC LIMIT $2) AS newest)",
            &[&machine, &kept],
        )
        .await
        .map(|_| ())
}

pub(super) async fn list_snapshots(
    session: &Session,
    machine: &str,
) -> Result<Vec<SnapshotMark>, JournalError> {
    let rows = session
        .query(
            "listing snapshots",
            "SELECT sequence FROM bursar_snapshot WHERE machine = $1 AND chunk = 0
             ORDER BY sequence DESC",
            &[&machine],
        )
        .await?;
    Ok(rows.iter().map(|row| SnapshotMark { sequence: number(row, 0) }).collect())
}

/// The bytes of a snapshot, if it is there at all.
pub(super) async fn get_snapshot(
    session: &Session,
    machine: &str,
    mark: SnapshotMark,
) -> Result<Option<Vec<u8>>, JournalError> {
    let rows = session
        .query(
            "reading a snapshot",
            "SELECT bytes FROM bursar_snapshot WHERE machine = $1 AND sequence = $2 ORDER BY chunk",
            &[&machine, &stored(mark.sequence)],
        )
        .await?;
    let bytes = rows.iter().flat_map(|row| row.get::<_, Vec<u8>>(0)).collect::<Vec<_>>();
    Ok((!rows.is_empty()).then_some(bytes))
}
