//! Owners of nodes: names and GPUs of different owners are independent, and an agent reports only
//! on attempts of its own node, in its latest incarnation.

use crate::cell_world;

use bursar_core::cell::command::{
    AttemptReport, Command, GroupSpec, Heartbeat, JobSpec, NodeOffer, Origin, Refusal, Reply,
    ReportState,
};
use bursar_core::cell::event::{Event, JobOutcome};
use bursar_core::cell::jobs::demands::MAX_DEMANDS_PER_TENANT;
use bursar_core::cell::nodes::used_names::{
    MAX_LABELS_PER_TENANT, MAX_LEFT_DRAINED_PER_OWNER, MAX_NAME_BYTES, MAX_NODES_PER_TENANT,
    MAX_RACKS_PER_TENANT, MAX_TYPES_PER_TENANT,
};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, JobId, NodeKey, OrderKind};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::message::ToLedger;
use bursar_core::name::GpuModel;
use cell_world::*;
use proptest::prelude::*;

const SCOPES: [Option<&str>; 5] =
    [None, Some("acme"), Some("acme:nlp"), Some("umbra"), Some("umbra:x")];

fn owned(name: &str, scope: Option<&str>) -> NodeOffer {
    NodeOffer { scope: scope.map(Into::into), ..offer(name, "H100", 8) }
}

fn beat(name: &str, scope: Option<&str>, incarnation: u32, seq: u64) -> Heartbeat {
    Heartbeat { node: NodeKey::new(name, scope), incarnation, seq, reports: Vec::new() }
}

fn running(attempt: AttemptId) -> AttemptReport {
    AttemptReport { attempt, state: ReportState::Running, gpu_ms_total: 0, exit_code: None }
}

#[test]
fn every_owner_has_a_node_of_its_own_under_a_name_with_the_same_gpus() {
    let mut world = World::new();
    let scopes = [None, Some("acme"), Some("umbra")];
    for scope in scopes {
        world.register(&owned("n1", scope));
    }
    for scope in scopes {
        let view = world.cell.node_named(NodeKey::new("n1", scope)).expect("it has one");
        assert_eq!((view.incarnation, view.offer.scope.as_deref()), (1, scope), "{scope:?}");
    }
    let named: Vec<_> =
        world.cell.nodes_called("n1").map(|view| view.offer.scope.clone()).collect();
    assert_eq!(named, [None, Some("acme".into()), Some("umbra".into())]);
    world.ok(Command::DrainNode { node: NodeKey::new("n1", Some("acme")), force: false });
    for scope in scopes {
        let drained = world.cell.node_named(NodeKey::new("n1", scope)).map(|view| view.drained);
        assert_eq!(drained, Some(scope == Some("acme")), "{scope:?}");
    }
    world.ok(Command::RemoveNode { node: NodeKey::new("n1", Some("umbra")) });
    let umbra = Command::ResumeNode { node: NodeKey::new("n1", Some("umbra")) };
    assert_eq!(world.send(umbra), Err(Refusal::UnknownNode));
    assert_eq!(world.cell.nodes_called("n1").count(), 2);
    world.check_replay();
}

#[test]
fn within_one_owner_a_gpu_and_a_name_are_unique() {
    let mut world = World::new();
    world.register(&owned("n1", Some("acme:nlp")));
    let renamed = NodeOffer { name: "n2".into(), ..owned("n1", Some("acme:vision")) };
    let refused = world.send(Command::RegisterNode(renamed.clone()));
    assert!(matches!(refused, Err(Refusal::GpuTaken { .. })), "{refused:?}");
    let sibling = Command::RegisterNode(owned("n1", Some("acme:vision")));
    assert_eq!(world.send(sibling), Err(Refusal::NodeScope));
    // Another owner may have the same name and GPUs.
    world.register(&NodeOffer { scope: Some("umbra".into()), ..renamed.clone() });
    world.register(&NodeOffer { scope: None, ..renamed });
    world.check_replay();
}

/// A gang on a node of the platform and a node of its tenant with the same name.
#[test]
fn a_gang_on_two_nodes_of_one_name_has_two_ranks() {
    let mut world = World::new();
    world.register(&owned("n1", None));
    world.register(&owned("n1", Some("acme")));
    let mut spec = world.spec("acme:nlp", 8, HOUR);
    spec.nodes = 2;
    world.submit(spec);
    let mut ranks = Vec::new();
    for scope in [None, Some("acme")] {
        let heartbeat = beat("n1", scope, 1, 1);
        world.ok(Command::Heartbeat(heartbeat.clone()));
        let orders = world.cell.orders(&heartbeat).expect("the agent's last start");
        let [order] = &orders[..] else { panic!("one order: {orders:?}") };
        let OrderKind::Start(start) = &order.kind else { panic!("to start: {order:?}") };
        assert_eq!(world.cell.rank_of(order.attempt, &heartbeat.node), Some(start.rank.into()));
        ranks.push(start.rank);
    }
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1]);
    let proposed =
        world.journal.iter().flat_map(|(_, events)| events).find_map(|event| match event {
            Event::LedgerMessageSent { message, .. } => match &**message {
                ToLedger::PlacementProposed { nodes, .. } => Some(nodes.clone()),
                _ => None,
            },
            _ => None,
        });
    let mut names: Vec<_> =
        proposed.expect("proposed").into_iter().map(|proposed| proposed.node).collect();
    names.sort_unstable();
    assert_eq!(names, ["acme/n1", "n1"]);
}

#[test]
fn an_earlier_start_of_an_agent_gets_no_orders() {
    let mut world = World::with_nodes(1, "H100");
    let parked = beat("n0", None, 1, 1);
    world.ok(Command::Heartbeat(parked.clone()));
    assert_eq!(world.cell.orders(&parked), Ok(Vec::new()));
    world.register(&offer("n0", "H100", 8));
    world.run("acme", 8, HOUR);
    assert_eq!(world.cell.orders(&parked), Err(Refusal::StaleIncarnation { current: 2 }));
    let now = beat("n0", None, 2, 1);
    world.ok(Command::Heartbeat(now.clone()));
    assert_eq!(world.cell.orders(&now).map(|orders| orders.len()), Ok(1));
    let gone = beat("n9", None, 1, 1);
    assert_eq!(world.cell.orders(&gone), Err(Refusal::UnknownNode));
}

/// A node is deleted and made again by another agent. The agent of the deleted node still runs: its
/// reports count for nothing and it gets no orders, also after a restart of the server.
#[test]
fn the_agent_of_a_deleted_node_is_not_taken_for_that_of_a_new_node() {
    for scope in [None, Some("acme")] {
        let mut world = World::new();
        world.register(&owned("n0", scope));
        world.ok(Command::Heartbeat(beat("n0", scope, 1, 50)));
        world.ok(Command::RemoveNode { node: NodeKey::new("n0", scope) });
        let rebuilt = Cell::from_image(world.cell.image()).expect("the image of a cell");
        world.twin = Some(Box::new(rebuilt));
        world.register(&owned("n0", scope));
        world.run("acme", 8, HOUR);
        let old = beat("n0", scope, 1, 51);
        let stale = Refusal::StaleIncarnation { current: 2 };
        assert_eq!(world.send(Command::Heartbeat(old.clone())), Err(stale.clone()));
        assert_eq!(world.cell.orders(&old), Err(stale));
        let new = beat("n0", scope, 2, 1);
        world.ok(Command::Heartbeat(new.clone()));
        assert_eq!(world.cell.orders(&new).map(|orders| orders.len()), Ok(1));
        // A node of another owner, or of another name of the same owner.
        world.register(&owned("n0", Some("umbra")));
        let of = NodeKey::new("n0", Some("umbra"));
        assert_eq!(world.cell.node_named(of).map(|view| view.incarnation), Some(1));
        world.check_replay();
    }
}

/// Drained nodes that were deleted are remembered until their leases end. Those of one owner take no
/// place of another's.
#[test]
fn drained_nodes_that_one_owner_deletes_leave_the_drains_of_others() {
    let mut cell = Cell::new();
    let origin = Origin::component("test");
    let leave_drained = |cell: &mut Cell, name: &str, scope| {
        let offer = NodeOffer { uuids: Vec::new(), ..owned(name, scope) };
        let node = NodeKey::of(&offer);
        let drain = Command::DrainNode { node: node.clone(), force: false };
        for command in [Command::RegisterNode(offer), drain, Command::RemoveNode { node }] {
            execute(cell, at(0), &origin, &command, &mut Vec::new()).expect("nothing runs there");
        }
    };
    leave_drained(&mut cell, "n1", None);
    leave_drained(&mut cell, "n1", Some("umbra"));
    for index in 0..MAX_LEFT_DRAINED_PER_OWNER + 2 {
        leave_drained(&mut cell, &format!("n{index}"), Some("acme"));
    }
    assert_eq!(cell.image().left_drained.len(), MAX_LEFT_DRAINED_PER_OWNER + 2);
    for scope in [None, Some("umbra")] {
        register(&mut cell, owned("n1", scope)).expect("it comes back");
        let drained = cell.node_named(NodeKey::new("n1", scope)).map(|view| view.drained);
        assert_eq!(drained, Some(true), "{scope:?}");
    }
}

/// A node whose tenant gave it to the platform, as in journals of earlier versions.
#[test]
fn a_node_that_changed_its_owner_in_an_old_journal_is_found_under_the_last_one() {
    let mut world = World::new();
    world.register(&owned("n1", Some("acme")));
    let lease_until = at(world.now + HOUR);
    let node = bursar_core::cell::nodes::node::NodeId(0);
    let widened = Event::NodeRegistered {
        node,
        offer: Box::new(owned("n1", None)),
        incarnation: 2,
        lease_until,
        kept_until: None,
    };
    world.cell.apply(at(world.now), &widened);
    world.cell.check().expect("the laws hold");
    assert!(world.cell.node_named(NodeKey::new("n1", Some("acme"))).is_none());
    assert_eq!(world.cell.node_named("n1").map(|view| view.incarnation), Some(2));
    let twin = Cell::from_image(world.cell.image()).expect("the image of a cell");
    assert_eq!(twin.digest(), world.cell.digest());
}

#[test]
fn attempts_of_a_node_before_and_after_an_instant_are_distinguished() {
    let mut world = World::with_nodes(2, "H100");
    let early = world.run("acme", 8, HOUR);
    world.pass(MINUTE, MINUTE);
    let since = at(world.now);
    let late = world.run("acme", 8, HOUR);
    world.pass(MINUTE, MINUTE);
    let attempt = |job| AttemptId { job, number: 1 };
    let held =
        |name: &str, job| world.cell.holds_since_before(since, attempt(job), &NodeKey::from(name));
    assert_eq!([held("n0", early), held("n1", early)], [true, false], "of its own node");
    assert_eq!([held("n0", late), held("n1", late)], [false, false], "not what came later");
    assert!(!held("n9", early) && !held("n0", JobId(99)));
}

/// Jobs of one tenant ask for something else each. The tables of what was asked for never shrink.
#[test]
fn jobs_of_a_tenant_ask_for_so_much_and_no_more() {
    let mut cell = Cell::new();
    let origin = Origin::component("test");
    let spec = |id: u64, account: &str, number: usize| {
        let mut spec = JobSpec::new(JobId(id), account, GpuDemand::Whole(1));
        spec.labels = (0..63).map(|label| format!("l={number}.{label}").into()).collect();
        spec
    };
    let admit = |cell: &mut Cell, spec: &JobSpec| {
        let mut events = Vec::new();
        let admit = Command::AdmitJob(spec.clone());
        advance(cell, at(0), |_, _| {});
        execute(cell, at(0), &origin, &admit, &mut events).expect("a fine job");
        let cancel = Command::CancelJob { job: spec.job };
        let refused = events.iter().find_map(|event| match event {
            Event::JobEnded { outcome, .. } => Some(*outcome),
            _ => None,
        });
        if refused.is_none() {
            advance(cell, at(0), |_, _| {});
            execute(cell, at(0), &origin, &cancel, &mut Vec::new()).expect("it waits");
        }
        refused
    };
    let most = MAX_DEMANDS_PER_TENANT / 64;
    for number in 0..most {
        assert_eq!(admit(&mut cell, &spec(1, "acme:nlp", number)), None, "{number}");
    }
    let rebuilt = Cell::from_image(cell.image()).expect("the image of a cell");
    assert_eq!(rebuilt.digest(), cell.digest());
    for mut cell in [cell, rebuilt] {
        let full = cell.image().labels.len();
        for number in [most, most + 1] {
            let refused = admit(&mut cell, &spec(1, "acme:vision", number));
            assert_eq!(refused, Some(JobOutcome::TooManyDemands));
        }
        assert_eq!(cell.image().labels.len(), full, "a job that is turned away adds nothing");
        assert_eq!(admit(&mut cell, &spec(1, "acme:vision", 7)), None, "it asked for this before");
        assert_eq!(admit(&mut cell, &spec(1, "umbra", most)), None, "another tenant");
        let refused = admit(&mut cell, &spec(1, "acme:vision", most));
        assert_eq!(refused, Some(JobOutcome::TooManyDemands), "whatever others ask for");
        cell.check().expect("the laws hold");
    }
}

#[test]
fn a_group_is_dropped_with_its_last_job() {
    let mut world = World::with_nodes(1, "H100");
    let mut jobs = Vec::new();
    for number in 0..100 {
        let mut spec = world.spec("acme", 8, HOUR);
        spec.group = Some(GroupSpec { name: format!("g{}", number / 2).into(), limit: 1 });
        jobs.push(world.submit(spec));
    }
    let named = |world: &World| {
        let groups = world.cell.image().groups;
        (groups.iter().filter(|group| !group.tenant.is_empty()).count(), groups.len())
    };
    assert_eq!(named(&world), (50, 50));
    let keeps = jobs.pop().expect("many");
    for job in jobs {
        world.send(Command::CancelJob { job }).expect("it is here");
    }
    world.pass(MINUTE, MINUTE);
    assert_eq!(named(&world), (1, 50), "one job is left");
    let rebuilt = Cell::from_image(world.cell.image()).expect("the image of a cell");
    world.twin = Some(Box::new(rebuilt));
    for number in 0..1000 {
        let mut spec = world.spec("acme", 8, HOUR);
        spec.group = Some(GroupSpec { name: format!("h{number}").into(), limit: 2 });
        let job = world.submit(spec);
        world.send(Command::CancelJob { job }).expect("it is here");
    }
    assert_eq!(named(&world), (1, 50), "numbers are used again");
    world.send(Command::CancelJob { job: keeps }).expect("it is here");
    world.pass(MINUTE, MINUTE);
    assert_eq!(named(&world), (0, 50));
    world.check_replay();
}

fn register(cell: &mut Cell, offer: NodeOffer) -> Result<Reply, Refusal> {
    let command = Command::RegisterNode(offer);
    execute(cell, at(0), &Origin::component("test"), &command, &mut Vec::new())
}

fn refused_field(answer: Result<Reply, Refusal>) -> Option<&'static str> {
    match answer {
        Err(Refusal::Invalid { field, .. }) => Some(field),
        Ok(_) | Err(_) => None,
    }
}

/// A node that registers repeatedly under new names adds a bounded number of entries, and the
/// limits of one tenant do not affect the others.
#[test]
fn a_tenant_adds_so_many_names_to_a_cell_and_no_more() {
    let mut cell = Cell::new();
    let with = |scope: Option<&str>, change: &dyn Fn(&mut NodeOffer)| {
        let mut offer = owned("n1", scope);
        change(&mut offer);
        offer
    };
    let typed =
        |scope, index: usize| with(scope, &|o| o.model = GpuModel::unchecked(format!("T{index}")));
    let racked = |scope, index: usize| with(scope, &|o| o.rack = format!("r{index}").into());
    let labelled = |scope, index: usize| {
        with(scope, &|offer| {
            let labels = 64 * index..64 * (index + 1);
            offer.labels = labels.map(|label| format!("l={label}").into()).collect();
        })
    };
    let acme = Some("acme");
    // The default type and rack are used by the nodes with labels.
    for index in 0..MAX_LABELS_PER_TENANT / 64 {
        register(&mut cell, labelled(acme, index)).expect("few labels");
    }
    for index in 1..MAX_TYPES_PER_TENANT {
        register(&mut cell, typed(acme, index)).expect("few types");
    }
    for index in 1..MAX_RACKS_PER_TENANT {
        register(&mut cell, racked(acme, index)).expect("few racks");
    }
    let tables = |cell: &Cell| {
        let image = cell.image();
        (image.models.len(), image.labels.len(), image.racks.len())
    };
    let full = tables(&cell);
    // A name that another owner uses counts as new for the tenant.
    for scope in [Some("umbra"), None] {
        register(&mut cell, typed(scope, 1000)).expect("another owner");
        register(&mut cell, racked(scope, 2000)).expect("another owner");
        register(&mut cell, labelled(scope, 100)).expect("another owner");
    }
    let rebuilt = Cell::from_image(cell.image()).expect("the image of a cell");
    for mut cell in [cell, rebuilt] {
        let before = tables(&cell);
        for index in [1000, 1001] {
            assert_eq!(refused_field(register(&mut cell, typed(acme, index))), Some("gpus.type"));
            let again = register(&mut cell, racked(acme, index + 1000));
            assert_eq!(refused_field(again), Some("rack"));
            let again = register(&mut cell, labelled(acme, index - 900));
            assert_eq!(refused_field(again), Some("labels"));
        }
        assert_eq!(tables(&cell), before, "a refused offer adds nothing");
        register(&mut cell, typed(acme, 1)).expect("a type that it used before");
        let without_gpus = with(acme, &|offer| {
            offer.model = "".into();
            offer.uuids.clear();
        });
        register(&mut cell, without_gpus).expect("a node without GPUs has no type");
        cell.check().expect("the laws hold");
    }
    assert_eq!(full, (MAX_TYPES_PER_TENANT, MAX_LABELS_PER_TENANT, MAX_RACKS_PER_TENANT));
}

#[test]
fn a_tenant_has_so_many_nodes_and_one_that_is_deleted_makes_room() {
    let mut cell = Cell::new();
    let bare = |index: usize, scope: &str| NodeOffer {
        uuids: Vec::new(),
        ..owned(&format!("n{index}"), Some(scope))
    };
    for index in 0..MAX_NODES_PER_TENANT {
        register(&mut cell, bare(index, "acme")).expect("few nodes");
    }
    let more = bare(MAX_NODES_PER_TENANT, "acme:nlp");
    assert_eq!(refused_field(register(&mut cell, more.clone())), Some("id"));
    register(&mut cell, bare(0, "acme")).expect("it is there already");
    register(&mut cell, bare(0, "umbra")).expect("another owner");
    let remove = Command::RemoveNode { node: NodeKey::new("n7", Some("acme")) };
    execute(&mut cell, at(0), &Origin::component("test"), &remove, &mut Vec::new())
        .expect("nothing runs there");
    register(&mut cell, more).expect("there is room again");
}

#[test]
fn nodes_that_come_and_go_leave_nothing_behind() {
    let mut cell = Cell::new();
    let remove = |name: &str| Command::RemoveNode { node: NodeKey::new(name, Some("acme")) };
    let mut events = Vec::new();
    let mut journal: Vec<Event> = Vec::new();
    for index in 0..10_000 {
        let name = format!("n{index}");
        for command in [Command::RegisterNode(owned(&name, Some("acme"))), remove(&name)] {
            events.clear();
            execute(&mut cell, at(0), &Origin::component("test"), &command, &mut events)
                .expect("one node at a time");
            journal.append(&mut events);
        }
    }
    assert_eq!(cell.image().next_node.0, 1, "one number was enough");
    for name in ["a", "b", "c", "d"] {
        register(&mut cell, owned(name, Some("acme"))).expect("few nodes");
    }
    for name in ["c", "a"] {
        execute(&mut cell, at(0), &Origin::component("test"), &remove(name), &mut Vec::new())
            .expect("nothing runs there");
    }
    let rebuilt = Cell::from_image(cell.image()).expect("the image of a cell");
    for mut cell in [cell, rebuilt] {
        for name in ["e", "f", "g"] {
            register(&mut cell, owned(name, Some("acme"))).expect("few nodes");
        }
        let image = cell.image();
        let numbers: Vec<_> =
            image.nodes.iter().map(|node| (node.node.0, node.offer.name.as_str())).collect();
        assert_eq!(numbers, [(0, "e"), (1, "b"), (2, "f"), (3, "d"), (4, "g")]);
        cell.check().expect("the laws hold");
    }
}

/// A gang of two whose first part has ended, so that its node is free while the second part runs.
fn half_ended_gang() -> (World, JobId) {
    let mut world = World::with_nodes(2, "H100");
    let mut spec = world.spec("acme", 8, HOUR);
    spec.nodes = 2;
    let job = world.submit(spec);
    let attempt = AttemptId { job, number: 1 };
    for (name, state) in [("n0", ReportState::Succeeded), ("n1", ReportState::Running)] {
        let mut heartbeat = beat(name, None, 1, 1);
        heartbeat.reports.push(AttemptReport { state, ..running(attempt) });
        world.ok(Command::Heartbeat(heartbeat));
    }
    world.ok(Command::RemoveNode { node: "n0".into() });
    (world, job)
}

#[test]
fn the_number_of_a_deleted_node_rests_while_a_gang_that_was_there_goes_on() {
    let (mut world, job) = half_ended_gang();
    let attempt = AttemptId { job, number: 1 };
    let rebuilt = Cell::from_image(world.cell.image()).expect("the image of a cell");
    world.twin = Some(Box::new(rebuilt));
    world.register(&owned("x", Some("umbra")));
    assert_eq!(world.cell.rank_of(attempt, &NodeKey::new("x", Some("umbra"))), None);
    let numbers = |world: &World| {
        let image = world.cell.image();
        image.nodes.iter().map(|node| node.node.0).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&world), [1, 2]);
    let mut heartbeat = beat("n1", None, 1, 2);
    heartbeat.reports.push(AttemptReport { state: ReportState::Succeeded, ..running(attempt) });
    world.ok(Command::Heartbeat(heartbeat));
    assert_eq!(world.outcomes.len(), 1, "the gang is over");
    world.register(&owned("y", Some("umbra")));
    assert_eq!(numbers(&world), [0, 1, 2], "and the number is free");
    world.check_replay();
}

#[test]
fn a_gang_that_has_ended_on_a_deleted_node_can_be_stopped() {
    let (mut world, job) = half_ended_gang();
    world.ok(Command::CancelJob { job });
    let mut heartbeat = beat("n1", None, 1, 2);
    let attempt = AttemptId { job, number: 1 };
    heartbeat.reports.push(AttemptReport { state: ReportState::Stopped, ..running(attempt) });
    world.ok(Command::Heartbeat(heartbeat));
    assert_eq!(world.outcomes.len(), 1, "it is over");
    world.check_replay();
}

/// The second part is ordered to start after the first has ended and its node was deleted.
#[test]
fn a_part_of_a_gang_starts_late_beside_a_deleted_node() {
    let mut world = World::with_nodes(2, "H100");
    let mut spec = world.spec("acme", 8, HOUR);
    spec.nodes = 2;
    let job = world.submit(spec);
    let attempt = AttemptId { job, number: 1 };
    let mut heartbeat = beat("n0", None, 1, 1);
    heartbeat.reports.push(AttemptReport { state: ReportState::Succeeded, ..running(attempt) });
    world.ok(Command::Heartbeat(heartbeat));
    world.ok(Command::RemoveNode { node: "n0".into() });
    let heartbeat = beat("n1", None, 1, 1);
    world.ok(Command::Heartbeat(heartbeat.clone()));
    let orders = world.cell.orders(&heartbeat).expect("the agent's last start");
    let [order] = &orders[..] else { panic!("one order: {orders:?}") };
    let OrderKind::Start(start) = &order.kind else { panic!("to start: {order:?}") };
    assert_eq!((start.nodes.len(), start.rank, start.nodes[1].as_str()), (2, 1, "n1"));
    let mut heartbeat = beat("n1", None, 1, 2);
    heartbeat.reports.push(running(attempt));
    world.ok(Command::Heartbeat(heartbeat));
    world.check_replay();
}

#[test]
fn what_one_node_says_is_bounded() {
    let mut cell = Cell::new();
    let long: compact_str::CompactString = "x".repeat(MAX_NAME_BYTES + 1).into();
    let base = offer("n1", "H100", 1);
    for (field, wrong) in [
        ("name", NodeOffer { name: long.clone().into(), ..base.clone() }),
        ("name", NodeOffer { model: GpuModel::unchecked(long.clone()), ..base.clone() }),
        ("name", NodeOffer { uuids: vec![long.clone()], ..base.clone() }),
        ("name", NodeOffer { labels: vec![long], ..base.clone() }),
        (
            "labels",
            NodeOffer { labels: (0..65).map(|at| format!("l={at}").into()).collect(), ..base },
        ),
    ] {
        assert_eq!(refused_field(register(&mut cell, wrong)), Some(field));
    }
}

/// What an attacker with an agent key of one tenant may try.
#[derive(Clone, Debug)]
enum Step {
    Register { name: u8, scope: usize, uuids_of: u8 },
    Beat { name: u8, scope: usize, incarnation: u32, job: u64, number: u32, state: u8 },
    Remove { name: u8, scope: usize },
    Submit { tenant: bool },
    Pass,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..3u8, 0..SCOPES.len(), 0..3u8)
            .prop_map(|(name, scope, uuids_of)| Step::Register { name, scope, uuids_of }),
        4 => (0..3u8, 0..SCOPES.len(), 1..4u32, 1..6u64, 1..3u32, 0..4u8).prop_map(
            |(name, scope, incarnation, job, number, state)| Step::Beat {
                name, scope, incarnation, job, number, state
            }
        ),
        1 => (0..3u8, 0..SCOPES.len()).prop_map(|(name, scope)| Step::Remove { name, scope }),
        3 => any::<bool>().prop_map(|tenant| Step::Submit { tenant }),
        2 => Just(Step::Pass),
    ];
    prop::collection::vec(step, 1..40)
}

/// What the platform and acme see: all nodes except those of umbra.
fn seen_by_others(cell: &Cell) -> Vec<String> {
    let others = cell.nodes().filter(|view| {
        !view.offer.scope.as_deref().is_some_and(|scope| scope.starts_with("umbra"))
    });
    others
        .map(|view| format!("{:?} {} {:?}", view.offer, view.incarnation, view.attempts))
        .collect()
}

fn act(world: &mut World, step: &Step, seq: u64) {
    match step {
        Step::Register { name, scope, uuids_of } => {
            let uuids = owned(&format!("n{uuids_of}"), None).uuids;
            let offer = NodeOffer { uuids, ..owned(&format!("n{name}"), SCOPES[*scope]) };
            let _ = world.send(Command::RegisterNode(offer));
        }
        Step::Beat { name, scope, incarnation, job, number, state } => {
            let attempt = AttemptId { job: JobId(*job), number: *number };
            let state = match state {
                0 => ReportState::Running,
                1 => ReportState::Succeeded,
                2 => ReportState::Failed,
                _ => ReportState::Stopped,
            };
            let said = AttemptReport { state, gpu_ms_total: 1 << 40, ..running(attempt) };
            let mut heartbeat = beat(&format!("n{name}"), SCOPES[*scope], *incarnation, seq);
            heartbeat.reports.push(said);
            let known = world.cell.node_named(&heartbeat.node);
            let own = known.is_some_and(|view| view.attempts.contains(&attempt));
            let before = world.journal.len();
            if let Err(refusal) = world.send(Command::Heartbeat(heartbeat.clone())) {
                assert_eq!(before, world.journal.len(), "a refused report records nothing");
                // A node that returns too late may read its orders; another node has its GPUs now.
                if !matches!(refusal, Refusal::GpuTaken { .. }) {
                    assert_eq!(world.cell.orders(&heartbeat), Err(refusal), "and gets no orders");
                }
                return;
            }
            let events = world.journal[before..].iter().flat_map(|(_, events)| events);
            let named = events.filter(|event| {
                matches!(event,
                    Event::AttemptStartedOnNode { attempt: of, .. } | Event::AttemptEndedOnNode { attempt: of, .. }
                    if *of == attempt)
            });
            assert!(own || named.count() == 0, "it reports on {attempt} of another node");
            let orders = world.cell.orders(&heartbeat).expect("the report was taken");
            let order = orders.iter().find(|order| order.attempt == attempt);
            let forget = order.is_some_and(|order| order.kind == OrderKind::Forget);
            // The job may have been placed here since.
            let known = world.cell.node_named(&heartbeat.node);
            let own = own || known.is_some_and(|view| view.attempts.contains(&attempt));
            assert!(own || forget, "an attempt of another node is forgotten: {orders:?}");
        }
        Step::Remove { name, scope } => {
            let node = NodeKey::new(format!("n{name}"), SCOPES[*scope]);
            let _ = world.send(Command::RemoveNode { node });
        }
        Step::Submit { tenant } => {
            world.run(if *tenant { "umbra:x" } else { "acme:nlp" }, 4, HOUR);
        }
        Step::Pass => world.pass(MINUTE, MINUTE),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_laws_hold_whatever_agents_of_several_owners_say(steps in steps()) {
        let mut world = World::new();
        for (seq, step) in (1..).zip(&steps) {
            act(&mut world, step, seq);
            world.cell.check().expect("the laws hold");
        }
        world.check_replay();
    }

    /// The answers to an owner do not depend on the existence of another owner.
    #[test]
    fn an_owner_cannot_learn_of_another(steps in steps(), squat in 0..3u8) {
        let (mut alone, mut beside) = (World::new(), World::new());
        for name in 0..3u8 {
            let uuids = owned(&format!("n{squat}"), None).uuids;
            // Two nodes of one owner never have the same GPUs, so only node `squat` has them.
            let uuids = if name == squat { uuids } else { Vec::new() };
            let offer = NodeOffer { uuids, ..owned(&format!("n{name}"), Some("umbra")) };
            beside.send(Command::RegisterNode(offer)).expect("its own names are free");
        }
        let theirs = |step: &&Step| match step {
            Step::Register { scope, .. } | Step::Remove { scope, .. } => *scope < 3,
            Step::Beat { .. } | Step::Submit { .. } | Step::Pass => false,
        };
        for step in steps.iter().filter(theirs) {
            let command = match step {
                Step::Register { name, scope, uuids_of } => {
                    let uuids = owned(&format!("n{uuids_of}"), None).uuids;
                    let name = format!("n{name}");
                    Command::RegisterNode(NodeOffer { uuids, ..owned(&name, SCOPES[*scope]) })
                }
                Step::Remove { name, scope } => {
                    Command::RemoveNode { node: NodeKey::new(format!("n{name}"), SCOPES[*scope]) }
                }
                Step::Beat { .. } | Step::Submit { .. } | Step::Pass => continue,
            };
            prop_assert_eq!(alone.send(command.clone()), beside.send(command));
            prop_assert_eq!(seen_by_others(&alone.cell), seen_by_others(&beside.cell));
        }
    }
}
