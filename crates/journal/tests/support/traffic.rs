//! Realistic traffic on a real ledger, generated from a seed: every command, refusals, timers,
//! groups.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]

use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    ClearedSettings, Command, Context, Envelope, GrantKind, IssueGrant, MovementNote, OnExpiry,
    PlaceHold, Policy, Refund, RefundOf, Restriction, Transfer, Usage,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::event::Event;
use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::id::HoldNo;
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::name::{AccountPath, GrantId, HoldId};
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::{AuditHeader, encode_body};
use bursar_journal::{Batch, BatchBuilder, Head, Journal, RecordKind};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// One journaled decision.
#[derive(Clone, Debug)]
pub struct Decided {
    pub kind: RecordKind,
    pub at: Timestamp,
    /// One, or one for each command of a group.
    pub bodies: Vec<(Option<AuditHeader>, Vec<Event>)>,
}

impl Decided {
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.bodies.iter().flat_map(|(_, events)| events)
    }

    /// Adds the decision to a batch.
    pub fn push_to(&self, builder: &mut BatchBuilder) {
        builder.push(self.kind, self.at, |out| {
            for (header, events) in &self.bodies {
                if self.kind != RecordKind::Group {
                    encode_body(header.as_ref(), events, out);
                    continue;
                }
                let start = out.len();
                out.extend([0; 4]);
                encode_body(header.as_ref(), events, out);
                let length = u32::try_from(out.len() - start - 4).expect("a short body");
                out[start..start + 4].copy_from_slice(&length.to_le_bytes());
            }
        });
    }
}

/// 2026-01-01T00:00:00Z
pub const START: i64 = 1_767_225_600_000;
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

const ACCOUNTS: &[(&str, AccountKind)] = &[
    ("acme", AccountKind::Org),
    ("acme:nlp", AccountKind::Team),
    ("acme:nlp:pretrain", AccountKind::Project),
    ("acme:nlp:pretrain:alice", AccountKind::User),
    ("acme:nlp:pretrain:bob", AccountKind::User),
    ("acme:vision", AccountKind::Team),
    ("acme:vision:carol", AccountKind::User),
    ("zeta", AccountKind::Org),
    ("zeta:dave", AccountKind::User),
];

/// A ledger under traffic.
pub struct World {
    pub ledger: Ledger,
    pub clock: Timestamp,
    /// Everything journaled so far.
    pub decided: Vec<Decided>,
    random: ChaCha8Rng,
    named: u64,
    holds: Vec<(AccountPath, HoldId)>,
    charges: Vec<(AccountPath, HoldId)>,
    grants: Vec<(AccountPath, GrantId)>,
    archived: Vec<ArchivedHold>,
    last_key: Option<(u128, u128, Command)>,
}

impl World {
    /// Accounts, a policy with short retention, and some credits.
    pub fn new(seed: u64) -> World {
        let mut world = World {
            ledger: Ledger::new(),
            clock: Timestamp::from_millis(START),
            decided: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
            named: 0,
            holds: Vec::new(),
            charges: Vec::new(),
            grants: Vec::new(),
            archived: Vec::new(),
            last_key: None,
        };
        world.ledger.forget_by_age();
        world.perform(&Command::SetPolicy(Policy {
            idempotency_ttl_ms: 6 * HOUR,
            retention_ms: 2 * DAY,
            lateness_ms: DAY,
            compensation_ttl_ms: 3 * DAY,
            expiry_waits: false,
        }));
        for (path, kind) in ACCOUNTS {
            let settings = AccountSettings {
                compensation_ttl_ms: (*path == "acme:nlp").then_some(DAY),
                ..AccountSettings::default()
            };
            world.perform(&Command::OpenAccount { path: (*path).into(), kind: *kind, settings });
        }
        world
    }

    /// A world after `steps` steps.
    pub fn after(seed: u64, steps: u32) -> World {
        let mut world = World::new(seed);
        world.run(steps);
        world
    }

    pub fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step();
        }
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        self.random.next_u32() % bound
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn name<T: From<String>>(&mut self, prefix: &str) -> T {
        self.named += 1;
        format!("{prefix}-{}", self.named).into()
    }

    fn account(&mut self) -> AccountPath {
        ACCOUNTS[self.below(u32::try_from(ACCOUNTS.len()).expect("few")) as usize].0.into()
    }

    fn amount(&mut self) -> Credits {
        let amount = i64::from(self.below(900) + 1) * 10_i64.pow(self.below(4));
        Credits::from_micros(amount).expect("not negative")
    }

    fn known<T: Clone + From<&'static str>>(
        &mut self,
        which: fn(&World) -> &Vec<(AccountPath, T)>,
    ) -> (AccountPath, T) {
        let length = u32::try_from(which(self).len()).expect("few");
        if length == 0 {
            return ("acme".into(), "unknown".into());
        }
        let recent = self.below(length.min(30));
        let list = which(self);
        list[(length - 1 - recent) as usize].clone()
    }

    /// Advances the time, then sends a command, alone or in a group.
    pub fn step(&mut self) {
        let passed = match self.below(20) {
            0 => i64::from(self.below(20)) * HOUR,
            1..=4 => i64::from(self.below(3_600)) * 1000,
            _ => i64::from(self.below(2_000)),
        };
        self.clock = self.clock.plus_millis(passed);
        self.advance();
        if self.chance(3) {
            self.repeat();
        } else if self.chance(4) {
            self.group();
        } else {
            let command = self.command();
            self.perform(&command);
        }
    }

    pub fn advance(&mut self) {
        let (ledger, decided) = (&mut self.ledger, &mut self.decided);
        // Holds that are about to be forgotten stay known here, as in history.
        for number in (0..400).map(HoldNo) {
            if self.archived.len() < 40 {
                self.archived.extend(ledger.archive(number).filter(|a| a.hold.captured > 0));
            }
        }
        advance(ledger, self.clock, |at, events| {
            let bodies = vec![(None, events.to_vec())];
            decided.push(Decided { kind: RecordKind::Due, at, bodies });
        });
    }

    fn envelope(&mut self) -> Envelope {
        let fingerprint = u128::from(self.random.next_u64()) << 64 | 1;
        let key = self.chance(40).then(|| u128::from(self.random.next_u64()));
        let actor = format!("key_{}", self.below(5)).into();
        Envelope { actor, fingerprint, key, ..Envelope::default() }
    }

    /// Sends one command and journals its events.
    pub fn perform(&mut self, command: &Command) {
        let envelope = self.envelope();
        if let Some(key) = envelope.key {
            self.last_key = Some((key, envelope.fingerprint, command.clone()));
        }
        self.perform_as(&envelope, command);
    }

    /// Repeats the last command under the same key.
    fn repeat(&mut self) {
        let Some((key, fingerprint, command)) = self.last_key.clone() else { return };
        let envelope = Envelope { key: Some(key), fingerprint, ..self.envelope() };
        self.perform_as(&envelope, &command);
    }

    fn perform_as(&mut self, envelope: &Envelope, command: &Command) {
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.clock, envelope, command, &mut events);
        if answer.is_ok() {
            self.remember(command);
        }
        if !events.is_empty() {
            let header = AuditHeader::of(envelope, command, &events);
            let bodies = vec![(Some(header), events)];
            self.decided.push(Decided { kind: RecordKind::Decision, at: self.clock, bodies });
        }
    }

    fn group(&mut self) {
        let mut bodies = Vec::new();
        self.ledger.begin_group();
        let wanted = self.below(4) + 1;
        for _ in 0..wanted {
            let (envelope, command) = (self.envelope(), self.command());
            let mut events = Vec::new();
            if execute(&mut self.ledger, self.clock, &envelope, &command, &mut events).is_err() {
                self.ledger.rollback_group();
                return;
            }
            self.remember(&command);
            if !events.is_empty() {
                let header = AuditHeader::of(&envelope, &command, &events);
                bodies.push((Some(header), events));
            }
        }
        self.ledger.commit_group();
        if !bodies.is_empty() {
            self.decided.push(Decided { kind: RecordKind::Group, at: self.clock, bodies });
        }
    }

    fn remember(&mut self, command: &Command) {
        let tenant = |path: &AccountPath| path.tenant();
        match command {
            Command::PlaceHold(place) => {
                self.holds.push((tenant(&place.account), place.id.clone()));
            }
            Command::Charge(charge) => {
                self.charges.push((tenant(&charge.account), charge.id.clone()));
            }
            Command::IssueGrant(issue) => {
                self.grants.push((tenant(&issue.account), issue.id.clone()));
            }
            _ => {}
        }
    }

    fn context(&mut self) -> Context {
        let mut context = Context::default();
        if self.chance(50) {
            context.gpu_types = Some(vec!["H100".into()]);
            context.class = self.chance(50).then(|| "normal".into());
        }
        context
    }

    pub fn command(&mut self) -> Command {
        match self.below(100) {
            0..=17 => self.issue_grant(),
            18..=42 => self.place_hold(),
            43..=57 => {
                let (tenant, hold) = self.known(|world| &world.holds);
                let seq = self.chance(60).then(|| u64::from(self.below(8)));
                Command::CaptureHold { tenant, hold, usage: self.usage(), seq }
            }
            58..=61 => {
                let (tenant, hold) = self.known(|world| &world.holds);
                let amount = self.chance(70).then(|| self.amount());
                let ttl_ms = self.chance(60).then(|| i64::from(self.below(100) + 1) * 100_000);
                let gpu_ms = u64::from(self.below(100_000));
                Command::ExtendHold { tenant, hold, amount, gpu_ms, ttl_ms }
            }
            62..=70 => {
                let (tenant, hold) = self.known(|world| &world.holds);
                Command::SettleHold { tenant, hold, usage: self.usage(), cause: self.cause() }
            }
            71..=74 => {
                let (tenant, hold) = self.known(|world| &world.holds);
                Command::ReleaseHold { tenant, hold, cause: self.cause() }
            }
            75..=81 => Command::Charge(Charge {
                id: self.name("charge"),
                account: self.account(),
                amount: self.amount(),
                allow_partial: self.chance(40),
                context: self.context(),
                effective_at: self.chance(30).then(|| {
                    let back = i64::from(self.below(24 * 3_600)) * 1000;
                    self.clock.plus_millis(-back)
                }),
            }),
            82..=85 => {
                let hold = self.chance(50);
                let (tenant, id) =
                    if hold { self.known(|w| &w.holds) } else { self.known(|w| &w.charges) };
                Command::Refund(Refund {
                    id: self.name("refund"),
                    tenant,
                    of: if hold { RefundOf::Hold(id) } else { RefundOf::Charge(id) },
                    amount: self.chance(60).then(|| self.amount()),
                    compensate: self.chance(50),
                    // Derived, so that the traffic of a seed stays as it was.
                    note: (!self.decided.len().is_multiple_of(4)).then(|| {
                        let reason =
                            self.decided.len().is_multiple_of(2).then(|| "a reason".into());
                        Box::new(MovementNote { reason, reference: Some("ticket 7".into()) })
                    }),
                    recalled: Vec::new(),
                })
            }
            86..=87 => Command::Transfer(Transfer {
                id: self.name("transfer"),
                from: self.account(),
                to: self.account(),
                amount: self.amount(),
                note: Some(Box::new(MovementNote {
                    reason: Some("Quarter".into()),
                    reference: None,
                })),
            }),
            88..=89 => {
                Command::CollectUncollected { path: self.account(), id: self.name("collect") }
            }
            90..=91 => {
                let (tenant, grant) = self.known(|world| &world.grants);
                Command::RevokeGrant { tenant, grant }
            }
            92..=93 => self.set_budget(),
            94 => Command::RemoveBudget { path: self.account(), budget: "b0".into() },
            95 => Command::FreezeAccount { path: self.account(), by_platform: true },
            96..=97 => Command::UnfreezeAccount { path: self.account(), by_platform: true },
            98 => self.revive(),
            _ => Command::ChangeAccount {
                path: self.account(),
                settings: AccountSettings {
                    weight_milli: Some(self.below(5000) + 1),
                    ..AccountSettings::default()
                },
                cleared: ClearedSettings::default(),
            },
        }
    }

    fn cause(&mut self) -> Cause {
        if self.chance(40) { Cause::Platform } else { Cause::Holder }
    }

    fn usage(&mut self) -> Usage {
        if self.chance(30) {
            Usage::GpuMs(u64::from(self.below(4_000_000)))
        } else {
            Usage::Total(self.amount())
        }
    }

    fn issue_grant(&mut self) -> Command {
        let kind = GrantKind::ALL[self.below(4) as usize];
        let restriction = self.chance(30).then(|| Restriction {
            gpu_types: Some(if self.chance(50) {
                vec!["H100".into()]
            } else {
                vec!["A100".into(), "H100".into()]
            }),
            max_share_micro: (kind == GrantKind::Promotion && self.chance(50)).then_some(400_000),
            ..Restriction::default()
        });
        let effective_at =
            self.chance(20).then(|| self.clock.plus_millis(i64::from(self.below(48)) * HOUR / 2));
        let day = self.clock.millis() / DAY * DAY;
        let days = i64::from(self.below(4)) + 1;
        let expires_at = self.chance(85).then(|| {
            Timestamp::from_millis(day + days * DAY).max(effective_at.unwrap_or(self.clock))
        });
        Command::IssueGrant(IssueGrant {
            id: self.name("grant"),
            account: self.account(),
            amount: self.amount(),
            kind,
            effective_at,
            expires_at,
            priority: if self.chance(70) { 100 } else { 50 },
            restriction,
            reference: self.chance(10).then(|| "invoice 7".into()),
            metadata: None,
        })
    }

    fn place_hold(&mut self) -> Command {
        let rate = self.chance(40).then(|| Rate {
            per_gpu_hour: Credits::from_micros(2_500_000).expect("not negative"),
            share_milli: if self.chance(70) { 1000 } else { 250 },
            gpu_ms_limit: 7_200_000,
        });
        Command::PlaceHold(PlaceHold {
            id: self.name("hold"),
            account: self.account(),
            amount: self.amount(),
            ttl_ms: self.chance(80).then(|| i64::from(self.below(48) + 1) * HOUR / 2),
            context: self.context(),
            on_expiry: if self.chance(25) { OnExpiry::Strict } else { OnExpiry::HonorHold },
            rate,
            gpu_ms: rate.map_or(0, |_| u64::from(self.below(3_000_000))),
            reference: self.chance(10).then(|| "job 9".into()),
        })
    }

    fn set_budget(&mut self) -> Command {
        let periods =
            [BudgetPeriod::Total, BudgetPeriod::Day, BudgetPeriod::Week, BudgetPeriod::Month];
        Command::SetBudget {
            path: self.account(),
            budget: format!("b{}", self.below(2)).into(),
            terms: BudgetTerms {
                limit: Credits::from_micros(i64::from(self.below(40) + 1) * 100_000)
                    .expect("not negative"),
                unit: if self.chance(80) { BudgetUnit::Credits } else { BudgetUnit::GpuHours },
                period: periods[self.below(4) as usize],
                mode: if self.chance(50) { BudgetMode::Hard } else { BudgetMode::Soft },
                thresholds: [50, 80, 100].into_iter().collect(),
                utc_offset_minutes: i16::try_from(self.below(5)).expect("small") * 60,
            },
        }
    }

    fn revive(&mut self) -> Command {
        let forgotten = self.archived.pop();
        match forgotten {
            Some(record) => Command::RestoreHold { record: Box::new(record) },
            None => self.place_hold(),
        }
    }

    /// The decisions as batches of a few records each, after a barrier.
    pub fn batches(&self, records_each: usize) -> Vec<Batch> {
        let first = self.decided.first().map_or(self.clock, |decided| decided.at);
        let mut batches = vec![Batch::barrier(first)];
        for some in self.decided.chunks(records_each.max(1)) {
            let mut builder = BatchBuilder::new();
            some.iter().for_each(|decided| decided.push_to(&mut builder));
            batches.extend(builder.finish());
        }
        batches
    }

    /// Appends everything to an empty journal.
    pub fn write_to(&self, journal: &dyn Journal, records_each: usize) -> Head {
        let lease = journal
            .acquire_lease("test", std::time::Duration::from_secs(60))
            .expect("no other owner has it");
        let mut head = journal.head().expect("the journal is open");
        for batch in self.batches(records_each) {
            head = journal.append(lease.epoch, head, batch).expect("the journal accepts it");
        }
        head
    }
}

/// Asserts that two ledgers give equal answers and reach equal states.
pub fn answer_alike(world: &mut World, other: &mut Ledger, steps: u32) -> bool {
    other.forget_by_age();
    for _ in 0..steps {
        world.clock = world.clock.plus_millis(i64::from(world.below(3_000_000)));
        world.advance();
        let mut due = Vec::new();
        advance(other, world.clock, |_, events| due.extend_from_slice(events));
        let (envelope, command) = (world.envelope(), world.command());
        let (mut events, mut others) = (Vec::new(), Vec::new());
        let answer = execute(&mut world.ledger, world.clock, &envelope, &command, &mut events);
        let same = execute(other, world.clock, &envelope, &command, &mut others);
        if answer.map(|accepted| accepted.reply) != same.map(|accepted| accepted.reply)
            || events != others
        {
            return false;
        }
    }
    world.ledger.digest() == other.digest()
}
