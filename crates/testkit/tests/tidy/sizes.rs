//! Limits on the entries of a folder and the lines of a file.

use std::collections::BTreeMap;

use crate::repository::{Finding, Repository};

const MAX_ENTRIES: usize = 20;
const MAX_SOURCE_LINES: usize = 500;
const MAX_TEST_LINES: usize = 900;

/// Folders that may have more entries, without those below them, and why.
const LARGE_FOLDERS: &[(&str, &str)] = &[
    ("docs/problems", "one page for each error code, named by the code"),
    ("docs/images", "two pictures of each page of the dashboard"),
    ("docs/adr", "decisions are numbered and never removed"),
    ("crates/journal/tests/golden/*", "one file for each stored record"),
    ("crates/core/tests/scenarios", "one story each, numbered"),
    ("crates/*/tests", "one file for each subject; cargo expects targets in one folder"),
];

pub(crate) fn check_folders(repository: &Repository) -> Vec<Finding> {
    let mut entries: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &repository.paths {
        let (folder, _) = path.rsplit_once('/').unwrap_or((".", path));
        *entries.entry(folder).or_default() += 1;
    }
    let large = entries.into_iter().filter(|(folder, count)| {
        *count > MAX_ENTRIES && !LARGE_FOLDERS.iter().any(|(pattern, _)| matches(folder, pattern))
    });
    large
        .map(|(folder, count)| Finding {
            path: folder.to_owned(),
            line: 1,
            advice: format!(
                "{count} entries: group them by concept into folders of {MAX_ENTRIES} at most"
            ),
        })
        .collect()
}

/// Whether a folder matches a pattern. `*` stands for one name.
fn matches(folder: &str, pattern: &str) -> bool {
    let mut names = folder.split('/');
    let is_match = |part| names.next().is_some_and(|name| part == "*" || part == name);
    pattern.split('/').all(is_match) && names.next().is_none()
}

pub(crate) fn check_files(repository: &Repository) -> Vec<Finding> {
    let sources = repository.files.iter().filter(|file| file.is_rust());
    sources
        .filter_map(|file| {
            let count = file.text.lines().count();
            let max = if file.is_test() { MAX_TEST_LINES } else { MAX_SOURCE_LINES };
            let advice = format!("{count} lines: split the file by concept, {max} lines at most");
            (count > max).then(|| file.finding(max + 1, advice))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, entries: usize) -> Vec<Finding> {
        let paths: Vec<String> = (0..entries).map(|i| format!("{name}/{i}.rs")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        check_folders(&Repository::of(&files))
    }

    #[test]
    fn large_folders_are_found() {
        assert_eq!(folder("crates/core/src/cell", 21)[0].path, "crates/core/src/cell");
        assert!(folder("crates/core/src/cell", 20).is_empty());
        assert!(folder("docs/problems", 30).is_empty());
        assert!(folder("crates/cli/tests", 30).is_empty());
        assert_eq!(folder("crates/cli/tests/service", 21).len(), 1);
        assert_eq!(folder("crates/cli/src/tests", 21).len(), 1);
    }

    #[test]
    fn long_files_are_found() {
        let found = |path: &str, lines: usize| {
            check_files(&Repository::of(&[(path, &"x\n".repeat(lines))])).len()
        };
        assert_eq!(found("crates/core/src/a.rs", 501), 1);
        assert_eq!(found("crates/core/src/a.rs", 500), 0);
        assert_eq!(found("crates/core/tests/a.rs", 901), 1);
        assert_eq!(found("crates/core/tests/a.rs", 900), 0);
        assert_eq!(found("docs/a.md", 1000), 0);
    }
}
