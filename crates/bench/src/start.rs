//! A start from a snapshot of a large state: how long until the ledger answers, and how much memory it takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_core::ledger::command::AccountKind;
use bursar_core::ledger::{Command, Ledger};
use bursar_core::machine::{advance, execute};
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::{DAY_MS, Timestamp};
use bursar_engine::{
    Clock, Codec, Engine, EngineOptions, LedgerCodec, RecordOrigin, WallClock, copy_or_replay,
};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{BatchBuilder, Journal, RecordKind, Snapshot};
use compact_str::format_compact;
use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::figure::{load_average, now, resident_bytes};
use crate::world::{envelope, grant, open, orgs, place};

/// Commands in one batch.
const BATCH: usize = 5_000;
/// What each grant has.
const AMOUNT: i64 = 1_000_000;

/// The size of the state.
#[derive(Copy, Clone, Debug)]
pub struct StartState {
    /// Accounts.
    pub accounts: usize,
    /// Grants of each.
    pub grants: usize,
    /// Open holds, spread over the accounts.
    pub holds: usize,
}

/// What was stored.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct StoredState {
    /// Bytes of the snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of the journal's file.
    pub file_bytes: u64,
    /// Records in the journal.
    pub records: u64,
}

/// The figures of a start.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
pub struct StartFigures {
    /// Seconds from opening the journal until the ledger answers.
    pub seconds: f64,
    /// Resident memory of the process then.
    pub resident_bytes: u64,
    /// Seconds until a second copy is there, for events and snapshots.
    pub copy_seconds: f64,
    /// Resident memory with both.
    pub both_bytes: u64,
    /// Accounts and open holds that it has.
    pub found: (usize, usize),
    /// Load average of the machine.
    pub load: f64,
}

fn file(directory: &Path) -> PathBuf {
    directory.join("start.db")
}

/// Writes a journal with such a state, and its snapshot.
pub fn fill(directory: &Path, state: StartState) -> Result<StoredState, BenchError> {
    let journal = SqliteJournal::open(&file(directory), SqliteOptions::default())?;
    let lease = journal.acquire_lease("bench", Duration::from_secs(36_000))?;
    let (mut head, mut ledger) = (journal.head()?, Ledger::new());
    let time: Timestamp = WallClock::new().now();
    let names = orgs(state.accounts);
    let opened = names.iter().map(|name| open(name, AccountKind::Org));
    let granted = (0..state.grants).flat_map(|number| {
        names.iter().map(move |name| {
            let days = 400 + i64::try_from(number).unwrap_or(0);
            grant(format_compact!("{name}-{number}").into(), name, AMOUNT, time, days)
        })
    });
    let held = (0..state.holds).map(|number| {
        let hold = HoldId::unchecked(format_compact!("hold{number}"));
        place_for_long(hold, &names[number % names.len()])
    });
    let mut commands = opened.chain(granted).chain(held).peekable();
    let (mut request, mut events) = (0, Vec::new());
    while commands.peek().is_some() {
        let mut records = BatchBuilder::new();
        for command in commands.by_ref().take(BATCH) {
            request += 1;
            let envelope = envelope(request, false);
            advance(&mut ledger, time, |_, _| {});
            events.clear();
            let answer = execute(&mut ledger, time, &envelope, &command, &mut events);
            if let Err(refused) = answer {
                return Err(BenchError::Wrong(format!("{refused:?}")));
            }
            let origin =
                RecordOrigin::Command { envelope: &envelope, command: &command, accepted: true };
            let events = &events;
            records
                .push(RecordKind::Decision, time, |body| LedgerCodec.encode(origin, events, body));
        }
        if let Some(batch) = records.finish() {
            head = journal.append(lease.epoch, head, batch)?;
            journal.compact()?;
        }
    }
    let bytes = LedgerCodec.encode_state(&ledger);
    let snapshot_bytes = bytes.len() as u64;
    journal.put_snapshot(&Snapshot { head, state: bytes })?;
    journal.release_lease(&lease)?;
    let file_bytes = std::fs::metadata(file(directory))?.len();
    Ok(StoredState { snapshot_bytes, file_bytes, records: head.position })
}

/// A hold that stays open.
fn place_for_long(hold: HoldId, account: &AccountPath) -> Command {
    match place(hold, account) {
        Command::PlaceHold(mut place) => {
            place.ttl_ms = Some(30 * DAY_MS);
            Command::PlaceHold(place)
        }
        other => other,
    }
}

/// Starts an engine on the journal that [`fill`] has written. In a process of its own, in which no memory was
/// used before.
pub fn start(directory: &Path) -> Result<StartFigures, BenchError> {
    let began = now();
    let journal = SqliteJournal::open(&file(directory), SqliteOptions::default())?;
    let journal: Arc<dyn Journal> = Arc::new(journal);
    let (codec, clock) = (Arc::new(LedgerCodec), Arc::new(WallClock::new()));
    let options = EngineOptions::default();
    let engine = Engine::start(Arc::clone(&journal), codec, clock, options);
    while engine.handle().settle().is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let seconds = began.elapsed().as_secs_f64();
    let resident_bytes = resident_bytes();
    let count = |ledger: &Ledger| {
        let holds = ledger.holds_from(0, u32::MAX).filter(|(_, hold)| hold.is_open());
        (ledger.account_count() as usize, holds.count())
    };
    let found = engine.handle().read(count)?.value;
    let began = now();
    let copied = copy_or_replay(&*journal, &LedgerCodec, &engine.handle())?;
    let copy_seconds = began.elapsed().as_secs_f64();
    let both_bytes = crate::figure::resident_bytes();
    drop(copied);
    engine.stop();
    let load = load_average();
    Ok(StartFigures { seconds, resident_bytes, copy_seconds, both_bytes, found, load })
}
