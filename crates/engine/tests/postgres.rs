//! Two servers on one PostgreSQL: one owns the machine, the other takes over.

#[path = "../../journal/tests/support/mod.rs"]
mod journal_support;
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_engine::{Engine, EngineError, EngineOptions, Status, replay_from_genesis};
use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use journal_support::postgres::TestPostgres;
use support::till::{Command, Till, TillCodec};
use support::{manual_clock, options, wait_until};

fn journal(server: &TestPostgres) -> Arc<PostgresJournal> {
    let mut options = PostgresOptions::new(server.url(), "till");
    options.unsafe_single = true;
    Arc::new(PostgresJournal::open(options).expect("the server is up"))
}

fn engine(server: &TestPostgres, holder: &str) -> Engine<TillCodec> {
    Engine::start(journal(server), Arc::new(TillCodec), manual_clock(), options(holder))
}

fn replayed(server: &TestPostgres) -> Till {
    let replayed = replay_from_genesis(&*journal(server), &TillCodec);
    replayed.expect("the journal is whole").machine
}

#[test]
fn the_second_server_waits_and_takes_over_when_the_first_stops() {
    let server = TestPostgres::start();
    let first = engine(&server, "first");
    first
        .handle()
        .execute((), Command::Add { id: 1, amount: 1 })
        .expect("it owns the machine")
        .value
        .expect("accepted");
    let second = engine(&server, "second");
    wait_until("the second waits", || matches!(second.status(), Status::Waiting(_)));
    let refused = second.handle().read(|till: &Till| till.total);
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "{refused:?}");
    first.stop();
    wait_until("the second serves", || second.status() == Status::Serving);
    let total = second.handle().read(|till: &Till| till.total).expect("it owns the machine").value;
    assert_eq!(total, 1);
}

#[test]
fn a_deposed_server_under_load_acknowledges_only_durable_commands() {
    let server = TestPostgres::start();
    let (first, second) = (engine(&server, "first"), engine(&server, "second"));
    wait_until("one of them serves", || {
        first.status() == Status::Serving || second.status() == Status::Serving
    });
    let next = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    let (acknowledge, acknowledged) = channel();
    let clients = [&first, &second, &first, &second];
    std::thread::scope(|scope| {
        for client in clients {
            let (acknowledge, next, done) = (acknowledge.clone(), &next, &done);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let id = next.fetch_add(1, Ordering::SeqCst);
                    if client.handle().execute((), Command::Add { id, amount: 1 }).is_ok() {
                        acknowledge.send(id).expect("the test listens");
                    }
                }
            });
        }
        drop(acknowledge);
        let mut count = 0;
        let seen: BTreeSet<u64> = acknowledged
            .into_iter()
            .inspect(|_| {
                count += 1;
                match count {
                    // The lease expires without notice to its owner, as after a pause or a
                    // partition.
                    100 | 300 | 500 => {
                        server.sql("UPDATE bursar_lease SET until = now() - interval '1 s'");
                    }
                    // Every connection breaks.
                    200 | 400 => {
                        server.sql(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
                        );
                    }
                    700 => done.store(true, Ordering::SeqCst),
                    _ => {}
                }
            })
            .collect();
        let till = replayed(&server);
        assert_eq!(till.applied_more_than_once(), [0; 0]);
        for id in &seen {
            assert!(till.applied.contains_key(id), "command {id} was acknowledged and is lost");
        }
    });
    // The server that can still write is the owner. Its state is the journal's.
    let mut owner = None;
    wait_until("one owns the machine", || {
        let last = next.fetch_add(1, Ordering::SeqCst);
        owner = [&first, &second].into_iter().find(|engine| {
            engine.handle().execute((), Command::Add { id: last, amount: 1 }).is_ok()
        });
        owner.is_some()
    });
    let live = owner.expect("just found").handle().read(|till: &Till| till.digest());
    assert_eq!(live.expect("it serves").value, replayed(&server).digest());
}

#[test]
fn an_owner_steps_down_without_a_synchronous_standby_and_serves_again_with_one() {
    let primary = TestPostgres::start();
    let _standby = primary.standby("second");
    let configure = |names: &str| {
        primary.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        primary.sql("SELECT pg_reload_conf()");
        primary.wait_for("SHOW synchronous_standby_names", names);
    };
    configure("second");
    primary.wait_for("SELECT sync_state FROM pg_stat_replication", "sync");
    let journal = PostgresJournal::open(PostgresOptions::new(primary.url(), "till"));
    let journal = Arc::new(journal.expect("it has a standby"));
    let options = EngineOptions { lease_ttl: Duration::from_secs(3), ..options("owner") };
    let engine = Engine::start(journal, Arc::new(TillCodec), manual_clock(), options);
    wait_until("it serves", || engine.status() == Status::Serving);
    configure("");
    let says = |words: &str| matches!(engine.status(), Status::Waiting(why) if why.contains(words));
    wait_until("the status names the reason", || says("no synchronous standby"));
    let refused = engine.handle().execute((), Command::Add { id: 1, amount: 1 });
    assert!(matches!(refused, Err(EngineError::Unavailable(_))), "{refused:?}");
    configure("second");
    wait_until("it serves again", || engine.status() == Status::Serving);
    let added = engine.handle().execute((), Command::Add { id: 1, amount: 1 });
    added.expect("it owns the machine").value.expect("accepted");
}
