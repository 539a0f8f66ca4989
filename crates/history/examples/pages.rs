//! How long any page of one account's entries takes.
//!
//! `cargo run --release -p bursar-history --example pages -- 10000000 /path/on/disk`

use std::path::PathBuf;
use std::time::Instant;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, Context, GrantKind, OnExpiry,
};
use bursar_core::ledger::event::{
    Event, GrantIssued, GrantOrigin, HoldPlaced, Piece, Pieces, SliceAmount,
};
use bursar_core::ledger::hold::HoldState;
use bursar_core::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo};
use bursar_core::time::Timestamp;
use bursar_history::query::{AuditFilter, EntriesOf, TopBy};
use bursar_history::{Cursor, Fed, History, Sqlite};
use bursar_journal::record::ledger::LedgerBody;
use fefo::Span;

/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000;
/// Entries of one hold: held, captured, returned.
const ENTRIES_EACH: u64 = 3;

fn body(events: Vec<Event>) -> Vec<LedgerBody> {
    vec![LedgerBody { header: None, events }]
}

fn opening() -> Vec<LedgerBody> {
    let account = Event::AccountOpened {
        account: AccountNo(0),
        path: "acme".into(),
        kind: AccountKind::Org,
        settings: AccountSettings::default(),
        fingerprint: 1,
    };
    let grant = Event::GrantIssued(Box::new(GrantIssued {
        grant: GrantNo(0),
        id: "grant-0".into(),
        account: AccountNo(0),
        kind: GrantKind::Purchase,
        amount: Credits::MAX,
        effective_at: Timestamp::from_millis(START),
        expires_at: None,
        priority: 100,
        restriction: None,
        origin: GrantOrigin::Issued,
        reference: None,
        metadata: None,
        fingerprint: 2,
    }));
    body(vec![account, grant])
}

/// One hold of ten units, half of it captured.
fn hold(number: u64) -> Vec<LedgerBody> {
    let hold = HoldNo(u32::try_from(number % 1000).unwrap_or(0));
    let pieces: Pieces =
        [Piece { bucket: BucketNo(0), span: Span::new(number * 10, number * 10 + 10) }]
            .into_iter()
            .collect();
    let placed = Event::HoldPlaced(Box::new(HoldPlaced {
        hold,
        id: format!("hold-{number}").into(),
        account: AccountNo(0),
        pieces,
        expires_at: None,
        context: Context::default(),
        on_expiry: OnExpiry::HonorHold,
        rate: None,
        gpu_ms: 0,
        reference: None,
        fingerprint: u128::from(number),
        job: None,
    }));
    let captured = Event::HoldCaptured {
        hold,
        seq: None,
        total: Credits::from_length(5).unwrap_or(Credits::ZERO),
        gpu_ms: 0,
        taken: [SliceAmount { slice: 0, amount: 5 }].into_iter().collect(),
        uncollected: 0,
    };
    let state = HoldState::Settled;
    let closed = Event::HoldClosed { hold, state, cause: Cause::Holder, returned: 5 };
    body(vec![placed, captured, closed])
}

#[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let file = directory.join(format!("bursar-pages-{}.db", std::process::id()));
    let mut history = History::new(Sqlite::open(&file).expect("the file can be made"));
    let holds = wanted / ENTRIES_EACH;
    let start = Instant::now();
    let first = opening();
    let at = |number: u64| Timestamp::from_millis(START + i64::try_from(number).unwrap_or(0) * 100);
    history.apply(&[Fed { position: 1, at: at(0), bodies: &first }]).expect("it is new");
    for from in (0..holds).step_by(2000) {
        let bodies: Vec<_> = (from..holds.min(from + 2000)).map(|n| (n, hold(n))).collect();
        let fed: Vec<Fed<'_>> =
            bodies.iter().map(|(n, bodies)| Fed { position: n + 2, at: at(*n), bodies }).collect();
        history.apply(&fed).expect("history takes it");
    }
    let feeding = start.elapsed();
    let entries = holds * ENTRIES_EACH + 1;
    println!(
        "fed {entries} entries in {:.1} s: {:.0} a second",
        feeding.as_secs_f64(),
        entries as f64 / feeding.as_secs_f64()
    );
    let account = EntriesOf::Account(0);
    let always = (Timestamp::MIN, Timestamp::MAX);
    let mut times: Vec<u128> = Vec::new();
    for percent in (0..100).chain(0..100) {
        // Any page is reached by its cursor; the instant in the middle stands for one.
        let to = at(holds * percent / 100);
        let start = Instant::now();
        let page = history.entries(account, (Timestamp::MIN, to), None, 100).expect("a page");
        let next: Option<Cursor> = page.next;
        let page = history.entries(account, always, next, 100).expect("the next page");
        times.push(start.elapsed().as_micros() / 2);
        assert!(page.data.len() <= 100);
    }
    times.sort_unstable();
    println!("page of 100: median {} µs, worst of 200 {} µs", times[100], times[199]);
    let timed = |what: &str, work: &dyn Fn()| {
        let start = Instant::now();
        work();
        println!("{what}: {} µs", start.elapsed().as_micros());
    };
    timed("balance as of the middle", &|| {
        history.balance_as_of(0, at(holds / 2)).expect("a balance");
    });
    timed("100 audit entries", &|| {
        history.audit(AuditFilter::Account(0), None, 100).expect("a page");
    });
    timed("top orgs of 24 h by spent", &|| {
        let window = (at(holds).plus_millis(-86_400_000), at(holds));
        history.top(AccountKind::Org, TopBy::Spent, window, 10).expect("a list");
    });
    drop(history);
    for suffix in ["", "-wal", "-shm"] {
        // The file may have no log beside it.
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}
