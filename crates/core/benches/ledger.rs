//! What the ledger costs, beside the least that the same draws could cost.
//!
//! `cargo bench -p bursar-core --bench ledger [-- --json] [-- --quick] [-- --pairs]`
//!
//! Every figure is the median of five rounds with its spread; every benchmark ends by checking the
//! laws. Timings are printed, never asserted.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a benchmark reads the clock and stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause, Charge,
    Context, GrantKind, IssueGrant, OnExpiry, PlaceHold, Policy, Usage,
};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::{Command, Envelope, Event, Ledger, invariant};
use bursar_core::machine::{advance, execute};
use bursar_core::time::{DAY_MS, Timestamp};
use compact_str::format_compact;

const ROUNDS: usize = 5;
const START: i64 = 1_600_000_000_000;

struct Bench {
    ledger: Ledger,
    now: Timestamp,
    events: Vec<Event>,
    requests: u128,
    keyed: bool,
    moving: bool,
}

impl Bench {
    fn new() -> Bench {
        let now = Timestamp::from_millis(START);
        Bench {
            ledger: Ledger::new(),
            now,
            events: Vec::new(),
            requests: 0,
            keyed: false,
            moving: false,
        }
    }

    fn run(&mut self, command: &Command) {
        self.requests += 1;
        let envelope = Envelope {
            actor: Name::const_new("bench"),
            fingerprint: self.requests,
            key: self.keyed.then(|| self.requests.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060)),
        };
        // As the engine does: time moves on, and what is due happens first.
        self.now = self.now.plus_millis(i64::from(self.moving));
        advance(&mut self.ledger, self.now, |_, _| {});
        self.events.clear();
        execute(&mut self.ledger, self.now, &envelope, command, &mut self.events)
            .unwrap_or_else(|refused| panic!("{command:?}: {refused:?}"));
    }

    fn open(&mut self, path: &str, kind: AccountKind) {
        let settings = AccountSettings::default();
        self.run(&Command::OpenAccount { path: path.into(), kind, settings });
    }

    fn grant(&mut self, id: Name, account: &Name, amount: i64, days: i64) {
        self.run(&Command::IssueGrant(IssueGrant {
            id,
            account: account.clone(),
            amount: micros(amount),
            kind: GrantKind::Purchase,
            effective_at: None,
            expires_at: Some(Timestamp::from_millis(START + days * DAY_MS)),
            priority: 100,
            restriction: None,
            reference: None,
            metadata: None,
        }));
    }
}

fn micros(amount: i64) -> Credits {
    Credits::from_micros(amount).unwrap()
}

fn place(id: Name, account: &Name, amount: i64) -> Command {
    Command::PlaceHold(PlaceHold {
        id,
        account: account.clone(),
        amount: micros(amount),
        ttl_ms: Some(3_600_000),
        context: Context::default(),
        on_expiry: OnExpiry::HonorHold,
        rate: None,
        gpu_ms: 0,
        reference: None,
    })
}

fn settle(tenant: &Name, hold: Name, total: i64) -> Command {
    let usage = Usage::Total(micros(total));
    Command::SettleHold { tenant: tenant.clone(), hold, usage, cause: Cause::Holder }
}

/// Nanoseconds per operation: the median of the rounds, the least and the most.
#[derive(Clone, Copy)]
struct Figure {
    median: f64,
    least: f64,
    most: f64,
}

fn measure(operations: usize, mut round: impl FnMut(usize)) -> Figure {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|number| {
            let start = Instant::now();
            round(number);
            start.elapsed().as_nanos() as f64 / operations as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Figure { median: times[ROUNDS / 2], least: times[0], most: times[ROUNDS - 1] }
}

struct Report {
    rows: Vec<(String, f64, f64, f64, String)>,
    json: bool,
}

impl Report {
    fn row(&mut self, name: &str, figure: Figure, note: String) {
        let Figure { median, least, most } = figure;
        if !self.json {
            // What is not a time says what it is.
            let unit = if note == "bytes" || note == "a ratio" { "" } else { "ns" };
            println!("{name:<66} {median:>10.1} {unit:2} ({least:.1} to {most:.1})  {note}");
        }
        self.rows.push((name.into(), median, least, most, note));
    }

    fn finish(self) {
        if self.json {
            let rows = self.rows.iter().map(|(name, median, least, most, note)| {
                format!(
                    "{{\"name\":\"{name}\",\"median_ns\":{median:.1},\"least_ns\":{least:.1},\
                     \"most_ns\":{most:.1},\"note\":\"{note}\"}}"
                )
            });
            println!("[{}]", rows.collect::<Vec<_>>().join(",\n "));
        }
    }
}

/// A small deterministic generator: which account is next must not be a pattern that caches like.
struct Shuffle(u64);

impl Shuffle {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % below
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn pairs(report: &mut Report, accounts: usize, pairs: usize) {
    let mut bench = Bench::new();
    // A steady state: after a minute, as much is forgotten as is added.
    bench.run(&Command::SetPolicy(Policy {
        idempotency_ttl_ms: 30_000,
        retention_ms: 30_000,
        ..Policy::default()
    }));
    let before = resident_bytes();
    let names: Vec<Name> = (0..accounts).map(|n| format_compact!("org{n}")).collect();
    for (number, name) in names.iter().enumerate() {
        bench.open(name, AccountKind::Org);
        bench.grant(format_compact!("g{number}-0"), name, 1_000_000_000, 10);
    }
    let idle = (resident_bytes() - before) as f64 / accounts as f64;
    for day in 1..10 {
        for (number, name) in names.iter().enumerate() {
            bench.grant(format_compact!("g{number}-{day}"), name, 1_000_000_000, 10 + day);
        }
    }
    let least = least_possible(accounts, pairs);
    report.row("bare B-tree loop of the same draws, per pair", least, String::new());
    let mut shuffle = Shuffle(1);
    // Names come with the requests; making them up is not the ledger's work.
    let ids: Vec<Name> = (0..2 * ROUNDS * pairs).map(|n| format_compact!("hold{n}")).collect();
    let mut unused = ids.iter();
    bench.moving = true;
    for keyed in [false, true] {
        bench.keyed = keyed;
        let figure = measure(pairs, |_| {
            for _ in 0..pairs {
                let account = &names[shuffle.next(accounts)];
                let hold = unused.next().unwrap();
                bench.run(&place(hold.clone(), account, 4000));
                bench.run(&settle(account, hold.clone(), 2400));
            }
        });
        let name = if keyed { "place + settle, with idempotency keys" } else { "place + settle" };
        let ratio = figure.median / least.median;
        report.row(
            &format!("{name}, {accounts} accounts × 10 grants"),
            figure,
            format!("{ratio:.1}× the loop"),
        );
    }
    bench.moving = false;
    let holds = 100_000;
    let before = resident_bytes();
    for number in 0..holds {
        let account = &names[shuffle.next(accounts)];
        bench.keyed = false;
        bench.run(&place(format_compact!("open{number}"), account, 4000));
    }
    let open = (resident_bytes() - before) as f64 / f64::from(holds);
    let bytes = |value| Figure { median: value, least: value, most: value };
    report.row("memory per idle account with one grant, in bytes", bytes(idle), "bytes".into());
    report.row("memory per open hold, in bytes", bytes(open), "bytes".into());
    invariant::check(&bench.ledger).unwrap();
}

/// The same draws on nothing but a map of expiry to amount: no holds by name, no events.
fn least_possible(accounts: usize, pairs: usize) -> Figure {
    let mut pools: Vec<BTreeMap<i64, i64>> =
        (0..accounts).map(|_| (10..20).map(|day| (day, 1_000_000_000)).collect()).collect();
    let mut shuffle = Shuffle(1);
    measure(pairs, |_| {
        for _ in 0..pairs {
            let pool = &mut pools[shuffle.next(accounts)];
            let mut left = 4000;
            let mut taken = Vec::with_capacity(2);
            while left > 0 {
                let mut first = pool.first_entry().unwrap();
                let amount = left.min(*first.get());
                *first.get_mut() -= amount;
                taken.push((*first.key(), amount));
                left -= amount;
                if *first.get() == 0 {
                    first.remove();
                }
            }
            let (day, _) = taken.pop().unwrap();
            *pool.entry(day).or_default() += 1600;
        }
    })
}

fn packs(report: &mut Report, packs: usize, expiries: usize, spanned: usize) -> [f64; 3] {
    let mut bench = Bench::new();
    let name = Name::const_new("acme");
    bench.open(&name, AccountKind::Org);
    let first = packs / 2;
    for number in 0..first {
        bench.grant(format_compact!("g{number}"), &name, 1000, 1 + (number % expiries) as i64);
    }
    let per_round = (packs - first) / ROUNDS;
    let mut number = first;
    let add = measure(per_round, |_| {
        for _ in 0..per_round {
            bench.grant(format_compact!("g{number}"), &name, 1000, 1 + (number % expiries) as i64);
            number += 1;
        }
    });
    let account = bench.ledger.find_account("acme").unwrap();
    let balances = 1000;
    let balance = measure(balances, |_| {
        for _ in 0..balances {
            std::hint::black_box(bench.ledger.balance(account, &Context::default()));
        }
    });
    let amount = spanned as i64 * 1000;
    let consume = measure(1, |round| {
        bench.run(&Command::Charge(Charge {
            id: format_compact!("charge{round}"),
            account: name.clone(),
            amount: micros(amount),
            allow_partial: false,
            context: Context::default(),
            effective_at: None,
        }));
    });
    let what = format!("{packs} packs over {expiries} expiries");
    report.row(&format!("{what}: add"), add, String::new());
    report.row(&format!("{what}: consume spanning {spanned} packs"), consume, String::new());
    report.row(&format!("{what}: balance"), balance, String::new());
    invariant::check(&bench.ledger).unwrap();
    [add.median, consume.median, balance.median]
}

fn deep(report: &mut Report, pairs: usize) {
    let mut bench = Bench::new();
    let mut path = Name::const_new("acme");
    bench.open(&path, AccountKind::Org);
    for level in 0..8 {
        if level > 0 {
            path = format_compact!("{path}:team{level}");
            bench.open(&path, AccountKind::Team);
        }
        let terms = BudgetTerms {
            limit: micros(i64::MAX / 2),
            unit: BudgetUnit::Credits,
            period: BudgetPeriod::Month,
            mode: BudgetMode::Hard,
            thresholds: [50, 80, 100].into_iter().collect(),
            utc_offset_minutes: 0,
        };
        bench.run(&Command::SetBudget { path: path.clone(), budget: "month".into(), terms });
    }
    let tenant = Name::const_new("acme");
    bench.grant("g".into(), &tenant, i64::MAX / 4, 300);
    let mut number = 0;
    let figure = measure(pairs, |_| {
        for _ in 0..pairs {
            let hold = format_compact!("hold{number}");
            number += 1;
            bench.run(&place(hold.clone(), &path, 4000));
            bench.run(&settle(&tenant, hold, 2400));
        }
    });
    report.row("place + settle under 8 levels with a hard budget each", figure, String::new());
    invariant::check(&bench.ledger).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let scale = if given("--quick") { 10 } else { 1 };
    let mut report = Report { rows: Vec::new(), json: given("--json") };
    pairs(&mut report, 100_000 / scale, 200_000 / scale);
    if given("--pairs") {
        return report.finish();
    }
    let few = packs(&mut report, 100, 100, 10);
    let many = packs(&mut report, 1_000_000 / scale, 365, 100_000 / scale);
    for (name, few, many) in
        [("add", few[0], many[0]), ("consume", few[1], many[1]), ("balance", few[2], many[2])]
    {
        let ratio = many / few;
        let figure = Figure { median: ratio, least: ratio, most: ratio };
        report.row(&format!("{name}: many packs against 100 packs"), figure, "a ratio".into());
    }
    deep(&mut report, 100_000 / scale);
    report.finish();
}
