//! A model of the protocol between members and the database, checked in every reachable state of small sizes, and
//! with each known mistake.

mod election;
mod model;
mod properties;
mod state;

use model::{Mistake, Protocol};
use properties::{
    LINE_GOES_ON, LOSS_IS_NOT_SERVED, MESSAGES_ONCE, NOTHING_LOST, NOTHING_TWICE, ONE_OWNER,
    READS_ARE_CURRENT,
};
use state::Faults;
use stateright::{Checker, HasDiscoveries, Model};

const NO_FAULTS: Faults =
    Faults { crashes: 0, expiries: 0, hand_overs: 0, promotions: 0, lossy_promotions: 0 };

/// Visits every reachable state with the faults, and with those of the nightly run if `BURSAR_NIGHTLY` is set.
fn check(faults: Faults, nightly: Faults) {
    let is_nightly = std::env::var_os("BURSAR_NIGHTLY").is_some();
    let protocol = with(if is_nightly { nightly } else { faults });
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    assert!(checker.is_done());
    checker.assert_properties();
}

fn with(faults: Faults) -> Protocol {
    Protocol { members: 2, requests: 2, faults, mistake: None }
}

#[test]
fn the_properties_hold_under_crashes() {
    check(Faults { crashes: 1, ..NO_FAULTS }, Faults { crashes: 2, ..NO_FAULTS });
}

#[test]
fn the_properties_hold_when_trust_ends() {
    check(Faults { expiries: 1, ..NO_FAULTS }, Faults { expiries: 2, ..NO_FAULTS });
}

#[test]
fn the_properties_hold_under_a_hand_over() {
    let hand_over = Faults { hand_overs: 1, ..NO_FAULTS };
    check(hand_over, Faults { crashes: 1, ..hand_over });
}

#[test]
fn the_properties_hold_when_the_standby_is_promoted() {
    let promotion = Faults { promotions: 1, ..NO_FAULTS };
    check(promotion, Faults { expiries: 1, ..promotion });
}

#[test]
fn a_lossy_promotion_is_not_served_and_doubles_nothing() {
    let lossy = Faults { lossy_promotions: 1, ..NO_FAULTS };
    check(lossy, Faults { expiries: 1, ..lossy });
}

#[test]
fn every_mistake_is_found() {
    let expiry = Faults { expiries: 1, ..NO_FAULTS };
    let crash = Faults { crashes: 1, ..NO_FAULTS };
    let promotion = Faults { promotions: 1, ..NO_FAULTS };
    let lossy = Faults { lossy_promotions: 1, expiries: 1, ..NO_FAULTS };
    let found_by: [(Mistake, Faults, &'static str); 12] = [
        (Mistake::AnswersBeforeDurable, expiry, NOTHING_LOST),
        (Mistake::AnswersBeforeReplicated, promotion, NOTHING_LOST),
        (Mistake::AppendsWithoutCheck, expiry, NOTHING_TWICE),
        (Mistake::TrustOutlivesLease, NO_FAULTS, ONE_OWNER),
        (Mistake::SkipsBarrier, Faults { promotions: 1, ..crash }, NOTHING_LOST),
        (Mistake::ReadsWithoutTrust, expiry, READS_ARE_CURRENT),
        (Mistake::HandsOverWithoutFlush, Faults { hand_overs: 1, ..NO_FAULTS }, NOTHING_LOST),
        (Mistake::DeliversBeforeDurable, promotion, MESSAGES_ONCE),
        (Mistake::MarkWithoutHash, lossy, LINE_GOES_ON),
        (Mistake::MarkNotInCommit, crash, MESSAGES_ONCE),
        (Mistake::ForgetsRequestIds, crash, NOTHING_TWICE),
        (Mistake::SkipsLossGuard, lossy, LOSS_IS_NOT_SERVED),
    ];
    for (mistake, faults, property) in found_by {
        let protocol = Protocol { mistake: Some(mistake), ..with(faults) };
        let finish = HasDiscoveries::AnyOf([property].into());
        let checker = protocol.checker().threads(2).finish_when(finish).spawn_bfs().join();
        let steps = checker.discovery(property).map(|trace| trace.into_actions().len());
        println!("{mistake:?}: {steps:?} steps, {} states", checker.unique_state_count());
        assert!(steps.is_some(), "{mistake:?} does not violate: {property}");
    }
}
