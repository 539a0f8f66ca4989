//! A public type shares its name only with its own wire form.

use std::collections::BTreeMap;

use crate::repository::{File, Finding, Repository};
use crate::rust::Layers;

/// Names without a domain meaning. Each crate may have one.
const GENERIC: &[&str] = &["Error", "Result", "Options"];

/// Names that several places may define, and why.
const SHARED: &[(&str, &str)] = &[
    ("Command", "each machine has its own: ledger, cell, directory"),
    ("Event", "each machine has its own"),
    ("Refusal", "each machine has its own"),
    ("Reply", "each machine has its own"),
    ("Image", "each machine has its own"),
    ("ImageError", "each machine has its own"),
];

/// A type and where it is defined.
struct Definition<'a> {
    file: &'a File,
    line: usize,
}

impl Definition<'_> {
    /// The folder of the crate: `crates/core`.
    fn krate(&self) -> &str {
        self.file.path.split_once("/src/").map_or("", |(krate, _)| krate)
    }
}

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let mut types: BTreeMap<String, Vec<Definition<'_>>> = BTreeMap::new();
    let sources = repository.files.iter().filter(|file| {
        file.is_rust() && file.path.starts_with("crates/") && file.path.contains("/src/")
    });
    for file in sources {
        for (line, name) in public_types(&Layers::of(&file.text).code) {
            types.entry(name).or_default().push(Definition { file, line });
        }
    }
    let mut findings = Vec::new();
    for (name, definitions) in &types {
        for (index, second) in definitions.iter().enumerate() {
            let earlier = definitions[..index].iter();
            if let Some(first) = earlier.clone().find(|first| clash(name, first, second)) {
                let advice = format!(
                    "`{name}` is also a type of {}:{}: give each its own name",
                    first.file.path, first.line
                );
                findings.push(second.file.finding(second.line, advice));
            }
        }
    }
    findings
}

fn clash(name: &str, first: &Definition<'_>, second: &Definition<'_>) -> bool {
    let (one, other) = (first.krate(), second.krate());
    let wire_form = (one == "crates/api") != (other == "crates/api");
    let generic = GENERIC.contains(&name) && one != other;
    !wire_form && !generic && !SHARED.iter().any(|(shared, _)| *shared == name)
}

/// The names after `pub struct`, `pub enum`, `pub trait` and `pub type`.
fn public_types(code: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut words = line.split_whitespace();
        let keyword = words.next().filter(|word| *word == "pub").and_then(|_| words.next());
        if keyword.is_some_and(|word| ["struct", "enum", "trait", "type"].contains(&word)) {
            let name = words.next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            // A macro's `$name` is not a name yet.
            if end > 0 {
                names.push((index + 1, name[..end].to_owned()));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: (&str, &str), second: (&str, &str)) -> usize {
        check(&Repository::of(&[first, second])).len()
    }

    #[test]
    fn two_types_of_one_name_are_found() {
        let plan = ("crates/core/src/a.rs", "pub struct Plan<T>(T);");
        assert_eq!(found(plan, ("crates/sim/src/b.rs", "pub enum Plan {}")), 1);
        assert_eq!(found(plan, ("crates/core/src/b.rs", "pub type Plan = u8;")), 1);
        assert_eq!(found(plan, ("crates/core/src/b.rs", "pub struct Planned;\nstruct Plan;")), 0);
        assert_eq!(found(plan, ("crates/core/tests/b.rs", "pub struct Plan;")), 0);
        let made = "pub struct $name;\npub enum $name {}";
        assert_eq!(found(plan, ("crates/core/src/b.rs", made)), 0);
    }

    #[test]
    fn the_wire_form_has_the_name_of_its_type() {
        let api = ("crates/api/src/grant.rs", "pub struct Grant {");
        assert_eq!(found(api, ("crates/core/src/grant.rs", "pub struct Grant {")), 0);
        assert_eq!(found(api, ("crates/api/src/other.rs", "pub struct Grant {")), 1);
        let core = ("crates/core/src/grant.rs", "pub struct Grant {");
        let files = [api, core, ("crates/sim/src/grant.rs", "pub struct Grant {")];
        assert_eq!(check(&Repository::of(&files)).len(), 1);
    }

    #[test]
    fn generic_names_are_understood_within_their_crate() {
        let error = ("crates/core/src/error.rs", "pub enum Error {}");
        assert_eq!(found(error, ("crates/journal/src/error.rs", "pub enum Error {}")), 0);
        assert_eq!(found(error, ("crates/core/src/other.rs", "pub enum Error {}")), 1);
    }
}
