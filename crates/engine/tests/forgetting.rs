//! A ledger that forgets everything closed at once, or keeps a few of it, gives the same answers as one that never forgets.

use std::collections::BTreeMap;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    Command, Context, Forget, GrantKind, IssueGrant, OnExpiry, PlaceHold, Policy, RecalledHold,
    Refund, RefundOf, Transfer, Usage,
};
use bursar_core::ledger::event::total;
use bursar_core::ledger::holds::archive::{ArchivedAnswer, RecalledRecord};
use bursar_core::ledger::holds::forgettable::Forgettable;
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::{Envelope, Event, Ledger, Refusal, Reply, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::Timestamp;
use bursar_engine::archiver::forgotten_entries;
use bursar_engine::recall::recall;
use bursar_engine::{Codec, LedgerCodec};
use bursar_journal::archive::Archive;
use bursar_journal::record::ledger::archive_entries;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const DAY_MS: i64 = 24 * 3_600_000;
const CENTURY_MS: i64 = 36_500 * DAY_MS;
const ACCOUNTS: [&str; 3] = ["acme", "acme:a", "acme:a:u"];

/// An answer without numbers, which differ between the two.
type AnswerText = Result<String, String>;

struct World {
    ledger: Ledger,
    now: Timestamp,
    events: Vec<(Timestamp, Event)>,
}

impl World {
    fn new() -> World {
        World {
            ledger: Ledger::new(),
            now: Timestamp::from_millis(1_767_225_600_000),
            events: Vec::new(),
        }
    }

    fn advance(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
        let events = &mut self.events;
        advance(&mut self.ledger, self.now, |at, due| {
            events.extend(due.iter().map(|event| (at, event.clone())));
        });
    }

    fn run(&mut self, envelope: &Envelope, command: &Command) -> Result<AnswerText, Refusal> {
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, envelope, command, &mut events);
        self.events.extend(events.into_iter().map(|event| (self.now, event)));
        match answer {
            Ok(accepted) => Ok(Ok(self.shown(&accepted.reply))),
            Err(refused) if matches!(refused.refusal, Refusal::Forgotten { .. }) => {
                Err(refused.refusal)
            }
            Err(refused) => Ok(Err(format!("{:?}", refused.refusal))),
        }
    }

    fn shown(&self, reply: &Reply) -> String {
        match reply {
            Reply::Hold(reply) => {
                let hold = self.ledger.hold(reply.hold).expect("an answer names a hold in memory");
                shown_hold(hold.id.as_str(), &format!("{:?}", without_number(reply)))
            }
            Reply::Charge { hold, requested, charged, spendable_after } => {
                let hold = self.ledger.hold(*hold).expect("an answer names a charge in memory");
                format!("charge {} {requested:?} {charged:?} {spendable_after}", hold.id)
            }
            Reply::Movement { movement, amount } => {
                let made = self.ledger.movement(*movement).expect("a movement in memory");
                format!("movement {} {amount:?}", made.movement.id)
            }
            Reply::Archived(record) => shown_record(record),
            other => format!("{other:?}"),
        }
    }
}

fn shown_hold(name: &str, reply: &str) -> String {
    format!("hold {name} {reply}")
}

fn without_number(reply: &bursar_core::ledger::HoldReply) -> impl std::fmt::Debug {
    let bursar_core::ledger::HoldReply {
        hold: _,
        state,
        amount,
        captured,
        uncollected,
        expires_at,
        slices,
    } = *reply;
    (state, amount, captured, uncollected, expires_at, slices)
}

fn credits(units: u64) -> Credits {
    Credits::from_length(units).expect("a small amount")
}

fn shown_record(record: &RecalledRecord) -> String {
    match record {
        RecalledRecord::Hold(record) => {
            let hold: &Hold = &record.hold;
            match (&hold.kind, &hold.charge) {
                (HoldKind::Charge, Some(terms)) => {
                    let (requested, charged) = (terms.requested, credits(hold.captured));
                    format!(
                        "charge {} {requested:?} {charged:?} {}",
                        hold.id, terms.spendable_after
                    )
                }
                _ => {
                    let slices = u32::try_from(hold.slices.len()).expect("few slices");
                    let reply = (
                        hold.state,
                        credits(hold.amount),
                        credits(hold.captured),
                        credits(hold.uncollected()),
                        hold.expires_at,
                        slices,
                    );
                    shown_hold(hold.id.as_str(), &format!("{reply:?}"))
                }
            }
        }
        RecalledRecord::Movement(parts) => {
            let amount = credits(parts.iter().map(|part| total(&part.movement.pieces)).sum());
            format!("movement {} {amount:?}", parts[0].movement.id)
        }
    }
}

/// A ledger with a small window, and its archive.
struct Forgetful {
    world: World,
    /// The window.
    keep: usize,
    archive: Archive,
    /// The number of records so far: the position of the journal.
    position: u64,
    /// How often an answer came from the archive, and how often something was looked up again.
    from_archive: u64,
    looked_again: u64,
}

impl Forgetful {
    fn new(keep: usize) -> Forgetful {
        let archive = Archive::in_memory().with_runs_of(64);
        archive.put(&[], 1).expect("memory cannot fail");
        let (from_archive, looked_again) = (0, 0);
        Forgetful { world: World::new(), keep, archive, position: 1, from_archive, looked_again }
    }

    /// Archives and forgets, or only archives.
    fn forget(&mut self, most: usize, is_lost: bool) {
        self.position += 1;
        self.forget_here(most, is_lost);
    }

    /// The same without a record since the last step: nothing is added at a position that was looked up.
    fn forget_here(&mut self, most: usize, is_lost: bool) {
        let which = Forgettable { keep: self.keep, kept_from: Timestamp::MIN, most };
        let forget = self.world.ledger.forgettable(which);
        self.position = self.position.max(self.archive.position() + 1);
        let tenants = self.world.ledger.tenants_of(&forget);
        self.archive.put(&archive_entries(&forget, &tenants), self.position).expect("memory");
        if is_lost {
            return;
        }
        let command = Command::Forget(Box::new(Forget { through: self.position, ..forget }));
        let answer = self.world.run(&Envelope::default(), &command).expect("it is not looked up");
        answer.expect("what was read just now can be forgotten");
    }

    /// Asks as a server does: with what an archive says, which may be outdated by the time of the decision.
    fn ask(&mut self, envelope: &Envelope, command: &Command, is_outdated: bool) -> AnswerText {
        for look in 0..3 {
            let names = command.archived_names();
            let tenant = self.world.ledger.find_account("acme").expect("the tenant is there");
            let names: Vec<_> = names.iter().map(|(what, _, id)| (*what, tenant, *id)).collect();
            let found = recall(&self.archive, &names, envelope.key).expect("memory can be read");
            if look == 0 && is_outdated {
                // Everything that is closed is forgotten between the look-up and the decision.
                self.forget(usize::MAX, false);
            }
            let kept = envelope.key.and_then(|key| self.world.ledger.kept_fingerprint(key));
            if let Some(answer) = found.answer.filter(|answer| {
                kept.is_none() && self.world.ledger.promises_answer(self.world.now, answer.at)
            }) {
                self.from_archive += 1;
                return self.answered(&answer, envelope);
            }
            self.from_archive += u64::from(!found.recalled.is_empty());
            let mut command = command.clone();
            if let Command::Refund(refund) = &mut command {
                let holds = found.recalled.iter().filter_map(|recalled| match recalled {
                    RecalledRecord::Hold(record) => {
                        Some(RecalledHold { record: Box::new(record.clone()) })
                    }
                    RecalledRecord::Movement(_) => None,
                });
                refund.recalled = holds.collect();
            }
            let (archive, recalled) = (Some(found.position), found.recalled);
            let envelope = Envelope { archive, recalled, ..envelope.clone() };
            match self.world.run(&envelope, &command) {
                Ok(answer) => return answer,
                Err(_) => self.looked_again += 1,
            }
        }
        panic!("it was looked up three times: {command:?}");
    }

    fn answered(&self, answer: &ArchivedAnswer, envelope: &Envelope) -> AnswerText {
        if answer.fingerprint != envelope.keyed_fingerprint() {
            return Err(format!("{:?}", Refusal::IdempotencyKeyReused));
        }
        let name = answer.of.as_ref().map(|of| of.name.as_str());
        match &*answer.answer {
            Ok(Reply::Hold(reply)) => Ok(shown_hold(
                name.expect("it names its hold"),
                &format!("{:?}", without_number(reply)),
            )),
            Ok(Reply::Charge { requested, charged, spendable_after, .. }) => {
                let name = name.expect("it names its charge");
                Ok(format!("charge {name} {requested:?} {charged:?} {spendable_after}"))
            }
            Ok(Reply::Movement { amount, .. }) => {
                Ok(format!("movement {} {amount:?}", name.expect("it names its movement")))
            }
            Ok(reply) => Ok(self.world.shown(reply)),
            Err(refusal) => Err(format!("{refusal:?}")),
        }
    }

    /// The process ends: the state comes from a snapshot or from all records, the archive from the records.
    fn crash(&mut self, from_snapshot: bool, rebuilds: bool) {
        let digest = self.world.ledger.digest();
        let mut replayed = Ledger::new();
        let rebuilt = Archive::in_memory().with_runs_of(64);
        for (at, event) in &self.world.events {
            rebuilt.put(&forgotten_entries(&replayed, *at, event), 0).expect("memory");
            replayed.apply(*at, event);
        }
        assert_eq!(replayed.digest(), digest, "a replay gives the same state");
        if rebuilds {
            let position = self.position.max(replayed.forgotten_through());
            rebuilt.put(&[], position).expect("memory");
            self.archive = rebuilt;
        }
        self.world.ledger = match from_snapshot {
            true => {
                let bytes = LedgerCodec.encode_state(&self.world.ledger);
                LedgerCodec.decode_state(&bytes).expect("a snapshot can be read")
            }
            false => replayed,
        };
        assert_eq!(self.world.ledger.digest(), digest, "a snapshot has the whole state");
    }
}

/// Random requests, many of which repeat an earlier id or key.
struct Source(ChaCha8Rng);

impl Source {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound
    }

    fn name<T: From<String>>(&mut self, kind: &str) -> T {
        // Few names, so that most requests name something that was closed before.
        format!("{kind}{}", self.below(12)).into()
    }

    fn account(&mut self) -> AccountPath {
        ACCOUNTS[self.below(3) as usize].into()
    }

    fn amount(&mut self) -> Credits {
        credits(1 + u64::from(self.below(40)))
    }

    fn usage(&mut self) -> Usage {
        Usage::Total(credits(u64::from(self.below(30))))
    }

    fn request(&mut self) -> (Envelope, Command) {
        let tenant = AccountPath::from("acme");
        let command = match self.below(21) {
            0 => Command::IssueGrant(IssueGrant {
                id: self.name("g"),
                account: self.account(),
                amount: credits(500),
                kind: GrantKind::Grant,
                effective_at: None,
                expires_at: None,
                priority: 100,
                restriction: None,
                reference: None,
                metadata: None,
            }),
            1..=5 => Command::PlaceHold(PlaceHold {
                id: self.name("h"),
                account: self.account(),
                amount: self.amount(),
                ttl_ms: Some(DAY_MS),
                context: Context::default(),
                on_expiry: OnExpiry::HonorHold,
                rate: None,
                gpu_ms: 0,
                reference: None,
            }),
            6 => Command::CaptureHold {
                tenant,
                hold: self.name("h"),
                usage: self.usage(),
                seq: None,
            },
            7 => Command::ExtendHold {
                tenant,
                hold: self.name("h"),
                amount: Some(self.amount()),
                gpu_ms: 0,
                ttl_ms: Some(DAY_MS),
            },
            8..=10 => Command::SettleHold {
                tenant,
                hold: self.name("h"),
                usage: self.usage(),
                cause: Cause::Holder,
            },
            11 => Command::ReleaseHold { tenant, hold: self.name("h"), cause: Cause::Holder },
            12..=13 => Command::Charge(Charge {
                id: self.name("c"),
                account: self.account(),
                amount: self.amount(),
                allow_partial: self.below(2) == 0,
                context: Context::default(),
                effective_at: None,
            }),
            14 => Command::Refund(Refund {
                // A job with two attempts, whole: in two parts if both have spent something.
                id: self.name("j"),
                tenant,
                of: RefundOf::PastJob("j".into(), self.two_holds()),
                amount: None,
                compensate: false,
                note: None,
                recalled: Vec::new(),
            }),
            15..=17 => Command::Refund(Refund {
                id: self.name("r"),
                tenant,
                of: match self.below(3) {
                    0 => RefundOf::Hold(self.name("h")),
                    // A job with two attempts.
                    1 => RefundOf::PastJob("j".into(), self.two_holds()),
                    _ => RefundOf::Charge(self.name("c")),
                },
                amount: (self.below(2) == 0).then(|| self.amount()),
                compensate: false,
                note: None,
                recalled: Vec::new(),
            }),
            18 => Command::Transfer(Transfer {
                id: self.name("t"),
                from: "acme".into(),
                to: "acme:a".into(),
                amount: self.amount(),
                note: None,
            }),
            19 => Command::CollectUncollected { path: self.account(), id: self.name("u") },
            _ => self.budget(),
        };
        let key = (self.below(3) == 0).then(|| u128::from(self.below(20)));
        // Equal requests have equal fingerprints; some keys and ids come with another request.
        let of_job = matches!(&command, Command::Refund(Refund { of: RefundOf::PastJob(..), .. }));
        let fingerprint = 1 + u128::from(self.below(2)) + if of_job { 2 } else { 0 };
        (Envelope { key, fingerprint, request: 7, ..Envelope::default() }, command)
    }

    fn two_holds(&mut self) -> Vec<HoldId> {
        let first = self.below(12);
        let second = (first + 1 + self.below(11)) % 12;
        [first, second].map(|number| format!("h{number}").into()).to_vec()
    }

    fn budget(&mut self) -> Command {
        let (path, budget) = (self.account(), self.name("b"));
        if self.below(3) == 0 {
            return Command::RemoveBudget { path, budget };
        }
        let period = match self.below(4) {
            0 => BudgetPeriod::Total,
            1 => BudgetPeriod::Day,
            2 => BudgetPeriod::Week,
            _ => BudgetPeriod::Month,
        };
        let terms = BudgetTerms {
            limit: credits(100 + u64::from(self.below(300))),
            unit: BudgetUnit::Credits,
            period,
            mode: if self.below(3) == 0 { BudgetMode::Soft } else { BudgetMode::Hard },
            thresholds: [50, 100].into_iter().collect(),
            utc_offset_minutes: if self.below(2) == 0 { 0 } else { 345 },
        };
        Command::SetBudget { path, budget, terms }
    }
}

fn open(run: &mut dyn FnMut(&Envelope, &Command)) {
    let policy = Policy { retention_ms: CENTURY_MS, ..Policy::default() };
    run(&Envelope::default(), &Command::SetPolicy(policy));
    for (path, kind) in
        ACCOUNTS.into_iter().zip([AccountKind::Org, AccountKind::Team, AccountKind::User])
    {
        let settings = AccountSettings::default();
        run(&Envelope::default(), &Command::OpenAccount { path: path.into(), kind, settings });
    }
}

fn same_books(never: &Ledger, forgetful: &Ledger, context: &str) {
    for path in ACCOUNTS {
        let number = never.find_account(path).expect("the account is there");
        let (one, other) = (never.account(number), forgetful.account(number));
        assert_eq!((one.available, one.held), (other.available, other.held), "{path} {context}");
        assert_eq!(one.uncollected(), other.uncollected(), "{path} {context}");
        assert_eq!(one.budgets(), other.budgets(), "{path} {context}");
    }
}

/// Whether it refunds a job one of whose attempts there is not, or has not ended.
fn lacks_ended_holds(ledger: &Ledger, command: &Command) -> bool {
    let Command::Refund(Refund { of: RefundOf::PastJob(_, holds), .. }) = command else {
        return false;
    };
    let tenant = ledger.find_account("acme").expect("the tenant is there");
    let hold = |name: &HoldId| ledger.hold(ledger.find_hold(tenant, HoldKind::Hold, name)?);
    holds.iter().any(|name| hold(name).is_none_or(Hold::is_open))
}

fn compare(seed: u64, steps: u32, counts: &mut BTreeMap<&'static str, u64>) {
    let mut source = Source(ChaCha8Rng::seed_from_u64(seed));
    let keep = if seed.is_multiple_of(2) { 0 } else { source.below(21) as usize };
    let (mut never, mut forgetful) = (World::new(), Forgetful::new(keep));
    open(&mut |envelope, command| _ = never.run(envelope, command));
    open(&mut |envelope, command| _ = forgetful.world.run(envelope, command));
    for step in 0..steps {
        let pause = match source.below(10) {
            0 => i64::from(source.below(3)) * DAY_MS,
            1..=3 => i64::from(source.below(3_600_000)),
            _ => 0,
        };
        never.advance(pause);
        forgetful.world.advance(pause);
        match source.below(8) {
            // The archive lags.
            0 | 1 => {}
            2 => forgetful.forget(1 + source.below(3) as usize, false),
            5 => forgetful.forget_here(usize::MAX, false),
            // The process ends after the archive was written and before anything is forgotten.
            3 => {
                forgetful.forget(usize::MAX, true);
                forgetful.crash(source.below(2) == 0, false);
            }
            4 if source.below(20) == 0 => forgetful.crash(source.below(2) == 0, true),
            _ => forgetful.forget(usize::MAX, false),
        }
        let (envelope, command) = source.request();
        if lacks_ended_holds(&never.ledger, &command) {
            continue;
        }
        let context = format!("seed {seed} step {step}: {command:?} {envelope:?}");
        let expected = never.run(&envelope, &command).expect("it forgets nothing");
        let answer = forgetful.ask(&envelope, &command, source.below(6) == 0);
        assert_eq!(answer, expected, "{context}");
        same_books(&never.ledger, &forgetful.world.ledger, &context);
        let checked = invariant::check(&forgetful.world.ledger);
        assert!(checked.is_ok(), "{context}: {checked:?}");
        *counts.entry(if answer.is_ok() { "accepted" } else { "refused" }).or_default() += 1;
    }
    *counts.entry("from the archive").or_default() += forgetful.from_archive;
    *counts.entry("looked up again").or_default() += forgetful.looked_again;
    let events = forgetful.world.events.iter();
    let of_jobs = |event: &Event| matches!(event, Event::Refunded { movement, .. } if movement.id.contains('/'));
    let parts = events.clone().filter(|(_, event)| of_jobs(event)).count();
    *counts.entry("parts of refunds").or_default() += parts as u64;
    let revived = events.filter(|(_, event)| matches!(event, Event::HoldRestored { .. })).count();
    *counts.entry("revived").or_default() += revived as u64;
}

#[test]
fn a_small_window_gives_the_answers_of_a_ledger_that_never_forgets() {
    let mut counts = BTreeMap::new();
    (0..40).for_each(|seed| compare(seed, 400, &mut counts));
    println!("{counts:?}");
    for (what, least) in [
        ("accepted", 50),
        ("refused", 50),
        ("from the archive", 50),
        ("looked up again", 50),
        ("revived", 50),
        ("parts of refunds", 0),
    ] {
        assert!(counts.get(what).is_some_and(|count| *count > least), "{what}: {counts:?}");
    }
}

#[test]
fn only_what_the_archive_has_as_it_is_leaves_memory() {
    let mut world = World::new();
    open(&mut |envelope, command| _ = world.run(envelope, command));
    let mut source = Source(ChaCha8Rng::seed_from_u64(1));
    for _ in 0..200 {
        let (envelope, command) = source.request();
        _ = world.run(&envelope, &command);
    }
    let which = Forgettable { keep: 0, kept_from: Timestamp::MIN, most: usize::MAX };
    let mut forget = world.ledger.forgettable(which);
    forget.through = 5;
    forget.answers.clear();
    for record in &mut forget.holds {
        record.hold.refunded += 1;
    }
    for made in &mut forget.movements {
        made.movement.fingerprint += 1;
    }
    let before = world.ledger.digest();
    let answer = world.run(&Envelope::default(), &Command::Forget(Box::new(forget.clone())));
    assert!(answer.is_ok_and(|answer| answer.is_ok()));
    assert_eq!(world.ledger.digest(), before, "nothing that differs from its record is forgotten");
    world.ledger.begin_group();
    let answer = world.run(&Envelope::default(), &Command::Forget(Box::new(forget)));
    assert!(
        answer.is_ok_and(|answer| answer.is_err()),
        "nothing is forgotten in a group, which may be undone"
    );
    world.ledger.rollback_group();
}
