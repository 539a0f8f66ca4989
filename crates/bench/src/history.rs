//! How long it takes to read a page of an account with many entries.

use std::path::Path;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, Context, GrantKind, OnExpiry,
};
use bursar_core::ledger::event::{
    Event, GrantIssued, GrantOrigin, HoldPlaced, Piece, Pieces, SliceAmount,
};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo};
use bursar_core::time::Timestamp;
use bursar_history::query::{AuditFilter, EntriesOf, TopBy};
use bursar_history::{FedRecord, History, HistoryError, Sqlite};
use bursar_journal::record::ledger::LedgerBody;
use fefo::Span;
use serde::Serialize;

use crate::BenchError;
use crate::figure::{load_average, now};

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
        job: None,
        reference: None,
        fingerprint: u128::from(number),
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

/// Holds applied in one transaction.
const HOLDS_PER_TRANSACTION: u64 = 2_000;
/// Number of pages that are timed, evenly spread.
const PAGES: u64 = 500;

/// The cost of history.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryCost {
    /// Entries of the account.
    pub entries: u64,
    /// Entries applied per second.
    pub fed_per_second: f64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Median time of a page of 100 entries, in microseconds.
    pub page_us: u64,
    /// 99th percentile of the time of a page.
    pub page_p99_us: u64,
    /// Time of the slowest page.
    pub page_worst_us: u64,
    /// Time to read the balance as of an instant half way.
    pub balance_as_of_us: u64,
    /// Time to read the newest 100 records of the audit trail.
    pub audit_us: u64,
    /// Time to find the orgs that spent most in the last 24 hours.
    pub top_us: u64,
    /// Load average of the machine at the end.
    pub load: f64,
}

fn at(number: u64) -> Timestamp {
    Timestamp::from_millis(START + i64::try_from(number).unwrap_or(0) * 100)
}

/// Applies about `wanted` entries of one account to a new file in `directory` and times its pages.
pub fn cost(directory: &Path, wanted: u64) -> Result<HistoryCost, BenchError> {
    let file = directory.join("history.db");
    let mut history = History::new(Sqlite::open(&file)?);
    let holds = (wanted / ENTRIES_EACH).max(1);
    let start = now();
    history.apply(&[FedRecord { position: 1, at: at(0), bodies: &opening() }])?;
    for from in (0..holds).step_by(HOLDS_PER_TRANSACTION as usize) {
        let bodies: Vec<_> =
            (from..holds.min(from + HOLDS_PER_TRANSACTION)).map(|n| (n, hold(n))).collect();
        let fed: Vec<FedRecord<'_>> = bodies
            .iter()
            .map(|(n, bodies)| FedRecord { position: n + 2, at: at(*n), bodies })
            .collect();
        history.apply(&fed)?;
    }
    let entries = holds * ENTRIES_EACH + 1;
    let fed_per_second = entries as f64 / start.elapsed().as_secs_f64();
    let pages = page_times(&history, holds)?;
    let one = |work: &dyn Fn() -> Result<(), HistoryError>| {
        let start = now();
        work().map(|()| micros(start))
    };
    let day = (at(holds).plus_millis(-86_400_000), at(holds));
    Ok(HistoryCost {
        entries,
        fed_per_second,
        file_bytes: std::fs::metadata(&file)?.len(),
        page_us: pages[pages.len() / 2],
        page_p99_us: pages[pages.len() * 99 / 100],
        page_worst_us: pages[pages.len() - 1],
        balance_as_of_us: one(&|| history.balance_as_of(0, at(holds / 2)).map(|_| ()))?,
        audit_us: one(&|| history.audit(AuditFilter::Account(0), None, 100).map(|_| ()))?,
        top_us: one(&|| history.top(AccountKind::Org, TopBy::Spent, day, 10).map(|_| ()))?,
        load: load_average(),
    })
}

/// Times of pages all over the list in microseconds, shortest first. Each page is reached by the
/// cursor of the page before it, as clients do.
fn page_times(history: &History<Sqlite>, holds: u64) -> Result<Vec<u64>, BenchError> {
    let account = EntriesOf::Account(0);
    let mut times = Vec::new();
    for place in 0..PAGES {
        let to = at(holds * place / PAGES);
        let before = history.entries(account, (Timestamp::MIN, to), None, 100)?;
        let always = (Timestamp::MIN, Timestamp::MAX);
        let start = now();
        let page = history.entries(account, always, before.next, 100)?;
        times.push(micros(start));
        let wrong = page.data.len() > 100 || (place > 0 && page.data.is_empty());
        if wrong {
            return Err(BenchError::Wrong(format!("a page has {} entries", page.data.len())));
        }
    }
    times.sort_unstable();
    Ok(times)
}

fn micros(start: std::time::Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}
