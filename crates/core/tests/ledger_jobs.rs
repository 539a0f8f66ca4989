//! Random job commands and random messages of cells, including repeated, skipped, stale and false
//! ones. No invariant is violated, a rollback restores the state, and every attempt is charged its
//! price times its usage, computed here a second time from the messages alone.

use std::collections::BTreeMap;

use bursar_core::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::Credits;
use bursar_core::ledger::accounts::quota::Quota;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, GrantKind,
    IssueGrant, SubmitJob, Usage, UsageEnd, UsageOf,
};
use bursar_core::ledger::event::subject::Subject;
use bursar_core::ledger::id::{CellNo, JobNo};
use bursar_core::ledger::jobs::{EndReason, Job, JobState, JobTerms, Offer, OnExhausted, Reserve};
use bursar_core::ledger::{Command, Envelope, Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance_some, execute};
use bursar_core::message::{ProposedNode, ToCell, ToLedger};
use bursar_core::name::{AccountPath, BudgetName};
use bursar_core::time::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

const START: i64 = 1_767_225_600_000;
const HOUR: u64 = 3_600_000;
const REGIONS: [&str; 2] = ["eu", "us"];
const PATHS: [&str; 3] = ["acme", "acme:nlp", "acme:nlp:alice"];

/// One step: its kind, and numbers to derive it from.
type Step = (u8, u32, u32, u32);

/// A live attempt as seen from outside: its price, and the reported usage.
#[derive(Copy, Clone, Debug)]
struct Running {
    price: u64,
    share: u64,
    limit: u64,
    gpu_ms: u64,
}

impl Running {
    /// Price times usage, rounded down or to the nearest with ties to even.
    fn charge(&self, nearest: bool) -> u64 {
        let whole = u128::from(HOUR) * 1000;
        let usage = u128::from(self.gpu_ms.min(self.limit));
        let product = u128::from(self.price) * u128::from(self.share) * usage;
        let (quotient, rest) = (product / whole, product % whole);
        let up = nearest && (rest * 2 > whole || (rest * 2 == whole && quotient % 2 == 1));
        u64::try_from(quotient + u128::from(up)).expect("prices and runtimes are small here")
    }
}

struct World {
    ledger: Ledger,
    now: Timestamp,
    journal: Vec<(Timestamp, Event)>,
    running: BTreeMap<JobNo, Running>,
    /// Every message so far, to be sent again.
    sent: Vec<Command>,
    names: u32,
    ended: u32,
    /// The number of review steps before the next command; the rest is postponed.
    patience: usize,
    /// Whether jobs were forgotten. Their charges can then no longer be summed.
    forgotten: bool,
}

fn credits(micros: u64) -> Credits {
    Credits::from_length(micros).expect("small")
}

impl World {
    fn new() -> World {
        let mut world = World {
            ledger: Ledger::new(),
            now: Timestamp::from_millis(START),
            journal: Vec::new(),
            running: BTreeMap::new(),
            sent: Vec::new(),
            names: 0,
            ended: 0,
            patience: usize::MAX,
            forgotten: false,
        };
        let kinds = [AccountKind::Org, AccountKind::Team, AccountKind::User];
        for (path, kind) in PATHS.iter().zip(kinds) {
            let settings = AccountSettings {
                overdraft_limit: Some(credits(5_000_000)),
                ..AccountSettings::default()
            };
            world.run(&Command::OpenAccount { path: (*path).into(), kind, settings });
        }
        for region in REGIONS {
            world.run(&Command::OpenRegion { region: region.into(), shard: 3 });
        }
        world.grant(20_000_000, 0);
        world
    }

    fn grant(&mut self, micros: u64, flavor: u32) {
        self.names += 1;
        let expires = [None, Some(2), Some(40)][flavor as usize % 3];
        self.run(&Command::IssueGrant(IssueGrant {
            kind: if expires.is_some() { GrantKind::Promotion } else { GrantKind::Purchase },
            expires_at: expires.map(|hours| self.now.plus_millis(hours * 3_600_000)),
            ..IssueGrant::purchase(
                format!("g{}", self.names),
                PATHS[flavor as usize % 3],
                credits(micros.max(1)),
            )
        }));
    }

    /// Runs due timers, then executes a command twice: first with a rollback, then finally.
    fn run(&mut self, command: &Command) {
        self.settle();
        let envelope = Envelope { fingerprint: print(command), ..Envelope::default() };
        let before = self.ledger.digest();
        self.ledger.begin_group();
        let mut rehearsed = Vec::new();
        let first = execute(&mut self.ledger, self.now, &envelope, command, &mut rehearsed);
        self.ledger.rollback_group();
        assert_eq!(
            self.ledger.digest(),
            before,
            "the rollback did not restore the state: {command:?}"
        );
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, &envelope, command, &mut events);
        assert_eq!(
            (&answer, &events),
            (&first, &rehearsed),
            "both executions must agree: {command:?}"
        );
        let denied = |event: &Event| matches!(event, Event::CreditsDenied { .. });
        assert!(answer.is_ok() || events.iter().all(denied), "refused, but pushed {events:?}");
        self.note(command, &events);
        self.checked(&format!("{command:?}"), events);
        self.settle();
    }

    fn settle(&mut self) {
        let (mut due, patience) = (Vec::new(), self.patience);
        let note = |at: Timestamp, events: &[Event]| due.push((at, events.to_vec()));
        advance_some(&mut self.ledger, Timestamp::MIN, self.now, patience, note);
        for (at, events) in due {
            for event in &events {
                self.watch(event);
            }
            self.journal.extend(events.into_iter().map(|event| (at, event)));
        }
        if let Err(violation) = invariant::check(&self.ledger) {
            panic!("{violation} after what was due");
        }
    }

    fn checked(&mut self, what: &str, events: Vec<Event>) {
        let now = self.now;
        self.journal.extend(events.into_iter().map(|event| (now, event)));
        if let Err(violation) = invariant::check(&self.ledger) {
            panic!("{violation} after {what}");
        }
    }

    /// Tracks usage and charges from outside: messages in, events out.
    fn note(&mut self, command: &Command, events: &[Event]) {
        let taken = events.iter().any(|event| matches!(event, Event::MessageReceived { .. }));
        if let (true, Command::Receive { cell, message, .. }) = (taken, command) {
            match &**message {
                ToLedger::UsageMetered(usages) => {
                    for (attempt, gpu_ms) in usages {
                        self.used(*cell, *attempt, *gpu_ms);
                    }
                }
                ToLedger::AttemptEnded { attempt, gpu_ms, .. } => {
                    self.used(*cell, *attempt, *gpu_ms);
                }
                _ => {}
            }
        }
        for event in events {
            self.watch(event);
        }
    }

    /// Usage counts for the attempt that was confirmed in this cell and has not ended. Called
    /// before the events that end it are processed. The ledger has no other live attempt of the
    /// job.
    fn used(&mut self, cell: CellNo, attempt: AttemptId, gpu_ms: u64) {
        let job = JobNo::of_cell(attempt.job);
        let attempts = self.ledger.job(job).map_or(&[][..], |job| &job.attempts);
        let last = attempts.last().map(|last| (last.cell, last.number));
        if last == Some((Some(cell), attempt.number))
            && let Some(running) = self.running.get_mut(&job)
        {
            running.gpu_ms = running.gpu_ms.max(gpu_ms.min(running.limit));
        }
    }

    fn watch(&mut self, event: &Event) {
        match event {
            Event::CellMessageSent { message, .. } => {
                if let ToCell::PlacementConfirmed { attempt, price, .. } = &**message {
                    let job = JobNo::of_cell(attempt.job);
                    let terms = &self.ledger.job(job).expect("confirmed").order.terms;
                    let devices = u64::from(terms.gpu.devices()) * u64::from(terms.nodes);
                    let longest = terms.max_runtime_ms.map_or(u64::MAX / 4096, i64::unsigned_abs);
                    let share = u64::from(terms.gpu.per_device());
                    let limit = devices * longest;
                    self.running.insert(job, Running { price: *price, share, limit, gpu_ms: 0 });
                }
            }
            Event::AttemptEnded { job, end } => {
                self.ended += 1;
                if let Some(running) = self.running.remove(job) {
                    let lapsed = end.reason == EndReason::Lost && {
                        let charged = running.charge(false);
                        charged == end.charged
                    };
                    let right = lapsed || running.charge(true) == end.charged;
                    assert!(right, "{running:?} was charged {end:?}");
                }
            }
            Event::Forgotten { jobs, archived, .. } => {
                let archived = archived.as_ref().map_or(0, |archived| archived.jobs);
                self.forgotten |= jobs + archived > 0;
            }
            _ => {}
        }
    }

    fn step(&mut self, (kind, a, b, c): Step) {
        self.patience = [usize::MAX, 0, 0, 1, 2, usize::MAX, 0, 1][usize::from(kind / 32)];
        match kind % 32 {
            0..=4 => self.submit(a, b, c),
            5..=6 => self.cancel(a),
            7 => self.grant(u64::from(a % 8_000_000), b),
            8 => self.now = self.now.plus_millis(i64::from(a % 3_600_000)),
            9 if a % 20 == 0 => self.now = self.now.plus_millis(i64::from(a % 300_000_000)),
            9 | 10 => self.external(a, b, c),
            11 => {
                let path: AccountPath = PATHS[b as usize % 3].into();
                self.run(&match a % 4 {
                    0 => Command::FreezeAccount { path, by_platform: false },
                    _ => Command::UnfreezeAccount { path, by_platform: false },
                });
            }
            12 => self.budget(a, b),
            13 => self.quota(a, b),
            14 => self.resend(a),
            _ => self.message(kind, a, b, c),
        }
    }

    fn submit(&mut self, a: u32, b: u32, c: u32) {
        self.names += 1;
        let offer = |region: usize, micros: u32| Offer {
            gpu_type: ["H100", "A100"][micros as usize % 2].into(),
            region: REGIONS[region].into(),
            per_gpu_hour: credits(u64::from(micros % 3_000_000)),
        };
        let offers = match a % 3 {
            0 => vec![offer(0, b)],
            1 => vec![offer(0, b), offer(1, c)],
            _ => vec![offer(0, b), offer(0, b / 2), offer(1, c)],
        };
        let rolling = b.is_multiple_of(4);
        let live = self.pick_job(c).map(|job| self.ledger.job(job).expect("picked"));
        let after = live.filter(|_| c.is_multiple_of(5)).map(|job| job.order.id.clone());
        let gpu = match c % 4 {
            0 => GpuDemand::Share(u16::try_from(1 + b % 999).expect("small")),
            count => GpuDemand::Whole(u16::try_from(count).expect("small")),
        };
        self.run(&Command::SubmitJob(Box::new(SubmitJob {
            scope: None,
            id: format!("j{}", self.names).into(),
            account: PATHS[a as usize / 3 % 3].into(),
            terms: JobTerms {
                gpu_types: vec!["H100".into(), "A100".into()],
                nodes: 1 + u16::from(a.is_multiple_of(7)),
                max_runtime_ms: (!rolling || a.is_multiple_of(2))
                    .then_some(1000 + i64::from(a % 7_200_000)),
                grace_ms: 60_000,
                reserve: match rolling {
                    true => Reserve::Rolling { window_ms: 1000 + i64::from(c % 3_600_000) },
                    false => Reserve::Full,
                },
                on_exhausted: match a % 2 {
                    0 => OnExhausted::Stop,
                    _ => OnExhausted::Overdraft,
                },
                max_requeues: b % 3,
                warn_ahead_ms: [0, 300_000, 3_600_000][(c % 3) as usize],
                ..JobTerms::new(gpu)
            },
            offers,
            payload: "{}".into(),
            submitted: "{}".into(),
            hold: format!("h{}", self.names).into(),
            array: a.is_multiple_of(11).then_some(1 + b % 4),
            after: after.into_iter().collect(),
        })));
    }

    fn pick_job(&self, pick: u32) -> Option<JobNo> {
        let jobs: Vec<JobNo> = self.ledger.jobs_before(None).map(|(job, _)| job).collect();
        // Usually a live job.
        let live: Vec<JobNo> = jobs
            .iter()
            .copied()
            .filter(|job| self.ledger.job(*job).is_some_and(|job| !job.state.is_ended()))
            .collect();
        let from = if live.is_empty() || pick.is_multiple_of(9) { jobs } else { live };
        (!from.is_empty()).then(|| from[pick as usize % from.len()])
    }

    fn cancel(&mut self, a: u32) {
        let Some(job) = self.pick_job(a) else { return };
        let job = self.ledger.job(job).expect("picked").order.id.clone();
        if a.is_multiple_of(3) {
            self.run(&Command::CancelJob { tenant: "acme".into(), job });
        }
    }

    fn external(&mut self, a: u32, b: u32, c: u32) {
        let Some(job) = self.pick_job(a) else { return };
        let of = UsageOf::Job(self.ledger.job(job).expect("picked").order.id.clone());
        let usage = match b % 2 {
            0 => Usage::GpuMs(u64::from(c % 9_000_000)),
            _ => Usage::Total(credits(u64::from(c % 2_000_000))),
        };
        let (seq, ended) = (u64::from(b % 16), b.is_multiple_of(5));
        self.run(&Command::ReportUsage {
            tenant: "acme".into(),
            of,
            seq,
            usage,
            ended: ended.then_some(UsageEnd::Ended),
        });
    }

    fn budget(&mut self, a: u32, b: u32) {
        let path: AccountPath = PATHS[a as usize % 3].into();
        let budget: BudgetName = "b".into();
        if a.is_multiple_of(3) {
            return self.run(&Command::RemoveBudget { path, budget });
        }
        let unit = if b.is_multiple_of(2) { BudgetUnit::Credits } else { BudgetUnit::GpuHours };
        let terms = BudgetTerms {
            limit: credits(1 + u64::from(b % 30_000_000)),
            unit,
            period: BudgetPeriod::Day,
            mode: BudgetMode::Hard,
            thresholds: [50, 100].into_iter().collect(),
            utc_offset_minutes: 0,
        };
        self.run(&Command::SetBudget { path, budget, terms });
    }

    fn quota(&mut self, a: u32, b: u32) {
        let path: AccountPath = PATHS[a as usize % 3].into();
        let region = b.is_multiple_of(2).then(|| REGIONS[b as usize / 2 % 2].into());
        if a.is_multiple_of(2) {
            return self.run(&Command::RemoveQuota { path, region });
        }
        let waiting_jobs = Some(3 + b % 8);
        let quota = Quota { waiting_jobs, running_jobs: Some(b % 5), ..Quota::default() };
        self.run(&Command::SetQuota { path, region, quota });
    }

    /// Sends an old message again, unchanged.
    fn resend(&mut self, a: u32) {
        if !self.sent.is_empty() {
            let again = self.sent[a as usize % self.sent.len()].clone();
            self.run(&again);
        }
    }

    fn message(&mut self, kind: u8, a: u32, b: u32, c: u32) {
        let Some(number) = self.pick_job(a) else { return };
        let job = self.ledger.job(number).expect("picked");
        // Usually the cell that has the job, and the live or next attempt.
        let live = job.live_attempt().and_then(|attempt| attempt.cell);
        let stands = job.standings.first().map(|standing| standing.cell);
        let cell = live.or(stands).filter(|_| !b.is_multiple_of(7));
        let cell = cell.unwrap_or(CellNo(u16::try_from(b % 2).expect("small")));
        let after = job.standings.iter().find(|standing| standing.cell == cell);
        let next = after.map_or(0, |standing| standing.after).max(job.highest) + 1;
        let current = job.live_attempt().map_or(next, |attempt| attempt.number);
        let attempt = AttemptId {
            job: number.in_cell(3),
            number: if c.is_multiple_of(13) { b % 4 } else { current },
        };
        let gpu_ms = u64::from(c % 20_000_000);
        let message = match kind % 32 {
            15..=19 => ToLedger::PlacementProposed {
                attempt,
                gpu_type: Some(["H100", "A100"][c as usize % 2].into()),
                nodes: [ProposedNode { node: "n".into(), gpus: 1 }].into_iter().collect(),
            },
            20..=21 => ToLedger::AttemptStarted { attempt },
            22..=24 => {
                let second = self.pick_job(b).map_or(JobId(u64::MAX), |job| job.in_cell(3));
                let other = AttemptId { job: second, number: 1 };
                ToLedger::UsageMetered(vec![(attempt, gpu_ms), (other, gpu_ms / 2)])
            }
            25 => ToLedger::FundsNeeded { attempt },
            26 => ToLedger::StopOrdered { attempt, reason: StopReason::Drained },
            27..=30 => {
                let reasons = [
                    AttemptOutcome::Succeeded,
                    AttemptOutcome::Failed,
                    AttemptOutcome::Lost,
                    AttemptOutcome::Stopped(StopReason::Operator { by_platform: false }),
                    AttemptOutcome::Stopped(StopReason::Cancelled),
                    AttemptOutcome::Stopped(StopReason::OutOfCredits),
                    AttemptOutcome::Stopped(StopReason::MaxRuntime),
                ];
                let outcome = reasons[b as usize % reasons.len()];
                let again = (2..=3).contains(&(b as usize % reasons.len()));
                let requeued = again.then_some(self.now);
                ToLedger::AttemptEnded { attempt, outcome, gpu_ms, exit_code: None, requeued }
            }
            _ => {
                let outcomes = [
                    JobOutcome::Withdrawn,
                    JobOutcome::Cancelled,
                    JobOutcome::TooManyDemands,
                    JobOutcome::WaitingQuota,
                ];
                let outcome = outcomes[b as usize % outcomes.len()];
                ToLedger::JobEnded { job: attempt.job, outcome }
            }
        };
        let mark = self.ledger.cell(cell).expect("opened").mark.number;
        let number = if b.is_multiple_of(17) { mark + 2 } else { mark + 1 };
        let command =
            Command::Receive { cell, number, position: number, message: Box::new(message) };
        self.sent.push(command.clone());
        self.run(&command);
    }

    /// The spent credits equal the charges of all attempts.
    fn books_balance(&self) {
        let spent: u128 = self
            .ledger
            .grants_in_order()
            .map(|(grant, _)| {
                u128::from(self.ledger.grant_parts(grant)[fefo::Part::Spent as usize])
            })
            .sum();
        let mut charged: u128 = 0;
        for (_, job) in self.ledger.jobs_before(None) {
            let ends = job.attempts.iter().filter_map(|attempt| attempt.end);
            charged += ends.map(|end| u128::from(end.charged - end.uncollected)).sum::<u128>();
            charged += u128::from(self.ledger.captured_so_far(job));
        }
        assert!(self.forgotten || spent == charged, "grants spent {spent}, jobs {charged}");
        for (job, running) in &self.running {
            let job = self.ledger.job(*job).expect("running");
            if let Some(hold) = job.hold.and_then(|hold| self.ledger.hold(hold)) {
                assert_eq!(hold.metered, running.charge(false), "{running:?}");
                assert!(hold.captured <= hold.amount);
            }
        }
    }
}

/// A job, built only from its own events and those of its holds. They do not include its standings
/// in cells.
fn replayed(journal: &[(Timestamp, Event)], number: JobNo) -> Option<Job> {
    let mut replayed: Option<Job> = None;
    for (at, event) in journal {
        let own = match event.subject() {
            Subject::Job(job) => job == number,
            Subject::Hold(_) => true,
            Subject::Other => false,
        };
        match (event, &mut replayed) {
            (Event::JobSubmitted { order, after, .. }, None) if own => {
                replayed = Some(Job::submitted(*at, order, after));
            }
            (_, Some(job)) if own => job.apply(*at, event),
            _ => {}
        }
    }
    replayed
}

fn print(command: &Command) -> u128 {
    let hash = blake3::hash(format!("{command:?}").as_bytes());
    u128::from_le_bytes(hash.as_bytes()[..16].try_into().expect("16 bytes"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_attempt_is_charged_exactly_once_whatever_cells_send(
        steps in vec(any::<Step>(), 1..160)
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.books_balance();
        }
        world.patience = usize::MAX;
        world.settle();
        world.books_balance();
        let mut again = Ledger::new();
        world.journal.iter().for_each(|(at, event)| again.apply(*at, event));
        prop_assert_eq!(again.digest(), world.ledger.digest(), "replay gives another state");
        for (number, job) in world.ledger.jobs_before(None) {
            let alone = replayed(&world.journal, number).expect("the job was submitted");
            let (standings, highest) = (job.standings.clone(), job.highest);
            prop_assert_eq!(&Job { standings, highest, ..alone }, job, "{} replayed alone", number);
        }
        let restored = Ledger::from_image(world.ledger.image()).expect("its own image");
        prop_assert_eq!(restored.digest(), world.ledger.digest(), "the image differs");
        invariant::check(&restored).expect("the invariants hold in a restored ledger");
    }
}

#[test]
fn the_generator_reaches_every_state_that_a_job_can_be_in() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, TestRunner};
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let mut seen: BTreeMap<JobState, u32> = BTreeMap::new();
    let mut ended = 0;
    for _ in 0..40 {
        let steps = vec(any::<Step>(), 150..160).new_tree(&mut runner).expect("a tree").current();
        let mut world = World::new();
        for step in steps {
            world.step(step);
            for (_, job) in world.ledger.jobs_before(None) {
                *seen.entry(job.state).or_default() += 1;
            }
        }
        ended += world.ended;
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
    assert!(ended > 100, "{ended} attempts ended");
}
