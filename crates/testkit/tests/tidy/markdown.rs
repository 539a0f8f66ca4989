//! Pages of documentation, line by line.

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prose,
    Table,
    /// A line of a code block, or one of its fences.
    Code,
}

/// The lines of a page with their numbers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str, Kind)> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().map(move |(index, line)| {
        let trimmed = line.trim_start();
        let kind = match fence {
            Some(closing) => {
                if trimmed.starts_with(closing) {
                    fence = None;
                }
                Kind::Code
            }
            None if trimmed.starts_with("```") || trimmed.starts_with("~~~") => {
                fence = Some(&trimmed[..3]);
                Kind::Code
            }
            None if trimmed.starts_with('|') => Kind::Table,
            None => Kind::Prose,
        };
        (index + 1, line, kind)
    })
}

/// A page without its code blocks; the lines keep their numbers.
fn without_blocks(text: &str) -> String {
    let kept = lines(text).map(|(_, line, kind)| if kind == Kind::Code { "" } else { line });
    kept.collect::<Vec<_>>().join("\n")
}

/// The code spans of a page with the lines on which they begin, and the page without them and
/// without code blocks. A span may continue on the next line, not in the next paragraph.
pub(crate) fn spans(text: &str) -> (Vec<(usize, String)>, String) {
    let text = without_blocks(text);
    let (mut spans, mut prose) = (Vec::new(), String::new());
    let mut rest = text.as_str();
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].bytes().take_while(|byte| *byte == b'`').count();
        let (before, opened) = rest.split_at(start);
        let (fence, inner) = opened.split_at(ticks);
        prose.push_str(before);
        let paragraph = inner.find("\n\n").unwrap_or(inner.len());
        match closing(&inner[..paragraph], fence) {
            Some(end) => {
                let line = prose.matches('\n').count() + 1;
                spans.push((line, inner[..end].trim().replace('\n', " ")));
                prose.extend(inner[..end].chars().map(|c| if c == '\n' { c } else { ' ' }));
                rest = &inner[end + ticks..];
            }
            None => rest = inner,
        }
    }
    prose.push_str(rest);
    (spans, prose)
}

/// The start of a run of exactly these backticks.
fn closing(inner: &str, fence: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = inner[at..].find('`') {
        let start = at + found;
        let ticks = inner[start..].bytes().take_while(|byte| *byte == b'`').count();
        if ticks == fence.len() {
            return Some(start);
        }
        at = start + ticks;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_tables_and_code_blocks_differ() {
        let page = "one\n| two |\n```sh\n| three |\n```\nfour";
        let kinds: Vec<Kind> = lines(page).map(|(_, _, kind)| kind).collect();
        let code = Kind::Code;
        assert_eq!(kinds, [Kind::Prose, Kind::Table, code, code, code, Kind::Prose]);
    }

    #[test]
    fn spans_cross_lines_and_not_paragraphs() {
        let (found, prose) = spans("a `b\nc` d ``e`f``\n\n`open\n\n`g`");
        let texts: Vec<(usize, &str)> =
            found.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(texts, [(1, "b c"), (2, "e`f"), (6, "g")]);
        assert!(!prose.contains('b') && prose.contains('d'));
    }
}
