//! The bytes of a segment, built by hand as `docs/reference/journal-format.md` has them. They never change.

use crate::support;

use bursar_core::digest::Digest;
use bursar_journal::merkle::Frontier;
use bursar_journal::segment::OpenSegment;
use bursar_journal::{Epoch, Head, JournalId, SegmentMark, StoredBatch};
use support::sample;

const ID: JournalId = JournalId([3; 16]);

/// Two batches after a journal's beginning.
fn batches() -> [StoredBatch; 2] {
    let first = Head::genesis(ID).followed_by(Epoch(1), sample(1));
    let second = first.head().followed_by(Epoch(2), sample(2));
    [first, second]
}

/// A zstd frame (RFC 8878) with one block that is not compressed.
fn zstd_frame(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("small");
    // The magic number, and a header with a content size of four bytes in a single segment.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend(length.to_le_bytes());
    // The last block, of raw bytes.
    frame.extend(&((length << 3) | 1).to_le_bytes()[..3]);
    frame.extend(content);
    frame
}

fn by_hand(batches: &[StoredBatch; 2]) -> (Vec<u8>, SegmentMark) {
    let [first, second] = batches;
    let mut content = Vec::new();
    for batch in batches {
        content.extend(batch.records.to_le_bytes());
        content.extend(batch.epoch.0.to_le_bytes());
        content.extend(batch.time.millis().to_le_bytes());
        content.extend((batch.payload.len() as u64).to_le_bytes());
    }
    batches.iter().for_each(|batch| content.extend(&batch.payload));
    let frame = zstd_frame(&content);
    let mut tree = Frontier::new();
    for record in batches.iter().flat_map(StoredBatch::frames) {
        tree.push(record.expect("it is whole").frame);
    }
    let end = second.head();
    let mut file = b"bursar segment\0\x01".to_vec();
    file.extend(ID.0);
    file.extend((frame.len() as u64).to_le_bytes());
    file.extend((content.len() as u64).to_le_bytes());
    file.extend(2_u32.to_le_bytes());
    file.extend(1_u64.to_le_bytes());
    file.extend(first.previous.0);
    file.extend(&frame);
    tree.peaks().iter().for_each(|peak| file.extend(peak.0));
    for number in [1, 2, 1, end.position] {
        file.extend(number.to_le_bytes());
    }
    file.extend(first.time.millis().to_le_bytes());
    for hash in [first.previous.0, second.hash.0, [0; 32]] {
        file.extend(hash);
    }
    file.extend(1_u64.to_le_bytes());
    file.extend([0; 144]);
    let digest = Digest(*blake3::hash(&file).as_bytes());
    file.extend(digest.0);
    let mark = SegmentMark {
        first: 1,
        last: 2,
        first_position: 1,
        last_position: end.position,
        began_at: first.time,
        previous: first.previous,
        hash: second.hash,
        digest,
        bytes: file.len() as u64,
    };
    (file, mark)
}

#[test]
fn a_segment_built_by_hand_is_read() {
    let batches = batches();
    let (file, mark) = by_hand(&batches);
    let segment = OpenSegment::open(file, ID).expect("it is a segment");
    assert_eq!(*segment.mark(), mark);
    assert_eq!((segment.follows(), segment.checkpoint()), (Digest::default(), None));
    assert_eq!(segment.batches_from(1).expect("both are there"), batches);
    assert_eq!(segment.batches_from(2).expect("it is there"), [batches[1].clone()]);
    let name = mark.name();
    assert!(name.starts_with("00000000000000000001-00000000000000000002-"), "{name}");
}

#[test]
fn a_segment_of_another_version_journal_or_history_is_refused() {
    let (file, _) = by_hand(&batches());
    let changed = |change: &dyn Fn(&mut [u8])| {
        let mut file = file.clone();
        change(&mut file);
        let content = file.len() - 32;
        let digest = *blake3::hash(&file[..content]).as_bytes();
        file[content..].copy_from_slice(&digest);
        let read = OpenSegment::open(file, ID).and_then(|segment| segment.batches_from(1));
        read.expect_err("it was changed").to_string()
    };
    assert!(changed(&|file| file[15] = 2).contains("version 2"));
    assert!(changed(&|file| file[16] ^= 1).contains("another journal"));
    // The epoch of the first batch, and a byte of its payload.
    assert!(changed(&|file| file[108] ^= 1).contains("hashes"));
    assert!(changed(&|file| file[200] ^= 1).contains("hashes"));
}
