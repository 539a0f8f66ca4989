//! The stored form of records: golden bytes, and rejection of everything else.

use bursar_core::time::Timestamp;
use bursar_journal::record::{FORMAT_VERSION, frames};
use bursar_journal::{Batch, BatchBuilder, RecordError, RecordKind};
use proptest::collection::vec;
use proptest::prelude::*;

/// 2024-02-29T00:00:00.123Z
const TIME: i64 = 1_709_164_800_123;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn batch(records: &[(RecordKind, i64, Vec<u8>)]) -> Batch {
    let mut builder = BatchBuilder::new();
    for (kind, time, body) in records {
        builder.push(*kind, at(*time), |out| out.extend_from_slice(body));
    }
    builder.finish().expect("the caller gives at least one record")
}

fn decode(payload: &[u8], records: u32) -> Result<Batch, RecordError> {
    BatchBuilder::decode(payload, 1, records)
}

#[test]
fn version_1_bytes_never_change() {
    let golden: &[u8] = &[
        10, 0, 0, 0, 1, 0, 123, 40, 41, 242, 141, 1, 0, 0, // barrier
        13, 0, 0, 0, 1, 1, 123, 40, 41, 242, 141, 1, 0, 0, b'a', b'b', b'c', // decision
        11, 0, 0, 0, 1, 2, 255, 255, 255, 255, 255, 255, 255, 255,
        7, // due, one ms before 1970
        15, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, // group of one
    ];
    let written = batch(&[
        (RecordKind::Barrier, TIME, vec![]),
        (RecordKind::Decision, TIME, b"abc".to_vec()),
        (RecordKind::Due, -1, vec![7]),
        (RecordKind::Group, 0, vec![1, 0, 0, 0, 9]),
    ]);
    assert_eq!(written.payload(), golden);
    let read: Vec<_> = frames(golden, 41, 4).map(|record| record.expect("golden")).collect();
    assert_eq!(read.iter().map(|record| record.position).collect::<Vec<_>>(), [41, 42, 43, 44]);
    assert_eq!(read[1].body, b"abc");
    assert_eq!(read[2].time, at(-1));
    assert_eq!(read[3].kind, RecordKind::Group);
    assert_eq!(read[0].frame, &golden[..14]);
}

#[test]
fn an_unknown_version_is_refused_by_number_and_position() {
    let mut bytes = batch(&[(RecordKind::Barrier, 0, vec![]), (RecordKind::Due, 0, vec![1])])
        .payload()
        .to_vec();
    bytes[14 + 4] = FORMAT_VERSION + 1;
    let refusal = BatchBuilder::decode(&bytes, 7, 2).expect_err("version 2 does not exist");
    assert_eq!(refusal, RecordError::UnknownVersion { position: 8, version: 2 });
    assert!(refusal.to_string().contains("record 8 has format version 2"));
}

#[test]
fn an_unknown_kind_and_an_impossible_time_are_refused() {
    let mut kind = batch(&[(RecordKind::Due, 0, vec![])]).payload().to_vec();
    kind[5] = 4;
    assert_eq!(decode(&kind, 1), Err(RecordError::UnknownKind { position: 1, kind: 4 }));
    let mut time = batch(&[(RecordKind::Due, 0, vec![])]).payload().to_vec();
    time[6..14].copy_from_slice(&i64::MAX.to_le_bytes());
    let expected = RecordError::ImpossibleTime { position: 1, millis: i64::MAX };
    assert_eq!(decode(&time, 1), Err(expected));
}

fn kinds() -> impl Strategy<Value = RecordKind> {
    prop_oneof![
        Just(RecordKind::Barrier),
        Just(RecordKind::Decision),
        Just(RecordKind::Due),
        Just(RecordKind::Group),
    ]
}

fn records() -> impl Strategy<Value = Vec<(RecordKind, i64, Vec<u8>)>> {
    let times = Timestamp::MIN.millis()..=Timestamp::MAX.millis();
    vec((kinds(), times, vec(any::<u8>(), 0..40)), 1..8)
}

proptest! {
    #[test]
    fn records_round_trip_byte_for_byte(records in records()) {
        let written = batch(&records);
        let mut again = BatchBuilder::new();
        for (record, (kind, time, body)) in
            frames(written.payload(), 1, written.records()).zip(&records)
        {
            let record = record.expect("just written");
            prop_assert_eq!((record.kind, record.time, record.body), (*kind, at(*time), &body[..]));
            again.push(record.kind, record.time, |out| out.extend_from_slice(record.body));
        }
        prop_assert_eq!(again.finish(), Some(written.clone()));
        prop_assert_eq!(decode(written.payload(), written.records()), Ok(written));
    }

    #[test]
    fn truncations_and_trailing_bytes_are_refused(records in records(), extra in vec(any::<u8>(), 1..30)) {
        let written = batch(&records);
        for length in 0..written.payload().len() {
            prop_assert!(decode(&written.payload()[..length], written.records()).is_err());
        }
        let longer = [written.payload(), &extra].concat();
        prop_assert!(decode(&longer, written.records()).is_err());
        prop_assert!(decode(written.payload(), written.records() + 1).is_err());
        prop_assert!(decode(written.payload(), written.records() - 1).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_are_exactly_one_batch(bytes in vec(any::<u8>(), 0..80), records in 0u32..4) {
        if let Ok(batch) = decode(&bytes, records) {
            prop_assert_eq!(batch.payload(), &bytes[..]);
        }
    }
}
