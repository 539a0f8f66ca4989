//! The body of a request that is forwarded. A small one is collected, so that it can be sent again. The rest of a
//! larger or slower one is passed on as it arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest body that is collected.
const MAX_COLLECTED: usize = 64 << 10;
/// The most bytes that are collected at once, in kibibytes.
const MAX_COLLECTED_KIB: usize = 64 << 10;
/// How long a body is collected. The rest of a slower one is passed on.
const COLLECT_TIMEOUT: Duration = Duration::from_millis(250);

/// The memory for collected bodies.
pub(super) struct Collector(Arc<Semaphore>);

/// The body of a request that arrives from a client.
pub(in crate::http) trait ClientBody:
    HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
    + Send
    + Unpin
    + 'static
{
}

impl<B> ClientBody for B where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static
{
}

/// A body on its way.
pub(super) enum ForwardedBody<B> {
    /// All of it. It can be sent any number of times.
    Whole {
        bytes: Bytes,
        /// Given back when the body is dropped.
        _memory: Option<OwnedSemaphorePermit>,
    },
    /// What has arrived, and the rest. It can be sent once.
    Rest(Vec<Bytes>, B),
    /// It was sent.
    Gone,
}

/// The body was cut off by its sender.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CutOff(pub(super) String);

/// The length of a body as its headers say.
fn said_length(headers: &HeaderMap, is_end: bool) -> Option<usize> {
    if is_end {
        return Some(0);
    }
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl Collector {
    pub(super) fn new() -> Collector {
        Collector(Arc::new(Semaphore::new(MAX_COLLECTED_KIB)))
    }

    /// Collects a body if it is small and there is memory for it.
    pub(super) async fn collect<B>(
        &self,
        headers: &HeaderMap,
        mut body: B,
    ) -> Result<ForwardedBody<B>, CutOff>
    where
        B: HttpBody<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let length = said_length(headers, body.is_end_stream());
        let Some(length) = length.filter(|length| *length <= MAX_COLLECTED) else {
            return Ok(ForwardedBody::Rest(Vec::new(), body));
        };
        if length == 0 {
            return Ok(ForwardedBody::Whole { bytes: Bytes::new(), _memory: None });
        }
        let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        let Ok(memory) = Arc::clone(&self.0).try_acquire_many_owned(kib) else {
            return Ok(ForwardedBody::Rest(Vec::new(), body));
        };
        let mut pieces = Vec::new();
        let collecting = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| CutOff(error.to_string()))?;
                pieces.extend(frame.into_data());
            }
            Ok(())
        };
        let collected = tokio::time::timeout(COLLECT_TIMEOUT, collecting).await;
        match collected {
            Ok(Ok(())) => Ok(ForwardedBody::Whole { bytes: joined(pieces), _memory: Some(memory) }),
            Ok(Err(cut)) => Err(cut),
            Err(_) => Ok(ForwardedBody::Rest(pieces, body)),
        }
    }
}

/// Most bodies arrive in one piece, which is not copied.
fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => pieces.concat().into(),
    }
}

impl<B: ClientBody> ForwardedBody<B> {
    /// Whether it can be sent after it was sent now.
    pub(super) fn can_repeat(&self) -> bool {
        matches!(self, ForwardedBody::Whole { .. })
    }

    /// The body to send now; `None` if it was sent and cannot be sent again.
    pub(super) fn take(&mut self) -> Option<Outgoing<B>> {
        if let ForwardedBody::Whole { bytes, .. } = self {
            return Some(Outgoing::Whole(bytes.clone()));
        }
        match std::mem::replace(self, ForwardedBody::Gone) {
            ForwardedBody::Rest(first, rest) => Some(Outgoing::Rest(first, rest)),
            ForwardedBody::Whole { .. } | ForwardedBody::Gone => None,
        }
    }
}

/// A body that is sent now.
pub(super) enum Outgoing<B> {
    Whole(Bytes),
    Rest(Vec<Bytes>, B),
}

impl<B: ClientBody> Outgoing<B> {
    /// For another member. Notes in `is_cut_off` that the client did not send all of it.
    pub(super) fn into_remote(self, is_cut_off: Arc<AtomicBool>) -> reqwest::Body {
        match self {
            Outgoing::Whole(bytes) => bytes.into(),
            Outgoing::Rest(first, rest) => {
                let first = first.into_iter().map(Ok::<Bytes, B::Error>);
                let rest = rest.into_data_stream().map(move |piece| {
                    is_cut_off.fetch_or(piece.is_err(), Ordering::SeqCst);
                    piece
                });
                reqwest::Body::wrap_stream(futures_util::stream::iter(first).chain(rest))
            }
        }
    }

    /// For the machines of this member.
    pub(super) fn into_local(self) -> Body {
        match self {
            Outgoing::Whole(bytes) => Body::from(bytes),
            Outgoing::Rest(first, rest) if first.is_empty() => Body::new(rest),
            Outgoing::Rest(first, rest) => {
                let first = first.into_iter().map(Ok::<Bytes, B::Error>);
                let rest = rest.into_data_stream();
                Body::from_stream(futures_util::stream::iter(first).chain(rest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use tokio::sync::mpsc;

    use super::*;

    fn headers(length: usize) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from(length))])
    }

    async fn read(outgoing: Outgoing<Body>) -> Vec<u8> {
        outgoing.into_local().collect().await.expect("it is whole").to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_small_body_can_be_sent_again_and_a_large_one_once() {
        let collector = Collector::new();
        let mut small = collector.collect(&headers(5), Body::from("small")).await.expect("whole");
        assert!(small.can_repeat());
        for _ in 0..2 {
            assert_eq!(read(small.take().expect("it is kept")).await, b"small");
        }
        let text = "x".repeat(MAX_COLLECTED + 1);
        let large = Body::from(text.clone());
        let mut large = collector.collect(&headers(text.len()), large).await.expect("whole");
        assert!(!large.can_repeat());
        assert_eq!(read(large.take().expect("not sent yet")).await, text.as_bytes());
        assert!(large.take().is_none());
        drop((small, large));
        assert_eq!(collector.0.available_permits(), MAX_COLLECTED_KIB, "memory is given back");
    }

    #[tokio::test]
    async fn what_has_arrived_of_a_slow_body_is_sent_before_its_rest() {
        let collector = Collector::new();
        let (send, pieces) = mpsc::unbounded_channel();
        send.send(Bytes::from("first ")).expect("it is read");
        let next = async |mut pieces: mpsc::UnboundedReceiver<Bytes>| {
            let piece = pieces.recv().await?;
            Some((Ok::<_, std::io::Error>(piece), pieces))
        };
        let body = Body::from_stream(futures_util::stream::unfold(pieces, next));
        let mut slow = collector.collect(&headers(10), body).await.expect("not cut off");
        assert!(!slow.can_repeat());
        send.send(Bytes::from("rest")).expect("it is read");
        drop(send);
        assert_eq!(read(slow.take().expect("not sent yet")).await, b"first rest");
    }

    #[tokio::test]
    async fn bodies_without_memory_are_passed_on() {
        let collector = Collector::new();
        let all = u32::try_from(MAX_COLLECTED_KIB).expect("few");
        let taken = Arc::clone(&collector.0).acquire_many_owned(all).await.expect("free");
        let body = collector.collect(&headers(5), Body::from("small")).await.expect("whole");
        assert!(!body.can_repeat());
        drop(taken);
    }
}
