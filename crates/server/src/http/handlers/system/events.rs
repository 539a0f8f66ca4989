//! The event feed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bursar_api::system::audit::{EventsQuery, FeedEvent};
use bursar_api::{Code, Problem};
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};

use crate::app::App;
use crate::auth::{self, Principal};
use crate::followers::feed::{EventsAfter, Place, id_in_shard, read_event_id_in};
use crate::http::extract::{Params, last_event_id};
use crate::net::waits::Wait;
use crate::operations::Operation;
use crate::request::meta::{self, CarriedMeta};
use crate::request::{Caller, Failure};

/// The most events that wait to be sent to one client.
const MAX_UNSENT: usize = 64;

/// The name of the event with the reason why the stream ends.
const PROBLEM: &str = "problem";

/// Marks a request for one shard's part of a stream over several shards. The stream as a whole has taken its place
/// among the streams of its key already.
#[derive(Copy, Clone)]
pub(in crate::http) struct PartOfStream;

/// The events in the key's scope, as server-sent events.
///
/// The data of each is a `FeedEvent`. After a broken connection `Last-Event-ID` resumes the stream,
/// however long ago it ended. When the server ends a stream, the last event is `problem`, without
/// an id; its data is a problem: the client is too slow, or its key is no longer valid.
#[utoipa::path(get, path = "/v1/events", tag = "audit", operation_id = "follow_events",
    params(EventsQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The last event already seen")),
    responses((status = 200, description = "The events", body = FeedEvent,
        content_type = "text/event-stream")))]
pub(in crate::http) async fn follow(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<EventsQuery>,
    part: Option<Extension<PartOfStream>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    caller.principal.require(Operation::FollowEvents)?;
    let place = match part {
        Some(_) => None,
        None => Some(app.waits.enter(&caller.principal, Wait::Stream)?),
    };
    // Before the position is read, so that every later event is collected.
    let listener = app.feed.listen();
    let position = app.read(|_| ()).await?.position;
    let after = begin(&headers, &query, (app.shard, position))?;
    let (sender, receiver) = mpsc::channel(MAX_UNSENT);
    let (end, ended) = oneshot::channel();
    let shard = app.shard;
    let (principal, tenant) = (caller.principal, meta::sender());
    let following = Following { app, principal, tenant, after, sender };
    let request = CarriedMeta::of_request();
    tokio::spawn(async move {
        if let Some(failure) = following.run().await.failure() {
            // The client may have gone.
            let _ = end.send(request.during(|| failure.into_problem()));
        }
        drop((listener, place));
    });
    let sending = Sending { receiver, ended: Some(ended), shard };
    let events = stream::unfold(sending, Sending::next);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// Where a stream begins. No event comes after the ledger's position.
fn begin(
    headers: &HeaderMap,
    query: &EventsQuery,
    (shard, position): (u16, u64),
) -> Result<Place, Failure> {
    let wrong = || Failure::invalid("after", "pass the id of an event, or 0 for the beginning");
    let last = last_event_id(headers)?;
    let Some(id) = last.or(query.after.as_deref()) else { return Ok((position, u32::MAX)) };
    let place = read_event_id_in(shard, id).ok_or_else(wrong)?;
    if place.0 > position {
        let reason = format!("the ledger is at position {position}; there is no such event yet");
        return Err(Failure::invalid("after", reason));
    }
    Ok(place)
}

/// The stream of events to a client.
struct Sending {
    receiver: mpsc::Receiver<Arc<FeedEvent>>,
    /// The reason why the stream ends; it is sent before anything else.
    ended: Option<oneshot::Receiver<Problem>>,
    shard: u16,
}

impl Sending {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Sending)> {
        if let Some(ended) = &mut self.ended {
            let event = tokio::select! {
                biased;
                problem = ended => match problem {
                    Ok(problem) => {
                        self.receiver.close();
                        self.ended = None;
                        while self.receiver.try_recv().is_ok() {}
                        let data = serde_json::to_string(&problem).unwrap_or_default();
                        let shown = Event::default().event(PROBLEM).data(data);
                        return Some((Ok(shown), self));
                    }
                    Err(_) => None,
                },
                event = self.receiver.recv() => event,
            };
            if let Some(event) = event {
                return Some((Ok(shown(self.shard, &event)), self));
            }
            self.ended = None;
        }
        let event = self.receiver.recv().await?;
        Some((Ok(shown(self.shard, &event)), self))
    }
}

fn shown(shard: u16, event: &FeedEvent) -> Event {
    let id = id_in_shard(shard, &event.id);
    let data = match shard {
        0 => serde_json::to_string(event),
        _ => serde_json::to_string(&FeedEvent { id: id.clone(), ..event.clone() }),
    };
    Event::default().id(id).event(event.kind.clone()).data(data.unwrap_or_default())
}

fn is_visible(principal: &Principal, event: &FeedEvent) -> bool {
    match &event.account {
        Some(account) => principal.sees(account),
        None => principal.scope.is_none(),
    }
}

/// Why a stream ended.
enum StreamEnd {
    /// The client has gone.
    Gone,
    /// The server stops.
    Stopped,
    /// The client did not accept an event in time.
    TooSlow(Duration),
    /// Its key is no longer valid.
    KeyRevoked,
    /// Old events cannot be read.
    Failed(Failure),
}

impl StreamEnd {
    /// The problem that is sent to the client.
    fn failure(self) -> Option<Failure> {
        match self {
            StreamEnd::Gone | StreamEnd::Stopped => None,
            StreamEnd::TooSlow(timeout) => {
                let detail = format!(
                    "no event was taken for {} s; connect again with the Last-Event-ID of the last \
                     event that came",
                    timeout.as_secs_f64()
                );
                Some(Failure::new(Code::Unavailable, detail))
            }
            StreamEnd::KeyRevoked => Some(auth::no_longer_works()),
            StreamEnd::Failed(failure) => Some(failure),
        }
    }
}

/// Sends events to one client.
struct Following {
    app: Arc<App>,
    principal: Principal,
    /// The number of its tenant.
    tenant: u64,
    after: Place,
    sender: mpsc::Sender<Arc<FeedEvent>>,
}

impl Following {
    /// Sends events until the stream ends, and returns why.
    async fn run(mut self) -> StreamEnd {
        let (app, principal) = (Arc::clone(&self.app), self.principal.clone());
        let sender = self.sender.clone();
        let mut stopped = app.stopped.clone();
        tokio::select! {
            biased;
            () = app.until_key_ends(&principal) => StreamEnd::KeyRevoked,
            _ = stopped.wait_for(|stopped| *stopped) => StreamEnd::Stopped,
            () = sender.closed() => StreamEnd::Gone,
            ended = self.send_all() => ended,
        }
    }

    async fn send_all(&mut self) -> StreamEnd {
        let mut reached = self.app.feed.reached();
        loop {
            reached.mark_unchanged();
            let sent = match self.app.feed.behind(self.after) {
                EventsAfter::Older(until) if (until, u32::MAX) > self.after => {
                    self.send_past(until).await
                }
                EventsAfter::Older(_) => Ok(0),
                EventsAfter::Ready(events) => self.send(events).await,
            };
            match sent {
                Ok(0) => {
                    if reached.changed().await.is_err() {
                        return StreamEnd::Stopped;
                    }
                }
                Ok(_) => {}
                Err(ended) => return ended,
            }
        }
    }

    /// Sends some of the events that are no longer in memory. Returns how many there were.
    async fn send_past(&mut self, until: u64) -> Result<usize, StreamEnd> {
        // Only what the key sees is read, and little of it at once: a slow client keeps it meanwhile.
        let principal = self.principal.clone();
        let sees = move |event: &FeedEvent| is_visible(&principal, event);
        let past = self
            .app
            .past_events(self.tenant, (self.after, until), sees)
            .await
            .map_err(StreamEnd::Failed)?;
        let events = past.events.into_iter().map(|(place, event)| (place, Arc::new(event)));
        self.send(events.collect()).await?;
        self.after = self.after.max(past.reached);
        Ok(1)
    }

    /// Sends the events that the key may see. Returns how many there were.
    async fn send(&mut self, events: Vec<(Place, Arc<FeedEvent>)>) -> Result<usize, StreamEnd> {
        let (count, timeout) = (events.len(), self.app.write_timeout);
        for (place, event) in events {
            self.after = place;
            if !is_visible(&self.principal, &event) {
                continue;
            }
            hand_over(&self.sender, event, timeout).await?;
        }
        Ok(count)
    }
}

/// Passes an event to a client that accepts it in time.
async fn hand_over(
    sender: &mpsc::Sender<Arc<FeedEvent>>,
    event: Arc<FeedEvent>,
    timeout: Duration,
) -> Result<(), StreamEnd> {
    match tokio::time::timeout(timeout, sender.send(event)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(StreamEnd::Gone),
        Err(_) => Err(StreamEnd::TooSlow(timeout)),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    fn event(number: u32) -> Arc<FeedEvent> {
        Arc::new(FeedEvent {
            id: crate::followers::feed::event_id((1, number)),
            kind: "charged".to_owned(),
            at: crate::render::time(bursar_core::time::Timestamp::from_millis(0)),
            position: 1,
            account: None,
            data: serde_json::json!({}),
        })
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_dropped_with_a_problem() {
        let (sender, receiver) = mpsc::channel(1);
        let (end, ended) = oneshot::channel();
        let timeout = Duration::from_millis(1);
        assert!(hand_over(&sender, event(0), timeout).await.is_ok());
        let slow = hand_over(&sender, event(1), timeout).await.expect_err("no event is read");
        let problem = slow.failure().expect("it has a problem").into_problem();
        assert_eq!((problem.code, problem.retryable), (Code::Unavailable, true));
        assert!(problem.detail.contains("Last-Event-ID"), "{}", problem.detail);
        end.send(problem).expect("it listens");
        let sending = Sending { receiver, ended: Some(ended), shard: 0 };
        let rest: Vec<_> = stream::unfold(sending, Sending::next).collect().await;
        assert_eq!(rest.len(), 1, "what was not sent yet comes after the client has come back");
        let said = format!("{:?}", rest[0]);
        assert!(said.contains("problem") && !said.contains("evt_"), "{said}");
        drop(sender);
    }

    #[tokio::test]
    async fn queued_events_are_sent_when_the_server_stops() {
        let (sender, receiver) = mpsc::channel(4);
        let (end, ended) = oneshot::channel::<Problem>();
        for number in 0..3 {
            assert!(hand_over(&sender, event(number), Duration::from_secs(60)).await.is_ok());
        }
        drop((sender, end));
        let sending = Sending { receiver, ended: Some(ended), shard: 0 };
        assert_eq!(stream::unfold(sending, Sending::next).count().await, 3);
    }

    #[test]
    fn a_stream_begins_after_an_existing_event() {
        let begin = |last: Option<&'static str>, after: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(last) = last {
                headers.insert("last-event-id", last.parse().expect("a value"));
            }
            let query = EventsQuery { after: after.map(str::to_owned) };
            begin(&headers, &query, (0, 40)).ok()
        };
        assert_eq!(begin(None, None), Some((40, u32::MAX)));
        assert_eq!(begin(None, Some("0")), Some((0, u32::MAX)));
        assert_eq!(begin(Some("evt_7_3"), Some("0")), Some((7, 3)));
        assert_eq!(begin(None, Some("evt_40_4294967295")), Some((40, u32::MAX)));
        for wrong in ["evt_41_0", "evt_18446744073709551615_0", "evt_1_4294967296", "evt_-1_0", "1"]
        {
            assert_eq!(begin(None, Some(wrong)), None, "{wrong}");
            assert_eq!(begin(Some(wrong), None), None, "{wrong}");
        }
    }
}
