//! Layers point one way: nothing but `start.rs` imports `server/src/http`, the core knows neither HTTP
//! nor JSON, and one folder reads JSON by other means than serde's.
//! `core/tests/layering.rs` checks the dependencies between crates.

use crate::repository::{File, Finding, Repository};
use crate::rust::{self, Layers};

const CORE: &str = "crates/core/src/";
const SERVER: &str = "crates/server/src/";
/// The folder, and the file of its module.
const HTTP: &[&str] = &["crates/server/src/http/", "crates/server/src/http.rs"];
/// Puts the parts of the server together, so it names all of them.
const START: &str = "crates/server/src/start.rs";

/// The reader of request bodies beside serde. Its benchmark is named in `flat.rs`.
const JSON: &str = "crates/api/src/json/";
/// What a reader or writer of JSON by hand contains.
const JSON_BY_HAND: &[&str] = &["Deserializer<'de> for", "RawValue", "b'{'", "b'['"];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| file.is_rust()) {
        if file.path.starts_with(CORE) {
            check_core(file, &mut findings);
        } else if file.path.starts_with(SERVER)
            && !HTTP.iter().any(|http| file.path.starts_with(http))
            && file.path != START
        {
            check_server(file, &mut findings);
        }
        if !file.is_test() && !file.path.starts_with(JSON) {
            check_json(file, &mut findings);
        }
    }
    findings
}

fn check_json(file: &File, findings: &mut Vec<Finding>) {
    let code = Layers::of(&file.text).code;
    for (index, (line, code)) in file.text.lines().zip(code.lines()).enumerate() {
        // Literals are blank in the code.
        let has = |text: &str| code.contains(text) || text.starts_with("b'") && line.contains(text);
        if let Some(found) = JSON_BY_HAND.iter().find(|text| has(text)) {
            let advice = format!("`{found}`: read JSON with serde, or in `{JSON}`");
            findings.push(file.finding(index + 1, advice));
        }
    }
}

fn check_server(file: &File, findings: &mut Vec<Finding>) {
    let code = Layers::of(&file.text).code;
    let mut grouped = false;
    for (index, line) in code.lines().enumerate() {
        // `use crate::{http::…, …}` over several lines.
        grouped |= line.trim_start().starts_with("use crate::{");
        let direct = names(line, "crate::http") || names(line, "super::http");
        if direct || (grouped && rust::words(line).any(|word| word == "http")) {
            let advice =
                "imports `crate::http`: move the shared code out of `http/`, or pass it in";
            findings.push(file.finding(index + 1, advice));
        }
        grouped &= !line.contains(';');
    }
}

/// Whether code names this path or an item below it.
fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let next = line[at + path.len()..].chars().next();
        !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn check_core(file: &File, findings: &mut Vec<Finding>) {
    let code = Layers::of(&file.text).code;
    for (index, (line, code)) in file.text.lines().zip(code.lines()).enumerate() {
        let word = rust::words(line).find(|word| ["StatusCode", "HTTP", "JSON"].contains(word));
        // The text of an `Opaque` is read by other crates only.
        let number = ["status(&self) -> u16", "status: u16", "payload.text()", "submitted.text()"]
            .iter()
            .find(|text| code.contains(**text));
        if let Some(named) = word.or(number.copied()) {
            let advice = format!(
                "`{named}`: the core knows no HTTP and no JSON; map refusals to codes in \
                 `server/src/request/failure.rs`, and pass text of the API through as `Opaque`"
            );
            findings.push(file.finding(index + 1, advice));
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
    fn imports_of_http_are_found_outside_of_it() {
        let source = "use crate::http::meta;\nuse crate::{\n    app,\n    http::extract,\n};\n\
            use crate::http;\n";
        assert_eq!(lines("crates/server/src/app.rs", source), [1, 4, 6]);
        assert!(lines("crates/server/src/http/router.rs", source).is_empty());
        assert!(lines("crates/server/src/http.rs", source).is_empty());
    }

    #[test]
    fn readers_of_json_by_hand_are_found_outside_of_their_folder() {
        let source = "impl<'de> Deserializer<'de> for X {\nlet x: &RawValue;\nout.push(b'{');\n";
        assert_eq!(lines("crates/server/src/app.rs", source), [1, 2, 3]);
        assert!(lines("crates/api/src/json/flat.rs", source).is_empty());
        assert!(lines("crates/server/src/app.rs", "serde_json::from_slice(b)?;\n").is_empty());
    }

    #[test]
    fn other_imports_are_fine() {
        let source = "mod http;\nuse http::Method;\nuse crate::https;\n// crate::http::meta\n\
            use crate::{app, store};\nlet http = 1;\n";
        assert!(lines("crates/server/src/lib.rs", source).is_empty());
    }

    #[test]
    fn the_core_knows_no_status() {
        let source = "use x::StatusCode;\n/// The pinned HTTP status.\n\
            pub fn status(&self) -> u16 {\npub status: u16,\npub fn status(&self) -> State {\n\
            /// The job as JSON.\nlet id = order.payload.text();\n";
        assert_eq!(lines("crates/core/src/a.rs", source), [1, 2, 3, 4, 6, 7]);
        assert!(lines("crates/server/src/a.rs", source).is_empty());
    }
}
