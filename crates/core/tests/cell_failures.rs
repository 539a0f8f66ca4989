//! Lost, restarted, drained and maintained nodes, and attempts that do not stop.

use crate::cell_world;

use bursar_core::cell::command::{AttemptReport, Command, Heartbeat, Refusal, Reply, ReportState};
use bursar_core::cell::event::{Event, JobOutcome, StopReason};
use bursar_core::cell::ids::MaintenanceId;
use bursar_core::cell::jobs::orders::OrderKind;
use bursar_core::cell::schedule::explain::{PlacementBlocker, PlacementState};
use bursar_core::cell::{AttemptId, JobId};
use bursar_core::message::ToLedger;
use cell_world::*;

fn state(world: &World, job: JobId) -> Option<PlacementState> {
    world.cell.why(job, at(world.now)).map(|why| why.state)
}

fn heartbeat(node: &str, incarnation: u32, seq: u64, reports: Vec<AttemptReport>) -> Heartbeat {
    Heartbeat { node: node.into(), incarnation, seq, reports }
}

fn report(attempt: AttemptId, state: ReportState) -> AttemptReport {
    AttemptReport { attempt, state, gpu_ms_total: 0, exit_code: None }
}

/// Sends a report and returns the orders that follow.
fn beat(world: &mut World, heartbeat: Heartbeat) -> Vec<(AttemptId, OrderKind)> {
    world.ok(Command::Heartbeat(heartbeat.clone()));
    let orders = world.cell.orders(&heartbeat).expect("the agent's last start");
    orders.into_iter().map(|order| (order.attempt, order.kind)).collect()
}

#[test]
fn a_silent_node_loses_its_attempts_and_they_are_requeued() {
    let mut world = World::with_nodes(2, "H100");
    let jobs = [world.run("a", 8, 5 * HOUR), world.run("a", 8, 5 * HOUR)];
    world.pass(5 * MINUTE, 30 * SECOND);
    world.agent("n0").silent = true;
    world.pass(2 * MINUTE, 30 * SECOND);
    let waiting = jobs.iter().filter(|job| state(&world, **job) == Some(PlacementState::Queued));
    assert_eq!(waiting.count(), 1);
    // It returns with its old attempt. The cell orders it to forget the attempt, and nothing else
    // changes.
    world.agent("n0").silent = false;
    world.pass(5 * MINUTE, 30 * SECOND);
    assert!(jobs.iter().all(|job| state(&world, *job) == Some(PlacementState::Running)));
    world.check_replay();
}

#[test]
fn a_job_that_waits_for_a_lost_node_is_shown_that_the_node_is_lost() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, 5 * HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.agent("n0").silent = true;
    world.pass(2 * MINUTE, 30 * SECOND);
    let why = world.cell.why(job, at(world.now)).expect("waits");
    let lost = PlacementBlocker::Lost { nodes: 1 };
    assert!(why.blockers.contains(&lost), "{:?}", why.blockers);
    let drained = PlacementBlocker::Drain { nodes: 1 };
    assert!(!why.blockers.contains(&drained), "{:?}", why.blockers);
    assert_eq!(why.estimate, None, "nothing says when it comes back");
}

#[test]
fn a_job_without_requeues_left_is_lost_with_its_node() {
    let mut world = World::with_nodes(1, "H100");
    let mut spec = world.spec("a", 8, 5 * HOUR);
    spec.max_requeues = 1;
    let job = world.submit(spec);
    for _ in 0..2 {
        world.pass(5 * MINUTE, 30 * SECOND);
        world.agent("n0").silent = true;
        world.pass(2 * MINUTE, 30 * SECOND);
        world.agent("n0").silent = false;
    }
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Lost));
    world.check_replay();
}

#[test]
fn an_agent_that_starts_again_without_its_jobs_has_lost_them() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, 5 * HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.crash_agent("n0");
    let reply = world.ok(Command::RegisterNode(offer("n0", "H100", 8)));
    assert!(matches!(reply, Reply::Registered { incarnation: 2, .. }));
    let stale = heartbeat("n0", 1, 99, Vec::new());
    assert_eq!(
        world.send(Command::Heartbeat(stale)),
        Err(Refusal::StaleIncarnation { current: 2 })
    );
    assert_eq!(state(&world, job), Some(PlacementState::Running), "it may still report its jobs");
    let orders = beat(&mut world, heartbeat("n0", 2, 1, Vec::new()));
    let second = AttemptId { job, number: 2 };
    assert_eq!(orders.len(), 1, "lost, requeued, and placed again at once");
    assert!(matches!(&orders[0], (attempt, OrderKind::Start(_)) if *attempt == second));
    // No report about the first attempt has any effect now.
    let first = AttemptId { job, number: 1 };
    let reports = vec![report(first, ReportState::Succeeded), report(second, ReportState::Running)];
    let orders = beat(&mut world, heartbeat("n0", 2, 2, reports));
    assert_eq!(orders, [(first, OrderKind::Forget)]);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn a_gang_that_loses_one_node_ends_whole_and_its_other_gpus_stay_fenced() {
    let mut world = World::with_nodes(2, "H100");
    let mut spec = world.spec("a", 8, 5 * HOUR);
    spec.nodes = 2;
    spec.max_requeues = 0;
    let gang = world.submit(spec);
    let next = world.run("b", 8, HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.agent("n0").silent = true;
    // The lease of n0 ends between two reports of n1.
    world.now += 85 * SECOND;
    world.heartbeat();
    world.now += 10 * SECOND;
    world.settle();
    assert_eq!(world.outcomes.get(&gang), Some(&JobOutcome::Lost));
    assert_eq!(
        state(&world, next),
        Some(PlacementState::Queued),
        "n1 has not reported its GPUs free"
    );
    world.pass(MINUTE, 10 * SECOND);
    assert_eq!(state(&world, next), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn a_cancelled_attempt_without_a_report_ends_at_once_and_its_gpus_stay_fenced() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, HOUR);
    let attempt = AttemptId { job, number: 1 };
    let next = world.run("b", 8, HOUR);
    world.ok(Command::CancelJob { job });
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Cancelled));
    assert_eq!(state(&world, next), Some(PlacementState::Queued));
    // The start order may be on its way: the agent is ordered to kill the attempt and reports when
    // it has.
    let orders = beat(&mut world, heartbeat("n0", 1, 1, Vec::new()));
    assert_eq!(orders, [(attempt, OrderKind::Kill { reason: None })]);
    let running = vec![report(attempt, ReportState::Running)];
    let orders = beat(&mut world, heartbeat("n0", 1, 2, running));
    assert_eq!(orders, [(attempt, OrderKind::Kill { reason: None })]);
    assert_eq!(state(&world, next), Some(PlacementState::Queued));
    let stopped = vec![report(attempt, ReportState::Stopped)];
    let orders = beat(&mut world, heartbeat("n0", 1, 3, stopped));
    assert_eq!(state(&world, next), Some(PlacementState::Starting));
    assert!(orders.contains(&(attempt, OrderKind::Forget)));
    world.check_replay();
}

#[test]
fn an_attempt_that_does_not_stop_is_killed_and_then_ends_without_its_report() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, 5 * HOUR);
    let attempt = AttemptId { job, number: 1 };
    let running = || vec![report(attempt, ReportState::Running)];
    beat(&mut world, heartbeat("n0", 1, 1, running()));
    world.ok(Command::CancelJob { job });
    let kill_at = at(world.now + MINUTE);
    let orders = beat(&mut world, heartbeat("n0", 1, 2, running()));
    let reason = StopReason::Cancelled;
    assert_eq!(orders, [(attempt, OrderKind::Stop { kill_at, reason })]);
    world.now += MINUTE;
    let orders = beat(&mut world, heartbeat("n0", 1, 3, running()));
    assert_eq!(orders, [(attempt, OrderKind::Kill { reason: Some(reason) })]);
    world.now += MINUTE;
    let orders = beat(&mut world, heartbeat("n0", 1, 4, running()));
    assert_eq!(
        orders,
        [(attempt, OrderKind::Kill { reason: None })],
        "until it is reported stopped"
    );
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Cancelled));
    let next = world.run("b", 1, HOUR);
    assert_eq!(state(&world, next), Some(PlacementState::Queued));
    beat(&mut world, heartbeat("n0", 1, 5, Vec::new()));
    assert_eq!(
        state(&world, next),
        Some(PlacementState::Starting),
        "the old attempt is no longer reported"
    );
    world.check_replay();
}

#[test]
fn a_job_is_stopped_at_its_longest_runtime() {
    let mut world = World::with_nodes(1, "H100");
    let mut spec = world.spec("a", 1, 10 * HOUR);
    spec.max_runtime_ms = Some(HOUR);
    let job = world.submit(spec);
    world.pass(2 * HOUR, 30 * SECOND);
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::TimedOut));
    let used = world.journal.iter().flat_map(|(_, events)| events).find_map(|event| match event {
        Event::AttemptEnded { gpu_ms, .. } => Some(*gpu_ms),
        _ => None,
    });
    assert!(used.is_some_and(|used| used <= HOUR.unsigned_abs()), "{used:?}");
    world.check_replay();
}

#[test]
fn the_next_window_is_requested_in_time_and_the_attempt_ends_if_it_is_refused() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = false;
    let job = world.run("a", 1, 10 * HOUR);
    let attempt = AttemptId { job, number: 1 };
    let funded_ms = Some(HOUR);
    world.ok(Command::ConfirmPlacement { attempt, price: 1_000_000, funded_ms });
    let asked = |world: &World| {
        let events = world.journal.iter().flat_map(|(_, events)| events);
        events.filter(|event| matches!(event, Event::FundsNeeded { .. })).count()
    };
    world.pass(29 * MINUTE, 30 * SECOND);
    assert_eq!(asked(&world), 0);
    world.pass(3 * MINUTE, 30 * SECOND);
    assert_eq!(asked(&world), 1, "when half is left");
    world.ok(Command::SetFunding { attempt, funded_ms: Some(2 * HOUR) });
    world.pass(HOUR, 30 * SECOND);
    assert_eq!(asked(&world), 2);
    world.ok(Command::RefuseFunding { attempt });
    assert_eq!(
        state(&world, job),
        Some(PlacementState::Running),
        "paid running time is not taken back"
    );
    world.pass(HOUR, 30 * SECOND);
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::OutOfCredits));
    world.check_replay();
}

#[test]
fn a_drained_node_that_is_removed_comes_back_drained_if_its_agent_lives() {
    let mut world = World::with_nodes(1, "H100");
    world.ok(Command::DrainNode { node: "n0".into(), force: false });
    world.ok(Command::RemoveNode { node: "n0".into() });
    // The next report is refused, and the agent registers its node again.
    world.pass(MINUTE, 30 * SECOND);
    world.register(&offer("n0", "H100", 8));
    let job = world.run("a", 1, HOUR);
    let why = world.cell.why(job, at(world.now)).expect("waits");
    let drained = PlacementBlocker::Drain { nodes: 1 };
    assert!(why.blockers.contains(&drained), "{:?}", why.blockers);
    world.ok(Command::ResumeNode { node: "n0".into() });
    world.pass(MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn a_drained_node_that_was_gone_longer_than_its_lease_comes_back_open() {
    let mut world = World::with_nodes(1, "H100");
    world.ok(Command::DrainNode { node: "n0".into(), force: false });
    world.ok(Command::RemoveNode { node: "n0".into() });
    world.pass(5 * MINUTE, 30 * SECOND);
    world.register(&offer("n0", "H100", 8));
    let job = world.run("a", 1, HOUR);
    world.pass(MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn a_drained_node_takes_nothing_new_and_a_forced_drain_empties_it() {
    let mut world = World::with_nodes(1, "H100");
    let mut spec = world.spec("a", 4, 5 * HOUR);
    spec.preemptible = false;
    let first = world.submit(spec);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.ok(Command::DrainNode { node: "n0".into(), force: false });
    let second = world.run("a", 4, HOUR);
    let why = world.cell.why(second, at(world.now)).expect("waits");
    let drained = PlacementBlocker::Drain { nodes: 1 };
    assert!(why.blockers.contains(&drained), "{:?}", why.blockers);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, first), Some(PlacementState::Running));
    assert_eq!(world.send(Command::RemoveNode { node: "n0".into() }), Err(Refusal::NodeBusy));
    world.ok(Command::DrainNode { node: "n0".into(), force: true });
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, first), Some(PlacementState::Queued));
    world.ok(Command::ResumeNode { node: "n0".into() });
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, first), Some(PlacementState::Running));
    assert_eq!(state(&world, second), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn before_maintenance_a_node_takes_only_jobs_that_end_in_time() {
    let mut world = World::with_nodes(1, "H100");
    let from = at(world.now + 3 * HOUR);
    let to = at(world.now + 4 * HOUR);
    let id = MaintenanceId(1);
    world.ok(Command::PlanMaintenance { id, from, to, nodes: vec!["n0".into()] });
    let short = world.run("a", 1, HOUR);
    let long = world.run("a", 1, 5 * HOUR);
    assert!(world.has_started(short));
    let why = world.cell.why(long, at(world.now)).expect("waits");
    assert!(why.blockers.contains(&PlacementBlocker::Reservation { job: None, from }), "{why:?}");
    world.pass(3 * HOUR + 30 * MINUTE, MINUTE);
    assert_eq!(world.outcomes.get(&short), Some(&JobOutcome::Succeeded));
    let shorter = world.run("a", 1, MINUTE);
    assert_eq!(state(&world, shorter), Some(PlacementState::Queued));
    world.pass(HOUR, MINUTE);
    assert!(world.has_started(long) && world.has_started(shorter));
    world.check_replay();
}

#[test]
fn preemptible_attempts_stop_when_maintenance_begins() {
    let mut world = World::with_nodes(1, "H100");
    let leaves = world.run("a", 1, 10 * HOUR);
    let mut spec = world.spec("a", 1, 10 * HOUR);
    spec.preemptible = false;
    let stays = world.submit(spec);
    world.pass(5 * MINUTE, 30 * SECOND);
    let (from, to) = (at(world.now + MINUTE), at(world.now + HOUR));
    let id = MaintenanceId(1);
    world.ok(Command::PlanMaintenance { id, from, to, nodes: Vec::new() });
    world.pass(10 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, leaves), Some(PlacementState::Queued));
    assert_eq!(state(&world, stays), Some(PlacementState::Running));
    world.ok(Command::CancelMaintenance { id });
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, leaves), Some(PlacementState::Running));
    assert_eq!(world.send(Command::CancelMaintenance { id }), Err(Refusal::UnknownMaintenance));
    world.check_replay();
}

#[test]
fn after_an_operators_preemption_a_job_waits_ten_seconds() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 1, 10 * HOUR);
    world.pass(5 * MINUTE, 30 * SECOND);
    world.ok(Command::PreemptJob { job, by_platform: true });
    world.heartbeat();
    world.now += SECOND;
    world.heartbeat();
    let why = world.cell.why(job, at(world.now)).expect("waits");
    let until = at(world.now + 10 * SECOND);
    assert!(why.blockers.contains(&PlacementBlocker::Delayed { until }), "{why:?}");
    world.pass(9 * SECOND, SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Queued));
    world.pass(SECOND, SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Starting));
    world.check_replay();
}

#[test]
fn a_busy_node_keeps_its_hardware_and_an_idle_one_may_change() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.run("a", 8, HOUR);
    let changed = offer("n0", "H100", 4);
    assert_eq!(world.send(Command::RegisterNode(changed.clone())), Err(Refusal::NodeBusy));
    world.pass(2 * HOUR, MINUTE);
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Succeeded));
    world.register(&changed);
    let large = world.run("a", 8, HOUR);
    assert_eq!(kinds(&world, large), ["gpu_type"]);
    world.check_replay();
}

#[test]
fn a_proposal_that_loses_its_node_before_the_ledger_answers_costs_no_requeue() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = false;
    let mut spec = world.spec("a", 8, HOUR);
    spec.max_requeues = 0;
    let job = world.submit(spec);
    assert_eq!(state(&world, job), Some(PlacementState::Proposed));
    world.agent("n0").silent = true;
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Queued), "it never started");
    world.confirms = true;
    world.agent("n0").silent = false;
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.check_replay();
}

fn count(world: &World, wanted: impl Fn(&Event) -> bool) -> usize {
    world.journal.iter().flat_map(|(_, events)| events).filter(|event| wanted(event)).count()
}

/// How many ends of attempts were sent to the ledger.
fn reported_ends(world: &World) -> usize {
    count(world, |event| match event {
        Event::LedgerMessageSent { message, .. } => {
            matches!(**message, ToLedger::AttemptEnded { .. })
        }
        _ => false,
    })
}

/// A gang on two nodes, one of which is lost. The other reports in time and has no order to stop
/// yet.
fn gang_that_lost_a_node() -> (World, JobId) {
    let mut world = World::with_nodes(4, "H100");
    let mut spec = world.spec("a", 4, 5 * HOUR);
    spec.nodes = 2;
    let job = world.submit(spec);
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.agent("n0").silent = true;
    let lost = |world: &World| world.cell.node_named("n0").is_some_and(|node| !node.alive);
    while !lost(&world) {
        world.now += SECOND;
        world.settle();
        if !lost(&world) {
            world.heartbeat();
        }
    }
    assert_eq!(state(&world, job), Some(PlacementState::Queued));
    (world, job)
}

#[test]
fn a_gang_that_lost_a_node_starts_again_only_when_its_other_nodes_have_reported_free() {
    let (mut world, job) = gang_that_lost_a_node();
    let placed =
        |world: &World| count(world, |event| matches!(event, Event::PlacementProposed { .. }));
    assert_eq!(placed(&world), 1, "its part on the other node may still run");
    assert_eq!(reported_ends(&world), 0, "the ledger could start it in another region");
    let why = world.cell.why(job, at(world.now)).expect("it waits");
    assert!(!why.blockers.is_empty(), "L14");
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!((placed(&world), reported_ends(&world)), (2, 1));
    assert_eq!(state(&world, job), Some(PlacementState::Running));
    world.check_replay();
}

#[test]
fn the_end_of_a_gang_is_sent_before_the_end_of_its_job_even_with_a_fence_left() {
    let (mut world, job) = gang_that_lost_a_node();
    world.ok(Command::CancelJob { job });
    assert_eq!(reported_ends(&world), 1, "it will not start again, so its end is not withheld");
    let order: Vec<&ToLedger> = world
        .journal
        .iter()
        .flat_map(|(_, events)| events)
        .filter_map(|event| match event {
            Event::LedgerMessageSent { message, .. } => Some(&**message),
            _ => None,
        })
        .collect();
    let [.., end, last] = order.as_slice() else { panic!("two messages at least") };
    assert!(matches!(end, ToLedger::AttemptEnded { requeued: Some(_), .. }), "{end:?}");
    assert!(matches!(last, ToLedger::JobEnded { .. }), "{last:?}");
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!(reported_ends(&world), 1);
    world.check_replay();
}
