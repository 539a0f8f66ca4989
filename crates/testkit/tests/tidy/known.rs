//! Findings that are known and not fixed yet. Their number per file may only fall.

use std::collections::BTreeMap;

use crate::repository::Finding;

/// One row each: check, file, number of findings.
const KNOWN: &str = include_str!("known.txt");

/// The findings of a file that has more of them than the list, and the rows of the list that are too high.
pub(crate) fn compare(check: &str, findings: &[Finding]) -> Vec<String> {
    compare_with(KNOWN, check, findings)
}

fn compare_with(list: &str, check: &str, findings: &[Finding]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        found.entry(&finding.path).or_default().push(finding);
    }
    let mut lines = Vec::new();
    let known: BTreeMap<&str, usize> = list.lines().filter_map(|row| row_of(row, check)).collect();
    for (path, findings) in &found {
        if findings.len() > known.get(path).copied().unwrap_or(0) {
            lines.extend(findings.iter().map(|finding| finding.to_string()));
        }
    }
    for (path, count) in known {
        let now = found.get(path).map_or(0, Vec::len);
        if now < count {
            lines.push(format!("tidy/known.txt: {check} {path} {count} is too high: write {now}"));
        }
    }
    lines
}

fn row_of<'a>(row: &'a str, check: &str) -> Option<(&'a str, usize)> {
    let mut words = row.split(' ');
    let (of, path, count) = (words.next()?, words.next()?, words.next()?);
    let count = count.parse().expect("the third word of a row is a number");
    (of == check).then_some((path, count))
}

#[test]
fn more_findings_than_known_fail_and_so_does_a_list_that_is_too_long() {
    let finding = |path: &str| Finding { path: path.to_owned(), line: 1, advice: "x".to_owned() };
    let list = "words a.rs 2\nwords b.rs 1\nsizes c.rs 1\n";
    let two = [finding("a.rs"), finding("a.rs")];
    assert_eq!(
        compare_with(list, "words", &two),
        ["tidy/known.txt: words b.rs 1 is too high: write 0"]
    );
    let more = [finding("a.rs"), finding("a.rs"), finding("a.rs"), finding("b.rs")];
    assert_eq!(compare_with(list, "words", &more).len(), 3);
    assert_eq!(compare_with(list, "words", &[finding("d.rs")]).len(), 3);
}
