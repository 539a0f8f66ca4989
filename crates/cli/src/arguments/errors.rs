//! Texts about wrong arguments, in plain words: the parsers of numbers speak of their types.

use std::borrow::Cow;

/// What a parser says, and the same for people.
const WORDS: [(&str, &str); 5] = [
    ("invalid digit found in string", "write a whole number of 0 or more"),
    ("cannot parse integer from empty string", "write a whole number of 0 or more"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "write a number"),
    ("invalid socket address syntax", "write it as 127.0.0.1:7070"),
];

/// An error of the arguments with the texts of parsers replaced.
pub(crate) fn in_plain_words(text: &str) -> String {
    // What looks like an option is seldom meant as a value.
    let is_help = |line: &&str| !line.contains("' as a value, use '");
    let lines = text.split_inclusive('\n').filter(is_help).map(|line| {
        let mut line = in_range(line);
        for (theirs, ours) in WORDS {
            if line.contains(theirs) {
                line = Cow::Owned(line.replace(theirs, ours));
            }
        }
        line
    });
    lines.collect()
}

/// `7 is not in 1..=5` as `write a number from 1 to 5`.
fn in_range(line: &str) -> Cow<'_, str> {
    let described = || {
        let (before, range) = line.split_once(" is not in ")?;
        let (before, _) = before.rsplit_once(": ")?;
        let (least, most) = range.trim_end().split_once("..=")?;
        let end = if line.ends_with('\n') { "\n" } else { "" };
        Some(format!("{before}: write a number from {least} to {most}{end}"))
    };
    described().map_or(Cow::Borrowed(line), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsers_of_numbers_speak_plain_words() {
        let cases = [
            (
                "error: invalid value 'x' for '--seq <SEQ>': invalid digit found in string\n\nFor more",
                "error: invalid value 'x' for '--seq <SEQ>': write a whole number of 0 or more\n\nFor more",
            ),
            (
                "error: invalid value '0' for '--limit <LIMIT>': 0 is not in 1..=100\n\nFor more",
                "error: invalid value '0' for '--limit <LIMIT>': write a number from 1 to 100\n\nFor more",
            ),
            ("error: it is not in order\n", "error: it is not in order\n"),
            ("one\n  tip: to pass '--x' as a value, use '-- --x'\ntwo\n", "one\ntwo\n"),
        ];
        for (theirs, ours) in cases {
            assert_eq!(in_plain_words(theirs), ours);
        }
    }
}
