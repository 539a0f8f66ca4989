//! Queue order and placement: classes, shares, quotas, groups, gangs, reservations.

use crate::cell_world;

use bursar_core::cell::command::{AccountPolicy, Command, GroupSpec, QuotaSpec};
use bursar_core::cell::event::{Event, JobOutcome};
use bursar_core::cell::schedule::explain::{PlacementBlocker, PlacementState};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{ClassRank, JobId};
use bursar_core::machine::Machine;
use cell_world::*;

fn is_queued(world: &World, job: JobId) -> bool {
    world.cell.why(job, at(world.now)).is_some_and(|why| why.state == PlacementState::Queued)
}

fn policy(path: &str, weight: u32) -> Command {
    Command::SetAccount(AccountPolicy { weight, ..AccountPolicy::new(path) })
}

fn quota(path: &str, quota: QuotaSpec) -> Command {
    Command::SetAccount(AccountPolicy { quota, ..AccountPolicy::new(path) })
}

/// Placed jobs in the order of their proposals.
fn placed(world: &World) -> Vec<JobId> {
    let events = world.journal.iter().flat_map(|(_, events)| events);
    events
        .filter_map(|event| match event {
            Event::PlacementProposed { attempt, .. } => Some(attempt.job),
            _ => None,
        })
        .collect()
}

#[test]
fn a_higher_class_goes_first_whatever_the_shares_say() {
    let mut world = World::with_nodes(1, "H100");
    let mut first = world.spec("z", 8, HOUR);
    first.preemptible = false;
    world.submit(first);
    let normal = world.run("a", 8, HOUR);
    let high = world.spec("z", 8, HOUR);
    let high = world.submit(class(high, ClassRank::HIGH));
    world.pass(3 * HOUR, MINUTE);
    assert_eq!(world.preemptions, 0);
    let order = placed(&world);
    let place = |job| order.iter().position(|placed| *placed == job);
    assert!(place(high) < place(normal), "{order:?}");
    world.check_replay();
}

#[test]
fn within_a_class_weights_divide_the_cell() {
    let mut world = World::with_nodes(2, "H100");
    world.checks = false;
    world.ok(policy("heavy", 3));
    world.ok(policy("light", 1));
    for _ in 0..400 {
        world.run("heavy", 1, 30 * MINUTE);
        world.run("light", 1, 30 * MINUTE);
    }
    world.pass(6 * HOUR, MINUTE);
    let shares = world.cell.fair_shares(at(world.now));
    let of = |path: &str| {
        let share = shares.iter().find(|share| share.account == path);
        share.expect("the account is known").received_ppm
    };
    let ratio = of("heavy") * 1000 / of("light");
    assert!((2850..3150).contains(&ratio), "three to one, within 5 %: {ratio}");
    world.check_replay();
}

#[test]
fn a_quota_on_any_level_holds_and_names_itself() {
    let mut world = World::with_nodes(4, "H100");
    let limits = QuotaSpec {
        gpus: vec![("H100".into(), 8000)],
        running_jobs: Some(3),
        ..QuotaSpec::default()
    };
    world.ok(quota("acme", limits));
    world.ok(quota("acme:nlp", QuotaSpec { total_gpus: Some(4000), ..QuotaSpec::default() }));
    let first = world.run("acme:nlp:ann", 4, HOUR);
    let second = world.run("acme:nlp:bob", 1, HOUR);
    let third = world.run("acme:vision", 4, HOUR);
    let fourth = world.run("acme:vision", 1, HOUR);
    let other = world.run("other", 8, HOUR);
    assert!(world.has_started(first) && world.has_started(third) && world.has_started(other));
    assert!(is_queued(&world, second) && is_queued(&world, fourth));
    let why = world.cell.why(second, at(world.now)).expect("waits");
    let accounts: Vec<_> = why
        .blockers
        .iter()
        .filter_map(|blocker| match blocker {
            PlacementBlocker::Quota { account, limit, used, requested, .. } => {
                Some((account.as_str(), *limit, *used, *requested))
            }
            _ => None,
        })
        .collect();
    assert_eq!(accounts, [("acme", 8000, 8000, 1000), ("acme:nlp", 4000, 4000, 1000)]);
    // A higher quota, or less use, lets them start.
    world.ok(quota("acme", QuotaSpec::default()));
    assert!(world.has_started(fourth) && is_queued(&world, second));
    world.ok(Command::CancelJob { job: first });
    world.pass(MINUTE, 30 * SECOND);
    assert!(world.has_started(second));
    world.check_replay();
}

#[test]
fn a_quota_on_one_model_sends_the_job_to_its_second_choice() {
    let mut world = World::new();
    world.register(&offer("a", "A100", 8));
    world.register(&offer("h", "H100", 8));
    let limits = QuotaSpec { gpus: vec![("H100".into(), 1000)], ..QuotaSpec::default() };
    world.ok(quota("acme", limits));
    let mut jobs = Vec::new();
    for _ in 0..10 {
        let mut spec = world.spec("acme", 1, HOUR);
        spec.models = ["H100".into(), "A100".into()].into_iter().collect();
        jobs.push(world.submit(spec));
    }
    let started = jobs.iter().filter(|job| world.has_started(**job)).count();
    assert_eq!(started, 9, "one on H100, eight on A100");
    // The tenth waits for quota or for a GPU, whichever comes first: here a GPU.
    world.ok(Command::CancelJob { job: jobs[5] });
    world.pass(MINUTE, 30 * SECOND);
    assert!(world.has_started(jobs[9]));
    world.check_replay();
}

#[test]
fn a_job_beyond_the_quota_of_waiting_jobs_is_refused() {
    let mut world = World::with_nodes(1, "H100");
    world.ok(quota("acme", QuotaSpec { waiting_jobs: Some(2), ..QuotaSpec::default() }));
    world.run("acme", 8, HOUR);
    let waiting = [world.run("acme:a", 8, HOUR), world.run("acme:b", 8, HOUR)];
    let turned_away = world.run("acme:c", 8, HOUR);
    assert_eq!(world.outcomes.get(&turned_away), Some(&JobOutcome::WaitingQuota));
    assert!(waiting.iter().all(|job| is_queued(&world, *job)));
    world.check_replay();
}

#[test]
fn a_group_limits_running_jobs_and_a_job_that_fits_nowhere_blocks_no_other() {
    let mut world = World::with_nodes(1, "H100");
    let submit = |world: &mut World, gpus| {
        let mut spec = world.spec("acme", gpus, HOUR);
        spec.group = Some(GroupSpec { name: "sweep".into(), limit: 1 });
        world.submit(spec)
    };
    let first = submit(&mut world, 1);
    let too_large = submit(&mut world, 64);
    let second = submit(&mut world, 1);
    let third = submit(&mut world, 1);
    assert!(world.has_started(first) && is_queued(&world, second));
    assert!(kinds(&world, second).contains(&"group"));
    world.pass(2 * HOUR, MINUTE);
    assert!(world.has_started(second) && is_queued(&world, third) && is_queued(&world, too_large));
    world.pass(2 * HOUR, MINUTE);
    assert!(world.has_started(third));
    world.check_replay();
}

#[test]
fn a_gang_starts_whole_or_not_at_all_and_in_one_rack_if_it_can() {
    let mut world = World::new();
    for (name, rack) in [("a", "r1"), ("b", "r2"), ("c", "r2"), ("d", "r3")] {
        let mut node = offer(name, "H100", 8);
        node.rack = rack.into();
        world.register(&node);
    }
    let mut spec = world.spec("acme", 8, HOUR);
    spec.nodes = 2;
    let pair = world.submit(spec);
    let used: Vec<_> = world.journal.iter().flat_map(|(_, events)| events).collect();
    let nodes = used.iter().rev().find_map(|event| match event {
        Event::PlacementProposed { placements, .. } => {
            Some(placements.iter().map(|placement| placement.node.0).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(nodes, Some(vec![1, 2]), "both in the second rack");
    let mut spec = world.spec("acme", 8, HOUR);
    spec.nodes = 3;
    let triple = world.submit(spec);
    assert!(world.has_started(pair) && is_queued(&world, triple));
    assert!(kinds(&world, triple).contains(&"gang"));
    world.pass(3 * HOUR, MINUTE);
    assert!(world.has_started(triple), "across racks, once there are three nodes");
    world.check_replay();
}

#[test]
fn preferences_memory_floors_and_shares_of_gpus_are_respected() {
    let mut world = World::new();
    let mut small = offer("small", "A100", 2);
    small.gpu_memory_mib = 40 * 1024;
    world.register(&small);
    world.register(&offer("large", "A100", 2));
    world.register(&offer("hopper", "H100", 2));
    let node_of = |world: &World, job: JobId| {
        let events = world.journal.iter().flat_map(|(_, events)| events);
        let mut nodes = events.filter_map(|event| match event {
            Event::PlacementProposed { attempt, placements, .. } if attempt.job == job => {
                Some(placements[0].node.0)
            }
            _ => None,
        });
        nodes.next()
    };
    let mut spec = world.spec("acme", 2, HOUR);
    spec.models = ["H100".into(), "A100".into()].into_iter().collect();
    spec.gpu_memory_mib = 80 * 1024;
    let (first, mut again) = (spec.clone(), spec);
    world.submit(first.clone());
    assert_eq!(node_of(&world, first.job), Some(2), "the first choice");
    again.job = JobId(500);
    world.submit(again.clone());
    assert_eq!(node_of(&world, again.job), Some(1), "the second choice with enough memory");
    again.job = JobId(501);
    world.submit(again.clone());
    assert!(is_queued(&world, again.job), "40 GiB are too few");
    again.job = JobId(502);
    again.gpu_memory_mib = 99 * 1024;
    world.submit(again.clone());
    assert_eq!(kinds(&world, again.job), ["memory", "priority"]);
    again.job = JobId(503);
    again.models = ["B200".into()].into_iter().collect();
    world.submit(again.clone());
    assert!(kinds(&world, again.job).contains(&"gpu_type"));
    for index in 0..4 {
        let mut share = world.spec("acme", 1, HOUR);
        share.gpu = GpuDemand::Share(500);
        let job = world.submit(share);
        assert_eq!(node_of(&world, job), Some(0), "share {index}");
    }
    let mut share = world.spec("acme", 1, HOUR);
    share.gpu = GpuDemand::Share(1);
    let job = world.submit(share);
    assert!(is_queued(&world, job), "every GPU is full to the last thousandth");
    world.check_replay();
}

#[test]
fn a_reservation_protects_the_large_job_and_short_jobs_run_before_it() {
    let mut world = World::with_nodes(1, "H100");
    let first = world.run("a", 4, 2 * HOUR);
    let large = world.run("b", 8, HOUR);
    let why = world.cell.why(large, at(world.now)).expect("waits");
    let estimate = why.estimate.expect("every attempt has a longest runtime");
    assert!(estimate.reserved);
    let short = world.run("c", 4, 30 * MINUTE);
    let long = world.run("d", 4, 5 * HOUR);
    assert!(
        world.has_started(first) && world.has_started(short),
        "it ends before the reserved start"
    );
    assert!(is_queued(&world, long) && is_queued(&world, large));
    world.pass(5 * HOUR, MINUTE);
    let started = world.started.get(&large).copied().expect("started by now");
    assert!(at(started) <= estimate.at, "reserved {}, started {}", estimate.at, at(started));
    assert!(world.started[&large] < world.started[&long], "the large job went first");
    world.check_replay();
}

#[test]
fn a_job_that_waits_for_one_model_blocks_no_job_on_another() {
    let mut world = World::new();
    world.register(&offer("a", "B200", 8));
    world.register(&offer("b", "B300", 8));
    let of = |world: &mut World, model: &'static str, gpus| {
        let mut spec = world.spec("acme", gpus, HOUR);
        spec.models = [model.into()].into_iter().collect();
        world.submit(spec)
    };
    of(&mut world, "B300", 8);
    let waits = of(&mut world, "B300", 8);
    let runs = of(&mut world, "B200", 8);
    assert!(is_queued(&world, waits) && world.has_started(runs));
    world.check_replay();
}

#[test]
fn jobs_that_fit_nowhere_do_not_block_the_next_reservation() {
    let mut world = World::with_nodes(1, "H100");
    world.run("a", 8, HOUR);
    let mut spec = world.spec("b", 8, HOUR);
    spec.nodes = 2;
    let impossible = world.submit(spec);
    let large = world.run("c", 8, HOUR);
    let why = world.cell.why(large, at(world.now)).expect("waits");
    assert!(why.estimate.is_some_and(|estimate| estimate.reserved));
    assert_eq!(kinds(&world, impossible)[0], "gang");
    world.check_replay();
}

#[test]
fn an_aged_job_of_an_account_of_weight_zero_starts() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    world.ok(policy("beggar", 0));
    world.run("rich", 8, HOUR);
    let beggar = world.run("beggar", 8, HOUR);
    for hour in 0..72 {
        world.run(&format!("rich:u{hour}"), 8, HOUR);
        world.pass(HOUR, MINUTE);
    }
    assert!(world.has_started(beggar), "after a day it is aged and selected by ageing");
    world.check_replay();
}

#[test]
fn the_same_commands_give_the_same_events_also_after_a_replay_in_between() {
    let script = |restart: bool| {
        let mut world = World::with_nodes(3, "H100");
        for round in 0..30u16 {
            world.run(["a", "b", "a:x"][usize::from(round) % 3], 1 + round % 8, HOUR);
            world.pass(7 * MINUTE, MINUTE);
            if restart && round == 15 {
                let mut copy = bursar_core::cell::Cell::new();
                for (when, events) in &world.journal {
                    events.iter().for_each(|event| copy.apply(*when, event));
                }
                world.cell = copy;
            }
        }
        (world.journal, world.cell.digest())
    };
    let (first, digest) = script(false);
    let (second, again) = script(true);
    assert_eq!(first, second);
    assert_eq!(digest, again);
}

#[test]
fn a_release_wakes_only_what_it_can_serve() {
    let mut world = World::with_nodes(2, "H100");
    let small: Vec<_> = (0..16).map(|_| world.run("a", 1, HOUR)).collect();
    for _ in 0..50 {
        // They end before the reserved start of the larger ones.
        world.run("c", 2, 10 * MINUTE);
        world.run("b", 4, HOUR);
    }
    world.pass(MINUTE, 30 * SECOND);
    let since = world.journal.len();
    let cancel = |world: &mut World, job| {
        world.ok(Command::CancelJob { job });
        world.pass(MINUTE, 30 * SECOND);
    };
    cancel(&mut world, small[0]);
    let tried = |world: &World, since: usize| {
        let events = world.journal[since..].iter().flat_map(|(_, events)| events);
        let tried = events.filter(|event| {
            matches!(event, Event::PlacementProposed { .. } | Event::RequestParked { .. })
        });
        tried.count()
    };
    assert_eq!(tried(&world, since), 0, "one GPU is too few for every waiting job");
    let since = world.journal.len();
    cancel(&mut world, small[1]);
    assert_eq!(tried(&world, since), 1, "two GPUs fit one of fifty, and no other is tried");
    world.check_replay();
}

#[test]
fn when_a_job_released_by_its_group_is_cancelled_the_next_one_is_released() {
    let mut world = World::with_nodes(1, "H100");
    let submit = |world: &mut World, gpus, group: bool| {
        let mut spec = world.spec("acme", gpus, HOUR);
        if group {
            spec.group = Some(GroupSpec { name: "g".into(), limit: 1 });
        }
        world.submit(spec)
    };
    let other = submit(&mut world, 4, false);
    let first = submit(&mut world, 4, true);
    let second = submit(&mut world, 8, true);
    let third = submit(&mut world, 8, true);
    world.pass(MINUTE, 30 * SECOND);
    // The second is released and does not fit beside the other; the third is still held.
    world.ok(Command::CancelJob { job: first });
    world.pass(3 * MINUTE, 30 * SECOND);
    assert!(is_queued(&world, second) && is_queued(&world, third));
    world.ok(Command::CancelJob { job: second });
    world.ok(Command::CancelJob { job: other });
    world.pass(3 * MINUTE, 30 * SECOND);
    assert!(world.has_started(third));
    world.check_replay();
}

#[test]
fn a_job_with_reserved_nodes_starts_when_its_group_has_room() {
    let mut world = World::with_nodes(2, "H100");
    let submit = |world: &mut World, gpus, minutes, group: bool| {
        let mut spec = world.spec("acme", gpus, minutes * MINUTE);
        if group {
            spec.group = Some(GroupSpec { name: "g".into(), limit: 1 });
        }
        world.submit(spec)
    };
    submit(&mut world, 7, 300, false);
    submit(&mut world, 8, 10, false);
    let kept = submit(&mut world, 8, 60, true);
    let small = submit(&mut world, 1, 60, true);
    world.pass(30 * MINUTE, 30 * SECOND);
    // A node is free and reserved for it, but the group is full.
    assert!(world.has_started(small) && !world.has_started(kept));
    world.pass(HOUR, 30 * SECOND);
    assert!(world.has_started(kept));
    world.check_replay();
}

#[test]
fn a_job_with_reserved_nodes_starts_when_the_quota_no_longer_blocks_it() {
    let mut world = World::with_nodes(1, "H100");
    let mut first = world.spec("a", 8, HOUR);
    first.preemptible = false;
    let first = world.submit(first);
    let kept = world.run("b", 8, HOUR);
    world.pass(MINUTE, 30 * SECOND);
    assert_eq!(placed(&world), [first]);
    let reserved = |world: &World| {
        let events = world.journal.iter().flat_map(|(_, events)| events);
        events.filter(|event| matches!(event, Event::ReservationMade { .. })).count()
    };
    assert!(reserved(&world) > 0, "the only node is reserved for the other job");
    world.ok(quota("b", QuotaSpec { total_gpus: Some(0), ..QuotaSpec::default() }));
    // The node becomes free, but the quota blocks the job that it is reserved for.
    world.ok(Command::CancelJob { job: first });
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(placed(&world), [first]);
    world.ok(quota("b", QuotaSpec::default()));
    world.settle();
    assert_eq!(placed(&world), [first, kept], "nothing else will wake it");
    world.check_replay();
}
