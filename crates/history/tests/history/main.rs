//! Compares history with its ledger: after any traffic, at any instant, to the micro-credit.

#[path = "../../../journal/tests/support/temp_dir.rs"]
mod temp_dir;

#[path = "../../../journal/tests/support/traffic.rs"]
mod traffic;

#[path = "../../../journal/tests/support/jobs.rs"]
mod jobs;

mod feeding;
mod listing;
mod spending;
mod support;

use std::collections::{BTreeMap, BTreeSet};

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{AccountKind, BudgetPeriod, BudgetUnit, Command, Context};
use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, HoldNo};
use bursar_core::ledger::{Event, Ledger};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_history::query::{AsOf, AuditFilter, EntriesOf, SpendBy, TopBy};
use bursar_history::{Entry, EntryType, FedRecord, History, HistoryError, Sqlite};
use support::{TempDir, accounts, all_entries, bodies, fed, feed};
use traffic::World;

#[test]
fn balances_entries_and_pages_agree_with_the_ledger() {
    let directory = TempDir::new();
    for seed in 0..6 {
        let world = World::after(seed, 700);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 50);
        for (number, path) in accounts(&world.ledger) {
            assert_eq!(history.account_number(&path), Ok(Some(number)));
            let own = world.ledger.account(AccountNo(number));
            let now = history.balance_as_of(number, world.clock).expect("a balance");
            assert_eq!(now, AsOf { available: own.available, held: own.held }, "{path}");
            let entries = all_entries(&history, EntriesOf::Account(number), 7);
            assert_eq!(entries, all_entries(&history, EntriesOf::Account(number), 1000));
            let mut sum = AsOf::default();
            for entry in entries.iter().rev() {
                let (available, held) = entry.kind.effect();
                sum.available += available * entry.amount;
                sum.held += held * entry.amount;
                let after = AsOf { available: entry.available_after, held: entry.held_after };
                assert_eq!(sum, after, "{entry:?}");
                assert_eq!(entry.account, path);
            }
            assert_eq!(sum, now);
        }
        let everything = all_entries(&history, EntriesOf::Everything, 500);
        let numbers: Vec<u64> = everything.iter().rev().map(|entry| entry.entry).collect();
        assert_eq!(numbers, (1..=everything.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn entries_and_spending_by_job_agree_with_the_ledger() {
    let directory = TempDir::new();
    let mut world = World::new(5);
    world.perform(&Command::SetPolicy(bursar_core::ledger::command::Policy::default()));
    jobs::run_jobs(&mut world, 800);
    let history = fed(&directory.file("jobs.db"), &world, 50);
    for (number, path) in accounts(&world.ledger) {
        let own = world.ledger.account(AccountNo(number));
        let now = history.balance_as_of(number, world.clock).expect("a balance");
        assert_eq!(now, AsOf { available: own.available, held: own.held }, "{path}");
    }
    let mut spent = BTreeMap::new();
    for (number, job) in world.ledger.jobs_before(None) {
        let name = job.order.id.as_str();
        assert_eq!(history.job_number(0, name), Ok(Some(number)), "{name}");
        let entries = all_entries(&history, EntriesOf::Job(number), 7);
        assert!(entries.iter().all(|entry| entry.job.as_deref() == Some(name)));
        let captured = entries.iter().filter(|entry| entry.kind == EntryType::Captured);
        let captured: i128 = captured.map(|entry| entry.amount).sum();
        let ends = job.attempts.iter().filter_map(|attempt| attempt.end);
        let charged: u64 = ends.map(|end| end.charged - end.uncollected).sum();
        assert_eq!(captured, i128::from(charged + world.ledger.captured_so_far(job)), "{name}");
        let decisions = history.audit(AuditFilter::Job(number), None, 1000).expect("decisions");
        let first = decisions.data.last().expect("it was submitted");
        assert!(first.events.iter().any(|event| event == "job_submitted"), "{first:?}");
        if captured > 0 {
            spent.insert(name.to_owned(), captured);
        }
    }
    assert!(spent.len() > 5, "{} jobs spent something", spent.len());
    let period = (&[Timestamp::MIN][..], Timestamp::MAX);
    let report = history.spend(0, &SpendBy::Job, period, 1000).expect("a report");
    let listed: BTreeMap<_, _> =
        report.lines.iter().filter_map(|line| Some((line.key.clone()?, line.total))).collect();
    assert_eq!(listed, spent);
    assert!(report.lines.is_sorted_by(|one, other| one.total >= other.total));
}

/// A long-lived hold has more entries than are stored with it.
#[test]
fn entries_of_a_hold_and_of_a_job_are_those_that_name_it() {
    let directory = TempDir::new();
    let mut with_jobs = World::new(6);
    with_jobs.perform(&Command::SetPolicy(bursar_core::ledger::command::Policy::default()));
    jobs::run_jobs(&mut with_jobs, 800);
    let mut with_long_holds = World::after(6, 500);
    extend_all(&mut with_long_holds, 50);
    for (name, world, least) in [("jobs", with_jobs, 1), ("long", with_long_holds, 50)] {
        for at_once in [1, 90, 100_000] {
            let file = directory.file(&format!("{name}-{at_once}.db"));
            let most = compare_named(&fed(&file, &world, at_once));
            assert!(most > least, "{most} entries of one hold or job");
        }
    }
}

/// Extends every open hold by one micro-credit, `times` times.
fn extend_all(world: &mut World, times: u32) {
    let open = (0..2000).filter_map(|number| world.ledger.hold(HoldNo(number)));
    let open: Vec<_> = open
        .filter(|hold| hold.is_open())
        .map(|hold| (world.ledger.account(hold.account).path.clone(), hold.id.clone()))
        .collect();
    for _ in 0..times {
        for (path, hold) in &open {
            let tenant = path.split(':').next().unwrap_or(path).into();
            let (hold, amount) = (hold.clone(), Credits::from_micros(1));
            let (gpu_ms, ttl_ms) = (0, None);
            world.perform(&Command::ExtendHold { tenant, hold, amount, gpu_ms, ttl_ms });
        }
    }
}

/// Compares the entries of every hold and job with all entries that name it. Returns the highest
/// number of entries of one.
fn compare_named(history: &History<Sqlite>) -> usize {
    let everything = all_entries(history, EntriesOf::Everything, 1000);
    let mut by_name: BTreeMap<(bool, &str), Vec<&Entry>> = BTreeMap::new();
    for entry in &everything {
        let names = [(false, &entry.hold), (true, &entry.job)];
        for (is_job, name) in names {
            let Some(name) = name else { continue };
            by_name.entry((is_job, name)).or_default().push(entry);
        }
    }
    for ((is_job, name), wanted) in &by_name {
        let tenant = wanted[0].account.split(':').next().unwrap_or_default();
        let tenant = history.account_number(tenant).expect("an answer").expect("a tenant");
        let of = if *is_job {
            history.job_number(tenant, name).expect("an answer").map(EntriesOf::Job)
        } else {
            let kind = if name.starts_with("charge") { HoldKind::Charge } else { HoldKind::Hold };
            let found = history.archived(tenant, kind, name).expect("an answer");
            found.map(|found| EntriesOf::Hold(found.hold))
        };
        for limit in [7, 1000] {
            let entries = all_entries(history, of.expect("it is known"), limit);
            assert_eq!(&entries.iter().collect::<Vec<_>>(), wanted, "{name}");
        }
    }
    by_name.values().map(Vec::len).max().unwrap_or(0)
}

#[test]
fn traffic_makes_every_type_of_entry() {
    let directory = TempDir::new();
    let mut seen = BTreeSet::new();
    for seed in 0..6 {
        let history = fed(&directory.file(&format!("{seed}.db")), &World::after(seed, 900), 200);
        let entries = all_entries(&history, EntriesOf::Everything, 1000);
        seen.extend(entries.iter().map(|entry| entry.kind));
    }
    assert_eq!(seen, BTreeSet::from(EntryType::ALL));
}

#[test]
fn balances_are_exact_at_every_past_instant() {
    let directory = TempDir::new();
    let mut world = World::new(11);
    let mut remembered: Vec<(Timestamp, Vec<AsOf>)> = Vec::new();
    for _ in 0..400 {
        world.step();
        let balance = |number| {
            let account = world.ledger.account(AccountNo(number));
            AsOf { available: account.available, held: account.held }
        };
        let balances: Vec<AsOf> = (0..9).map(balance).collect();
        match remembered.last_mut().filter(|(at, _)| *at == world.clock) {
            Some(last) => last.1 = balances,
            None => remembered.push((world.clock, balances)),
        }
    }
    let history = fed(&directory.file("history.db"), &world, 64);
    for (at, balances) in &remembered {
        for (number, expected) in (0..).zip(balances) {
            assert_eq!(history.balance_as_of(number, *at).as_ref(), Ok(expected));
        }
    }
    for pair in remembered.chunks(37) {
        let [(from, before), .., (to, after)] = pair else { continue };
        for number in 0..9 {
            let later = from.plus_millis(1);
            let statement = history.statement(number, later, *to).expect("it adds up");
            let index = number as usize;
            assert_eq!((statement.opening, statement.closing), (before[index], after[index]));
            assert_eq!(statement.derived_closing(), statement.closing);
        }
    }
}

#[test]
fn archived_holds_match_the_ledger_and_can_be_restored() {
    let directory = TempDir::new();
    let (mut compared, mut revived) = (0, 0);
    for seed in 9..14 {
        let mut world = World::after(seed, 600);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 100);
        compared += compare_with_live(&history, &world.ledger);
        // Days later the ledger has forgotten them all; history has not.
        world.clock = world.clock.plus_millis(20 * 24 * 3_600_000);
        world.advance();
        revived += revive_all(&history, &mut world);
        let again = fed(&directory.file(&format!("{seed}-again.db")), &world, 1000);
        assert_eq!(again.position(), Ok(world.decided.len() as u64));
        compared += compare_with_live(&again, &world.ledger);
    }
    assert!(compared > 50 && revived > 50, "{compared} compared, {revived} revived");
}

#[test]
fn an_archived_hold_that_does_not_match_its_digest_is_an_error() {
    let directory = TempDir::new();
    let world = World::after(9, 600);
    let file = directory.file("changed.db");
    let history = fed(&file, &world, 100);
    let mut holds = (0..2000).filter_map(|number| world.ledger.hold(HoldNo(number)));
    let hold = holds.find(|hold| !hold.is_open()).expect("some hold is closed");
    let tenant = world.ledger.account(hold.account).tenant;
    let look = || history.archived(tenant.0, hold.kind, &hold.id);
    assert!(look().is_ok_and(|found| found.is_some_and(|found| found.record.hold == *hold)));
    let other = rusqlite::Connection::open(&file).expect("the file is there");
    let named = format!("the record of `{}` does not match its digest", hold.id);
    let keep = "CREATE TABLE kept AS SELECT * FROM holds";
    other.execute(keep, []).expect("the table is there");
    for changed in [
        "UPDATE holds SET digest = zeroblob(32)",
        "UPDATE holds SET record = CAST(record || x'00' AS BLOB)",
    ] {
        assert!(other.execute(changed, []).expect("the table is there") > 0);
        let error = look().expect_err("the digest is another one");
        assert_eq!(error, HistoryError::Inconsistent(named.clone()));
        let back = "INSERT OR REPLACE INTO holds SELECT * FROM kept";
        other.execute(back, []).expect("the table is there");
        assert!(look().is_ok());
    }
}

#[test]
fn an_altered_record_is_found_before_a_change_gives_it_a_new_digest() {
    let directory = TempDir::new();
    let world = World::after(9, 600);
    let file = directory.file("altered.db");
    let (first, rest) = world.decided.split_at(world.decided.len() / 2);
    let mut history = History::new(Sqlite::open(&file).expect("a new file"));
    feed(&mut history, first, 100);
    drop(history);
    let other = rusqlite::Connection::open(&file).expect("the file is there");
    let altered = "UPDATE holds SET record = CAST(record || x'00' AS BLOB)";
    assert!(other.execute(altered, []).expect("the table is there") > 0);
    drop(other);
    let mut history = History::new(Sqlite::open(&file).expect("the same file"));
    let decoded: Vec<_> = rest.iter().map(bodies).collect();
    let records: Vec<FedRecord<'_>> = (first.len() as u64 + 1..)
        .zip(rest.iter().zip(&decoded))
        .map(|(position, (decided, bodies))| FedRecord { position, at: decided.at, bodies })
        .collect();
    let error = history.apply(&records).expect_err("some hold of the first half changes");
    assert!(error.to_string().contains("does not match its digest"), "{error}");
}

/// Every hold in the ledger must be in history, completely. Returns how many there are.
fn compare_with_live(history: &History<Sqlite>, ledger: &Ledger) -> u32 {
    let mut compared = 0;
    for number in (0..2000).map(HoldNo) {
        let Some(hold) = ledger.hold(number).cloned() else { continue };
        let tenant = ledger.account(hold.account).tenant;
        let found = history.archived(tenant.0, hold.kind, &hold.id).expect("an answer");
        let found = found.expect("history forgets nothing");
        let archived = ArchivedHold { hold, counted: false };
        assert_eq!(found.record, archived);
        compared += 1;
    }
    compared
}

/// Restores every archived hold in the ledger. Returns how many it accepted.
fn revive_all(history: &History<Sqlite>, world: &mut World) -> u32 {
    let mut revived = 0;
    for kind in [HoldKind::Hold, HoldKind::Charge] {
        for number in 0..1500 {
            let name = match kind {
                HoldKind::Hold => format!("hold-{number}"),
                HoldKind::Charge => format!("charge-{number}"),
            };
            let Some(found) = history.archived(0, kind, &name).expect("an answer") else {
                continue;
            };
            if found.record.hold.is_open() {
                continue;
            }
            let before = world.decided.len();
            world.perform(&Command::RestoreHold { record: Box::new(found.record) });
            let took = world.decided.get(before).is_some_and(|decided| {
                decided.events().any(|event| matches!(event, Event::HoldRestored { .. }))
            });
            revived += u32::from(took);
        }
    }
    revived
}

#[test]
fn top_lists_and_burn_rates_agree_with_the_entries() {
    let directory = TempDir::new();
    let listed: usize = (21..25)
        .map(|seed| {
            let world = World::after(seed, 700);
            let history = fed(&directory.file(&format!("{seed}.db")), &world, 100);
            compare_usage(&history, &world)
        })
        .sum();
    assert!(listed > 10, "{listed}");
}

/// Compares the last five days of a history with its entries. Returns the number of lines in the
/// top lists.
fn compare_usage(history: &History<Sqlite>, world: &World) -> usize {
    let mut listed = 0;
    let entries = all_entries(history, EntriesOf::Everything, 1000);
    let (from, to) = (world.clock.plus_millis(-120 * 3_600_000), world.clock);
    let hour = |at: Timestamp| at.millis().div_euclid(3_600_000);
    let mut spent: BTreeMap<String, i128> = BTreeMap::new();
    let mut burned: BTreeMap<String, i128> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| hour(entry.at) >= hour(from)) {
        let sign = match entry.kind {
            EntryType::Captured | EntryType::Charged | EntryType::Collected => 1,
            EntryType::Refunded => -1,
            _ => continue,
        };
        *burned.entry(entry.account.clone()).or_default() += sign * entry.amount;
        let spender = entry.spender.clone().expect("an account spent");
        let ends = spender.match_indices(':').map(|(at, _)| at).chain([spender.len()]);
        for end in ends {
            *spent.entry(spender[..end].to_owned()).or_default() += sign * entry.amount;
        }
    }
    for kind in [AccountKind::Org, AccountKind::Team, AccountKind::Project, AccountKind::User] {
        let top = history.top(kind, TopBy::Spent, (from, to), 3).expect("a list");
        assert!(top.is_sorted_by(|a, b| a.value >= b.value) && top.len() <= 3);
        listed += top.len();
        for ranked in top {
            assert_eq!(spent.get(&ranked.account), Some(&ranked.value), "{}", ranked.account);
        }
        for by in [TopBy::Spent, TopBy::GpuMs, TopBy::Available, TopBy::Held] {
            let all = history.top(kind, by, (from, to), 10_000).expect("a list");
            for (_, root) in accounts(&world.ledger) {
                let own = all.iter().filter(|ranked| spending::is_within(&ranked.account, &root));
                let own: Vec<_> = own.take(3).cloned().collect();
                let below = history.top_below(&root, kind, by, (from, to), 3).expect("a list");
                assert_eq!(below, own, "{root} {by:?}");
            }
        }
        let free = history.top(kind, TopBy::Available, (from, to), 9).expect("a list");
        for ranked in free {
            let number = world.ledger.find_account(&ranked.account).expect("an account");
            assert_eq!(world.ledger.account(number).available, ranked.value);
        }
    }
    for (number, path) in accounts(&world.ledger) {
        let hours = history.burn(number, (from, to)).expect("hours");
        let sum: i128 = hours.iter().map(|hour| hour.burned).sum();
        assert_eq!(sum, burned.get(&path).copied().unwrap_or(0), "{path}");
        let usage = history.usage(number, (from, to)).expect("usage");
        assert_eq!(usage.spent, spent.get(&path).copied().unwrap_or(0), "{path}");
    }
    listed
}

/// What credit budgets count, hard or soft, is what history counts as drawn in the period.
#[test]
fn budget_usage_of_a_period_matches_the_ledger() {
    let directory = TempDir::new();
    let mut compared = 0;
    for seed in 30..36 {
        let world = World::after(seed, 500);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 100);
        for (number, _) in accounts(&world.ledger) {
            let kept = history.budgets(number).expect("budgets");
            let live: Vec<&str> = world
                .ledger
                .account(AccountNo(number))
                .budgets()
                .iter()
                .map(|b| &*b.name)
                .collect();
            let there: Vec<&str> =
                kept.iter().filter(|b| b.removed_at.is_none()).map(|b| &*b.name).collect();
            assert_eq!(there, live);
            for budget in world.ledger.account(AccountNo(number)).budgets() {
                let (start, end) = budget.terms.period_of(world.clock);
                // Longer periods begin before the oldest hold in the ledger.
                let comparable = budget.terms.unit == BudgetUnit::Credits
                    && budget.terms.period == BudgetPeriod::Day;
                let Some(end) = end.filter(|_| comparable) else { continue };
                let usage = history.usage(number, (start, end.plus_millis(-1))).expect("usage");
                assert_eq!(usage.drawn, budget.used(world.clock), "{}", budget.name);
                compared += 1;
            }
        }
    }
    assert!(compared > 5, "{compared}");
}

#[test]
fn decisions_are_found_by_account_and_by_position() {
    let directory = TempDir::new();
    let world = World::after(13, 300);
    let history = fed(&directory.file("history.db"), &world, 100);
    let mut found = BTreeSet::new();
    for (number, _) in accounts(&world.ledger) {
        let mut cursor = None;
        loop {
            let page = history.audit(AuditFilter::Account(number), cursor, 9).expect("a page");
            let keys: Vec<_> = page.data.iter().map(|entry| (entry.position, entry.item)).collect();
            assert!(keys.is_sorted_by(|a, b| a > b));
            found.extend(keys);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    for (position, decided) in (1u64..).zip(&world.decided) {
        let page = history.audit(AuditFilter::Position(position), None, 100).expect("a page");
        assert_eq!(page.data.len(), decided.bodies.len());
        for (entry, (header, events)) in page.data.iter().rev().zip(&decided.bodies) {
            assert_eq!(entry.actor.as_deref(), header.as_ref().map(|h| h.actor.as_str()));
            assert_eq!(entry.command, header.as_ref().map(|header| header.command));
            assert_eq!(entry.events.len(), events.len());
            let moves = entry
                .events
                .iter()
                .any(|name| !["policy_set", "answered", "forgotten"].contains(&name.as_str()));
            assert_eq!(found.contains(&(entry.position, entry.item)), moves, "{entry:?}");
        }
    }
}

/// Replays the decisions up to some of them and compares every balance with the one that history
/// has for that instant, in contexts that admit all, some and no restricted credits.
#[test]
fn past_balances_match_the_ledger_of_that_time() {
    let directory = TempDir::new();
    let mut compared = 0;
    for seed in 40..44 {
        let world = World::after(seed, 600);
        let history = fed(&directory.file(&format!("{seed}.db")), &world, 100);
        let mut ledger = Ledger::new();
        for (place, decided) in world.decided.iter().enumerate() {
            decided.events().for_each(|event| ledger.apply(decided.at, event));
            let next = world.decided.get(place + 1);
            // Only the last decision of an instant determines the balance at that instant.
            if place % 37 != 0 || next.is_some_and(|next| next.at <= decided.at) {
                continue;
            }
            assert_eq!(history.position_at(decided.at).expect("a place"), place as u64 + 1);
            for (number, path) in accounts(&ledger) {
                for context in contexts() {
                    let then = history.balance_at(&path, &context, decided.at).expect("known");
                    assert_eq!(then, ledger.balance(AccountNo(number), &context), "{path}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

fn contexts() -> [Context; 3] {
    let types = |name: &'static str| Some(vec![name.into()]);
    let regions = Some(vec!["eu".into()]);
    let narrow = Context { gpu_types: types("H100"), regions, class: Some("normal".into()) };
    [Context::default(), Context { gpu_types: types("A100"), ..Context::default() }, narrow]
}
