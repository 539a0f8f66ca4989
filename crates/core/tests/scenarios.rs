//! Scenario tests as text: commands in, events and answers out.
//!
//! Each file under `tests/scenarios/` is a list of commands. The indented lines below a command are
//! its result. `BURSAR_UPDATE=1 cargo test -p bursar-core --test scenarios` rewrites the results;
//! read the changes before you commit them.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read or written fails its test")]

#[path = "scenario/job.rs"]
mod job;
#[path = "scenario/parse.rs"]
mod parse;
#[path = "scenario/render.rs"]
mod render;
#[path = "scenario/run.rs"]
mod run;

use std::path::Path;

#[test]
fn every_scenario_gives_the_recorded_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 10, "the scenario files were found");
    let update = std::env::var_os("BURSAR_UPDATE").is_some();
    for file in files {
        let written = std::fs::read_to_string(&file).unwrap();
        let happened = run::run(&written);
        if update {
            std::fs::write(&file, &happened).unwrap();
        } else if happened != written {
            let at = happened.lines().zip(written.lines()).take_while(|(a, b)| a == b).count();
            let line = |text: &str| text.lines().nth(at).unwrap_or("(end)").to_owned();
            panic!(
                "{}:{}\n  written:  {}\n  happened: {}",
                file.display(),
                at + 1,
                line(&written),
                line(&happened)
            );
        }
    }
}
