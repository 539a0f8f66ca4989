//! The verifier accepts every valid journal and finds every manipulated one.

use crate::support;

use bursar_audit::{Batches, JournalSource, LiveNumbers, RawBatch, Report, verify};
use bursar_core::ledger::Event;
use bursar_core::ledger::Ledger;
use bursar_core::machine::Machine;
use bursar_journal::JournalId;
use bursar_journal::memory::MemoryJournal;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::jobs::run_jobs;
use support::rows_of;
use support::traffic::{Decided, World};

fn verified(rows: &Batches) -> Report {
    verify(rows, None, |_| {})
}

#[test]
fn valid_journals_pass_and_the_derived_balances_equal_the_ledgers() {
    for seed in 0..12 {
        let world = World::after(seed, 800);
        let rows = rows_of(&world, 7);
        let live = LiveNumbers::of(&world.ledger);
        let mut calls = 0;
        let report = verify(&rows, Some(&live), |progress| {
            calls += 1;
            assert!(progress.records <= progress.of);
        });
        assert!(report.holds(), "seed {seed}:\n{report}");
        assert_eq!(calls, rows.batches.len());
        assert_eq!((report.records, report.head), (rows.head.position, rows.head.hash));
        let granted: u128 = report.parts.iter().sum();
        let issued: u128 = world
            .decided
            .iter()
            .flat_map(Decided::events)
            .map(|event| match event {
                Event::GrantIssued(issued) => u128::from(issued.amount.length()),
                _ => 0,
            })
            .sum();
        assert_eq!(granted, issued);
    }
}

#[test]
fn journals_with_jobs_pass_and_charges_other_than_price_times_usage_are_found() {
    for seed in 0..6 {
        let mut world = World::after(seed, 100);
        run_jobs(&mut world, 600);
        let live = LiveNumbers::of(&world.ledger);
        let report = verify(&rows_of(&world, 7), Some(&live), |_| {});
        assert!(report.holds(), "seed {seed}:\n{report}");
        let mut lied = 0;
        for index in 0..world.decided.len() {
            let decided = &world.decided[index];
            let charged =
                |event: &Event| matches!(event, Event::AttemptEnded { end, .. } if end.charged > 0);
            if lied == 3 || !decided.events().any(charged) {
                continue;
            }
            lied += 1;
            let mut lie = World::new(0);
            lie.decided = world.decided.clone();
            for (_, events) in &mut lie.decided[index].bodies {
                for event in events.iter_mut() {
                    if let Event::AttemptEnded { end, .. } = event {
                        end.charged += 1;
                    }
                }
            }
            let problem = verified(&rows_of(&lie, 7)).problem.expect("a wrong charge is found");
            assert_eq!((problem.position, problem.law), (Some(index as u64 + 2), "L7"));
        }
        assert!(lied > 0, "seed {seed}: some attempt was charged");
    }
}

#[test]
fn a_report_is_readable_for_people_and_programs() {
    let world = World::after(4, 200);
    let rows = rows_of(&world, 7);
    let mut live = LiveNumbers::of(&world.ledger);
    let good = verify(&rows, Some(&live), |_| {});
    assert!(good.to_string().contains("a replay by the ledger itself agrees"), "{good}");
    assert_eq!(good.to_json()["ok"], true);
    live.accounts[3].1 += 1;
    live.grants[5][2] ^= 1;
    let bad = verify(&rows, Some(&live), |_| {});
    assert!(!bad.holds() && bad.problem.is_none());
    assert_eq!(bad.differences.len(), 2);
    assert!(bad.to_string().contains("account acme:nlp:pretrain:alice"), "{bad}");
    let mut damaged = rows;
    damaged.batches[2].payload[20] ^= 1;
    let report = verified(&damaged);
    assert_eq!(report.to_json()["problem"]["sequence"], 3);
    assert!(report.to_string().contains("BAD      batch 3"), "{report}");
}

/// Flips one bit of one row.
fn flip(row: &mut RawBatch, random: &mut ChaCha8Rng) {
    let bit = |bytes: &mut [u8], at: u64| {
        let at = usize::try_from(at).expect("small") % (bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
    };
    let at = random.next_u64() >> 1;
    match random.next_u32() % 16 {
        0 => row.sequence ^= 1 << (at % 63),
        1 => row.first_position ^= 1 << (at % 63),
        2 => row.records ^= 1 << (at % 31),
        3 => row.epoch ^= 1 << (at % 63),
        4 => row.time ^= 1 << (at % 63),
        5 => bit(&mut row.previous, at),
        6 => bit(&mut row.hash, at),
        _ => bit(&mut row.payload, at),
    }
}

#[test]
fn twelve_hundred_flipped_bits_are_all_found_in_their_own_batch() {
    let world = World::after(77, 3000);
    let rows = rows_of(&world, 5);
    assert!(rows.head.position > 2_000, "{} records", rows.head.position);
    assert!(verified(&rows).holds());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for round in 0..1_200 {
        let index = random.next_u32() as usize % rows.batches.len();
        // Rows after the flip are never reached.
        let batches = rows.batches[..=index].to_vec();
        let mut damaged = Batches { batches, journal: rows.journal, head: rows.head };
        flip(&mut damaged.batches[index], &mut random);
        let problem = verified(&damaged).problem.expect("a flipped bit is found");
        let expected = rows.batches[index].sequence;
        assert_eq!(problem.sequence, expected, "round {round}: {problem}");
        let (first, last) = problem.positions;
        let true_first = rows.batches[index].first_position;
        assert!(first <= true_first && true_first <= last, "{problem}");
    }
}

#[test]
fn missing_swapped_repeated_and_foreign_rows_are_found() {
    let world = World::after(8, 400);
    let rows = rows_of(&world, 5);
    let count = rows.batches.len();
    let mut random = ChaCha8Rng::seed_from_u64(2);
    for _ in 0..100 {
        let index = random.next_u32() as usize % (count - 1);
        let expected = rows.batches[index].sequence;
        let mut missing = rows.clone();
        missing.batches.remove(index);
        let mut swapped = rows.clone();
        swapped.batches.swap(index, index + 1);
        let mut repeated = rows.clone();
        repeated.batches.insert(index, rows.batches[index].clone());
        for (what, damaged, expected) in [
            ("missing", missing, expected),
            ("swapped", swapped, expected),
            ("repeated", repeated, expected + 1),
        ] {
            let problem = verified(&damaged).problem.expect(what);
            assert_eq!((problem.sequence, problem.law), (expected, "chain"), "{what}");
        }
    }
    let mut shorter = rows.clone();
    shorter.batches.pop();
    let problem = verified(&shorter).problem.expect("the end is missing");
    assert_eq!(problem.sequence, rows.head.sequence);
    let foreign = Batches { journal: [8; 16], ..rows };
    assert_eq!(verified(&foreign).problem.expect("another journal").sequence, 1);
}

/// Whether an event moves units or enables later moves.
fn matters(event: &Event) -> bool {
    match event {
        Event::AccountOpened { .. }
        | Event::GrantIssued(_)
        | Event::GrantActivated { .. }
        | Event::GrantRevoked { .. }
        | Event::BucketExpired { .. }
        | Event::ExpiryReversed { .. }
        | Event::ReturnExpired { .. }
        | Event::ReturnRevoked { .. }
        | Event::HoldPlaced(_)
        | Event::HoldCut { .. }
        | Event::HoldClosed { .. }
        | Event::Charged(_)
        | Event::Refunded { .. }
        | Event::CreditsMoved { .. }
        | Event::DebtRepaid { .. }
        | Event::RegionOpened { .. }
        | Event::JobSubmitted { .. }
        | Event::AttemptConfirmed(_)
        | Event::AttemptEnded { .. }
        | Event::JobEnded { .. }
        | Event::CellMessageSent { .. }
        | Event::MessageReceived { .. } => true,
        Event::HoldPinned { returned, .. } => !returned.is_empty(),
        // If a report took nothing, a later report repeats its total and its absence is not
        // noticed.
        Event::HoldCaptured { taken, .. } => !taken.is_empty(),
        Event::HoldExtended { pieces, .. } => !pieces.is_empty(),
        Event::PolicySet(_)
        | Event::AccountChanged { .. }
        | Event::AccountFrozen { .. }
        | Event::AccountUnfrozen { .. }
        | Event::BudgetSet { .. }
        | Event::BudgetRemoved { .. }
        | Event::BudgetThresholdReached { .. }
        | Event::Answered { .. }
        | Event::CreditsDenied { .. }
        | Event::Forgotten { .. }
        | Event::HoldRestored { .. }
        | Event::QuotaSet { .. }
        | Event::QuotaRemoved { .. }
        | Event::AttemptStarted { .. }
        | Event::AttemptFunded { .. }
        | Event::ExhaustionWarned { .. }
        | Event::AttemptStopping { .. }
        | Event::CancelRequested { .. }
        | Event::DependenciesMet { .. }
        | Event::BlockedJobsRechecked { .. }
        | Event::RegionPoliciesSent { .. }
        | Event::SetAside { .. } => false,
    }
}

/// The owner of the store can rewrite records and compute a valid chain over them. The books detect
/// it.
#[test]
fn rewritten_history_with_a_valid_chain_is_found() {
    let world = World::after(31, 500);
    let live = LiveNumbers::of(&world.ledger);
    let important: Vec<usize> = (0..world.decided.len())
        .filter(|index| world.decided[*index].events().any(matters))
        .collect();
    assert!(important.len() > 150, "{}", important.len());
    for index in important.iter().copied() {
        let mut repeated = World::new(0);
        repeated.decided = world.decided.clone();
        repeated.decided.insert(index, world.decided[index].clone());
        let report = verified(&rows_of(&repeated, 7));
        let problem = report.problem.expect("a repeated decision is found");
        // Position 1 is the barrier, and the second copy follows the first.
        assert_eq!(problem.position, Some(index as u64 + 3), "{problem}");

        let mut omitted = World::new(0);
        omitted.decided = world.decided.clone();
        omitted.decided.remove(index);
        let report = verify(&rows_of(&omitted, 7), Some(&live), |_| {});
        let left_out = &world.decided[index];
        assert!(!report.holds(), "decision {index} was left out: {left_out:?}");
    }
}

#[test]
fn changed_amounts_are_found_in_their_own_record() {
    let world = World::after(32, 500);
    let mut changed = 0;
    for (index, decided) in world.decided.iter().enumerate() {
        for (item, (_, events)) in decided.bodies.iter().enumerate() {
            for (place, event) in events.iter().enumerate() {
                let other = match event.clone() {
                    Event::BucketExpired { bucket, amount } => {
                        Event::BucketExpired { bucket, amount: amount + 1 }
                    }
                    Event::GrantRevoked { grant, amount } => {
                        Event::GrantRevoked { grant, amount: amount + 1 }
                    }
                    Event::HoldClosed { hold, state, cause, returned } => {
                        Event::HoldClosed { hold, state, cause, returned: returned + 1 }
                    }
                    Event::HoldCaptured { hold, seq, total, gpu_ms, taken, uncollected } => {
                        let uncollected = uncollected + 1;
                        Event::HoldCaptured { hold, seq, total, gpu_ms, taken, uncollected }
                    }
                    Event::HoldPlaced(mut placed) => {
                        placed.pieces[0].span.end += 1 << 40;
                        Event::HoldPlaced(placed)
                    }
                    Event::Charged(mut charged) => {
                        charged.pieces[0].bucket.0 += 1_000;
                        Event::Charged(charged)
                    }
                    _ => continue,
                };
                let mut lie = World::new(0);
                lie.decided = world.decided.clone();
                lie.decided[index].bodies[item].1[place] = other;
                let problem = verified(&rows_of(&lie, 7)).problem.expect("a changed amount");
                assert_eq!(problem.position, Some(index as u64 + 2), "{event:?}: {problem}");
                changed += 1;
            }
        }
        if changed > 200 {
            break;
        }
    }
    assert!(changed > 100, "{changed}");
}

#[test]
fn an_open_journal_is_verified_through_its_own_reader() {
    let world = World::after(16, 200);
    let journal = MemoryJournal::new(JournalId([4; 16]));
    let head = world.write_to(&journal, 5);
    let source = JournalSource::new(&journal).expect("it has a head");
    let live = LiveNumbers::of(&world.ledger);
    let report = verify(&source, Some(&live), |_| {});
    assert!(report.holds() && report.head == head.hash.0, "{report}");
    journal.tamper(|rows| rows[11].payload[30] ^= 4);
    let problem = verify(&source, None, |_| {}).problem.expect("a damaged batch");
    assert_eq!((problem.sequence, problem.law), (12, "storage"), "{problem}");
}

#[test]
fn the_books_and_the_ledger_replay_to_the_same_balances() {
    let world = World::after(15, 300);
    let mut replayed = Ledger::new();
    for decided in &world.decided {
        decided.events().for_each(|event| replayed.apply(decided.at, event));
    }
    let report = verify(&rows_of(&world, 3), Some(&LiveNumbers::of(&replayed)), |_| {});
    assert!(report.holds() && report.compared, "{report}");
}
