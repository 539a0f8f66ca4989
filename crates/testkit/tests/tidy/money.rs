//! The server computes no money: sums and differences of credits are made in `core` and `history`, where
//! they are tested against a model. The server only shows them.

use crate::repository::{File, Finding, Repository};
use crate::rust::{self, Layers};

const SERVER: &str = "crates/server/src/";
/// Counts bytes of files, on disks with available blocks.
const LOGS: &str = "crates/server/src/logs/";

/// Parts of the names of amounts.
const AMOUNTS: &[&str] = &[
    "amount",
    "amounts",
    "available",
    "balance",
    "captured",
    "charged",
    "credits",
    "held",
    "micros",
    "overdraft",
    "pieces",
    "price",
    "refunded",
    "returned",
    "spendable",
    "spent",
    "uncollected",
    "units",
];

/// What code computes with. Formatted code has blanks around an operator with two sides.
const OPERATIONS: &[&str] = &[
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " += ",
    " -= ",
    " *= ",
    ".sum()",
    ".sum::<",
    ".fold(",
    "checked_add",
    "checked_mul",
    "checked_sub",
    "from_length",
    "saturating_add",
    "saturating_mul",
    "saturating_sub",
    "wrapping_",
];

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let server = repository.files.iter().filter(|file| {
        file.is_rust() && file.path.starts_with(SERVER) && !file.path.starts_with(LOGS)
    });
    server.filter(|file| !file.is_test()).flat_map(findings).collect()
}

fn findings(file: &File) -> Vec<Finding> {
    let code = Layers::of(&file.text).code;
    let lines = code.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let computed = lines.enumerate().filter(|(_, line)| computes_an_amount(line));
    let advice = "computes with credits: move it to a view of `core/src/ledger` or to `history`";
    computed.map(|(index, _)| file.finding(index + 1, advice)).collect()
}

fn computes_an_amount(line: &str) -> bool {
    OPERATIONS.iter().any(|operation| line.contains(operation))
        && rust::words(line).any(|word| word.split('_').any(|part| AMOUNTS.contains(&part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Repository::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn sums_and_differences_of_credits_are_found() {
        let source = "let used = spent + held;\nlet left = reply.amount.saturating_sub(reply.captured);\n\
            let all = parts.iter().map(|part| part.amount).sum();\nlet place = first + 1;\n\
            // spent + held\nlet text = \"amount + amount\";\nSum::from_micros(a * b)\n\
            #[cfg(test)]\nlet used = spent + held;\n";
        assert_eq!(lines("crates/server/src/render/a.rs", source), [1, 2, 3, 7]);
        assert!(lines("crates/history/src/a.rs", source).is_empty());
        assert!(lines("crates/server/src/logs/a.rs", source).is_empty());
    }
}
