//! A job from admission to its end, with everything that can happen in between.

use crate::cell_world;

use bursar_core::cell::Origin;
use bursar_core::cell::command::{Command, FundsBlocker, Refusal, Reply, Verdict};
use bursar_core::cell::event::{Event, JobOutcome};
use bursar_core::cell::schedule::explain::PlacementState;
use bursar_core::message::Mark;
use cell_world::*;

fn state(world: &World, job: bursar_core::cell::JobId) -> PlacementState {
    world.cell.why(job, at(world.now)).expect("the job is here").state
}

#[test]
fn a_job_goes_from_admission_to_success() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = false;
    let job = world.run("acme:nlp", 4, 10 * MINUTE);
    assert_eq!(state(&world, job), PlacementState::Proposed);
    world.confirms = true;
    world.settle();
    assert_eq!(state(&world, job), PlacementState::Starting);
    world.heartbeat();
    world.pass(30 * SECOND, 30 * SECOND);
    assert_eq!(state(&world, job), PlacementState::Running);
    world.pass(11 * MINUTE, 30 * SECOND);
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Succeeded));
    let metered =
        world.journal.iter().flat_map(|(_, events)| events).rev().find_map(|event| match event {
            Event::AttemptEnded { gpu_ms, .. } => Some(*gpu_ms),
            _ => None,
        });
    // The agent started it one heartbeat before its first report of running.
    let most = u64::try_from(4 * (10 * MINUTE)).expect("positive");
    assert!(metered.is_some_and(|gpu_ms| gpu_ms <= most && gpu_ms >= most * 9 / 10), "{metered:?}");
    world.check_replay();
}

#[test]
fn a_refused_placement_frees_its_gpus_and_the_job_waits_for_funds_or_leaves() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = false;
    let first = world.run("acme", 8, HOUR);
    let second = world.run("acme", 8, HOUR);
    let attempt = |job, number| bursar_core::cell::AttemptId { job, number };
    let verdict = Verdict::Wait(FundsBlocker::Credits);
    world.ok(Command::RefusePlacement { attempt: attempt(first, 1), verdict });
    assert_eq!(state(&world, second), PlacementState::Proposed);
    assert_eq!(kinds(&world, first)[0], "credits");
    let verdict = Verdict::Withdraw;
    world.ok(Command::RefusePlacement { attempt: attempt(second, 1), verdict });
    assert_eq!(world.outcomes.get(&second), Some(&JobOutcome::Withdrawn));
    let again = world.send(Command::RefusePlacement { attempt: attempt(second, 1), verdict });
    assert_eq!(again, Err(Refusal::StaleAttempt));
    let mut spec = world.spec("acme", 8, HOUR);
    spec.job = first;
    world.ok(Command::AdmitJob(spec));
    assert_eq!(state(&world, first), PlacementState::Proposed);
    let stale = Command::ConfirmPlacement { attempt: attempt(first, 1), price: 1, funded_ms: None };
    assert_eq!(world.send(stale), Err(Refusal::StaleAttempt), "its second attempt is proposed");
    world.check_replay();
}

#[test]
fn a_message_from_the_ledger_has_its_effect_once() {
    let mut world = World::with_nodes(1, "H100");
    let spec = world.spec("acme", 1, HOUR);
    let from = |number, position| Origin::Ledger { shard: 3, number, position };
    let admit = || Command::AdmitJob(spec.clone());
    assert_eq!(world.cell.mark(3), Mark::default());
    assert_eq!(world.send_from(from(2, 9), admit()), Err(Refusal::MessageGap { expected: 1 }));
    assert_eq!(world.send_from(from(1, 7), admit()), Ok(Reply::Done));
    assert_eq!(world.send_from(from(1, 7), admit()), Ok(Reply::Duplicate));
    assert_eq!(world.cell.mark(3), Mark { number: 1, position: 7 });
    assert_eq!(world.send_from(from(2, 9), admit()), Err(Refusal::AlreadyAdmitted));
    // The refused message was received too, and is not decided again.
    assert_eq!(world.cell.mark(3), Mark { number: 2, position: 9 });
    assert_eq!(world.send_from(from(2, 9), admit()), Ok(Reply::Duplicate));
    assert_eq!(world.cell.mark(4), Mark::default(), "every shard has its own numbers");
    world.check_replay();
}

#[test]
fn usage_is_limited_to_the_running_time_that_the_cell_observed() {
    let mut world = World::with_nodes(1, "H100");
    world.confirms = true;
    let job = world.run("acme", 2, HOUR);
    let attempt = bursar_core::cell::AttemptId { job, number: 1 };
    let report = |seq, state, gpu_ms_total| {
        Command::Heartbeat(bursar_core::cell::command::Heartbeat {
            node: "n0".into(),
            incarnation: 1,
            seq,
            reports: vec![bursar_core::cell::command::AttemptReport {
                attempt,
                state,
                gpu_ms_total,
                exit_code: None,
            }],
        })
    };
    use bursar_core::cell::command::ReportState::{Running, Succeeded};
    let usage = |world: &World| {
        let events = world.journal.iter().flat_map(|(_, events)| events).rev();
        events.into_iter().find_map(|event| match event {
            Event::UsageMetered { usage, .. } => Some(usage[0].1),
            _ => None,
        })
    };
    world.ok(report(1, Running, u64::MAX));
    assert_eq!(usage(&world), Some(2 * 5000), "five seconds of slack on two devices");
    world.now += 60_000;
    world.ok(report(2, Running, 2 * 999_000));
    assert_eq!(usage(&world), Some(2 * 65_000));
    // A repeated report, or a smaller total, changes nothing.
    let length = world.journal.len();
    world.ok(report(2, Running, u64::MAX));
    assert_eq!(world.journal.len(), length);
    world.ok(report(3, Running, 10));
    assert_eq!(usage(&world), Some(2 * 65_000));
    world.now += 60_000;
    world.ok(Command::CancelJob { job });
    world.now += 20_000;
    world.ok(report(4, Succeeded, u64::MAX));
    assert_eq!(usage(&world), Some(2 * 120_000), "nothing counts after the stop was decided");
    assert_eq!(world.outcomes.get(&job), Some(&JobOutcome::Cancelled));
    world.check_replay();
}
