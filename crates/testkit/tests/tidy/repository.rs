//! The files of the repository, read once, and the findings about them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Folders without source: build output, installed packages, version control.
const SKIPPED_FOLDERS: &[&str] = &[".git", "target", "node_modules", "web/dist"];

/// Extensions of files that are data, not prose or source.
const DATA: &[&str] =
    &["hex", "json", "jsonl", "lock", "svg", "png", "csv", "proptest-regressions", "profraw"];

/// A text file. Its path is relative to the root, with `/`.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    pub(crate) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    pub(crate) fn finding(&self, line: usize, advice: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, advice: advice.into() }
    }
}

/// A violation of a rule, and how to fix it.
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.advice)
    }
}

/// The files to check.
#[derive(Default)]
pub(crate) struct Repository {
    /// Text files, by path.
    pub(crate) files: Vec<File>,
    /// Paths of all files and folders, data included.
    pub(crate) paths: BTreeSet<String>,
}

impl Repository {
    /// The repository that this crate is part of.
    pub(crate) fn read() -> Repository {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut repository = Repository::default();
        repository.walk(&root, "");
        repository.files.sort_by(|a, b| a.path.cmp(&b.path));
        repository
    }

    /// A repository of sample files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Repository {
        let mut repository = Repository::default();
        for &(path, text) in files {
            for (end, _) in path.match_indices('/') {
                repository.paths.insert(path[..end].to_owned());
            }
            repository.paths.insert(path.to_owned());
            repository.files.push(File { path: path.to_owned(), text: text.to_owned() });
        }
        repository
    }

    fn walk(&mut self, folder: &Path, prefix: &str) {
        let entries = std::fs::read_dir(folder).expect("the folder was listed by its parent");
        for entry in entries {
            let entry = entry.expect("the checkout does not change during the test");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if SKIPPED_FOLDERS.iter().any(|skipped| *skipped == name || *skipped == path) {
                continue;
            }
            let kind = entry.file_type().expect("the checkout does not change during the test");
            self.paths.insert(path.clone());
            if kind.is_dir() {
                self.walk(&entry.path(), &format!("{path}/"));
            } else if kind.is_file() && !is_data(&path) {
                // Files that are not UTF-8 are not text.
                if let Ok(text) = std::fs::read_to_string(entry.path()) {
                    self.files.push(File { path, text });
                }
            }
        }
    }
}

fn is_data(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    DATA.contains(&extension) || path.contains("/golden/")
}

#[test]
fn the_repository_is_read_without_build_output_and_golden_files() {
    let repository = Repository::read();
    assert!(repository.files.iter().any(|file| file.path == "crates/testkit/tests/tidy.rs"));
    assert!(!repository.paths.contains("target"));
    assert!(!repository.files.iter().any(|file| is_data(&file.path)));
}
