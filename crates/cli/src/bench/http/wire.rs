//! A minimal HTTP client: one connection, one request at a time, prepared
//! bytes. It uses little of the machine that is measured.

use std::fmt::Write;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The address, the key and the tenant of requests.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Target {
    pub(in crate::bench) address: String,
    pub(in crate::bench) key: String,
    pub(in crate::bench) tenant: String,
}

impl Target {
    /// The path of an account of the tenant.
    pub(in crate::bench) fn account(&self, number: usize) -> String {
        format!("{}:a{number}", self.tenant)
    }

    /// The bytes of a request. The tenant is named, as a key of that tenant would imply it.
    pub(in crate::bench) fn request(
        &self,
        method: &str,
        path: &str,
        idempotency_key: Option<&str>,
        body: &str,
    ) -> Vec<u8> {
        self.request_in(&self.tenant, method, path, idempotency_key, body)
    }

    /// The bytes of a request for the platform's own nodes.
    pub(in crate::bench) fn platform_request(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Vec<u8> {
        self.request_in("*", method, path, None, body)
    }

    fn request_in(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        idempotency_key: Option<&str>,
        body: &str,
    ) -> Vec<u8> {
        let mut text = String::with_capacity(400 + body.len());
        let Target { address, key, tenant: _ } = self;
        // Writing to a string never fails.
        let _ = write!(
            text,
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
             bursar-tenant: {tenant}\r\n",
        );
        if let Some(key) = idempotency_key {
            let _ = write!(text, "idempotency-key: {key}\r\n");
        }
        if !body.is_empty() {
            let _ = write!(text, "content-type: application/json\r\n");
        }
        let _ = write!(text, "content-length: {}\r\n\r\n{body}", body.len());
        text.into_bytes()
    }
}

/// One connection.
pub(in crate::bench) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Where an answer ends, once its head is there.
struct Head {
    status: u16,
    body: usize,
    end: usize,
}

fn head(bytes: &[u8]) -> Option<Head> {
    let body = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..body]).ok()?;
    let status = text.get(9..12)?.parse().ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some(Head { status, body, end: body + length.unwrap_or(0) })
}

impl Connection {
    pub(in crate::bench) async fn open(target: &Target) -> io::Result<Connection> {
        let stream = TcpStream::connect(&target.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(16 << 10) })
    }

    /// Sends a request; the status and the body of its answer.
    pub(in crate::bench) async fn call(&mut self, request: &[u8]) -> io::Result<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = head(&self.buffer) {
                break head;
            }
        };
        while self.buffer.len() < head.end {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok((head.status, &self.buffer[head.body..head.end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_known_from_its_head() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        let found = head(answer).expect("the head is whole");
        assert_eq!((found.status, found.end), (201, answer.len()));
        assert!(head(&answer[..20]).is_none());
        let empty = head(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the head is whole");
        assert_eq!((empty.status, empty.end - empty.body), (204, 0));
    }
}
