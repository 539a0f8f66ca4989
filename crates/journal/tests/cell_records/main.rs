//! The stored form of cell events: every variant is decoded as it was, every byte counts, the
//! golden bytes never change, and everything else is rejected.

mod arbitrary;
#[path = "../support/body_laws.rs"]
mod body_laws;

use std::collections::BTreeSet;
use std::path::PathBuf;

use arbitrary::{Source, VARIANTS};
use body_laws::{body_laws, from_hex, hex};
use bursar_core::cell::command::{JobSpec, RequestKey, StoredAnswer};
use bursar_core::cell::event::{AttemptOutcome, Event, JobOutcome, StopReason};
use bursar_core::cell::nodes::node::NodeId;
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::cell::{AttemptId, ClassRank, JobId};
use bursar_core::message::ToLedger;
use bursar_core::time::Timestamp;
use bursar_journal::record::cell::{
    Author, CellHeader, CellOutcome, CommandKind, decode_body, encode_body, event_name,
};
use bursar_journal::record::codec::FormatError;
use proptest::collection::vec;
use proptest::prelude::*;

fn encoded(header: Option<&CellHeader>, events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_body(header, events, &mut bytes);
    bytes
}

body_laws!();

fn golden_file(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cell-v1");
    directory.join(format!("{name}.hex"))
}

/// Compares with the golden bytes of a name. `BURSAR_WRITE_GOLDEN=1` writes missing files. It never
/// changes an existing one.
fn is_golden(name: &str, header: Option<CellHeader>, events: Vec<Event>) {
    let written = encoded(header.as_ref(), &events);
    let file = golden_file(name);
    if std::env::var_os("BURSAR_WRITE_GOLDEN").is_some() && !file.exists() {
        std::fs::write(&file, hex(&written)).expect("the golden directory is writable");
    }
    let golden = std::fs::read_to_string(&file).expect("every variant has a golden file");
    let golden = from_hex(&golden);
    assert_eq!(written, golden, "{}", file.display());
    let read = decode_body(&golden).expect("golden bytes stay readable");
    assert_eq!((read.header, read.events), (header, events));
}

#[test]
fn version_1_bytes_of_every_variant_never_change() {
    for variant in 0..VARIANTS {
        // Each variant has its own seed, so that a new variant does not change its bytes. Several
        // events of each, so that every kind of message is among them.
        let mut source = Source::first(2020 + u64::from(variant));
        let header = (variant % 5 > 0).then(|| source.header());
        let events: Vec<Event> = (0..16).map(|_| source.event(variant)).collect();
        is_golden(event_name(&events[0]), header, events);
    }
}

/// Variants that have gained fields, by the name of the file with these fields.
#[test]
fn fields_added_later_have_their_own_golden_bytes() {
    let node_registered = 5;
    let mut source = Source::new(2025);
    let events = (0..16).map(|_| source.event(node_registered)).collect();
    is_golden("node_registered-scope", None, events);
    let kept = (0..4).map(|_| match source.event(node_registered) {
        Event::NodeRegistered { node, offer, incarnation, lease_until, .. } => {
            let kept_until = Some(lease_until);
            Event::NodeRegistered { node, offer, incarnation, lease_until, kept_until }
        }
        other => panic!("{other:?}"),
    });
    is_golden("node_registered-kept", None, kept.collect());
    let attempt = AttemptId { job: JobId::new(0, 7), number: 2 };
    let kill_at = Timestamp::from_millis(1_700_000_000_000);
    // The author of a preemption, in the event, in the end of the attempt and in the message to the
    // ledger.
    let reason = StopReason::Operator { by_platform: true };
    let message = Box::new(ToLedger::StopOrdered { attempt, reason });
    let outcome = AttemptOutcome::Stopped(reason);
    let (gpu_ms, exit_code, requeued) = (5, Some(143), Some(kill_at));
    let events = vec![
        Event::StopOrdered { attempt, reason, kill_at },
        Event::LedgerMessageSent { shard: 0, number: 3, message },
        Event::AttemptEnded { attempt, outcome, gpu_ms, exit_code, requeued },
    ];
    is_golden("stop_ordered-by_platform", None, events);
    // The rule and the numbers of a preemption.
    let class = PreemptionCause::Class { victim: ClassRank::BATCH, taker: ClassRank::URGENT };
    let preempted = |cause: PreemptionCause| {
        let by = JobId::new(0, 9);
        let for_share = cause != class && !matches!(cause, PreemptionCause::Guest { .. });
        StopReason::Preempted { by, for_share, cause: Some(cause) }
    };
    let reasons = [
        class,
        PreemptionCause::Share {
            victim_used: 52_100_000,
            taker_used: 13_400_000,
            ran_ms: 4_000_000,
            quantum_ms: 3_600_000,
        },
        PreemptionCause::OwnJob { victim_gpus: 4, taker_gpus: 8 },
        PreemptionCause::Guest { start_at: kill_at },
    ];
    let stops = reasons.map(|cause| {
        let reason = preempted(cause);
        Event::StopOrdered { attempt, reason, kill_at }
    });
    is_golden("stop_ordered-cause", None, stops.to_vec());
    let refused = Event::JobEnded { job: JobId::new(0, 7), outcome: JobOutcome::TooManyDemands };
    is_golden("job_ended-too_many_demands", None, vec![refused]);
    let served = vec![Event::Rewound { generation: 7, served: true }];
    is_golden("rewound-served", None, served);
    let request = RequestKey { key: 1 << 100, fingerprint: 7 };
    let kept = ["acme:nlp", "*"].map(|scope| {
        let (body, scope) = (Some("{}".into()), Some(scope.into()));
        Event::AnswerKept { request, answer: Box::new(StoredAnswer { code: 200, body, scope }) }
    });
    is_golden("answer_kept-scope", None, kept.into());
}

#[test]
fn a_decoding_error_names_its_cause() {
    let body_of = |event: &[u8]| [&[0x83, 1, 0xf6, 0x81], event].concat();
    // NodeLost { node: 7 } is [7, {0: 7}].
    assert!(decode_body(&body_of(&[0x82, 7, 0xa1, 0, 7])).is_ok());
    let refused = |event: &[u8]| decode_body(&body_of(event)).expect_err("must be refused");
    for (event, error) in [
        (&[0x82, 0x18, 99, 0xa0][..], FormatError::UnknownTag { what: "Event", tag: 99 }),
        (&[0x82, 7, 0xa0], FormatError::MissingField { what: "NodeLost", key: 0 }),
        (&[0x82, 7, 0xa2, 0, 7, 5, 1], FormatError::UnknownField { what: "NodeLost", key: 5 }),
    ] {
        assert_eq!(refused(event), error);
    }
    let newer = decode_body(&[0x83, 2, 0xf6, 0x80]).expect_err("version 2 does not exist");
    assert_eq!(newer, FormatError::UnknownVersion { what: "the body", version: 2 });
    assert!(newer.to_string().contains("use the build that wrote it"));
}

/// The report of a node with eight running attempts after a month.
fn heartbeat() -> (CellHeader, Vec<Event>) {
    let header = CellHeader {
        author: Author::Actor("key_01kqvtzj4pdz9cwynx2b7h4d3m".into()),
        command: CommandKind::Heartbeat,
        outcome: CellOutcome::Accepted,
        node: None,
    };
    let usage: Vec<(AttemptId, u64)> = (0..8)
        .map(|at| (AttemptId { job: JobId::new(0, 1_000_000 + at), number: 1 }, 40_000_000 + at))
        .collect();
    let lease_until = Timestamp::from_millis(1_700_000_000_000);
    let events = vec![
        Event::NodeReported { node: NodeId(1234), seq: 86_400, lease_until },
        Event::UsageMetered { node: NodeId(1234), usage: usage.clone() },
        Event::LedgerMessageSent {
            shard: 0,
            number: 5_000_000,
            message: Box::new(ToLedger::UsageMetered(usage)),
        },
    ];
    (header, events)
}

#[test]
fn a_report_on_eight_attempts_takes_few_bytes() {
    let (header, events) = heartbeat();
    let bytes = encoded(Some(&header), &events).len();
    println!("{bytes} bytes for a report of a node with 8 running attempts");
    assert!(bytes <= 340, "{bytes}");
}

#[test]
fn the_name_of_a_class_was_added_later_and_may_be_absent() {
    let Event::JobQueued(spec) = Source::new(5).event(14) else { panic!("tag 14 is a job") };
    let before = encoded(None, &[Event::JobQueued(spec.clone())]);
    let named = Event::JobQueued(Box::new(JobSpec { class_name: "batch".into(), ..*spec }));
    let bytes = encoded(None, std::slice::from_ref(&named));
    // One more key, 18, and five letters.
    assert_eq!(bytes.len(), before.len() + 7);
    assert!(bytes.ends_with(b"\x12\x65batch"));
    assert_eq!(decode_body(&bytes).expect("just written").events, [named]);
}

#[test]
fn the_resumable_flag_was_added_later_and_is_written_only_if_set() {
    let Event::JobQueued(spec) = Source::new(5).event(14) else { panic!("tag 14 is a job") };
    let before = encoded(None, &[Event::JobQueued(spec.clone())]);
    let resumes = Event::JobQueued(Box::new(JobSpec { resumable: true, ..*spec }));
    let bytes = encoded(None, std::slice::from_ref(&resumes));
    // One more key, 19, and "true".
    assert_eq!(bytes.len(), before.len() + 2);
    assert!(bytes.ends_with(&[0x13, 0xf5]));
    assert_eq!(decode_body(&bytes).expect("just written").events, [resumes]);
}

#[test]
fn every_event_is_documented() {
    let page =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/journal-format.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, cells) = page.split_once("## Cells").expect("the page has a part on cells");
    let mut source = Source::new(1);
    for variant in 0..VARIANTS {
        let name = event_name(&source.event(variant));
        let row =
            cells.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{name}`")));
        assert!(row.is_some_and(|row| row.contains(&variant.to_string())), "{name}");
    }
}
