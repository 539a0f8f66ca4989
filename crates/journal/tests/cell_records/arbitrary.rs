//! Events of every kind with arbitrary content, generated from a seed.

use bursar_core::cell::command::{
    AccountPolicy, FundsBlocker, GroupSpec, JobSpec, NodeOffer, QuotaSpec, RequestKey, StoredAnswer,
};
use bursar_core::cell::config::CellConfig;
use bursar_core::cell::event::{
    AttemptNodeEnd, AttemptOutcome, Event, JobOutcome, Placement, StopReason,
};
use bursar_core::cell::ids::{AccountId, AttemptId, ClassRank, JobId, MaintenanceId, RequestId};
use bursar_core::cell::image::{CellAside, Timer};
use bursar_core::cell::nodes::node::{GpuSet, NodeId};
use bursar_core::cell::schedule::shape::{GpuDemand, ModelId};
use bursar_core::message::{ProposedNode, ToLedger};
use bursar_core::name::{ClassName, GpuModel};
use bursar_core::time::Timestamp;
use bursar_journal::record::cell::{Author, CellHeader, CellOutcome, CommandKind};
use compact_str::CompactString;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// How many variants an event has.
pub(crate) const VARIANTS: u32 = 49;

/// Generates values. Small numbers are as likely as large ones, so that every length occurs.
pub(crate) struct Source {
    numbers: ChaCha8Rng,
    /// Whether to generate fields that were added after the first golden bytes.
    later: bool,
}

impl Source {
    pub(crate) fn new(seed: u64) -> Source {
        Source { numbers: ChaCha8Rng::seed_from_u64(seed), later: true }
    }

    /// Generates only fields that existed when the first golden bytes were written.
    pub(crate) fn first(seed: u64) -> Source {
        Source { later: false, ..Source::new(seed) }
    }

    fn u64(&mut self) -> u64 {
        let shift = self.numbers.next_u32() % 64;
        self.numbers.next_u64() >> shift
    }

    fn u32(&mut self) -> u32 {
        self.numbers.next_u32() >> (self.numbers.next_u32() % 32)
    }

    fn u16(&mut self) -> u16 {
        // The shift leaves 16 bits at most.
        (self.numbers.next_u32() >> (16 + self.numbers.next_u32() % 16)) as u16
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.numbers.next_u32() % bound
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Source) -> T) -> Option<T> {
        self.coin().then(|| make(self))
    }

    fn list<T, L: FromIterator<T>>(&mut self, make: impl Fn(&mut Source) -> T) -> L {
        (0..self.below(4)).map(|_| make(self)).collect()
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(u32::try_from(choices.len()).expect("few choices")) as usize]
    }

    fn i64(&mut self) -> i64 {
        self.u64().cast_signed()
    }

    fn i32(&mut self) -> i32 {
        self.u32().cast_signed()
    }

    fn name<T: From<CompactString>>(&mut self) -> T {
        let name: CompactString =
            (0..self.below(40)).map(|_| self.pick(&['a', '7', ':', 'é', '"'])).collect();
        T::from(name)
    }

    fn model(&mut self) -> GpuModel {
        self.name()
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.i64())
    }

    fn job(&mut self) -> JobId {
        JobId(self.u64() | u64::from(self.pick(&[0u16, 1, 300])) << 48)
    }

    fn attempt(&mut self) -> AttemptId {
        AttemptId { job: self.job(), number: self.u32() }
    }

    fn node(&mut self) -> NodeId {
        NodeId(self.u32())
    }

    fn class(&mut self) -> ClassRank {
        // Below 256.
        ClassRank(self.below(256) as u8)
    }

    fn reason(&mut self) -> StopReason {
        match self.below(6) {
            0 => StopReason::Cancelled,
            1 => StopReason::Preempted { by: self.job(), for_share: self.coin(), cause: None },
            2 => StopReason::Operator { by_platform: false },
            3 => StopReason::Drained,
            4 => StopReason::MaxRuntime,
            _ => StopReason::OutOfCredits,
        }
    }

    fn outcome(&mut self) -> AttemptOutcome {
        match self.below(4) {
            0 => AttemptOutcome::Succeeded,
            1 => AttemptOutcome::Failed,
            2 => AttemptOutcome::Stopped(self.reason()),
            _ => AttemptOutcome::Lost,
        }
    }

    fn job_outcome(&mut self) -> JobOutcome {
        if self.later && self.below(9) == 0 {
            return JobOutcome::TooManyDemands;
        }
        self.pick(&[
            JobOutcome::Succeeded,
            JobOutcome::Failed,
            JobOutcome::Cancelled,
            JobOutcome::Lost,
            JobOutcome::OutOfCredits,
            JobOutcome::TimedOut,
            JobOutcome::Withdrawn,
            JobOutcome::WaitingQuota,
        ])
    }

    fn blocker(&mut self) -> FundsBlocker {
        self.pick(&[FundsBlocker::Credits, FundsBlocker::Budget, FundsBlocker::Frozen])
    }

    fn usage(&mut self) -> Vec<(AttemptId, u64)> {
        self.list(|source| (source.attempt(), source.u64()))
    }

    fn spec(&mut self) -> Box<JobSpec> {
        let gpu = match self.below(3) {
            0 => GpuDemand::None,
            1 => GpuDemand::Share(self.u16()),
            _ => GpuDemand::Whole(self.u16()),
        };
        Box::new(JobSpec {
            // Added later, with its own test.
            class_name: ClassName::default(),
            resumable: false,
            job: self.job(),
            account: self.name(),
            class: self.class(),
            gpu,
            models: self.list(Source::model),
            gpu_memory_mib: self.u32(),
            cpu_milli: self.u32(),
            memory_mib: self.u32(),
            labels: self.list(Source::name),
            nodes: self.u16(),
            max_runtime_ms: self.maybe(Source::i64),
            preemptible: self.coin(),
            grace_ms: self.i64(),
            group: self.maybe(|source| GroupSpec { name: source.name(), limit: source.u32() }),
            max_requeues: self.u32(),
            submitted_at: self.time(),
            attempts_before: self.u32(),
            payload: self.name::<CompactString>().as_str().into(),
        })
    }

    fn policy(&mut self) -> Box<AccountPolicy> {
        Box::new(AccountPolicy {
            path: self.name(),
            weight: self.u32(),
            frozen: self.coin(),
            quota: QuotaSpec {
                gpus: self.list(|source| (source.model(), source.u32())),
                total_gpus: self.maybe(Source::u32),
                running_jobs: self.maybe(Source::u32),
                waiting_jobs: self.maybe(Source::u32),
            },
        })
    }

    fn offer(&mut self) -> Box<NodeOffer> {
        Box::new(NodeOffer {
            name: self.name(),
            rack: self.name(),
            model: self.model(),
            gpus: self.u16(),
            uuids: self.list(Source::name),
            gpu_memory_mib: self.u32(),
            cpu_milli: self.u32(),
            memory_mib: self.u32(),
            labels: self.list(Source::name),
            scope: if self.later { self.maybe(Source::name) } else { None },
        })
    }

    fn config(&mut self) -> Box<CellConfig> {
        Box::new(CellConfig {
            half_life_ms: self.i64(),
            entry_charge_ms: self.i64(),
            ageing_after_ms: self.i64(),
            ageing_one_in: self.u32(),
            node_lease_ms: self.i64(),
            heartbeat_ms: self.i64(),
            meter_slack_ms: self.i64(),
            requeue_delay_ms: self.i64(),
            kill_timeout_ms: self.i64(),
            start_allowance_ms: self.i64(),
            assumed_runtime_ms: self.i64(),
            share_preemption: self.coin(),
            share_minimum_runtime_ms: self.i64(),
            review_ms: self.i64(),
            victims_per_review: self.u32(),
            plan_timeout_ms: self.i64(),
        })
    }

    fn message(&mut self) -> ToLedger {
        match self.below(7) {
            0 => ToLedger::PlacementProposed {
                attempt: self.attempt(),
                gpu_type: self.maybe(Source::model),
                nodes: self.list(|source| ProposedNode { node: source.name(), gpus: source.u16() }),
            },
            1 => ToLedger::AttemptStarted { attempt: self.attempt() },
            2 => ToLedger::UsageMetered(self.usage()),
            3 => ToLedger::FundsNeeded { attempt: self.attempt() },
            4 => ToLedger::StopOrdered { attempt: self.attempt(), reason: self.reason() },
            5 => ToLedger::AttemptEnded {
                attempt: self.attempt(),
                outcome: self.outcome(),
                gpu_ms: self.u64(),
                exit_code: self.maybe(Source::i32),
                requeued: self.maybe(Source::time),
            },
            _ => ToLedger::JobEnded { job: self.job(), outcome: self.job_outcome() },
        }
    }

    pub(crate) fn header(&mut self) -> CellHeader {
        let author = if self.coin() {
            Author::Actor(self.name())
        } else {
            Author::Ledger { shard: self.u16() }
        };
        let kinds = if self.later { CommandKind::ALL } else { &CommandKind::ALL[..18] };
        CellHeader {
            author,
            command: self.pick(kinds),
            outcome: self.pick(&[CellOutcome::Accepted, CellOutcome::Refused]),
            // Its golden bytes are older than the field.
            node: None,
        }
    }

    /// An event of a variant, by its stored tag.
    pub(crate) fn event(&mut self, variant: u32) -> Event {
        match variant {
            0..=13 => self.node_event(variant),
            14..=18 => self.job_event(variant),
            19..=32 => self.attempt_event(variant),
            _ => self.schedule_event(variant),
        }
    }

    fn node_event(&mut self, variant: u32) -> Event {
        match variant {
            0 => Event::MessageReceived {
                shard: self.u16(),
                number: self.u64(),
                position: self.u64(),
            },
            1 => Event::LedgerMessageSent {
                shard: self.u16(),
                number: self.u64(),
                message: Box::new(self.message()),
            },
            2 => Event::Configured(self.config()),
            3 => Event::PriceSet { model: self.model(), price: self.u64() },
            4 => Event::AccountSet(self.policy()),
            5 => Event::NodeRegistered {
                node: self.node(),
                offer: self.offer(),
                incarnation: self.u32(),
                lease_until: self.time(),
                // Added later, with its own golden bytes.
                kept_until: None,
            },
            6 => {
                Event::NodeReported { node: self.node(), seq: self.u64(), lease_until: self.time() }
            }
            7 => Event::NodeLost { node: self.node() },
            8 => Event::NodeDrained { node: self.node() },
            9 => Event::NodeResumed { node: self.node() },
            10 => Event::NodeRemoved { node: self.node() },
            11 => Event::MaintenancePlanned {
                id: MaintenanceId(self.u64()),
                from: self.time(),
                to: self.time(),
                nodes: self.list(Source::node),
            },
            12 => Event::MaintenanceBegan { id: MaintenanceId(self.u64()) },
            _ => Event::MaintenanceEnded { id: MaintenanceId(self.u64()) },
        }
    }

    fn job_event(&mut self, variant: u32) -> Event {
        match variant {
            14 => Event::JobQueued(self.spec()),
            15 => Event::JobFunded { job: self.job(), attempts_before: self.u32() },
            16 => Event::JobReleased { job: self.job() },
            17 => Event::JobHeldByGroup { job: self.job() },
            _ => Event::JobEnded { job: self.job(), outcome: self.job_outcome() },
        }
    }

    fn attempt_event(&mut self, variant: u32) -> Event {
        let attempt = self.attempt();
        match variant {
            19 => Event::PlacementProposed {
                attempt,
                model: self.maybe(|source| ModelId(source.u32())),
                placements: self.list(|source| Placement {
                    node: source.node(),
                    gpus: GpuSet::from_bits(source.u64()),
                }),
            },
            20 => Event::PlacementConfirmed {
                attempt,
                price: self.u64(),
                funded_ms: self.maybe(Source::i64),
            },
            21 => Event::PlacementRefused { attempt, blocker: self.blocker() },
            22 => Event::AttemptStartedOnNode { attempt, node: self.node() },
            23 => Event::UsageMetered { node: self.node(), usage: self.usage() },
            24 => Event::AttemptEndedOnNode {
                attempt,
                node: self.node(),
                end: self.pick(&[
                    AttemptNodeEnd::Succeeded,
                    AttemptNodeEnd::Failed,
                    AttemptNodeEnd::Stopped,
                ]),
                exit_code: self.maybe(Source::i32),
            },
            25 => Event::FundingSet { attempt, funded_ms: self.maybe(Source::i64) },
            26 => Event::FundsNeeded { attempt },
            27 => Event::FundingEnded { attempt },
            28 => Event::StopOrdered { attempt, reason: self.reason(), kill_at: self.time() },
            29 => Event::CancelNoted { attempt },
            30 => Event::KillOrdered { attempt, end_at: self.time() },
            31 => Event::AttemptEnded {
                attempt,
                outcome: self.outcome(),
                gpu_ms: self.u64(),
                exit_code: self.maybe(Source::i32),
                requeued: self.maybe(Source::time),
            },
            _ => Event::FenceLifted { attempt, node: self.node() },
        }
    }

    fn schedule_event(&mut self, variant: u32) -> Event {
        match variant {
            33 => Event::RequestParked { class: self.class(), request: RequestId(self.u32()) },
            34 => Event::RequestBlocked {
                account: AccountId(self.u32()),
                request: RequestId(self.u32()),
                mixed: self.coin(),
            },
            35 => Event::ReservationMade {
                job: self.job(),
                model: self.maybe(|source| ModelId(source.u32())),
                nodes: self.list(Source::node),
                start_at: self.time(),
                preempting: self.coin(),
                guests: false,
            },
            36 => Event::ReservationKept { job: self.job() },
            37 => Event::ReservationsDone {
                class: self.class(),
                model: self.maybe(|source| ModelId(source.u32())),
            },
            38 => Event::ReservationDropped { job: self.job() },
            39 => Event::ReviewBegan,
            40 => Event::ReviewPassed { class: self.class() },
            41 => Event::PassEnded,
            42 => Event::ClassSet {
                class: self.name(),
                preempts: self.maybe(|source| source.list(Source::name)),
            },
            43 => Event::RequestDone { request: self.request() },
            44 => Event::AnswerKept {
                request: self.request(),
                // The scope added later has its own golden bytes.
                answer: Box::new(StoredAnswer {
                    code: self.u16(),
                    body: self.maybe(Source::name),
                    scope: None,
                }),
            },
            45 => Event::RequestsForgotten { requests: self.u32() },
            // The flag added later has its own golden bytes.
            47 => Event::Rewound { generation: self.u32(), served: false },
            48 => Event::NodeCleared { node: self.node() },
            _ => {
                let all = [
                    CellAside::Message { shard: self.u16(), number: self.u64() },
                    CellAside::Timer { at: self.time(), timer: Timer::MaxRuntime(self.job()) },
                    CellAside::Pass { at: self.time() },
                ];
                let what = all[self.u32() as usize % all.len()];
                Event::SetAside { what, digest: u128::from(self.u64()) << 64 | 7 }
            }
        }
    }

    fn request(&mut self) -> RequestKey {
        let mut wide = || u128::from(self.u64()) << 64 | u128::from(self.u64());
        RequestKey { key: wide(), fingerprint: wide() }
    }
}
