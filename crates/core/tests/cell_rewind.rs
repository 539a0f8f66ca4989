//! After a restore: reports of agents are ignored until they register, and no GPU is allocated
//! twice.

use crate::cell_world;

use bursar_core::cell::command::{AttemptReport, Command, Heartbeat, Refusal, Reply, ReportState};
use bursar_core::cell::jobs::orders::OrderKind;
use bursar_core::cell::schedule::explain::PlacementState;
use bursar_core::cell::{AttemptId, JobId};
use cell_world::*;

/// The default lease of a node.
const LEASE: i64 = 90 * SECOND;

fn state(world: &World, job: JobId) -> Option<PlacementState> {
    world.cell.why(job, at(world.now)).map(|why| why.state)
}

fn beat(world: &mut World, node: &str, incarnation: u32, seq: u64) -> Result<(), Refusal> {
    let (node, reports) = (node.into(), Vec::new());
    world.send(Command::Heartbeat(Heartbeat { node, incarnation, seq, reports })).map(drop)
}

/// The attempts that a node is ordered to start.
fn starts(world: &World, node: &str, incarnation: u32) -> Vec<AttemptId> {
    let beat = Heartbeat { node: node.into(), incarnation, seq: 0, reports: Vec::new() };
    let orders = world.cell.orders(&beat).expect("the agent's last start");
    let starts = orders.into_iter().filter(|order| matches!(order.kind, OrderKind::Start(_)));
    starts.map(|order| order.attempt).collect()
}

/// A cell with a job on its only node, set back by a restore.
fn rewound() -> (World, JobId) {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, 5 * HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.ok(Command::Rewind { generation: 7, served: false });
    (world, job)
}

#[test]
fn attempts_are_lost_and_reports_are_refused_until_an_agent_registers_again() {
    let (mut world, job) = rewound();
    assert_eq!(world.cell.generation(), 7);
    assert_eq!(state(&world, job), Some(PlacementState::Queued), "lost and requeued");
    let stale = Err(Refusal::StaleIncarnation { current: 1 });
    assert_eq!(beat(&mut world, "n0", 1, 99), stale, "although it is the latest incarnation");
    let old = Heartbeat { node: "n0".into(), incarnation: 1, seq: 99, reports: Vec::new() };
    assert!(world.cell.orders(&old).is_err(), "its long polls end");
    assert!(!world.cell.node_named("n0").expect("it exists").is_open());
    world.check_replay();
}

#[test]
fn a_node_takes_work_one_lease_after_it_registered() {
    let (mut world, job) = rewound();
    world.make_twin();
    let reply = world.ok(Command::RegisterNode(offer("n0", "H100", 8)));
    assert!(matches!(reply, Reply::Registered { incarnation: 2, .. }));
    let registered = world.now;
    let kept = |world: &World| world.cell.node_named("n0").expect("it exists").kept_until;
    assert_eq!(kept(&world), Some(at(registered + LEASE)));
    for seq in 1..=3 {
        assert_eq!(beat(&mut world, "n0", 2, seq), Ok(()));
        assert_eq!(starts(&world, "n0", 2), [], "an old attempt may still run there");
        world.now += 29 * SECOND;
    }
    // A new registration starts a new wait: the agent may have been elsewhere meanwhile.
    let reply = world.ok(Command::RegisterNode(offer("n0", "H100", 8)));
    assert!(matches!(reply, Reply::Registered { incarnation: 3, .. }));
    assert_eq!(kept(&world), Some(at(world.now + LEASE)));
    world.now += LEASE - 1;
    beat(&mut world, "n0", 3, 1).expect("its reports count again");
    assert_eq!(starts(&world, "n0", 3), []);
    world.now += 1;
    beat(&mut world, "n0", 3, 2).expect("its reports count again");
    assert_eq!(starts(&world, "n0", 3), [AttemptId { job, number: 2 }]);
    assert_eq!(kept(&world), None);
    // From now on a restart of its agent causes no wait.
    let reply = world.ok(Command::RegisterNode(offer("n0", "H100", 8)));
    assert!(matches!(reply, Reply::Registered { incarnation: 4, .. }));
    assert_eq!(kept(&world), None);
    world.check_replay();
}

#[test]
fn a_node_under_a_new_name_waits_for_a_lease_too() {
    let (mut world, _) = rewound();
    let mut renamed = offer("n9", "H100", 8);
    renamed.uuids = offer("n0", "H100", 8).uuids;
    world.ok(Command::RegisterNode(renamed));
    beat(&mut world, "n9", 1, 1).expect("its reports count again");
    assert_eq!(starts(&world, "n9", 1), [], "its GPUs are those of n0");
    world.now += LEASE;
    beat(&mut world, "n9", 1, 2).expect("its reports count again");
    assert_eq!(starts(&world, "n9", 1).len(), 1);
    world.check_replay();
}

#[test]
fn a_gang_is_lost_as_a_whole() {
    let mut world = World::with_nodes(2, "H100");
    let mut spec = world.spec("a", 8, 5 * HOUR);
    spec.nodes = 2;
    let gang = world.submit(spec);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.ok(Command::Rewind { generation: 1, served: false });
    assert_eq!(state(&world, gang), Some(PlacementState::Queued));
    for (name, seq) in [("n0", 1), ("n1", 1)] {
        world.ok(Command::RegisterNode(offer(name, "H100", 8)));
        beat(&mut world, name, 2, seq).expect("its reports count again");
    }
    world.now += LEASE;
    beat(&mut world, "n0", 2, 2).expect("its reports count again");
    assert_eq!(state(&world, gang), Some(PlacementState::Queued), "one node is not enough");
    beat(&mut world, "n1", 2, 2).expect("its reports count again");
    assert_eq!(starts(&world, "n1", 2), [AttemptId { job: gang, number: 2 }]);
    // An attempt that the restored cell does not know is forgotten.
    let attempt = AttemptId { job: JobId(99), number: 1 };
    let ghost =
        AttemptReport { attempt, state: ReportState::Running, gpu_ms_total: 1, exit_code: None };
    let said = Heartbeat { node: "n0".into(), incarnation: 2, seq: 3, reports: vec![ghost] };
    world.ok(Command::Heartbeat(said.clone()));
    let orders = world.cell.orders(&said).expect("the agent's last start");
    assert!(orders.iter().any(|o| o.attempt == attempt && o.kind == OrderKind::Forget));
    world.check_replay();
}

#[test]
fn generations_only_rise_and_the_same_one_again_changes_nothing() {
    let (mut world, _) = rewound();
    let records = world.journal.len();
    world.ok(Command::Rewind { generation: 7, served: false });
    assert_eq!(world.journal.len(), records);
    let refused = world.send(Command::Rewind { generation: 6, served: false });
    assert!(matches!(refused, Err(Refusal::Invalid { field: "generation", .. })), "{refused:?}");
    world.ok(Command::Rewind { generation: 8, served: false });
    assert_eq!(world.cell.generation(), 8);
    world.check_replay();
}

#[test]
fn a_cell_that_was_served_since_records_its_generation_and_loses_nothing() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, 5 * HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.ok(Command::Rewind { generation: 7, served: true });
    assert_eq!(world.cell.generation(), 7);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    assert_eq!(world.cell.node_named("n0").expect("it exists").kept_until, None);
    // A node that is new after the restore waits for a lease.
    world.ok(Command::RegisterNode(offer("n9", "H100", 8)));
    let kept = world.cell.node_named("n9").expect("it exists").kept_until;
    assert_eq!(kept, Some(at(world.now + LEASE)));
    world.check_replay();
}
