//! Two small machines, and helpers for the tests.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]

pub mod children;
pub mod ledger_clients;
pub mod ledger_log;
pub mod parcel;
pub mod till;

use std::sync::Arc;
use std::time::Duration;

use bursar_core::cell::command::NodeOffer;
use bursar_core::time::Timestamp;
use bursar_engine::{CodecError, Engine, EngineOptions, ManualClock};
use bursar_journal::memory::MemoryJournal;
use bursar_journal::{Journal, JournalId};
use till::TillCodec;

/// 2020-01-01T00:00:00.000Z
pub const START: i64 = 1_577_836_800_000;

pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

pub fn manual_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(at(0)))
}

pub fn memory(id: u8) -> MemoryJournal {
    MemoryJournal::new(JournalId([id; 16]))
}

pub fn options(holder: &str) -> EngineOptions {
    EngineOptions {
        holder: holder.into(),
        retry: Duration::from_millis(10),
        ..EngineOptions::default()
    }
}

/// A till over `journal` with its own clock.
pub fn till(journal: Arc<dyn Journal>) -> Engine<TillCodec> {
    Engine::start(journal, Arc::new(TillCodec), manual_clock(), options("test"))
}

/// A node `n0` with H100s.
pub fn offer(gpus: u16) -> NodeOffer {
    NodeOffer {
        name: "n0".into(),
        rack: "r0".into(),
        model: "H100".into(),
        gpus,
        uuids: Vec::new(),
        gpu_memory_mib: 80 << 10,
        cpu_milli: 128_000,
        memory_mib: 1 << 20,
        labels: Vec::new(),
        scope: None,
    }
}

/// Polls until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut looks = 0;
    while !condition() {
        looks += 1;
        assert!(looks < 20_000, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Appends encoded numbers.
pub fn put(out: &mut Vec<u8>, numbers: &[i64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Decodes all numbers.
pub fn numbers(bytes: &[u8]) -> Result<Vec<i64>, CodecError> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(CodecError("trailing bytes".into()));
    }
    Ok(chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect())
}

/// Small numbers as the machines use them.
pub fn signed(number: u64) -> i64 {
    number.cast_signed()
}
