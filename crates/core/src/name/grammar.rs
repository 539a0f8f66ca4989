//! The two grammars of names: ids and account paths.

/// Where a byte may occur in names and paths. A table, because the names of every command are
/// checked.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
enum Letter {
    /// Nowhere.
    No,
    /// In names only.
    Capital,
    /// Anywhere.
    Plain,
    /// In names, and inside a segment of a path.
    Inner,
    /// In names, and between segments of a path.
    Colon,
}

const LETTERS: [Letter; 256] = {
    let mut letters = [Letter::No; 256];
    let mut byte = 0;
    while byte < letters.len() {
        letters[byte] = match byte as u8 {
            b'A'..=b'Z' => Letter::Capital,
            b'a'..=b'z' | b'0'..=b'9' => Letter::Plain,
            b'.' | b'_' | b'-' => Letter::Inner,
            b':' => Letter::Colon,
            _ => Letter::No,
        };
        byte += 1;
    }
    letters
};

/// Whether a text is an id: of a grant, a hold, a node, a key and so on.
pub fn is_valid_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| LETTERS[usize::from(byte)] != Letter::No)
}

/// The longest suffix of the id of an array's job: a dot and at most three digits.
const MEMBER_SUFFIX: usize = 4;

/// Whether a text may be the id of a job: a name, or the name of an array with an index.
pub(super) fn is_valid_job_name(text: &str) -> bool {
    is_valid_name(text)
        || text.rsplit_once('.').is_some_and(|(array, index)| {
            is_valid_name(array)
                && (1..MEMBER_SUFFIX).contains(&index.len())
                && index.bytes().all(|digit| digit.is_ascii_digit())
        })
}

/// The most segments of an account path.
pub const MAX_DEPTH: usize = 8;

/// The longest segment of an account path.
const MAX_SEGMENT: usize = 63;

/// Whether a text is an account path: one to eight segments joined by colons.
pub(super) fn is_valid_path(text: &str) -> bool {
    let (mut depth, mut length) = (1, 0);
    for byte in text.bytes() {
        match LETTERS[usize::from(byte)] {
            Letter::Plain if length < MAX_SEGMENT => length += 1,
            Letter::Inner if length > 0 && length < MAX_SEGMENT => length += 1,
            Letter::Colon if length > 0 && depth < MAX_DEPTH => (depth, length) = (depth + 1, 0),
            Letter::No | Letter::Capital | Letter::Plain | Letter::Inner | Letter::Colon => {
                return false;
            }
        }
    }
    length > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_paths_have_one_to_eight_plain_segments() {
        let longest = "a".repeat(63);
        for path in ["acme", "acme:nlp", "a:b:c:d:e:f:g:h", "0", "a.b_c-d", longest.as_str()] {
            assert!(is_valid_path(path), "{path}");
        }
        let too_long = "a".repeat(64);
        for path in [
            "",
            ":",
            "a:",
            ":a",
            "a::b",
            "A",
            "-a",
            "_",
            "a b",
            "é",
            "a:b:c:d:e:f:g:h:i",
            &too_long,
        ] {
            assert!(!is_valid_path(path), "{path}");
        }
    }

    #[test]
    fn names_are_plain_ascii_of_at_most_64_characters() {
        assert!(is_valid_name("Hold_1.a:b-c"));
        assert!(is_valid_name(&"x".repeat(64)));
        for name in ["", "a b", "a/b", "ü", &"x".repeat(65), "a\n"] {
            assert!(!is_valid_name(name), "{name:?}");
        }
    }
}
