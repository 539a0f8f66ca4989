//! Long journals, which are read on one thread and applied on another.

use crate::support;

use std::time::Duration;

use bursar_engine::{Codec, RecordOrigin, ReplayError, replay_from_genesis};
use bursar_journal::memory::MemoryJournal;
use bursar_journal::{BatchBuilder, Head, Journal, RecordKind};
use support::at;
use support::memory;
use support::till::{Event, TillCodec};

/// Events of one record, and records of one batch.
const OF_RECORD: u64 = 4;
const OF_BATCH: u64 = 16;

/// A journal with `count` additions, and after them a record with this body.
fn journal_of(count: u64, last: Option<&[u8]>) -> (MemoryJournal, Head) {
    let journal = memory(1);
    let lease =
        journal.acquire_lease("test", Duration::from_secs(60)).expect("no other server asks");
    let mut head = journal.head().expect("it is whole");
    let mut builder = BatchBuilder::new();
    let mut append = |builder: &mut BatchBuilder| {
        if let Some(batch) = std::mem::take(builder).finish() {
            head = journal.append(lease.epoch, head, batch).expect("the journal accepts it");
        }
    };
    for first in (0..count).step_by(OF_RECORD as usize) {
        let ids = first..(first + OF_RECORD).min(count);
        let events: Vec<Event> = ids.map(|id| Event::Added { id, amount: 1 }).collect();
        let time = at(i64::try_from(first).expect("small"));
        builder.push(RecordKind::Decision, time, |body| {
            TillCodec.encode(RecordOrigin::Due, &events, body);
        });
        if (first / OF_RECORD).is_multiple_of(OF_BATCH) {
            append(&mut builder);
        }
    }
    if let Some(body) = last {
        let time = at(i64::try_from(count).expect("small"));
        builder.push(RecordKind::Decision, time, |out| out.extend_from_slice(body));
    }
    append(&mut builder);
    (journal, head)
}

#[test]
fn every_event_is_applied_once_and_in_order_however_long_the_journal_is() {
    // Nothing, one event, up to and after the end of the first chunk, and many chunks.
    for count in [0, 1, 8_191, 8_192, 8_196, 8_260, 16_384, 50_001] {
        let (journal, head) = journal_of(count, None);
        let replayed = replay_from_genesis(&journal, &TillCodec).expect("the journal is whole");
        assert_eq!(replayed.head, head, "{count} events");
        assert_eq!(replayed.machine.applied.len() as u64, count);
        assert!(replayed.machine.applied_more_than_once().is_empty());
        let last = count.checked_sub(1).map_or(0, |last| last / OF_RECORD * OF_RECORD);
        let now = bursar_core::machine::Machine::now(&replayed.machine);
        assert_eq!(now.max(at(0)), at(i64::try_from(last).expect("small")));
    }
}

#[test]
fn an_invalid_body_is_named_wherever_it_is() {
    for count in [0, 100, 8_192, 50_000] {
        let (journal, head) = journal_of(count, Some(b"not a number"));
        match replay_from_genesis(&journal, &TillCodec) {
            Err(ReplayError::Body { position, .. }) => assert_eq!(position, head.position),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{count} events and an invalid body were replayed"),
        }
    }
}
