//! Large answers until their clients have read them. A client asks faster than it reads, and what it
//! does not read stays in memory: so the unread bytes of one tenant, and of all, are limited.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use bursar_api::Code;
use hyper::body::{Frame, SizeHint};

use crate::net::limits::Priority;
use crate::request::Failure;

/// Smaller answers are not counted: requests in flight and connections bound them.
const LARGE_ANSWER_BYTES: u64 = 64 << 10;
/// The most unread bytes of one tenant, or of one key of the platform.
const MAX_SENDER: u64 = 256 << 20;
/// The most unread bytes of all.
const MAX_ALL: u64 = 1 << 30;
/// The `Retry-After` of a read whose answer found no room, in seconds.
const RETRY_SECONDS: u64 = 2;

#[derive(Debug, Default)]
struct UnreadBytes {
    all: u64,
    senders: HashMap<u64, u64>,
}

/// The large answers that are not read yet.
#[derive(Debug, Default)]
pub struct LargeAnswers(Mutex<UnreadBytes>);

/// The room of an answer, given back when the last of its bytes is sent or dropped.
struct AnswerRoom {
    answers: Arc<LargeAnswers>,
    sender: u64,
    bytes: u64,
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        let mut unread = self.answers.unread();
        unread.all -= self.bytes;
        if let Some(own) = unread.senders.get_mut(&self.sender) {
            *own -= self.bytes;
            if *own == 0 {
                unread.senders.remove(&self.sender);
            }
        }
    }
}

/// Bytes that keep their answer's room.
struct HeldBytes {
    bytes: Bytes,
    _room: Arc<AnswerRoom>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl LargeAnswers {
    fn unread(&self) -> MutexGuard<'_, UnreadBytes> {
        // Nothing that holds this lock can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the answer to a sender until it is read. The answer to a read that finds no room is
    /// dropped; a change has happened and is answered all the same.
    pub(crate) fn hold(
        self: &Arc<Self>,
        (sender, priority): (u64, Priority),
        response: Response,
    ) -> Result<Response, Failure> {
        let bytes = response.body().size_hint().exact().unwrap_or(0);
        // Without a sender it is a file of the dashboard or the description: all share one copy.
        if bytes < LARGE_ANSWER_BYTES || sender == 0 {
            return Ok(response);
        }
        let mut unread = self.unread();
        let own = unread.senders.get(&sender).copied().unwrap_or(0);
        if priority == Priority::Read {
            let refusal = |code, of: &str| {
                let detail = format!(
                    "{of} has too many large answers that are not read; read them, or ask for \
                     shorter pages"
                );
                Err(Failure::new(code, detail).retry_after(RETRY_SECONDS))
            };
            if own.saturating_add(bytes) > MAX_SENDER {
                return refusal(Code::RateLimited, "this sender");
            }
            if unread.all.saturating_add(bytes) > MAX_ALL {
                return refusal(Code::Unavailable, "the server");
            }
        }
        unread.all += bytes;
        unread.senders.insert(sender, own + bytes);
        drop(unread);
        let room = Arc::new(AnswerRoom { answers: Arc::clone(self), sender, bytes });
        Ok(response.map(|body| Body::new(HeldBody { body, room })))
    }
}

/// A body that keeps its answer's room.
struct HeldBody {
    body: Body,
    room: Arc<AnswerRoom>,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(bytes) => {
                    let held = HeldBytes { bytes, _room: Arc::clone(&self.room) };
                    Frame::data(Bytes::from_owner(held))
                }
                Err(other) => other,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// An answer of this many bytes.
    fn answer(bytes: u64) -> Response {
        let bytes = usize::try_from(bytes).expect("it fits");
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    const READ: Priority = Priority::Read;

    #[tokio::test]
    async fn the_unread_answers_of_a_sender_are_bounded_and_others_have_their_own() {
        let answers = Arc::new(LargeAnswers::default());
        let quarter = MAX_SENDER / 4;
        let hold = |sender, priority| answers.hold((sender, priority), answer(quarter));
        let mut held: Vec<Response> =
            (0..4).map(|_| hold(1, READ).expect("there is room")).collect();
        let refused = hold(1, READ).map(drop).expect_err("its part is used up");
        assert_eq!(refused.problem.code, Code::RateLimited);
        assert!(refused.retry_after.is_some());
        held.push(hold(1, Priority::Change).expect("a change is answered"));
        held.push(hold(2, READ).expect("another sender has its own part"));
        let small = answers.hold((1, READ), answer(LARGE_ANSWER_BYTES - 1));
        assert!(small.is_ok(), "small answers are not counted");
        assert!(
            answers.hold((0, READ), answer(LARGE_ANSWER_BYTES)).is_ok(),
            "nor those without a key"
        );
        drop(held);
        let left = answers.unread();
        assert_eq!((left.all, left.senders.len()), (0, 0));
    }

    #[tokio::test]
    async fn an_answer_is_unread_until_its_last_byte_is_dropped() {
        let answers = Arc::new(LargeAnswers::default());
        let response = answers.hold((1, READ), answer(LARGE_ANSWER_BYTES)).expect("there is room");
        assert_eq!(
            response.body().size_hint().exact(),
            Some(LARGE_ANSWER_BYTES),
            "its length is still known"
        );
        let mut bytes = response.into_body().collect().await.expect("no error").to_bytes();
        assert_eq!(bytes.len() as u64, LARGE_ANSWER_BYTES);
        let rest = bytes.split_off(bytes.len() - 1);
        drop(bytes);
        assert_eq!(answers.unread().all, LARGE_ANSWER_BYTES);
        drop(rest);
        assert_eq!(answers.unread().all, 0);
    }

    #[test]
    fn all_together_are_bounded() {
        let answers = Arc::new(LargeAnswers::default());
        answers.unread().all = MAX_ALL;
        let refused =
            answers.hold((1, READ), answer(LARGE_ANSWER_BYTES)).map(drop).expect_err("it is full");
        assert_eq!(refused.problem.code, Code::Unavailable);
        answers.unread().all = 0;
        assert!(answers.hold((1, READ), answer(LARGE_ANSWER_BYTES)).is_ok());
    }
}
