//! Raw HTTP, for requests that a client library rejects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The timeout of an answer. Long, because a slow machine is not a fault.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The same for long polls.
const POLL_TIMEOUT: Duration = Duration::from_millis(200);
/// The longest body of an answer.
const MAX_BODY: usize = 64 << 20;

/// A request, byte for byte.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query, as sent.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// Whether it is a long poll or a stream: then only the head of the answer is read.
    pub(crate) lingers: bool,
}

impl Request {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes =
            format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(name.as_bytes());
            bytes.extend(b": ");
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        bytes.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).as_bytes());
        bytes.extend(&self.body);
        bytes
    }

    /// A readable form of the request: without secrets, and shortened.
    pub(crate) fn words(&self) -> String {
        let cut = |bytes: &[u8]| {
            let text: String = bytes[..bytes.len().min(600)].escape_ascii().to_string();
            if bytes.len() > 600 { format!("{text}… ({} bytes)", bytes.len()) } else { text }
        };
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, value)| match name.as_str() {
                "Authorization" => format!("{name}: … ({} bytes)", value.len()),
                _ => format!("{name}: {}", cut(value)),
            })
            .collect();
        let target = cut(self.target.as_bytes());
        format!("{} {target} [{}] {}", self.method, headers.join("; "), cut(&self.body))
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body is complete; that of a stream is not read.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(Answer),
    /// It waited, as requested.
    Waiting,
    /// The connection was closed without an answer.
    Closed(String),
}

/// One connection, reopened when it is closed.
pub(crate) struct Wire {
    address: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Wire {
    pub(crate) fn new(url: &str) -> Wire {
        Wire { address: url.trim_start_matches("http://").to_owned(), stream: None }
    }

    pub(crate) fn send(&mut self, request: &Request) -> Outcome {
        let reused = self.stream.is_some();
        match self.try_send(request) {
            // The server may close a connection between two requests.
            Err(_) if reused && !request.lingers => {
                self.try_send(request).unwrap_or_else(|error| Outcome::Closed(error.to_string()))
            }
            Err(error) if !request.lingers => Outcome::Closed(error.to_string()),
            Err(_) => Outcome::Waiting,
            Ok(outcome) => outcome,
        }
    }

    fn try_send(&mut self, request: &Request) -> std::io::Result<Outcome> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(&self.address)?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let timeout = if request.lingers { POLL_TIMEOUT } else { ANSWER_TIMEOUT };
        stream.get_ref().set_read_timeout(Some(timeout))?;
        stream.get_ref().set_write_timeout(Some(ANSWER_TIMEOUT))?;
        // A request that is too large is answered before it is read completely.
        let written = stream.get_mut().write_all(&request.bytes());
        let answer = read_answer(&mut stream, request.lingers);
        let answer = match (written, answer) {
            (_, Ok(answer)) => answer,
            (Err(error), Err(_)) => return Err(error),
            (Ok(()), Err(error)) => return Err(error),
        };
        let closes = answer.header("connection").is_some_and(|value| value == "close");
        if answer.is_whole && !closes {
            self.stream = Some(stream);
        }
        Ok(Outcome::Answered(answer))
    }
}

fn bad(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned())
}

fn line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    stream.take(1 << 20).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

fn read_answer(stream: &mut BufReader<TcpStream>, lingers: bool) -> std::io::Result<Answer> {
    let first = line(stream)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| bad("no status line"))?;
    let mut headers = Vec::new();
    loop {
        let line = line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad("no header"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new(), is_whole: true };
    let streams = answer.header("content-type").is_some_and(|kind| kind == "text/event-stream");
    if streams || (lingers && status < 300) {
        answer.is_whole = false;
    } else if let Some(length) = answer.header("content-length") {
        let length: usize = length.parse().map_err(|_| bad("no length"))?;
        answer.body = vec![0; length.min(MAX_BODY)];
        stream.read_exact(&mut answer.body)?;
    } else if answer.header("transfer-encoding").is_some() {
        loop {
            let size = usize::from_str_radix(&line(stream)?, 16).map_err(|_| bad("no chunk"))?;
            let at = answer.body.len();
            if at + size > MAX_BODY {
                return Err(bad("an endless body"));
            }
            answer.body.resize(at + size, 0);
            stream.read_exact(&mut answer.body[at..])?;
            line_end(stream)?;
            if size == 0 {
                break;
            }
        }
    }
    Ok(answer)
}

fn line_end(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let mut end = [0; 2];
    stream.read_exact(&mut end)
}
