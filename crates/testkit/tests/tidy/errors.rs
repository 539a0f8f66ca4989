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

/// Crates whose texts people read.
const READ_BY_PEOPLE: &[&str] = &[
    "crates/agent/src/",
    "crates/api/src/",
    "crates/audit/src/",
    "crates/cli/src/",
    "crates/client/src/",
    "crates/core/src/ledger/",
    "crates/history/src/",
    "crates/server/src/",
];

/// Lines with the debug form of a value that no person reads, and why.
const NOT_READ: &[(&str, &str)] = &[
    ("crates/audit/src/books/grants.rs", "compared with another such text, never shown"),
    ("crates/server/src/http/handlers/nodes/agent_orders.rs", "compared, never shown"),
    ("crates/server/src/http/openapi.rs", "the name of a variant"),
    ("crates/server/src/operations.rs", "the name of a variant"),
];

/// Debug text is for programmers: it has names of types and fields, and changes with them.
pub(crate) fn check_debug_text(repository: &Repository) -> Vec<Finding> {
    let sources = repository.files.iter().filter(|file| {
        let is_read = READ_BY_PEOPLE.iter().any(|path| file.path.starts_with(path));
        let is_known = NOT_READ.iter().any(|(path, _)| file.path == *path);
        file.is_rust() && !file.is_test() && is_read && !is_known
    });
    sources.flat_map(debug_texts).collect()
}

fn debug_texts(file: &File) -> Vec<Finding> {
    let Layers { code, strings, .. } = Layers::of(&file.text);
    let lines = code.lines().zip(strings.lines());
    let lines = lines.take_while(|(code, _)| !code.starts_with("#[cfg(test)]"));
    let found = lines.enumerate().filter(|(_, (code, text))| {
        let in_log = code.contains("tracing::") && (code.contains("(?") || code.contains(", ?"));
        text.contains(":?}") || text.contains(":#?}") || in_log
    });
    let advice = "debug text: implement Display, or write what the reader needs";
    found.map(|(index, _)| file.finding(index + 1, advice)).collect()
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

    #[test]
    fn debug_text_is_found_where_people_read_it() {
        let source = "let a = format!(\"{b:?}\");\ntracing::warn!(?role, \"x\");\nlet c = d?;\n\
            #[cfg(test)]\nmod tests { fn e() { panic!(\"{f:?}\") } }\n";
        let lines = |path: &str| -> Vec<usize> {
            let found = check_debug_text(&Repository::of(&[(path, source)]));
            found.iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines("crates/server/src/a.rs"), [1, 2]);
        assert!(lines("crates/core/src/a.rs").is_empty());
        assert_eq!(lines("crates/core/src/ledger/a.rs"), [1, 2]);
        assert!(lines("crates/server/src/operations.rs").is_empty());
    }
}
