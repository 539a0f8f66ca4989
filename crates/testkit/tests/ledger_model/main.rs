//! The ledger agrees with the naive model, command by command.
//!
//! `BURSAR_MODEL_COMMANDS` is the number of commands to compare (a million by default).
//! `BURSAR_MODEL_SEED` runs one world alone. Add `-- --nocapture` to see the frequencies of
//! commands and events. A difference is reported with the shortest sequence of commands that still
//! shows one.

mod seeded;
mod tally;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bursar_testkit::compare::{Pair, code_of};
use bursar_testkit::generate::{Generator, TimedCommand};
use bursar_testkit::shrink::shrink;

use tally::Tally;

const COMMANDS_PER_WORLD: usize = 250;
const THREADS: u64 = 2;

#[test]
fn the_ledger_agrees_with_the_model_after_every_command() {
    if let Some(seed) = number_from("BURSAR_MODEL_SEED") {
        if let Err(report) = run_world(seed, &mut Tally::default()) {
            panic!("{report}");
        }
        return;
    }
    let commands = number_from("BURSAR_MODEL_COMMANDS").unwrap_or(1_000_000);
    let worlds = commands.div_ceil(COMMANDS_PER_WORLD as u64);
    let tally = Mutex::new(Tally::default());
    let next_world = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let report = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut own = Tally::default();
                loop {
                    let seed = next_world.fetch_add(1, Ordering::Relaxed);
                    if seed >= worlds || failed.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(difference) = run_world(seed, &mut own) {
                        failed.store(true, Ordering::Relaxed);
                        *report.lock().unwrap_or_else(PoisonError::into_inner) = difference;
                    }
                }
                tally.lock().unwrap_or_else(PoisonError::into_inner).add(own);
            });
        }
    });
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(report.is_empty(), "{report}");
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{tally}");
    tally.require_everything(commands);
}

/// A small part of the test above, for mistakes that are made on purpose: see `seeded`.
#[test]
fn the_first_worlds_agree_with_the_model() {
    for seed in 0..200 {
        println!("world {seed}");
        if let Err(report) = run_world(seed, &mut Tally::default()) {
            panic!("{report}");
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

/// Runs one world. A difference is reported with the shortest sequence that shows one.
fn run_world(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut pair = Pair::new();
    let mut generator = Generator::new(seed);
    let mut steps: Vec<TimedCommand> = Vec::new();
    for _ in 0..COMMANDS_PER_WORLD {
        let step = generator.next_step(&pair.model);
        steps.push(step.clone());
        match guarded(|| pair.run(&step)) {
            Ok(given) => tally.count_command(&step.command, code_of(&given)),
            Err(difference) => return Err(explain(seed, steps, &difference)),
        }
    }
    tally.count_events(pair.journal());
    guarded(|| pair.finish()).map_err(|difference| explain(seed, steps, &difference))
}

/// Runs `run` and reports a panic as a difference.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

fn difference_in(steps: &[TimedCommand]) -> Option<String> {
    let mut pair = Pair::new();
    let run = guarded(|| steps.iter().try_for_each(|step| pair.run(step).map(drop)));
    run.and_then(|()| guarded(|| pair.finish())).err()
}

fn explain(seed: u64, steps: Vec<TimedCommand>, difference: &str) -> String {
    // The first step sets the retention. Without it the ledger would forget, and the model never
    // does.
    let (first, rest) = steps.split_first().expect("a difference appears after a step");
    let with_first = |rest: &[TimedCommand]| [std::slice::from_ref(first), rest].concat();
    let shortest =
        with_first(&shrink(rest.to_vec(), |rest| difference_in(&with_first(rest)).is_some()));
    let mut report =
        format!("world {seed} differs: {difference}\n\nshortest sequence with a difference:\n");
    for TimedCommand { now, envelope, command } in &shortest {
        let (key, fingerprint) = (envelope.key, envelope.fingerprint);
        report += &format!(
            "  at {} key {key:?} fingerprint {fingerprint:x}: {command:?}\n",
            now.millis()
        );
    }
    report += &difference_in(&shortest).unwrap_or_default();
    report += &format!(
        "\n\nrepeat: BURSAR_MODEL_SEED={seed} cargo test -p bursar-testkit --test ledger_model"
    );
    report
}
