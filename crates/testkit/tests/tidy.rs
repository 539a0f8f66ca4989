//! The house rules that a program can check. Each finding names the file, the line and the fix.
//! Each check has samples, so that a check without findings is known to work.

#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/named_tests.rs"]
mod named_tests;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/types.rs"]
mod types;
#[path = "tidy/width.rs"]
mod width;
#[path = "tidy/words.rs"]
mod words;

use repository::{Finding, Repository};

/// Fails with every finding of a check, one to a line.
fn report(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} findings\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn plain_words() {
    report(&words::check(&Repository::read()));
}

#[test]
fn lines_of_docs_fit_on_a_screen() {
    report(&width::check(&Repository::read()));
}

#[test]
fn folders_are_small() {
    report(&sizes::check_folders(&Repository::read()));
}

#[test]
fn source_files_are_short() {
    report(&sizes::check_files(&Repository::read()));
}

#[test]
fn one_type_has_one_name() {
    report(&types::check(&Repository::read()));
}

#[test]
fn links_in_docs_lead_somewhere() {
    report(&links::check(&Repository::read()));
}

#[test]
fn paths_in_docs_exist() {
    report(&paths::check(&Repository::read()));
}

#[test]
fn tests_named_in_docs_exist() {
    report(&named_tests::check(&Repository::read()));
}

#[test]
fn layers_point_one_way() {
    report(&layers::check(&Repository::read()));
}
