//! The deterministic simulation, on a hundred seeds. `BURSAR_SEEDS=from..to` runs others, for example
//! one that a failure names: `BURSAR_SEEDS=17..18 cargo test -p bursar-sim --test world`.

use bursar_sim::parallel::in_parallel;
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

/// Which seeds: those of `BURSAR_SEEDS`, or a hundred.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("BURSAR_SEEDS") else { return 0..100 };
    let (from, to) = range.split_once("..").expect("BURSAR_SEEDS is like 0..100");
    let number = |text: &str| text.parse().expect("BURSAR_SEEDS is like 0..100");
    number(from)..number(to)
}

#[test]
fn the_laws_hold_whatever_goes_wrong_and_everything_comes_to_rest() {
    let seeds: Vec<u64> = seeds().collect();
    let worlds = in_parallel(&seeds, |seed| {
        let _seed = Seed(*seed);
        run(*seed, WorldOptions::default())
    });
    let mut all = Summary::default();
    let mut broken = Vec::new();
    for world in worlds {
        match world {
            Ok(summary) => all.add(summary),
            Err(law) => broken.push(law),
        }
    }
    assert!(broken.is_empty(), "{} of {} broke:\n{}", broken.len(), seeds.len(), broken.join("\n"));
    println!("{all:?}");
    assert!(all.attempts > 0 && all.crashes > 0 && all.repeated > 0 && all.lost_reports > 0);
}

#[test]
fn a_seed_is_one_history() {
    let options = WorldOptions { steps: 600, ..WorldOptions::default() };
    let first = run(1, options).expect("the laws hold");
    assert_eq!(run(1, options), Ok(first));
}
