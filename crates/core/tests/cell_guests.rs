//! Guests: preemptible jobs on nodes reserved for a gang whose start is an estimate.

use crate::cell_world;

use bursar_core::cell::JobId;
use bursar_core::cell::event::{AttemptOutcome, Event, StopReason};
use bursar_core::cell::schedule::explain::PlacementState;
use cell_world::*;

fn state(world: &World, job: JobId) -> Option<PlacementState> {
    world.cell.why(job, at(world.now)).map(|why| why.state)
}

/// The start that was last reserved for a gang, and whether guests were allowed.
fn promise(world: &World, gang: JobId) -> Option<(i64, bool)> {
    let events = world.journal.iter().flat_map(|(_, events)| events);
    let mut promises = events.filter_map(|event| match event {
        Event::ReservationMade { job, start_at, guests, preempting: false, .. } if *job == gang => {
            Some((start_at.millis(), *guests))
        }
        _ => None,
    });
    promises.next_back()
}

fn preempted_for(world: &World, gang: JobId) -> Vec<JobId> {
    let events = world.journal.iter().flat_map(|(_, events)| events);
    let ended = events.filter_map(|event| match event {
        Event::AttemptEnded {
            attempt,
            outcome: AttemptOutcome::Stopped(StopReason::Preempted { by, .. }),
            ..
        } if *by == gang => Some(attempt.job),
        _ => None,
    });
    ended.collect()
}

/// Two nodes. The first runs a job without a longest runtime that is not preemptible, and a gang
/// waits for both.
fn waiting_gang() -> (World, JobId, JobId) {
    gang_behind(None)
}

/// The same, where the job has this longest runtime.
fn gang_behind(max_runtime_ms: Option<i64>) -> (World, JobId, JobId) {
    let mut world = World::with_nodes(2, "H100");
    let mut host = world.spec("host", 8, 2 * HOUR);
    host.max_runtime_ms = max_runtime_ms;
    host.preemptible = false;
    let host = world.submit(host);
    world.pass(MINUTE, MINUTE);
    let mut gang = world.spec("gang", 8, HOUR);
    gang.nodes = 2;
    gang.preemptible = false;
    let gang = world.submit(gang);
    world.pass(MINUTE, MINUTE);
    assert_eq!(state(&world, host), Some(PlacementState::Running));
    assert_eq!(state(&world, gang), Some(PlacementState::Queued));
    (world, host, gang)
}

#[test]
fn guests_use_a_reserved_node_and_are_evicted_without_delaying_the_gang() {
    let (mut world, host, gang) = waiting_gang();
    let (promised, guests) = promise(&world, gang).expect("its nodes are reserved");
    assert!(guests, "the end of the host is unknown");
    // Longer than the host will run: it can only start here as a guest.
    let guest = world.run("guest", 4, 10 * HOUR);
    let second = world.run("guest", 4, 10 * HOUR);
    let mut firm = world.spec("firm", 1, 30 * HOUR);
    firm.preemptible = false;
    let firm = world.submit(firm);
    world.pass(20 * MINUTE, MINUTE);
    assert_eq!(state(&world, guest), Some(PlacementState::Running));
    assert_eq!(state(&world, second), Some(PlacementState::Running));
    assert_eq!(state(&world, firm), Some(PlacementState::Queued), "not preemptible");
    assert_eq!(world.preemptions, 0, "guests stay while the gang could not start anyway");
    // The host ends by itself after two hours. Then only the guests are in the way.
    while !world.outcomes.contains_key(&host) {
        world.pass(MINUTE, MINUTE);
        assert!(!world.has_started(gang));
    }
    let freed = world.now;
    while !world.has_started(gang) {
        world.pass(MINUTE, MINUTE);
        assert!(world.now <= promised, "the reserved start is kept");
    }
    assert_eq!(preempted_for(&world, gang), [guest, second]);
    assert!(world.started[&gang] <= promised);
    let grace = 5 * MINUTE;
    assert!(world.started[&gang] - freed <= grace, "{} ms", world.started[&gang] - freed);
    world.pass_until_empty(100 * HOUR, MINUTE);
    assert!([host, gang, guest, second, firm].iter().all(|job| world.outcomes.contains_key(job)));
    world.check_replay();
}

#[test]
fn a_guest_that_ends_by_itself_is_not_preempted() {
    let (mut world, host, gang) = waiting_gang();
    let guest = world.run("guest", 8, HOUR);
    world.pass(3 * HOUR, MINUTE);
    assert!(world.outcomes.contains_key(&host) && world.outcomes.contains_key(&guest));
    assert!(world.has_started(gang));
    assert_eq!(world.preemptions, 0);
    world.check_replay();
}

#[test]
fn there_are_no_guests_where_the_reserved_start_is_exact() {
    let (mut world, _, gang) = gang_behind(Some(2 * HOUR));
    assert_eq!(promise(&world, gang).map(|(_, guests)| guests), Some(false));
    let long = world.run("guest", 8, 10 * HOUR);
    let short = world.run("guest", 8, HOUR);
    world.pass(10 * MINUTE, MINUTE);
    assert_eq!(state(&world, long), Some(PlacementState::Queued));
    assert_eq!(
        state(&world, short),
        Some(PlacementState::Running),
        "it ends before the reserved start"
    );
    world.pass_until_empty(100 * HOUR, MINUTE);
    assert_eq!(world.preemptions, 0);
    world.check_replay();
}

#[test]
fn an_endless_job_that_is_not_preemptible_stays_off_nodes_that_a_gang_gathers() {
    let mut world = World::with_nodes(2, "H100");
    let firm = |world: &mut World, account: &str, gpus: u16, hours: i64| {
        let mut spec = world.spec(account, gpus, hours * HOUR);
        spec.preemptible = false;
        spec
    };
    // All at one instant, so that the end assumed for the host is also assumed for the others.
    let mut host = firm(&mut world, "host", 8, 2);
    host.max_runtime_ms = None;
    let host = world.submit(host);
    let mut gang = firm(&mut world, "gang", 8, 1);
    gang.nodes = 2;
    let gang = world.submit(gang);
    let mut endless = firm(&mut world, "endless", 1, 100);
    endless.max_runtime_ms = None;
    let endless = world.submit(endless);
    let short = firm(&mut world, "short", 1, 1);
    let short = world.submit(short);
    world.pass(20 * MINUTE, MINUTE);
    assert_eq!(promise(&world, gang).map(|(_, guests)| guests), Some(true));
    assert_eq!(state(&world, endless), Some(PlacementState::Queued));
    assert_eq!(state(&world, short), Some(PlacementState::Running), "its stated end is in time");
    world.pass(2 * HOUR, MINUTE);
    assert!(world.outcomes.contains_key(&host) && world.has_started(gang));
    assert_eq!(world.preemptions, 0);
    world.pass_until_empty(200 * HOUR, MINUTE);
    assert!(world.outcomes.contains_key(&endless), "it runs after the gang");
    world.check_replay();
}
