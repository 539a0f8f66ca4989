//! When a waiting job can start, as far as is known.

use crate::cell_world;

use bursar_core::cell::JobId;
use bursar_core::cell::command::{AccountPolicy, Command, QuotaSpec};
use bursar_core::cell::schedule::explain::{Estimate, PlacementBlocker, PlacementState};
use cell_world::*;

fn estimate(world: &World, job: JobId) -> Option<Estimate> {
    world.cell.why(job, at(world.now)).expect("it waits").estimate
}

#[test]
fn an_estimate_follows_attempts_that_end_early() {
    let mut world = World::with_nodes(2, "H100");
    let begin = world.now;
    let mut first = world.spec("a", 8, 5 * HOUR);
    first.preemptible = false;
    let first = world.submit(first);
    world.durations.insert(first, HOUR);
    let mut second = world.spec("b", 8, 3 * HOUR);
    second.preemptible = false;
    world.submit(second);
    let mut gang = world.spec("c", 8, HOUR);
    gang.nodes = 2;
    let gang = world.submit(gang);
    world.pass(5 * MINUTE, 30 * SECOND);
    let before = estimate(&world, gang).expect("every attempt has a longest runtime");
    assert!(before.at >= at(begin + 5 * HOUR), "the first may run for five hours: {}", before.at);
    world.pass(2 * HOUR, MINUTE);
    let after = estimate(&world, gang).expect("the second has a longest runtime");
    assert!(after.at < before.at, "{} is not before {}", after.at, before.at);
    assert!(after.at >= at(begin + 3 * HOUR), "the second may run for three hours: {}", after.at);
    world.pass(2 * HOUR, MINUTE);
    let started = world.started.get(&gang).copied().expect("both are gone");
    assert!(at(started) <= after.at, "estimated {}, started {}", after.at, at(started));
    world.check_replay();
}

#[test]
fn an_estimate_hardly_changes_when_the_attempt_in_the_way_starts() {
    let mut world = World::with_nodes(1, "H100");
    // Requests round this up to twenty minutes.
    let first = world.run("a", 8, 12 * MINUTE);
    let second = world.run("a", 4, HOUR);
    let runs = |world: &World| {
        let why = world.cell.why(first, at(world.now)).expect("it is here");
        why.state == PlacementState::Running
    };
    assert!(!runs(&world));
    let before = estimate(&world, second).expect("the first has a longest runtime");
    world.pass(2 * MINUTE, 10 * SECOND);
    assert!(runs(&world));
    let after = estimate(&world, second).expect("the first has a longest runtime");
    assert!(after.at <= before.at, "{} is after {}", after.at, before.at);
    let sooner = before.at.millis_since(after.at);
    assert!(sooner <= MINUTE, "no more than a start is allowed to take, and not {sooner} ms");
    world.check_replay();
}

#[test]
fn nothing_is_estimated_where_a_quota_or_a_freeze_blocks() {
    let mut world = World::with_nodes(1, "H100");
    let quota = QuotaSpec { total_gpus: Some(1000), ..QuotaSpec::default() };
    world.ok(Command::SetAccount(AccountPolicy { quota, ..AccountPolicy::new("a") }));
    let limited = world.run("a", 4, HOUR);
    let why = world.cell.why(limited, at(world.now)).expect("it waits");
    let is_quota = |blocker: &PlacementBlocker| matches!(blocker, PlacementBlocker::Quota { .. });
    assert!(why.blockers.iter().any(is_quota), "{:?}", why.blockers);
    assert_eq!(why.estimate, None, "free GPUs do not help");
    world.ok(Command::SetAccount(AccountPolicy { frozen: true, ..AccountPolicy::new("b") }));
    let frozen = world.run("b", 4, HOUR);
    assert_eq!(estimate(&world, frozen), None);
    world.ok(Command::SetAccount(AccountPolicy::new("b")));
    world.pass(MINUTE, 30 * SECOND);
    assert!(world.has_started(frozen));
    world.check_replay();
}

#[test]
fn a_job_that_an_operator_preempted_is_not_estimated_before_it_may_be_placed() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.ok(Command::PreemptJob { job, by_platform: true });
    let mut seen = 0;
    for _ in 0..120 {
        world.pass(SECOND, SECOND);
        let why = world.cell.why(job, at(world.now)).expect("it is here");
        let until = why.blockers.iter().find_map(|blocker| match blocker {
            PlacementBlocker::Delayed { until } => Some(*until),
            _ => None,
        });
        if let (Some(until), Some(estimate)) = (until, why.estimate) {
            seen += 1;
            assert!(estimate.at >= until, "{} is before {until}", estimate.at);
        }
    }
    assert!(seen > 0, "it waited out its delay");
    world.check_replay();
}
