//! Spending, series and totals against a fold of the entries.

use std::collections::BTreeMap;

use bursar_core::ledger::Event;
use bursar_core::ledger::command::{Command, Policy};
use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;
use bursar_history::query::{EntriesOf, Interval, Metric, SpendBy, SpenderTotals, whole_hours};
use bursar_history::{Entry, EntryType, History, Sqlite};

use crate::jobs;
use crate::support::{TempDir, accounts, all_entries, fed};
use crate::traffic::World;

const HOUR_MS: i64 = 3_600_000;

/// The factor by which an entry changes what was spent, written down independently.
fn spends(kind: EntryType) -> i128 {
    match kind {
        EntryType::Captured | EntryType::Charged | EntryType::Collected => 1,
        EntryType::Refunded => -1,
        _ => 0,
    }
}

pub(crate) fn is_within(path: &str, root: &str) -> bool {
    path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with(':'))
}

/// A world with holds, charges, refunds and jobs of two regions.
pub(crate) fn world(seed: u64) -> World {
    let mut world = World::after(seed, 500);
    world.perform(&Command::SetPolicy(Policy::default()));
    jobs::run_jobs(&mut world, 500);
    world
}

/// The region of each hold of a job, from the events alone.
fn regions(world: &World) -> BTreeMap<String, String> {
    let (mut cells, mut last, mut regions) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for event in world.decided.iter().flat_map(|decided| decided.events()) {
        match event {
            Event::RegionOpened { cell, region, .. } => {
                cells.insert(*cell, region.to_string());
            }
            Event::HoldPlaced(placed) => {
                let job: Option<JobNo> = placed.job;
                last.extend(job.map(|job| (job, placed.id.to_string())));
            }
            Event::AttemptConfirmed(confirmed) => {
                let cell = confirmed.cell.and_then(|cell| cells.get(&cell));
                if let (Some(hold), Some(region)) = (last.get(&confirmed.job), cell) {
                    regions.insert(hold.clone(), region.clone());
                }
            }
            _ => {}
        }
    }
    regions
}

/// Sums of spending entries by group and period.
pub(crate) fn folded<'a>(
    entries: &'a [Entry],
    root: &str,
    starts: &[Timestamp],
    group: impl Fn(&'a Entry) -> Option<String>,
) -> BTreeMap<Option<String>, Vec<i128>> {
    let mut sums: BTreeMap<Option<String>, Vec<i128>> = BTreeMap::new();
    for entry in entries {
        let spender = entry.spender.as_deref().unwrap_or_default();
        let factor = spends(entry.kind);
        let period = starts.iter().rposition(|start| *start <= entry.at);
        let Some(period) = period.filter(|_| factor != 0 && is_within(spender, root)) else {
            continue;
        };
        let sums = sums.entry(group(entry)).or_insert_with(|| vec![0; starts.len()]);
        sums[period] += factor * entry.amount;
    }
    sums.retain(|_, sums| sums.iter().any(|sum| *sum != 0));
    sums
}

/// The account itself, or the account directly below `root` that contains the spender.
pub(crate) fn branch(spender: &str, root: &str) -> String {
    let below = spender.strip_prefix(root).and_then(|rest| rest.strip_prefix(':'));
    let Some(below) = below else { return root.to_owned() };
    format!("{root}:{}", below.split(':').next().unwrap_or_default())
}

/// A group of a report, and the same group from an entry.
type Grouping<'a> = (SpendBy, Box<dyn Fn(&Entry) -> Option<String> + 'a>);

fn groupings<'a>(root: &'a str, regions: &'a BTreeMap<String, String>) -> Vec<Grouping<'a>> {
    let in_region = |entry: &Entry| regions.get(entry.hold.as_deref()?).cloned();
    vec![
        (SpendBy::None, Box::new(|_: &Entry| None)),
        (SpendBy::Account, Box::new(|entry: &Entry| entry.spender.clone())),
        (SpendBy::Subtree, Box::new(|entry: &Entry| Some(branch(entry.spender.as_deref()?, root)))),
        (SpendBy::Job, Box::new(|entry: &Entry| entry.job.clone())),
        (
            SpendBy::Label("team".to_owned()),
            Box::new(|entry: &Entry| {
                let number: u32 = entry.job.as_deref()?.strip_prefix("job-")?.parse().ok()?;
                Some(format!("team-{}", number % 3))
            }),
        ),
        (
            SpendBy::Region,
            Box::new(move |entry: &Entry| entry.job.as_ref().and_then(|_| in_region(entry))),
        ),
    ]
}

#[test]
fn spending_by_period_and_group_is_the_fold_of_the_entries() {
    let directory = TempDir::new();
    let mut compared = 0;
    for seed in 60..64 {
        let world = world(seed);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 70);
        let entries = all_entries(&history, EntriesOf::Everything, 1000);
        let regions = regions(&world);
        let first = world.clock.plus_millis(-400 * HOUR_MS);
        let (from, to) = whole_hours((first, world.clock.plus_millis(1)));
        let entries: Vec<Entry> = entries.into_iter().filter(|entry| entry.at >= from).collect();
        for interval in [Interval::Hour, Interval::Day, Interval::Week, Interval::Month] {
            let starts = interval.starts((from, to), 1000).expect("few periods");
            for (number, path) in accounts(&world.ledger) {
                for (by, group) in groupings(&path, &regions) {
                    let expected = folded(&entries, &path, &starts, &group);
                    let report = history.spend(number, &by, (&starts, to), 1000).expect("a report");
                    let total: i128 = expected.values().flatten().sum();
                    assert_eq!(report.total.total, total, "{path} {by:?}");
                    assert_eq!(report.other.total, 0, "{path} {by:?}");
                    let found: BTreeMap<_, _> =
                        report.lines.into_iter().map(|line| (line.key, line.amounts)).collect();
                    // Holds outside jobs may name a region in their context.
                    if by != SpendBy::Region {
                        assert_eq!(found, expected, "{path} {by:?} {interval:?}");
                    } else {
                        for (key, amounts) in expected.iter().filter(|(key, _)| key.is_some()) {
                            let more = found[key].iter().zip(amounts).any(|(a, b)| a != b);
                            compared += usize::from(!more);
                        }
                    }
                    compared += expected.len();
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn a_short_report_sums_the_groups_that_it_leaves_out() {
    let directory = TempDir::new();
    let world = world(65);
    let history = fed(&directory.file("short.db"), &world, 70);
    let (from, to) = whole_hours((world.clock.plus_millis(-400 * HOUR_MS), world.clock));
    let starts = Interval::Day.starts((from, to), 100).expect("few days");
    let whole = history.spend(0, &SpendBy::Job, (&starts, to), 1000).expect("a report");
    let short = history.spend(0, &SpendBy::Job, (&starts, to), 2).expect("a report");
    assert!(whole.lines.len() > 3 && short.lines == whole.lines[..2]);
    let others: i128 = whole.lines[2..].iter().map(|line| line.total).sum();
    assert_eq!((short.other.total, short.total), (others, whole.total));
}

#[test]
fn series_at_any_instant_are_the_fold_of_the_entries() {
    let directory = TempDir::new();
    let mut changes = 0;
    for seed in 70..73 {
        let world = world(seed);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 90);
        let first = world.decided[0].at;
        let length = world.clock.millis_since(first);
        let instants: Vec<Timestamp> =
            (0..=60).map(|step| first.plus_millis(length * step / 60)).collect();
        for (number, path) in accounts(&world.ledger) {
            let entries = all_entries(&history, EntriesOf::Account(number), 1000);
            for metric in [Metric::Available, Metric::Held, Metric::Spent, Metric::Expired] {
                let factor = |kind: EntryType| match metric {
                    Metric::Available => kind.effect().0,
                    Metric::Held => kind.effect().1,
                    Metric::Spent => spends(kind),
                    Metric::Expired => match kind {
                        EntryType::Expired | EntryType::Cut => 1,
                        EntryType::ExpiryReversed => -1,
                        _ => 0,
                    },
                };
                let expected: Vec<i128> = instants
                    .iter()
                    .map(|at| {
                        let past = entries.iter().filter(|entry| entry.at <= *at);
                        past.map(|entry| factor(entry.kind) * entry.amount).sum()
                    })
                    .collect();
                let found = history.series(number, metric, &instants).expect("amounts");
                assert_eq!(found, expected, "{path} {metric:?}");
                changes += found.windows(2).filter(|pair| pair[0] != pair[1]).count();
            }
        }
    }
    assert!(changes > 300, "{changes}");
}

#[test]
fn totals_of_spenders_are_the_fold_of_their_entries() {
    let directory = TempDir::new();
    for seed in 80..83 {
        let world = world(seed);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 40);
        compare_totals(&history, &world);
    }
}

fn compare_totals(history: &History<Sqlite>, world: &World) {
    let entries = all_entries(history, EntriesOf::Everything, 1000);
    for (number, path) in accounts(&world.ledger) {
        let mut expected = SpenderTotals::default();
        for entry in &entries {
            let spender = entry.spender.as_deref().filter(|spender| is_within(spender, &path));
            if spender.is_some() {
                expected.held += entry.kind.effect().1 * entry.amount;
                expected.spent += spends(entry.kind) * entry.amount;
            }
        }
        assert_eq!(history.spender_totals(number), Ok(expected), "{path}");
    }
}
