//! Arbitrary commands: any text and any number in any field.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    ClearedSettings, Command, Context, Envelope, GrantKind, IssueGrant, OnExpiry, PlaceHold,
    Policy, Refund, RefundOf, Restriction, Transfer, Usage,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::id::Name;
use bursar_core::name::{AccountPath, ClassName, GpuModel, Region};
use bursar_core::time::Timestamp;

use super::jobs;
use super::random::Random;

/// A random command with a random envelope. Some of its instants are near `now`.
pub fn chaos(random: &mut Random, now: Timestamp) -> (Envelope, Command) {
    let envelope = Envelope {
        actor: text(random),
        fingerprint: u128::from(random.bits() % 50),
        key: random.chance(30).then(|| u128::from(random.bits() % 20)),
        ..Envelope::default()
    };
    let command = match random.index(26) {
        0 => Command::SetPolicy(Policy {
            idempotency_ttl_ms: number(random),
            retention_ms: number(random),
            lateness_ms: number(random),
            compensation_ttl_ms: number(random),
            expiry_waits: false,
        }),
        1 => Command::OpenAccount {
            path: path(random),
            kind: *random.pick(&[
                AccountKind::Org,
                AccountKind::Team,
                AccountKind::Project,
                AccountKind::User,
            ]),
            settings: settings(random),
        },
        2 => Command::ChangeAccount {
            path: path(random),
            settings: settings(random),
            cleared: cleared(random),
        },
        3 if random.chance(20) => {
            Command::FreezeAccount { path: path(random), by_platform: random.chance(50) }
        }
        3 => Command::UnfreezeAccount { path: path(random), by_platform: random.chance(50) },
        4..=7 => grant(random, now),
        8 => Command::RevokeGrant { tenant: tenant(random), grant: name(random) },
        9 | 10 => hold(random),
        11 => Command::CaptureHold {
            tenant: tenant(random),
            hold: name(random),
            usage: usage(random),
            seq: random.chance(50).then(|| random.bits() >> random.index(64)),
        },
        12 => Command::ExtendHold {
            tenant: tenant(random),
            hold: name(random),
            amount: random.chance(70).then(|| credits(random)),
            gpu_ms: random.bits() >> random.index(64),
            ttl_ms: random.chance(50).then(|| number(random)),
        },
        13 => Command::SettleHold {
            tenant: tenant(random),
            hold: name(random),
            usage: usage(random),
            cause: *random.pick(&[Cause::Holder, Cause::Platform]),
        },
        14 => Command::ReleaseHold {
            tenant: tenant(random),
            hold: name(random),
            cause: *random.pick(&[Cause::Holder, Cause::Platform]),
        },
        15 => Command::Charge(Charge {
            id: name(random),
            account: path(random),
            amount: credits(random),
            allow_partial: random.chance(50),
            context: context(random),
            effective_at: random.chance(50).then(|| instant(random, now)),
        }),
        16 => refund(random),
        17 => Command::Transfer(Transfer {
            id: name(random),
            from: path(random),
            to: path(random),
            amount: credits(random),
            note: None,
        }),
        18 => Command::CollectUncollected { path: path(random), id: name(random) },
        20..=25 => jobs::chaos(random, now),
        _ => budget(random),
    };
    (envelope, command)
}

/// Any text; mostly the name of an account that may exist.
pub(super) fn text(random: &mut Random) -> Name {
    const KNOWN: [&str; 6] = ["a", "a", "a", "b", "a:b", "a:b:c"];
    const ODD: [&str; 10] = ["", ":", "A", "é", "a b", "a:", "\0", "a::b", "-", "💥"];
    match random.index(100) {
        0..=94 => Name::from(*random.pick(&KNOWN)),
        95..=97 => Name::from(*random.pick(&ODD)),
        _ => {
            let length = *random.pick(&[1, 63, 64, 65, 1000]);
            let mut text = Name::with_capacity(length);
            for _ in 0..length {
                text.push(char::from(b'!' + (random.bits() % 94) as u8));
            }
            text
        }
    }
}

/// The path of an account; mostly of one that may exist.
pub(super) fn path(random: &mut Random) -> AccountPath {
    text(random).into()
}

/// The name of a resource, mostly one of a few.
pub(super) fn name<T: From<Name>>(random: &mut Random) -> T {
    let name =
        if random.chance(10) { text(random) } else { format!("n{}", random.index(25)).into() };
    T::from(name)
}

/// A tenant, mostly one that may exist.
pub(super) fn tenant(random: &mut Random) -> AccountPath {
    if random.chance(90) { "a".into() } else { path(random) }
}

fn texts<T>(random: &mut Random, name: fn(Name) -> T) -> Option<Vec<T>> {
    random.chance(30).then(|| (0..random.index(4)).map(|_| name(text(random))).collect())
}

/// Any number of any size and sign.
pub(super) fn number(random: &mut Random) -> i64 {
    match random.index(8) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => 0,
        3 => random.between(-2, 2),
        4 | 5 => random.between(1_000, 100_000_000),
        _ => random.bits().cast_signed() >> random.index(64),
    }
}

pub(super) fn credits(random: &mut Random) -> Credits {
    Credits::from_micros(number(random)).unwrap_or(Credits::MAX)
}

fn instant(random: &mut Random, now: Timestamp) -> Timestamp {
    if random.chance(70) {
        return now.plus_millis(random.between(-2_000, 200_000_000));
    }
    Timestamp::from_millis(number(random))
}

fn settings(random: &mut Random) -> AccountSettings {
    AccountSettings {
        name: random.chance(20).then(|| text(random)),
        weight_milli: random.chance(20).then(|| random.bits() as u32),
        home_region: random.chance(20).then(|| Region::unchecked(text(random))),
        metadata: random.chance(20).then(|| text(random).as_str().into()),
        compensation_ttl_ms: random.chance(20).then(|| number(random)),
        overdraft_limit: random.chance(20).then(|| credits(random)),
    }
}

/// The settings to clear; mostly none.
pub(super) fn cleared(random: &mut Random) -> ClearedSettings {
    ClearedSettings {
        name: random.chance(10),
        metadata: random.chance(10),
        compensation_ttl_ms: random.chance(10),
        overdraft_limit: random.chance(10),
    }
}

fn grant(random: &mut Random, now: Timestamp) -> Command {
    let restriction = Restriction {
        gpu_types: texts(random, GpuModel::unchecked),
        regions: texts(random, Region::unchecked),
        classes: texts(random, ClassName::from),
        max_share_micro: random.chance(10).then(|| random.bits() as u32 >> random.index(32)),
    };
    Command::IssueGrant(IssueGrant {
        id: name(random),
        account: path(random),
        amount: credits(random),
        kind: *random.pick(&GrantKind::ALL),
        effective_at: random.chance(30).then(|| instant(random, now)),
        expires_at: random.chance(50).then(|| instant(random, now)),
        priority: random.bits() as u8,
        restriction: random.chance(20).then_some(restriction),
        reference: random.chance(20).then(|| text(random).as_str().into()),
        metadata: random.chance(20).then(|| text(random).as_str().into()),
    })
}

fn context(random: &mut Random) -> Context {
    Context {
        gpu_types: texts(random, GpuModel::unchecked),
        regions: texts(random, Region::unchecked),
        class: random.chance(30).then(|| text(random).into()),
    }
}

fn hold(random: &mut Random) -> Command {
    let rate = Rate {
        per_gpu_hour: credits(random),
        share_milli: random.bits() as u16 >> random.index(16),
        gpu_ms_limit: random.bits() >> random.index(64),
    };
    Command::PlaceHold(PlaceHold {
        id: name(random),
        account: path(random),
        amount: credits(random),
        ttl_ms: random.chance(50).then(|| number(random)),
        context: context(random),
        on_expiry: *random.pick(&[OnExpiry::HonorHold, OnExpiry::Strict]),
        rate: random.chance(50).then_some(rate),
        gpu_ms: random.bits() >> random.index(64),
        reference: random.chance(20).then(|| text(random).as_str().into()),
    })
}

pub(super) fn usage(random: &mut Random) -> Usage {
    if random.chance(50) {
        Usage::Total(credits(random))
    } else {
        Usage::GpuMs(random.bits() >> random.index(64))
    }
}

fn refund(random: &mut Random) -> Command {
    let of: Name = name(random);
    Command::Refund(Refund {
        id: name(random),
        tenant: tenant(random),
        of: match random.index(5) {
            0 | 1 => RefundOf::Hold(of.into()),
            2 | 3 => RefundOf::Charge(of.into()),
            _ => RefundOf::Job(of.into()),
        },
        amount: random.chance(70).then(|| credits(random)),
        compensate: random.chance(50),
        note: None,
        recalled: Vec::new(),
    })
}

fn budget(random: &mut Random) -> Command {
    let (path, budget) = (path(random), text(random).into());
    if random.chance(20) {
        return Command::RemoveBudget { path, budget };
    }
    let terms = BudgetTerms {
        limit: credits(random),
        unit: *random.pick(&[BudgetUnit::Credits, BudgetUnit::GpuHours]),
        period: *random.pick(&[
            BudgetPeriod::Total,
            BudgetPeriod::Day,
            BudgetPeriod::Week,
            BudgetPeriod::Month,
        ]),
        mode: *random.pick(&[BudgetMode::Hard, BudgetMode::Soft]),
        thresholds: (0..random.index(4))
            .map(|_| random.bits() as u16 >> random.index(16))
            .collect(),
        utc_offset_minutes: random.bits() as i16 >> random.index(16),
    };
    Command::SetBudget { path, budget, terms }
}
