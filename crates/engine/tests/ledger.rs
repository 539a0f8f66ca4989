//! A real ledger behind the engine: answers are durable, the journal is complete, and all readers
//! of the journal (replay, snapshot, history, auditor) compute the same balances.

use crate::traffic;

use crate::temp_dir;

use std::sync::Arc;

use bursar_audit::{LiveNumbers, SqliteSource, verify};
use bursar_core::ledger::command::Envelope;
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::{Ledger, invariant};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{
    Engine, EngineOptions, LedgerCodec, ManualClock, Snapshotter, replay, replay_from_genesis,
};
use bursar_history::query::AsOf;
use bursar_history::{History, Sqlite};
use bursar_journal::Journal;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use temp_dir::TempDir;
use traffic::{START, World};

/// Commands that make sense one after the other: those of a second world that runs in parallel.
fn ask(engine: &Engine<LedgerCodec>, clock: &ManualClock, world: &mut World, steps: u32) {
    let handle = engine.handle();
    for number in 0..steps {
        world.clock = world.clock.plus_millis(i64::from(world.below(600_000)));
        world.advance();
        clock.set(world.clock).expect("time moves on");
        let command = world.command();
        let envelope = Envelope {
            actor: "key_test".into(),
            fingerprint: u128::from(number) + 1,
            key: (number % 3 == 0).then_some(u128::from(number)),
            ..Envelope::default()
        };
        handle.execute(envelope, command.clone()).expect("the engine answers").value.ok();
        world.perform(&command);
    }
}

fn opened(path: &std::path::Path) -> Arc<dyn Journal> {
    Arc::new(
        SqliteJournal::open(path, SqliteOptions::default()).expect("no other process has it open"),
    )
}

#[test]
fn all_readers_of_the_journal_compute_the_same_balances() {
    let directory = TempDir::new();
    let path = directory.file("journal.db");
    let journal = opened(&path);
    let codec = Arc::new(LedgerCodec);
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(START)));
    let start = || {
        let clock = Arc::clone(&clock);
        Engine::start(Arc::clone(&journal), Arc::clone(&codec), clock, EngineOptions::default())
    };
    let engine = start();
    let mut world = World::new(40);
    let setup = World::new(40);
    for (number, decided) in (1000u128..).zip(&setup.decided) {
        let opened = decided.events().find_map(|event| match event {
            bursar_core::ledger::Event::AccountOpened { path, kind, settings, .. } => {
                Some(bursar_core::ledger::Command::OpenAccount {
                    path: path.clone(),
                    kind: *kind,
                    settings: settings.clone(),
                })
            }
            _ => None,
        });
        let Some(command) = opened else { continue };
        let envelope =
            Envelope { actor: "key_root".into(), fingerprint: number, ..Envelope::default() };
        let answer = engine.handle().execute(envelope, command).expect("the engine answers");
        assert!(answer.value.is_ok());
    }
    ask(&engine, &clock, &mut world, 250);
    let (digest, live) = engine
        .handle()
        .read(|ledger: &Ledger| {
            assert_eq!(invariant::check(ledger), Ok(()));
            (ledger.digest(), LiveNumbers::of(ledger))
        })
        .expect("a read")
        .value;
    let durable = engine.durable().head().expect("something is durable");

    let mut history =
        History::new(Sqlite::open(&directory.file("history.db")).expect("a new file"));
    assert_eq!(history.follow(&*journal, durable), Ok(durable));
    for (number, (path, available, held, _)) in (0..).zip(&live.accounts) {
        assert_eq!(history.account_number(path), Ok(Some(number)));
        let now = history.balance_as_of(number, Timestamp::MAX).expect("a balance");
        assert_eq!(now, AsOf { available: *available, held: *held });
    }

    let source = SqliteSource::open(&path).expect("beside the writer");
    let report = verify(&source, Some(&live), |_| {});
    assert!(report.holds() && report.compared, "{report}");
    assert_eq!(report.records, durable.position);

    let mut snapshots =
        Snapshotter::new(Arc::clone(&journal), Arc::clone(&codec), 1).expect("a snapshotter");
    snapshots.put().expect("a snapshot");
    engine.stop();
    let slow = replay_from_genesis(&*journal, &*codec).expect("a whole journal");
    let fast = replay(&*journal, &*codec).expect("a good snapshot");
    assert!(fast.snapshot > 0 && fast.skipped.is_empty(), "{:?}", fast.skipped);
    assert_eq!((slow.machine.digest(), fast.machine.digest()), (digest, digest));

    // A restarted engine continues with the same state.
    let engine = start();
    ask(&engine, &clock, &mut world, 50);
    let available = engine
        .handle()
        .read(|ledger: &Ledger| ledger.account(AccountNo(0)).available)
        .expect("a read")
        .value;
    assert!(available >= 0);
    let durable = engine.durable().head().expect("something is durable");
    assert_eq!(history.follow(&*journal, durable), Ok(durable));
    let now = history.balance_as_of(0, Timestamp::MAX).expect("a balance");
    assert_eq!(now.available, available);
    engine.stop();
}
