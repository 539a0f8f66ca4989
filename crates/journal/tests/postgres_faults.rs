//! PostgreSQL when it hangs, warns, restarts or is not to be trusted.

mod support;

use std::time::Duration;

use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use bursar_journal::{AppendError, Epoch, Head, Journal, JournalError};
use support::postgres::TestPostgres;
use support::{read_all, sample};

/// A standby that does not exist: commits wait for it for ever.
const WAIT_FOR_EVER: &str = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'";
const WAIT_FOR_NOBODY: &str = "ALTER SYSTEM SET synchronous_standby_names = ''";
/// How many commits wait for their standby.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

fn configure(server: &TestPostgres, setting: &str, shows: &str) {
    server.sql(setting);
    server.sql("SELECT pg_reload_conf()");
    server.wait_for("SHOW synchronous_standby_names", shows);
}

fn options(server: &TestPostgres, machine: &str) -> PostgresOptions {
    let mut options = PostgresOptions::new(server.url(), machine);
    options.unsafe_single = true;
    options
}

fn open(options: PostgresOptions) -> (PostgresJournal, Epoch, Head) {
    let journal = PostgresJournal::open(options).expect("the server is up");
    let epoch = journal.acquire_lease("test", Duration::from_secs(60)).expect("free").epoch;
    let head = journal.head().expect("the head can be read");
    (journal, epoch, head)
}

#[test]
fn an_append_whose_standby_is_gone_is_unknown_after_our_own_deadline() {
    let server = TestPostgres::start();
    let mut options = options(&server, "ledger");
    options.append_deadline = Duration::from_millis(300);
    let (journal, epoch, genesis) = open(options);
    let head = journal.append(epoch, genesis, sample(1)).expect("nothing to wait for");
    configure(&server, WAIT_FOR_EVER, "nobody");
    let first = journal.begin_append(epoch, head, sample(2));
    let second = journal.begin_append(epoch, head.after(epoch, &sample(2)), sample(3));
    assert!(matches!(first.wait(), Err(AppendError::Unknown(_))));
    assert!(matches!(second.wait(), Err(AppendError::Unknown(_))), "nothing follows it");
    let third = journal.append(epoch, head, sample(2));
    assert!(matches!(third, Err(AppendError::Unknown(_))), "nothing until it is reopened");
    assert_eq!(server.sql(WAITING), "1", "no cancel was sent: the commit still waits");

    configure(&server, WAIT_FOR_NOBODY, "");
    server.wait_for(WAITING, "0");
    journal.reopen().expect("the server is up");
    let batches = read_all(&journal, genesis);
    assert!((2..=3).contains(&batches.len()), "the unknown append had happened after all");
    let last = batches.last().expect("two or three").head();
    journal.append(epoch, last, sample(last.sequence + 1)).expect("it goes on from there");
}

#[test]
fn a_commit_that_was_cancelled_while_it_waited_is_never_acknowledged() {
    let server = TestPostgres::start();
    let (journal, epoch, genesis) = open(options(&server, "ledger"));
    configure(&server, WAIT_FOR_EVER, "nobody");
    let pending = journal.begin_append(epoch, genesis, sample(1));
    server.wait_for(WAITING, "1");
    server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    let outcome = pending.wait();
    let Err(AppendError::Unknown(reason)) = outcome else {
        panic!("PostgreSQL says success, with a warning; we must not: {outcome:?}");
    };
    assert!(reason.contains("warning"), "{reason}");
}

#[test]
fn a_lost_connection_makes_the_outcome_unknown_and_reopening_heals_it() {
    let server = TestPostgres::start();
    let (journal, epoch, genesis) = open(options(&server, "ledger"));
    let head = journal.append(epoch, genesis, sample(1)).expect("the server is up");
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    );
    let lost = journal.append(epoch, head, sample(2));
    assert!(matches!(lost, Err(AppendError::Unknown(_))), "{lost:?}");
    journal.reopen().expect("the server is up");
    let head = journal.head().expect("the head can be read");
    journal.append(epoch, head, sample(head.sequence + 1)).expect("it goes on");
}

#[test]
fn a_server_without_synchronous_standby_is_refused_unless_told_otherwise() {
    let primary = TestPostgres::start();
    let refused = PostgresJournal::open(PostgresOptions::new(primary.url(), "ledger"));
    let Err(JournalError::Refused(reason)) = refused.map(|_| ()) else {
        panic!("a single server loses acknowledged batches when it is lost");
    };
    assert!(reason.contains("--unsafe-single-postgres"), "{reason}");

    let standby = primary.standby("second");
    configure(&primary, "ALTER SYSTEM SET synchronous_standby_names = 'second'", "second");
    primary.wait_for("SELECT sync_state FROM pg_stat_replication", "sync");
    let (journal, epoch, genesis) = open(PostgresOptions::new(primary.url(), "ledger"));
    let head = journal.append(epoch, genesis, sample(1)).expect("both servers are up");
    standby.wait_for("SELECT max(sequence) FROM bursar_batch", "1");
    assert_eq!(journal.head(), Ok(head));

    let on_standby = PostgresJournal::open(PostgresOptions::new(standby.url(), "ledger"));
    assert!(matches!(on_standby.map(|_| ()), Err(JournalError::Refused(_))));
}

#[test]
fn tables_of_a_newer_build_are_refused() {
    let server = TestPostgres::start();
    drop(open(options(&server, "ledger")));
    server.sql("INSERT INTO bursar_schema VALUES (99)");
    let refused = PostgresJournal::open(options(&server, "ledger")).map(|_| ());
    let Err(JournalError::Refused(reason)) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("schema version 99"), "{reason}");
}

#[test]
fn an_owner_whose_lease_was_taken_cannot_append_any_more() {
    let server = TestPostgres::start();
    let (zombie, old, genesis) = open(options(&server, "ledger"));
    let head = zombie.append(old, genesis, sample(1)).expect("it is the owner");
    server.sql("UPDATE bursar_lease SET until = now() - interval '1 s'");
    let successor = PostgresJournal::open(options(&server, "ledger")).expect("the server is up");
    let new = successor.acquire_lease("successor", Duration::from_secs(60)).expect("it ran out");
    assert_eq!(zombie.append(old, head, sample(2)), Err(AppendError::Fenced { epoch: old }));
    successor.append(new.epoch, head, sample(2)).expect("it is the owner now");
}
