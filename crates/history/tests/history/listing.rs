//! Filtered entries, exact spending, and lists of charges, refunds and transfers, against a fold of
//! all entries and events.

use std::collections::{BTreeMap, BTreeSet};

use bursar_core::ledger::Event;
use bursar_core::ledger::event::total;
use bursar_core::ledger::holds::hold::{Hold, HoldKind, HoldState};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::refusal::Resource;
use bursar_core::time::Timestamp;
use bursar_history::query::{
    EntriesOf, EntryFilter, Interval, ListPart, PastMovement, RefundsOf, SpendBy,
};
use bursar_history::{Cursor, Entry, EntryType, History, HistoryError, Page, Sqlite};

use crate::spending::{branch, folded, is_within, world};
use crate::support::{ALWAYS, TempDir, accounts, all_entries, fed};
use crate::traffic::World;

const HOUR_MS: i64 = 3_600_000;

/// All rows of a list, page by page.
fn all<T>(
    limit: u32,
    page: impl Fn(Option<Cursor>, u32) -> Result<Page<T>, HistoryError>,
) -> Vec<T> {
    let (mut rows, mut cursor) = (Vec::new(), None);
    loop {
        let found = page(cursor, limit).expect("a page");
        rows.extend(found.data);
        cursor = found.next;
        if cursor.is_none() {
            return rows;
        }
    }
}

#[test]
fn filtered_entries_are_those_of_all_entries_that_the_filter_admits() {
    let directory = TempDir::new();
    let mut compared = 0;
    for seed in 90..93 {
        let world = world(seed);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 60);
        let everything = all_entries(&history, EntriesOf::Everything, 1000);
        let middle = everything[everything.len() / 2].at;
        let jobs: Vec<_> = world.ledger.jobs_before(None).take(4).collect();
        let named = |name: &str| {
            let number = jobs.iter().find(|(_, job)| job.order.id.as_str() == name);
            number.map(|(number, _)| *number)
        };
        let job = jobs.first().map(|(_, job)| job.order.id.to_string());
        let kinds = vec![EntryType::Captured, EntryType::Refunded, EntryType::Charged];
        for (number, path) in accounts(&world.ledger) {
            for (kinds, spender, job, period) in [
                (vec![], None, None, ALWAYS),
                (kinds.clone(), None, None, (middle, Timestamp::MAX)),
                (vec![], Some("acme:nlp"), None, ALWAYS),
                (kinds.clone(), Some(path.as_str()), None, (Timestamp::MIN, middle)),
                (vec![], None, job.clone(), ALWAYS),
            ] {
                let admits = |entry: &&Entry| {
                    (kinds.is_empty() || kinds.contains(&entry.kind))
                        && (period.0..=period.1).contains(&entry.at)
                        && job.as_ref().is_none_or(|job| entry.job.as_ref() == Some(job))
                        && spender.is_none_or(|wanted| {
                            entry.spender.as_deref().is_some_and(|path| is_within(path, wanted))
                        })
                };
                let own = |entry: &&Entry| entry.account == path;
                let spent = |entry: &&Entry| entry.spender.as_ref() == Some(&path);
                let filter = EntryFilter {
                    kinds: kinds.clone(),
                    spender: spender.map(str::to_owned),
                    job: job.as_deref().and_then(named),
                    grant: None,
                };
                let filtered = |of: EntriesOf| {
                    all(3, |cursor, limit| {
                        history.filtered_entries(of, &filter, period, cursor, limit)
                    })
                };
                let expected = |wanted: &dyn Fn(&&Entry) -> bool| {
                    let found = everything.iter().filter(admits).filter(wanted);
                    found.cloned().collect::<Vec<Entry>>()
                };
                let either = expected(&|entry| own(entry) || spent(entry));
                compared += either.len();
                assert_eq!(filtered(EntriesOf::Either(number)), either, "{path} {filter:?}");
                assert_eq!(filtered(EntriesOf::Account(number)), expected(&own), "{path}");
                assert_eq!(filtered(EntriesOf::Spender(number)), expected(&spent), "{path}");
                let below = |other: Option<&str>| other.is_some_and(|one| is_within(one, &path));
                let subtree = expected(&|entry| {
                    below(Some(entry.account.as_str())) || below(entry.spender.as_deref())
                });
                assert_eq!(filtered(EntriesOf::Subtree(number)), subtree, "{path} {filter:?}");
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn spending_between_any_two_instants_is_the_fold_of_the_entries() {
    let directory = TempDir::new();
    let mut compared = 0;
    for seed in 94..97 {
        let world = world(seed);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 70);
        let entries = all_entries(&history, EntriesOf::Everything, 1000);
        let (first, last) = (world.decided[0].at, world.clock);
        let back = |hours: i64, millis: i64| last.plus_millis(-hours * HOUR_MS - millis);
        for (from, to) in [
            (first.plus_millis(1_234_567), last.plus_millis(1)),
            (first.plus_millis(7), back(20, 5)),
            (back(50, 7), back(20, 5)),
            (back(20, 600_000), back(20, 1)),
            (back(21, 0), back(20, 0)),
            (last, last),
        ] {
            let inside: Vec<Entry> =
                entries.iter().filter(|entry| entry.at >= from && entry.at < to).cloned().collect();
            let starts = Interval::Day.starts((from, to), 1000).expect("few days");
            for (number, path) in accounts(&world.ledger) {
                for by in [SpendBy::None, SpendBy::Account, SpendBy::Subtree, SpendBy::Job] {
                    let group = |entry: &Entry| match by {
                        SpendBy::Account => entry.spender.clone(),
                        SpendBy::Subtree => Some(branch(entry.spender.as_deref()?, &path)),
                        SpendBy::Job => entry.job.clone(),
                        _ => None,
                    };
                    let expected = folded(&inside, &path, &starts, group);
                    let found = history.spending(number, &by, (&starts, to), 1000).expect("sums");
                    let lines: BTreeMap<_, _> =
                        found.lines.into_iter().map(|line| (line.key, line.amounts)).collect();
                    compared += expected.len();
                    assert_eq!(lines, expected, "{path} {by:?} {from} {to}");
                    assert_eq!(found.total.total, expected.values().flatten().sum::<i128>());
                }
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

/// Entries of other accounts in the first and the last hour do not count for an account's statement.
#[test]
fn parts_of_hours_are_bounded_by_the_entries_of_the_account_alone() {
    let directory = TempDir::new();
    let world = world(94);
    let history = fed(&directory.file("parts.db"), &world, 70);
    let entries = all_entries(&history, EntriesOf::Everything, 1000);
    let (mut from, mut pieces, mut answered, mut refused) = (world.decided[0].at, 0, 0, 0);
    // Pieces of 25 minutes contain no whole hour. Something follows each of them.
    while from.plus_millis(HOUR_MS) < world.clock && pieces < 40 {
        let to = from.plus_millis(25 * 60_000);
        let inside: Vec<&Entry> =
            entries.iter().filter(|entry| entry.at >= from && entry.at < to).collect();
        let period = ([from], to);
        from = to;
        if inside.len() < 2 {
            continue;
        }
        pieces += 1;
        for (number, path) in accounts(&world.ledger) {
            let spender = |entry: &Entry| entry.spender.clone().unwrap_or_default();
            let own = inside.iter().filter(|entry| is_within(&spender(entry), &path)).count();
            let within = |most: usize| {
                let starts = (&period.0[..], period.1);
                history.spending_within(number, &SpendBy::Account, starts, 9, most)
            };
            let whole = within(inside.len()).expect("few entries");
            assert_eq!(within(own).expect("its own entries alone count"), whole, "{path}");
            answered += usize::from(own < inside.len());
            if own > 0 && own < inside.len() {
                assert!(within(own - 1).is_err() || own > 1, "{path}");
                refused += usize::from(within(0).is_err());
            }
        }
    }
    assert!(answered > 3 && refused > 0, "{answered} {refused}");
}

/// Groups that only the tables know: whole hours and parts of hours agree.
#[test]
fn parts_of_hours_are_grouped_as_whole_hours_are() {
    let named: usize = [98, 99, 100, 101].map(compare_parts_of_hours).iter().sum();
    assert!(named > 3, "{named}");
}

/// Compares the groups of one world. Returns how many have a name.
fn compare_parts_of_hours(seed: u64) -> usize {
    let directory = TempDir::new();
    let world = world(seed);
    let history = fed(&directory.file("parts.db"), &world, 70);
    let (first, last) = (world.decided[0].at, world.clock);
    let mut named = 0;
    for by in [SpendBy::GpuType, SpendBy::Region, SpendBy::Class, SpendBy::Label("team".to_owned())]
    {
        let mut sums: BTreeMap<Option<String>, i128> = BTreeMap::new();
        let mut from = first;
        while from <= last {
            // Pieces of 25 minutes cover every hour by its parts.
            let to = from.plus_millis(25 * 60_000);
            let part = history.spending(0, &by, (&[from], to), 1000).expect("sums");
            for line in part.lines {
                *sums.entry(line.key).or_default() += line.total;
            }
            from = to;
        }
        sums.retain(|_, sum| *sum != 0);
        let whole = history.spending(0, &by, (&[first], from), 1000).expect("sums");
        let whole: BTreeMap<_, _> =
            whole.lines.into_iter().map(|line| (line.key, line.total)).collect();
        assert_eq!(sums, whole, "{by:?}");
        named += whole.keys().flatten().count();
    }
    named
}

/// A charge, refund or transfer as the events have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    at: Timestamp,
    name: String,
    accounts: Vec<String>,
    amount: u64,
    note: (Option<String>, Option<String>),
}

fn listed(world: &World, wanted: Resource) -> Vec<Listed> {
    let path = |account: AccountNo| world.ledger.account(account).path.to_string();
    let (mut spenders, mut all) = (BTreeMap::new(), Vec::new());
    for decided in &world.decided {
        for event in decided.events() {
            let (what, name, accounts, amount, note) = match event {
                Event::HoldPlaced(placed) => {
                    spenders.insert(placed.hold, placed.account);
                    let accounts = vec![path(placed.account)];
                    (Resource::Hold, placed.id.as_str(), accounts, total(&placed.pieces), None)
                }
                Event::HoldRestored { hold, record } => {
                    spenders.insert(*hold, record.hold.account);
                    continue;
                }
                Event::Charged(charged) => {
                    spenders.insert(charged.hold, charged.account);
                    let accounts = vec![path(charged.account)];
                    (Resource::Charge, charged.id.as_str(), accounts, total(&charged.pieces), None)
                }
                Event::Refunded { movement, hold, note } => {
                    let accounts = vec![path(spenders[hold])];
                    let amount = total(&movement.pieces);
                    (Resource::Refund, movement.id.as_str(), accounts, amount, note.as_ref())
                }
                Event::CreditsMoved { movement, from, to, note } => {
                    let accounts = vec![path(*from), path(*to)];
                    (
                        Resource::Transfer,
                        movement.id.as_str(),
                        accounts,
                        total(&movement.pieces),
                        note.as_ref(),
                    )
                }
                _ => continue,
            };
            let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
            let note = note.map(|note| (text(&note.reason), text(&note.reference)));
            if what == wanted {
                let (name, note) = (name.to_string(), note.unwrap_or_default());
                all.push(Listed { at: decided.at, name, accounts, amount, note });
            }
        }
    }
    all.reverse();
    all
}

fn shown(made: PastMovement) -> Listed {
    let accounts = [made.account].into_iter().chain(made.target).collect();
    let amount = made.parts.iter().map(|pieces| total(pieces)).sum();
    let note = (made.reason, made.reference);
    Listed { at: made.at, name: made.name, accounts, amount, note }
}

fn compare_lists(history: &History<Sqlite>, world: &World) -> usize {
    let mut compared = 0;
    let middle = world.decided[world.decided.len() / 2].at;
    let periods = [ALWAYS, (middle, Timestamp::MAX), (Timestamp::MIN, middle)];
    let roots = accounts(&world.ledger).into_iter().map(|(number, path)| (Some(number), path));
    let roots: Vec<_> = roots.chain([(None, String::new())]).collect();
    for (number, root) in &roots {
        for period in periods {
            let part = |after, limit| ListPart { period, after, limit };
            let expected = |what| {
                let inside = |one: &Listed| {
                    (period.0..=period.1).contains(&one.at)
                        && (root.is_empty()
                            || one.accounts.iter().any(|path| is_within(path, root)))
                };
                listed(world, what).into_iter().filter(inside).collect::<Vec<Listed>>()
            };
            let charges = all(2, |after, limit| history.charges(*number, part(after, limit)));
            let names: Vec<_> =
                charges.iter().map(|one| (one.id.to_string(), one.placed_at)).collect();
            let wanted = expected(Resource::Charge);
            compared += wanted.len();
            assert_eq!(names, wanted.into_iter().map(|w| (w.name, w.at)).collect::<Vec<_>>());
            let refunds = all(2, |after, limit| history.refunds(*number, None, part(after, limit)));
            let refunds: Vec<_> = refunds.into_iter().map(shown).collect();
            compared += refunds.len();
            assert_eq!(refunds, expected(Resource::Refund), "{root}");
            let moved = all(2, |after, limit| history.transfers(*number, part(after, limit)));
            let moved: Vec<_> = moved.into_iter().map(shown).collect();
            compared += moved.len();
            assert_eq!(moved, expected(Resource::Transfer), "{root}");
        }
    }
    compared
}

/// What is shown of a hold that is in memory.
type Live = (String, Timestamp, HoldState, u32);

#[test]
fn lists_of_holds_have_each_in_its_present_state() {
    let directory = TempDir::new();
    let (mut closed, mut open) = (0, 0);
    for seed in 110..115 {
        let world = World::after(seed, 900);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 80);
        let live =
            world.ledger.holds_from(0, u32::MAX).filter(|(_, hold)| hold.kind == HoldKind::Hold);
        let live: Vec<(AccountNo, Live)> = live
            .map(|(_, hold)| {
                (hold.account, (hold.id.to_string(), hold.placed_at, hold.state, hold.account.0))
            })
            .collect();
        let roots = accounts(&world.ledger).into_iter().map(|(number, path)| (Some(number), path));
        for (number, root) in roots.chain([(None, String::new())]) {
            let page = |after, limit, wanted: Option<HoldState>| {
                let admits = |hold: &Hold| wanted.is_none_or(|wanted| wanted == hold.state);
                history.holds(number, (after, limit), admits)
            };
            let all_of = |wanted| all(3, |after, limit| page(after, limit, wanted));
            let names: Vec<_> =
                all_of(None).iter().map(|hold| (hold.id.to_string(), hold.placed_at)).collect();
            let within = |path: &String| root.is_empty() || is_within(path, &root);
            let wanted = listed(&world, Resource::Hold).into_iter();
            let wanted = wanted.filter(|one| one.accounts.iter().any(within));
            assert_eq!(names, wanted.map(|one| (one.name, one.at)).collect::<Vec<_>>(), "{root}");
            for state in
                [HoldState::Open, HoldState::Settled, HoldState::Released, HoldState::Lapsed]
            {
                let found = all_of(Some(state)).into_iter();
                let found: BTreeSet<Live> = found
                    .map(|hold| (hold.id.to_string(), hold.placed_at, hold.state, hold.account.0))
                    .collect();
                let expected = live.iter().filter(|(account, live)| {
                    live.2 == state && within(&world.ledger.account(*account).path.to_string())
                });
                let expected: BTreeSet<Live> = expected.map(|(_, live)| live.clone()).collect();
                if state == HoldState::Open {
                    open += expected.len();
                    assert_eq!(found, expected, "{root}");
                } else {
                    closed += expected.len();
                    // Those that the ledger has forgotten are there too.
                    assert!(found.is_superset(&expected), "{root} {state:?}");
                }
            }
        }
    }
    assert!(open > 50 && closed > 50, "{open} {closed}");
}

#[test]
fn lists_of_charges_refunds_and_transfers_are_those_of_the_events() {
    let directory = TempDir::new();
    let mut with_reason = 0;
    for seed in 100..103 {
        let world = World::after(seed, 900);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 80);
        let compared = compare_lists(&history, &world);
        assert!(compared > 100, "{compared}");
        let refunds = all(50, |after, limit| {
            history.refunds(None, None, ListPart { period: ALWAYS, after, limit })
        });
        with_reason += refunds.iter().filter(|refund| refund.reason.is_some()).count();
        for refund in refunds {
            let of = refund.of.as_ref().expect("a refund is of something");
            let found = history.movement(refund.tenant, Resource::Refund, &refund.name);
            assert_eq!(found, Ok(Some(refund.clone())));
            let same = RefundsOf::Hold(of.name.clone());
            let other = RefundsOf::Charge(of.name.clone());
            let part = ListPart { period: ALWAYS, after: None, limit: 1000 };
            let count = |of: &RefundsOf| {
                let found = history.refunds(None, Some(of), part).expect("refunds").data;
                found.iter().filter(|found| found.name == refund.name).count()
            };
            assert_eq!(count(&same) + count(&other), 1, "{refund:?}");
        }
        assert_eq!(history.movement(0, Resource::Refund, "no-such"), Ok(None));
    }
    assert!(with_reason > 3, "{with_reason}");
}
