//! Measures how many events a second are encoded and decoded on one core, by processor time, so
//! that other work on the machine has little effect.
//!
//! `cargo run --release -p bursar-journal --example record_speed`

use std::hint::black_box;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{Cause, Context, OnExpiry};
use bursar_core::ledger::event::{Event, HoldPlaced, Piece, SliceAmount};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::id::{AccountNo, BucketNo, HoldNo};
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::{decode_body_into, encode_body};
use fefo::Span;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

const EVENTS: u32 = 1_000_000;

fn placed(number: u32) -> Event {
    let start = u64::from(number) * 28_800_000;
    let span = Span::new(start, start + 28_800_000);
    Event::HoldPlaced(Box::new(HoldPlaced {
        hold: HoldNo(number),
        id: format!("hold_{number:016x}").into(),
        account: AccountNo(number % 100_000),
        pieces: [Piece { bucket: BucketNo(number % 10_000), span }].into_iter().collect(),
        expires_at: Some(Timestamp::from_millis(1_767_225_600_000 + i64::from(number))),
        context: Context::default(),
        on_expiry: OnExpiry::HonorHold,
        rate: None,
        gpu_ms: 0,
        reference: None,
        fingerprint: u128::from(number) << 64 | 7,
        job: None,
    }))
}

fn captured(number: u32) -> Event {
    Event::HoldCaptured {
        hold: HoldNo(number),
        seq: Some(u64::from(number % 50)),
        total: Credits::from_length(u64::from(number) * 1000).unwrap_or(Credits::MAX),
        gpu_ms: u64::from(number) * 30_000,
        taken: [SliceAmount { slice: 0, amount: 12_345_678 }].into_iter().collect(),
        uncollected: 0,
    }
}

fn closed(number: u32) -> Event {
    Event::HoldClosed {
        hold: HoldNo(number),
        state: HoldState::Settled,
        cause: Cause::Holder,
        returned: u64::from(number) * 17,
    }
}

/// Microseconds of processor time that this process has used.
fn used() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask about itself");
    usage.user_time().num_microseconds()
}

fn measure(name: &str, make: fn(u32) -> Event) {
    // In records of 64 events, so that the cost of a record's frame does not distort that of an
    // event.
    let records: Vec<Vec<Event>> = (0..EVENTS)
        .collect::<Vec<_>>()
        .chunks(64)
        .map(|some| some.iter().map(|n| make(*n)).collect())
        .collect();
    let mut bodies: Vec<Vec<u8>> = records.iter().map(|_| Vec::with_capacity(16_384)).collect();
    let start = used();
    for (events, body) in records.iter().zip(&mut bodies) {
        encode_body(None, black_box(events), body);
    }
    let encoding = used() - start;
    let mut events = Vec::with_capacity(64);
    let start = used();
    for body in &bodies {
        events.clear();
        decode_body_into(black_box(body), &mut events).expect("just written");
        black_box(&events);
    }
    let decoding = used() - start;
    let bytes: usize = bodies.iter().map(Vec::len).sum();
    let rate = |micros: i64| f64::from(EVENTS) / micros.max(1) as f64;
    println!(
        "{name:13} {:5.1} bytes  encode {:6.2} M/s  decode {:6.2} M/s",
        bytes as f64 / f64::from(EVENTS),
        rate(encoding),
        rate(decoding)
    );
}

fn main() {
    measure("HoldPlaced", placed);
    measure("HoldCaptured", captured);
    measure("HoldClosed", closed);
}
