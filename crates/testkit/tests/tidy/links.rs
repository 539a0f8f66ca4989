//! Links of pages must lead to existing files and headings.

use std::collections::{BTreeSet, HashMap};

use crate::markdown::{self, Kind};
use crate::repository::{Finding, Repository};

pub(crate) fn check(repository: &Repository) -> Vec<Finding> {
    let pages: Vec<_> = repository.files.iter().filter(|file| file.is_markdown()).collect();
    let anchors: HashMap<&str, BTreeSet<String>> =
        pages.iter().map(|file| (file.path.as_str(), anchors(&file.text))).collect();
    let mut findings = Vec::new();
    for file in pages {
        for (line, target) in targets(&file.text) {
            if target.contains(':') || target.starts_with('/') {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            if !path.is_empty() && !repository.paths.contains(&path) {
                findings
                    .push(file.finding(line, format!("`{target}`: no `{path}`; link to a file")));
            } else if !anchor.is_empty()
                && anchors.get(path.as_str()).is_some_and(|known| !known.contains(anchor))
            {
                let advice = format!("`{target}`: `{path}` has no heading `#{anchor}`");
                findings.push(file.finding(line, advice));
            }
        }
    }
    findings
}

/// The targets of `[text](target "title")` and `[name]: target`, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let (_, prose) = markdown::spans(text);
    let mut targets = Vec::new();
    for (index, line) in prose.lines().enumerate() {
        let inline = line.match_indices("](").filter_map(|(at, mark)| {
            let inner = &line[at + mark.len()..];
            Some(&inner[..inner.find(')')?])
        });
        let definition = line.starts_with('[').then(|| line.split_once("]: ")).flatten();
        let all = inline.chain(definition.map(|(_, target)| target));
        let targeted = all.filter_map(|target| target.split_whitespace().next());
        targets.extend(targeted.map(|target| (index + 1, target.to_owned())));
    }
    targets
}

/// A target as a path from the root.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line, kind) in markdown::lines(text) {
        let title = line.trim_start_matches('#');
        if kind != Kind::Prose || title == line || !title.starts_with(' ') {
            continue;
        }
        let letters = title.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ if c.is_alphanumeric() => Some(c),
            _ => None,
        });
        let slug: String = letters.flat_map(char::to_lowercase).collect();
        let mut anchor = slug.clone();
        let mut repeated = 0;
        while !anchors.insert(anchor.clone()) {
            repeated += 1;
            anchor = format!("{slug}-{repeated}");
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<usize> {
        let other = ("docs/other.md", "# Other: `a` page\n## Twice\n## Twice\n");
        let files = [("docs/adr/page.md", page), other, ("README.md", "")];
        check(&Repository::of(&files)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_to_missing_files_and_headings_are_found() {
        assert_eq!(lines("[a](../missing.md)\n[b](other.md)"), [1, 2]);
        assert_eq!(lines("\n[a](../other.md#missing) [b](#missing)"), [2, 2]);
        assert_eq!(lines("[a]: ../missing.md"), [1]);
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let page = "# Here\n[a](../other.md) [b](../../README.md \"title\") [c](#here) [d](../)\n\
            [`e`](../other.md#other-a-page) [f](../other.md#twice-1) [g](https://example.org/x)\n\
            `[h](missing.md)`\n```\n[i](missing.md)\n```\n";
        assert!(lines(page).is_empty());
    }
}
