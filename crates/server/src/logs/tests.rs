//! Tests of the log store.

use std::task::{Context, Poll};
use std::time::Duration;

use super::*;

fn store(limits: LogLimits) -> (tempfile::TempDir, LogStore) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = LogStore::start(folder.path().join("logs"), limits).expect("a thread");
    (folder, store)
}

fn output(attempt: &str, rank: u32, node: &str) -> Output {
    let node = NodeTag::of("eu", &NodeKey::from(node));
    Output { attempt: attempt.to_owned(), rank, node, tenant: TenantTag::of("acme") }
}

async fn append(store: &LogStore, offset: u64, data: &[u8]) -> u64 {
    let appended = store.append(output("att_1", 0, "n1"), offset, data.to_vec());
    appended.await.expect("written")
}

async fn message(store: &LogStore, attempt: &str, tenant: &str) -> Option<String> {
    let found = store.messages(vec![attempt.to_owned()], TenantTag::of(tenant)).await;
    found.into_iter().next().flatten()
}

/// A pipe in place of a file is a disk that does not answer until something is written to it.
#[tokio::test]
async fn a_disk_that_does_not_answer_holds_up_no_thread_of_handlers() {
    let (folder, store) = store(LogLimits::default());
    let tenant = TenantTag::of("acme");
    let pipe = folder.path().join("logs").join(Files::message_of("att_1", tenant).expect("a name"));
    std::fs::create_dir_all(folder.path().join("logs")).expect("made");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let (went_on, others) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        // Only to fail instead of hanging.
        let in_time = others.recv_timeout(Duration::from_secs(20)).is_ok();
        std::fs::write(pipe, if in_time { "in time" } else { "too late" })
    });
    let mut reading = Box::pin(store.messages(vec!["att_1".to_owned()], tenant));
    let look = |context: &mut Context<'_>| Poll::Ready(reading.as_mut().poll(context));
    let first = std::future::poll_fn(look).await;
    let _gone = went_on.send(());
    let read = match first {
        Poll::Ready(read) => read,
        Poll::Pending => reading.await,
    };
    assert_eq!(read, [Some("in time".to_owned())]);
    writer.join().expect("it ends").expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_readings_as_there_are_places_happen_at_once_and_others_wait() {
    let (_folder, store) = store(LogLimits::default());
    let store = Arc::new(store);
    let (entered, inside) = std::sync::mpsc::channel();
    let gate = Arc::new(std::sync::RwLock::new(()));
    let closed = gate.write().expect("no holder panics");
    let all: Vec<_> = (0..2 * MAX_READINGS)
        .map(|_| {
            let (entered, gate) = (entered.clone(), Arc::clone(&gate));
            let read = move |_: &Files| {
                entered.send(()).expect("the test listens");
                drop(gate.read());
            };
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.reading(read).await })
        })
        .collect();
    for _ in 0..MAX_READINGS {
        inside.recv().expect("one begins");
    }
    assert_eq!(store.readings.available_permits(), 0);
    assert!(inside.try_recv().is_err(), "the others wait");
    drop(closed);
    for reading in all {
        reading.await.expect("no panic").expect("read");
    }
    assert_eq!(inside.try_iter().count(), MAX_READINGS);
}

#[tokio::test]
async fn a_repeated_piece_is_stored_once_and_a_gap_is_requested() {
    let (_folder, store) = store(LogLimits::default());
    assert_eq!(append(&store, 0, b"hello ").await, 6);
    assert_eq!(append(&store, 0, b"hello ").await, 6);
    assert_eq!(append(&store, 3, b"lo world").await, 11);
    assert_eq!(append(&store, 20, b"later").await, 11);
    let own = output("att_1", 0, "n1");
    assert_eq!(store.read(&own, 0).await.expect("read"), b"hello world");
    assert_eq!(store.read(&own, 6).await.expect("read"), b"world");
    assert_eq!(store.read(&output("att_2", 0, "n1"), 0).await.expect("read"), b"");
}

#[tokio::test]
async fn each_node_of_a_gang_has_its_own_output() {
    let (_folder, store) = store(LogLimits::default());
    for (rank, said) in [(1, "one"), (0, "zero"), (12, "twelve")] {
        let own = output("att_1", rank, &format!("n{rank}"));
        store.append(own, 0, said.as_bytes().to_vec()).await.expect("written");
    }
    for (rank, said) in [(0, "zero"), (1, "one"), (12, "twelve"), (2, "")] {
        let own = output("att_1", rank, &format!("n{rank}"));
        assert_eq!(store.read(&own, 0).await.expect("read"), said.as_bytes());
    }
}

#[tokio::test]
async fn output_beyond_the_limit_is_accepted_and_dropped() {
    let limits = LogLimits { attempt_bytes: 100, ..LogLimits::default() };
    let (_folder, store) = store(limits);
    assert_eq!(append(&store, 0, &[b'x'; 105]).await, 105);
    assert_eq!(append(&store, 105, b"more").await, 109);
    assert_eq!(store.read(&output("att_1", 0, "n1"), 0).await.expect("read").len(), 100);
}

#[tokio::test]
async fn a_node_that_sends_too_fast_waits_and_others_do_not() {
    let limits = LogLimits { node_rate: 1, node_burst: 1000, ..LogLimits::default() };
    let (_folder, store) = store(limits);
    assert_eq!(append(&store, 0, &[b'x'; 1000]).await, 1000);
    let own = output("att_1", 0, "n1");
    let refused = store.append(own.clone(), 1000, vec![b'x'; 900]).await;
    assert!(matches!(refused, Err(LogError::TooFast(1..))), "{refused:?}");
    assert_eq!(store.read(&own, 1000).await.expect("read"), b"", "nothing of it was kept");
    let other = store.append(output("att_2", 0, "n2"), 0, vec![b'x'; 900]).await;
    assert_eq!(other.expect("another node"), 900);
}

#[tokio::test]
async fn only_an_attempt_names_a_file_and_the_first_message_is_kept() {
    let (folder, store) = store(LogLimits::default());
    for wrong in ["../att_1", "att_/x", "", "job_1", "att_1.0"] {
        let refused = store.append(output(wrong, 0, "n1"), 0, b"x".to_vec()).await;
        assert!(refused.is_err(), "{wrong}");
    }
    assert!(!folder.path().join("logs").exists(), "nothing was made for them");
    let node = NodeTag::of("eu", &NodeKey::from("n1"));
    let long = "é".repeat(MAX_MESSAGE_BYTES);
    for (attempt, text) in
        [("att_1", "out of memory"), ("att_1", "another word"), ("att_2", long.as_str())]
    {
        store.note(node, TenantTag::of("acme"), attempt, text).expect("queued");
    }
    // The writer keeps the order, so earlier work is done after this.
    append(&store, 0, b"x").await;
    assert_eq!(message(&store, "att_1", "acme").await.as_deref(), Some("out of memory"));
    let kept = message(&store, "att_2", "acme").await;
    assert_eq!(kept.map(|text| text.len()), Some(MAX_MESSAGE_BYTES));
    assert_eq!(message(&store, "att_1", "umbra").await, None);
}

#[tokio::test]
async fn without_room_output_is_refused_and_the_reason_is_stored_until_there_is_room() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let free = Arc::new(AtomicU64::new(2 << 30));
    let said = Arc::clone(&free);
    let look: FreeSpace = Box::new(move |_| Ok(said.load(Ordering::SeqCst)));
    let store = LogStore::start_on(folder.path().join("logs"), LogLimits::default(), look);
    let store = store.expect("a thread");
    let own = output("att_1", 0, "n1");
    assert_eq!(append(&store, 0, b"before ").await, 7);
    free.store(1 << 20, Ordering::SeqCst);
    for _ in 0..3 {
        let refused = store.append(own.clone(), 7, b"after".to_vec()).await;
        assert!(matches!(refused, Err(LogError::NoRoom)), "{refused:?}");
    }
    let status = store.status();
    assert_eq!((status.refused, status.no_room), (3, true));
    assert!(store.cut(&own).await.is_some_and(|note| note.contains("too little room")));
    // What is there already can be asked for, and what an agent says of an end is dropped.
    assert_eq!(append(&store, 0, b"").await, 7);
    let tenant = TenantTag::of("acme");
    store.note(own.node, tenant, "att_1", "out of memory").expect("queued");
    append(&store, 0, b"").await;
    free.store(2 << 30, Ordering::SeqCst);
    assert_eq!(append(&store, 7, b"after").await, 12);
    assert_eq!(store.read(&own, 0).await.expect("read"), b"before after");
    assert_eq!(store.cut(&own).await, None);
    let status = store.status();
    assert_eq!((status.bytes, status.files, status.no_room), (12, 1, false));
}

#[tokio::test]
async fn the_total_is_bounded_and_files_of_the_largest_tenant_are_removed_first() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let limits = LogLimits { total_bytes: 10_000, ..LogLimits::default() };
    let of = |tenant: &str, number: usize| Output {
        tenant: TenantTag::of(tenant),
        ..output(&format!("att_{tenant}{number:03}"), 0, &format!("n{number}"))
    };
    for start in 0..3 {
        // A restart counts the existing files.
        let store = LogStore::start(folder.path().join("logs"), limits).expect("a thread");
        if start == 0 {
            store.append(of("small", 0), 0, vec![b'x'; 900]).await.expect("written");
            let node = of("small", 0).node;
            let tenant = TenantTag::of("small");
            store.note(node, tenant, "att_small000", "out of memory").expect("queued");
        }
        for number in 0..50 {
            let own = of("large", 100 * start + number);
            store.append(own.clone(), 0, vec![b'x'; 500]).await.expect("written");
            store.note(own.node, own.tenant, &own.attempt, "killed").expect("queued");
            assert_eq!(store.read(&own, 0).await.expect("read").len(), 500, "the newest is there");
        }
        // The writer keeps the order, so earlier work is done after this.
        store.append(of("large", 100 * start), 0, Vec::new()).await.expect("nothing");
        let status = store.status();
        assert!(status.bytes <= 10_000 && status.bytes > 8_000, "{status:?}");
        assert!(status.removed > 0);
        assert_eq!(store.read(&of("small", 0), 0).await.expect("read").len(), 900);
        let message = message(&store, "att_small000", "small").await;
        assert_eq!(message.as_deref(), Some("out of memory"));
        // Messages are removed with the output.
        let kept = std::fs::read_dir(folder.path().join("logs")).expect("a folder").count();
        assert!(kept < 60, "{kept} files");
    }
}

#[tokio::test]
async fn output_beyond_the_limit_of_an_attempt_leaves_a_reason() {
    let limits = LogLimits { attempt_bytes: 100, ..LogLimits::default() };
    let (_folder, store) = store(limits);
    let own = output("att_1", 0, "n1");
    assert_eq!(append(&store, 0, &[b'x'; 100]).await, 100);
    assert_eq!(store.cut(&own).await, None);
    assert_eq!(append(&store, 100, b"more").await, 104);
    assert!(store.cut(&own).await.is_some_and(|note| note.contains("first 100 bytes")));
    assert_eq!(store.read(&own, 0).await.expect("read").len(), 100);
}

#[test]
fn texts_are_cut_between_characters() {
    assert_eq!((first("aé", 2), first("aé", 3), first("", 3)), ("a", "aé", ""));
    assert_eq!((last("éa", 2), last("éa", 3), last("", 3)), ("a", "éa", ""));
}
