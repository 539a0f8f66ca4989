//! Escapes untrusted text on a terminal, such as the output of jobs.

use std::io::{self, Write};

use bursar_client::api::terminal::escaped_lines;

/// Escapes output chunk by chunk. A character may span two chunks.
#[derive(Debug, Default)]
pub(crate) struct ChunkEscaper {
    /// An incomplete character, or a carriage return.
    rest: Vec<u8>,
}

impl ChunkEscaper {
    /// The next chunk, escaped. A line that is overwritten, as progress bars do, becomes
    /// a separate line.
    pub(crate) fn pass(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend_from_slice(piece);
        self.rest = bytes.split_off(bytes.len() - unfinished(&bytes));
        visible(&bytes)
    }

    /// The rest at the end.
    pub(crate) fn end(&mut self) -> String {
        visible(&std::mem::take(&mut self.rest))
    }
}

/// A terminal to which everything is written escaped.
#[derive(Debug)]
pub(crate) struct ProtectedTerminal<W> {
    terminal: W,
    sieve: ChunkEscaper,
}

impl<W: Write> ProtectedTerminal<W> {
    pub(crate) fn new(terminal: W) -> ProtectedTerminal<W> {
        ProtectedTerminal { terminal, sieve: ChunkEscaper::default() }
    }
}

impl<W: Write> Write for ProtectedTerminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.terminal.write_all(self.sieve.pass(bytes).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.terminal.flush()
    }
}

fn visible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
    escaped_lines(&text).into_owned()
}

/// The number of bytes at the end that form an incomplete character.
fn unfinished(bytes: &[u8]) -> usize {
    if bytes.last() == Some(&b'\r') {
        return 1;
    }
    // A character has at most four bytes, and only its first is not a continuation byte.
    for length in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - length];
        if byte & 0b1100_0000 != 0b1000_0000 {
            let whole = match byte {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            return if whole > length { length } else { 0 };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &[u8] =
        "a\u{1b}]0;title\u{7}\tb\r\nbar 1\rbar 2\rd\u{9b}31m \u{202e} \u{1f980}é\n".as_bytes();

    #[test]
    fn output_does_not_depend_on_chunk_boundaries() {
        let mut sieve = ChunkEscaper::default();
        let whole = sieve.pass(HOSTILE) + &sieve.end();
        assert_eq!(
            whole,
            "a\\u001b]0;title\\u0007\tb\nbar 1\nbar 2\nd\\u009b31m \\u202e \u{1f980}é\n"
        );
        for size in 1..HOSTILE.len() {
            let mut sieve = ChunkEscaper::default();
            let pieces: String = HOSTILE.chunks(size).map(|piece| sieve.pass(piece)).collect();
            assert_eq!(pieces + &sieve.end(), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn lines_of_json_mean_the_same_on_a_protected_terminal() {
        let name = "a\u{7f}\u{9b}2J\u{202e}\u{1b}[2J é";
        let line = serde_json::json!({ "name": name }).to_string();
        let mut terminal = Vec::new();
        let mut out = ProtectedTerminal::new(&mut terminal);
        for piece in line.as_bytes().chunks(3) {
            out.write_all(piece).expect("memory takes everything");
        }
        out.flush().expect("memory takes everything");
        let shown = String::from_utf8(terminal).expect("text");
        assert!(!shown.chars().any(bursar_client::api::terminal::is_obeyed), "{shown:?}");
        let read: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read["name"], name);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut sieve = ChunkEscaper::default();
        let shown = sieve.pass(b"x\x9b31m\xff\xe2\x82") + &sieve.pass(b"y\xf0\x9f") + &sieve.end();
        assert_eq!(shown, "x\u{fffd}31m\u{fffd}\u{fffd}y\u{fffd}");
    }
}
