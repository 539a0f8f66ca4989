//! Events of every kind with arbitrary content, generated from a seed.

#[path = "arbitrary_job.rs"]
mod job;

use std::sync::Arc;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause,
    ClearedSettings, Context, GrantKind, OnExpiry, Policy, Restriction,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::event::Forgetting;
use bursar_core::ledger::event::{
    Charged, Event, GrantIssued, GrantOrigin, HoldPlaced, NamedMovement, Piece, Pieces, SliceAmount,
};
use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::holds::hold::{
    ChargeTerms, Hold, HoldDetails, HoldKind, HoldState, Slice,
};
use bursar_core::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo, Name};
use bursar_core::ledger::refusal::{Blocker, Conflict, Refusal, Resource};
use bursar_core::ledger::reply::{AccountReply, BudgetReply};
use bursar_core::ledger::{HoldReply, Reply};
use bursar_core::name::{GpuModel, Region};
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::{AuditHeader, CommandKind, Outcome, RefusalCode};
use fefo::Span;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// The golden bytes were generated from this many commands and refusals. Later ones have their own
/// tests.
const FIRST_COMMANDS: usize = 19;
const FIRST_REFUSALS: usize = 11;

/// How many variants an event has.
pub(crate) const VARIANTS: u32 = 47;

/// Generates values. Small numbers are as likely as large ones, so that every length occurs.
pub(crate) struct Source(ChaCha8Rng);

impl Source {
    pub(crate) fn new(seed: u64) -> Source {
        Source(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let shift = self.0.next_u32() % 64;
        self.0.next_u64() >> shift
    }

    fn u32(&mut self) -> u32 {
        self.0.next_u32() >> (self.0.next_u32() % 32)
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound
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

    fn hash(&mut self) -> u128 {
        u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64())
    }

    fn sum(&mut self) -> i128 {
        let wide = self.hash().cast_signed() >> (self.below(128));
        if self.coin() { wide } else { -(wide >> 1) }
    }

    fn name<T: From<Name>>(&mut self) -> T {
        let name: Name =
            (0..self.below(40)).map(|_| self.pick(&['a', '7', ':', 'é', '"'])).collect();
        T::from(name)
    }

    fn text(&mut self) -> Box<str> {
        let length = self.below(400);
        (0..length).map(|_| self.pick(&['x', '\n', '界'])).collect::<String>().into()
    }

    fn credits(&mut self) -> Credits {
        Credits::from_length(self.u64() >> 1).expect("63 bits")
    }

    fn time(&mut self) -> Timestamp {
        Timestamp::from_millis(self.u64().cast_signed())
    }

    fn account(&mut self) -> AccountNo {
        AccountNo(self.u32())
    }

    fn hold(&mut self) -> HoldNo {
        HoldNo(self.u32())
    }

    fn span(&mut self) -> Span {
        let start = self.u64() >> 1;
        Span::new(start, start + (self.u64() >> 1).max(1))
    }

    fn pieces(&mut self) -> Pieces {
        self.list(|s| Piece { bucket: BucketNo(s.u32()), span: s.span() })
    }

    fn model(&mut self) -> GpuModel {
        self.name()
    }

    fn region(&mut self) -> Region {
        self.name()
    }

    fn names<T>(&mut self, name: fn(&mut Source) -> T) -> Option<Vec<T>> {
        self.maybe(|s| s.list(name))
    }

    fn context(&mut self) -> Context {
        Context {
            gpu_types: self.names(Source::model),
            regions: self.names(Source::region),
            class: self.maybe(Source::name),
        }
    }

    fn restriction(&mut self) -> Restriction {
        Restriction {
            gpu_types: self.names(Source::model),
            regions: self.names(Source::region),
            classes: self.names(Source::name),
            max_share_micro: self.maybe(Source::u32),
        }
    }

    fn settings(&mut self) -> AccountSettings {
        AccountSettings {
            name: self.maybe(Source::name),
            weight_milli: self.maybe(Source::u32),
            home_region: self.maybe(Source::region),
            metadata: self.maybe(Source::text),
            compensation_ttl_ms: self.maybe(|s| s.u64().cast_signed()),
            overdraft_limit: self.maybe(Source::credits),
        }
    }

    fn rate(&mut self) -> Rate {
        Rate {
            per_gpu_hour: self.credits(),
            share_milli: self.u32() as u16,
            gpu_ms_limit: self.u64(),
        }
    }

    fn state(&mut self) -> HoldState {
        self.pick(&[HoldState::Open, HoldState::Settled, HoldState::Released, HoldState::Lapsed])
    }

    fn cause(&mut self) -> Cause {
        self.pick(&[Cause::Holder, Cause::Platform])
    }

    fn movement(&mut self) -> NamedMovement {
        NamedMovement {
            movement: self.u32(),
            id: self.name(),
            pieces: self.pieces(),
            fingerprint: self.hash(),
        }
    }

    fn terms(&mut self) -> BudgetTerms {
        BudgetTerms {
            limit: self.credits(),
            unit: self.pick(&[BudgetUnit::Credits, BudgetUnit::GpuHours]),
            period: self.pick(&[
                BudgetPeriod::Total,
                BudgetPeriod::Day,
                BudgetPeriod::Week,
                BudgetPeriod::Month,
            ]),
            mode: self.pick(&[BudgetMode::Hard, BudgetMode::Soft]),
            thresholds: self.list(|s| s.u32() as u16),
            utc_offset_minutes: self.u32() as i16,
        }
    }

    fn blocker(&mut self) -> Blocker {
        match self.below(3) {
            0 => Blocker::Frozen { account: self.name() },
            1 => Blocker::Credits {
                account: self.name(),
                requested: self.credits(),
                spendable: self.sum(),
            },
            _ => Blocker::Budget {
                account: self.name(),
                budget: self.name(),
                unit: self.pick(&[BudgetUnit::Credits, BudgetUnit::GpuHours]),
                limit: self.sum(),
                spent: self.sum(),
                held: self.sum(),
                requested: self.sum(),
                period_end: self.maybe(Source::time),
            },
        }
    }

    fn resource(&mut self) -> Resource {
        self.pick(&[
            Resource::Account,
            Resource::Grant,
            Resource::Hold,
            Resource::Charge,
            Resource::Refund,
            Resource::Transfer,
            Resource::Collection,
            Resource::Budget,
        ])
    }

    /// Every refusal except an invalid field, which is never stored.
    fn refusal(&mut self) -> Refusal {
        match self.below(10) {
            0 => Refusal::IdempotencyKeyReused,
            1 => Refusal::NotFound { what: self.resource(), name: self.name() },
            2 => Refusal::AlreadyExists { what: self.resource(), name: self.name() },
            3 => Refusal::TooLate { earliest: self.time() },
            4 => Refusal::AccountFrozen { blockers: self.list(Source::blocker) },
            5 => Refusal::HoldClosed { state: self.state() },
            6 => Refusal::SequenceConflict { seen: self.credits() },
            7 => Refusal::Conflict(match self.below(6) {
                0 => Conflict::SettleBelowCaptured { captured: self.credits() },
                1 => Conflict::RefundAboveSpent { spent: self.credits() },
                2 => Conflict::StillOpen,
                3 => Conflict::NoRate,
                4 => Conflict::NothingUncollected,
                _ => Conflict::RecordMismatch,
            }),
            8 => Refusal::InsufficientCredits { blockers: self.list(Source::blocker) },
            _ => Refusal::BudgetExceeded { blockers: self.list(Source::blocker) },
        }
    }

    fn reply(&mut self) -> Reply {
        match self.below(7) {
            0 => Reply::Done,
            1 => Reply::Account(Box::new(AccountReply {
                account: self.account(),
                settings: self.settings(),
                frozen: self.coin(),
                uncollected: self.sum(),
            })),
            2 => Reply::Grant {
                grant: GrantNo(self.u32()),
                parts: std::array::from_fn(|_| self.u64()),
            },
            3 => Reply::Hold(HoldReply {
                hold: self.hold(),
                state: self.state(),
                amount: self.credits(),
                captured: self.credits(),
                uncollected: self.credits(),
                expires_at: self.maybe(Source::time),
                slices: self.u32(),
            }),
            4 => Reply::Charge {
                hold: self.hold(),
                requested: self.credits(),
                charged: self.credits(),
                spendable_after: self.sum(),
            },
            5 => Reply::Movement { movement: self.u32(), amount: self.credits() },
            _ => Reply::Budget(Box::new(BudgetReply {
                account: self.account(),
                budget: self.name(),
                terms: self.terms(),
                at: self.time(),
                spent: self.sum(),
                held: self.sum(),
            })),
        }
    }

    fn slice(&mut self) -> Slice {
        let span = self.span();
        Slice {
            bucket: BucketNo(self.u32()),
            draw: self.u32(),
            span,
            captured: self.u64() % span.len(),
            cut: self.coin(),
        }
    }

    pub(crate) fn whole_hold(&mut self) -> Hold {
        Hold {
            id: self.name(),
            account: self.account(),
            kind: self.pick(&[HoldKind::Hold, HoldKind::Charge]),
            state: self.state(),
            fingerprint: self.u64(),
            amount: self.u64(),
            captured: self.u64(),
            metered: self.u64(),
            refunded: self.u64(),
            placed_at: self.time(),
            expires_at: self.maybe(Source::time),
            moved_at: self.time(),
            slices: self.list(Source::slice),
            details: self.maybe(|s| {
                Box::new(HoldDetails {
                    context: s.context(),
                    on_expiry: s.pick(&[OnExpiry::HonorHold, OnExpiry::Strict]),
                    rate: s.maybe(Source::rate),
                    reference: s.maybe(Source::text),
                    last_report: s.maybe(|s| (s.u64(), s.credits())),
                    gpu_ms: s.u64(),
                    gpu_spent: s.sum(),
                    draws: s.list(|s| (s.time(), s.sum())),
                    uncollected: s.list(|s| (s.time(), s.u64())),
                    cause: s.cause(),
                    revived: s.coin(),
                    job: None,
                })
            }),
            charge: self.maybe(|s| {
                Box::new(ChargeTerms {
                    requested: s.credits(),
                    spendable_after: s.sum(),
                    late_for: s.maybe(Source::time),
                })
            }),
            closed_at: self.time(),
        }
    }

    pub(crate) fn header(&mut self) -> AuditHeader {
        AuditHeader {
            actor: self.name(),
            fingerprint: self.hash(),
            key: self.maybe(Source::hash),
            command: self.pick(&CommandKind::ALL[..FIRST_COMMANDS]),
            outcome: match self.below(2) {
                0 => Outcome::Accepted,
                _ => Outcome::Refused(self.pick(&RefusalCode::ALL[..FIRST_REFUSALS])),
            },
            // Its golden bytes are older than the field.
            request: 0,
        }
    }

    /// The event with the stored tag `variant`.
    pub(crate) fn event(&mut self, variant: u32) -> Event {
        match variant {
            0 => Event::PolicySet(Policy {
                idempotency_ttl_ms: self.u64().cast_signed(),
                retention_ms: self.u64().cast_signed(),
                lateness_ms: self.u64().cast_signed(),
                compensation_ttl_ms: self.u64().cast_signed(),
                expiry_waits: false,
            }),
            1 => Event::AccountOpened {
                account: self.account(),
                path: self.name(),
                kind: self.pick(&[
                    AccountKind::Org,
                    AccountKind::Team,
                    AccountKind::Project,
                    AccountKind::User,
                ]),
                settings: self.settings(),
                fingerprint: self.hash(),
            },
            2 => Event::AccountChanged {
                account: self.account(),
                settings: self.settings(),
                cleared: ClearedSettings::default(),
            },
            3 => Event::AccountFrozen { account: self.account(), by_platform: false },
            4 => Event::AccountUnfrozen { account: self.account() },
            5 => Event::GrantIssued(Box::new(self.grant_issued())),
            6 => Event::GrantActivated { grant: GrantNo(self.u32()) },
            7 => Event::GrantRevoked { grant: GrantNo(self.u32()), amount: self.u64() },
            8 => Event::BucketExpired { bucket: BucketNo(self.u32()), amount: self.u64() },
            9 => Event::ExpiryReversed { pieces: self.pieces() },
            10 => Event::ReturnExpired { hold: self.hold(), pieces: self.pieces() },
            11 => Event::ReturnRevoked { hold: self.hold(), pieces: self.pieces() },
            12 => Event::HoldPlaced(Box::new(HoldPlaced {
                hold: self.hold(),
                id: self.name(),
                account: self.account(),
                pieces: self.pieces(),
                expires_at: self.maybe(Source::time),
                context: self.context(),
                on_expiry: self.pick(&[OnExpiry::HonorHold, OnExpiry::Strict]),
                rate: self.maybe(Source::rate),
                gpu_ms: self.u64(),
                reference: self.maybe(Source::text),
                fingerprint: self.hash(),
                job: None,
            })),
            13 => Event::HoldExtended {
                hold: self.hold(),
                pieces: self.pieces(),
                gpu_ms: self.u64(),
                expires_at: self.maybe(Source::time),
            },
            14 => Event::HoldCaptured {
                hold: self.hold(),
                seq: self.maybe(Source::u64),
                total: self.credits(),
                gpu_ms: self.u64(),
                taken: self.list(|s| SliceAmount { slice: s.u32(), amount: s.u64() }),
                uncollected: self.u64(),
            },
            15 => Event::HoldCut {
                hold: self.hold(),
                cut: self.list(|s| SliceAmount { slice: s.u32(), amount: s.u64() }),
            },
            16 => Event::HoldClosed {
                hold: self.hold(),
                state: self.state(),
                cause: self.cause(),
                returned: self.u64(),
            },
            17 => Event::Charged(Box::new(Charged {
                hold: self.hold(),
                id: self.name(),
                account: self.account(),
                pieces: self.pieces(),
                requested: self.credits(),
                late_for: self.maybe(Source::time),
                spendable_after: self.sum(),
                fingerprint: self.hash(),
            })),
            18 => Event::Refunded { movement: self.movement(), hold: self.hold(), note: None },
            19 => Event::CreditsMoved {
                movement: self.movement(),
                from: self.account(),
                to: self.account(),
                note: None,
            },
            20 => Event::DebtRepaid { movement: self.movement(), account: self.account() },
            21 => Event::BudgetSet {
                account: self.account(),
                budget: self.name(),
                terms: self.terms(),
                period_start: self.time(),
                spent: self.sum(),
                held: self.sum(),
            },
            22 => Event::BudgetRemoved { account: self.account(), budget: self.name() },
            23 => Event::BudgetThresholdReached {
                account: self.account(),
                budget: self.name(),
                percent: self.u32() as u16,
                used: self.sum(),
            },
            24 => Event::Answered {
                key: self.hash(),
                fingerprint: self.hash(),
                answer: Arc::new(match self.below(2) {
                    0 => Ok(self.reply()),
                    _ => Err(self.refusal()),
                }),
                request: 0,
            },
            25 => {
                Event::CreditsDenied { account: self.account(), refusal: Box::new(self.refusal()) }
            }
            26 => Event::Forgotten {
                answers: self.u32(),
                holds: self.u32(),
                movements: self.u32(),
                buckets: self.u32(),
                jobs: 0,
                archived: None,
            },
            27 => Event::HoldRestored { hold: self.hold(), record: Box::new(self.archived_hold()) },
            about_jobs => self.job_event(about_jobs),
        }
    }

    pub(crate) fn forgetting(&mut self) -> Box<Forgetting> {
        Box::new(Forgetting {
            through: self.u64(),
            old_holds: self.u32(),
            kept: vec![0, self.u32()],
            longer: Vec::new(),
            kept_movements: vec![self.u32()],
            jobs: self.u32(),
        })
    }

    pub(crate) fn archived_hold(&mut self) -> ArchivedHold {
        ArchivedHold { hold: self.whole_hold(), counted: false }
    }

    fn grant_issued(&mut self) -> GrantIssued {
        GrantIssued {
            grant: GrantNo(self.u32()),
            id: self.name(),
            account: self.account(),
            kind: self.pick(&GrantKind::ALL),
            amount: self.credits(),
            effective_at: self.time(),
            expires_at: self.maybe(Source::time),
            priority: self.u32() as u8,
            restriction: self.maybe(Source::restriction),
            origin: match self.below(3) {
                0 => GrantOrigin::Issued,
                1 => GrantOrigin::Compensation { hold: self.hold() },
                _ => GrantOrigin::Transfer { from: BucketNo(self.u32()) },
            },
            reference: self.maybe(Source::text),
            metadata: self.maybe(Source::text),
            fingerprint: self.hash(),
        }
    }
}
