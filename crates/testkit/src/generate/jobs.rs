//! Arbitrary commands about jobs, cells and quotas.

use bursar_core::cell::command::GroupSpec;
use bursar_core::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use bursar_core::cell::ids::{AttemptId, ClassRank, JobId};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::ledger::accounts::quota::Quota;
use bursar_core::ledger::command::{Command, SubmitJob, UsageEnd, UsageOf};
use bursar_core::ledger::id::CellNo;
use bursar_core::ledger::jobs::{JobTerms, Offer, OnExhausted, Reserve};
use bursar_core::message::{ProposedNode, ToLedger};
use bursar_core::name::{GpuModel, Region};
use bursar_core::time::Timestamp;

use super::chaos::{credits, name, number, path, tenant, text, usage};
use super::random::Random;

/// A random command about jobs.
pub(super) fn chaos(random: &mut Random, now: Timestamp) -> Command {
    match random.index(20) {
        0 => Command::OpenRegion { region: region(random), shard: random.bits() as u16 & 1 },
        1 => Command::SetQuota {
            path: path(random),
            region: random.chance(50).then(|| region(random)),
            quota: Quota {
                gpus: [(text(random), random.bits() as u32)].into_iter().collect(),
                running_jobs: random.chance(50).then(|| random.bits() as u32),
                waiting_jobs: random.chance(50).then(|| random.bits() as u32 >> random.index(32)),
            },
        },
        2 => Command::RemoveQuota {
            path: path(random),
            region: random.chance(50).then(|| region(random)),
        },
        3..=7 => submit(random),
        8 => Command::CancelJob { tenant: tenant(random), job: name(random) },
        9 => Command::ReportUsage {
            tenant: tenant(random),
            of: match random.index(2) {
                0 => UsageOf::Job(name(random)),
                _ => UsageOf::Hold(name(random)),
            },
            seq: random.bits() >> random.index(64),
            usage: usage(random),
            ended: random.chance(30).then_some(UsageEnd::Ended),
        },
        _ => Command::Receive {
            cell: CellNo(random.index(3) as u16),
            // Small, so that the next expected number is often hit.
            number: random.between(1, 40).unsigned_abs(),
            position: random.bits(),
            message: Box::new(message(random, now)),
        },
    }
}

fn model(random: &mut Random) -> GpuModel {
    GpuModel::unchecked(text(random))
}

fn region(random: &mut Random) -> Region {
    let known = random.chance(95);
    if known { Region::from(*random.pick(&["eu", "us"])) } else { Region::unchecked(text(random)) }
}

fn submit(random: &mut Random) -> Command {
    let mut offer =
        || Offer { gpu_type: model(random), region: region(random), per_gpu_hour: credits(random) };
    let offers = vec![offer(), offer()];
    let few = |random: &mut Random| (random.bits() as u16) >> random.index(16);
    Command::SubmitJob(Box::new(SubmitJob {
        scope: None,
        id: name(random),
        account: path(random),
        terms: JobTerms {
            external: false,
            class: text(random).into(),
            rank: ClassRank(random.bits() as u8),
            gpu: match random.index(3) {
                0 => GpuDemand::None,
                1 => GpuDemand::Share(few(random)),
                _ => GpuDemand::Whole(few(random)),
            },
            gpu_types: vec![model(random)],
            nodes: few(random),
            gpu_memory_mib: 0,
            cpu_milli: 0,
            memory_mib: 0,
            labels: Vec::new(),
            max_runtime_ms: random.chance(80).then(|| number(random)),
            preemptible: random.chance(50),
            resumable: random.chance(50),
            grace_ms: if random.chance(90) { 1000 } else { number(random) },
            reserve: match random.index(2) {
                0 => Reserve::Full,
                _ => Reserve::Rolling { window_ms: number(random) },
            },
            on_exhausted: *random.pick(&[OnExhausted::Stop, OnExhausted::Overdraft]),
            group: random.chance(10).then(|| GroupSpec { name: text(random), limit: 1 }),
            max_requeues: random.bits() as u32 & 3,
            warn_ahead_ms: if random.chance(90) { 60_000 } else { number(random) },
        },
        offers: if random.chance(95) { offers } else { Vec::new() },
        payload: "{}".into(),
        submitted: "{}".into(),
        hold: name(random),
        array: random.chance(20).then(|| random.bits() as u32 >> random.index(32)),
        after: if random.chance(20) { vec![name(random)] } else { Vec::new() },
    }))
}

fn message(random: &mut Random, now: Timestamp) -> ToLedger {
    let shard = if random.chance(5) { 1 << 48 } else { 0 };
    let job = JobId(shard + random.bits() % 12);
    let attempt = AttemptId { job, number: random.bits() as u32 % 5 };
    let gpu_ms = random.bits() >> random.index(64);
    match random.index(8) {
        0..=2 => ToLedger::PlacementProposed {
            attempt,
            gpu_type: random.chance(95).then(|| model(random)),
            nodes: [ProposedNode { node: text(random), gpus: 1 }].into_iter().collect(),
        },
        3 => ToLedger::AttemptStarted { attempt },
        4 => ToLedger::UsageMetered(vec![(attempt, gpu_ms), (attempt, gpu_ms / 2)]),
        5 => ToLedger::FundsNeeded { attempt },
        6 => {
            let outcome = *random.pick(&[
                AttemptOutcome::Succeeded,
                AttemptOutcome::Failed,
                AttemptOutcome::Lost,
                AttemptOutcome::Stopped(StopReason::Drained),
            ]);
            let requeued = random.chance(60).then_some(now);
            ToLedger::AttemptEnded { attempt, outcome, gpu_ms, exit_code: None, requeued }
        }
        _ => {
            let outcome = *random.pick(&[JobOutcome::WaitingQuota, JobOutcome::Withdrawn]);
            ToLedger::JobEnded { job, outcome }
        }
    }
}
