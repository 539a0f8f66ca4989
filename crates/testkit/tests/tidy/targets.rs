//! Every file of tests belongs to a binary. Cargo does not look for targets where `autotests` is off.

use std::collections::BTreeSet;

use crate::repository::{Finding, Repository};
use crate::rust::{self, Layers};

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.files.iter().filter(|file| {
        file.path.ends_with("/Cargo.toml")
            && file.text.lines().any(|line| line == "autotests = false")
    });
    manifests.flat_map(|manifest| check_crate(repository, &manifest.path, &manifest.text)).collect()
}

fn check_crate(repository: &Repository, manifest: &str, text: &str) -> Vec<Finding> {
    let folder = manifest.trim_end_matches("Cargo.toml");
    let roots: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'))
        .map(|path| format!("{folder}{path}"))
        .collect();
    let mut modules = BTreeSet::new();
    for root in repository.files.iter().filter(|file| roots.contains(&file.path)) {
        let code = Layers::of(&root.text).code;
        modules.extend(rust::defined(&code, "mod").into_iter().map(|(_, name)| name.to_owned()));
    }
    let tests = format!("{folder}tests/");
    let files = repository.files.iter().filter(|file| {
        let Some(name) = file.path.strip_prefix(&tests) else { return false };
        // The root of a folder of tests, or a file of its own.
        let is_target = name.strip_suffix(".rs").is_some_and(|stem| !stem.contains('/'))
            || name.split_once('/').is_some_and(|(_, rest)| rest == "main.rs");
        let stem = name.trim_end_matches(".rs");
        is_target && !roots.contains(&file.path) && !modules.contains(stem)
    });
    files
        .map(|file| {
            file.finding(
                1,
                format!("no test binary has it: list it in {manifest} or in a root of its tests"),
            )
        })
        .collect()
}

#[test]
fn a_file_that_no_binary_lists_is_found() {
    let manifest = "autotests = false\n\n[[test]]\nname = \"cell\"\npath = \"tests/cell.rs\"\n";
    let of = |root: &'static str| {
        Repository::of(&[
            ("crates/core/Cargo.toml", manifest),
            ("crates/core/tests/cell.rs", root),
            ("crates/core/tests/cell_quotas.rs", "#[test]\nfn quotas_hold() {}\n"),
        ])
    };
    let found = check(&of("mod other;\n"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "crates/core/tests/cell_quotas.rs");
    assert!(check(&of("mod cell_quotas;\n")).is_empty());
}
