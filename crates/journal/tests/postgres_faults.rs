//! PostgreSQL when it hangs, warns, restarts or cannot be trusted.

use crate::support;

use std::time::Duration;

use bursar_journal::postgres::{Claim, PostgresJournal, PostgresLeader, PostgresOptions};
use bursar_journal::{
    AppendError, Epoch, Head, Journal, JournalError, Lease, LeaseError, Snapshot,
};
use support::postgres::TestPostgres;
use support::{read_all, sample};

/// A standby that does not exist: commits wait for it for ever.
const WAIT_FOR_EVER: &str = "ALTER SYSTEM SET synchronous_standby_names = 'absent'";
const NO_STANDBY: &str = "ALTER SYSTEM SET synchronous_standby_names = ''";
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

/// Polls until `condition` holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut looks = 0;
    while !condition() {
        looks += 1;
        assert!(looks < 2_000, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks for the lead as it is stored now.
fn claim(leader: &PostgresLeader, by: (&str, &str), ttl: Duration) -> Result<Claim, JournalError> {
    let seen = leader.look(ttl)?.row;
    leader.claim(by, ttl, &seen)
}

fn open(options: PostgresOptions) -> (PostgresJournal, Epoch, Head) {
    let journal = PostgresJournal::open(options).expect("the server is up");
    let epoch = journal.acquire_lease("test", Duration::from_secs(60)).expect("free").epoch;
    let head = journal.head().expect("the head can be read");
    (journal, epoch, head)
}

#[test]
fn an_append_without_its_standby_is_unknown_after_the_client_deadline() {
    let server = TestPostgres::start();
    let mut options = options(&server, "ledger");
    options.append_deadline = Duration::from_millis(300);
    let (journal, epoch, genesis) = open(options);
    let head = journal.append(epoch, genesis, sample(1)).expect("nothing to wait for");
    configure(&server, WAIT_FOR_EVER, "absent");
    let first = journal.begin_append(epoch, head, sample(2));
    let second = journal.begin_append(epoch, head.after(epoch, &sample(2)), sample(3));
    assert!(matches!(first.wait(), Err(AppendError::Unknown(_))));
    assert!(matches!(second.wait(), Err(AppendError::Unknown(_))), "nothing follows it");
    let third = journal.append(epoch, head, sample(2));
    assert!(matches!(third, Err(AppendError::Unknown(_))), "nothing until it is reopened");
    assert_eq!(server.sql(WAITING), "1", "no cancel was sent: the commit still waits");

    configure(&server, NO_STANDBY, "");
    server.wait_for(WAITING, "0");
    journal.reopen().expect("the server is up");
    let batches = read_all(&journal, genesis);
    assert!((2..=3).contains(&batches.len()), "the unknown append has happened");
    let last = batches.last().expect("two or three").head();
    journal.append(epoch, last, sample(last.sequence + 1)).expect("appends continue from there");
}

#[test]
fn a_commit_cancelled_while_it_waited_is_never_acknowledged() {
    let server = TestPostgres::start();
    let (journal, epoch, genesis) = open(options(&server, "ledger"));
    configure(&server, WAIT_FOR_EVER, "absent");
    let pending = journal.begin_append(epoch, genesis, sample(1));
    server.wait_for(WAITING, "1");
    server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    let outcome = pending.wait();
    let Err(AppendError::Unknown(reason)) = outcome else {
        panic!("a success with a warning must not be acknowledged: {outcome:?}");
    };
    assert!(reason.contains("warning"), "{reason}");
}

#[test]
fn a_lost_connection_makes_the_outcome_unknown_until_reopened() {
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
    journal.append(epoch, head, sample(head.sequence + 1)).expect("appends continue");
}

#[test]
fn a_server_without_synchronous_standby_is_refused_by_default() {
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
fn connections_that_ended_are_replaced_without_a_write() {
    let server = TestPostgres::start();
    let (journal, epoch, genesis) = open(options(&server, "ledger"));
    let head = journal.append(epoch, genesis, sample(1)).expect("the server is up");
    let lease = Lease { epoch, holder: "test".into(), ttl: Duration::from_secs(60) };
    assert_eq!(journal.must_reopen(), None);
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    );
    until("the journal must be reopened", || journal.must_reopen().is_some());
    until("the head is read again", || journal.head() == Ok(head));
    until("the lease is renewed again", || journal.renew_lease(&lease) == Ok(()));
    assert!(journal.must_reopen().is_some(), "appends wait for that");
    journal.reopen().expect("the server is up");
    assert_eq!(journal.must_reopen(), None);
    journal.append(epoch, head, sample(2)).expect("appends continue");
}

#[test]
fn every_renewal_checks_the_server_settings_and_the_role() {
    let primary = TestPostgres::start();
    let standby = primary.standby("second");
    configure(&primary, "ALTER SYSTEM SET synchronous_standby_names = 'second'", "second");
    primary.wait_for("SELECT sync_state FROM pg_stat_replication", "sync");
    let journal = PostgresJournal::open(PostgresOptions::new(primary.url(), "ledger"));
    let journal = journal.expect("it has a standby");
    let lease = journal.acquire_lease("test", Duration::from_secs(60)).expect("free");
    journal.renew_lease(&lease).expect("nothing has changed");
    let unfit = |words: &str| match journal.renew_lease(&lease) {
        Err(LeaseError::Journal(JournalError::Unfit(reason))) => reason.contains(words),
        _ => false,
    };
    configure(&primary, NO_STANDBY, "");
    until("the missing standby is noticed", || unfit("--unsafe-single-postgres"));
    assert!(matches!(journal.reopen(), Err(JournalError::Unfit(_))), "reopening is refused too");
    configure(&primary, "ALTER SYSTEM SET synchronous_standby_names = 'second'", "second");
    until("the lease is renewed again", || journal.renew_lease(&lease) == Ok(()));
    for (change, words) in [
        ("ALTER SYSTEM SET full_page_writes = off", "full_page_writes"),
        ("ALTER SYSTEM RESET full_page_writes", ""),
    ] {
        primary.sql(change);
        primary.sql("SELECT pg_reload_conf()");
        until(change, || match words {
            "" => journal.renew_lease(&lease) == Ok(()),
            words => unfit(words),
        });
    }
    primary.sql("REVOKE INSERT ON bursar_batch FROM bursar");
    until("the missing right is noticed", || unfit("lacks INSERT on bursar_batch"));
    primary.sql("GRANT INSERT ON bursar_batch TO bursar");
    until("it may write again", || journal.renew_lease(&lease) == Ok(()));
    drop(standby);
}

#[test]
fn an_ordinary_role_that_owns_its_database_is_enough() {
    let server = TestPostgres::start();
    let role = server.sql(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles
         WHERE rolname = 'bursar'",
    );
    assert_eq!(role, "f|f|f|f");
    let (journal, epoch, genesis) = open(options(&server, "ledger"));
    journal.append(epoch, genesis, sample(1)).expect("it may write");
    let leader = PostgresLeader::open(options(&server, "leader")).expect("it may lead");
    let ttl = Duration::from_secs(60);
    let won = claim(&leader, ("a", "http://a"), ttl).expect("the server is up");
    assert_eq!(won, Claim::Won { term: 1 });
    let held = Claim::Held { holder: "a".into(), url: "http://a".into() };
    assert_eq!(claim(&leader, ("b", "http://b"), ttl), Ok(held));
    assert_eq!(leader.renew(1, ttl), Ok(true));
    leader.release(1, ttl).expect("the server is up");
    assert_eq!(claim(&leader, ("b", "http://b"), ttl), Ok(Claim::Won { term: 2 }));
    assert_eq!(leader.renew(1, ttl), Ok(false), "another one leads");
}

#[test]
fn requests_without_an_answer_leave_no_connections_behind() {
    let server = TestPostgres::start();
    let leader = PostgresLeader::open(options(&server, "leader")).expect("the server is up");
    let long = Duration::from_secs(600);
    assert_eq!(claim(&leader, ("a", "http://a"), long), Ok(Claim::Won { term: 1 }));
    configure(&server, WAIT_FOR_EVER, "absent");
    // An answer is waited for during a third of the lease.
    let short = Duration::from_secs(2);
    until("a renewal waits for the standby", || {
        assert!(leader.renew(1, short).is_err());
        server.sql(WAITING) == "1"
    });
    for _ in 0..6 {
        assert!(leader.renew(1, short).is_err(), "it waits for the one before");
    }
    // A statement that waits for a lock ends with its connection. One that waits for a standby
    // cannot be ended.
    server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE usename = 'bursar'", "1");
    assert_eq!(server.sql(WAITING), "1", "no cancel was sent");
    configure(&server, NO_STANDBY, "");
    until("it is renewed again", || leader.renew(1, long) == Ok(true));
}

/// A connection on which every part of a snapshot takes a second.
const SLOW: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON bursar_snapshot FOR EACH ROW EXECUTE FUNCTION slow();";

#[test]
fn a_snapshot_may_take_longer_than_the_query_deadline_while_it_progresses() {
    let server = TestPostgres::start();
    let mut options = options(&server, "ledger");
    options.query_deadline = Duration::from_secs(4);
    let (journal, epoch, genesis) = open(options);
    let head = journal.append(epoch, genesis, sample(1)).expect("the server is up");
    server.sql(SLOW);
    let snapshot = Snapshot { head, state: vec![7; (5 << 20) + 3] };
    journal.put_snapshot(&snapshot).expect("each part is in time");
    let marks = journal.list_snapshots().expect("the server is up");
    assert_eq!(marks, [snapshot.mark()]);
    assert_eq!(journal.get_snapshot(snapshot.mark()), Ok(snapshot));
}

#[test]
fn parts_of_failed_snapshots_do_not_accumulate() {
    let server = TestPostgres::start();
    let (journal, epoch, mut head) = open(options(&server, "ledger"));
    server.sql(
        "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'there is no space'; END $$;
         CREATE TRIGGER no_space BEFORE INSERT ON bursar_snapshot FOR EACH ROW
         WHEN (NEW.chunk = 0) EXECUTE FUNCTION no_space()",
    );
    let parts = "SELECT count(*) FROM bursar_snapshot";
    for number in 1..4 {
        head = journal.append(epoch, head, sample(number)).expect("the server is up");
        let snapshot = Snapshot { head, state: vec![7; 2 << 20] };
        let refused = journal.put_snapshot(&snapshot).expect_err("its first part has no space");
        assert!(refused.to_string().contains("there is no space"), "{refused}");
        assert_eq!(server.sql(parts), "2", "the parts of the previous one are deleted");
    }
    server.sql("DROP TRIGGER no_space ON bursar_snapshot");
    head = journal.append(epoch, head, sample(4)).expect("the server is up");
    let snapshot = Snapshot { head, state: vec![8; 2 << 20] };
    journal.put_snapshot(&snapshot).expect("there is space");
    assert_eq!(server.sql(parts), "3");
    assert_eq!(journal.get_snapshot(snapshot.mark()), Ok(snapshot));
}

#[test]
fn missing_rows_and_tables_are_named_and_never_recreated() {
    let server = TestPostgres::start();
    let (journal, epoch, genesis) = open(options(&server, "ledger"));
    let head = journal.append(epoch, genesis, sample(1)).expect("the server is up");
    journal.append(epoch, head, sample(2)).expect("the server is up");
    drop(journal);
    let refusal = |change: &str, undo: &str| {
        server.sql(change);
        let refused = PostgresJournal::open(options(&server, "ledger")).map(|_| ());
        server.sql(undo);
        refused.expect_err(change).to_string()
    };
    let set_back = refusal(
        "CREATE TABLE kept AS TABLE bursar_head; UPDATE bursar_head SET sequence = 0",
        "UPDATE bursar_head SET sequence = kept.sequence FROM kept",
    );
    assert!(set_back.contains("ledger: its head is at batch 0, and batch 2 is"), "{set_back}");
    let headless = refusal("DELETE FROM bursar_head", "INSERT INTO bursar_head TABLE kept");
    assert!(headless.contains("ledger: its head is missing"), "{headless}");
    let unleased = refusal(
        "CREATE TABLE leases AS TABLE bursar_lease; DELETE FROM bursar_lease",
        "INSERT INTO bursar_lease TABLE leases",
    );
    assert!(unleased.contains("ledger: its lease is missing"), "{unleased}");
    let emptied = refusal(
        "CREATE TABLE batches AS TABLE bursar_batch; DELETE FROM bursar_batch",
        "INSERT INTO bursar_batch TABLE batches",
    );
    assert!(emptied.contains("ledger: batch 2 is missing"), "{emptied}");
    let renamed = refusal(
        "ALTER TABLE bursar_snapshot RENAME TO elsewhere",
        "ALTER TABLE elsewhere RENAME TO bursar_snapshot",
    );
    assert!(renamed.contains("bursar_snapshot: the table is missing"), "{renamed}");
    let (journal, ..) = open(options(&server, "ledger"));
    assert_eq!(read_all(&journal, genesis).len(), 2, "the checks lost nothing");
    drop(journal);
    let truncated = refusal("TRUNCATE bursar_journal CASCADE", "SELECT 1");
    assert!(truncated.contains("ledger: its journal is missing"), "{truncated}");
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
fn an_owner_whose_lease_was_taken_cannot_append() {
    let server = TestPostgres::start();
    let (zombie, old, genesis) = open(options(&server, "ledger"));
    let head = zombie.append(old, genesis, sample(1)).expect("it is the owner");
    server.sql("UPDATE bursar_lease SET until = now() - interval '1 s'");
    let successor = PostgresJournal::open(options(&server, "ledger")).expect("the server is up");
    let new = successor.acquire_lease("successor", Duration::from_secs(60)).expect("it expired");
    assert_eq!(zombie.append(old, head, sample(2)), Err(AppendError::Fenced { epoch: old }));
    successor.append(new.epoch, head, sample(2)).expect("it is the owner now");
}

#[test]
fn only_the_leader_takes_a_machine_whose_lease_has_not_run_out() {
    let server = TestPostgres::start();
    let ttl = Duration::from_secs(60);
    let open = || PostgresJournal::open(options(&server, "ledger")).expect("the server is up");
    let (first, second) = (open(), open());
    let epoch = first.acquire_lease("one", ttl).expect("it is free").epoch;
    let head = first.head().expect("it can be read");
    let head = first.append(epoch, head, sample(1)).expect("it is the owner");
    let held = |taken: Result<Lease, LeaseError>| matches!(taken, Err(LeaseError::Held { .. }));
    assert!(held(second.acquire_lease("two", ttl)));
    let leader = PostgresLeader::open(options(&server, "leader")).expect("the server is up");
    let Claim::Won { term } = claim(&leader, ("two", ""), ttl).expect("it answers") else {
        panic!("no server leads");
    };
    let taken = second.acquire_lease("two", ttl).expect("it leads");
    assert!(taken.epoch > epoch);
    let late = first.append(epoch, head, sample(2));
    assert!(matches!(late, Err(AppendError::Fenced { .. })), "{late:?}");
    assert!(held(first.acquire_lease("one", ttl)), "it does not lead");
    leader.release(term, ttl).expect("it answers");
    assert!(held(open().acquire_lease("two-after", ttl)), "nor does this one");
}

#[test]
fn a_lead_that_was_renewed_since_it_was_seen_is_not_taken_when_the_clock_of_the_database_is_set() {
    let server = TestPostgres::start();
    let ttl = Duration::from_secs(60);
    let leader = PostgresLeader::open(options(&server, "leader")).expect("the server is up");
    assert!(leader.look(ttl).expect("it answers").row.is_free);
    assert_eq!(claim(&leader, ("a", "http://a"), ttl), Ok(Claim::Won { term: 1 }));
    let seen = leader.look(ttl).expect("it answers").row;
    assert!(!seen.is_free);
    assert_eq!(leader.renew(1, ttl), Ok(true));
    server.sql("UPDATE bursar_store SET until = until - interval '100 s'");
    let held = Claim::Held { holder: "a".into(), url: "http://a".into() };
    assert_eq!(leader.claim(("b", "http://b"), ttl, &seen), Ok(held));
    assert_eq!(claim(&leader, ("b", "http://b"), ttl), Ok(Claim::Won { term: 2 }));
    leader.release(2, ttl).expect("it answers");
    assert!(leader.look(ttl).expect("it answers").row.is_free);
}
