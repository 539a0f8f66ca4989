//! Escapes text of unknown origin for terminals. Names, references and messages come from any caller
//! that may write them; a log line or a table that shows them must not move the cursor,
//! set a title, or reverse the direction of the text after them.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal interprets a character instead of showing it: control characters of both sets,
/// and characters that change the direction of text or end a line.
pub fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// Text on one line: every character that a terminal interprets is escaped as in JSON.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_except(text, &[])
}

/// Text in which every character that a terminal interprets is escaped, except line feeds and tabs.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_except(text, &['\n', '\t'])
}

fn escaped_except<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let is_escaped = |character: char| is_obeyed(character) && !kept.contains(&character);
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            // All of them have four digits.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let all = (0..=0x10_ffff).filter_map(char::from_u32);
        let hostile: String = all.filter(|character| is_obeyed(*character)).collect();
        assert_eq!(hostile.chars().filter(|character| character.is_control()).count(), 65);
        assert!(escaped(&hostile).is_ascii());
        assert!(!escaped(&hostile).chars().any(is_obeyed));
        let lines = escaped_lines(&hostile);
        assert_eq!(lines.chars().filter(|c| is_obeyed(*c)).collect::<String>(), "\t\n");
    }

    #[test]
    fn what_is_escaped_can_be_read_and_in_json_means_the_same() {
        let name = "a\u{1b}[2J\u{7f}\u{9b}1m\u{202e}z";
        assert_eq!(escaped(name), r"a\u001b[2J\u007f\u009b1m\u202ez");
        let json = format!("\"{}\"", escaped(name));
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), name);
        for plain in ["", "acme:nlp", "Ünïcödé 漢字 🦀", "a \\ b"] {
            assert!(matches!(escaped(plain), Cow::Borrowed(same) if same == plain));
        }
    }
}
