//! A constant duration says by its name what it bounds.

use crate::repository::{File, Finding, Repository};
use crate::rust::Layers;

const ENDS: &[&str] =
    &["TIMEOUT", "INTERVAL", "DELAY", "GRACE", "BACKOFF", "TTL", "WINDOW", "AGE", "HOUR"];
const BEGINNINGS: &[&str] = &["MAX_", "MIN_", "DEFAULT_"];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    repository.files.iter().filter(|file| file.is_rust()).flat_map(findings).collect()
}

fn findings(file: &File) -> Vec<Finding> {
    let code = Layers::of(&file.text).code;
    let names = code.lines().enumerate().filter_map(|(index, line)| {
        let (_, constant) = line.split_once("const ")?;
        let (name, rest) = constant.split_once(": ")?;
        let is_duration = rest.starts_with("Duration ") || rest.starts_with("std::time::Duration ");
        let is_clear = ENDS.iter().any(|end| name.ends_with(end))
            || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
        (is_duration && !is_clear).then_some((index + 1, name))
    });
    let advice =
        |name| format!("`{name}` is a duration: end it with _TIMEOUT, _INTERVAL or _DELAY");
    names.map(|(line, name)| file.finding(line, advice(name))).collect()
}

#[test]
fn a_duration_without_a_usual_name_is_found() {
    let file = |text: &str| File { path: "crates/a/src/b.rs".into(), text: text.into() };
    let found = |text: &str| findings(&file(text)).len();
    assert_eq!(found("const PATIENCE: Duration = Duration::from_secs(1);\n"), 1);
    assert_eq!(found("pub(crate) const LOOK_EVERY: std::time::Duration = SECOND;\n"), 1);
    for clear in ["MAX_WAIT", "RETRY_INTERVAL", "TIMEOUT", "LEASE_TTL"] {
        assert_eq!(found(&format!("const {clear}: Duration = SECOND;\n")), 0, "{clear}");
    }
    assert_eq!(found("const LIMIT: usize = 1;\n"), 0);
    assert_eq!(found("// const PATIENCE: Duration = Duration::from_secs(1);\n"), 0);
}
