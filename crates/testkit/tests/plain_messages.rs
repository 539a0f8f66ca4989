//! No debug text in what a person reads: messages of programs, answers of the server, logs,
//! violated laws and records are written in words. Debug text (`{:?}`) stays in tests, in assertions
//! and in the places listed here.

use std::path::{Path, PathBuf};

/// Crates whose texts people read.
const CRATES: &[&str] = &[
    "agent", "api", "audit", "cli", "client", "core", "engine", "fefo", "history", "journal",
    "server",
];

/// Files that have debug text, how often, and why nothing shows it.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("audit/src/books/grants.rs", 1, "compares the terms of grants"),
    ("engine/src/fault.rs", 2, "finds the words of a fault that a test asks for; not in releases"),
];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map_while(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The lines with debug text outside of tests.
fn debug_lines(text: &str) -> Vec<(usize, &str)> {
    let code = text.lines().enumerate().take_while(|(_, line)| *line != "#[cfg(test)]");
    let code = code.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.filter(|(_, line)| line.contains(":?}") || line.contains(":#?}")).collect()
}

/// Also finds an entry of the list that is no longer needed.
#[test]
fn no_debug_text_is_shown_to_users() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut findings = Vec::new();
    for name in CRATES {
        let mut files = Vec::new();
        rust_files(&crates.join(name).join("src"), &mut files);
        for path in files {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let short = path.strip_prefix(&crates).expect("below").display().to_string();
            let lines = debug_lines(&text);
            let asserts = lines.iter().filter(|(_, line)| line.contains("assert")).count();
            let allowed = ALLOWED.iter().find(|(file, ..)| *file == short);
            if lines.len() - asserts != allowed.map_or(0, |(_, count, _)| *count) {
                findings
                    .extend(lines.iter().map(|(at, line)| format!("{short}:{}: {line}", at + 1)));
            }
        }
    }
    assert!(findings.is_empty(), "write these in words:\n{}", findings.join("\n"));
}

#[test]
fn debug_text_is_found_outside_of_tests() {
    let text = "// {:?}\nformat!(\"{state:?}\")\n#[cfg(test)]\nmod tests { /* {x:?} */ }\n";
    assert_eq!(debug_lines(text), [(1, "format!(\"{state:?}\")")]);
}
