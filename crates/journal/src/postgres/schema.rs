//! The tables, their migrations, and every statement except the append.

use std::collections::VecDeque;
use std::time::Duration;

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use tokio_postgres::Row;

use super::PostgresOptions;
use super::leader::Claim;
use super::manifest;
use super::session::{Session, described, stored};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::{JournalError, LeaseError};
use crate::snapshot::SnapshotMark;

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
];

/// The first version with a manifest.
const MANIFEST_SINCE: usize = 3;
/// The first version whose manifest names the key that signs checkpoints.
const SIGNER_SINCE: usize = 4;

/// The optional parts of a store's tables. Tables of earlier builds lack some.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) manifest: bool,
    pub(super) signer: bool,
}

/// The tables after all migrations.
const TABLES: &str = "(VALUES ('bursar_journal'), ('bursar_head'), ('bursar_lease'), \
     ('bursar_batch'), ('bursar_snapshot'), ('bursar_store'), ('bursar_machine')) AS ours (name)";

/// The advisory lock that serialises two servers that start at once: "bursar" in ASCII.
const MIGRATION_LOCK: i64 = 0x6275_7273_6172;

/// Checks the server, the role and the manifest of the store, and migrates the tables. Nothing is
/// written to an incomplete store.
pub(super) async fn prepare_store(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    check_server(session, options).await?;
    if version(session).await? != Some(MIGRATIONS.len()) {
        migrate(session).await?;
    }
    check_rights(session).await?;
    manifest::check(session, None).await.map(drop)
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

fn leaseless() -> JournalError {
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
    check_server(session, options).await?;
    if version(session).await? != Some(MIGRATIONS.len()) {
        migrate(session).await?;
    }
    check_rights(session).await?;
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

/// Rejects a server that may lose acknowledged data.
pub(super) async fn check_server(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    let rows = session
        .query(
            "reading the server's settings",
            "SELECT pg_is_in_recovery(), current_setting('fsync') = 'on',
                    current_setting('full_page_writes') = 'on',
                    current_setting('synchronous_standby_names') <> '',
                    current_setting('synchronous_commit') IN ('on', 'remote_apply')",
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
    if !row.get::<_, bool>(4) {
        return refuse(
            "synchronous_commit is weaker than `on`: a pooler must keep session settings",
        );
    }
    Ok(())
}

/// Rejects a role without the rights of an owner, and missing tables.
async fn check_rights(session: &Session) -> Result<(), JournalError> {
    let rows = session
        .query(
            "reading the role's rights",
            "SELECT to_regclass(name) IS NULL, name, need, current_user::text
             FROM (VALUES
               ('bursar_journal', 'SELECT'), ('bursar_journal', 'INSERT'),
               ('bursar_head', 'SELECT'), ('bursar_head', 'INSERT'), ('bursar_head', 'UPDATE'),
               ('bursar_lease', 'SELECT'), ('bursar_lease', 'INSERT'), ('bursar_lease', 'UPDATE'),
               ('bursar_store', 'SELECT'), ('bursar_store', 'UPDATE'),
               ('bursar_machine', 'SELECT'), ('bursar_machine', 'INSERT'),
               ('bursar_machine', 'UPDATE'),
               ('bursar_batch', 'SELECT'), ('bursar_batch', 'INSERT'),
               ('bursar_snapshot', 'SELECT'), ('bursar_snapshot', 'INSERT'),
               ('bursar_snapshot', 'UPDATE'), ('bursar_snapshot', 'DELETE')) AS wanted (name, need)
             WHERE NOT coalesce(has_table_privilege(to_regclass(name), need), false) LIMIT 1",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (gone, table, right, role): (bool, String, String, String) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    Err(if gone {
        manifest::refused(&table, "the table is missing")
    } else {
        JournalError::Refused(format!(
            "the role {role} lacks {right} on {table}: grant it, or make it the owner"
        ))
    })
}

/// The checks of [`prepare`], repeated while the journal is in use: settings and rights can change
/// under a running server.
pub(super) async fn check_running(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    let checked = async {
        check_server(session, options).await?;
        check_rights(session).await
    };
    checked.await.map_err(|error| match error {
        JournalError::Refused(reason) => JournalError::Unfit(reason),
        other => other,
    })
}

/// The last applied migration. `None` if the table of versions does not exist.
async fn version(session: &Session) -> Result<Option<usize>, JournalError> {
    let doing = "reading the version of the tables";
    // Not `to_regclass`: inside a transaction it may cache that the table did not exist.
    let there = "SELECT count(*) > 0 FROM pg_class
         WHERE relname = 'bursar_schema' AND pg_table_is_visible(oid)";
    let rows = session.query(doing, there, &[]).await?;
    if !rows.first().is_some_and(|row| row.get(0)) {
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
async fn migrate(session: &Session) -> Result<(), JournalError> {
    begin_alone(session).await?;
    let migrated = apply_missing(session).await;
    end(session, migrated).await
}

/// Applies missing migrations inside a transaction.
pub(super) async fn apply_missing(session: &Session) -> Result<(), JournalError> {
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
    for (index, sql) in missing.iter().enumerate() {
        run(session, sql).await?;
        let version = known + index + 1;
        run(session, &format!("INSERT INTO bursar_schema VALUES ({version})")).await?;
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

fn digest(row: &Row, column: usize, sequence: u64) -> Result<Digest, JournalError> {
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

/// Takes the lease if it is free, expired or held by the same holder, and fences earlier epochs in
/// the same statement: the head's row contains the epoch that may append.
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
    let row = held.first().ok_or_else(leaseless)?;
    Ok(Err(LeaseError::Held { holder: row.get(0), remaining_ms: number(row, 1) }))
}

/// Sets the remaining time of the lease of `epoch`, and records the journal's progress in the
/// manifest. Returns false if another owner has the lease by now.
pub(super) async fn extend_lease(
    session: &Session,
    machine: &str,
    epoch: Epoch,
    ttl: Duration,
) -> Result<bool, JournalError> {
    let rows = session
        .query(
            "renewing the lease",
            "WITH kept AS (
               UPDATE bursar_lease SET until = clock_timestamp() + make_interval(secs => $3)
               WHERE machine = $1 AND epoch = $2 RETURNING machine),
             noted AS (
               UPDATE bursar_machine AS known
               SET sequence = head.sequence, position = head.position, hash = head.hash
               FROM bursar_head AS head, kept
               WHERE known.machine = kept.machine AND head.machine = kept.machine
                 AND head.sequence > known.sequence)
             SELECT machine FROM kept",
            &[&machine, &stored(epoch.0), &ttl.as_secs_f64()],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// Takes the lead if no server has it, if it expired or if the same holder has it.
pub(super) async fn claim_leadership(
    session: &Session,
    holder: &str,
    url: &str,
    ttl: Duration,
) -> Result<Claim, JournalError> {
    let doing = "asking to lead";
    let taken = session
        .query(
            doing,
            "UPDATE bursar_store SET term = term + 1, holder = $1, url = $2,
               until = clock_timestamp() + make_interval(secs => $3)
             WHERE until < clock_timestamp() OR holder = $1 RETURNING term",
            &[&holder, &url, &ttl.as_secs_f64()],
        )
        .await?;
    if let Some(row) = taken.first() {
        return Ok(Claim::Won { term: number(row, 0) });
    }
    let held = session.query(doing, "SELECT holder, url FROM bursar_store", &[]).await?;
    let row = held.first().ok_or_else(storeless)?;
    Ok(Claim::Held { holder: row.get(0), url: row.get(1) })
}

/// The store's time in milliseconds since 1970, and the URL of the leader if there is one.
pub(super) async fn look_at_leadership(
    session: &Session,
) -> Result<(i64, Option<String>), JournalError> {
    let rows = session
        .query(
            "reading the store's clock",
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
               CASE WHEN until >= clock_timestamp() THEN nullif(url, '') END FROM bursar_store",
            &[],
        )
        .await?;
    let row = rows.first().ok_or_else(storeless)?;
    Ok((row.get(0), row.get(1)))
}

/// Sets the remaining time of the leader of `term`. Returns false if another server leads by now.
pub(super) async fn extend_leadership(
    session: &Session,
    term: u64,
    ttl: Duration,
) -> Result<bool, JournalError> {
    let rows = session
        .query(
            "renewing the lead",
            "UPDATE bursar_store SET until = clock_timestamp() + make_interval(secs => $2),
               clean = clean AND $2::double precision = 0
             WHERE term = $1 RETURNING term",
            &[&stored(term), &ttl.as_secs_f64()],
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

/// Deletes the parts of unfinished snapshots.
pub(super) async fn drop_unfinished_snapshots(
    session: &Session,
    machine: &str,
) -> Result<(), JournalError> {
    session
        .query(
            "forgetting unfinished snapshots",
            "DELETE FROM bursar_snapshot AS part WHERE machine = $1 AND NOT EXISTS (
               SELECT FROM bursar_snapshot AS first WHERE first.machine = part.machine
                 AND first.sequence = part.sequence AND first.chunk = 0)",
            &[&machine],
        )
        .await
        .map(drop)
}

/// Deletes all snapshots but the newest `kept`, and unfinished ones older than these.
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

/// One part of a snapshot, if it exists.
pub(super) async fn get_chunk(
    session: &Session,
    machine: &str,
    mark: SnapshotMark,
    chunk: i32,
) -> Result<Option<Vec<u8>>, JournalError> {
    let rows = session
        .query(
            "reading a snapshot",
            "SELECT bytes FROM bursar_snapshot WHERE machine = $1 AND sequence = $2 AND chunk = $3",
            &[&machine, &stored(mark.sequence), &chunk],
        )
        .await?;
    Ok(rows.first().map(|row| row.get(0)))
}
