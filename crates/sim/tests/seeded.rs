//! Mistakes in the machines and in the protocol between them, each found by a few worlds of the
//! simulation. `BURSAR_SEEDED_WORLDS` is the number of worlds (48 by default).

use bursar_seeded::Bug;
use bursar_seeded::caught::{FoundBy, assert_each_is_found};
use bursar_sim::world::{WorldOptions, run};

const WORLDS: &str = "worlds_obey_every_law";

const FOUND_BY: &[FoundBy] = &[
    (Bug::AppendsWithoutEpoch, WORLDS),
    (Bug::ReplayDropsLastRecord, WORLDS),
    (Bug::TakesMessageTwice, WORLDS),
    (Bug::TakesMessageTooEarly, WORLDS),
    (Bug::MarksWithoutEffect, WORLDS),
    (Bug::RoundsChargeUp, WORLDS),
    (Bug::HoldLapsesWhileRunning, WORLDS),
    (Bug::KeepsHoldOfEndedAttempt, WORLDS),
    (Bug::ConfirmsTwice, WORLDS),
    (Bug::TakesStaleReport, WORLDS),
    (Bug::LosesNodeEarly, WORLDS),
    (Bug::SkipsFence, WORLDS),
    (Bug::GivesQuotaTwice, WORLDS),
    (Bug::TrustsAgentClock, WORLDS),
    (Bug::StartsUnconfirmed, WORLDS),
    (Bug::ReusesAttemptNumber, WORLDS),
];

#[test]
fn worlds_obey_every_law() {
    let worlds = std::env::var("BURSAR_SEEDED_WORLDS")
        .map_or(48, |worlds| worlds.parse().expect("BURSAR_SEEDED_WORLDS is a number"));
    for seed in 0..worlds {
        let ledgers = 2 + u16::try_from(seed % 2).expect("small");
        println!("world {seed}");
        if let Err(broken) = run(seed, WorldOptions { ledgers, ..WorldOptions::default() }) {
            panic!("{broken}");
        }
    }
}

#[test]
fn every_seeded_bug_of_the_machines_is_found() {
    assert_each_is_found(FOUND_BY);
}
