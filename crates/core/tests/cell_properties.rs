//! The properties of a cell, under random commands, failures and clocks.
//!
//! After every step all laws are checked ([`World::settle`]): no job waits that could start, plans
//! of preemption are complete and minimal, and equal jobs start in order. At the end the journal is
//! replayed and must give the same state.

use crate::cell_world;

use bursar_core::cell::command::{
    AccountPolicy, Command, FundsBlocker, GroupSpec, QuotaSpec, Verdict,
};
use bursar_core::cell::event::{Event, JobOutcome, StopReason};
use bursar_core::cell::ids::MaintenanceId;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, CellConfig, ClassRank};
use bursar_core::machine::Machine;
use cell_world::*;
use proptest::prelude::*;

const ACCOUNTS: [&str; 7] = ["a", "a:x", "a:x:u", "a:y", "b", "b:z", "c"];
const CLASSES: [ClassRank; 4] =
    [ClassRank::BATCH, ClassRank::NORMAL, ClassRank::HIGH, ClassRank::URGENT];

/// One step of a script.
#[derive(Clone, Debug)]
enum Step {
    Submit(Submission),
    Cancel(usize),
    Preempt(usize),
    Pass { seconds: i64, beats: i64 },
    Drain { node: usize, force: bool },
    Resume(usize),
    Silence(usize),
    Restart(usize),
    Policy { account: usize, weight: u32, frozen: bool, gpus: Option<u32>, jobs: Option<u32> },
    Maintain { id: u64, from: i64, length: i64, node: Option<usize> },
    CancelMaintenance(u64),
    Hesitate,
    Refuse { job: usize, withdraw: bool },
    Readmit(usize),
    Snapshot,
}

#[derive(Clone, Debug)]
struct Submission {
    account: usize,
    class: usize,
    gpu: GpuDemand,
    nodes: u16,
    model: Option<usize>,
    minutes: i64,
    limited: bool,
    preemptible: bool,
    resumable: bool,
    group: Option<u32>,
    cpu: u32,
}

const MODELS: [&str; 2] = ["A100", "H100"];

fn submissions() -> impl Strategy<Value = Submission> {
    let gpu = prop_oneof![
        1 => Just(GpuDemand::None),
        2 => (1..1000u16).prop_map(GpuDemand::Share),
        5 => (1..9u16).prop_map(GpuDemand::Whole),
    ];
    (
        (0..ACCOUNTS.len(), 0..CLASSES.len(), gpu, prop_oneof![4 => Just(1u16), 1 => 2..4u16]),
        (
            prop::option::weighted(0.4, 0..MODELS.len()),
            1..300i64,
            prop::bool::weighted(0.8),
            (prop::bool::weighted(0.8), any::<bool>()),
            prop::option::weighted(0.2, 1..3u32),
            0..4u32,
        ),
    )
        .prop_map(|((account, class, gpu, nodes), rest)| {
            let (model, minutes, limited, (preemptible, resumable), group, cpu) = rest;
            let (cpu, gpu) = (cpu * 10_000, gpu);
            Submission {
                account,
                class,
                gpu,
                nodes,
                model,
                minutes,
                limited,
                preemptible,
                resumable,
                group,
                cpu,
            }
        })
}

fn steps() -> impl Strategy<Value = Step> {
    let limit = |end: u32| prop::option::weighted(0.5, 0..end);
    prop_oneof![
        12 => submissions().prop_map(Step::Submit),
        1 => (0..50usize).prop_map(Step::Cancel),
        1 => (0..50usize).prop_map(Step::Preempt),
        8 => (1..4000i64, 1..6i64).prop_map(|(seconds, beats)| Step::Pass { seconds, beats }),
        1 => (0..4usize, any::<bool>()).prop_map(|(node, force)| Step::Drain { node, force }),
        1 => (0..4usize).prop_map(Step::Resume),
        1 => (0..4usize).prop_map(Step::Silence),
        1 => (0..4usize).prop_map(Step::Restart),
        2 => (0..ACCOUNTS.len(), 0..4u32, prop::bool::weighted(0.1), limit(20_000), limit(5))
            .prop_map(|(account, weight, frozen, gpus, jobs)| {
                Step::Policy { account, weight, frozen, gpus, jobs }
            }),
        1 => (0..2u64, 0..7200i64, 1..7200i64, prop::option::of(0..4usize))
            .prop_map(|(id, from, length, node)| Step::Maintain { id, from, length, node }),
        1 => (0..2u64).prop_map(Step::CancelMaintenance),
        1 => Just(Step::Hesitate),
        2 => (0..50usize, any::<bool>())
            .prop_map(|(job, withdraw)| Step::Refuse { job, withdraw }),
        1 => (0..50usize).prop_map(Step::Readmit),
        1 => Just(Step::Snapshot),
    ]
}

/// A small cell with both models in two racks.
fn small_world() -> World {
    let mut world = World::new();
    for index in 0..4 {
        let mut node = offer(&format!("n{index}"), MODELS[index / 2], 8);
        node.rack = format!("r{}", index % 2).into();
        node.cpu_milli = 64_000;
        world.register(&node);
    }
    world
}

fn spec_of(world: &mut World, submission: &Submission) -> JobSpec {
    let runtime = submission.minutes * MINUTE;
    let mut spec = world.spec(ACCOUNTS[submission.account], 1, runtime);
    spec.gpu = submission.gpu;
    spec.class = CLASSES[submission.class];
    spec.nodes = submission.nodes;
    spec.preemptible = submission.preemptible;
    spec.resumable = submission.resumable;
    spec.cpu_milli = submission.cpu;
    spec.models = submission.model.map(|model| MODELS[model].into()).into_iter().collect();
    if !submission.limited {
        spec.max_runtime_ms = None;
    }
    spec.group = submission.group.map(|limit| GroupSpec { name: "g".into(), limit });
    spec
}

fn node_name(node: usize) -> String {
    format!("n{node}")
}

fn take(world: &mut World, jobs: &mut Vec<JobSpec>, step: &Step) {
    let pick = |jobs: &[JobSpec], index: usize| {
        (!jobs.is_empty()).then(|| jobs[index % jobs.len()].clone())
    };
    match step {
        Step::Submit(submission) => {
            let spec = spec_of(world, submission);
            jobs.push(spec.clone());
            world.submit(spec);
        }
        Step::Cancel(index) => {
            if let Some(spec) = pick(jobs, *index) {
                let _ = world.send(Command::CancelJob { job: spec.job });
            }
        }
        Step::Preempt(index) => {
            if let Some(spec) = pick(jobs, *index) {
                let _ = world.send(Command::PreemptJob { job: spec.job, by_platform: true });
            }
        }
        Step::Pass { seconds, beats } => {
            world.confirms = true;
            world.pass(seconds * SECOND, (seconds * SECOND / beats).max(1));
        }
        Step::Drain { node, force } => {
            let node = node_name(*node).into();
            world.ok(Command::DrainNode { node, force: *force });
        }
        Step::Resume(node) => {
            world.ok(Command::ResumeNode { node: node_name(*node).into() });
        }
        Step::Silence(node) => world.agent(&node_name(*node)).silent ^= true,
        Step::Restart(node) => {
            let mut again = offer(&node_name(*node), MODELS[node / 2], 8);
            again.rack = format!("r{}", node % 2).into();
            again.cpu_milli = 64_000;
            world.register(&again);
        }
        Step::Policy { account, weight, frozen, gpus, jobs } => {
            let quota = QuotaSpec {
                gpus: gpus.map(|gpus| vec![("H100".into(), gpus)]).unwrap_or_default(),
                total_gpus: gpus.map(|gpus| gpus.saturating_mul(2)),
                running_jobs: *jobs,
                waiting_jobs: None,
            };
            let path = ACCOUNTS[*account].into();
            let (weight, frozen) = (*weight, *frozen);
            world.ok(Command::SetAccount(AccountPolicy { path, weight, frozen, quota }));
        }
        Step::Maintain { id, from, length, node } => {
            let from = world.now + from * SECOND;
            world.ok(Command::PlanMaintenance {
                id: MaintenanceId(*id),
                from: at(from),
                to: at(from + length * SECOND),
                nodes: node.map(|node| node_name(node).into()).into_iter().collect(),
            });
        }
        Step::CancelMaintenance(id) => {
            let _ = world.send(Command::CancelMaintenance { id: MaintenanceId(*id) });
        }
        Step::Hesitate => world.confirms = false,
        Step::Refuse { job, withdraw } => {
            if let Some(spec) = pick(jobs, *job) {
                let verdict =
                    if *withdraw { Verdict::Withdraw } else { Verdict::Wait(FundsBlocker::Budget) };
                for number in 1..5 {
                    let attempt = AttemptId { job: spec.job, number };
                    let _ = world.send(Command::RefusePlacement { attempt, verdict });
                }
            }
        }
        Step::Readmit(index) => {
            if let Some(spec) = pick(jobs, *index)
                && world.cell.why(spec.job, at(world.now)).is_some()
            {
                let _ = world.send(Command::AdmitJob(spec));
            }
        }
        Step::Snapshot => world.make_twin(),
    }
}

/// Removes every obstacle and lets every job end.
fn release_everything(world: &mut World, jobs: &[JobSpec]) {
    world.confirms = true;
    for id in 0..2 {
        let _ = world.send(Command::CancelMaintenance { id: MaintenanceId(id) });
    }
    for node in 0..4 {
        world.agent(&node_name(node)).silent = false;
        world.ok(Command::ResumeNode { node: node_name(node).into() });
    }
    for path in ACCOUNTS {
        world.ok(Command::SetAccount(AccountPolicy::new(path)));
    }
    world.heartbeat();
    for spec in jobs {
        if world.cell.why(spec.job, at(world.now)).is_some() {
            let _ = world.send(Command::AdmitJob(spec.clone()));
        }
    }
}

/// Lets agents report every five minutes, where the interval does not matter.
fn slow_agents(world: &mut World) {
    world.ok(Command::Configure(CellConfig {
        node_lease_ms: HOUR,
        start_allowance_ms: 10 * MINUTE,
        ..CellConfig::default()
    }));
    world.heartbeat();
}

/// Whether a job fits into the small cell when it is empty.
fn fits_empty(spec: &JobSpec) -> bool {
    // Two nodes of each model; the nodes of a gang are of one model.
    spec.nodes <= 2
}

/// The number of random scripts: few by default, more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Quotas, conservation, work conservation, fencing, order, reasons, replay (properties 1, 2,
    /// 5, 6, 7, 8, 10, 11), and no starvation once obstacles are gone (3).
    #[test]
    fn all_laws_hold_under_random_scripts_and_every_job_ends(
        script in prop::collection::vec(steps(), 1..60),
    ) {
        let mut world = small_world();
        let mut jobs = Vec::new();
        for step in &script {
            take(&mut world, &mut jobs, step);
        }
        world.check_replay();
        release_everything(&mut world, &jobs);
        world.checks = false;
        slow_agents(&mut world);
        // The sum of all runtimes, in sequence and with restarts, bounds the wait.
        let total: i64 = world.durations.values().map(|length| length + 20 * MINUTE).sum();
        world.pass_until_empty(4 * total + DAY, 5 * MINUTE);
        for spec in jobs.iter().filter(|spec| fits_empty(spec)) {
            prop_assert!(
                world.outcomes.contains_key(&spec.job),
                "{:?} has not ended: {:?}", spec, world.cell.why(spec.job, at(world.now))
            );
        }
        world.cell.check().expect("the laws hold at the end");
        world.check_replay();
    }

    /// The same commands give the same events, also when the cell was rebuilt in between (6).
    #[test]
    fn a_rebuilt_cell_decides_like_the_one_it_replaces(
        script in prop::collection::vec(steps(), 1..40),
        every in 1..8usize,
    ) {
        let run = |rebuild: bool| {
            let mut world = small_world();
            world.checks = false;
            let mut jobs = Vec::new();
            for (index, step) in script.iter().enumerate() {
                take(&mut world, &mut jobs, step);
                if rebuild && index % every == 0 {
                    let mut copy = Cell::new();
                    for (when, events) in &world.journal {
                        events.iter().for_each(|event| copy.apply(*when, event));
                    }
                    world.cell = copy;
                }
            }
            (world.cell.digest(), world.journal)
        };
        let (first, second) = (run(false), run(true));
        prop_assert_eq!(first.1, second.1);
        prop_assert_eq!(first.0, second.0);
    }

    /// A rollback leaves no trace.
    #[test]
    fn a_group_that_is_rolled_back_changes_nothing(
        script in prop::collection::vec(steps(), 1..20),
        undone in prop::collection::vec(steps(), 1..5),
    ) {
        let mut world = small_world();
        world.checks = false;
        let mut jobs = Vec::new();
        for step in &script {
            take(&mut world, &mut jobs, step);
        }
        let before = world.cell.digest();
        world.cell.begin_group();
        for step in &undone {
            take(&mut world, &mut jobs, step);
        }
        world.cell.rollback_group();
        prop_assert_eq!(world.cell.digest(), before);
        world.cell.check().expect("the laws hold");
    }

    /// No livelock (4): an attempt that is preempted for fair share has run for ten minutes, and
    /// twice as long each time unless its job is resumable. So lost work grows no faster than the
    /// logarithm of the work done. A job is evicted as a guest only a limited number of times.
    #[test]
    fn turns_grow_and_preemption_does_not_run_in_circles(
        mut submissions in prop::collection::vec(submissions(), 1..40),
        weights in prop::collection::vec(0..4u32, ACCOUNTS.len()),
        resuming in any::<bool>(),
    ) {
        let mut world = small_world();
        for (path, weight) in ACCOUNTS.iter().zip(weights) {
            let policy = AccountPolicy { weight, ..AccountPolicy::new(*path) };
            world.ok(Command::SetAccount(policy));
        }
        let mut classes = std::collections::BTreeMap::new();
        let mut resume = std::collections::BTreeMap::new();
        for submission in &mut submissions {
            submission.resumable &= resuming;
            submission.minutes = 60 * 24 * 365;
            submission.limited = false;
            submission.group = None;
            let spec = spec_of(&mut world, submission);
            resume.insert(spec.job, spec.resumable);
            classes.insert(spec.job, spec.class);
            world.submit(spec);
        }
        world.checks = false;
        slow_agents(&mut world);
        world.pass(4 * DAY, 5 * MINUTE);
        let mut since = std::collections::BTreeMap::new();
        let mut times = std::collections::BTreeMap::new();
        let mut turns = std::collections::BTreeMap::new();
        for (when, events) in &world.journal {
            for event in events {
                match event {
                    Event::AttemptStartedOnNode { attempt, .. } => {
                        since.entry(*attempt).or_insert(when.millis());
                    }
                    Event::StopOrdered {
                        attempt,
                        reason: StopReason::Preempted { for_share: true, .. },
                        ..
                    } => {
                        let times = times.entry(attempt.job).or_insert(0u32);
                        let ran = when.millis() - since[attempt];
                        prop_assert!(ran >= ((10 * MINUTE) << *times).min(DAY), "{:?}: {} ms", attempt, ran);
                        *times += u32::from(!resume[&attempt.job]);
                    }
                    Event::StopOrdered {
                        attempt,
                        reason: StopReason::Preempted { by, for_share: false, .. },
                        ..
                    } if classes[&attempt.job] == classes[by] => {
                        let turns = turns.entry(attempt.job).or_insert(0u32);
                        *turns += 1;
                        prop_assert!(*turns <= 5, "{:?} was a guest too often", attempt.job);
                    }
                    _ => {}
                }
            }
        }
        // Four days are 576 times ten minutes, and each victim for fair share may in turn preempt
        // an attempt of a lower class. The quantum of resumable jobs need not grow.
        let all = u32::try_from(submissions.len()).unwrap_or(u32::MAX);
        let most = if resuming { 2 * 576 * all } else { 2 * 10 * all };
        prop_assert!(world.preemptions <= most, "{} in all", world.preemptions);
        world.check_replay();
    }

    /// Jobs that start before a reserved start never delay it (9).
    #[test]
    fn a_reserved_start_is_kept(
        jobs in prop::collection::vec((0..ACCOUNTS.len(), 1..9u16, 1..200i64, 0..20i64), 1..60),
    ) {
        let mut world = small_world();
        world.ok(Command::Configure(CellConfig {
            share_preemption: false,
            ..CellConfig::default()
        }));
        for (account, gpus, minutes, gap) in jobs {
            let mut spec = world.spec(ACCOUNTS[account], gpus, minutes * MINUTE);
            spec.models = ["H100".into()].into_iter().collect();
            world.submit(spec);
            world.pass(gap * MINUTE, 30 * SECOND);
        }
        world.checks = false;
        world.pass_until_empty(10 * DAY, 30 * SECOND);
        let events = || {
            world.journal.iter().flat_map(|(_, events)| events)
        };
        for event in events() {
            if let Event::ReservationMade { job, start_at, preempting: false, .. } = event {
                let started = world.started.get(job).copied();
                prop_assert!(
                    started.is_some_and(|started| at(started) <= *start_at),
                    "{:?} was promised {}, started {:?}", job, start_at, started.map(at)
                );
            }
        }
    }
}

#[test]
fn endless_small_jobs_do_not_starve_a_gang_of_sixty_four_gpus() {
    let mut world = World::with_nodes(8, "H100");
    world.checks = false;
    for _ in 0..80 {
        world.run("crowd", 1, 90 * MINUTE);
    }
    let submitted = world.now;
    let mut gang = world.spec("whale", 8, HOUR);
    gang.nodes = 8;
    gang.preemptible = false;
    let gang = world.submit(gang);
    for minute in 0..12 * 60 {
        let account = format!("crowd{}", minute % 97);
        world.run(&account, 1, 90 * MINUTE);
        world.pass(MINUTE, MINUTE);
    }
    assert!(world.has_started(gang), "it started within twelve hours");
    // First the reservation of the job that was blocked before it, then its own. Each begins when
    // the running attempts have ended, which have a longest runtime of 160 minutes and a minute to
    // start.
    let waited = world.started[&gang] - submitted;
    assert!(waited <= 2 * 161 * MINUTE, "after {} minutes", waited / MINUTE);
    assert!(world.outcomes.values().all(|outcome| *outcome == JobOutcome::Succeeded));
    world.check_replay();
}

#[test]
fn backlogged_tenants_get_their_shares_within_five_per_cent_of_every_day() {
    let mut world = World::with_nodes(8, "H100");
    world.checks = false;
    let weights = [("one", 1u32), ("two", 2), ("five", 5)];
    for (path, weight) in weights {
        world.ok(Command::SetAccount(AccountPolicy { weight, ..AccountPolicy::new(path) }));
    }
    // Tenants differ in the size and length of their jobs, and always have some waiting.
    let shape = |path: &str, index: usize| match path {
        "one" => (1 + (index % 2) as u16, 20 + (index % 20) as i64),
        "two" => (1, 20),
        _ => (2, 30 + (index % 30) as i64),
    };
    let mut counts = [0usize; 3];
    let start = world.now;
    let feed = |world: &mut World, counts: &mut [usize; 3]| {
        for (index, (path, _)) in weights.iter().enumerate() {
            while world
                .cell
                .fair_shares(at(world.now))
                .iter()
                .any(|share| share.account == *path && share.waiting_jobs < 20)
            {
                counts[index] += 1;
                let (gpus, minutes) = shape(path, counts[index]);
                world.run(path, gpus, minutes * MINUTE);
            }
        }
    };
    for day in 0..3 {
        for _ in 0..24 * 6 {
            feed(&mut world, &mut counts);
            world.pass(10 * MINUTE, MINUTE);
        }
        let totals = usage_by_tenant(&world, start + day * DAY, start + (day + 1) * DAY);
        let all: u64 = totals.values().sum();
        for (path, weight) in weights {
            let entitled = all * u64::from(weight) / 8;
            let received = totals.get(path).copied().unwrap_or(0);
            let error = received.abs_diff(entitled) * 1000 / entitled;
            assert!(error <= 50, "day {day}, {path}: {error} thousandths off; {totals:?}");
        }
    }
    world.check_replay();
}

#[test]
fn a_backlog_older_than_a_day_is_shared_like_a_fresh_one() {
    let mut world = World::with_nodes(8, "H100");
    world.checks = false;
    let start = world.now;
    for _ in 0..64 * 40 {
        for tenant in ["a", "b", "c"] {
            world.run(tenant, 1, HOUR);
        }
    }
    for day in 0..4 {
        world.pass(DAY, MINUTE);
        let totals = usage_by_tenant(&world, start + day * DAY, start + (day + 1) * DAY);
        let all: u64 = totals.values().sum();
        for (tenant, used) in &totals {
            let error = used.abs_diff(all / 3) * 3000 / all;
            assert!(error <= 50, "day {day}, {tenant}: {error} thousandths off; {totals:?}");
        }
    }
    world.check_replay();
}

/// GPU-milliseconds metered between two instants, by tenant.
fn usage_by_tenant(world: &World, from: i64, to: i64) -> std::collections::BTreeMap<String, u64> {
    let mut accounts = std::collections::BTreeMap::new();
    let mut last = std::collections::BTreeMap::new();
    let mut totals = std::collections::BTreeMap::new();
    for (when, events) in &world.journal {
        for event in events {
            match event {
                Event::JobQueued(spec) => {
                    accounts.insert(spec.job, spec.account.to_string());
                }
                Event::UsageMetered { node, usage } => {
                    for (attempt, gpu_ms) in usage {
                        let before = last.insert((*attempt, *node), *gpu_ms).unwrap_or(0);
                        if (from..to).contains(&when.millis()) {
                            let account = accounts[&attempt.job].clone();
                            *totals.entry(account).or_insert(0) += gpu_ms - before;
                        }
                    }
                }
                _ => {}
            }
        }
    }
    totals
}

#[test]
fn a_gang_starts_among_jobs_that_never_say_when_they_leave() {
    let mut world = World::with_nodes(8, "H100");
    world.checks = false;
    slow_agents(&mut world);
    let endless = |world: &mut World, user: u64| {
        let mut spec = world.spec(&format!("crowd:u{user}"), 1, 30 * DAY);
        spec.max_runtime_ms = None;
        world.submit(spec);
    };
    for user in 0..96 {
        endless(&mut world, user);
    }
    world.pass(DAY, 5 * MINUTE);
    let submitted = world.now;
    let mut gang = world.spec("crowd:whale", 8, HOUR);
    gang.nodes = 4;
    gang.max_runtime_ms = None;
    let gang = world.submit(gang);
    for hour in 0..96 {
        endless(&mut world, 1000 + hour);
        world.pass(HOUR, 5 * MINUTE);
    }
    let waited = world.started.get(&gang).map(|started| (started - submitted) / HOUR);
    assert!(waited.is_some_and(|hours| hours <= 72), "it waited {waited:?} hours");
    world.check_replay();
}

#[test]
fn gpus_that_become_free_together_are_shared_at_once() {
    let mut world = World::with_nodes(8, "H100");
    world.checks = false;
    for tenant in ["a", "b", "c"] {
        for _ in 0..64 * 12 {
            world.run(tenant, 1, HOUR);
        }
    }
    world.pass(8 * HOUR, 30 * SECOND);
    for _ in 0..6 {
        let from = world.now;
        world.pass(2 * HOUR, 30 * SECOND);
        let totals = usage_by_tenant(&world, from, world.now);
        let all: u64 = totals.values().sum();
        for (tenant, used) in &totals {
            let error = used.abs_diff(all / 3) * 3000 / all;
            assert!(error <= 150, "{tenant}: {error} thousandths off; {totals:?}");
        }
    }
    world.check_replay();
}
