//! No debug text in what a user reads: messages of programs, answers of the server, logs of the
//! agent are written in words. Debug text (`{:?}`) stays in tests and in the places listed here.

use std::path::{Path, PathBuf};

/// Crates whose texts reach users.
const CRATES: &[&str] = &["agent", "api", "cli", "client", "server"];

/// Files that may use debug text, how often, and why no user reads it.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("api/src/json/mod.rs", 1, "in a test"),
    ("cli/src/bench/http/world.rs", 1, "a benchmark whose books are wrong: numbers of a tuple"),
    ("server/src/auth/oidc/provider.rs", 1, "the name of an algorithm, one word"),
    ("server/src/backup/mod.rs", 1, "a refusal that cannot happen: a fresh store has no state"),
    ("server/src/http/handlers/nodes/agent_orders.rs", 1, "compares orders; never shown"),
    ("server/src/http/openapi.rs", 1, "the name of a variant in one word"),
    ("server/src/operations.rs", 1, "the name of a variant, split into words"),
    ("server/src/start/regions.rs", 3, "refusals that cannot happen: the server made the command"),
];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map_while(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
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
            if lines.len() - asserts > allowed.map_or(0, |(_, count, _)| *count) {
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
