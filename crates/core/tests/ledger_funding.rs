//! Rolling funding with random credits. A short job leaves no credits that would pay for another
//! millisecond. Overdrafts stay within every limit on the path. A short job is warned once before
//! its end.

use bursar_core::cell::ids::AttemptId;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, GrantKind, IssueGrant, Restriction, SubmitJob,
};
use bursar_core::ledger::id::{CellNo, JobNo};
use bursar_core::ledger::jobs::{
    Attempt, Job, JobState, JobTerms, OnExhausted, Reserve, WARN_AHEAD_MS,
};
use bursar_core::ledger::{Command, Envelope, Event, Ledger, invariant};
use bursar_core::machine::{advance, execute};
use bursar_core::message::{ProposedNode, ToLedger};
use bursar_core::name::{AccountPath, JobName};
use bursar_core::time::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::ledger_builders::submission;

const HOUR_MS: u128 = 3_600_000;
const PATHS: [(&str, AccountKind); 3] =
    [("acme", AccountKind::Org), ("acme:a", AccountKind::Team), ("acme:b", AccountKind::Team)];

struct World {
    ledger: Ledger,
    now: Timestamp,
    limits: [Option<u64>; 3],
    messages: u64,
    grants: u32,
    warned: Vec<(Timestamp, JobNo, Timestamp, OnExhausted)>,
}

impl World {
    fn new(limits: [Option<u64>; 3]) -> World {
        let (ledger, now) = (Ledger::new(), Timestamp::from_millis(1_767_225_600_000));
        let mut world = World { ledger, now, limits, messages: 0, grants: 0, warned: Vec::new() };
        for ((path, kind), limit) in PATHS.into_iter().zip(limits) {
            let overdraft_limit = limit.and_then(Credits::from_length);
            let settings = AccountSettings { overdraft_limit, ..AccountSettings::default() };
            world.run(&Command::OpenAccount { path: path.into(), kind, settings });
        }
        world.run(&Command::OpenRegion { region: "eu".into(), shard: 0 });
        world
    }

    fn run(&mut self, command: &Command) -> Vec<Event> {
        self.settle();
        let mut events = Vec::new();
        let envelope = Envelope::default();
        // A refused command changes nothing; the checks below apply all the same.
        let _refused = execute(&mut self.ledger, self.now, &envelope, command, &mut events);
        self.settle();
        invariant::check(&self.ledger).expect("the invariants hold");
        events
    }

    fn settle(&mut self) {
        let warned = &mut self.warned;
        advance(&mut self.ledger, self.now, |at, events| {
            for event in events {
                if let Event::ExhaustionWarned { job, ends_at, then } = event {
                    warned.push((at, *job, *ends_at, *then));
                }
            }
        });
    }

    fn hear(&mut self, message: ToLedger) -> Vec<Event> {
        self.messages += 1;
        let (number, position) = (self.messages, self.messages);
        let message = Box::new(message);
        self.run(&Command::Receive { cell: CellNo(0), number, position, message })
    }

    fn grant(&mut self, account: usize, micros: u64) {
        self.grants += 1;
        self.run(&Command::IssueGrant(IssueGrant::purchase(
            format!("g{}", self.grants),
            PATHS[account].0,
            Credits::from_length(micros).expect("small"),
        )));
    }

    /// A running job with a rolling reserve of `window_ms`, or none if it cannot be paid for.
    fn start(&mut self, account: usize, price: u64, gpus: u16, window_ms: i64, owes: bool) {
        let id: JobName = format!("j{}", self.ledger.jobs_before(None).count()).into();
        let on_exhausted = if owes { OnExhausted::Overdraft } else { OnExhausted::Stop };
        let per_gpu_hour = Credits::from_length(price).expect("small");
        let usual = submission(&id, &format!("h-{id}"), per_gpu_hour);
        let terms = JobTerms {
            gpu: GpuDemand::Whole(gpus),
            max_runtime_ms: None,
            grace_ms: 0,
            reserve: Reserve::Rolling { window_ms },
            on_exhausted,
            warn_ahead_ms: WARN_AHEAD_MS,
            ..usual.terms
        };
        let account = PATHS[account].0.into();
        let events = self.run(&Command::SubmitJob(Box::new(SubmitJob { account, terms, ..usual })));
        let submitted = events.iter().find_map(|event| match event {
            Event::JobSubmitted { job, .. } => Some(*job),
            _ => None,
        });
        let Some(job) = submitted else { return };
        let attempt = AttemptId { job: job.in_cell(0), number: 1 };
        let nodes = [ProposedNode { node: "n".into(), gpus }].into_iter().collect();
        let gpu_type = Some("H100".into());
        self.hear(ToLedger::PlacementProposed { attempt, gpu_type, nodes });
        self.hear(ToLedger::AttemptStarted { attempt });
    }

    /// The cell requests more funds, as it does when half of the last window is left.
    fn ask(&mut self, pick: usize) {
        let running: Vec<JobNo> = self.running().map(|(number, ..)| number).collect();
        let Some(job) = running.get(pick % running.len().max(1)) else { return };
        let attempt = AttemptId { job: job.in_cell(0), number: 1 };
        let events = self.hear(ToLedger::FundsNeeded { attempt });
        let owes = events
            .iter()
            .any(|event| matches!(event, Event::AttemptFunded { credits_ms: Some(_), .. }));
        let more = events.iter().any(|event| matches!(event, Event::HoldExtended { .. }));
        if owes && more {
            self.check_limits();
        }
    }

    fn running(&self) -> impl Iterator<Item = (JobNo, &Job, &Attempt)> {
        let all = self.ledger.jobs_before(None);
        let live = all.filter(|(_, job)| job.state == JobState::Running);
        live.filter_map(|(number, job)| Some((number, job, job.live_attempt()?)))
    }

    /// The uncollected usage and the unused overdrafts at and below an account are within its
    /// limit.
    fn check_limits(&self) {
        for ((path, _), limit) in PATHS.into_iter().zip(self.limits) {
            let Some(limit) = limit else { continue };
            let below =
                |account: &AccountPath| account == path || account.starts_with(&format!("{path}:"));
            let path_of = |job: &Job| self.ledger.account(job.order.account).path.clone();
            let accounts = PATHS.into_iter().filter(|(account, _)| below(&(*account).into()));
            let owed: i128 = accounts
                .filter_map(|(account, _)| self.ledger.find_account(account))
                .map(|account| self.ledger.uncollected(account))
                .sum();
            let own = self.running().filter(|(_, job, _)| below(&path_of(job)));
            let may: u64 = own.map(|(_, job, live)| live.overdraft - self.owed(job)).sum();
            assert!(
                owed + i128::from(may) <= i128::from(limit),
                "{path}: {owed} + {may} > {limit}"
            );
        }
    }

    fn owed(&self, job: &Job) -> u64 {
        job.hold.and_then(|hold| self.ledger.hold(hold)).map_or(0, |hold| hold.uncollected())
    }

    /// The available credits do not pay for another millisecond of any short job.
    fn check_nothing_left(&self) {
        for (number, job, live) in self.running().filter(|(_, _, live)| live.short) {
            let hold =
                job.hold.and_then(|hold| self.ledger.hold(hold)).expect("it costs something");
            let spendable = self.ledger.spendable(job.order.account, &job.order.context());
            let funded = live.funded_ms.expect("short of a window");
            let gpu_ms =
                u128::from(job.order.terms.gpu.devices()) * u128::from(funded.unsigned_abs() + 1);
            let next = (u128::from(live.per_gpu_hour.length()) * gpu_ms).div_ceil(HOUR_MS);
            let has =
                u128::from(hold.amount) + spendable.unsigned_abs() + u128::from(live.overdraft);
            assert!(has < next, "job {number} stops at {funded} ms with {spendable} unspent");
        }
    }

    /// A short job near its end was warned of that end or an earlier one. No end was warned of
    /// twice, unless the consequence became worse: an overdraft that another job has used up since
    /// stops the job instead.
    fn check_warnings(&self) {
        for (number, _, live) in self.running().filter(|(_, _, live)| live.short) {
            let end = live.started_at.zip(live.funded_ms).map(|(at, ms)| at.plus_millis(ms));
            let end = end.expect("it runs");
            if end.plus_millis(-WARN_AHEAD_MS) < self.now {
                let warned = self.warned.iter().any(|(_, job, ..)| *job == number);
                assert!(warned, "job {number} ends at {end} and no warning was sent");
            }
        }
        for (nth, (_, job, end, then)) in self.warned.iter().enumerate() {
            let earlier = self.warned[..nth].iter();
            for (.., expected) in earlier.filter(|(_, other, of, _)| (other, of) == (job, end)) {
                let worse = *expected == OnExhausted::Overdraft && *then == OnExhausted::Stop;
                assert!(worse, "two warnings of one end: {:?}", self.warned);
            }
        }
    }
}

type Step = (u8, usize, u64, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec((0u8..8, 0usize..3, 1u64..9_000_000, any::<u16>()), 1..60)
}

fn limits() -> impl Strategy<Value = [Option<u64>; 3]> {
    prop::array::uniform3(prop::option::of(0u64..5_000_000))
}

/// Executes the steps and checks after each.
fn live(limits: [Option<u64>; 3], steps: Vec<Step>) -> World {
    let mut world = World::new(limits);
    world.grant(0, 8_000_000);
    for (kind, account, micros, pick) in steps {
        match kind {
            0 => world.grant(account, micros),
            1 | 2 => {
                let window_ms = 60_000 + i64::from(pick) * 50;
                world.start(account, micros, 1 + pick % 3, window_ms, pick % 2 == 0);
            }
            3 => world.now = world.now.plus_millis(i64::from(pick) * 10),
            _ => world.ask(usize::from(pick)),
        }
        world.settle();
        world.check_nothing_left();
        world.check_warnings();
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn all_credits_are_used_and_overdrafts_stay_within_their_limits(
        limits in limits(), steps in steps(),
    ) {
        live(limits, steps);
    }
}

#[test]
fn the_generator_makes_jobs_that_run_short_owe_and_are_warned() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut short, mut owing, mut warned) = (0, 0, 0);
    for _ in 0..64 {
        let made = (limits(), steps()).new_tree(&mut runner).expect("a case");
        let (limits, steps) = made.current();
        let world = live(limits, steps);
        short += world.running().filter(|(_, _, live)| live.short).count();
        owing += world.running().filter(|(_, _, live)| live.overdraft > 0).count();
        warned += world.warned.len();
    }
    assert!(short > 20 && owing > 20 && warned > 20, "{short} short, {owing} owe, {warned} warned");
}

#[test]
fn one_report_keeps_each_hold_to_its_share_of_a_limited_grant() {
    let mut world = World::new([None; 3]);
    let expires_at = Some(world.now.plus_millis(30 * 24 * 3_600_000));
    world.run(&Command::IssueGrant(IssueGrant {
        kind: GrantKind::Promotion,
        expires_at,
        restriction: Some(Restriction { max_share_micro: Some(500_000), ..Restriction::default() }),
        ..IssueGrant::purchase(
            "promo",
            PATHS[0].0,
            Credits::from_length(100_000_000).expect("small"),
        )
    }));
    world.grant(0, 100_000_000);
    for _ in 0..2 {
        world.start(0, 1_000_000, 2, 3_600_000, false);
    }
    let running: Vec<JobNo> = world.running().map(|(number, ..)| number).collect();
    assert_eq!(running.len(), 2, "each holds two credits, one of them of the promotion");
    let six_hours = |job: &JobNo| (AttemptId { job: job.in_cell(0), number: 1 }, 6 * 3_600_000);
    let usage = running.iter().map(six_hours).collect();
    let events = world.hear(ToLedger::UsageMetered(usage));
    let mut drawn: Vec<Vec<u64>> = Vec::new();
    for event in &events {
        if let Event::HoldExtended { pieces, .. } = event
            && !pieces.is_empty()
        {
            drawn.push(pieces.iter().map(|piece| piece.span.len()).collect());
        }
    }
    let half = [2_000_000, 2_000_000];
    assert_eq!(drawn, [half, half], "three of six credits come from the promotion in all");
}
