//! A stream that fails if the peer does not send its first bytes, or does not accept written bytes,
//! in time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::net::framing::{LengthLines, SeenLength};

/// The number of bytes that tell HTTP/2 from HTTP/1. Until they have arrived no other deadline
/// runs.
const OPENING_BYTES: usize = 24;

/// A stream with two timeouts. The first bytes must arrive in time; a write that is pending for too
/// long is an error, so that a client that sends requests and does not read cannot hold its
/// connection. It also looks through what arrives for lengths.
pub struct StallTimeout<S> {
    stream: S,
    /// The number of first bytes that have arrived, and the deadline for the others.
    opening: Option<(usize, Pin<Box<Sleep>>)>,
    patience: Duration,
    /// Runs while a write is pending.
    alarm: Option<Pin<Box<Sleep>>>,
    lengths: LengthLines,
}

impl<S> StallTimeout<S> {
    /// Applies `opening` to the first bytes read and `patience` to every pending write.
    pub fn new(stream: S, opening: Duration, patience: Duration) -> StallTimeout<S> {
        let opening = Some((0, Box::pin(sleep(opening))));
        StallTimeout { stream, opening, patience, alarm: None, lengths: LengthLines::default() }
    }

    /// Whether a line with a length was read.
    pub(crate) fn seen_length(&self) -> SeenLength {
        self.lengths.seen()
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        // A write means that a request has arrived, so the opening is over.
        self.opening = None;
        if outcome.is_ready() {
            self.alarm = None;
            return outcome;
        }
        let patience = self.patience;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.lengths.look(&buffer.filled()[before..]);
        let Some((come, deadline)) = &mut self.opening else { return outcome };
        if outcome.is_pending() {
            ready!(deadline.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        *come += buffer.filled().len() - before;
        if *come >= OPENING_BYTES {
            self.opening = None;
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, outcome)
    }
}
