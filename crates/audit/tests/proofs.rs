//! Proof files: made by the owner of the journal, checked by a holder of the public key.

use crate::support;

use bursar_audit::proof::{
    ProofFileError, Proven, check, prove_continuation, prove_record, sign_checkpoint,
};
use bursar_audit::{Batches, RawHead};
use bursar_core::time::Timestamp;
use bursar_journal::JournalId;
use bursar_journal::merkle::{ProofError, SigningKey};
use support::rows_of;
use support::traffic::World;

const JOURNAL: JournalId = JournalId([9; 16]);

fn key() -> SigningKey {
    SigningKey::from_bytes(&[3; 32])
}

fn cut(rows: &Batches, batches: usize) -> Batches {
    let batches = rows.batches[..batches].to_vec();
    let last = batches.last().expect("some batches");
    let position = last.first_position + u64::from(last.records) - 1;
    let head = RawHead { sequence: last.sequence, position, hash: last.hash };
    Batches { journal: rows.journal, head, batches }
}

#[test]
fn every_record_can_be_proven_and_only_unchanged() {
    let rows = rows_of(&World::after(1, 60), 4);
    let now = Timestamp::from_millis(5);
    let signed = sign_checkpoint(&rows, &key(), now).expect("a journal");
    for position in 1..=rows.head.position {
        let proof = prove_record(&rows, position, &signed).expect("a record");
        let text = proof.to_string();
        let proven = check(&text, JOURNAL, key().verifying_key()).expect("a good proof");
        let Proven::Record { position: at, frame, checkpoint } = proven else {
            panic!("it proves a record")
        };
        assert_eq!((at, checkpoint.size), (position, rows.head.position));
        for (field, value) in [
            ("position", serde_json::json!(position % rows.head.position + 1)),
            ("frame", serde_json::json!("00".repeat(frame.len()))),
            ("path", serde_json::json!([])),
        ] {
            let mut lie = proof.clone();
            lie[field] = value;
            assert!(check(&lie.to_string(), JOURNAL, key().verifying_key()).is_err(), "{field}");
        }
    }
    let outside = prove_record(&rows, rows.head.position + 1, &signed).expect_err("no record");
    assert!(matches!(outside, ProofFileError::Outside(_)), "{outside}");
}

#[test]
fn a_wrong_key_a_wrong_journal_and_an_invalid_file_are_refused() {
    let rows = rows_of(&World::after(2, 40), 4);
    let signed = sign_checkpoint(&rows, &key(), Timestamp::MIN).expect("a journal");
    let proof = prove_record(&rows, 3, &signed).expect("a record").to_string();
    let other = SigningKey::from_bytes(&[4; 32]).verifying_key();
    let refused = check(&proof, JOURNAL, other).expect_err("another key");
    assert_eq!(refused, ProofFileError::Refused(ProofError::Signature));
    let refused = check(&proof, JournalId([1; 16]), key().verifying_key()).expect_err("foreign");
    assert_eq!(refused, ProofFileError::Refused(ProofError::Journal));
    for text in ["", "{}", "[1]", "{\"proof\":\"record\"}", "{\"proof\":\"continuation\"}"] {
        let refused = check(text, JOURNAL, key().verifying_key()).expect_err("no proof");
        assert!(matches!(refused, ProofFileError::Form(_)), "{text}: {refused}");
    }
}

#[test]
fn a_later_checkpoint_continues_an_earlier_one_unless_history_was_rewritten() {
    let world = World::after(3, 80);
    let rows = rows_of(&world, 4);
    let newer = sign_checkpoint(&rows, &key(), Timestamp::MIN).expect("a journal");
    for batches in 1..=rows.batches.len() {
        let before = cut(&rows, batches);
        let older = sign_checkpoint(&before, &key(), Timestamp::MIN).expect("a journal");
        let proof = prove_continuation(&rows, &older, &newer).expect("it continues").to_string();
        let proven = check(&proof, JOURNAL, key().verifying_key()).expect("a good proof");
        let Proven::Continued { older, newer } = proven else { panic!("it proves a continuation") };
        assert_eq!((older.size, newer.size), (before.head.position, rows.head.position));
    }
    let mut rewritten = World::after(3, 80);
    rewritten.decided[10].at = rewritten.decided[10].at.plus_millis(1);
    let other = rows_of(&rewritten, 4);
    let older = sign_checkpoint(&cut(&other, 8), &key(), Timestamp::MIN).expect("a journal");
    let refused = prove_continuation(&rows, &older, &newer).expect_err("another history");
    assert_eq!(refused, ProofFileError::OtherHistory);
    let refused = prove_record(&other, 1, &newer).expect_err("another history");
    assert_eq!(refused, ProofFileError::OtherHistory);
}
