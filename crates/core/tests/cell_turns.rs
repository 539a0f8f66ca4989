//! Quanta (turns) of resumable jobs: short where an account has other jobs, so that it gets its
//! share of every day, and growing where it has none.

use crate::cell_world;

use std::collections::BTreeMap;

use bursar_core::cell::JobId;
use bursar_core::cell::command::JobSpec;
use bursar_core::cell::event::{Event, StopReason};
use cell_world::*;

fn resumable(mut spec: JobSpec) -> JobSpec {
    spec.resumable = true;
    spec
}

fn run(world: &mut World, account: &str, gpus: u16, hours: i64) -> JobId {
    let spec = resumable(world.spec(account, gpus, hours * HOUR));
    world.submit(spec)
}

/// A gang of whole nodes with a long runtime.
fn gang(world: &mut World, nodes: u16) -> JobId {
    let mut spec = resumable(world.spec("a", 8, 200 * HOUR));
    spec.nodes = nodes;
    world.submit(spec)
}

/// Two gangs of all four nodes, and two tenants with more than enough jobs to fill the cell.
fn gangs_among_others(world: &mut World) -> [JobId; 2] {
    let gangs = [gang(world, 4), gang(world, 4)];
    for _ in 0..6 {
        run(world, "b", 8, 200);
        run(world, "c", 8, 200);
    }
    gangs
}

/// The running times of attempts when they were preempted for fair share, by job.
fn turns(world: &World) -> BTreeMap<JobId, Vec<i64>> {
    let mut since = BTreeMap::new();
    let mut turns: BTreeMap<JobId, Vec<i64>> = BTreeMap::new();
    for (when, event) in
        world.journal.iter().flat_map(|(when, events)| events.iter().map(move |e| (when, e)))
    {
        match event {
            Event::AttemptStartedOnNode { attempt, .. } => {
                since.entry(*attempt).or_insert(when.millis());
            }
            Event::StopOrdered {
                attempt,
                reason: StopReason::Preempted { for_share: true, .. },
                ..
            } => turns.entry(attempt.job).or_default().push(when.millis() - since[attempt]),
            _ => {}
        }
    }
    turns
}

#[test]
fn turns_stay_short_while_an_account_has_other_jobs() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    for _ in 0..3 {
        run(&mut world, "a", 8, 200);
        run(&mut world, "b", 8, 200);
    }
    world.pass(4 * DAY, MINUTE);
    let turns = turns(&world);
    let all = || turns.values().flatten();
    assert!(all().all(|ran| *ran >= 10 * MINUTE), "{turns:?}");
    assert!(all().all(|ran| *ran <= 3 * HOUR), "{turns:?}");
    assert!(all().count() >= 4 * 8, "they take turns all the time: {turns:?}");
    world.check_replay();
}

#[test]
fn turns_of_an_accounts_only_job_grow_although_it_is_resumable() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    for user in ["a", "b", "c", "d"] {
        run(&mut world, user, 8, 200);
    }
    world.pass(4 * DAY, MINUTE);
    let turns = turns(&world);
    assert!(turns.values().any(|turns| turns.len() > 1));
    for of_one in turns.values() {
        for (times, ran) in of_one.iter().enumerate() {
            assert!(*ran >= (10 * MINUTE) << times, "{turns:?}");
        }
    }
    world.check_replay();
}

#[test]
fn tenants_whose_users_have_one_job_each_take_short_turns_from_each_other() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    for user in 0..5 {
        run(&mut world, &format!("a:u{user}"), 8, 200);
        run(&mut world, &format!("b:u{user}"), 8, 200);
    }
    world.pass(4 * DAY, MINUTE);
    let turns = turns(&world);
    let short = turns.values().flatten().filter(|ran| **ran <= 3 * HOUR).count();
    assert!(short >= 4 * 8, "{turns:?}");
    world.check_replay();
}

#[test]
fn a_victim_takes_back_from_a_resumable_taker_after_an_hour() {
    let mut world = World::with_nodes(1, "H100");
    world.checks = false;
    let first = run(&mut world, "a", 8, 200);
    world.pass(DAY, MINUTE);
    let second = run(&mut world, "b", 8, 200);
    // Larger than the cell: they wait for ever, so that both accounts have other jobs.
    run(&mut world, "a", 16, 1);
    run(&mut world, "b", 16, 1);
    world.pass(3 * DAY, MINUTE);
    let turns = turns(&world);
    assert!(turns[&first].len() >= 2, "{turns:?}");
    assert!(turns[&second].iter().all(|ran| *ran >= HOUR), "{turns:?}");
    world.check_replay();
}

#[test]
fn gangs_of_the_whole_cell_take_turns_with_their_victims() {
    let mut world = World::with_nodes(4, "H100");
    world.checks = false;
    let gangs = gangs_among_others(&mut world);
    // The first victims are the first jobs of their accounts, so they are the ones that take back.
    world.pass(3 * DAY, MINUTE);
    let turns = turns(&world);
    let of_gangs: Vec<i64> =
        gangs.iter().filter_map(|gang| turns.get(gang)).flatten().copied().collect();
    assert!(of_gangs.len() >= 12, "{turns:?}");
    assert!(of_gangs.iter().all(|ran| *ran >= 10 * MINUTE), "{of_gangs:?}");
    world.check_replay();
}

#[test]
fn gangs_of_the_whole_cell_start_although_an_impossible_job_waits() {
    let mut world = World::with_nodes(4, "H100");
    world.checks = false;
    run(&mut world, "nowhere", 16, 1);
    let gangs = gangs_among_others(&mut world);
    world.pass(3 * DAY, MINUTE);
    let turns = turns(&world);
    let of_gangs = gangs.iter().filter_map(|gang| turns.get(gang)).flatten().count();
    assert!(of_gangs >= 12, "{turns:?}");
    world.check_replay();
}

/// Whether a gang of the whole cell starts within four days among newcomers without end: half as
/// much again as the cell has, all of it from accounts without usage.
fn starts_behind_newcomers(world: &mut World, named: bool) -> bool {
    world.checks = false;
    run(world, "a", 8, 1);
    world.pass(2 * HOUR, MINUTE);
    let mut gangs = None;
    for visitor in 0..4 * 24 * 12 {
        let mut spec = world.spec(&format!("v{visitor}"), 2, HOUR);
        spec.max_runtime_ms = spec.max_runtime_ms.filter(|_| named);
        world.submit(spec);
        if visitor == 24 {
            gangs = Some([gang(world, 2), gang(world, 2)]);
        }
        world.pass(5 * MINUTE, MINUTE);
    }
    let gangs = gangs.expect("submitted among the newcomers");
    gangs.iter().any(|gang| world.has_started(*gang))
}

#[test]
fn a_gang_of_the_whole_cell_starts_among_endless_newcomers() {
    assert!(starts_behind_newcomers(&mut World::with_nodes(2, "H100"), true));
}

#[test]
fn a_gang_starts_although_its_account_has_used_more_than_newcomers_that_state_no_runtime() {
    assert!(starts_behind_newcomers(&mut World::with_nodes(2, "H100"), false));
}

#[test]
fn a_gang_starts_by_age_although_an_older_impossible_job_waits() {
    let mut world = World::with_nodes(2, "H100");
    run(&mut world, "nowhere", 16, 1);
    assert!(starts_behind_newcomers(&mut world, false));
}
