//! Answers that an HTTP/2 client does not read. By flow control a client decides how much of each
//! answer it takes, while the connection itself stays alive. So answers are handed to the connection
//! in pieces, and one that makes no progress in time ends its connection.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::telemetry::monotonic::Stopwatch;

/// The largest piece that is handed over at once.
const PIECE_BYTES: usize = 16 << 10;
/// Entries of answers that have ended are removed when there are this many.
const SWEEP_ENTRIES: usize = 64;

/// The answers of one connection.
pub(super) struct UnreadAnswers {
    patience: Duration,
    clock: Stopwatch,
    answers: Mutex<Vec<Weak<Mutex<AnswerProgress>>>>,
    first: Notify,
}

/// How far one answer has come.
struct AnswerProgress {
    /// When it last moved.
    at: Duration,
    /// Pieces that the connection has and has not sent.
    unsent: usize,
    /// Whether the connection has not asked for what comes next.
    waits: bool,
}

fn locked(progress: &Mutex<AnswerProgress>) -> MutexGuard<'_, AnswerProgress> {
    // Nothing that holds this lock can panic half way.
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnreadAnswers {
    /// Each answer may stand still for so long.
    pub(super) fn new(patience: Duration) -> Arc<UnreadAnswers> {
        let (answers, first) = (Mutex::default(), Notify::new());
        Arc::new(UnreadAnswers { patience, clock: Stopwatch::start(), answers, first })
    }

    /// Watches an answer.
    pub(super) fn watch(self: &Arc<Self>, response: Response) -> Response {
        response.map(|body| {
            if body.is_end_stream() {
                return body;
            }
            let progress = AnswerProgress { at: self.clock.elapsed(), unsent: 0, waits: true };
            let progress = Arc::new(Mutex::new(progress));
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            if answers.len() >= SWEEP_ENTRIES {
                answers.retain(|answer| answer.strong_count() > 0);
            }
            answers.push(Arc::downgrade(&progress));
            drop(answers);
            self.first.notify_one();
            Body::new(WatchedBody { body, rest: Bytes::new(), progress, of: Arc::clone(self) })
        })
    }

    /// Resolves when an answer stands still for too long.
    pub(super) async fn stalled(&self) {
        self.first.notified().await;
        while !self.is_stalled() {
            sleep(self.patience / 2).await;
        }
    }

    fn is_stalled(&self) -> bool {
        let now = self.clock.elapsed();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().filter_map(Weak::upgrade).any(|progress| {
            let progress = locked(&progress);
            let is_owed = progress.waits || progress.unsent > 0;
            is_owed && now.saturating_sub(progress.at) > self.patience
        })
    }
}

/// A body that notes its progress.
struct WatchedBody {
    body: Body,
    /// The part of the last frame that was not handed over.
    rest: Bytes,
    progress: Arc<Mutex<AnswerProgress>>,
    of: Arc<UnreadAnswers>,
}

/// A piece until it is sent.
struct UnsentPiece {
    bytes: Bytes,
    progress: Arc<Mutex<AnswerProgress>>,
    of: Arc<UnreadAnswers>,
}

impl AsRef<[u8]> for UnsentPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentPiece {
    fn drop(&mut self) {
        let mut progress = locked(&self.progress);
        progress.unsent -= 1;
        progress.at = self.of.clock.elapsed();
    }
}

impl WatchedBody {
    /// Notes that the connection asked, and whether it has to ask again.
    fn asked(&self, waits: bool) {
        let mut progress = locked(&self.progress);
        progress.at = self.of.clock.elapsed();
        progress.waits = waits;
    }

    /// The next piece of the last frame.
    fn piece(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        locked(&self.progress).unsent += 1;
        let (progress, of) = (Arc::clone(&self.progress), Arc::clone(&self.of));
        Some(Bytes::from_owner(UnsentPiece { bytes, progress, of }))
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.asked(false);
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => {
                        self.asked(true);
                        return Poll::Ready(Some(Ok(other)));
                    }
                },
                over => {
                    // It waits for the handler, or has ended.
                    self.asked(false);
                    return over;
                }
            }
        }
        self.asked(true);
        let piece = self.piece().unwrap_or_default();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn answer(bytes: usize) -> Response {
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    /// Every time that passes is too long.
    fn impatient() -> Arc<UnreadAnswers> {
        UnreadAnswers::new(Duration::ZERO)
    }

    #[tokio::test]
    async fn an_answer_is_handed_over_whole_and_in_pieces() {
        let answers = impatient();
        let response = answers.watch(answer(3 * PIECE_BYTES + 1));
        assert_eq!(response.body().size_hint().exact(), Some(3 * PIECE_BYTES as u64 + 1));
        let mut body = response.into_body();
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.expect("no error").into_data().expect("data").len());
        }
        assert_eq!(pieces, [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]);
        drop(body);
        assert!(!answers.is_stalled(), "all of it is gone");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_asked_for_or_not_sent_stands_still() {
        let answers = impatient();
        let response = answers.watch(answer(10));
        assert!(answers.is_stalled(), "the connection does not ask");
        let mut body = response.into_body();
        let piece = body.frame().await.expect("a piece").expect("no error");
        assert!(body.is_end_stream());
        drop(body);
        assert!(answers.is_stalled(), "the connection has it and does not send it");
        drop(piece);
        assert!(!answers.is_stalled());
    }

    #[tokio::test]
    async fn an_answer_that_waits_for_its_handler_does_not_stand_still() {
        let answers = impatient();
        let (sender, receiver) = tokio::sync::oneshot::channel::<Bytes>();
        let stream = futures_util::stream::once(receiver);
        let mut body = answers.watch(Response::new(Body::from_stream(stream))).into_body();
        let look = |context: &mut Context<'_>| {
            Poll::Ready(Pin::new(&mut body).poll_frame(context).is_pending())
        };
        assert!(std::future::poll_fn(look).await);
        assert!(!answers.is_stalled(), "there is nothing to read");
        sender.send(Bytes::from_static(b"x")).expect("it listens");
        assert_eq!(body.collect().await.expect("no error").to_bytes(), "x");
    }
}
