//! Exported events have a name for every stored field.
#![allow(dead_code, reason = "the generators have more than these tests use")]

#[path = "../../journal/tests/cell_records/arbitrary.rs"]
mod cell_events;
#[path = "../../journal/tests/ledger_records/arbitrary.rs"]
mod ledger_events;

use std::collections::BTreeSet;
use std::sync::Arc;

use bursar_audit::export::{JournalKind, one_record};
use bursar_core::ledger::command::{ClearedSettings, MovementNote};
use bursar_core::ledger::event::{Event, NamedMovement, Pieces};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_journal::RecordKind;
use bursar_journal::record::{FORMAT_VERSION, cell, ledger};
use serde_json::{Value, json};

/// Enough that every optional field of every event is present at least once.
const SEEDS: u64 = 64;

fn exported(of: JournalKind, body: &[u8]) -> Vec<Value> {
    let mut content = vec![FORMAT_VERSION, RecordKind::Decision as u8];
    content.extend(1_767_225_600_000_i64.to_le_bytes());
    content.extend(body);
    let length = u32::try_from(content.len()).expect("a short record");
    let frame = [&length.to_le_bytes()[..], &content].concat();
    let mut line = one_record(1, &frame, of).expect("a record");
    let events = line["decisions"][0]["events"].take();
    events.as_array().expect("a list of events").clone()
}

/// The fields of these events, and what they contain, that are exported as numbers.
fn unnamed(events: &[Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for event in events {
        unnamed_inside(event["type"].as_str().unwrap_or_default(), event, &mut found);
    }
    found
}

fn unnamed_inside(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let path = format!("{path}.{field}");
                unnamed_inside(&path, value, found);
                found.extend(field.parse::<u64>().is_ok().then_some(path));
            }
        }
        Value::Array(values) => {
            values.iter().for_each(|value| unnamed_inside(path, value, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Sets the fields that the generator leaves out, because the golden bytes are older than they are.
fn with_later_fields(event: &mut Event) {
    match event {
        Event::AccountChanged { cleared, .. } => {
            *cleared = ClearedSettings { name: true, ..ClearedSettings::default() };
        }
        Event::Refunded { note, .. } | Event::CreditsMoved { note, .. } => {
            let reason = Some("The node failed".into());
            *note = Some(Box::new(MovementNote { reason, reference: None }));
        }
        Event::Answered { request, .. } => *request = 3,
        Event::AttemptFunded { short, credits_ms, .. } => (*short, *credits_ms) = (true, Some(4)),
        _ => {}
    }
}

#[test]
fn every_stored_field_of_a_ledger_event_has_a_name() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut source = ledger_events::Source::new(seed);
        for variant in 0..ledger_events::VARIANTS {
            let mut event = source.event(variant);
            with_later_fields(&mut event);
            if let Event::HoldPlaced(placed) = event {
                event = Event::HoldPlaced(Box::new(source.job_hold(*placed)));
            }
            let mut body = Vec::new();
            ledger::encode_body(None, &[event], &mut body);
            found.extend(unnamed(&exported(JournalKind::Ledger, &body)));
        }
    }
    assert_eq!(found, BTreeSet::new(), "fields without a name in names.rs");
}

#[test]
fn every_stored_field_of_a_cell_event_has_a_name() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut source = cell_events::Source::new(seed);
        for variant in 0..cell_events::VARIANTS {
            let mut body = Vec::new();
            cell::encode_body(None, &[source.event(variant)], &mut body);
            found.extend(unnamed(&exported(JournalKind::Cell, &body)));
        }
    }
    assert_eq!(found, BTreeSet::new(), "fields without a name in cell_names.rs");
}

#[test]
fn a_transfer_is_shown_with_the_names_of_its_parts() {
    let note = MovementNote { reason: Some("Moved to training".into()), reference: None };
    let movement =
        NamedMovement { movement: 4, id: "tr-1".into(), pieces: Pieces::new(), fingerprint: 0 };
    let moved = Event::CreditsMoved {
        movement,
        from: AccountNo(1),
        to: AccountNo(2),
        note: Some(Box::new(note)),
    };
    let refusal = Refusal::NotFound { what: Resource::Account, name: "acme:nlp".into() };
    let answer = Arc::new(Err(refusal));
    let answered = Event::Answered { key: 5, fingerprint: 0, answer, request: 0 };
    let mut body = Vec::new();
    ledger::encode_body(None, &[moved, answered], &mut body);
    let events = exported(JournalKind::Ledger, &body);
    assert_eq!(events[0]["movement"]["id"], "tr-1");
    assert_eq!(events[0]["note"]["reason"], "Moved to training");
    assert_eq!(
        events[1]["answer"],
        json!({ "refusal": { "type": "not_found", "what": "account", "name": "acme:nlp" } })
    );
}
