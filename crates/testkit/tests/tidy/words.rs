//! Plain words: no personal pronouns for jobs, accounts or servers, and one prefix for bounds.

use crate::repository::{File, Finding, Repository};
use crate::rust::{self, Layers};

/// Banned words, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("he", "name the thing, or write \"it\""),
    ("his", "name the thing, or write \"its\""),
    ("him", "name the thing, or write \"it\""),
    ("whoever", "name the caller, the job or the account"),
    ("somebody", "name the caller, the user or the account"),
    ("nobody", "write \"no caller\", \"no job\", \"no account\""),
    ("anybody", "write \"any caller\", \"any user\""),
    ("everybody", "write \"every caller\", \"every user\""),
    ("told", "write what is sent or called: \"receives\", \"is notified\", \"called after\""),
];

const PREFIXES: &[(&str, &str)] = &[("MOST_", "MAX_"), ("USUAL_", "DEFAULT_")];

/// Files that may use banned words, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/testkit/tests/tidy/words.rs", "names the words that are banned"),
    ("crates/audit/src/forms/cell.rs", "has the stored name of an event"),
    ("crates/audit/src/forms/ledger.rs", "has the stored name of an event"),
];

/// Folders whose files are checked although they are neither Rust nor pages.
const FOLDERS: &[&str] = &["scripts/", ".ci/", "deploy/", "examples/", "crates/bench/", "web/"];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let checked =
        repository.files.iter().filter(|file| !ALLOWED.iter().any(|(path, _)| *path == file.path));
    checked.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is_rust() {
        let layers = Layers::of(&file.text);
        check_text(file, &layers.comments, &mut findings);
        check_text(file, &layers.strings, &mut findings);
        for keyword in ["fn", "let", "mut", "struct", "enum", "type", "trait", "mod"] {
            for (line, name) in rust::defined(&layers.code, keyword) {
                for (word, advice) in banned_in(&rust::separated(name)) {
                    let advice = format!("`{word}` in the name `{name}`: {advice}");
                    findings.push(file.finding(line, advice));
                }
            }
        }
        for keyword in ["const", "static"] {
            for (line, name) in rust::defined(&layers.code, keyword) {
                check_prefix(file, line, name, &mut findings);
            }
        }
    } else if is_prose(file) {
        check_text(file, &file.text, &mut findings);
        for (index, line) in file.text.lines().enumerate() {
            rust::words(line).for_each(|word| check_prefix(file, index + 1, word, &mut findings));
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

fn is_prose(file: &File) -> bool {
    let in_folder = FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    in_folder || file.is_markdown() || file.path.ends_with(".toml")
}

fn check_text(file: &File, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        for (word, advice) in banned_in(line) {
            findings.push(file.finding(index + 1, format!("`{word}`: {advice}")));
        }
    }
}

/// The banned words of a text. Underscores separate words, because test names are claims.
fn banned_in(text: &str) -> Vec<(&'static str, &'static str)> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter_map(|word| BANNED.iter().find(|(banned, _)| banned.eq_ignore_ascii_case(word)))
        .copied()
        .collect()
}

fn check_prefix(file: &File, line: usize, name: &str, findings: &mut Vec<Finding>) {
    for (prefix, instead) in PREFIXES {
        if let Some(rest) = name.strip_prefix(prefix) {
            findings.push(file.finding(line, format!("`{name}`: write `{instead}{rest}`")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Repository::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn banned_words_are_found_in_comments_literals_and_names() {
        let source = "/// What he has.\nfn the_other() {}\nfn nobody_waits() {}\n\
            // Whoever's\nlet x = \"as\\ntold\";\n";
        assert_eq!(lines("crates/core/src/a.rs", source), [1, 3, 4, 5]);
        let names = "let told = 1;\nlet mut told = 1;\nstruct CellTold;\nenum Holdings {}\n";
        assert_eq!(lines("crates/core/src/a.rs", names), [1, 2, 3]);
    }

    #[test]
    fn other_words_and_code_are_left_alone() {
        let source = "/// This is the other one; sheltered.\nlet x = he.his(him);\n";
        assert!(lines("crates/core/src/a.rs", source).is_empty());
    }

    #[test]
    fn banned_words_are_found_in_pages_and_scripts() {
        assert_eq!(lines("docs/a.md", "fine\nSomebody waits"), [2]);
        assert_eq!(lines("README.md", "`keys::nobody_makes_a_key`"), [1]);
        assert_eq!(lines("scripts/test", "# Everybody\n"), [1]);
    }

    #[test]
    fn bounds_are_called_max_and_default() {
        let source = "const MOST_NODES: u32 = 1;\nstatic USUAL_PORT: u16 = MOST_NODES;\n";
        let findings = check(&Repository::of(&[("crates/core/src/a.rs", source)]));
        assert_eq!(findings[0].advice, "`MOST_NODES`: write `MAX_NODES`");
        assert_eq!(findings[1].advice, "`USUAL_PORT`: write `DEFAULT_PORT`");
        assert_eq!(findings.len(), 2);
    }
}
