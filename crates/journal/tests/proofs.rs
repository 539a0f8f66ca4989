//! The offline verifier accepts every valid proof and rejects every invalid one.

use bursar_core::digest::Digest;
use bursar_core::time::Timestamp;
use bursar_journal::JournalId;
use bursar_journal::merkle::{
    Checkpoint, ConsistencyProof, Frontier, InclusionProof, MerkleTree, ProofError,
    SignedCheckpoint, SigningKey, Verifier,
};
use proptest::prelude::*;

const JOURNAL: JournalId = JournalId([9; 16]);
/// Every size up to here is tested with every position.
const SIZES: u64 = 24;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[42; 32])
}

fn verifier() -> Verifier {
    Verifier::new(JOURNAL, key().verifying_key())
}

fn frame(number: u64) -> Vec<u8> {
    // One of them is as long as two hashes, so that it could be mistaken for an inner node.
    number.to_le_bytes().repeat(usize::try_from(number % 9).expect("small") + 1)
}

fn tree(size: u64) -> MerkleTree {
    let mut tree = MerkleTree::new();
    for position in 1..=size {
        tree.push(&frame(position));
    }
    tree
}

fn checkpoint(tree: &MerkleTree, size: u64) -> Checkpoint {
    let root = tree.root(size).expect("the tree is larger");
    Checkpoint { journal: JOURNAL, size, root, time: Timestamp::from_millis(1) }
}

fn signed(tree: &MerkleTree, size: u64) -> SignedCheckpoint {
    checkpoint(tree, size).sign(&key())
}

/// The definition of RFC 6962, implemented literally.
fn naive_root(frames: &[Vec<u8>]) -> Digest {
    let hash = |parts: &[&[u8]]| Digest(*blake3::hash(&parts.concat()).as_bytes());
    match frames {
        [] => hash(&[]),
        [one] => hash(&[&[0], one]),
        many => {
            let mut split = 1;
            while split * 2 < many.len() {
                split *= 2;
            }
            let (left, right) = (naive_root(&many[..split]), naive_root(&many[split..]));
            hash(&[&[1], &left.0, &right.0])
        }
    }
}

#[test]
fn roots_match_the_definition() {
    let mut frontier = Frontier::new();
    let whole = tree(SIZES);
    let frames: Vec<_> = (1..=SIZES).map(frame).collect();
    assert_eq!(whole.root(0), Some(naive_root(&[])));
    for size in 1..=SIZES {
        frontier.push(&frame(size));
        let expected = naive_root(&frames[..usize::try_from(size).expect("small")]);
        assert_eq!(frontier.root(), expected);
        assert_eq!(frontier.size(), size);
        assert_eq!(whole.root(size), Some(expected));
    }
    assert_eq!(whole.root(SIZES + 1), None);
}

#[test]
fn every_valid_proof_is_accepted() {
    let whole = tree(SIZES);
    for size in 1..=SIZES {
        for position in 1..=size {
            let proof = whole.inclusion(position, size).expect("it is in the tree");
            let accepted =
                verifier().inclusion(&signed(&whole, size), position, &frame(position), &proof);
            assert_eq!(accepted, Ok(()), "{position} of {size}");
        }
        for old in 1..=size {
            let proof = whole.consistency(old, size).expect("both are in the tree");
            let accepted =
                verifier().consistency(&signed(&whole, old), &signed(&whole, size), &proof);
            assert_eq!(accepted, Ok(()), "{old} to {size}");
        }
    }
}

#[test]
fn the_position_of_its_last_record_proves_that_a_history_continues() {
    let whole = tree(SIZES);
    let mut rewritten = tree(3);
    (4..=SIZES).for_each(|position| rewritten.push(&frame(position + 1)));
    for new in 1..=SIZES {
        for old in 1..=new {
            let (older, newer) = (signed(&whole, old), signed(&whole, new));
            let proof = whole.inclusion(old, new).expect("it is in the tree");
            let went_on = verifier().continuation(&older, &newer, &frame(old), &proof);
            assert_eq!(went_on, Ok(()), "{old} to {new}");
            if old < new {
                let back = verifier().continuation(&newer, &older, &frame(old), &proof);
                assert_eq!(back, Err(ProofError::Shrunk));
            }
            if old > 3 {
                // The same size under the same key, but other records from the fourth on.
                let other = signed(&rewritten, old);
                let proven = verifier().continuation(&other, &newer, &frame(old), &proof);
                assert_eq!(proven, Err(ProofError::Root), "{old} to {new}");
            }
        }
    }
}

#[test]
fn proofs_about_missing_records_cannot_be_made() {
    let whole = tree(5);
    assert_eq!(whole.inclusion(0, 5), None);
    assert_eq!(whole.inclusion(6, 5), None);
    assert_eq!(whole.inclusion(1, 6), None);
    assert_eq!(whole.consistency(0, 5), None);
    assert_eq!(whole.consistency(5, 4), None);
    assert_eq!(whole.consistency(5, 6), None);
}

#[test]
fn a_proof_for_one_position_is_rejected_at_every_other() {
    let whole = tree(SIZES);
    let heads: Vec<_> = (1..=SIZES).map(|size| (size, signed(&whole, size))).collect();
    for (size, head) in &heads {
        let size = *size;
        for position in 1..=size {
            let proof = whole.inclusion(position, size).expect("it is in the tree");
            for other in 0..=size + 2 {
                let accepted = verifier().inclusion(head, other, &frame(position), &proof);
                assert_eq!(accepted.is_ok(), other == position, "{position} at {other} of {size}");
            }
            for (other, head) in heads.iter().filter(|(other, _)| *other != size) {
                let accepted = verifier().inclusion(head, position, &frame(position), &proof);
                assert!(accepted.is_err(), "{position} of {size} in {other}");
            }
        }
    }
}

#[test]
fn a_consistency_proof_fits_only_its_own_two_sizes() {
    let whole = tree(16);
    let heads: Vec<_> = (1..=16).map(|size| signed(&whole, size)).collect();
    let head = |size: u64| &heads[usize::try_from(size).expect("small") - 1];
    for (old, new) in (1..=16).flat_map(|new| (1..=new).map(move |old| (old, new))) {
        let proof = whole.consistency(old, new).expect("both are in the tree");
        for (other_old, other_new) in (1..=16).flat_map(|a| (1..=16).map(move |b| (a, b))) {
            let accepted = verifier().consistency(head(other_old), head(other_new), &proof);
            let same = (old, new) == (other_old, other_new);
            // Two equal sizes need no hashes.
            let trivial = old == new && other_old == other_new;
            assert_eq!(accepted.is_ok(), same || trivial, "{old},{new} as {other_old},{other_new}");
        }
    }
}

#[test]
fn a_rewritten_history_is_never_consistent() {
    let whole = tree(SIZES);
    for changed in 1..=12 {
        let mut forged = MerkleTree::new();
        for position in 1..=SIZES {
            let number = if position == changed { 1_000 } else { position };
            forged.push(&frame(number));
        }
        for old in changed..=12 {
            for new in old..=SIZES {
                let proof = forged.consistency(old, new).expect("both are in the tree");
                let accepted =
                    verifier().consistency(&signed(&whole, old), &signed(&forged, new), &proof);
                assert_eq!(accepted, Err(ProofError::Root), "{changed} in {old} of {new}");
            }
        }
    }
}

#[test]
fn only_the_right_key_and_the_right_journal_count() {
    let whole = tree(7);
    let proof = whole.inclusion(3, 7).expect("it is in the tree");
    let check = |head: &SignedCheckpoint| verifier().inclusion(head, 3, &frame(3), &proof);
    assert_eq!(check(&signed(&whole, 7)), Ok(()));
    let stranger = SigningKey::from_bytes(&[43; 32]);
    assert_eq!(check(&checkpoint(&whole, 7).sign(&stranger)), Err(ProofError::Signature));
    let elsewhere = Checkpoint { journal: JournalId([8; 16]), ..checkpoint(&whole, 7) };
    assert_eq!(check(&elsewhere.sign(&key())), Err(ProofError::Journal));
    let empty = Checkpoint { size: 0, ..checkpoint(&whole, 0) };
    assert_eq!(check(&empty.sign(&key())), Err(ProofError::Empty));
    let mut resized = signed(&whole, 7);
    resized.checkpoint.size = 8;
    assert_eq!(check(&resized), Err(ProofError::Signature));
}

#[test]
fn an_inner_node_is_never_accepted_as_a_record() {
    // The two leaves of a tree, concatenated, hash like its root except for the prefix.
    let whole = tree(2);
    let leaves: Vec<u8> = (1..=2)
        .flat_map(|position| {
            blake3::hash(&[&[0], &frame(position)[..]].concat()).as_bytes().to_vec()
        })
        .collect();
    let root = whole.root(2).expect("two records");
    for size in [1, 2] {
        let forged = Checkpoint { journal: JOURNAL, size, root, time: Timestamp::default() };
        let accepted =
            verifier().inclusion(&forged.sign(&key()), 1, &leaves, &InclusionProof::default());
        assert!(accepted.is_err(), "{size}");
    }
}

#[test]
fn signed_checkpoints_have_one_form() {
    let golden = signed(&tree(3), 3);
    let bytes = golden.to_bytes();
    assert_eq!(SignedCheckpoint::from_bytes(&bytes), Some(golden));
    assert_eq!(&bytes[..16], b"bursar check v1\0");
    for length in 0..bytes.len() {
        assert_eq!(SignedCheckpoint::from_bytes(&bytes[..length]), None);
    }
    assert_eq!(SignedCheckpoint::from_bytes(&[&bytes[..], &[0]].concat()), None);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let accepted =
            SignedCheckpoint::from_bytes(&flipped).map(|read| verifier().checkpoint(&read));
        assert!(!matches!(accepted, Some(Ok(_))), "bit {bit}");
    }
}

/// A defect in the hashes of a proof.
#[derive(Clone, Debug)]
enum Wrong {
    Flip(usize, usize),
    Drop(usize),
    Repeat(usize),
    Extra(usize, [u8; 32]),
    Swap(usize, usize),
    Reverse,
}

fn wrongs() -> impl Strategy<Value = Wrong> {
    let at = 0..20_usize;
    prop_oneof![
        (at.clone(), 0..256_usize).prop_map(|(at, bit)| Wrong::Flip(at, bit)),
        at.clone().prop_map(Wrong::Drop),
        at.clone().prop_map(Wrong::Repeat),
        (at.clone(), any::<[u8; 32]>()).prop_map(|(at, hash)| Wrong::Extra(at, hash)),
        (at.clone(), at).prop_map(|(a, b)| Wrong::Swap(a, b)),
        Just(Wrong::Reverse),
    ]
}

fn spoil(path: &mut Vec<Digest>, wrong: &Wrong) {
    let length = path.len();
    let within = |at: usize| at % length.max(1);
    match wrong {
        Wrong::Extra(at, hash) => path.insert(at % (length + 1), Digest(*hash)),
        _ if length == 0 => {}
        Wrong::Flip(at, bit) => path[within(*at)].0[bit / 8] ^= 1 << (bit % 8),
        Wrong::Drop(at) => drop(path.remove(within(*at))),
        Wrong::Repeat(at) => path.insert(within(*at), path[within(*at)]),
        Wrong::Swap(a, b) => path.swap(within(*a), within(*b)),
        Wrong::Reverse => path.reverse(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_corrupted_proof_is_rejected(
        size in 1..300_u64,
        from in any::<u64>(),
        wrong in wrongs(),
    ) {
        let whole = tree(size);
        let position = from % size + 1;
        let head = signed(&whole, size);
        let right = whole.inclusion(position, size).expect("it is in the tree");
        let mut spoiled = right.clone();
        spoil(&mut spoiled.path, &wrong);
        let accepted = verifier().inclusion(&head, position, &frame(position), &spoiled);
        prop_assert_eq!(accepted.is_ok(), spoiled == right);

        let right = whole.consistency(position, size).expect("both are in the tree");
        let mut spoiled: ConsistencyProof = right.clone();
        spoil(&mut spoiled.path, &wrong);
        let accepted = verifier().consistency(&signed(&whole, position), &head, &spoiled);
        prop_assert_eq!(accepted.is_ok(), spoiled == right);
    }
}
