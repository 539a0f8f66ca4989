//! Scopes of nodes: which jobs may use them, the blockers of other jobs, and how scopes change.

use crate::cell_world;

use bursar_core::cell::command::{Command, GroupSpec, NodeOffer, Refusal};
use bursar_core::cell::event::Event;
use bursar_core::cell::schedule::explain::{PlacementBlocker, PlacementState};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{Cell, ClassRank, JobId};
use cell_world::*;

fn kept(name: &str, scope: &str) -> NodeOffer {
    NodeOffer { scope: Some(scope.into()), ..offer(name, "H100", 8) }
}

fn is_queued(world: &World, job: JobId) -> bool {
    world.cell.why(job, at(world.now)).is_some_and(|why| why.state == PlacementState::Queued)
}

/// The names of the nodes that a job was placed on last.
fn nodes_of(world: &World, job: JobId) -> Vec<String> {
    let names: Vec<String> = world.cell.nodes().map(|node| node.offer.name.to_string()).collect();
    let events = world.journal.iter().rev().flat_map(|(_, events)| events.iter().rev());
    let mut placed = events.filter_map(|event| match event {
        Event::PlacementProposed { attempt, placements, .. } if attempt.job == job => {
            Some(placements)
        }
        _ => None,
    });
    let placements = placed.next().into_iter().flatten();
    placements.map(|placement| names[placement.node.0 as usize].clone()).collect()
}

#[test]
fn a_node_runs_only_jobs_at_or_below_its_account() {
    let mut world = World::new();
    world.register(&kept("research", "acme:research"));
    let others: Vec<JobId> = ["acme", "acme:research2", "acme:sales:ann", "zeta"]
        .into_iter()
        .map(|account| world.run(account, 1, HOUR))
        .collect();
    let own: Vec<JobId> = ["acme:research", "acme:research:bob", "acme:research:ml:eve"]
        .into_iter()
        .map(|account| world.run(account, 1, HOUR))
        .collect();
    world.pass(2 * MINUTE, MINUTE);
    assert!(own.iter().all(|job| nodes_of(&world, *job) == ["research"]));
    for job in others {
        assert!(is_queued(&world, job));
        let why = world.cell.why(job, at(world.now)).expect("it waits");
        let account = world.cell.job_spec(job).expect("it waits").account.clone();
        assert!(
            why.blockers.contains(&PlacementBlocker::Scope { account, models: Vec::new() }),
            "{why:?}"
        );
        assert_eq!(why.estimate, None, "no registered node will ever suit it");
    }
    world.check_replay();
}

#[test]
fn waiting_jobs_can_use_a_new_node_in_their_scope() {
    let mut world = World::with_nodes(1, "H100");
    let filler = world.run("zeta", 8, 5 * HOUR);
    let mut grouped = || {
        let mut spec = world.spec("acme:x", 1, HOUR);
        spec.group = Some(GroupSpec { name: "one".into(), limit: 1 });
        world.submit(spec)
    };
    let (first, second) = (grouped(), grouped());
    let other = world.run("zeta", 1, HOUR);
    world.pass(MINUTE, MINUTE);
    assert!([first, second, other].into_iter().all(|job| is_queued(&world, job)));
    world.register(&kept("mine", "acme"));
    world.pass(MINUTE, MINUTE);
    assert_eq!(nodes_of(&world, first), ["mine"]);
    assert!(is_queued(&world, second), "its group is full");
    assert!(is_queued(&world, other));
    world.pass(2 * HOUR, MINUTE);
    assert_eq!(nodes_of(&world, second), ["mine"]);
    assert!(is_queued(&world, other));
    assert!(!is_queued(&world, filler));
    world.check_replay();
}

#[test]
fn a_gang_counts_only_nodes_that_serve_its_account() {
    let mut world = World::with_nodes(1, "H100");
    world.register(&kept("a0", "acme"));
    world.register(&kept("z0", "zeta"));
    let gang = |world: &mut World, account: &str| {
        let mut spec = world.spec(account, 8, HOUR);
        spec.nodes = 2;
        world.submit(spec)
    };
    let unscoped = gang(&mut world, "omega");
    let acme = gang(&mut world, "acme:x");
    world.pass(MINUTE, MINUTE);
    let mut nodes = nodes_of(&world, acme);
    nodes.sort();
    assert_eq!(nodes, ["a0", "n0"]);
    let why = world.cell.why(unscoped, at(world.now)).expect("it waits");
    assert!(why.blockers.contains(&PlacementBlocker::Gang { wanted: 2, available: 1 }), "{why:?}");
    assert!(why.blockers.iter().any(|blocker| matches!(blocker, PlacementBlocker::Scope { .. })));
    let zeta = gang(&mut world, "zeta");
    let why = world.cell.why(zeta, at(world.now)).expect("it waits");
    assert!(
        !why.blockers.iter().any(|blocker| matches!(blocker, PlacementBlocker::Scope { .. })),
        "{why:?}"
    );
    world.check_replay();
}

#[test]
fn no_attempt_is_preempted_on_a_node_whose_scope_excludes_the_taker() {
    let mut world = World::new();
    world.register(&kept("mine", "acme"));
    let low = world.run("acme", 8, 5 * HOUR);
    let foreign = world.spec("zeta", 8, HOUR);
    let foreign = world.submit(class(foreign, ClassRank::HIGH));
    world.pass(20 * MINUTE, MINUTE);
    assert_eq!(world.preemptions, 0);
    assert!(is_queued(&world, foreign) && !is_queued(&world, low));
    let own = world.spec("acme:boss", 8, HOUR);
    let own = world.submit(class(own, ClassRank::HIGH));
    world.pass(20 * MINUTE, MINUTE);
    assert_eq!(nodes_of(&world, own), ["mine"]);
    world.check_replay();
}

/// Far more out-of-scope nodes than a decision examines, all free earlier than the suitable one.
#[test]
fn out_of_scope_nodes_do_not_hide_the_one_that_will_be_free() {
    let mut world = World::new();
    world.checks = false;
    for index in 0..100 {
        world.register(&kept(&format!("z{index}"), "zeta"));
    }
    world.register(&offer("common", "H100", 8));
    let mut filler = world.spec("acme", 8, 2 * HOUR);
    filler.preemptible = false;
    world.submit(filler);
    let waits = world.run("acme", 8, HOUR);
    world.pass(2 * MINUTE, MINUTE);
    let why = world.cell.why(waits, at(world.now)).expect("it waits");
    assert!(why.estimate.is_some_and(|estimate| estimate.reserved), "{why:?}");
    let high = world.spec("acme", 8, HOUR);
    world.submit(class(high, ClassRank::HIGH));
    world.pass(5 * HOUR, MINUTE);
    assert!(!is_queued(&world, waits));
}

#[test]
fn a_scope_widens_under_running_jobs_and_never_narrows() {
    let mut world = World::new();
    world.register(&kept("mine", "acme:research"));
    let running = world.run("acme:research", 4, 3 * HOUR);
    let sales = world.run("acme:sales", 4, HOUR);
    world.pass(MINUTE, MINUTE);
    let register = |world: &mut World, scope: Option<&str>| {
        let scope = scope.map(Into::into);
        world.send(Command::RegisterNode(NodeOffer { scope, ..offer("mine", "H100", 8) }))
    };
    for scope in ["acme:sales", "acme:research:ml"] {
        assert_eq!(register(&mut world, Some(scope)), Err(Refusal::NodeScope), "{scope}");
    }
    assert!(is_queued(&world, sales) && !is_queued(&world, running));
    world.widen("mine", Some("acme"));
    world.pass(MINUTE, MINUTE);
    assert_eq!(nodes_of(&world, sales), ["mine"]);
    assert_eq!(register(&mut world, Some("acme:research")), Err(Refusal::NodeScope));
    let more = NodeOffer { gpus: 4, uuids: Vec::new(), ..kept("mine", "acme") };
    assert_eq!(world.send(Command::RegisterNode(more)), Err(Refusal::NodeBusy));
    world.check_replay();
}

#[test]
fn a_scope_that_is_no_account_is_refused() {
    let mut world = World::new();
    let refused = world.send(Command::RegisterNode(kept("n", "Not a path")));
    assert!(matches!(refused, Err(Refusal::Invalid { field: "scope", .. })), "{refused:?}");
}

#[test]
fn a_cell_from_an_image_keeps_nodes_to_their_accounts() {
    let mut world = World::new();
    world.register(&kept("mine", "acme"));
    world.run("acme:x", 4, HOUR);
    world.run("zeta", 4, HOUR);
    world.pass(MINUTE, MINUTE);
    let twin = Cell::from_image(world.cell.image()).expect("the image of a cell");
    world.twin = Some(Box::new(twin));
    let own = world.run("acme:y", 4, HOUR);
    world.register(&kept("other", "zeta"));
    let job = world.spec("zeta:a", 1, HOUR);
    let theirs = world.submit(JobSpec { gpu: GpuDemand::Share(500), ..job });
    world.pass(MINUTE, MINUTE);
    assert_eq!(
        (nodes_of(&world, own), nodes_of(&world, theirs)),
        (vec!["mine".to_owned()], vec!["other".to_owned()])
    );
    assert_eq!(
        Cell::from_image(world.cell.image()).map(|cell| cell.image()),
        Ok(world.cell.image())
    );
}
