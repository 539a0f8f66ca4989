//! The deterministic simulation, on 500 seeds. `BURSAR_SEEDS=from..to` runs others, for
//! example the seed of a failure: `BURSAR_SEEDS=17..18 cargo test -p bursar-sim --test world`.

use bursar_sim::parallel::in_parallel;
use bursar_sim::world::{Summary, WorldOptions, run};

/// Prints the seed if the test panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "the world of seed {seed} failed; repeat it with BURSAR_SEEDS={seed}..{}",
                seed + 1
            );
        }
    }
}

/// The seeds of `BURSAR_SEEDS`, or 500.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("BURSAR_SEEDS") else { return 0..500 };
    let (from, to) = range.split_once("..").expect("BURSAR_SEEDS is like 0..100");
    let number = |text: &str| text.parse().expect("BURSAR_SEEDS is like 0..100");
    number(from)..number(to)
}

#[test]
fn the_laws_hold_under_faults_and_all_jobs_end() {
    let seeds: Vec<u64> = seeds().collect();
    let worlds = in_parallel(&seeds, |seed| {
        let _seed = Seed(*seed);
        let ledgers = 2 + u16::try_from(seed % 2).expect("small");
        run(*seed, WorldOptions { ledgers, ..WorldOptions::default() })
    });
    let mut all = Summary::default();
    let mut broken = Vec::new();
    for world in worlds {
        match world {
            Ok(summary) => all.add(summary),
            Err(law) => broken.push(law),
        }
    }
    assert!(
        broken.is_empty(),
        "{} of {} failed:\n{}",
        broken.len(),
        seeds.len(),
        broken.join("\n")
    );
    println!("{all:?}");
    assert!(all.attempts > 0 && all.crashes > 0 && all.takeovers > 0);
    assert!(all.repeated > 0 && all.lost_reports > 0);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let options = WorldOptions { steps: 600, ..WorldOptions::default() };
    let first = run(1, options).expect("the laws hold");
    assert_eq!(run(1, options), Ok(first));
}
