//! Preemption among resumable jobs of accounts with several jobs.

use crate::cell_world;

use std::collections::BTreeMap;

use bursar_core::cell::JobId;
use bursar_core::cell::command::{AccountPolicy, Command};
use bursar_core::cell::event::{Event, StopReason};
use cell_world::*;

/// A resumable job on one node with a long runtime.
fn run(world: &mut World, account: &str, gpus: u16) -> JobId {
    let mut spec = world.spec(account, gpus, 200 * HOUR);
    spec.resumable = true;
    world.submit(spec)
}

/// Victims for fair share: the victim, its taker, and how long it had run.
fn victims(world: &World) -> Vec<(JobId, JobId, i64)> {
    let mut since = BTreeMap::new();
    let mut victims = Vec::new();
    let events =
        world.journal.iter().flat_map(|(when, events)| events.iter().map(move |e| (when, e)));
    for (when, event) in events {
        match event {
            Event::AttemptStartedOnNode { attempt, .. } => {
                since.entry(*attempt).or_insert(when.millis());
            }
            Event::StopOrdered {
                attempt,
                reason: StopReason::Preempted { by, for_share: true, .. },
                ..
            } => victims.push((attempt.job, *by, when.millis() - since[attempt])),
            _ => {}
        }
    }
    victims
}

#[test]
fn small_jobs_stay_where_their_account_would_gain_nothing() {
    let mut world = World::with_nodes(2, "H100");
    world.ok(Command::SetAccount(AccountPolicy { weight: 2000, ..AccountPolicy::new("a") }));
    let small: Vec<JobId> = (0..2).map(|_| run(&mut world, "a", 4)).collect();
    let other = run(&mut world, "b", 8);
    world.pass(MINUTE, MINUTE);
    assert!(small.iter().chain([&other]).all(|job| world.has_started(*job)));
    // It takes the other node. Replacing the two jobs of its own account would gain nothing.
    let large = run(&mut world, "a", 8);
    world.pass(2 * DAY, MINUTE);
    assert!(world.has_started(large));
    let victims = victims(&world);
    let mut for_large = victims.iter().filter(|(_, by, _)| *by == large);
    assert!(for_large.all(|(job, ..)| !small.contains(job)), "{victims:?}");
    world.check_replay();
}
