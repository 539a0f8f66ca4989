//! Follows the event feed across broken connections.

use std::collections::VecDeque;
use std::time::Duration;

use bursar_api::system::audit::{EventsQuery, FeedEvent};
use reqwest::header::{ACCEPT, HeaderValue};

use crate::call::{Call, Nothing};
use crate::client::{Client, FailedAttempt};
use crate::error::ClientError;
use crate::retry::random;
use crate::sse::{Message, Reader};
use crate::text::STREAM_TIMEOUT;

/// A connection is broken after this time without a byte, not even a keep-alive comment.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The event with the reason why the server ends a connection.
const PROBLEM: &str = "problem";

/// The event feed. After a broken connection it resumes after the last complete event:
/// no event is lost or repeated.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    after: Option<String>,
    connection: Option<reqwest::Response>,
    reader: Reader,
    ready: VecDeque<Message>,
    failures: u32,
}

impl EventStream {
    /// The feed after the event with this id; new events only if absent, all events
    /// for `0`.
    pub fn new(client: Client, after: Option<String>) -> EventStream {
        EventStream {
            client,
            after,
            connection: None,
            reader: Reader::default(),
            ready: VecDeque::new(),
            failures: 0,
        }
    }

    /// The next event. Fails when the server rejects the request, or cannot be reached for as long as the
    /// retry policy allows.
    pub async fn next(&mut self) -> Result<FeedEvent, ClientError> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                if message.kind == PROBLEM {
                    // The answer to the next connection shows whether a retry can succeed.
                    self.give_up().await;
                    continue;
                }
                return self.event(&message);
            }
            match self.connection.take() {
                Some(connection) => self.receive(connection).await?,
                None => self.connect().await?,
            }
        }
    }

    fn event(&mut self, message: &Message) -> Result<FeedEvent, ClientError> {
        let event: FeedEvent = serde_json::from_str(&message.data)
            .map_err(|error| self.garbled(&error.to_string()))?;
        self.after = Some(event.id.clone());
        self.failures = 0;
        Ok(event)
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        self.reader = Reader::default();
        let query = EventsQuery { after: self.after.clone() };
        let call: Call<Nothing> =
            Call::get("/v1/events").with_query(&query).with_timeout(STREAM_TIMEOUT);
        let mut request = self.client.request(call)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        match self.client.execute(request).await {
            Ok(connection) => self.connection = Some(connection),
            Err(FailedAttempt { error, may_pass, asked }) => {
                self.failures += 1;
                let pause = self.client.retry().pause(self.failures, asked, random());
                match pause.filter(|_| may_pass) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Waits for the next chunk; a connection that ended is dropped, after a pause.
    async fn receive(&mut self, mut connection: reqwest::Response) -> Result<(), ClientError> {
        let piece = match tokio::time::timeout(IDLE_TIMEOUT, connection.chunk()).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None) | Err(_)) | Err(_) => {
                self.give_up().await;
                return Ok(());
            }
        };
        let messages = self.reader.push(&piece).map_err(|_| self.garbled("an endless event"))?;
        if messages.is_empty() {
            // An id without data is the feed's position when there were no events.
            self.after = self.reader.last_id().map(str::to_owned).or(self.after.take());
        }
        self.ready.extend(messages);
        self.connection = Some(connection);
        Ok(())
    }

    /// Drops the connection and pauses before the next one.
    async fn give_up(&mut self) {
        self.connection = None;
        self.ready.clear();
        let pause = self.client.retry().spread(1, random());
        tokio::time::sleep(pause).await;
    }

    fn garbled(&self, what: &str) -> ClientError {
        let server = self.client.server().to_owned();
        ClientError::Unexpected { server, status: 200, excerpt: what.to_owned() }
    }
}
