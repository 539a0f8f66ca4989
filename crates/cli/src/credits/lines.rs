//! Reads lines of bounded length.

use std::io::{BufRead, Read};

/// The most bytes of a line, without its end.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine<'a> {
    /// Its bytes, without the end.
    Whole(&'a [u8]),
    /// It has more than [`MAX_LINE_BYTES`]. It was skipped.
    TooLong,
}

/// The lines of an input. At most one of them is in memory.
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines { input, line: Vec::new() }
    }

    /// The next line, or `None` at the end of the input.
    pub(super) fn next(&mut self) -> std::io::Result<Option<InputLine<'_>>> {
        self.line.clear();
        let with_end = MAX_LINE_BYTES as u64 + 1;
        if self.input.by_ref().take(with_end).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() > MAX_LINE_BYTES {
            self.input.skip_until(b'\n')?;
            return Ok(Some(InputLine::TooLong));
        }
        Ok(Some(InputLine::Whole(&self.line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_a_newline_or_with_the_input() {
        let mut lines = Lines::new(&b"one\n\ntwo\r\nthree"[..]);
        for expected in [&b"one"[..], b"", b"two\r", b"three"] {
            let line = lines.next().expect("memory can be read");
            assert_eq!(line, Some(InputLine::Whole(expected)));
        }
        assert_eq!(lines.next().expect("memory can be read"), None);
    }

    #[test]
    fn a_line_above_the_limit_is_skipped_and_the_next_is_read() {
        let longest = vec![b'x'; MAX_LINE_BYTES];
        let too_long = vec![b'y'; MAX_LINE_BYTES + 1];
        let much_too_long = vec![b'z'; 3 * MAX_LINE_BYTES];
        let parts = [&longest[..], b"\n", &too_long[..], b"\nnext\n", &much_too_long[..]];
        let input = parts.concat();
        let mut lines = Lines::new(&input[..]);
        let expected = [
            InputLine::Whole(&longest),
            InputLine::TooLong,
            InputLine::Whole(b"next"),
            InputLine::TooLong,
        ];
        for expected in expected {
            assert!(lines.next().expect("memory can be read") == Some(expected));
        }
        assert_eq!(lines.next().expect("memory can be read"), None);
        assert!(lines.line.capacity() <= 4 * MAX_LINE_BYTES);
    }
}
