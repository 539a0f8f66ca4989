//! The event stream over all shards. Events of one shard are in order; its cursor is a vector.

use std::pin::Pin;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bursar_api::Code;
use bursar_api::system::audit::FeedEvent;
use futures_util::stream::{self, SelectAll, Stream, StreamExt};

use super::{ShardedHandlers, copied};
use crate::auth::Principal;
use crate::followers::feed::{event_id, id_in_shard};
use crate::http::extract::{LAST_EVENT_ID, last_event_id};
use crate::http::handlers::system::events::PartOfStream;
use crate::machines::ledgers::{ledger_name, shard_named};
use crate::net::waits::Wait;
use crate::operations::Operation;
use crate::request::Failure;

/// The cursor before the first event.
const BEGINNING: &str = "0";

/// Where the stream of each shard continues; `None` for events from now on only.
type Vector = Vec<Option<String>>;

/// Reads a cursor: a vector, or `0` for the beginning.
fn read_vector(cursor: Option<&str>, count: usize) -> Result<Vector, Failure> {
    let wrong = || {
        let reason = "pass the id that the stream sent last, such as ledger-0:evt_…,ledger-1:evt_…, or 0 for the \
                      beginning";
        Failure::invalid("after", reason)
    };
    let Some(cursor) = cursor else { return Ok(vec![None; count]) };
    if cursor == BEGINNING {
        return Ok(vec![Some(BEGINNING.to_owned()); count]);
    }
    // A shard that was added since is read from its beginning.
    let mut vector = vec![Some(BEGINNING.to_owned()); count];
    for part in cursor.split(',') {
        let (machine, id) = part.split_once(':').ok_or_else(wrong)?;
        let shard = shard_named(machine).ok_or_else(wrong)?;
        *vector.get_mut(usize::from(shard)).ok_or_else(wrong)? = Some(id.to_owned());
    }
    Ok(vector)
}

fn write_vector(vector: &Vector) -> String {
    let known = (0u16..)
        .zip(vector)
        .filter_map(|(shard, id)| id.as_ref().map(|id| format!("{}:{id}", ledger_name(shard))));
    known.collect::<Vec<_>>().join(",")
}

/// Blocks of the stream of a shard. Each is an event or a comment with the empty line after it.
struct Blocks {
    body: BodyDataStream,
    read: Vec<u8>,
}

impl Blocks {
    async fn next(mut self) -> Option<(Vec<u8>, Blocks)> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let rest = self.read.split_off(end + 2);
                let block = std::mem::replace(&mut self.read, rest);
                return Some((block, self));
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.read.extend_from_slice(&bytes),
                Some(Err(_)) | None => return None,
            }
        }
    }
}

/// A block with the vector in place of the id of its event, both on the `id:` line and in the data.
fn with_vector(block: &[u8], shard: usize, vector: &mut Vector) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(block) else { return block.to_vec() };
    let Some(id) = text.lines().find_map(|line| line.strip_prefix("id:")) else {
        return block.to_vec();
    };
    vector[shard] = Some(id.trim().to_owned());
    let cursor = write_vector(vector);
    let mut out = String::with_capacity(text.len() + 2 * cursor.len());
    for line in text.split_inclusive('\n') {
        let field = line.split_once(':').map(|(field, value)| (field, value.trim()));
        match field {
            Some(("id", _)) => out.push_str(&format!("id: {cursor}\n")),
            Some(("data", data)) => match serde_json::from_str::<FeedEvent>(data) {
                Ok(event) => {
                    let event = FeedEvent { id: cursor.clone(), ..event };
                    let data = serde_json::to_string(&event).unwrap_or_else(|_| data.to_owned());
                    out.push_str(&format!("data: {data}\n"));
                }
                Err(_) => out.push_str(line),
            },
            _ => out.push_str(line),
        }
    }
    out.into_bytes()
}

type BlocksOfShard = Pin<Box<dyn Stream<Item = (usize, Option<Vec<u8>>)> + Send>>;

impl ShardedHandlers {
    /// The events of all shards. The stream ends when that of a shard ends.
    pub(super) async fn events(&self, parts: &Parts) -> Result<Response, Failure> {
        let given = last_event_id(&parts.headers)?;
        let query = parts.uri.query().unwrap_or("");
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let after = pairs.find(|(name, _)| name == "after").map(|(_, after)| after.into_owned());
        let mut vector = read_vector(given.or(after.as_deref()), self.routers.len())?;
        let principal = parts.extensions.get::<Principal>();
        let principal = principal
            .ok_or_else(|| Failure::new(Code::Unauthenticated, "send a key as a bearer token"))?;
        principal.require(Operation::FollowEvents)?;
        let waiting = self.app.waits.enter(principal, Wait::Stream)?;
        for app in self.app.every_shard() {
            // The cursor of the first event says already where the stream of a quiet shard began.
            let begin = &mut vector[usize::from(app.shard)];
            if begin.is_none() {
                let position = app.read(|_| ()).await?.position;
                *begin = Some(id_in_shard(app.shard, &event_id((position, u32::MAX))));
            }
        }
        let mut all: SelectAll<BlocksOfShard> = SelectAll::new();
        let (mut head, mut begun) = (None, vector.clone());
        for shard in self.numbers() {
            let place = usize::from(shard);
            let mut request = copied(parts, Body::empty());
            request.extensions_mut().insert(PartOfStream);
            let headers = request.headers_mut();
            headers.remove(LAST_EVENT_ID);
            if let Some(id) = &vector[place] {
                let wrong = |_| Failure::invalid("after", "it is no id of an event");
                headers.insert(LAST_EVENT_ID, HeaderValue::from_str(id).map_err(wrong)?);
            }
            let part = self.pass(shard, request).await;
            if part.response.status() != StatusCode::OK {
                return Ok(part.response);
            }
            let (own, body) = part.response.into_parts();
            head.get_or_insert(own);
            let blocks = Blocks { body: body.into_data_stream(), read: Vec::new() };
            let blocks =
                stream::unfold(blocks, Blocks::next).map(move |block| (place, Some(block)));
            let end = stream::once(async move { (place, None) });
            all.push(Box::pin(blocks.chain(end)));
        }
        let merged = all
            .take_while(|(_, block)| std::future::ready(block.is_some()))
            .filter_map(|(shard, block)| std::future::ready(block.map(|block| (shard, block))))
            .map(move |(shard, block)| {
                // The place is held as long as the stream.
                let _ = &waiting;
                let block = with_vector(&block, shard, &mut begun);
                Ok::<Bytes, std::convert::Infallible>(block.into())
            });
        let head = head.ok_or_else(|| Failure::invalid("after", "there is no shard"))?;
        Ok(Response::from_parts(head, Body::from_stream(merged)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_vector() {
        let id = |text: &str| Some(text.to_owned());
        assert_eq!(read_vector(None, 2).ok(), Some(vec![None, None]));
        assert_eq!(read_vector(Some("0"), 2).ok(), Some(vec![id("0"), id("0")]));
        let vector = vec![id("evt_1_0"), id("evt_1.2_3")];
        let text = write_vector(&vector);
        assert_eq!(text, "ledger-0:evt_1_0,ledger-1:evt_1.2_3");
        assert_eq!(read_vector(Some(&text), 2).ok(), Some(vector));
        let added = read_vector(Some(&text), 3).expect("a shard more");
        assert_eq!(added[2], id("0"));
        for wrong in ["evt_1_0", "ledger-7:evt_1_0", "cell-eu:evt_1_0", ""] {
            assert!(read_vector(Some(wrong), 2).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_event_gets_the_vector_that_it_completes() {
        let mut vector = vec![None, Some("evt_1.5_0".to_owned())];
        let at = r#""at":"2026-01-01T00:00:00.000Z","position":9,"data":{"hold":"h"}"#;
        let event = |id: &str| format!(r#"{{"id":"{id}","type":"hold_placed",{at}}}"#);
        let block = |id: &str| format!("id: {id}\nevent: hold_placed\ndata: {}\n\n", event(id));
        let sent = with_vector(block("evt_9_0").as_bytes(), 0, &mut vector);
        let expected = block("ledger-0:evt_9_0,ledger-1:evt_1.5_0");
        assert_eq!(String::from_utf8(sent).ok(), Some(expected));
        let problem = b"event: problem\ndata: {\"id\":\"x\"}\n\n";
        assert_eq!(with_vector(problem, 1, &mut vector), problem);
        assert_eq!(with_vector(b":\n\n", 1, &mut vector), b":\n\n");
    }
}
