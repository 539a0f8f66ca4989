//! Queries that wait for the follower, and how many run.

use bursar_core::ledger::Envelope;
use bursar_core::ledger::command::{AccountKind, AccountSettings, Command};
use bursar_engine::{Engine, EngineOptions, Handle, LedgerCodec, WallClock};
use bursar_history::query::AuditFilter;
use bursar_journal::JournalId;
use bursar_journal::memory::MemoryJournal;

use super::*;

/// A ledger with a history whose pause is given.
struct World {
    engine: Engine<LedgerCodec>,
    history: HistoryService,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(pace: Duration) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(JournalId([7; 16])));
        let options = EngineOptions::default();
        let (codec, clock) = (Arc::new(LedgerCodec), Arc::new(WallClock::new()));
        let engine = Engine::start(Arc::clone(&journal), codec, clock, options);
        let journals = (Arc::clone(&journal), journal);
        let path = folder.path().join("history.db");
        let history = HistoryService::paced(journals, engine.durable(), &path, pace);
        World { engine, history: history.expect("a new file"), _folder: folder }
    }

    /// Opens an account and returns its position.
    fn open(&self, number: u32) -> u64 {
        let handle: Handle<_> = self.engine.handle();
        let (path, kind) = (format!("org-{number}").into(), AccountKind::Org);
        let command = Command::OpenAccount { path, kind, settings: AccountSettings::default() };
        let seen = handle.execute(Envelope::default(), command).expect("the engine runs");
        seen.value.expect("a new account");
        seen.position
    }

    /// The number of records at a position, queried by waiting for it.
    async fn decided_at(&self, position: u64) -> usize {
        let filter = AuditFilter::Position(position);
        let asked = self.history.ask(position, move |history| history.audit(filter, None, 9));
        asked.await.expect("history is fed").0.data.len()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_query_that_waits_for_a_position_ends_the_pause() {
    let world = World::new(HOUR);
    for number in 0..5 {
        // From the second round on the thread pauses for longer than the query's timeout.
        let position = world.open(number);
        assert_eq!(world.decided_at(position).await, 1);
    }
}

/// Queries that do not end. The others wait without a thread, and the thread pool is free.
#[tokio::test]
async fn so_many_queries_run_at_once_and_the_others_take_no_thread() {
    let world = World::new(Duration::from_millis(1));
    let begun = Arc::<AtomicUsize>::default();
    let end = Arc::new(std::sync::Barrier::new(MAX_QUERIES / 4 + 1));
    let query = |number: usize| {
        let (begun, end) = (Arc::clone(&begun), Arc::clone(&end));
        world.history.ask(0, move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            if number < MAX_QUERIES / 4 {
                end.wait();
            }
            Ok(())
        })
    };
    // All are of one sender: the server itself.
    let queries = futures_util::future::join_all((0..50).map(query));
    let checked = async {
        while begun.load(Ordering::SeqCst) < MAX_QUERIES / 4 {
            tokio::task::yield_now().await;
        }
        let other = tokio::task::spawn_blocking(|| ()).await;
        let ran = begun.load(Ordering::SeqCst);
        let release = Arc::clone(&end);
        tokio::task::spawn_blocking(move || release.wait()).await.expect("all wait for it");
        (other.is_ok(), ran)
    };
    let (answers, (is_free, ran)) = tokio::join!(queries, checked);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!((is_free, ran), (true, MAX_QUERIES / 4));
}

#[tokio::test]
async fn a_burst_is_taken_in_for_the_first_query() {
    let world = World::new(HOUR);
    let first = world.open(0);
    world.decided_at(first).await;
    let last = (1..400).fold(first, |_, number| world.open(number));
    assert_eq!(world.decided_at(last).await, 1);
    assert_eq!(world.history.position(), last);
}

#[tokio::test]
async fn history_catches_up_without_a_query() {
    let world = World::new(Duration::from_millis(1));
    let last = (0..50).fold(0, |_, number| world.open(number));
    let mut fed = world.history.fed.clone();
    fed.wait_for(|fed| *fed >= last).await.expect("history is fed");
}
