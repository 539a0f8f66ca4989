//! A test binary that starts a server process rehearses the loss of its store: `audit verify`, backup,
//! restore, and a server on the copy.

use std::collections::BTreeMap;

use crate::repository::{Finding, Repository};

const TESTS: &str = "crates/cli/tests/";
/// Starts a server process.
const STARTS: &str = "[\"serve\"";
/// The module of the rehearsal itself.
const REHEARSAL: &str = "rehearsal";

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    // By the name of the binary: the first line that starts a server, and whether it is rehearsed.
    let mut starts: BTreeMap<&str, Finding> = BTreeMap::new();
    let mut rehearsed: Vec<&str> = Vec::new();
    for file in repository.files.iter().filter(|file| file.is_rust()) {
        let Some(rest) = file.path.strip_prefix(TESTS) else { continue };
        let binary = rest.split(['/', '.']).next().unwrap_or(rest);
        if binary == REHEARSAL {
            continue;
        }
        if file.text.contains("rehearsal::") {
            rehearsed.push(binary);
        }
        if let Some(index) = file.text.lines().position(|line| line.contains(STARTS)) {
            let advice = "starts a server: call `rehearsal::rehearse` when it has ended";
            starts.entry(binary).or_insert_with(|| file.finding(index + 1, advice));
        }
    }
    starts
        .into_iter()
        .filter(|(name, _)| !rehearsed.contains(name))
        .map(|(_, found)| found)
        .collect()
}

#[test]
fn a_binary_that_starts_a_server_and_rehearses_nothing_is_found() {
    let server = "fn start() { command.args([\"serve\", \"--dev\"]); }\n";
    let sample = Repository::of(&[
        ("crates/cli/tests/bare.rs", server),
        ("crates/cli/tests/whole/main.rs", "mod server;\n"),
        ("crates/cli/tests/whole/server.rs", &format!("use crate::rehearsal::rehearse;\n{server}")),
        ("crates/cli/tests/rehearsal/mod.rs", server),
        ("crates/cli/tests/other.rs", "fn nothing() {}\n"),
        ("crates/cli/src/serve.rs", server),
    ]);
    let found: Vec<String> = check(&sample).iter().map(|finding| finding.path.clone()).collect();
    assert_eq!(found, ["crates/cli/tests/bare.rs"]);
}
