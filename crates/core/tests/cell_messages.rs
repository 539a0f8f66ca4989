//! Messages to the ledgers: dense numbers, the right content, none twice and none missing.

use crate::cell_world;

use bursar_core::cell::command::{
    AttemptReport, Command, FundsBlocker, Heartbeat, NodeOffer, Refusal, ReportState, Verdict,
};
use bursar_core::cell::event::{AttemptOutcome, Event, JobOutcome, StopReason};
use bursar_core::cell::jobs::orders::{OrderKind, StartOrder};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, JobId, Origin};
use bursar_core::message::{Mark, ProposedNode, ToCell, ToLedger};
use cell_world::*;

/// All messages to a shard. Checks that their numbers are dense from 1.
fn messages_to(world: &World, to: u16) -> Vec<ToLedger> {
    let mut messages = Vec::new();
    for event in world.journal.iter().flat_map(|(_, events)| events) {
        if let Event::LedgerMessageSent { shard, number, message } = event
            && *shard == to
        {
            messages.push((**message).clone());
            assert_eq!(*number, messages.len() as u64);
        }
    }
    assert_eq!(world.cell.last_message_to(to), messages.len() as u64);
    messages
}

fn beat(world: &mut World, seq: u64, reports: Vec<AttemptReport>) {
    let heartbeat = Heartbeat { node: "n0".into(), incarnation: 1, seq, reports };
    world.ok(Command::Heartbeat(heartbeat));
}

fn report(attempt: AttemptId, state: ReportState, gpu_ms_total: u64) -> AttemptReport {
    AttemptReport { attempt, state, gpu_ms_total, exit_code: None }
}

fn spec_of(shard: u16, number: u64, gpus: u16) -> JobSpec {
    let mut spec = JobSpec::new(JobId::new(shard, number), "acme", GpuDemand::Whole(gpus));
    spec.max_runtime_ms = Some(HOUR);
    spec
}

#[test]
fn the_ledger_is_notified_of_a_job_from_the_proposal_to_the_end() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.submit(spec_of(5, 1, 4));
    let attempt = AttemptId { job, number: 1 };
    beat(&mut world, 1, vec![report(attempt, ReportState::Running, 0)]);
    world.now += 10_000;
    beat(&mut world, 2, vec![report(attempt, ReportState::Running, 40_000)]);
    world.now += 10_000;
    let last = AttemptReport { exit_code: Some(3), ..report(attempt, ReportState::Failed, 72_000) };
    beat(&mut world, 3, vec![last]);
    let node = ProposedNode { node: "n0".into(), gpus: 4 };
    let expected = [
        ToLedger::PlacementProposed {
            attempt,
            gpu_type: Some("H100".into()),
            nodes: [node].into_iter().collect(),
        },
        ToLedger::AttemptStarted { attempt },
        ToLedger::UsageMetered(vec![(attempt, 40_000)]),
        ToLedger::UsageMetered(vec![(attempt, 72_000)]),
        ToLedger::AttemptEnded {
            attempt,
            outcome: AttemptOutcome::Failed,
            gpu_ms: 72_000,
            exit_code: Some(3),
            requeued: None,
        },
        ToLedger::JobEnded { job, outcome: JobOutcome::Failed },
    ];
    assert_eq!(messages_to(&world, 5), expected);
    assert_eq!(world.cell.ledgers().into_iter().collect::<Vec<_>>(), [5]);
    world.check_replay();
}

#[test]
fn one_report_is_one_usage_message_to_each_ledger() {
    let mut world = World::with_nodes(1, "H100");
    let jobs: Vec<JobId> =
        (1..=4).map(|number| world.submit(spec_of((number % 2) as u16, number, 1))).collect();
    let running = |gpu_ms| {
        let attempts = jobs.iter().map(|job| AttemptId { job: *job, number: 1 });
        attempts.map(|attempt| report(attempt, ReportState::Running, gpu_ms)).collect()
    };
    beat(&mut world, 1, running(0));
    world.now += 30_000;
    beat(&mut world, 2, running(30_000));
    for shard in [0, 1] {
        let messages = messages_to(&world, shard);
        let usage: Vec<_> = messages
            .iter()
            .filter_map(|message| match message {
                ToLedger::UsageMetered(usage) => Some(usage.len()),
                _ => None,
            })
            .collect();
        assert_eq!(usage, [2], "of shard {shard}");
    }
    world.check_replay();
}

#[test]
fn the_last_report_of_an_attempt_is_part_of_its_settled_usage() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.submit(spec_of(0, 1, 1));
    let attempt = AttemptId { job, number: 1 };
    beat(&mut world, 1, vec![report(attempt, ReportState::Running, 0)]);
    world.now += 30_000;
    beat(&mut world, 2, vec![report(attempt, ReportState::Succeeded, 29_000)]);
    let settled = messages_to(&world, 0).into_iter().find_map(|message| match message {
        ToLedger::AttemptEnded { gpu_ms, .. } => Some(gpu_ms),
        _ => None,
    });
    assert_eq!(settled, Some(29_000));
}

#[test]
fn an_attempt_that_never_reported_running_has_no_usage() {
    let mut world = World::with_nodes(1, "H100");
    let job = world.submit(spec_of(0, 1, 1));
    let attempt = AttemptId { job, number: 1 };
    beat(&mut world, 1, vec![report(attempt, ReportState::Stopped, 4000)]);
    let messages = messages_to(&world, 0);
    assert!(
        !messages.iter().any(|message| matches!(
            message,
            ToLedger::UsageMetered(_) | ToLedger::AttemptStarted { .. }
        )),
        "{messages:?}"
    );
    assert!(messages.contains(&ToLedger::AttemptEnded {
        attempt,
        outcome: AttemptOutcome::Lost,
        gpu_ms: 0,
        exit_code: None,
        requeued: Some(at(world.now)),
    }));
}

#[test]
fn usage_never_exceeds_the_paid_running_time() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = false;
    let job = world.submit(spec_of(0, 1, 2));
    let attempt = AttemptId { job, number: 1 };
    let funded_ms = Some(60_000);
    world.ok(Command::ConfirmPlacement { attempt, price: 1_000_000, funded_ms });
    beat(&mut world, 1, vec![report(attempt, ReportState::Running, 0)]);
    world.now += 59_999;
    beat(&mut world, 2, vec![report(attempt, ReportState::Running, u64::MAX)]);
    let messages = messages_to(&world, 0);
    assert!(messages.contains(&ToLedger::FundsNeeded { attempt }));
    assert_eq!(messages.last(), Some(&ToLedger::UsageMetered(vec![(attempt, 120_000)])));
    world.now += 1;
    world.settle();
    let reason = StopReason::OutOfCredits;
    assert_eq!(messages_to(&world, 0).last(), Some(&ToLedger::StopOrdered { attempt, reason }));
}

#[test]
fn a_withdrawn_job_sends_no_message_and_its_gpus_are_free() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = false;
    let job = world.submit(spec_of(0, 1, 8));
    let next = world.submit(spec_of(0, 2, 8));
    let before = messages_to(&world, 0).len();
    let origin = |number| Origin::Ledger { shard: 0, number, position: number };
    let withdraw = || Command::from(ToCell::JobWithdrawn { job });
    world.send_from(origin(1), withdraw()).expect("it is here");
    assert_eq!(world.cell.why(job, at(world.now)), None);
    let after = messages_to(&world, 0);
    assert_eq!(after.len(), before + 1, "only the next job's proposal: {after:?}");
    assert!(matches!(after.last(), Some(ToLedger::PlacementProposed { attempt, .. })
        if attempt.job == next));
    // The ledger's answer to the proposal was on its way; it changes nothing.
    let attempt = AttemptId { job, number: 1 };
    let verdict = Verdict::Withdraw;
    let late = Command::from(ToCell::PlacementRefused { attempt, verdict });
    assert_eq!(world.send_from(origin(2), late), Err(Refusal::StaleAttempt));
    assert_eq!(world.send_from(origin(3), withdraw()), Err(Refusal::UnknownJob));
    assert_eq!(world.cell.mark(0), Mark { number: 3, position: 3 });
    world.check_replay();
}

#[test]
fn attempt_numbers_continue_from_other_regions_and_the_queue_position_is_kept() {
    let mut world = World::with_nodes(1, "H100");
    let blocker = world.submit(spec_of(0, 1, 8));
    let late = world.submit(spec_of(0, 2, 8));
    world.now += 1000;
    let mut spec = spec_of(0, 9, 8);
    spec.attempts_before = 4;
    spec.submitted_at = at(world.now - HOUR);
    let early = world.submit(spec);
    world.ok(Command::CancelJob { job: blocker });
    let stopped = report(AttemptId { job: blocker, number: 1 }, ReportState::Stopped, 0);
    beat(&mut world, 1, vec![stopped]);
    assert!(world.has_started(early) && !world.has_started(late));
    let proposed = messages_to(&world, 0).into_iter().rev().find_map(|message| match message {
        ToLedger::PlacementProposed { attempt, .. } => Some(attempt),
        _ => None,
    });
    assert_eq!(proposed, Some(AttemptId { job: early, number: 5 }));
    world.check_replay();
}

#[test]
fn an_order_to_start_carries_all_that_the_agent_needs() {
    let mut world = World::with_nodes(2, "H100");
    let mut spec = spec_of(0, 1, 8);
    spec.nodes = 2;
    spec.payload = r#"{"command":["true"]}"#.into();
    let job = world.submit(spec);
    for (rank, node) in ["n0", "n1"].into_iter().enumerate() {
        let heartbeat =
            Heartbeat { node: node.into(), incarnation: 1, seq: 1, reports: Vec::new() };
        world.ok(Command::Heartbeat(heartbeat.clone()));
        let orders = world.cell.orders(&heartbeat).expect("the agent's last start");
        let [order] = &orders[..] else { panic!("one order: {orders:?}") };
        assert_eq!(order.attempt, AttemptId { job, number: 1 });
        let expected = StartOrder {
            gpus: 0xff,
            uuids: (0..8).map(|device| format!("{node}-{device}").into()).collect(),
            nodes: vec!["n0".into(), "n1".into()],
            rank: rank as u16,
            payload: r#"{"command":["true"]}"#.into(),
            grace_ms: MINUTE,
        };
        assert_eq!(order.kind, OrderKind::Start(Box::new(expected)));
    }
}

#[test]
fn gpus_are_named_all_or_none_and_each_once() {
    let mut world = World::new();
    let fine = offer("n0", "H100", 2);
    let with = |uuids: &[&str]| NodeOffer {
        uuids: uuids.iter().map(|uuid| (*uuid).into()).collect(),
        ..fine.clone()
    };
    for bad in [with(&["a"]), with(&["a", "a"]), with(&["a", ""]), with(&["a", "b", "c"])] {
        let answer = world.send(Command::RegisterNode(bad));
        assert!(matches!(answer, Err(Refusal::Invalid { field: "gpus.uuid", .. })), "{answer:?}");
    }
    world.register(&with(&[]));
    world.register(&with(&["a", "b"]));
}

/// The numbers of proposed attempts, in order.
fn proposed(world: &World) -> Vec<u32> {
    let events = world.journal.iter().flat_map(|(_, events)| events);
    let numbers = events.filter_map(|event| match event {
        Event::PlacementProposed { attempt, .. } => Some(attempt.number),
        _ => None,
    });
    numbers.collect()
}

/// The ledger renumbers attempts under the assumption that at most one proposal is open. With two
/// it could take the answer for one attempt for that of another.
#[test]
fn after_a_lost_placement_no_other_is_proposed_before_the_ledger_has_answered() {
    for refused in [None, Some(FundsBlocker::Credits)] {
        let mut world = World::with_nodes(3, "H100");
        world.confirms = false;
        let job = world.run("a", 8, HOUR);
        world.agent("n0").silent = true;
        world.pass(5 * MINUTE, 30 * SECOND);
        assert_eq!(proposed(&world), [1], "its node is lost and the ledger has not answered");
        let why = world.cell.why(job, at(world.now)).expect("it waits");
        assert!(!why.blockers.is_empty(), "L14");
        let attempt = AttemptId { job, number: 1 };
        let other = AttemptId { job, number: 2 };
        let confirm = |attempt| Command::ConfirmPlacement { attempt, price: 1, funded_ms: None };
        assert_eq!(world.send(confirm(other)), Err(Refusal::StaleAttempt));
        world.ok(match refused {
            None => confirm(attempt),
            Some(blocker) => Command::RefusePlacement { attempt, verdict: Verdict::Wait(blocker) },
        });
        assert_eq!(proposed(&world), [1, 2]);
        assert_eq!(world.send(confirm(attempt)), Err(Refusal::StaleAttempt));
        world.check_replay();
    }
}

#[test]
fn a_job_can_be_withdrawn_while_its_lost_proposal_is_unanswered() {
    let mut world = World::with_nodes(2, "H100");
    world.confirms = false;
    let job = world.run("a", 8, HOUR);
    world.agent("n0").silent = true;
    world.pass(5 * MINUTE, 30 * SECOND);
    let attempt = AttemptId { job, number: 1 };
    world.ok(Command::RefusePlacement { attempt, verdict: Verdict::Withdraw });
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Withdrawn));
    world.check_replay();
}
