//! Mistakes in the journals, each found by a test of this binary.

use bursar_seeded::Bug;
use bursar_seeded::caught::{FoundBy, assert_each_is_found};

const FOUND_BY: &[FoundBy] = &[
    (Bug::AppendsWithoutEpoch, "conformance::the_sqlite_journal_obeys_every_law"),
    (Bug::SkipsHashChain, "conformance::the_sqlite_journal_obeys_every_law"),
    (
        Bug::AcceptsTornFrame,
        "sqlite_tail::a_torn_append_never_makes_a_tail_look_older_than_its_journal",
    ),
];

#[test]
fn every_seeded_bug_of_the_journal_is_found() {
    assert_each_is_found(FOUND_BY);
}
