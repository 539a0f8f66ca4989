//! The checker of clients' histories: honest ones pass, and every broken promise is found.

mod honest;
mod mutations;

use std::collections::BTreeMap;

use bursar_testkit::generate::Random;
use bursar_testkit::histories::{Compared, check};

/// Operations of one history.
const OPERATIONS: usize = 120;
/// How often each mutation is made.
const TIMES: usize = 12;

#[test]
fn honest_histories_pass() {
    let mut all = Compared::default();
    for seed in 0..2_000 {
        let history = honest::history(seed, OPERATIONS);
        let compared = check(&history).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        all.unanswered += compared.unanswered;
        all.effects += compared.effects;
        all.changes += compared.changes;
        all.reads += compared.reads;
        all.refusals += compared.refusals;
    }
    println!("{all:?}");
    assert!(all.unanswered > 1_000 && all.changes > 10_000 && all.reads > 10_000, "{all:?}");
    assert!(all.refusals > 1_000 && all.effects > 10_000, "{all:?}");
}

#[test]
fn every_mutation_is_found() {
    let mut found = BTreeMap::new();
    let mut made = 0;
    for (name, mutate) in mutations::ALL {
        let mut times = 0;
        for seed in 0..1_000 {
            let mut history = honest::history(seed, OPERATIONS);
            if mutate(&mut history, &mut Random::new(!seed)).is_none() {
                continue;
            }
            match check(&history) {
                Ok(_) => panic!("{name}, seed {seed}: it passes"),
                Err(broken) => *found.entry(broken.kind).or_insert(0) += 1,
            }
            times += 1;
            if times == TIMES {
                break;
            }
        }
        assert_eq!(times, TIMES, "{name}: too few histories offer a place for it");
        made += times;
    }
    println!("{made} mutated histories, all found: {found:?}");
    assert!(made >= 200);
    assert_eq!(found.len(), 12, "every kind of broken is found: {found:?}");
}

/// The checker must not inherit a mistake of the ledger.
#[test]
fn the_checker_uses_no_code_of_the_ledger() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/histories");
    for file in std::fs::read_dir(folder).expect("it is there") {
        let file = file.expect("listed").path();
        let text = std::fs::read_to_string(&file).expect("it is text");
        for word in ["bursar_", "crate::", "fefo"] {
            assert!(!text.contains(word), "{} names {word}", file.display());
        }
    }
}
