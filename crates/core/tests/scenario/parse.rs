//! Parses one line of a scenario as a command.

use bursar_core::credits::Credits;
use bursar_core::ledger::Command;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    ClearedSettings, Context, GrantKind, IssueGrant, OnExpiry, PlaceHold, Policy, Refund, RefundOf,
    Restriction, Transfer, Usage,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::id::Name;
use bursar_core::name::{AccountPath, ClassName, GpuModel, Region};
use bursar_core::time::Timestamp;

/// A line split into plain words and `name=value` words.
pub(crate) struct Words<'a> {
    plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Words<'a> {
        let (mut plain, mut named) = (Vec::new(), Vec::new());
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some(pair) => named.push(pair),
                None => plain.push(word),
            }
        }
        Words { plain, named }
    }

    pub(crate) fn verb(&self) -> &'a str {
        self.plain[0]
    }

    pub(crate) fn word(&self, at: usize) -> &'a str {
        self.plain
            .get(at)
            .copied()
            .unwrap_or_else(|| panic!("word {at} is missing: {:?}", self.plain))
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        self.named.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// All plain words from index `from` on.
    pub(crate) fn rest(&self, from: usize) -> &[&'a str] {
        self.plain.get(from..).unwrap_or(&[])
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }

    pub(crate) fn name<T: for<'t> From<&'t str>>(&self, at: usize) -> T {
        T::from(self.word(at))
    }

    fn amount(&self, at: usize) -> Credits {
        amount(self.word(at))
    }

    fn list<T>(&self, name: &str, make: impl Fn(&'a str) -> T) -> Option<Vec<T>> {
        self.value(name).map(|list| list.split(',').map(make).collect())
    }

    fn cause(&self) -> Cause {
        if self.has("platform") { Cause::Platform } else { Cause::Holder }
    }

    fn context(&self) -> Context {
        Context {
            gpu_types: self.list("types", GpuModel::unchecked),
            regions: self.list("regions", Region::unchecked),
            class: self.value("class").map(ClassName::from),
        }
    }

    fn usage(&self) -> Usage {
        self.usage_at(2)
    }

    pub(crate) fn usage_at(&self, at: usize) -> Usage {
        match self.value("gpu") {
            Some(time) => Usage::GpuMs(duration(time).unsigned_abs()),
            None => Usage::Total(self.amount(at)),
        }
    }
}

pub(crate) fn amount(text: &str) -> Credits {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// `500ms`, `30s`, `5m`, `2h`, `3d`, or a sum of them.
pub(crate) fn duration(text: &str) -> i64 {
    let mut total = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (count, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let scale = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => panic!("{text} is no duration"),
        };
        total += count.parse::<i64>().unwrap() * scale;
        rest = after;
    }
    total
}

/// `+1h` or `-1h` from now, or milliseconds since 1970.
pub(crate) fn instant(now: Timestamp, text: &str) -> Timestamp {
    match text.split_at(1) {
        ("+", later) => now.plus_millis(duration(later)),
        ("-", earlier) => now.plus_millis(-duration(earlier)),
        _ => Timestamp::from_millis(text.parse().unwrap()),
    }
}

pub(crate) fn command(now: Timestamp, tenant: &AccountPath, words: &Words<'_>) -> Command {
    let tenant = words.value("in").map_or_else(|| tenant.clone(), AccountPath::from);
    match words.verb() {
        "policy" => Command::SetPolicy(policy(words)),
        "open" => Command::OpenAccount {
            path: words.name(1),
            kind: account_kind(words.word(2)),
            settings: settings(words),
        },
        "change" => Command::ChangeAccount {
            path: words.name(1),
            settings: settings(words),
            cleared: ClearedSettings::default(),
        },
        "freeze" => Command::FreezeAccount { path: words.name(1), by_platform: false },
        "unfreeze" => Command::UnfreezeAccount { path: words.name(1), by_platform: false },
        "grant" => Command::IssueGrant(grant(now, words)),
        "revoke" => Command::RevokeGrant { tenant, grant: words.name(1) },
        "hold" => Command::PlaceHold(hold(words)),
        "capture" => Command::CaptureHold {
            tenant,
            hold: words.name(1),
            usage: words.usage(),
            seq: words.value("seq").map(|seq| seq.parse().unwrap()),
        },
        "extend" => Command::ExtendHold {
            tenant,
            hold: words.name(1),
            amount: words.value("amount").map(amount),
            gpu_ms: words.value("gpu").map_or(0, |time| duration(time).unsigned_abs()),
            ttl_ms: words.value("ttl").map(duration),
        },
        "settle" => Command::SettleHold {
            tenant,
            hold: words.name(1),
            usage: words.usage(),
            cause: words.cause(),
        },
        "release" => Command::ReleaseHold { tenant, hold: words.name(1), cause: words.cause() },
        "charge" => Command::Charge(Charge {
            id: words.name(1),
            account: words.name(2),
            amount: words.amount(3),
            allow_partial: words.has("partial"),
            context: words.context(),
            effective_at: words.value("at").map(|at| instant(now, at)),
        }),
        "refund" => Command::Refund(Refund {
            id: words.name(1),
            tenant,
            of: match words.word(2) {
                "hold" => RefundOf::Hold(words.name(3)),
                "charge" => RefundOf::Charge(words.name(3)),
                "job" => RefundOf::Job(words.name(3)),
                other => panic!("a refund is of a hold, a charge or a job, not {other}"),
            },
            amount: words.value("amount").map(amount),
            compensate: words.has("compensate"),
            note: None,
            recalled: Vec::new(),
        }),
        "transfer" => Command::Transfer(Transfer {
            id: words.name(1),
            from: words.name(2),
            to: words.name(3),
            amount: words.amount(4),
            note: None,
        }),
        "collect" => Command::CollectUncollected { path: words.name(1), id: words.name(2) },
        "budget" => {
            Command::SetBudget { path: words.name(1), budget: words.name(2), terms: budget(words) }
        }
        "unbudget" => Command::RemoveBudget { path: words.name(1), budget: words.name(2) },
        verb => panic!("unknown command {verb}"),
    }
}

fn policy(words: &Words<'_>) -> Policy {
    let default = Policy::default();
    let given = |name: &str, otherwise: i64| words.value(name).map_or(otherwise, duration);
    Policy {
        idempotency_ttl_ms: given("idempotency", default.idempotency_ttl_ms),
        retention_ms: given("retention", default.retention_ms),
        lateness_ms: given("lateness", default.lateness_ms),
        compensation_ttl_ms: given("compensation", default.compensation_ttl_ms),
        expiry_waits: default.expiry_waits,
    }
}

fn account_kind(text: &str) -> AccountKind {
    match text {
        "org" => AccountKind::Org,
        "team" => AccountKind::Team,
        "project" => AccountKind::Project,
        "user" => AccountKind::User,
        _ => panic!("{text} is no kind of account"),
    }
}

fn settings(words: &Words<'_>) -> AccountSettings {
    AccountSettings {
        name: words.value("name").map(Name::from),
        weight_milli: words.value("weight").map(|weight| weight.parse().unwrap()),
        compensation_ttl_ms: words.value("compensation_ttl").map(duration),
        overdraft_limit: words.value("overdraft").map(amount),
        ..AccountSettings::default()
    }
}

fn grant(now: Timestamp, words: &Words<'_>) -> IssueGrant {
    let restriction = Restriction {
        gpu_types: words.list("types", GpuModel::unchecked),
        regions: words.list("regions", Region::unchecked),
        classes: words.list("classes", ClassName::from),
        max_share_micro: words.value("share").map(|share| {
            // A share is written like an amount: "0.25" is a quarter.
            u32::try_from(amount(share).micros()).unwrap()
        }),
    };
    IssueGrant {
        id: words.name(1),
        account: words.name(2),
        amount: words.amount(3),
        kind: match words.word(4) {
            "promotion" => GrantKind::Promotion,
            "compensation" => GrantKind::Compensation,
            "grant" => GrantKind::Grant,
            "purchase" => GrantKind::Purchase,
            other => panic!("{other} is no kind of grant"),
        },
        effective_at: words.value("effective").map(|at| instant(now, at)),
        expires_at: words.value("expires").map(|at| instant(now, at)),
        priority: words.value("priority").map_or(100, |priority| priority.parse().unwrap()),
        restriction: (restriction != Restriction::default()).then_some(restriction),
        reference: None,
        metadata: None,
    }
}

fn hold(words: &Words<'_>) -> PlaceHold {
    PlaceHold {
        id: words.name(1),
        account: words.name(2),
        amount: words.amount(3),
        ttl_ms: words.value("ttl").map(duration),
        context: words.context(),
        on_expiry: if words.has("strict") { OnExpiry::Strict } else { OnExpiry::HonorHold },
        rate: words.value("rate").map(|price| Rate {
            per_gpu_hour: amount(price),
            share_milli: words.value("gpu_share").map_or(1000, |share| share.parse().unwrap()),
            gpu_ms_limit: words.value("limit").map_or(u64::MAX, |t| duration(t).unsigned_abs()),
        }),
        gpu_ms: words.value("gpu").map_or(0, |time| duration(time).unsigned_abs()),
        reference: None,
    }
}

fn budget(words: &Words<'_>) -> BudgetTerms {
    let thresholds = words.value("alerts").unwrap_or("50,80,100");
    BudgetTerms {
        limit: words.amount(3),
        unit: if words.has("gpu_hours") { BudgetUnit::GpuHours } else { BudgetUnit::Credits },
        period: match words.word(4) {
            "total" => BudgetPeriod::Total,
            "day" => BudgetPeriod::Day,
            "week" => BudgetPeriod::Week,
            "month" => BudgetPeriod::Month,
            other => panic!("{other} is no period"),
        },
        mode: match words.word(5) {
            "hard" => BudgetMode::Hard,
            "soft" => BudgetMode::Soft,
            other => panic!("{other} is no mode"),
        },
        thresholds: thresholds.split(',').map(|percent| percent.parse().unwrap()).collect(),
        utc_offset_minutes: words.value("offset").map_or(0, |offset| offset.parse().unwrap()),
    }
}
