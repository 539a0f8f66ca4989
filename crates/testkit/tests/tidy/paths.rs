//! Paths of the repository that pages name as code must exist.

use crate::markdown;
use crate::repository::{Finding, Repository};

/// Pages that name files of earlier versions.
const PAST: &[(&str, &str)] = &[("CHANGELOG.md", "names files as they were in each version")];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| file.is_markdown()) {
        if PAST.iter().any(|(path, _)| *path == file.path) {
            continue;
        }
        for (line, span) in markdown::spans(&file.text).0 {
            let Some(word) = span.split_whitespace().next() else { continue };
            for path in expand(word) {
                if is_path(repository, &path) && !exists(repository, &path) {
                    let advice = format!("`{path}` does not exist: name the file as it is now");
                    findings.push(file.finding(line, advice));
                }
            }
        }
    }
    findings
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expand(word: &str) -> Vec<String> {
    let braces = word.split_once('{').and_then(|(before, rest)| {
        let (inner, after) = rest.split_once('}')?;
        Some((before, inner, after))
    });
    match braces {
        None => vec![word.to_owned()],
        Some((before, inner, after)) => inner
            .split(',')
            .flat_map(|part| expand(&format!("{before}{}{after}", part.trim())))
            .collect(),
    }
}

/// Whether a word can only be a path of this repository: it begins with one of its folders or with
/// a folder of a crate, or is the name of a Rust file.
fn is_path(repository: &Repository, word: &str) -> bool {
    let spelled = |c: char| c.is_ascii_alphanumeric() || "_-./*".contains(c);
    if !word.chars().all(spelled) || word.starts_with('/') || word.contains("..") {
        return false;
    }
    if word.ends_with(".rs") {
        return true;
    }
    let mut parts = word.split('/').filter(|part| !part.is_empty());
    let (Some(first), Some(second)) = (parts.next(), parts.next()) else { return false };
    let folder = |path: &str| repository.paths.iter().any(|known| known.starts_with(path));
    let of_crate = ["src", "tests", "examples", "benches"].contains(&second)
        && folder(&format!("crates/{first}/"));
    of_crate || folder(&format!("{first}/"))
}

/// Whether a path is complete from the root or from `crates/`, or is the end of one.
fn exists(repository: &Repository, word: &str) -> bool {
    let word = word.trim_end_matches('/');
    let wanted: Vec<&str> = word.split('/').collect();
    repository.paths.iter().any(|path| {
        let names: Vec<&str> = path.split('/').collect();
        let matches = |names: &[&str]| {
            names.len() == wanted.len()
                && names.iter().zip(&wanted).all(|(name, pattern)| fits(name, pattern))
        };
        names.len() >= wanted.len() && matches(&names[names.len() - wanted.len()..])
    })
}

/// Whether a name fits a pattern in which `*` stands for any letters.
fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| fits(&name[at..], rest))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<usize> {
        let files = [
            ("docs/page.md", page),
            ("crates/core/src/ledger/hold.rs", ""),
            ("crates/core/tests/cell_turns.rs", ""),
            ("scripts/test", ""),
        ];
        check(&Repository::of(&files)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        assert_eq!(lines("`crates/core/src/missing.rs`\n`core/tests/missing`"), [1, 2]);
        assert_eq!(lines("\n`missing.rs`, `ledger/missing.rs`, `scripts/missing -x`"), [2, 2, 2]);
        assert_eq!(lines("`core/tests/missing*.rs`, `core/src/ledger/{hold,job}.rs`"), [1, 1]);
    }

    #[test]
    fn paths_that_exist_and_other_words_are_fine() {
        let page = "`crates/core/src/ledger/hold.rs`, `core/tests/cell_*.rs`, `hold.rs`,\n\
            `core/src/{ledger,ledger/hold.rs}`, `scripts/test --all`, `core/tests/`,\n\
            `/v1/jobs`, `application/json`, `docs/<code>.md`, `a..b/c.rs`\n";
        assert!(lines(page).is_empty());
    }
}
