//! A public type shares its name only with its own wire form. A type of one crate has its name alone
//! in that crate. A few words name one type in the whole repository.

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

/// Words that name one type at most, private types and type aliases included: each had up to nine
/// meanings.
const ONE_MEANING: &[&str] = &["Answer", "Found", "Known", "Outcome", "Plan", "Report", "Waiting"];

/// The end of names that each module of a crate may use, and why.
const PER_MODULE: &[(&str, &str)] =
    &[("Arguments", "of the command that the module is named after")];

/// Names that several modules of one crate use for types that do not leave it, and why.
const WITHIN_CRATE: &[(&str, &str)] = &[
    ("Account", "the ledger's, and the share of it in a cell"),
    ("Jobs", "each machine has its own table"),
    ("Timers", "each machine has its own"),
    ("Line", "of the credits input and of a chart"),
];

/// A type and where it is defined.
struct Definition<'a> {
    file: &'a File,
    line: usize,
    seen: Visibility,
}

/// Where a type may be used.
#[derive(Clone, Copy, PartialEq)]
enum Visibility {
    Everywhere,
    Crate,
    Module,
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
        for (line, seen, name) in types_of(&Layers::of(&file.text).code) {
            types.entry(name).or_default().push(Definition { file, line, seen });
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
    if first.seen == Visibility::Module || second.seen == Visibility::Module {
        return ONE_MEANING.contains(&name);
    }
    if first.seen == Visibility::Crate || second.seen == Visibility::Crate {
        let allowed = WITHIN_CRATE.iter().any(|(allowed, _)| *allowed == name)
            || PER_MODULE.iter().any(|(end, _)| name.ends_with(end));
        return ONE_MEANING.contains(&name) || (one == other && !allowed);
    }
    let wire_form = (one == "crates/api") != (other == "crates/api");
    let generic = GENERIC.contains(&name) && one != other;
    !wire_form && !generic && !SHARED.iter().any(|(shared, _)| *shared == name)
}

/// The names after `struct`, `enum`, `trait` and `type` outside of the tests of a file.
fn types_of(code: &str) -> Vec<(usize, Visibility, String)> {
    let mut names = Vec::new();
    let lines = code.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    for (index, line) in lines.enumerate() {
        let (seen, rest) = visibility(line.trim_start());
        let mut words = rest.split_whitespace();
        if words.next().is_some_and(|word| ["struct", "enum", "trait", "type"].contains(&word)) {
            let name = words.next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            // A macro's `$name` is not a name yet. Associated types are named by their trait.
            if end > 0 && (seen != Visibility::Module || !line.starts_with(' ')) {
                names.push((index + 1, seen, name[..end].to_owned()));
            }
        }
    }
    names
}

/// The visibility that a line begins with, and the rest of the line.
fn visibility(line: &str) -> (Visibility, &str) {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with(' ') => (Visibility::Everywhere, rest),
        Some(rest) if rest.starts_with('(') => {
            (Visibility::Crate, rest.split_once(')').map_or("", |(_, rest)| rest))
        }
        Some(_) | None => (Visibility::Module, line),
    }
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
        assert_eq!(found(plan, ("crates/core/src/b.rs", "pub struct Planned;\nstruct Other;")), 0);
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
    fn a_type_of_one_crate_has_its_name_alone_there() {
        let here = ("crates/core/src/a.rs", "pub(crate) struct Rank;");
        assert_eq!(found(here, ("crates/core/src/b.rs", "pub(super) enum Rank {}")), 1);
        assert_eq!(found(here, ("crates/core/src/b.rs", "pub(in crate::x) type Rank = u8;")), 1);
        assert_eq!(found(here, ("crates/core/src/b.rs", "pub struct Rank;")), 1);
        assert_eq!(found(here, ("crates/sim/src/b.rs", "pub(crate) struct Rank;")), 0);
        assert_eq!(found(here, ("crates/core/src/b.rs", "struct Rank;")), 0);
        let set = ("crates/cli/src/a.rs", "pub(crate) struct SetArguments;");
        assert_eq!(found(set, ("crates/cli/src/b.rs", "pub(crate) struct SetArguments;")), 0);
    }

    #[test]
    fn some_words_have_one_meaning_everywhere() {
        let private = ("crates/core/src/a.rs", "struct Waiting;");
        assert_eq!(found(private, ("crates/sim/src/b.rs", "pub(super) enum Waiting {}")), 1);
        assert_eq!(found(private, ("crates/sim/src/b.rs", "type Waiting = u8;")), 1);
        let in_tests = "#[cfg(test)]\nmod tests {\n    struct Waiting;\n}";
        assert_eq!(found(private, ("crates/sim/src/b.rs", in_tests)), 0);
        assert_eq!(found(private, ("crates/sim/src/b.rs", "    type Waiting = u8;")), 0);
    }

    #[test]
    fn generic_names_are_understood_within_their_crate() {
        let error = ("crates/core/src/error.rs", "pub enum Error {}");
        assert_eq!(found(error, ("crates/journal/src/error.rs", "pub enum Error {}")), 0);
        assert_eq!(found(error, ("crates/core/src/other.rs", "pub enum Error {}")), 1);
    }
}
