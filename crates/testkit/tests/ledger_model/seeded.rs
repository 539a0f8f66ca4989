//! Mistakes in the ledger, each found by the comparison with the model.

use bursar_seeded::Bug;
use bursar_seeded::caught::{FoundBy, assert_each_is_found};

const MODEL: &str = "the_first_worlds_agree_with_the_model";

const FOUND_BY: &[FoundBy] = &[
    (Bug::ForgetsAnswer, MODEL),
    (Bug::IgnoresFingerprint, MODEL),
    (Bug::RefundsMoreThanSpent, MODEL),
    (Bug::IgnoresEarlierRefund, MODEL),
    (Bug::SpendsNearestFirst, MODEL),
    (Bug::ExpiresEarly, MODEL),
    (Bug::BudgetIgnoresHeld, MODEL),
    (Bug::TakesStaleCapture, MODEL),
];

#[test]
fn every_seeded_bug_of_the_ledger_is_found() {
    assert_each_is_found(FOUND_BY);
}
