//! Seeded bugs are found by tests, and a release cannot contain them.

use crate::repository::{File, Finding, Repository};
use crate::rust::Layers;

const LIST: &str = "crates/seeded/src/bug.rs";
const CRATE: &str = "crates/seeded/";
/// The variable that switches a bug on. Only one place reads it.
const VARIABLE: &str = "BURSAR_BUG";
/// What would bring debug assertions, and with them the bugs, into a release.
const IN_RELEASES: &[&str] = &["debug-assertions", "debug_assertions=on"];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let code: Vec<(&File, String)> = repository
        .files
        .iter()
        .filter(|file| file.is_rust() && !file.path.starts_with(CRATE))
        .map(|file| (file, Layers::of(&file.text).code))
        .collect();
    for file in repository.files.iter().filter(|file| file.path == LIST) {
        for (index, bug) in bugs(&file.text) {
            let name = format!("Bug::{bug}");
            let is_named = |test: bool| {
                code.iter().any(|(file, code)| file.is_test() == test && names(code, &name))
            };
            if !is_named(false) {
                findings.push(file.finding(index, format!("no code has `{name}`: remove it")));
            }
            if !is_named(true) {
                let advice = format!("no test finds `{name}`: name one in a `FOUND_BY`");
                findings.push(file.finding(index, advice));
            }
        }
    }
    for file in &repository.files {
        let is_manifest = file.path.ends_with("Cargo.toml") || file.path.contains(".cargo/");
        for (index, line) in file.text.lines().enumerate() {
            let found = IN_RELEASES.iter().find(|text| line.contains(**text));
            if let Some(found) = found.filter(|_| is_manifest) {
                let advice = format!("`{found}` would put seeded bugs into a release");
                findings.push(file.finding(index + 1, advice));
            }
            let own = file.path.starts_with(CRATE) || file.path.ends_with("tidy/seeded.rs");
            if file.is_rust() && !own && line.contains(VARIABLE) {
                let advice = format!("`{VARIABLE}` is read in `{CRATE}` alone: ask `seeded`");
                findings.push(file.finding(index + 1, advice));
            }
        }
    }
    findings
}

/// The bugs of the list, with their lines.
fn bugs(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let list = text.lines().enumerate().skip_while(|(_, line)| *line != "bugs! {");
    list.skip(1).take_while(|(_, line)| *line != "}").filter_map(|(index, line)| {
        let bug = line.trim().strip_suffix(',')?;
        bug.chars().all(char::is_alphanumeric).then_some((index + 1, bug))
    })
}

/// Whether code names a bug, and not one with a longer name.
fn names(code: &str, bug: &str) -> bool {
    code.match_indices(bug).any(|(at, _)| {
        let next = code[at + bug.len()..].chars().next();
        !next.is_some_and(|next| next.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "bugs! {\n    /// One.\n    Early,\n    /// Two.\n    EarlyToo,\n}\n";

    fn found(files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let findings = check(&Repository::of(files));
        findings.into_iter().map(|finding| (finding.line, finding.path)).collect()
    }

    #[test]
    fn a_bug_without_code_or_test_is_found() {
        let source =
            ("crates/core/src/a.rs", "if seeded(Bug::Early) {}\nif seeded(Bug::EarlyToo) {}\n");
        let test = ("crates/core/tests/a.rs", "(Bug::Early, X),\n(Bug::EarlyToo, X),\n");
        assert!(found(&[(LIST, TWO), source, test]).is_empty());
        assert_eq!(found(&[(LIST, TWO), test]), [(3, LIST.into()), (5, LIST.into())]);
        let one = ("crates/core/tests/a.rs", "(Bug::EarlyToo, X),\n");
        assert_eq!(found(&[(LIST, TWO), source, one]), [(3, LIST.into())]);
    }

    #[test]
    fn a_release_with_debug_assertions_and_another_reader_of_the_variable_are_found() {
        let manifest = ("Cargo.toml", "[profile.release]\ndebug-assertions = true\n");
        let reader = ("crates/core/src/a.rs", "std::env::var(\"BURSAR_BUG\")\n");
        assert_eq!(found(&[manifest, reader]), [(2, manifest.0.into()), (1, reader.0.into())]);
    }
}
