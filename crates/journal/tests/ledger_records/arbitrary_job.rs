//! Events about jobs, cells and quotas with arbitrary content.

use std::sync::Arc;

use bursar_core::cell::command::{
    AccountPolicy, FundsBlocker, GroupSpec, JobSpec, QuotaSpec, Verdict,
};
use bursar_core::cell::ids::{AttemptId, ClassRank, JobId};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::ledger::Reply;
use bursar_core::ledger::accounts::quota::Quota;
use bursar_core::ledger::event::{AttemptConfirmed, Event, HoldPlaced, SliceAmount};
use bursar_core::ledger::id::{CellNo, HoldNo, JobNo};
use bursar_core::ledger::index::aside::LedgerAside;
use bursar_core::ledger::jobs::table::Review;
use bursar_core::ledger::jobs::{
    AttemptEnd, EndReason, JobOrder, JobState, JobTerms, Offer, OnExhausted, Reserve, WARN_AHEAD_MS,
};
use bursar_core::ledger::refusal::{Blocker, Conflict, Refusal, Resource};
use bursar_core::message::{ProposedNode, ToCell};

use super::Source;

const STATES: [JobState; 10] = [
    JobState::Queued,
    JobState::Starting,
    JobState::Running,
    JobState::Stopping,
    JobState::Succeeded,
    JobState::Failed,
    JobState::Cancelled,
    JobState::Lost,
    JobState::OutOfCredits,
    JobState::TimedOut,
];

const REASONS: [EndReason; 9] = [
    EndReason::Succeeded,
    EndReason::Failed,
    EndReason::Cancelled,
    EndReason::Preempted,
    EndReason::Operator,
    EndReason::Drained,
    EndReason::TimedOut,
    EndReason::OutOfCredits,
    EndReason::Lost,
];

impl Source {
    fn job(&mut self) -> JobNo {
        JobNo(self.u64())
    }

    fn cell(&mut self) -> CellNo {
        CellNo(self.u32() as u16)
    }

    fn length(&mut self) -> i64 {
        (self.u64() >> 1).cast_signed()
    }

    fn gpu(&mut self) -> GpuDemand {
        match self.below(3) {
            0 => GpuDemand::None,
            1 => GpuDemand::Share(self.u32() as u16),
            _ => GpuDemand::Whole(self.u32() as u16),
        }
    }

    fn group(&mut self) -> GroupSpec {
        GroupSpec { name: self.name(), limit: self.u32() }
    }

    fn terms_of_job(&mut self) -> JobTerms {
        JobTerms {
            external: false,
            class: self.name(),
            rank: ClassRank(self.u32() as u8),
            gpu: self.gpu(),
            gpu_types: self.list(Source::model),
            nodes: self.u32() as u16,
            gpu_memory_mib: self.u32(),
            cpu_milli: self.u32(),
            memory_mib: self.u32(),
            labels: self.list(Source::name),
            max_runtime_ms: self.maybe(Source::length),
            preemptible: self.coin(),
            grace_ms: self.length(),
            reserve: match self.below(2) {
                0 => Reserve::Full,
                _ => Reserve::Rolling { window_ms: self.length() },
            },
            on_exhausted: self.pick(&[OnExhausted::Stop, OnExhausted::Overdraft]),
            group: self.maybe(Source::group),
            max_requeues: self.u32(),
            // Added later, with their own tests.
            warn_ahead_ms: WARN_AHEAD_MS,
            resumable: false,
        }
    }

    fn offer(&mut self) -> Offer {
        Offer { gpu_type: self.model(), region: self.region(), per_gpu_hour: self.credits() }
    }

    fn order(&mut self) -> JobOrder {
        JobOrder {
            id: self.name(),
            account: self.account(),
            terms: self.terms_of_job(),
            offers: self.list(Source::offer),
            payload: self.text().into(),
            submitted: self.text().into(),
            hold: self.name(),
            fingerprint: self.hash(),
        }
    }

    fn quota(&mut self) -> Quota {
        Quota {
            gpus: self.list(|s| (s.model().into_text(), s.u32())),
            running_jobs: self.maybe(Source::u32),
            waiting_jobs: self.maybe(Source::u32),
        }
    }

    fn proposed_node(&mut self) -> ProposedNode {
        ProposedNode { node: self.name(), gpus: self.u32() as u16 }
    }

    fn attempt(&mut self) -> AttemptId {
        AttemptId { job: JobId(self.u64()), number: self.u32() }
    }

    fn review(&mut self) -> Review {
        Review { at: self.time(), from: self.job(), retry_at: self.maybe(Source::time) }
    }

    fn end(&mut self) -> AttemptEnd {
        AttemptEnd {
            at: self.time(),
            reason: self.pick(&REASONS),
            exit_code: self.maybe(|s| s.u32().cast_signed()),
            gpu_ms: self.u64(),
            charged: self.u64(),
            uncollected: self.u64(),
            returned: self.u64(),
        }
    }

    fn policy_of_account(&mut self) -> AccountPolicy {
        AccountPolicy {
            path: self.name(),
            weight: self.u32(),
            frozen: self.coin(),
            quota: QuotaSpec {
                gpus: self.list(|s| (s.model(), s.u32())),
                total_gpus: self.maybe(Source::u32),
                running_jobs: self.maybe(Source::u32),
                waiting_jobs: self.maybe(Source::u32),
            },
        }
    }

    fn spec(&mut self) -> JobSpec {
        JobSpec {
            // Added later, with their own tests.
            class_name: Default::default(),
            resumable: false,
            job: JobId(self.u64()),
            account: self.name(),
            class: ClassRank(self.u32() as u8),
            gpu: self.gpu(),
            models: self.list(Source::model),
            gpu_memory_mib: self.u32(),
            cpu_milli: self.u32(),
            memory_mib: self.u32(),
            labels: self.list(Source::name),
            nodes: self.u32() as u16,
            max_runtime_ms: self.maybe(Source::length),
            preemptible: self.coin(),
            grace_ms: self.length(),
            group: self.maybe(Source::group),
            max_requeues: self.u32(),
            submitted_at: self.time(),
            attempts_before: self.u32(),
            payload: self.text().into(),
        }
    }

    fn message(&mut self) -> ToCell {
        match self.below(8) {
            0 => ToCell::AccountPolicyChanged(Box::new(self.policy_of_account())),
            1 => ToCell::JobAdmitted(Box::new(self.spec())),
            2 => ToCell::PlacementConfirmed {
                attempt: self.attempt(),
                price: self.u64(),
                funded_ms: self.maybe(Source::length),
            },
            3 => ToCell::PlacementRefused {
                attempt: self.attempt(),
                verdict: match self.below(2) {
                    0 => Verdict::Withdraw,
                    _ => Verdict::Wait(self.pick(&[
                        FundsBlocker::Credits,
                        FundsBlocker::Budget,
                        FundsBlocker::Frozen,
                    ])),
                },
            },
            4 => ToCell::FundingChanged {
                attempt: self.attempt(),
                funded_ms: self.maybe(Source::length),
            },
            5 => ToCell::FundsRefused { attempt: self.attempt() },
            6 => ToCell::CancelRequested { job: JobId(self.u64()) },
            _ => ToCell::JobWithdrawn { job: JobId(self.u64()) },
        }
    }

    /// Answers about jobs, cells and quotas only.
    pub(crate) fn job_answer(&mut self) -> Result<Reply, Refusal> {
        Err(match self.below(11) {
            0 => return Ok(Reply::Jobs { first: self.job(), count: self.u32() }),
            1 => return Ok(Reply::Job { job: self.job(), state: self.pick(&STATES) }),
            2 => return Ok(Reply::Region(self.cell())),
            3 => return Ok(Reply::Received { taken: self.coin() }),
            4 => {
                let what = self.pick(&[Resource::Job, Resource::Region, Resource::Quota]);
                Refusal::NotFound { what, name: self.name() }
            }
            5 => Refusal::QuotaExceeded { blockers: self.list(Source::job_blocker) },
            6 => Refusal::Conflict(Conflict::HeldByJob),
            7 => Refusal::Conflict(Conflict::JobEnded { state: self.pick(&STATES) }),
            8 => Refusal::Conflict(Conflict::NotMeasuredByOthers),
            9 => Refusal::Conflict(Conflict::DependencyFailed),
            _ => Refusal::Conflict(Conflict::MessageSkipped { expected: self.u64() }),
        })
    }

    fn job_blocker(&mut self) -> Blocker {
        match self.below(2) {
            0 => Blocker::WaitingJobs {
                account: self.name(),
                region: self.region(),
                limit: self.u32(),
                waiting: self.u32(),
                requested: self.u32(),
            },
            _ => Blocker::Dependency { job: self.name(), state: self.pick(&STATES) },
        }
    }

    /// A hold that was placed for a job.
    pub(crate) fn job_hold(&mut self, placed: HoldPlaced) -> HoldPlaced {
        HoldPlaced { job: Some(self.job()), ..placed }
    }

    /// The event with the stored tag `variant`, for those about jobs, cells and quotas.
    pub(crate) fn job_event(&mut self, variant: u32) -> Event {
        match variant {
            28 => Event::RegionOpened {
                cell: self.cell(),
                region: self.region(),
                shard: self.u32() as u16,
            },
            29 => Event::QuotaSet {
                account: self.account(),
                region: self.maybe(Source::region),
                quota: self.quota(),
            },
            30 => {
                Event::QuotaRemoved { account: self.account(), region: self.maybe(Source::region) }
            }
            31 => Event::JobSubmitted {
                job: self.job(),
                order: Arc::new(self.order()),
                after: self.list(Source::job),
            },
            32 => Event::HoldPinned {
                hold: self.hold(),
                rate: self.rate(),
                returned: self.list(|s| SliceAmount { slice: s.u32(), amount: s.u64() }),
                expires_at: self.maybe(Source::time),
            },
            33 => Event::AttemptConfirmed(Box::new(AttemptConfirmed {
                job: self.job(),
                cell: self.maybe(Source::cell),
                number: self.u32(),
                gpu_type: self.maybe(Source::model),
                nodes: self.list(Source::proposed_node),
                per_gpu_hour: self.credits(),
                funded_ms: self.maybe(Source::length),
            })),
            34 => Event::AttemptStarted { job: self.job() },
            35 => Event::AttemptFunded {
                job: self.job(),
                funded_ms: self.maybe(Source::length),
                overdraft: self.u64(),
                // Added later, with their own tests.
                short: false,
                credits_ms: None,
            },
            36 => Event::AttemptStopping { job: self.job() },
            37 => Event::AttemptEnded { job: self.job(), end: self.end() },
            38 => Event::CancelRequested { job: self.job() },
            39 => Event::DependenciesMet { job: self.job(), met: self.list(Source::job) },
            40 => Event::JobEnded { job: self.job(), state: self.pick(&STATES) },
            41 => Event::BlockedJobsRechecked {
                tenant: self.account(),
                next: self.maybe(Source::review),
            },
            42 => Event::CellMessageSent {
                cell: self.cell(),
                number: self.u64(),
                message: Box::new(self.message()),
            },
            43 => Event::MessageReceived {
                cell: self.cell(),
                number: self.u64(),
                position: self.u64(),
            },
            44 => Event::ExhaustionWarned {
                job: self.job(),
                ends_at: self.time(),
                then: self.pick(&[OnExhausted::Stop, OnExhausted::Overdraft]),
            },
            45 => Event::SetAside { what: self.aside(), digest: self.hash() },
            46 => {
                Event::RegionPoliciesSent { cell: self.cell(), next: self.maybe(Source::account) }
            }
            other => panic!("there is no variant {other}"),
        }
    }

    fn aside(&mut self) -> LedgerAside {
        let all = [
            LedgerAside::Message { cell: self.cell(), number: self.u64() },
            LedgerAside::Lapse { hold: HoldNo(self.u32()), expires_at: self.time() },
            LedgerAside::Dependant { job: self.job() },
            LedgerAside::Review { tenant: self.account(), at: self.time() },
            LedgerAside::Warning { job: self.job(), at: self.time() },
            LedgerAside::Briefing { cell: self.cell() },
            LedgerAside::Forgetting,
        ];
        self.pick(&all)
    }
}
