//! The laws of the journal against a database of the user: `bursar admin store-test`. Everything
//! happens in a schema of its own, which is removed afterwards; a store in the same database is not
//! touched.

use std::sync::Barrier;
use std::time::Duration;

use bursar_core::time::Timestamp;
use thiserror::Error;

use super::links::{ask_within, open_session, runtime};
use super::session::{Session, described};
use super::{PostgresJournal, PostgresOptions, fitness};
use crate::chain::{Epoch, Head, JournalId};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{Journal, Lease};
use crate::record::{Batch, BatchBuilder, RecordKind};

/// Leases of owners that are not waited for.
const LONG_TTL: Duration = Duration::from_secs(60);
/// A lease that is waited for.
const SHORT_TTL: Duration = Duration::from_secs(1);
/// How often the clock of the database is read.
const CLOCK_READINGS: usize = 500;
/// Appends that race in pairs.
const RACES: u64 = 10;
/// Bytes of the large batch.
const LARGE: usize = 8 << 20;

/// The outcome of one law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LawOutcome {
    /// What must hold.
    pub law: &'static str,
    /// What was seen, or how it is broken and what to do.
    pub outcome: Result<String, BrokenLaw>,
}

/// Runs every law against a database and passes each outcome to `report`. Returns whether all hold.
/// Laws that need the tables are not run if the tables cannot be created.
///
/// # Errors
/// The database does not answer, or the schema of the test cannot be removed.
pub fn test_store(
    options: &PostgresOptions,
    report: &mut dyn FnMut(&LawOutcome),
) -> Result<bool, JournalError> {
    let mut all_hold = true;
    let mut tell = |law: &'static str, outcome: Result<String, BrokenLaw>| {
        all_hold &= outcome.is_ok();
        report(&LawOutcome { law, outcome });
    };
    let runtime = runtime()?;
    let (first, second) = (open_session(&runtime, options)?, open_session(&runtime, options)?);
    let within = options.query_deadline;
    let settings = ask_within(&runtime, &first, within, read_settings(&first, options));
    tell("the settings keep acknowledged changes", in_words(settings));
    let clock = ask_within(&runtime, &first, within, clock_runs_forward(&first, &second));
    tell("the clock of the database runs forward", in_words(clock));
    let name = scratch_name()?;
    let create = format!("CREATE SCHEMA {name}");
    if let Err(error) = ask_within(&runtime, &first, within, run(&first, &create)) {
        let fix = "let the role create a schema: GRANT CREATE ON DATABASE … TO …";
        tell("the role has the rights that it needs", Err(BrokenLaw(format!("{error}. {fix}"))));
        return Ok(false);
    }
    let inside = PostgresOptions {
        url: in_schema(&options.url, &name),
        machine: "store-test".into(),
        // A missing standby was reported above.
        unsafe_single: true,
        ..options.clone()
    };
    match PostgresJournal::open(inside.clone()) {
        Err(error) => tell("the role has the rights that it needs", Err(error.into())),
        Ok(journal) => {
            tell("the role has the rights that it needs", Ok("tables created".into()));
            for (law, check) in LAWS {
                tell(law, check(&journal, &inside));
            }
        }
    }
    let remove = format!("DROP SCHEMA {name} CASCADE");
    ask_within(&runtime, &first, within, run(&first, &remove))?;
    Ok(all_hold)
}

/// How a law is broken, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct BrokenLaw(String);

impl From<JournalError> for BrokenLaw {
    fn from(error: JournalError) -> BrokenLaw {
        BrokenLaw(error.to_string())
    }
}

impl From<AppendError> for BrokenLaw {
    fn from(error: AppendError) -> BrokenLaw {
        BrokenLaw(format!("an append failed: {error}"))
    }
}

impl From<LeaseError> for BrokenLaw {
    fn from(error: LeaseError) -> BrokenLaw {
        BrokenLaw(format!("a lease failed: {error}"))
    }
}

fn require(holds: bool, otherwise: &str) -> Result<(), BrokenLaw> {
    if holds { Ok(()) } else { Err(BrokenLaw(otherwise.to_owned())) }
}

fn in_words(outcome: Result<String, JournalError>) -> Result<String, BrokenLaw> {
    outcome.map_err(BrokenLaw::from)
}

type Check = fn(&PostgresJournal, &PostgresOptions) -> Result<String, BrokenLaw>;

/// The laws that need the tables, in order: each continues with the journal of the one before.
const LAWS: &[(&str, Check)] = &[
    ("an append writes a batch and the head in one step", appends_are_whole),
    ("a batch after another head is refused and leaves no trace", another_head_is_refused),
    ("of two appends after one head one wins", one_of_two_wins),
    ("an owner with an older epoch cannot append", an_older_epoch_is_refused),
    ("a lease is held until it expires, by the clock of the database", a_lease_expires),
    ("acknowledged batches are there on new connections", batches_stay),
];

async fn read_settings(
    session: &Session,
    options: &PostgresOptions,
) -> Result<String, JournalError> {
    fitness::check_server(session, options).await?;
    let sql = "SELECT current_setting('server_version'), current_setting('synchronous_commit'),
             current_setting('synchronous_standby_names'),
             (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))";
    let rows = session.query("reading the server's settings", sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(String::new()) };
    let (version, commit, names): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
    let standbys: i64 = row.get(3);
    let names = if names.is_empty() { "none: its loss loses acknowledged changes" } else { names };
    Ok(format!(
        "PostgreSQL {version}, fsync on, synchronous_commit {commit}, synchronous_standby_names \
         {names}, {standbys} synchronous standbys visible to this role"
    ))
}

/// Reads the clock on two connections in turn.
async fn clock_runs_forward(first: &Session, second: &Session) -> Result<String, JournalError> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let mut last = i64::MIN;
    for reading in 0..CLOCK_READINGS {
        let session = if reading % 2 == 0 { first } else { second };
        let rows = session.query("reading the clock", sql, &[]).await?;
        let now: i64 = rows.first().map_or(i64::MIN, |row| row.get(0));
        if now < last {
            let by = last.abs_diff(now);
            return Err(JournalError::Refused(format!(
                "it ran back by {by} µs: leases are timed by it. Do not step the clock of the \
                 database's machine, and connect to one primary only"
            )));
        }
        last = now;
    }
    Ok(format!("{CLOCK_READINGS} readings on two connections"))
}

async fn run(session: &Session, sql: &str) -> Result<(), JournalError> {
    let done = session.client.batch_execute(sql).await;
    done.map_err(|error| described("making room for the test", &error))
}

/// A name that no other schema has.
fn scratch_name() -> Result<String, JournalError> {
    let id = JournalId::random()?.0;
    let hex: String = id[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("bursar_store_test_{hex}"))
}

/// The same address, with this schema alone in the search path.
fn in_schema(url: &str, name: &str) -> String {
    if !url.contains("://") {
        return format!("{url} options='-c search_path={name}'");
    }
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}options=-c%20search_path%3D{name}")
}

fn batch(number: u64, bytes: usize) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(RecordKind::Decision, Timestamp::from_millis(1), |out| {
        out.extend(number.to_le_bytes().iter().cycle().take(bytes));
    });
    builder.finish().expect("it has one record")
}

fn owner(journal: &PostgresJournal, name: &str) -> Result<Lease, BrokenLaw> {
    Ok(journal.acquire_lease(name, LONG_TTL)?)
}

fn count(journal: &PostgresJournal) -> Result<u64, BrokenLaw> {
    let mut batches = 0;
    for batch in journal.read(Head::genesis(journal.id()))? {
        batch?;
        batches += 1;
    }
    Ok(batches)
}

fn appends_are_whole(journal: &PostgresJournal, _: &PostgresOptions) -> Result<String, BrokenLaw> {
    let lease = owner(journal, "first")?;
    let mut head = journal.head()?;
    for number in 1..=20 {
        head = journal.append(lease.epoch, head, batch(number, 100))?;
        require(journal.head()? == head, "the head is not that of the append")?;
    }
    head = journal.append(lease.epoch, head, batch(21, LARGE))?;
    require(journal.head()? == head, "the head is not that of the append")?;
    require(count(journal)? == 21, "batches are missing, or there are more than were appended")?;
    journal.release_lease(&lease)?;
    Ok(format!("21 batches, the largest of {} MiB", LARGE >> 20))
}

fn another_head_is_refused(
    journal: &PostgresJournal,
    _: &PostgresOptions,
) -> Result<String, BrokenLaw> {
    let lease = owner(journal, "first")?;
    let head = journal.head()?;
    let mut wrong = head;
    wrong.hash.0[0] ^= 1;
    for expected in [wrong, Head { sequence: head.sequence - 1, ..head }, journal.head_at(1)?] {
        let refused = journal.append(lease.epoch, expected, batch(0, 100));
        let fenced = Err(AppendError::Fenced { epoch: lease.epoch });
        require(refused == fenced, "an append after another head was not refused")?;
    }
    require(journal.head()? == head, "a refused append moved the head")?;
    require(count(journal)? == head.sequence, "a refused append left a batch")?;
    journal.release_lease(&lease)?;
    Ok("3 attempts".into())
}

fn one_of_two_wins(
    journal: &PostgresJournal,
    options: &PostgresOptions,
) -> Result<String, BrokenLaw> {
    let other = PostgresJournal::open(options.clone())?;
    let lease = owner(journal, "first")?;
    for round in 0..RACES {
        let (head, start) = (journal.head()?, Barrier::new(2));
        let race = |journal: &PostgresJournal, number: u64| {
            start.wait();
            journal.append(lease.epoch, head, batch(number, 100)).is_ok()
        };
        let (left, right) = std::thread::scope(|scope| {
            let left = scope.spawn(|| race(journal, 2 * round));
            let right = race(&other, 2 * round + 1);
            (left.join().unwrap_or(false), right)
        });
        require(left != right, "both appends after one head succeeded, or none")?;
        require(journal.head()?.sequence == head.sequence + 1, "the head moved by more than one")?;
    }
    journal.release_lease(&lease)?;
    Ok(format!("{RACES} races on two connections"))
}

fn an_older_epoch_is_refused(
    journal: &PostgresJournal,
    options: &PostgresOptions,
) -> Result<String, BrokenLaw> {
    let other = PostgresJournal::open(options.clone())?;
    let old = owner(journal, "first")?;
    let held = other.acquire_lease("second", LONG_TTL);
    require(matches!(held, Err(LeaseError::Held { .. })), "a lease was given to two owners")?;
    journal.release_lease(&old)?;
    let new = owner(&other, "second")?;
    require(new.epoch > old.epoch, "a new owner has no newer epoch")?;
    let head = journal.head()?;
    for epoch in [old.epoch, Epoch(new.epoch.0 + 1)] {
        let refused = journal.append(epoch, head, batch(0, 100));
        let fenced = Err(AppendError::Fenced { epoch });
        require(refused == fenced, "an append under another epoch was not refused")?;
    }
    require(journal.renew_lease(&old).is_err(), "a deposed owner renewed its lease")?;
    other.append(new.epoch, head, batch(0, 100))?;
    other.release_lease(&new)?;
    Ok(format!("epoch {} after {}", new.epoch.0, old.epoch.0))
}

fn a_lease_expires(
    journal: &PostgresJournal,
    options: &PostgresOptions,
) -> Result<String, BrokenLaw> {
    let other = PostgresJournal::open(options.clone())?;
    journal.acquire_lease("first", SHORT_TTL)?;
    let mut refusals = 0;
    let lease = loop {
        match other.acquire_lease("second", LONG_TTL) {
            Ok(lease) => break lease,
            Err(LeaseError::Held { .. }) => refusals += 1,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(SHORT_TTL / 20);
    };
    require(refusals > 0, "a lease was taken before it expired")?;
    other.release_lease(&lease)?;
    Ok(format!("refused {refusals} times, then given"))
}

fn batches_stay(journal: &PostgresJournal, options: &PostgresOptions) -> Result<String, BrokenLaw> {
    let (head, batches) = (journal.head()?, count(journal)?);
    let again = PostgresJournal::open(options.clone())?;
    require(again.head()? == head && count(&again)? == batches, "batches are missing")?;
    Ok(format!("{batches} batches"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_added_to_both_forms_of_an_address() {
        assert_eq!(in_schema("host=a user=b", "s"), "host=a user=b options='-c search_path=s'");
        let plain = "postgres://a@b/c?options=-c%20search_path%3Ds";
        assert_eq!(in_schema("postgres://a@b/c", "s"), plain);
        let more = "postgres://a@b/c?sslmode=require&options=-c%20search_path%3Ds";
        assert_eq!(in_schema("postgres://a@b/c?sslmode=require", "s"), more);
    }
}
