//! A whole store in one database: verifies that it is complete, and restores backups into it.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::links::{ask_within, open_session, runtime};
use super::manifest::{self, StoreState};
use super::session::{Session, stored};
use super::{PostgresOptions, fitness, schema};
use crate::chain::{Epoch, Head, JournalId, StoredBatch};
use crate::error::JournalError;
use crate::journal::Journal;

/// How long the end of a restore may take: a standby has to replicate all of it.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(600);

/// Batches restored by one statement, and the bytes that end it earlier.
const ROWS: usize = 64;
const BYTES: usize = 4 << 20;

/// The contents of a database. Must be used by ordinary threads, never inside an asynchronous
/// runtime.
pub struct PostgresStore {
    options: PostgresOptions,
    known: Option<StoreState>,
    signer: Option<String>,
}

impl PostgresStore {
    /// The step of a restore at which a failure leaves the outcome unknown.
    pub const ENDING: &str = "ending the restore";

    /// Inspects a store and rejects one that is incomplete. Writes nothing.
    ///
    /// # Errors
    /// Names the machine or table that is missing, emptied, truncated, foreign or older than it
    /// was.
    pub fn open(options: PostgresOptions) -> Result<PostgresStore, JournalError> {
        let (known, signer) = ask(&options, async |session| {
            let parts = schema::look(session, &options).await?;
            let known = match parts.manifest {
                true => Some(manifest::check(session, None).await?),
                false => None,
            };
            let signer = match parts.signer {
                true => manifest::signer(session).await?,
                false => None,
            };
            Ok((known, signer))
        })?;
        Ok(PostgresStore { options, known, signer })
    }

    /// The public key that signs the checkpoints of the store at this address, in hex, if there is
    /// a store and the key is known. Nothing else is inspected.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn signer_at(options: &PostgresOptions) -> Result<Option<String>, JournalError> {
        ask(options, async |session| schema::known_signer(session).await)
    }

    /// The machines that have a journal in the database.
    ///
    /// # Errors
    /// The database does not answer, or holds no store.
    pub fn machines(options: &PostgresOptions) -> Result<Vec<String>, JournalError> {
        ask(options, async |session| {
            let sql = "SELECT machine FROM bursar_journal ORDER BY machine";
            let rows = session.query("reading the machines", sql, &[]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    /// The public keys that signed the checkpoints of the store at this address, in hex, the present
    /// one first.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn signers_at(options: &PostgresOptions) -> Result<Vec<String>, JournalError> {
        ask(options, async |session| schema::known_signers(session).await)
    }

    /// The public key that signs its checkpoints, in hex, as of the inspection.
    pub fn signer(&self) -> Option<&str> {
        self.signer.as_deref()
    }

    /// Stores the public key that signs its checkpoints. Changes nothing if `holder` does not lead.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn note_signer(&self, holder: &str, public_key: &str) -> Result<(), JournalError> {
        ask(&self.options, async |session| {
            let sql = "UPDATE bursar_store SET signer = $2, earlier_signers = CASE
                   WHEN signer <> $2 THEN array_append(earlier_signers, signer)
                   ELSE earlier_signers END
                 WHERE holder = $1";
            session.query("noting the signing key", sql, &[&holder, &public_key]).await.map(drop)
        })
    }

    /// Whether the last server stopped cleanly, so that the journals are known to be consistent.
    pub fn was_clean(&self) -> bool {
        self.known.is_some_and(|known| known.clean)
    }

    /// The base of the agents' incarnation numbers.
    pub fn incarnation_base(&self) -> u32 {
        self.known.map_or(0, |known| known.incarnation_base)
    }

    /// Records that the leader begins to use the store, or that it stopped cleanly. Changes nothing
    /// if `holder` does not lead.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn note(&self, holder: &str, clean: bool) -> Result<(), JournalError> {
        ask(&self.options, async |session| {
            let sql = "UPDATE bursar_store SET clean = $2 WHERE holder = $1";
            session.query("noting the end of the server", sql, &[&holder, &clean]).await.map(drop)
        })
    }

    /// Creates a store from journals, each under its machine's name, in an empty database: all of
    /// it or nothing. `signer` is the public key that signs its checkpoints, if it is known.
    ///
    /// # Errors
    /// Rejects a database that already has tables.
    pub fn restore(
        options: &PostgresOptions,
        journals: &[(&str, &dyn Journal)],
        incarnation_base: u32,
        signer: Option<&str>,
    ) -> Result<(), JournalError> {
        let signers = (signer, &[][..]);
        PostgresStore::migrate(options, journals, incarnation_base, signers, &|| Ok(()))
    }

    /// Restores a store with all keys that signed its checkpoints: the present one, and those before it. `before_commit` is
    /// called when all is written; if it fails, nothing is.
    ///
    /// # Errors
    /// Rejects a database that already has tables.
    pub fn migrate(
        options: &PostgresOptions,
        journals: &[(&str, &dyn Journal)],
        incarnation_base: u32,
        (signer, earlier): (Option<&str>, &[String]),
        before_commit: &dyn Fn() -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let runtime = runtime()?;
        let session = open_session(&runtime, options)?;
        let restoring = Restoring { runtime: &runtime, session: &session, options };
        restoring.ask(async || {
            fitness::check_server(&session, options).await?;
            schema::begin_alone(&session).await?;
            check_empty(&session).await?;
            schema::apply_missing(&session, options.newest_form).await?;
            let sql = "UPDATE bursar_store SET incarnation_base = $1, clean = true, signer = $2,
                 earlier_signers = $3";
            let base = i64::from(incarnation_base);
            session.query("writing the manifest", sql, &[&base, &signer, &earlier]).await.map(drop)
        })?;
        for (machine, journal) in journals {
            restoring.copy(machine, *journal)?;
        }
        let whole = manifest::check(&session, None);
        ask_within(&runtime, &session, RESTORE_TIMEOUT, whole)?;
        before_commit()?;
        ask_within(&runtime, &session, RESTORE_TIMEOUT, schema::end(&session, Ok(())))
        .map_err(|error| match error {
            JournalError::Storage { reason, .. } => JournalError::storage(
                PostgresStore::ENDING,
                format!(
                    "{reason}. Whether it took place is not known: look at the database, or restore \
                     again, which refuses one that is not empty"
                ),
            ),
            other => other,
        })
    }
}

/// Queries on a separate connection.
pub(super) fn ask<T>(
    options: &PostgresOptions,
    work: impl AsyncFnOnce(&Session) -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    let runtime = runtime()?;
    let session = open_session(&runtime, options)?;
    ask_within(&runtime, &session, options.query_deadline, work(&session))
}

/// Rejects a database that has any table. Tables of extensions are ignored.
async fn check_empty(session: &Session) -> Result<(), JournalError> {
    let rows = session
        .query(
            "looking for tables",
            "SELECT relname::text, current_database()::text FROM pg_class
             WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
               AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass
                               AND objid = pg_class.oid AND deptype = 'e')
             ORDER BY relname LIMIT 1",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (table, database): (&str, &str) = (row.get(0), row.get(1));
    Err(JournalError::Refused(format!(
        "the database {database} is not empty: it has the table {table}. Nothing was changed. Give an \
         empty database"
    )))
}

/// A restore in progress, in one transaction.
struct Restoring<'a> {
    runtime: &'a Runtime,
    session: &'a Session,
    options: &'a PostgresOptions,
}

impl Restoring<'_> {
    fn ask<T>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        ask_within(self.runtime, self.session, self.options.query_deadline, work())
    }

    /// Copies one journal, page by page. Each page has its own query deadline.
    fn copy(&self, machine: &str, journal: &dyn Journal) -> Result<(), JournalError> {
        let id = journal.id();
        self.ask(async || self.create(machine, id).await)?;
        let (mut head, mut epoch) = (Head::genesis(id), Epoch(0));
        let (mut page, mut bytes) = (Vec::new(), 0);
        for batch in journal.read(head)? {
            let batch = batch?;
            (head, epoch) = (batch.head(), epoch.max(batch.epoch));
            bytes += batch.payload.len();
            page.push(batch);
            if page.len() >= ROWS || bytes >= BYTES {
                self.ask(async || self.write(machine, &page).await)?;
                page.clear();
                bytes = 0;
            }
        }
        self.ask(async || {
            self.write(machine, &page).await?;
            self.finish(machine, head, epoch).await
        })
    }

    async fn create(&self, machine: &str, id: JournalId) -> Result<(), JournalError> {
        let sql = "WITH made AS (INSERT INTO bursar_journal VALUES ($1, $2) RETURNING machine)
             UPDATE bursar_store SET journals = journals + 1 FROM made";
        self.session.query("restoring a journal", sql, &[&machine, &&id.0[..]]).await.map(drop)
    }

    async fn write(&self, machine: &str, page: &[StoredBatch]) -> Result<(), JournalError> {
        let numbers = |of: fn(&StoredBatch) -> u64| -> Vec<i64> {
            page.iter().map(|batch| stored(of(batch))).collect()
        };
        let records: Vec<i32> = page.iter().map(|batch| batch.records.cast_signed()).collect();
        let times: Vec<i64> = page.iter().map(|batch| batch.time.millis()).collect();
        let previous: Vec<&[u8]> = page.iter().map(|batch| &batch.previous.0[..]).collect();
        let hashes: Vec<&[u8]> = page.iter().map(|batch| &batch.hash.0[..]).collect();
        let payloads: Vec<&[u8]> = page.iter().map(|batch| &batch.payload[..]).collect();
        let (sequences, positions, epochs) = (
            numbers(|batch| batch.sequence),
            numbers(|batch| batch.first_position),
            numbers(|batch| batch.epoch.0),
        );
        let sql = "INSERT INTO bursar_batch
               (machine, sequence, first_position, records, epoch, time, previous, hash, payload)
             SELECT $1::text, * FROM unnest($2::bigint[], $3::bigint[], $4::integer[], $5::bigint[],
               $6::bigint[], $7::bytea[], $8::bytea[], $9::bytea[])";
        self.session
            .query(
                "restoring batches",
                sql,
                &[
                    &machine, &sequences, &positions, &records, &epochs, &times, &previous,
                    &hashes, &payloads,
                ],
            )
            .await
            .map(drop)
    }

    /// Stores a journal's head, a free lease and its entry in the manifest.
    async fn finish(&self, machine: &str, head: Head, epoch: Epoch) -> Result<(), JournalError> {
        let (sequence, position) = (stored(head.sequence), stored(head.position));
        let (hash, epoch) = (&head.hash.0[..], stored(epoch.0));
        let doing = "restoring a journal";
        let head = "INSERT INTO bursar_head (machine, sequence, position, hash, epoch)
             VALUES ($1, $2, $3, $4, $5)";
        self.session.query(doing, head, &[&machine, &sequence, &position, &hash, &epoch]).await?;
        let lease = "INSERT INTO bursar_lease (machine, epoch, holder, until)
             VALUES ($1, $2, '', '-infinity')";
        self.session.query(doing, lease, &[&machine, &epoch]).await?;
        let listed =
            "INSERT INTO bursar_machine (machine, store, journal, sequence, position, hash)
             SELECT machine, store, journal, $2::bigint, $3::bigint, $4::bytea
             FROM bursar_store, bursar_journal WHERE machine = $1";
        self.session.query(doing, listed, &[&machine, &sequence, &position, &hash]).await.map(drop)
    }
}
