//! Time and memory cost of the ledger, compared with a lower bound for the same draws.

use std::collections::BTreeMap;

use bursar_core::ledger::command::{
    AccountKind, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Charge, Context, Policy,
};
use bursar_core::ledger::{Command, Event, Ledger, invariant};
use bursar_core::machine::{advance, execute};
use bursar_core::name::{AccountPath, GrantId, HoldId};
use bursar_core::time::Timestamp;
use compact_str::format_compact;
use serde::Serialize;

use crate::BenchError;
use crate::figure::{Figure, Shuffle, measure, resident_bytes};
use crate::world::{self, CHARGED, HELD, micros, place, settle};

const ROUNDS: usize = 5;
/// 2020-09-13T12:26:40Z
const START: i64 = 1_600_000_000_000;

/// The unit of a figure.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds per operation.
    Nanoseconds,
    /// Bytes of memory each.
    Bytes,
    /// A ratio of two figures.
    Times,
}

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct CoreMeasurement {
    /// The operation that was measured.
    pub work: String,
    /// The measured value.
    pub figure: Figure,
    /// The unit of `figure`.
    pub unit: Unit,
    /// Ratio to the lower bound for the same draws, where that was measured too.
    pub times_the_least: Option<f64>,
}

impl CoreMeasurement {
    fn nanoseconds(work: String, figure: Figure) -> CoreMeasurement {
        CoreMeasurement { work, figure, unit: Unit::Nanoseconds, times_the_least: None }
    }

    fn once(work: String, value: f64, unit: Unit) -> CoreMeasurement {
        CoreMeasurement { work, figure: Figure::once(value), unit, times_the_least: None }
    }
}

/// Runs all measurements with `scale` times less work. Every part ends with a check of the
/// invariants.
pub fn rows(
    scale: usize,
    mut each: impl FnMut(&CoreMeasurement),
) -> Result<Vec<CoreMeasurement>, BenchError> {
    let mut rows = Vec::new();
    pairs(&mut rows, 100_000 / scale, 200_000 / scale)?;
    rows.iter().for_each(&mut each);
    let few = packs(&mut rows, 100, 100, 10)?;
    let many = packs(&mut rows, 1_000_000 / scale, 365, 100_000 / scale)?;
    for (place, name) in ["add", "consume", "balance"].into_iter().enumerate() {
        let work = format!("{name}: many packs against 100 packs");
        rows.push(CoreMeasurement::once(work, many[place] / few[place], Unit::Times));
    }
    deep(&mut rows, 100_000 / scale)?;
    rows.iter().skip(PAIR_ROWS).for_each(each);
    Ok(rows)
}

/// Number of rows that [`pairs`] adds.
const PAIR_ROWS: usize = 5;

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
        Bench {
            ledger: Ledger::new(),
            now: Timestamp::from_millis(START),
            events: Vec::new(),
            requests: 0,
            keyed: false,
            moving: false,
        }
    }

    fn run(&mut self, command: &Command) {
        self.requests += 1;
        let envelope = world::envelope(self.requests, self.keyed);
        // As in the engine: time moves on, and due timers run before the command.
        self.now = self.now.plus_millis(i64::from(self.moving));
        advance(&mut self.ledger, self.now, |_, _| {});
        self.events.clear();
        execute(&mut self.ledger, self.now, &envelope, command, &mut self.events)
            .unwrap_or_else(|refused| panic!("{command:?}: {refused:?}"));
    }

    fn grant(&mut self, id: GrantId, account: &AccountPath, amount: i64, days: i64) {
        let start = Timestamp::from_millis(START);
        self.run(&world::grant(id, account, amount, start, days));
    }

    fn check(&self) -> Result<(), BenchError> {
        invariant::check(&self.ledger).map_err(|broken| BenchError::Wrong(format!("{broken:?}")))
    }
}

fn pairs(rows: &mut Vec<CoreMeasurement>, accounts: usize, pairs: usize) -> Result<(), BenchError> {
    let mut bench = Bench::new();
    // Steady state: after a minute, as many holds are forgotten as are placed. There is no archive here.
    bench.ledger.forget_by_age();
    bench.run(&Command::SetPolicy(Policy {
        idempotency_ttl_ms: 30_000,
        retention_ms: 30_000,
        ..Policy::default()
    }));
    let before = resident_bytes();
    let names = world::orgs(accounts);
    for (number, name) in names.iter().enumerate() {
        bench.run(&world::open(name, AccountKind::Org));
        bench.grant(format_compact!("g{number}-0").into(), name, 1_000_000_000, 10);
    }
    let idle = resident_bytes().saturating_sub(before) as f64 / accounts as f64;
    for day in 1..10 {
        for (number, name) in names.iter().enumerate() {
            bench.grant(format_compact!("g{number}-{day}").into(), name, 1_000_000_000, 10 + day);
        }
    }
    let least = least_possible(accounts, pairs);
    rows.push(CoreMeasurement::nanoseconds(
        "bare B-tree loop of the same draws, a pair".into(),
        least,
    ));
    let mut shuffle = Shuffle(1);
    // Clients choose the names. Formatting them is not part of the measurement.
    let ids = (0..2 * ROUNDS * pairs).map(|n| format_compact!("hold{n}"));
    let ids: Vec<HoldId> = ids.map(HoldId::unchecked).collect();
    let mut unused = ids.iter();
    bench.moving = true;
    for keyed in [false, true] {
        bench.keyed = keyed;
        let figure = measure(ROUNDS, pairs, |_| {
            for _ in 0..pairs {
                let account = &names[shuffle.next(accounts)];
                let hold = unused.next().expect("as many names as pairs");
                bench.run(&place(hold.clone(), account));
                bench.run(&settle(account, hold.clone()));
            }
        });
        let name = if keyed { "place + settle, with idempotency keys" } else { "place + settle" };
        let work = format!("{name}, {accounts} accounts × 10 grants");
        let times_the_least = Some(figure.median / least.median);
        rows.push(CoreMeasurement {
            times_the_least,
            ..CoreMeasurement::nanoseconds(work, figure)
        });
    }
    bench.moving = false;
    let holds = 100_000;
    let before = resident_bytes();
    for number in 0..holds {
        let account = &names[shuffle.next(accounts)];
        bench.keyed = false;
        bench.run(&place(format_compact!("open{number}").into(), account));
    }
    let open = resident_bytes().saturating_sub(before) as f64 / f64::from(holds);
    rows.push(CoreMeasurement::once(
        "memory of an idle account with one grant".into(),
        idle,
        Unit::Bytes,
    ));
    rows.push(CoreMeasurement::once("memory of an open hold".into(), open, Unit::Bytes));
    bench.check()
}

/// Lower bound: the same draws on a bare map of expiry to amount, without named holds or events.
fn least_possible(accounts: usize, pairs: usize) -> Figure {
    let mut pools: Vec<BTreeMap<i64, i64>> =
        (0..accounts).map(|_| (10..20).map(|day| (day, 1_000_000_000)).collect()).collect();
    let mut shuffle = Shuffle(1);
    measure(ROUNDS, pairs, |_| {
        for _ in 0..pairs {
            let pool = &mut pools[shuffle.next(accounts)];
            let mut left = HELD;
            let mut taken = Vec::with_capacity(2);
            while left > 0 {
                let mut first = pool.first_entry().expect("a pool has more credits than are drawn");
                let amount = left.min(*first.get());
                *first.get_mut() -= amount;
                taken.push((*first.key(), amount));
                left -= amount;
                if *first.get() == 0 {
                    first.remove();
                }
            }
            let (day, _) = taken.pop().expect("the hold is not empty");
            *pool.entry(day).or_default() += HELD - CHARGED;
        }
    })
}

/// Measures add, consume and balance. Returns the median nanoseconds of each.
fn packs(
    rows: &mut Vec<CoreMeasurement>,
    packs: usize,
    expiries: usize,
    spanned: usize,
) -> Result<[f64; 3], BenchError> {
    let mut bench = Bench::new();
    let name = AccountPath::from("acme");
    bench.run(&world::open(&name, AccountKind::Org));
    let first = packs / 2;
    for number in 0..first {
        bench.grant(
            format_compact!("g{number}").into(),
            &name,
            1000,
            1 + (number % expiries) as i64,
        );
    }
    let per_round = (packs - first) / ROUNDS;
    let mut number = first;
    let add = measure(ROUNDS, per_round, |_| {
        for _ in 0..per_round {
            bench.grant(
                format_compact!("g{number}").into(),
                &name,
                1000,
                1 + (number % expiries) as i64,
            );
            number += 1;
        }
    });
    let account = bench.ledger.find_account("acme").expect("it was opened");
    let balances = 1000;
    let balance = measure(ROUNDS, balances, |_| {
        for _ in 0..balances {
            std::hint::black_box(bench.ledger.balance(account, &Context::default()));
        }
    });
    let amount = spanned as i64 * 1000;
    let consume = measure(ROUNDS, 1, |round| {
        bench.run(&Command::Charge(Charge {
            id: format_compact!("charge{round}").into(),
            account: name.clone(),
            amount: micros(amount),
            allow_partial: false,
            context: Context::default(),
            effective_at: None,
        }));
    });
    let what = format!("{packs} packs over {expiries} expiries");
    rows.push(CoreMeasurement::nanoseconds(format!("{what}: add"), add));
    rows.push(CoreMeasurement::nanoseconds(
        format!("{what}: consume spanning {spanned} packs"),
        consume,
    ));
    rows.push(CoreMeasurement::nanoseconds(format!("{what}: balance"), balance));
    bench.check()?;
    Ok([add.median, consume.median, balance.median])
}

fn deep(rows: &mut Vec<CoreMeasurement>, pairs: usize) -> Result<(), BenchError> {
    let mut bench = Bench::new();
    let mut path = AccountPath::from("acme");
    bench.run(&world::open(&path, AccountKind::Org));
    for level in 0..8 {
        if level > 0 {
            path = format_compact!("{path}:team{level}").into();
            bench.run(&world::open(&path, AccountKind::Team));
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
    let tenant = AccountPath::from("acme");
    bench.grant("g".into(), &tenant, i64::MAX / 4, 300);
    let mut number = 0;
    let figure = measure(ROUNDS, pairs, |_| {
        for _ in 0..pairs {
            let hold = HoldId::unchecked(format_compact!("hold{number}"));
            number += 1;
            bench.run(&place(hold.clone(), &path));
            bench.run(&settle(&tenant, hold));
        }
    });
    let work = "place + settle under 8 levels with a hard budget each";
    rows.push(CoreMeasurement::nanoseconds(work.into(), figure));
    bench.check()
}
