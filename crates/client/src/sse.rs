//! Parses a stream of server-sent events from chunks of any size.

/// The largest event that is accepted.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// The event type; empty if absent.
    pub(crate) kind: String,
    /// Its data.
    pub(crate) data: String,
}

/// The parser of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    /// The last line ended with a carriage return: a line feed right after it belongs to it.
    after_return: bool,
    message: Message,
    id: Option<String>,
    last_id: Option<String>,
}

/// An event is larger than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Reader {
    /// Parses the next chunk and returns the events that it completes.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Vec<Message>, TooLarge> {
        let mut complete = Vec::new();
        for &byte in piece {
            let joined = std::mem::take(&mut self.after_return) && byte == b'\n';
            match byte {
                _ if joined => {}
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    complete.extend(self.end_of_line(&String::from_utf8_lossy(&line)));
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.message.data.len() > MAX_EVENT_BYTES {
                return Err(TooLarge);
            }
        }
        Ok(complete)
    }

    /// The id of the last complete event.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    fn end_of_line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            return self.end_of_message();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field.trim_start_matches('\u{feff}') {
            "event" => self.message.kind = value.to_owned(),
            "data" => {
                self.message.data.push_str(value);
                self.message.data.push('\n');
            }
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            // Comments keep the connection alive; unknown fields are skipped.
            _ => {}
        }
        None
    }

    fn end_of_message(&mut self) -> Option<Message> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        let mut message = std::mem::take(&mut self.message);
        if message.data.is_empty() {
            return None;
        }
        message.data.pop();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = ": hello\n\nid: 7\nevent: hold.placed\ndata: {\"a\":\ndata: 1}\n\n\
                          data:x\r\nid:8\r\n\r\ncolour: red\ndata\n\n:\nid: 9\n\ndata: cut off";

    fn message(kind: &str, data: &str) -> Message {
        Message { kind: kind.into(), data: data.into() }
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let mut reader = Reader::default();
        let messages = reader.push(STREAM.as_bytes()).expect("small");
        let expected = [message("hold.placed", "{\"a\":\n1}"), message("", "x"), message("", "")];
        assert_eq!(messages, expected);
        assert_eq!(reader.last_id(), Some("9"));
    }

    #[test]
    fn an_id_is_used_only_when_its_event_is_complete() {
        let mut reader = Reader::default();
        reader.push(b"id: 1\ndata: x\n\nid: 2\ndata: y\n").expect("small");
        assert_eq!(reader.last_id(), Some("1"));
    }

    #[test]
    fn a_stream_without_end_of_line_is_rejected() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; 1 << 20];
        assert!((0..16).any(|_| reader.push(&piece) == Err(TooLarge)));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(cuts in prop::collection::vec(0..STREAM.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut reader = Reader::default();
            let mut messages = Vec::new();
            for pair in cuts.windows(2) {
                messages.extend(reader.push(&STREAM.as_bytes()[pair[0]..pair[1]]).expect("small"));
            }
            let whole = Reader::default().push(STREAM.as_bytes()).expect("small");
            prop_assert_eq!(messages, whole);
        }
    }
}
