//! The stored form of ledger events: every variant is decoded as it was, every byte counts, the
//! golden bytes never change, and everything else is rejected.

mod arbitrary;
#[path = "../support/body_laws.rs"]
mod body_laws;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arbitrary::{Source, VARIANTS};
use body_laws::{body_laws, from_hex, hex};
use bursar_core::cell::command::JobSpec;
use bursar_core::ledger::command::{Cause, ClearedSettings, MovementNote};
use bursar_core::ledger::event::Event;
use bursar_core::ledger::holds::archive::{ArchivedHold, RecalledRecord};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::id::{CellNo, HoldNo, JobNo};
use bursar_core::ledger::jobs::JobOrder;
use bursar_core::ledger::refusal::Refusal;
use bursar_core::ledger::reply::Reply;
use bursar_core::message::ToCell;
use bursar_journal::RecordKind;
use bursar_journal::record::codec::FormatError;
use bursar_journal::record::ledger::{
    AuditHeader, CommandKind, Outcome, RefusalCode, decode_archived, decode_body, decode_record,
    encode_archived, encode_body, event_name, may_tell_a_cell,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn encoded(header: Option<&AuditHeader>, events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_body(header, events, &mut bytes);
    bytes
}

body_laws!();

#[test]
fn an_aborted_batch_and_every_command_and_refusal_round_trip() {
    let aborted = || Refusal::BatchAborted { answer: "{\"place\":1}".into() };
    let answer = Arc::new(Err(aborted()));
    let answered = Event::Answered { key: 1, fingerprint: 2, answer, request: 3 };
    for (place, command) in CommandKind::ALL.iter().enumerate() {
        let refusal = RefusalCode::ALL[place % RefusalCode::ALL.len()];
        let header = AuditHeader {
            actor: "k".into(),
            fingerprint: 2,
            key: Some(1),
            command: *command,
            outcome: Outcome::Refused(refusal),
            request: 3,
        };
        let bytes = encoded(Some(&header), std::slice::from_ref(&answered));
        let body = decode_body(&bytes).expect("just written");
        assert_eq!((body.header, body.events.as_slice()), (Some(header), &[answered.clone()][..]));
    }
}

#[test]
fn the_spec_of_an_array_is_written_once() {
    let mut source = Source::new(7);
    let Event::JobSubmitted { order, .. } = source.event(31) else { panic!("tag 31") };
    let admitted = (0..).map(|seed| Source::new(seed).event(42)).find_map(|event| match event {
        Event::CellMessageSent { message, .. } => match *message {
            ToCell::JobAdmitted(spec) => Some(spec),
            _ => None,
        },
        _ => None,
    });
    let admitted = admitted.expect("a message about a job");
    let (payload, submitted) = ("p".repeat(30_000), "s".repeat(30_000));
    let events = (0..1000u64).flat_map(|number| {
        let order = JobOrder {
            payload: payload.as_str().into(),
            submitted: submitted.as_str().into(),
            ..(*order).clone()
        };
        let spec = JobSpec { payload: payload.as_str().into(), ..(*admitted).clone() };
        let message = Box::new(ToCell::JobAdmitted(Box::new(spec)));
        let (job, after) = (JobNo(number), Vec::new());
        [
            Event::JobSubmitted { job, order: Arc::new(order), after },
            Event::CellMessageSent { cell: CellNo(0), number, message },
        ]
    });
    let events: Vec<Event> = events.collect();
    let bytes = encoded(None, &events);
    assert!(bytes.len() < 6_000_000, "{} bytes, not ninety million", bytes.len());
    assert_eq!(decode_body(&bytes).expect("just written").events, events);
    assert!(may_tell_a_cell(&bytes));
}

#[test]
fn messages_to_cells_are_never_missed_and_rarely_false_positives() {
    let is_message = |event: &Event| matches!(event, Event::CellMessageSent { .. });
    let mut imagined = 0;
    for seed in 0..2000 {
        let mut source = Source::new(seed);
        let header = (source.below(4) > 0).then(|| source.header());
        let count = source.below(4);
        let events: Vec<Event> = (0..count)
            .map(|_| {
                let variant = source.below(VARIANTS);
                source.event(variant)
            })
            .collect();
        let suspected = may_tell_a_cell(&encoded(header.as_ref(), &events));
        assert!(suspected || !events.iter().any(is_message), "{events:?}");
        imagined += u32::from(suspected && !events.iter().any(is_message));
    }
    assert!(imagined < 20, "{imagined} of 2000");
    let letter =
        (0..).map(|seed| Source::new(seed).event(42)).find(is_message).expect("variant 42");
    assert!(may_tell_a_cell(&encoded(None, &[letter])));
}

proptest! {
    #[test]
    fn answers_about_jobs_and_holds_of_jobs_round_trip(seed in any::<u64>()) {
        let mut source = Source::new(seed);
        let placed = match source.event(12) {
            Event::HoldPlaced(placed) => *placed,
            other => panic!("tag 12 is not {other:?}"),
        };
        let events = [
            Event::Answered {
                key: 1,
                fingerprint: 2,
                answer: Arc::new(source.job_answer()),
                request: 0,
            },
            Event::HoldPlaced(Box::new(source.job_hold(placed))),
            Event::Forgotten {
                answers: 0,
                holds: 0,
                movements: 0,
                buckets: 0,
                jobs: 7,
                archived: None,
            },
        ];
        let bytes = encoded(None, &events);
        let body = decode_body(&bytes).expect("just written");
        prop_assert_eq!(&body.events[..], &events[..]);
        prop_assert_eq!(encoded(None, &body.events), bytes);
    }

    #[test]
    fn forgetting_with_an_archive_and_answers_from_it_round_trip(seed in any::<u64>()) {
        let mut source = Source::new(seed);
        let record = ArchivedHold { counted: true, ..source.archived_hold() };
        let answer = Arc::new(Ok(Reply::Archived(Box::new(RecalledRecord::Hold(record.clone())))));
        let events = [
            Event::Forgotten {
                answers: 3,
                holds: 9,
                movements: 0,
                buckets: 0,
                jobs: 0,
                archived: Some(source.forgetting()),
            },
            Event::HoldRestored { hold: HoldNo(4), record: Box::new(record) },
            Event::Answered { key: 1, fingerprint: 2, answer, request: 5 },
        ];
        let bytes = encoded(None, &events);
        let body = decode_body(&bytes).expect("just written");
        prop_assert_eq!(&body.events[..], &events[..]);
        prop_assert_eq!(encoded(None, &body.events), bytes);
    }

    #[test]
    fn random_bytes_are_no_archived_hold_and_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(record) = decode_archived(&bytes) {
            prop_assert_eq!(encode_archived(&record), bytes);
        }
    }

    #[test]
    fn an_archived_hold_round_trips(seed in any::<u64>()) {
        let record = ArchivedHold { hold: Source::new(seed).whole_hold(), counted: seed % 2 == 0 };
        let back = decode_archived(&encode_archived(&record)).expect("just written");
        prop_assert_eq!(encode_archived(&back), encode_archived(&record));
        prop_assert_eq!(back, record);
    }
}

fn golden_file(event: &Event) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ledger-v1");
    directory.join(format!("{}.hex", event_name(event)))
}

/// Compares with the golden bytes of a file. `BURSAR_WRITE_GOLDEN=1` writes missing files. It never
/// changes an existing one.
fn is_golden(file: &Path, header: Option<AuditHeader>, events: &[Event]) {
    let written = encoded(header.as_ref(), events);
    if std::env::var_os("BURSAR_WRITE_GOLDEN").is_some() && !file.exists() {
        std::fs::write(file, hex(&written)).expect("the golden directory is writable");
    }
    let golden = std::fs::read_to_string(file).expect("every variant has a golden file");
    let golden = from_hex(&golden);
    assert_eq!(written, golden, "{}", file.display());
    let read = decode_body(&golden).expect("golden bytes stay readable");
    assert_eq!((read.header, &read.events[..]), (header, events));
}

#[test]
fn version_1_bytes_of_every_variant_never_change() {
    let mut source = Source::new(2020);
    for variant in 0..VARIANTS {
        let header = (variant % 5 > 0).then(|| source.header());
        let events = [source.event(variant), source.event(variant)];
        is_golden(&golden_file(&events[0]), header, &events);
    }
}

/// Refunds had no note at first. Those without one are written as before.
#[test]
fn version_1_bytes_of_a_refund_with_a_note_never_change() {
    let mut source = Source::new(2026);
    let (reason, reference) = (Some("The node failed".into()), Some("ticket-7".into()));
    let notes = [
        MovementNote { reason: reason.clone(), reference: reference.clone() },
        MovementNote { reason, reference: None },
        MovementNote { reason: None, reference },
    ];
    let events = notes.map(|note| {
        let mut event = source.event(18);
        if let Event::Refunded { note: written, .. } = &mut event {
            *written = Some(Box::new(note));
        }
        event
    });
    is_golden(&golden_file(&events[0]).with_file_name("refunded_with_note.hex"), None, &events);
}

/// Transfers had no note at first. Those without one are written as before.
#[test]
fn version_1_bytes_of_a_transfer_with_a_note_never_change() {
    let mut source = Source::new(2027);
    let (reason, reference) = (Some("Quarter".into()), Some("ticket-8".into()));
    let written_note = Box::new(MovementNote { reason, reference });
    let mut event = source.event(19);
    if let Event::CreditsMoved { note, .. } = &mut event {
        *note = Some(written_note);
    }
    let events = [event];
    is_golden(
        &golden_file(&events[0]).with_file_name("credits_moved_with_note.hex"),
        None,
        &events,
    );
}

#[test]
fn cleared_settings_round_trip() {
    for flags in 0..16u8 {
        let is_set = |bit: u8| flags & 1 << bit != 0;
        let cleared = ClearedSettings {
            name: is_set(0),
            metadata: is_set(1),
            compensation_ttl_ms: is_set(2),
            overdraft_limit: is_set(3),
        };
        let mut changed = Source::new(u64::from(flags)).event(2);
        if let Event::AccountChanged { cleared: written, .. } = &mut changed {
            *written = cleared;
        }
        let bytes = encoded(None, std::slice::from_ref(&changed));
        assert_eq!(decode_body(&bytes).expect("just written").events, [changed]);
    }
}

#[test]
fn fields_added_later_round_trip_and_may_be_absent() {
    let (job, overdraft, funded_ms) = (JobNo(7), 2, Some(5));
    let before = Event::AttemptFunded { job, funded_ms, overdraft, short: false, credits_ms: None };
    // [35, {0: 7, 1: 5, 2: 2}], as it was written before later fields were added.
    assert_eq!(encoded(None, &[before]), body_of(&[0x82, 0x18, 35, 0xa3, 0, 7, 1, 5, 2, 2]));
    let later =
        Event::AttemptFunded { job, funded_ms, overdraft, short: true, credits_ms: Some(4) };
    let bytes = body_of(&[0x82, 0x18, 35, 0xa5, 0, 7, 1, 5, 2, 2, 3, 0xf5, 4, 4]);
    assert_eq!(encoded(None, std::slice::from_ref(&later)), bytes);
    assert_eq!(decode_body(&bytes).expect("just written").events, [later]);
    let mut submitted = Source::new(4).event(31);
    if let Event::JobSubmitted { order, .. } = &mut submitted {
        let terms = &mut std::sync::Arc::make_mut(order).terms;
        (terms.warn_ahead_ms, terms.resumable) = (60_000, true);
    }
    let bytes = encoded(None, std::slice::from_ref(&submitted));
    assert_eq!(decode_body(&bytes).expect("just written").events, [submitted]);
}

fn body_of(event: &[u8]) -> Vec<u8> {
    [&[0x83, 1, 0xf6, 0x81], event].concat()
}

#[test]
fn a_decoding_error_names_its_cause() {
    // AccountFrozen { account: 7 } is [3, {0: 7}].
    assert!(decode_body(&body_of(&[0x82, 3, 0xa1, 0, 7])).is_ok());
    let refused = |event: &[u8]| decode_body(&body_of(event)).expect_err("must be refused");
    let what = "AccountFrozen";
    for (event, error) in [
        (&[0x82, 0x18, 99, 0xa0][..], FormatError::UnknownTag { what: "Event", tag: 99 }),
        (&[0x82, 3, 0xa0], FormatError::MissingField { what, key: 0 }),
        (&[0x82, 3, 0xa2, 0, 7, 5, 1], FormatError::UnknownField { what, key: 5 }),
        (&[0x82, 3, 0xa2, 0, 7, 0, 7], FormatError::RepeatedField { what, key: 0 }),
        (&[0x82, 3, 0xa1, 0, 0x18, 7], FormatError::NotShortest { at: 8 }),
        // Forgotten { answers: 0, … } leaves every zero out.
        (&[0x82, 0x18, 26, 0xa1, 0, 0], FormatError::IdleField { what: "Forgotten", key: 0 }),
    ] {
        assert_eq!(refused(event), error);
    }
    let indefinite = refused(&[0x82, 3, 0xbf, 0, 7, 0xff]);
    assert!(matches!(indefinite, FormatError::Syntax { .. }), "{indefinite}");
    let newer = decode_body(&[0x83, 2, 0xf6, 0x80]).expect_err("version 2 does not exist");
    assert_eq!(newer, FormatError::UnknownVersion { what: "the body", version: 2 });
    assert!(newer.to_string().contains("use the build that wrote it"));
}

#[test]
fn a_group_is_decoded_body_by_body_and_a_barrier_has_none() {
    let mut source = Source::new(3);
    let header = source.header();
    let bodies: Vec<Vec<u8>> =
        (0..3).map(|variant| encoded(Some(&header), &[source.event(variant)])).collect();
    let mut group = Vec::new();
    for body in &bodies {
        group.extend(u32::try_from(body.len()).expect("short").to_le_bytes());
        group.extend(body);
    }
    let read = decode_record(RecordKind::Group, &group).expect("just written");
    let again: Vec<Vec<u8>> =
        read.iter().map(|body| encoded(body.header.as_ref(), &body.events)).collect();
    assert_eq!(again, bodies);
    for length in 1..group.len() {
        let whole =
            length == 4 + bodies[0].len() || length == 8 + bodies[0].len() + bodies[1].len();
        assert_eq!(decode_record(RecordKind::Group, &group[..length]).is_ok(), whole);
    }
    assert_eq!(decode_record(RecordKind::Barrier, &[]), Ok(vec![]));
    assert!(decode_record(RecordKind::Barrier, &[0]).is_err());
}

#[test]
fn an_invalid_field_never_reaches_the_journal() {
    let refusal = Refusal::InvalidField { field: "amount", reason: "must be more than zero" };
    assert!(!refusal.is_remembered() && !refusal.denies_credits());
}

#[test]
fn the_documented_example_matches_and_every_event_is_documented() {
    let closed = Event::HoldClosed {
        hold: HoldNo(7),
        state: HoldState::Settled,
        cause: Cause::Holder,
        returned: 28_800_000,
    };
    let bytes = encoded(None, &[closed]);
    let written: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let page =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/journal-format.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let lines = page.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(lines.into_iter().any(|line| line == written.join(" ")), "{}", written.join(" "));
    let mut source = Source::new(1);
    for variant in 0..VARIANTS {
        let name = event_name(&source.event(variant));
        let row = page.lines().find(|line| line.starts_with('|') && line.contains(name));
        assert!(row.is_some_and(|row| row.contains(&variant.to_string())), "{name}");
    }
}
