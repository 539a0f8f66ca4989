//! The allowed dependencies between the crates of this workspace.

#![allow(clippy::unwrap_used, reason = "the checks need the output of cargo metadata")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// The workspace crates that each workspace crate may use, except in tests.
const MAY_USE: &[(&str, &[&str])] = &[
    ("fefo", &[]),
    ("bursar-seeded", &[]),
    ("bursar-core", &["bursar-seeded", "fefo"]),
    ("bursar-journal", &["bursar-core", "bursar-seeded", "fefo"]),
    ("bursar-engine", &["bursar-core", "bursar-journal", "bursar-seeded"]),
    ("bursar-history", &["bursar-core", "bursar-journal", "bursar-engine", "fefo"]),
    // Of the core only the units, and the ledger's numbers that it compares with. It has its own
    // parser, hash chain and books.
    ("bursar-audit", &["bursar-core", "bursar-journal"]),
    ("bursar-api", &[]),
    ("bursar-client", &["bursar-api"]),
    (
        "bursar-server",
        &[
            "bursar-core",
            "bursar-journal",
            "bursar-engine",
            "bursar-history",
            "bursar-audit",
            "bursar-api",
            "fefo",
        ],
    ),
    ("bursar-agent", &["bursar-api", "bursar-client"]),
    ("bursar-sim", &["bursar-core", "bursar-journal", "bursar-engine", "fefo"]),
    ("bursar-bench", &["bursar-core", "bursar-journal", "bursar-engine", "bursar-history", "fefo"]),
    ("bursar-testkit", &["bursar-core", "bursar-api", "bursar-client", "fefo"]),
];

/// The external crates that the pure crates may use: no clock, no I/O, no runtime, no
/// serialisation.
const PURE: &[(&str, &[&str])] = &[
    ("fefo", &[]),
    (
        "bursar-core",
        &["blake3", "compact_str", "foldhash", "hashbrown", "indexmap", "rustc-hash", "smallvec"],
    ),
];

/// Each workspace crate with its direct dependencies, except those of tests and build scripts.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap().iter();
            let normal = all.filter(|dependency| dependency["kind"].is_null());
            (text(&package["name"]), normal.map(|dependency| text(&dependency["name"])).collect())
        })
        .collect()
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let dependencies = dependencies();
    let ours: BTreeSet<&String> = dependencies.keys().collect();
    for (name, used) in &dependencies {
        // The binary links everything.
        if name == "bursar-cli" {
            continue;
        }
        let rule = MAY_USE.iter().find(|(crate_name, _)| crate_name == name);
        let (_, allowed) =
            rule.unwrap_or_else(|| panic!("add {name} and its allowed dependencies to MAY_USE"));
        for dependency in used.iter().filter(|dependency| ours.contains(dependency)) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not use {dependency}");
        }
    }
}

#[test]
fn the_pure_crates_stay_pure() {
    let dependencies = dependencies();
    let ours: BTreeSet<&String> = dependencies.keys().collect();
    for (name, allowed) in PURE {
        for dependency in &dependencies[*name] {
            let fine = ours.contains(dependency) || allowed.contains(&dependency.as_str());
            assert!(fine, "{name} must stay pure and cannot use {dependency}");
        }
    }
}
