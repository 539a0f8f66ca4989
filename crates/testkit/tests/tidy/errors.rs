//! Errors are types. A text as an error cannot be matched, and the next caller searches it for words.

use crate::repository::{File, Finding, Repository};
use crate::rust::Layers;

/// Files and folders whose errors are texts, and why.
const TEXTS: &[(&str, &str)] = &[
    ("crates/cli/src/arguments/", "value parsers of clap, which shows the text"),
    ("crates/cli/src/simulate/", "value parsers of clap, which shows the text"),
    ("crates/cli/src/command/jobs/arguments.rs", "value parsers of clap, which shows the text"),
    ("crates/cli/src/command/accounts/", "value parsers of clap, which shows the text"),
    ("crates/cli/src/pool/mod.rs", "value parsers of clap, which shows the text"),
    ("crates/testkit/src/compare/", "the text is the difference between the ledger and the model"),
    ("crates/bench/peers/", "a program of its own that ends with the text"),
];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let sources = repository.files.iter().filter(|file| {
        file.is_rust()
            && !file.is_test()
            && !TEXTS.iter().any(|(path, _)| file.path.starts_with(path))
    });
    sources.flat_map(findings).collect()
}

fn findings(file: &File) -> Vec<Finding> {
    let code = Layers::of(&file.text).code;
    let lines = code.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let texts = lines.enumerate().filter(|(_, line)| {
        let result = line.find("Result<").map(|at| &line[at..]);
        let text = result.is_some_and(|result| result.contains(", String>")) && !is_map(line);
        let literal = result.is_some_and(|result| result.contains(", &'static str>"));
        let named = ["type Err = String", "type Err = &", "type Error = String", "type Error = &"];
        text || literal || named.iter().any(|named| line.contains(named))
    });
    let advice = "an error as text: use an enum, or a struct that says what went wrong";
    texts.map(|(index, _)| file.finding(index + 1, advice)).collect()
}

/// Whether every `, String>` of a line ends the type of a map.
fn is_map(line: &str) -> bool {
    line.matches(", String>").count() == line.matches("Map<String, String>").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Repository::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn texts_as_errors_are_found() {
        let source = "fn a() -> Result<(), String> {\nfn b() -> Result<Vec<u8>, Error> {\n\
            fn c() -> Result<BTreeMap<String, String>, Error> {\n    type Err = String;\n\
            fn d() -> Result<BTreeMap<String, String>, String> {\nfn e() -> Result<(String, String), String> {\n";
        assert_eq!(lines("crates/server/src/a.rs", source), [1, 4, 5, 6]);
        let literals = "fn f() -> Result<u8, &'static str> {\n    type Error = &'static str;\n";
        assert_eq!(lines("crates/server/src/a.rs", literals), [1, 2]);
        assert!(lines("crates/cli/src/arguments/mod.rs", source).is_empty());
    }
}
