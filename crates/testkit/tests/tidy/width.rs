//! Limits on the width of lines in pages.

use crate::markdown::{self, Kind};
use crate::repository::{Finding, Repository};

const MAX_PROSE_COLUMNS: usize = 120;
/// A row of a table cannot be broken. A longer one should be prose.
const MAX_ROW_COLUMNS: usize = 400;

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| file.is_markdown()) {
        for (number, line, kind) in markdown::lines(&file.text) {
            let columns = line.chars().count();
            let advice = match kind {
                Kind::Prose if columns > MAX_PROSE_COLUMNS && can_be_broken(line) => {
                    format!("{columns} columns: break the line before column {MAX_PROSE_COLUMNS}")
                }
                Kind::Table if columns > MAX_ROW_COLUMNS => format!(
                    "{columns} columns: shorten the row to {MAX_ROW_COLUMNS}, or move it to prose"
                ),
                Kind::Prose | Kind::Table | Kind::Code => continue,
            };
            findings.push(file.finding(number, advice));
        }
    }
    findings
}

/// Whether there is a space outside of code after the mark of a list or a quotation. The space in
/// the definition of a link (`[name]: target`) does not count.
fn can_be_broken(line: &str) -> bool {
    let line = line.trim().trim_start_matches(['-', '*', '+', '>', ' ']);
    if line.starts_with('[') && line.contains("]: ") {
        return false;
    }
    let mut code = false;
    line.chars().any(|c| {
        code ^= c == '`';
        c == ' ' && !code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Repository::of(&[("docs/a.md", text)])).iter().map(|f| f.line).collect()
    }

    #[test]
    fn long_prose_and_long_rows_are_found() {
        let (words, word) = ("word ".repeat(30), "w".repeat(130));
        assert_eq!(lines(&format!("short\n{words}\n")), [2]);
        assert_eq!(lines(&format!("| {} |", "word ".repeat(90))), [1]);
        assert_eq!(lines(&format!("see [this]({word})")), [1]);
    }

    #[test]
    fn what_cannot_be_broken_is_left_alone() {
        let (words, word) = ("word ".repeat(30), "w".repeat(130));
        assert!(lines(&format!("```\n{words}\n```\n| {words} |\n")).is_empty());
        assert!(lines(&format!("- [this]({word}).\n[this]: {word}\n`{words}`\n")).is_empty());
    }
}
