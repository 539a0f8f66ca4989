//! Which attempts are preempted for which jobs, and that preemption does not run in circles.

use crate::cell_world;

use bursar_core::cell::command::{AccountPolicy, Command};
use bursar_core::cell::event::{Event, JobOutcome, StopReason};
use bursar_core::cell::schedule::explain::PlacementState;
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::cell::{CellConfig, ClassRank, JobId};
use cell_world::*;

fn state(world: &World, job: JobId) -> Option<PlacementState> {
    world.cell.why(job, at(world.now)).map(|why| why.state)
}

/// The causes of all preemptions, in order.
fn causes(world: &World) -> Vec<PreemptionCause> {
    let events = world.journal.iter().flat_map(|(_, events)| events);
    let stops = events.filter_map(|event| match event {
        Event::StopOrdered { reason: StopReason::Preempted { cause, .. }, .. } => {
            Some(cause.expect("every preemption has a cause"))
        }
        _ => None,
    });
    stops.collect()
}

fn in_class(world: &mut World, account: &str, gpus: u16, rank: ClassRank) -> JobId {
    let spec = world.spec(account, gpus, 10 * HOUR);
    world.submit(class(spec, rank))
}

#[test]
fn a_higher_class_takes_the_least_it_needs_and_the_victim_is_requeued() {
    let mut world = World::with_nodes(2, "H100");
    let batch = in_class(&mut world, "a", 4, ClassRank::BATCH);
    let normal = in_class(&mut world, "a", 4, ClassRank::NORMAL);
    let other = in_class(&mut world, "b", 8, ClassRank::NORMAL);
    world.pass(5 * MINUTE, 30 * SECOND);
    let urgent = in_class(&mut world, "c", 4, ClassRank::URGENT);
    assert_eq!(world.victims(), [(batch, urgent)], "the lowest class, and no other attempt");
    let (victim, taker) = (ClassRank::BATCH, ClassRank::URGENT);
    assert_eq!(causes(&world), [PreemptionCause::Class { victim, taker }]);
    assert_eq!(state(&world, batch), Some(PlacementState::Stopping));
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, urgent), Some(PlacementState::Running));
    assert_eq!(state(&world, batch), Some(PlacementState::Queued));
    let why = world.cell.why(batch, at(world.now)).expect("it waits");
    assert_eq!(why.preempted, Some((urgent, PreemptionCause::Class { victim, taker })));
    assert_eq!(state(&world, normal), Some(PlacementState::Running));
    assert_eq!(state(&world, other), Some(PlacementState::Running));
    world.pass(HOUR, MINUTE);
    assert_eq!(world.victims().len(), 1, "it does not preempt its taker");
    world.check_replay();
}

#[test]
fn no_attempt_is_preempted_unless_the_whole_job_fits_afterwards() {
    let mut world = World::with_nodes(2, "H100");
    for node in 0..2 {
        in_class(&mut world, "a", 4, ClassRank::BATCH);
        let mut firm = world.spec("a", 4, 10 * HOUR);
        firm.preemptible = false;
        world.submit(firm);
        assert!(node < 2);
    }
    world.pass(5 * MINUTE, 30 * SECOND);
    let too_large = in_class(&mut world, "b", 8, ClassRank::URGENT);
    let mut gang = world.spec("b", 4, HOUR);
    gang.nodes = 3;
    let gang = world.submit(class(gang, ClassRank::URGENT));
    world.pass(HOUR, MINUTE);
    assert_eq!(world.victims(), []);
    assert_eq!(state(&world, too_large), Some(PlacementState::Queued));
    let mut fits = world.spec("b", 4, HOUR);
    fits.nodes = 2;
    let fits = world.submit(class(fits, ClassRank::URGENT));
    assert_eq!(world.victims().len(), 2);
    world.pass(3 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, fits), Some(PlacementState::Running));
    assert_eq!(state(&world, gang), Some(PlacementState::Queued));
    world.check_replay();
}

#[test]
fn freed_gpus_are_reserved_for_the_taker() {
    let mut world = World::with_nodes(1, "H100");
    let batch = in_class(&mut world, "a", 8, ClassRank::BATCH);
    world.pass(5 * MINUTE, 30 * SECOND);
    let high = in_class(&mut world, "b", 8, ClassRank::HIGH);
    let small = in_class(&mut world, "c", 1, ClassRank::HIGH);
    assert_eq!(world.victims(), [(batch, high)]);
    world.pass(2 * MINUTE, 10 * SECOND);
    assert_eq!(state(&world, high), Some(PlacementState::Running));
    assert_eq!(state(&world, small), Some(PlacementState::Queued));
    world.check_replay();
}

#[test]
fn an_account_under_its_share_takes_from_one_over_it_after_ten_minutes() {
    let mut world = World::with_nodes(1, "H100");
    let greedy: Vec<_> = (0..8).map(|_| world.run("greedy", 1, 10 * HOUR)).collect();
    world.pass(5 * MINUTE, 30 * SECOND);
    let modest = world.run("modest", 2, HOUR);
    world.pass(4 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims(), [], "no attempt has run for ten minutes");
    world.pass(30 * MINUTE, 30 * SECOND);
    let taken = world.victims();
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().all(|(victim, by)| greedy.contains(victim) && *by == modest));
    for cause in causes(&world) {
        let PreemptionCause::Share { victim_used, taker_used, ran_ms, quantum_ms } = cause else {
            panic!("{cause:?}")
        };
        assert!(victim_used > taker_used && taker_used > 0, "{cause:?}");
        assert!(ran_ms >= quantum_ms && quantum_ms == 10 * MINUTE, "{cause:?}");
    }
    assert_eq!(state(&world, modest), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn equal_accounts_that_both_wait_take_turns_that_grow() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    for _ in 0..10 {
        world.run("a", 8, 20 * HOUR);
        world.run("b", 8, 20 * HOUR);
    }
    world.pass(4 * DAY, MINUTE);
    // The quantum doubles with each preemption. In four days of ten minutes, twenty, forty … a job
    // is preempted at most nine times.
    let mut by_victim = std::collections::BTreeMap::new();
    for (victim, _) in world.victims() {
        *by_victim.entry(victim).or_insert(0) += 1;
    }
    assert!(by_victim.values().all(|count| *count <= 9), "{by_victim:?}");
    world.check_replay();
}

#[test]
fn a_long_job_that_cannot_save_its_work_gets_through_an_endless_backlog() {
    for hours in [3, 30] {
        let mut world = World::with_nodes(1, "H100");
        world.checks = false;
        let accounts = ["one", "two", "three"];
        let crowd: Vec<_> = (0..600).map(|index| world.run(accounts[index % 3], 4, HOUR)).collect();
        let long = world.run("lone", 4, hours * HOUR);
        world.run("lone", 4, HOUR);
        world.pass(hours * 8 * HOUR, MINUTE);
        // It starts over after each preemption. Other accounts are always under their share, and
        // its own account has a backlog too.
        let taken = world.victims().iter().filter(|(victim, _)| *victim == long).count();
        assert!((2..=9).contains(&taken), "{hours} h: preempted {taken} times");
        assert_eq!(world.outcomes.get(&long), Some(&JobOutcome::Succeeded), "{hours} h");
        assert!(crowd.iter().any(|job| state(&world, *job).is_some()), "there is a backlog");
        world.check_replay();
    }
}

#[test]
fn accounts_of_weight_zero_are_preempted_and_never_preempt() {
    let mut world = World::with_nodes(1, "H100");
    for path in ["zero", "nil"] {
        world.ok(Command::SetAccount(AccountPolicy { weight: 0, ..AccountPolicy::new(path) }));
    }
    let zero = world.run("zero", 8, 10 * HOUR);
    let nil = world.run("nil", 8, 10 * HOUR);
    world.pass(HOUR, MINUTE);
    assert_eq!(world.victims(), [], "neither is under its share of nothing");
    let some = world.run("some", 8, HOUR);
    world.pass(30 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims(), [(zero, some)]);
    world.pass(5 * HOUR, MINUTE);
    assert_eq!(world.victims().len(), 1);
    assert_eq!(
        state(&world, nil),
        Some(PlacementState::Running),
        "it has used less than the other"
    );
    world.check_replay();
}

#[test]
fn the_same_job_submitted_again_and_again_preempts_no_more_than_the_first() {
    let mut world = World::with_nodes(1, "H100");
    for _ in 0..8 {
        world.run("greedy", 1, 100 * HOUR);
    }
    world.pass(HOUR, MINUTE);
    for _ in 0..5 {
        let job = world.run("modest", 1, 10 * MINUTE);
        world.pass(30 * MINUTE, 30 * SECOND);
        assert_eq!(state(&world, job), None, "it ran and ended");
    }
    let preempted = world.victims().len();
    assert!(preempted <= 5, "at most one for each: {preempted}");
    world.check_replay();
}

#[test]
fn a_cancelled_taker_releases_its_nodes() {
    let mut world = World::with_nodes(1, "H100");
    let batch = in_class(&mut world, "a", 8, ClassRank::BATCH);
    world.pass(5 * MINUTE, 30 * SECOND);
    let high = in_class(&mut world, "b", 8, ClassRank::HIGH);
    world.ok(Command::CancelJob { job: high });
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, batch), Some(PlacementState::Running), "it is back");
    world.check_replay();
}

#[test]
fn no_more_attempts_are_preempted_at_once_than_the_limit() {
    let mut world = World::with_nodes(4, "H100");
    let config = CellConfig { victims_per_review: 2, ..CellConfig::default() };
    world.ok(Command::Configure(config));
    for _ in 0..4 {
        in_class(&mut world, "a", 8, ClassRank::BATCH);
    }
    world.pass(5 * MINUTE, 30 * SECOND);
    for _ in 0..4 {
        in_class(&mut world, "b", 8, ClassRank::HIGH);
    }
    assert_eq!(world.victims().len(), 2);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims().len(), 4);
    world.check_replay();
}

#[test]
fn a_plan_lasts_until_slow_agents_have_reported() {
    let mut world = World::with_nodes(2, "H100");
    world.ok(Command::Configure(CellConfig { node_lease_ms: HOUR, ..CellConfig::default() }));
    world.heartbeat();
    for _ in 0..2 {
        let mut firm = world.spec("a", 5, 100 * HOUR);
        firm.preemptible = false;
        firm.nodes = 1;
        world.submit(firm);
    }
    let cancelled = in_class(&mut world, "a", 3, ClassRank::BATCH);
    let small = in_class(&mut world, "a", 3, ClassRank::BATCH);
    let large = in_class(&mut world, "b", 3, ClassRank::NORMAL);
    // No agent has reported yet: preempted jobs are requeued at once, while the GPUs stay fenced
    // until the agents have answered, ten minutes from now.
    world.ok(Command::CancelJob { job: cancelled });
    world.pass(3 * HOUR, 5 * MINUTE);
    assert_eq!(state(&world, large), Some(PlacementState::Running));
    assert!(world.preemptions <= 2, "{small:?} was preempted {} times", world.preemptions);
    world.check_replay();
}

#[test]
fn an_aged_job_of_an_account_over_its_share_does_not_block_a_fresh_account() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    let runs = world.run("greedy", 8, 100 * HOUR);
    world.run("greedy", 8, 100 * HOUR);
    world.pass(30 * HOUR, MINUTE);
    // The waiting job is aged by now, and may not preempt attempts of its own account.
    let fresh = world.run("fresh", 8, 100 * HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims(), [(runs, fresh)]);
    assert_eq!(state(&world, fresh), Some(PlacementState::Running));
    world.check_replay();
}
