//! The house rules that a program can check. Each finding names the file, the line and the fix.
//! Each check has samples, so that a check without findings is known to work.

#[path = "tidy/durations.rs"]
mod durations;
#[path = "tidy/errors.rs"]
mod errors;
#[path = "tidy/known.rs"]
mod known;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/money.rs"]
mod money;
#[path = "tidy/named_tests.rs"]
mod named_tests;
#[path = "tidy/paths.rs"]
mod paths;
#[path = "tidy/rehearsals.rs"]
mod rehearsals;
#[path = "tidy/repository.rs"]
mod repository;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/seeded.rs"]
mod seeded;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/targets.rs"]
mod targets;
#[path = "tidy/types.rs"]
mod types;
#[path = "tidy/width.rs"]
mod width;
#[path = "tidy/words.rs"]
mod words;

use repository::{Finding, Repository};

/// Fails with every finding of a check that `tidy/known.txt` does not list, one to a line.
fn report(check: &str, findings: &[Finding]) {
    let lines = known::compare(check, findings);
    assert!(lines.is_empty(), "{} findings\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn plain_words() {
    report("plain_words", &words::check(&Repository::read()));
}

#[test]
fn lines_of_docs_fit_on_a_screen() {
    report("lines_of_docs_fit_on_a_screen", &width::check(&Repository::read()));
}

#[test]
fn tests_that_start_a_server_rehearse_the_loss_of_its_store() {
    let check = "tests_that_start_a_server_rehearse_the_loss_of_its_store";
    report(check, &rehearsals::check(&Repository::read()));
}

#[test]
fn every_seeded_bug_has_a_test_and_none_is_in_a_release() {
    report(
        "every_seeded_bug_has_a_test_and_none_is_in_a_release",
        &seeded::check(&Repository::read()),
    );
}

#[test]
fn folders_are_small() {
    report("folders_are_small", &sizes::check_folders(&Repository::read()));
}

#[test]
fn source_files_are_short() {
    report("source_files_are_short", &sizes::check_files(&Repository::read()));
}

#[test]
fn every_test_file_belongs_to_a_binary() {
    report("every_test_file_belongs_to_a_binary", &targets::check(&Repository::read()));
}

#[test]
fn one_type_has_one_name() {
    report("one_type_has_one_name", &types::check(&Repository::read()));
}

#[test]
fn links_in_docs_lead_somewhere() {
    report("links_in_docs_lead_somewhere", &links::check(&Repository::read()));
}

#[test]
fn paths_in_docs_exist() {
    report("paths_in_docs_exist", &paths::check(&Repository::read()));
}

#[test]
fn tests_named_in_docs_exist() {
    report("tests_named_in_docs_exist", &named_tests::check(&Repository::read()));
}

#[test]
fn layers_point_one_way() {
    report("layers_point_one_way", &layers::check(&Repository::read()));
}

#[test]
fn the_server_computes_no_money() {
    report("the_server_computes_no_money", &money::check(&Repository::read()));
}

#[test]
fn people_read_no_debug_text() {
    report("people_read_no_debug_text", &errors::check_debug_text(&Repository::read()));
}

#[test]
fn errors_are_types() {
    report("errors_are_types", &errors::check(&Repository::read()));
}

#[test]
fn constants_of_time_say_what_they_bound() {
    report("constants_of_time_say_what_they_bound", &durations::check(&Repository::read()));
}
