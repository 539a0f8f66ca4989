//! Ended jobs leave through the archive, and what they show is there until they do.

use bursar_core::cell::event::{AttemptOutcome, StopReason};
use bursar_core::cell::ids::AttemptId;
use bursar_core::ledger::command::{Forget, SubmitJob};
use bursar_core::ledger::holds::forgettable::Forgettable;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, CellNo};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Command, Envelope, Ledger, Refusal};
use bursar_core::machine::advance;
use bursar_core::message::{ProposedNode, ToLedger};
use bursar_core::opaque::Opaque;
use bursar_core::time::Timestamp;

use super::{HOUR_MS, World, credits};
use crate::ledger_builders::submission;

fn submit(id: &str, hold: &str) -> Command {
    submit_with(id, hold, "{}".into())
}

fn submit_with(id: &str, hold: &str, payload: Opaque) -> Command {
    let submission = submission(id, hold, credits(2));
    Command::SubmitJob(Box::new(SubmitJob { payload, ..submission }))
}

#[test]
fn an_ended_job_leaves_when_it_is_old_and_the_archive_has_it_as_it_is() {
    let mut world = World::new(Ledger::new());
    world.make(None, Command::OpenRegion { region: "eu".into(), shard: 1 });
    world.make(None, submit("j", "first"));
    world.make(None, Command::CancelJob { tenant: "acme".into(), job: "j".into() });
    let has_job = |ledger: &Ledger| ledger.find_job(AccountNo(0), "j").is_some();
    let oldest = |world: &World| {
        let kept_from = world.now.plus_millis(-HOUR_MS);
        let forget = world.ledger.forgettable(Forgettable { keep: 1_000, kept_from, most: 10 });
        Forget { through: world.position, ..forget }
    };
    assert!(oldest(&world).jobs.is_empty(), "it ended just now");
    let young =
        world.ledger.forgettable(Forgettable { keep: 1_000, kept_from: Timestamp::MAX, most: 10 });
    assert_eq!(young.jobs.len(), 1);
    let envelope = Envelope::default();
    let young = Forget { through: 1, ..young };
    world.ask(&envelope, &Command::Forget(Box::new(young))).unwrap();
    assert!(has_job(&world.ledger), "a command that comes too early");
    world.now = world.now.plus_millis(2 * HOUR_MS);
    advance(&mut world.ledger, world.now, |_, _| {});
    assert!(has_job(&world.ledger), "its age alone is not enough");
    let mut other = oldest(&world);
    other.jobs[0].job.highest += 1;
    world.ask(&envelope, &Command::Forget(Box::new(other))).unwrap();
    assert!(has_job(&world.ledger), "the archive has it as it was");
    let (forget, before) = (oldest(&world), world.position);
    world.ask(&envelope, &Command::Forget(Box::new(forget))).unwrap();
    assert!(!has_job(&world.ledger));
    let restored = Ledger::from_image(world.ledger.image()).unwrap();
    assert_eq!(restored.image(), world.ledger.image());
    // A look-up from before it was forgotten does not say that the id is new.
    for (archive, is_new) in [(before - 1, false), (before, true)] {
        let envelope = Envelope { archive: Some(archive), ..Envelope::default() };
        let again = world.ask(&envelope, &submit("j", "second"));
        assert_eq!(again.is_ok(), is_new, "{again:?}");
        if !is_new {
            assert!(matches!(again, Err(Refusal::Forgotten { what: Resource::Job, .. })));
        }
    }
}

/// Nine cancelled jobs with texts of nearly a MiB each.
fn with_nine_large_jobs() -> World {
    const MIB: usize = 1 << 20;
    let mut world = World::new(Ledger::new());
    world.make(None, Command::OpenRegion { region: "eu".into(), shard: 1 });
    for number in 0..9 {
        let text = Opaque::from("x".repeat(MIB - 2));
        world.make(None, submit_with(&format!("j{number}"), &format!("h{number}"), text));
        cancel(&mut world, &format!("j{number}"));
    }
    world
}

#[test]
fn a_step_forgets_as_many_jobs_as_their_texts_allow() {
    let mut world = with_nine_large_jobs();
    world.now = world.now.plus_millis(2 * HOUR_MS);
    advance(&mut world.ledger, world.now, |_, _| {});
    let which = Forgettable { keep: 1_000, kept_from: world.now.plus_millis(-HOUR_MS), most: 10 };
    let mut steps = Vec::new();
    while steps.iter().sum::<usize>() < 9 {
        let forget = Forget { through: world.position, ..world.ledger.forgettable(which) };
        steps.push(forget.jobs.len());
        world.ask(&Envelope::default(), &Command::Forget(Box::new(forget))).unwrap();
    }
    assert_eq!(steps, [4, 4, 1], "4 MiB of texts at most");
}

/// Waits.
fn later(world: &mut World, hours: i64) {
    world.now = world.now.plus_millis(hours * HOUR_MS);
    advance(&mut world.ledger, world.now, |_, _| {});
}

fn cancel(world: &mut World, job: &str) {
    world.make(None, Command::CancelJob { tenant: "acme".into(), job: job.into() });
}

/// Forgets what was read. Every job that stays finds its last hold.
fn forget(world: &mut World, read: Forget) {
    let command = Command::Forget(Box::new(Forget { through: world.position, ..read }));
    world.ask(&Envelope::default(), &command).unwrap();
    for (_, job) in world.ledger.jobs_before(None) {
        let name = job.hold_name.as_ref().unwrap();
        let hold = world.ledger.find_hold(AccountNo(0), HoldKind::Hold, name);
        assert!(hold.is_some(), "{} without {name}", job.order.id);
    }
}

/// What one step would forget: everything beyond the window, and what is older than an hour.
fn all(world: &World, most: usize) -> Forget {
    let kept_from = world.now.plus_millis(-HOUR_MS);
    world.ledger.forgettable(Forgettable { keep: 0, kept_from, most })
}

#[test]
fn a_hold_that_was_read_while_it_was_young_stays_with_its_job() {
    let mut world = World::new(Ledger::new());
    world.make(None, Command::OpenRegion { region: "eu".into(), shard: 1 });
    world.make(None, submit("j", "h"));
    cancel(&mut world, "j");
    let read = all(&world, 10);
    assert_eq!((read.holds.len(), read.jobs.len()), (1, 0));
    later(&mut world, 2);
    forget(&mut world, read);
    assert!(world.ledger.find_job(AccountNo(0), "j").is_some());
    let read = all(&world, 10);
    assert_eq!((read.old_holds.len(), read.jobs.len()), (1, 1), "both leave with one step");
    forget(&mut world, read);
    assert_eq!(world.ledger.jobs_before(None).count(), 0);
    assert_eq!(world.ledger.closed_in_memory(), 0);
}

#[test]
fn holds_wait_for_jobs_that_leave_slowly() {
    let mut world = with_nine_large_jobs();
    let young = all(&world, 100);
    forget(&mut world, young);
    later(&mut world, 2);
    let mut steps = Vec::new();
    while world.ledger.closed_in_memory() > 0 {
        let read = all(&world, 100);
        steps.push((read.jobs.len(), read.old_holds.len()));
        assert!(steps.len() < 9, "{steps:?}");
        forget(&mut world, read);
    }
    // The ledger's own time is that of its last record: no hold is old in the first step.
    assert_eq!(steps, [(4, 0), (4, 8), (1, 1)], "none leaves before its job");
}

#[test]
fn what_is_left_of_an_array_is_cancelled_by_its_id() {
    let mut world = World::new(Ledger::new());
    world.make(None, Command::OpenRegion { region: "eu".into(), shard: 1 });
    let array = |id: &str| {
        let Command::SubmitJob(job) = submit(id, id) else { panic!("it submits") };
        Command::SubmitJob(Box::new(SubmitJob { array: Some(3), ..*job }))
    };
    world.make(None, array("a"));
    // Others whose names look alike.
    for other in ["a.1.1", "a.9", "a.01", "a.x"] {
        world.make(None, submit(other, &format!("of-{other}")));
    }
    let states = |world: &World| {
        let jobs = world.ledger.jobs_before(None).map(|(_, job)| job);
        let left = jobs.filter(|job| !job.state.is_ended());
        left.map(|job| job.order.id.to_string()).collect::<Vec<_>>()
    };
    let others = ["a.x", "a.01", "a.9", "a.1.1"];
    cancel(&mut world, "a.0");
    for hours in [0, 2, 0] {
        later(&mut world, hours);
        let read = all(&world, 10);
        forget(&mut world, read);
    }
    assert_eq!(world.ledger.find_job(AccountNo(0), "a.0"), None, "it is forgotten");
    assert_eq!(states(&world), [&others[..], &["a.2", "a.1"]].concat());
    cancel(&mut world, "a");
    assert_eq!(states(&world), others);
    // A job that waits for the array would not know how the first one ended.
    let Command::SubmitJob(job) = submit("b", "b") else { panic!("it submits") };
    let after = SubmitJob { after: vec!["a".into()], ..*job };
    let refused = world.ask(&Envelope::default(), &Command::SubmitJob(Box::new(after)));
    assert!(matches!(refused, Err(Refusal::NotFound { .. })), "{refused:?}");
}

fn receive(world: &mut World, message: ToLedger) {
    let cell = CellNo(0);
    let number = world.ledger.cell(cell).unwrap().mark.number + 1;
    let (position, message) = (number, Box::new(message));
    world.make(None, Command::Receive { cell, number, position, message });
}

/// Starts jobs, freezes their account and preempts them: they wait without a hold.
fn preempted(world: &mut World, count: usize) {
    let mut attempts = Vec::new();
    for number in 0..count {
        let name = format!("w{number}");
        world.make(None, submit(&name, &name));
        let job = world.ledger.find_job(AccountNo(0), &name).unwrap();
        let attempt = AttemptId { job: job.in_cell(1), number: 1 };
        let nodes = [ProposedNode { node: "n".into(), gpus: 1 }].into_iter().collect();
        let gpu_type = Some("H100".into());
        receive(world, ToLedger::PlacementProposed { attempt, gpu_type, nodes });
        receive(world, ToLedger::AttemptStarted { attempt });
        attempts.push(attempt);
    }
    world.make(None, Command::FreezeAccount { path: "acme".into(), by_platform: false });
    for attempt in attempts {
        let outcome = AttemptOutcome::Stopped(StopReason::Operator { by_platform: false });
        let (gpu_ms, exit_code, requeued) = (0, None, Some(world.now));
        receive(world, ToLedger::AttemptEnded { attempt, outcome, gpu_ms, exit_code, requeued });
    }
}

#[test]
fn jobs_that_wait_for_credits_hold_up_no_other_hold() {
    let (mut world, waiting, ended) = (World::new(Ledger::new()), 20, 10);
    world.make(None, Command::OpenRegion { region: "eu".into(), shard: 1 });
    for number in 0..ended {
        world.make(None, submit(&format!("e{number}"), &format!("e{number}")));
    }
    preempted(&mut world, waiting);
    for number in 0..ended {
        cancel(&mut world, &format!("e{number}"));
    }
    let young = all(&world, 100);
    forget(&mut world, young);
    later(&mut world, 2);
    let (most, mut steps, mut left) = (2, 0, 0);
    loop {
        let read = all(&world, most);
        if read.is_empty() {
            break;
        }
        left += read.old_holds.len();
        steps += 1;
        assert!(steps < 20, "{left} left");
        forget(&mut world, read);
    }
    assert_eq!((left, world.ledger.jobs_before(None).count()), (ended, waiting));
    assert_eq!(world.ledger.closed_in_memory(), waiting, "the last holds of those that wait");
    for number in 0..waiting {
        cancel(&mut world, &format!("w{number}"));
    }
    later(&mut world, 2);
    for _ in 0..20 {
        let read = all(&world, most);
        forget(&mut world, read);
    }
    assert_eq!(world.ledger.closed_in_memory(), 0);
}
