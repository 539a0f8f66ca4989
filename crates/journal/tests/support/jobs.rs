//! Random jobs for a world under traffic: submitted, placed, measured and ended by two cells.

use bursar_core::cell::event::{AttemptOutcome, StopReason};
use bursar_core::cell::ids::AttemptId;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::Credits;
use bursar_core::ledger::Command;
use bursar_core::ledger::command::{IssueGrant, SubmitJob};
use bursar_core::ledger::id::{CellNo, JobNo};
use bursar_core::ledger::jobs::{JobTerms, Offer, Reserve};
use bursar_core::message::ToLedger;

use super::traffic::World;

/// Submits and ends jobs for this many steps, between other traffic.
pub(crate) fn run_jobs(world: &mut World, steps: u32) {
    for region in ["eu", "us"] {
        world.perform(&Command::OpenRegion { region: region.into(), shard: 0 });
    }
    world.perform(&Command::IssueGrant(IssueGrant::purchase(
        "for-jobs",
        "acme",
        Credits::from_length(900_000_000).unwrap_or_default(),
    )));
    for number in 0..steps {
        world.clock = world.clock.plus_millis(i64::from(world.below(120_000)));
        world.advance();
        match world.below(4) {
            0 => submit(world, number),
            1 if number.is_multiple_of(5) => cancel(world),
            _ => message(world),
        }
        world.advance();
        if number.is_multiple_of(4) {
            world.step();
            world.advance();
        }
    }
}

fn submit(world: &mut World, number: u32) {
    let mut offer = |region: &'static str| Offer {
        gpu_type: "H100".into(),
        region: region.into(),
        per_gpu_hour: Credits::from_length(u64::from(world.below(3_000_000))).unwrap_or_default(),
    };
    let offers = vec![offer("eu"), offer("us")];
    let gpu = GpuDemand::Whole(1 + u16::try_from(world.below(4)).unwrap_or(0));
    let terms = JobTerms {
        gpu_types: vec!["H100".into()],
        max_runtime_ms: Some(1000 + i64::from(world.below(7_200_000))),
        reserve: match world.below(3) {
            0 => Reserve::Rolling { window_ms: 600_000 },
            _ => Reserve::Full,
        },
        max_requeues: 2,
        ..JobTerms::new(gpu)
    };
    world.perform(&Command::SubmitJob(Box::new(SubmitJob {
        scope: None,
        id: format!("job-{number}").into(),
        account: "acme:nlp:pretrain".into(),
        terms,
        offers,
        payload: "{}".into(),
        submitted: format!(r#"{{"labels":{{"team":"team-{}"}}}}"#, number % 3).into(),
        hold: format!("job-hold-{number}").into(),
        array: None,
        after: Vec::new(),
    })));
}

fn live(world: &mut World) -> Option<JobNo> {
    let jobs = world.ledger.jobs_before(None);
    let live: Vec<JobNo> =
        jobs.filter(|(_, job)| !job.state.is_ended()).map(|(number, _)| number).collect();
    let bound = u32::try_from(live.len()).ok().filter(|bound| *bound > 0)?;
    Some(live[world.below(bound) as usize])
}

fn cancel(world: &mut World) {
    let Some(number) = live(world) else { return };
    let job = world.ledger.job(number).expect("it lives").order.id.clone();
    world.perform(&Command::CancelJob { tenant: "acme".into(), job });
}

fn message(world: &mut World) {
    let Some(number) = live(world) else { return };
    let job = world.ledger.job(number).expect("it lives");
    let running = job.live_attempt().map(|attempt| (attempt.cell, attempt.number));
    let next = job.standings.first().map_or((CellNo(0), 0), |s| (s.cell, s.after));
    let highest = job.highest;
    let (cell, attempt) = match running {
        Some((Some(cell), number)) => (cell, number),
        Some((None, _)) | None => (next.0, highest.max(next.1) + 1),
    };
    let attempt = AttemptId { job: number.in_cell(0), number: attempt };
    let gpu_ms = u64::from(world.below(8_000_000));
    let message = match (running.is_some(), world.below(5)) {
        (false, _) => ToLedger::PlacementProposed {
            attempt,
            gpu_type: Some("H100".into()),
            nodes: Default::default(),
        },
        (true, 0) => ToLedger::FundsNeeded { attempt },
        (true, 1) => {
            let ends = [
                AttemptOutcome::Succeeded,
                AttemptOutcome::Failed,
                AttemptOutcome::Lost,
                AttemptOutcome::Stopped(StopReason::Operator { by_platform: false }),
            ];
            let end = world.below(4) as usize;
            let requeued = (end > 1).then_some(world.clock);
            let outcome = ends[end];
            ToLedger::AttemptEnded { attempt, outcome, gpu_ms, exit_code: Some(0), requeued }
        }
        (true, _) => ToLedger::UsageMetered(vec![(attempt, gpu_ms)]),
    };
    let number = world.ledger.cell(cell).map_or(1, |book| book.mark.number + 1);
    world.perform(&Command::Receive { cell, number, position: 1, message: Box::new(message) });
}
