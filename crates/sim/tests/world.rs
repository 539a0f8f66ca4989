//! The deterministic simulation, on a few seeds. `BURSAR_SEEDS=from..to` runs others, for example
//! the one that a failure prints: `BURSAR_SEEDS=17..18 cargo test -p bursar-sim --test world`.

use bursar_sim::world::{Summary, WorldOptions, run};

/// Prints the seed if what follows panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "the world of seed {seed} broke; see it again with BURSAR_SEEDS={seed}..{}",
                seed + 1
            );
        }
    }
}

/// Which seeds: those of `BURSAR_SEEDS`, or a few.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("BURSAR_SEEDS") else { return 0..24 };
    let (from, to) = range.split_once("..").expect("BURSAR_SEEDS is like 0..100");
    let number = |text: &str| text.parse().expect("BURSAR_SEEDS is like 0..100");
    number(from)..number(to)
}

#[test]
fn the_laws_hold_whatever_goes_wrong_and_everything_comes_to_rest() {
    let mut all = Summary::default();
    for seed in seeds() {
        let _seed = Seed(seed);
        let summary =
            run(seed, WorldOptions::default()).unwrap_or_else(|broken| panic!("{broken}"));
        all.records += summary.records;
        all.jobs += summary.jobs;
        all.attempts += summary.attempts;
        all.ended += summary.ended;
        all.crashes += summary.crashes;
        all.repeated += summary.repeated;
        all.lost_reports += summary.lost_reports;
        all.millis += summary.millis;
    }
    println!("{all:?}");
    assert!(all.attempts > 0 && all.crashes > 0 && all.repeated > 0 && all.lost_reports > 0);
}

#[test]
fn a_seed_is_one_history() {
    let options = WorldOptions { steps: 600, ..WorldOptions::default() };
    let first = run(1, options).expect("the laws hold");
    assert_eq!(run(1, options), Ok(first));
}
