//! Tests and scenarios that pages cite as evidence must exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::markdown;
use crate::repository::{Finding, Repository};
use crate::rust::{self, Layers};

/// Pages that cite tests for their claims.
const PAGES: &[&str] = &["docs/operate/security.md", "docs/evidence/test-plan.md"];

/// A word with at least this many parts is the name of a test.
const MIN_PARTS_OF_A_CLAIM: usize = 5;

const SCENARIOS: &str = "crates/core/tests/scenarios";

/// Functions by module: the file, its folders, and modules within the file.
type Functions = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let functions = functions(repository);
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| PAGES.contains(&file.path.as_str())) {
        for (line, span) in markdown::spans(&file.text).0 {
            let found = if is_scenario(&span) {
                repository.paths.contains(&format!("{SCENARIOS}/{span}.txt"))
            } else {
                exists(&functions, &span)
            };
            if !found {
                let advice = format!("no test `{span}`: name one that exists");
                findings.push(file.finding(line, advice));
            }
        }
    }
    findings
}

fn functions(repository: &Repository) -> Functions {
    let mut functions = Functions::new();
    for file in repository.files.iter().filter(|file| file.is_rust()) {
        let code = Layers::of(&file.text).code;
        let names: Vec<&str> = rust::defined(&code, "fn").iter().map(|(_, name)| *name).collect();
        let path = file.path.trim_end_matches(".rs").split('/');
        let modules = path.chain(rust::defined(&code, "mod").into_iter().map(|(_, name)| name));
        for module in modules {
            let known = functions.entry(module.to_owned()).or_default();
            known.extend(names.iter().map(|name| (*name).to_owned()));
        }
    }
    functions
}

/// Whether a span is the name of a scenario: `07_two_budgets_block_at_once`.
fn is_scenario(span: &str) -> bool {
    let numbered = span.split_once('_').map(|(number, _)| number);
    numbered.is_some_and(|number| number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a span names no test, or one that exists. `*` or `…` at its end stands for any letters.
fn exists(functions: &Functions, span: &str) -> bool {
    let name = span.trim_end_matches(['*', '…']);
    let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == ':';
    if !name.chars().all(snake) {
        return true;
    }
    let fits = |known: &String| {
        let function = name.rsplit("::").next().unwrap_or(name);
        if name == span { known == function } else { known.starts_with(function) }
    };
    match name.rsplit_once("::") {
        Some((module, _)) => {
            let module = module.rsplit("::").next().unwrap_or(module);
            functions.get(module).is_some_and(|names| names.iter().any(fits))
        }
        None if name.split('_').count() < MIN_PARTS_OF_A_CLAIM => true,
        None => functions.values().flatten().any(fits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<usize> {
        let files = [
            ("docs/operate/security.md", page),
            ("crates/cli/tests/service/keys.rs", "#[test]\nfn a_key_is_shown_only_once() {}"),
            ("crates/core/tests/scenarios/01_first.txt", ""),
            ("crates/core/src/auth.rs", "mod checks { fn compares() {} } // fn missing() {}"),
        ];
        check(&Repository::of(&files)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn tests_that_do_not_exist_are_found() {
        assert_eq!(lines("`keys::missing`\n`keys::a_key_is_sh`\n`other::*`"), [1, 2, 3]);
        assert_eq!(lines("`auth::a_key_is_shown_only_once`\n`02_second`"), [1, 2]);
        assert_eq!(lines("`a_key_is_never_shown`, `a_key_is_never_…`"), [1, 1]);
    }

    #[test]
    fn tests_that_exist_and_other_words_are_fine() {
        let page = "`keys::a_key_is_shown_only_once`, `service::keys::a_key_is_shown_only_once`,\n\
            `keys::*`, `keys::a_key_*`, `checks::compares`, `a_key_is_shown_…`, `in_flight`,\n\
            `01_first`, `Hold::apply`, `kill -9`";
        assert!(lines(page).is_empty());
    }
}
