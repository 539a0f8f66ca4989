//! The manifest of a database, and the errors for a database that does not match it.

use crate::support;

use std::time::Duration;

use bursar_journal::postgres::{PostgresJournal, PostgresLeader, PostgresOptions, PostgresStore};
use bursar_journal::{Head, Journal, JournalError, Lease};
use support::postgres::TestPostgres;
use support::{read_all, sample};

fn options(server: &TestPostgres, machine: &str) -> PostgresOptions {
    let mut options = PostgresOptions::new(server.url(), machine);
    options.unsafe_single = true;
    options
}

/// A journal with this many batches. Its lease was released, or is still held.
fn fill(server: &TestPostgres, machine: &str, batches: u64, in_order: bool) -> Head {
    let journal = PostgresJournal::open(options(server, machine)).expect("the server is up");
    let lease = journal.acquire_lease("test", Duration::from_secs(60)).expect("it is free");
    let mut head = journal.head().expect("the server is up");
    for number in 1..=batches {
        head = journal.append(lease.epoch, head, sample(number)).expect("the server is up");
    }
    if in_order {
        journal.release_lease(&lease).expect("the test owns it");
    }
    head
}

/// A fingerprint of everything that is stored.
fn content(server: &TestPostgres) -> String {
    let tables = server.sql(
        "SELECT string_agg(relname::text, ' ' ORDER BY relname) FROM pg_class
         WHERE relname LIKE 'bursar_%' AND relkind = 'r'",
    );
    let rows = |table: &str| {
        let sql =
            format!("SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} AS t");
        format!("{table} {}", server.sql(&sql))
    };
    tables.split_whitespace().map(rows).collect::<Vec<_>>().join("\n")
}

/// The errors of every kind of start. None of them writes anything.
#[track_caller]
fn refusals(server: &TestPostgres) -> [String; 3] {
    let before = content(server);
    let leader = PostgresLeader::open(options(server, "leader")).map(drop);
    let store = PostgresStore::open(options(server, "store")).map(drop);
    let journal = PostgresJournal::open(options(server, "ledger-0")).map(drop);
    assert_eq!(content(server), before, "something was written");
    [leader, store, journal].map(|outcome| match outcome {
        Ok(()) => String::new(),
        Err(JournalError::Refused(reason)) => reason,
        Err(other) => panic!("the error is retryable: {other}"),
    })
}

/// Makes a change, checks the errors, and reverts it.
#[track_caller]
fn check(server: &TestPostgres, change: &str, words: &str, undo: &str) {
    server.sql(change);
    for said in refusals(server) {
        assert!(said.contains(words), "{change}: {said}");
        assert!(said.contains("admin restore BACKUP --store"), "{said}");
    }
    server.sql(undo);
    assert_eq!(refusals(server), [""; 3], "{undo}");
}

#[test]
fn a_changed_journal_is_refused_by_name_and_nothing_is_written() {
    let server = TestPostgres::start();
    let head = fill(&server, "ledger-0", 5, true);
    fill(&server, "directory", 2, false);
    assert_eq!(server.sql("SELECT sequence FROM bursar_machine WHERE machine = 'ledger-0'"), "5");
    assert_eq!(refusals(&server), [""; 3]);
    server
        .sql("CREATE TABLE batches AS TABLE bursar_batch; CREATE TABLE heads AS TABLE bursar_head");
    let back = "DELETE FROM bursar_batch; INSERT INTO bursar_batch TABLE batches;
                DELETE FROM bursar_head; INSERT INTO bursar_head TABLE heads";

    // Truncated consistently: without the manifest this would be a valid journal.
    let cut = "DELETE FROM bursar_batch WHERE machine = 'ledger-0' AND sequence > 3;
        UPDATE bursar_head AS head SET sequence = 3, hash = last.hash,
          position = last.first_position + last.records - 1
        FROM bursar_batch AS last
        WHERE head.machine = 'ledger-0' AND last.machine = 'ledger-0' AND last.sequence = 3";
    check(&server, cut, "ledger-0: it ends with batch 3, and batch 5 was stored", back);
    let emptied = "DELETE FROM bursar_batch WHERE machine = 'ledger-0'";
    check(&server, emptied, "ledger-0: batch 5 is missing", back);
    let headless = "DELETE FROM bursar_batch WHERE machine = 'ledger-0' AND sequence = 1";
    check(&server, headless, "ledger-0: batch 1 is missing", back);
    let rewritten = "UPDATE bursar_batch SET hash = sha256(hash) WHERE machine = 'ledger-0'";
    check(&server, rewritten, "ledger-0: batch 5 is not the one", back);
    let foreign = "UPDATE bursar_journal SET journal = substr(sha256(journal), 1, 16)
        WHERE machine = 'ledger-0'";
    let keep = "CREATE TABLE ids AS TABLE bursar_journal";
    server.sql(keep);
    let own = "UPDATE bursar_journal SET journal = ids.journal FROM ids
        WHERE ids.machine = bursar_journal.machine";
    check(&server, foreign, "belongs here", own);
    let of_another = "CREATE TABLE known AS TABLE bursar_machine;
        UPDATE bursar_machine SET store = sha256(store) WHERE machine = 'ledger-0'";
    let of_this = "DELETE FROM bursar_machine; INSERT INTO bursar_machine TABLE known";
    check(&server, of_another, "ledger-0: it is of store", of_this);

    let journal = PostgresJournal::open(options(&server, "ledger-0")).expect("it is whole");
    assert_eq!(journal.head(), Ok(head));
    assert_eq!(read_all(&journal, Head::genesis(journal.id())).len(), 5);
}

#[test]
fn every_machine_is_checked_before_any_is_used() {
    let server = TestPostgres::start();
    for machine in ["ledger-0", "directory", "cell-default"] {
        fill(&server, machine, 2, true);
    }
    server.sql("CREATE TABLE kept AS TABLE bursar_journal");
    let said = |change: &str, undo: &str| {
        server.sql(change);
        let [leader, store, _] = refusals(&server);
        assert_eq!(leader, store);
        server.sql(undo);
        leader
    };
    let gone = said(
        "ALTER TABLE bursar_batch DROP CONSTRAINT bursar_batch_machine_fkey;
         ALTER TABLE bursar_head DROP CONSTRAINT bursar_head_machine_fkey;
         ALTER TABLE bursar_lease DROP CONSTRAINT bursar_lease_machine_fkey;
         DELETE FROM bursar_journal WHERE machine = 'cell-default'",
        "INSERT INTO bursar_journal SELECT * FROM kept WHERE machine = 'cell-default'",
    );
    assert!(gone.contains("cell-default: its journal is missing"), "{gone}");
    let foreign = said(
        "INSERT INTO bursar_journal VALUES ('cell-mars', substr(sha256('mars'), 1, 16))",
        "DELETE FROM bursar_journal WHERE machine = 'cell-mars'",
    );
    assert!(foreign.contains("cell-mars: it is not of this store"), "{foreign}");
    let unlisted = said(
        "CREATE TABLE known AS TABLE bursar_machine; DELETE FROM bursar_machine",
        "INSERT INTO bursar_machine TABLE known",
    );
    assert!(unlisted.contains("cell-default: it is not of this store"), "{unlisted}");
    let all = said(
        "DELETE FROM bursar_machine; DELETE FROM bursar_journal",
        "INSERT INTO bursar_machine TABLE known; INSERT INTO bursar_journal TABLE kept",
    );
    assert!(all.contains("3 journals were created in this database and 0 are left"), "{all}");
    let nameless = said(
        "ALTER TABLE bursar_schema RENAME TO elsewhere",
        "ALTER TABLE elsewhere RENAME TO bursar_schema",
    );
    assert!(nameless.contains("bursar_schema"), "{nameless}");
    let newer = said("UPDATE bursar_store SET format = 2", "UPDATE bursar_store SET format = 1");
    assert!(newer.contains("Use a newer build"), "{newer}");
    assert_eq!(refusals(&server), [""; 3]);
}

#[test]
fn the_manifest_advances_with_every_renewal() {
    let server = TestPostgres::start();
    let journal = PostgresJournal::open(options(&server, "ledger-0")).expect("the server is up");
    let lease = journal.acquire_lease("test", Duration::from_secs(60)).expect("it is free");
    let known = "SELECT sequence, position, encode(hash, 'hex') FROM bursar_machine";
    let mut head = journal.head().expect("the server is up");
    for number in 1..4 {
        head = journal.append(lease.epoch, head, sample(number)).expect("the server is up");
        journal.renew_lease(&lease).expect("it is ours");
        let Head { sequence, position, hash } = head;
        assert_eq!(server.sql(known), format!("{sequence}|{position}|{hash}"));
    }
    // A journal without the lease records nothing, and the manifest never goes back.
    server.sql("UPDATE bursar_head SET sequence = 1");
    let lost = Lease { epoch: bursar_journal::Epoch(99), ..lease.clone() };
    assert!(journal.renew_lease(&lost).is_err());
    journal.renew_lease(&lease).expect("it is ours");
    assert!(server.sql(known).starts_with("3|"));
}

/// Tables that earlier builds did not have.
const LATER_TABLES: &str = "bursar_archive, bursar_archive_block, bursar_archive_run, \
     bursar_archive_page, bursar_archive_filter, bursar_sealing, bursar_segment, \
     bursar_segment_part, bursar_segment_place, bursar_member";

#[test]
fn a_store_of_an_earlier_build_is_adopted_if_it_is_whole() {
    let server = TestPostgres::start();
    fill(&server, "ledger-0", 3, true);
    server.sql(&format!("DROP TABLE {LATER_TABLES}"));
    let earlier = "DROP TABLE bursar_machine;
        ALTER TABLE bursar_store DROP COLUMN store, DROP COLUMN format,
          DROP COLUMN incarnation_base, DROP COLUMN clean, DROP COLUMN signer,
          DROP COLUMN earlier_signers, DROP COLUMN loss, DROP COLUMN losses_accepted,
          DROP COLUMN lease_ms, DROP COLUMN form;
        DELETE FROM bursar_schema WHERE version >= 3";
    server.sql(earlier);
    server.sql("CREATE TABLE batches AS TABLE bursar_batch; DELETE FROM bursar_batch");
    let before = content(&server);
    let refused = PostgresLeader::open(options(&server, "leader")).map(drop);
    let reason = refused.expect_err("it is not whole").to_string();
    assert!(reason.contains("ledger-0: batch 3 is missing"), "{reason}");
    assert_eq!(content(&server), before, "something was written");
    server.sql("INSERT INTO bursar_batch TABLE batches");
    // Readers leave it unchanged.
    let store = PostgresStore::open(options(&server, "store")).expect("it is whole");
    assert!(!store.was_clean());
    assert_eq!(store.signer(), None);
    PostgresJournal::open_to_read(options(&server, "ledger-0")).expect("it is whole");
    assert_eq!(server.sql("SELECT max(version) FROM bursar_schema"), "2");

    PostgresLeader::open(options(&server, "leader")).expect("it is whole");
    assert_eq!(server.sql("SELECT machine, sequence FROM bursar_machine"), "ledger-0|3");
    assert_eq!(server.sql("SELECT length(store), format FROM bursar_store"), "16|1");
}

#[test]
fn a_manifest_without_a_signing_key_is_read_and_kept() {
    let server = TestPostgres::start();
    fill(&server, "ledger-0", 3, true);
    server.sql(&format!("DROP TABLE {LATER_TABLES}"));
    server.sql(
        "ALTER TABLE bursar_store DROP COLUMN signer, DROP COLUMN earlier_signers,
           DROP COLUMN loss, DROP COLUMN losses_accepted,
          DROP COLUMN lease_ms, DROP COLUMN form;
         DELETE FROM bursar_schema WHERE version >= 4;
         UPDATE bursar_store SET incarnation_base = 9",
    );
    let target = options(&server, "store");
    assert_eq!(PostgresStore::signer_at(&target).expect("the server is up"), None);
    let store = PostgresStore::open(target.clone()).expect("it is whole");
    assert_eq!((store.incarnation_base(), store.signer()), (9, None));
    // Readers still check its journals.
    server.sql("CREATE TABLE batches AS TABLE bursar_batch; DELETE FROM bursar_batch");
    assert!(PostgresStore::open(target.clone()).is_err());
    assert!(PostgresJournal::open_to_read(options(&server, "ledger-0")).is_err());
    server.sql("INSERT INTO bursar_batch TABLE batches");

    PostgresLeader::open(options(&server, "leader")).expect("it is whole");
    let store = PostgresStore::open(target.clone()).expect("it is whole");
    assert_eq!((store.incarnation_base(), store.signer()), (9, None));
    let key = "ab".repeat(32);
    store.note_signer("another", &key).expect("the server is up");
    let noted = PostgresStore::signer_at(&target).expect("the server is up");
    assert_eq!(noted, None, "only the leader stores it");
    server.sql("UPDATE bursar_store SET holder = 'leader'");
    store.note_signer("leader", &key).expect("the server is up");
    assert_eq!(PostgresStore::signer_at(&target).expect("the server is up"), Some(key.clone()));
    let newer = "cd".repeat(32);
    for _ in 0..2 {
        store.note_signer("leader", &newer).expect("the server is up");
        let signers = PostgresStore::signers_at(&target).expect("the server is up");
        assert_eq!(signers, [newer.clone(), key.clone()], "the earlier one signed segments");
    }
}

#[test]
fn readers_create_nothing() {
    let server = TestPostgres::start();
    for refused in [
        PostgresStore::open(options(&server, "store")).map(drop),
        PostgresJournal::open_to_read(options(&server, "ledger-0")).map(drop),
    ] {
        let reason = refused.expect_err("there is nothing").to_string();
        assert!(reason.contains("there is no store in this database"), "{reason}");
    }
    assert_eq!(content(&server), "");
    fill(&server, "ledger-0", 1, true);
    let before = content(&server);
    let missing = PostgresJournal::open_to_read(options(&server, "cell-mars")).map(drop);
    assert!(missing.expect_err("there is none").to_string().contains("cell-mars"));
    assert_eq!(content(&server), before);
}

#[test]
fn journals_are_restored_into_an_empty_database_or_not_at_all() {
    let server = TestPostgres::start();
    fill(&server, "ledger-0", 200, true);
    fill(&server, "directory", 3, false);
    fill(&server, "cell-default", 0, true);
    let machines = ["ledger-0", "directory", "cell-default"];
    let read = |url: &str, machine: &str| {
        let options = PostgresOptions { url: url.to_owned(), ..options(&server, machine) };
        PostgresJournal::open_to_read(options)
    };
    let journals = machines.map(|machine| read(&server.url(), machine).expect("it is whole"));
    let pairs: Vec<(&str, &dyn Journal)> =
        machines.iter().zip(&journals).map(|(name, journal)| (*name, journal as _)).collect();
    let before = content(&server);
    let refused = PostgresStore::restore(&options(&server, "store"), &pairs, 7, None);
    let reason = refused.expect_err("it is not empty").to_string();
    assert!(reason.contains("the database bursar is not empty"), "{reason}");
    assert_eq!(content(&server), before);

    let url = server.database("restored");
    server.sql_in("restored", "CREATE TABLE public.notes (text text)");
    let mut target = PostgresOptions { url: url.clone(), ..options(&server, "store") };
    let refused = PostgresStore::restore(&target, &pairs, 7, None);
    assert!(refused.expect_err("it is not empty").to_string().contains("the table notes"));
    server.sql_in("restored", "DROP TABLE public.notes");
    // The same machine twice fails half way. Then nothing is left.
    let twice = [&pairs[..], &pairs[..1]].concat();
    PostgresStore::restore(&target, &twice, 7, None).expect_err("one machine has one journal");
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'bursar_%'";
    assert_eq!(server.sql_in("restored", tables), "0");
    target.unsafe_single = false;
    let refused =
        PostgresStore::restore(&target, &pairs, 7, None).expect_err("there is no standby");
    assert!(refused.to_string().contains("--unsafe-single-postgres"), "{refused}");
    target.unsafe_single = true;
    let signer = "ab".repeat(32);
    PostgresStore::restore(&target, &pairs, 7, Some(&signer)).expect("it is empty");

    let store = PostgresStore::open(target.clone()).expect("it is whole");
    assert_eq!((store.incarnation_base(), store.was_clean()), (7, true));
    assert_eq!(store.signer(), Some(signer.as_str()));
    for (machine, journal) in &pairs {
        let copy = read(&url, machine).expect("it was restored");
        let genesis = Head::genesis(journal.id());
        assert_eq!(copy.id(), journal.id());
        assert_eq!(read_all(&copy, genesis), read_all(*journal, genesis));
        assert_eq!(copy.head(), journal.head());
    }
    // Its next epoch is after every epoch that wrote to it.
    let options = PostgresOptions { machine: "ledger-0".into(), ..target };
    let ledger = PostgresJournal::open(options).expect("it is whole");
    let lease = ledger.acquire_lease("next", Duration::from_secs(60)).expect("it is free");
    let head = ledger.head().expect("the server is up");
    let last = read_all(&ledger, Head::genesis(ledger.id())).pop().expect("it has batches");
    assert!(lease.epoch > last.epoch);
    ledger.append(lease.epoch, head, sample(201)).expect("it is the owner");
}
