//! Rust source as three texts of the same shape: code, comments and the contents of literals.

/// Each text has the lines of the source. Parts that belong to another text are blank.
#[derive(Default)]
pub(crate) struct Layers {
    pub(crate) code: String,
    pub(crate) comments: String,
    pub(crate) strings: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Text,
    Blank,
}

impl Layers {
    pub(crate) fn of(source: &str) -> Layers {
        let mut layers = Layers::default();
        let mut rest = source;
        let mut previous = ' ';
        while !rest.is_empty() {
            let within_word = previous.is_alphanumeric() || previous == '_';
            let length = if rest.starts_with("//") {
                let length = rest.find('\n').unwrap_or(rest.len());
                layers.push(&rest[..length], Kind::Comment);
                length
            } else if rest.starts_with("/*") {
                let length = block_comment(rest);
                layers.push(&rest[..length], Kind::Comment);
                length
            } else if let Some(opening) = raw_opening(rest).filter(|_| !within_word) {
                layers.raw_string(rest, opening)
            } else if rest.starts_with('"') {
                layers.string(rest)
            } else if let Some(length) = character(rest) {
                layers.push(&rest[..length], Kind::Blank);
                length
            } else {
                let length = rest.chars().next().map_or(0, char::len_utf8);
                layers.push(&rest[..length], Kind::Code);
                length
            };
            previous = rest[..length].chars().next_back().unwrap_or(' ');
            rest = &rest[length..];
        }
        layers
    }

    fn push(&mut self, text: &str, kind: Kind) {
        for c in text.chars() {
            let or_blank = |wanted| if c == '\n' || wanted == kind { c } else { ' ' };
            self.code.push(or_blank(Kind::Code));
            self.comments.push(or_blank(Kind::Comment));
            self.strings.push(or_blank(Kind::Text));
        }
    }

    /// Pushes a string literal without its escapes, so that the text after `\n` is a separate word.
    fn string(&mut self, rest: &str) -> usize {
        self.push("\"", Kind::Code);
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.push("\"", Kind::Code);
                    return at + 1;
                }
                '\\' => {
                    let escaped = chars.next().map_or(' ', |(_, escaped)| escaped);
                    self.push("\\", Kind::Blank);
                    self.push(&escaped.to_string(), Kind::Blank);
                }
                _ => self.push(&c.to_string(), Kind::Text),
            }
        }
        rest.len()
    }

    fn raw_string(&mut self, rest: &str, opening: usize) -> usize {
        let hashes = rest[..opening].matches('#').count();
        let closing = format!("\"{}", "#".repeat(hashes));
        let end = rest[opening..].find(&closing).map_or(rest.len(), |end| opening + end);
        self.push(&rest[..opening], Kind::Code);
        self.push(&rest[opening..end], Kind::Text);
        let length = (end + closing.len()).min(rest.len());
        self.push(&rest[end..length], Kind::Code);
        length
    }
}

/// The length of a block comment, including nested ones.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of `r"`, `r#"`, `br"` and similar openings.
fn raw_opening(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].iter().find(|prefix| rest.starts_with(**prefix))?;
    let hashes = rest[prefix.len()..].bytes().take_while(|byte| *byte == b'#').count();
    let quote = prefix.len() + hashes;
    rest[quote..].starts_with('"').then_some(quote + 1)
}

/// The length of a character literal. A lifetime is not one.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    if first == '\\' {
        // The escaped character itself may be a quote.
        let after = 1 + inner[1..].chars().next()?.len_utf8();
        return inner[after..].find('\'').map(|end| 1 + after + end + 1);
    }
    inner[first.len_utf8()..].starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

/// The words of code: identifiers and keywords.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Names that code defines after this keyword, with their lines.
pub(crate) fn defined<'a>(code: &'a str, keyword: &str) -> Vec<(usize, &'a str)> {
    let mut names = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut words = words(line).peekable();
        while let Some(word) = words.next() {
            if word == keyword {
                names.extend(words.peek().map(|name| (index + 1, *name)));
            }
        }
    }
    names
}

/// A name with an underscore before each capital letter.
pub(crate) fn separated(name: &str) -> String {
    let mut separated = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_uppercase() {
            separated.push('_');
        }
        separated.push(letter);
    }
    separated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_literals_are_separated() {
        let source = "let a = \"one // two\"; // three \"four\"\nlet b = r#\"five \"six\"\"#;\n";
        let Layers { code, comments, strings } = Layers::of(source);
        assert_eq!(words(&comments).collect::<Vec<_>>(), ["three", "four"]);
        assert_eq!(words(&strings).collect::<Vec<_>>(), ["one", "two", "five", "six"]);
        assert_eq!(words(&code).collect::<Vec<_>>(), ["let", "a", "let", "b", "r"]);
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn escapes_end_words_and_do_not_end_literals() {
        let strings = Layers::of(r#"f("one\ntwo \" three"); g('"'); h("four")"#).strings;
        assert_eq!(words(&strings).collect::<Vec<_>>(), ["one", "two", "three", "four"]);
    }

    #[test]
    fn lifetimes_are_code_and_comments_nest() {
        let layers = Layers::of("fn f<'a>(x: &'a str) /* one /* two */ three */ {}");
        assert_eq!(words(&layers.comments).collect::<Vec<_>>(), ["one", "two", "three"]);
        assert_eq!(defined(&layers.code, "fn"), [(1, "f")]);
    }
}
