//! Bodies that arrive slowly. While a body is incomplete its request does not count as in flight,
//! so slow clients take no place from others. How many incomplete bodies there are, and how much
//! memory they take, is limited in total and per sender.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar_api::Code;

use crate::net::limits::{Load, PausedRequest, Priority};
use crate::request::Failure;

/// The largest body of a request without a key.
pub const MAX_ANONYMOUS_BODY: usize = 16 << 10;

/// The `Retry-After` of a request whose body found no place, in seconds.
const RETRY_SECONDS: u64 = 2;

/// The sender of a body.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodySender {
    /// A tenant, or a key of the platform, by its number in this process.
    Caller(u64),
    /// An address that has shown no key.
    Address(std::net::IpAddr),
}

/// The number and the bytes of incomplete bodies.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct BodyCount {
    bodies: usize,
    bytes: usize,
}

impl BodyCount {
    fn exceeds(self, limit: BodyCount) -> bool {
        self.bodies > limit.bodies || self.bytes > limit.bytes
    }
}

/// All senders together.
const MAX_ALL: BodyCount = BodyCount { bodies: 16_384, bytes: 256 << 20 };
/// One tenant, or one key of the platform.
const MAX_CALLER: BodyCount = BodyCount { bodies: 1_024, bytes: 64 << 20 };
/// All requests without a key.
const MAX_ANONYMOUS: BodyCount = BodyCount { bodies: 4_096, bytes: 16 << 20 };
/// One address without a key.
const MAX_ADDRESS: BodyCount = BodyCount { bodies: 64, bytes: 1 << 20 };

#[derive(Debug, Default)]
struct Counts {
    all: BodyCount,
    anonymous: BodyCount,
    senders: HashMap<BodySender, BodyCount>,
}

/// The incomplete bodies of a server.
#[derive(Debug)]
pub struct Bodies {
    load: Arc<Load>,
    counts: Mutex<Counts>,
}

/// An incomplete body. Dropping it frees its place and its bytes.
pub struct IncompleteBody<'a> {
    bodies: &'a Bodies,
    sender: BodySender,
    bytes: usize,
    _paused: PausedRequest<'a>,
}

impl Drop for IncompleteBody<'_> {
    fn drop(&mut self) {
        let mut counts = self.bodies.counts();
        counts.change(self.sender, |count| {
            count.bodies -= 1;
            count.bytes -= self.bytes;
        });
        if counts.senders.get(&self.sender).is_some_and(|count| *count == BodyCount::default()) {
            counts.senders.remove(&self.sender);
        }
    }
}

impl IncompleteBody<'_> {
    /// Counts bytes that arrived, or refuses them.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bodies.counts().add(self.sender, BodyCount { bodies: 0, bytes })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Counts {
    fn change(&mut self, sender: BodySender, change: impl Fn(&mut BodyCount)) {
        change(&mut self.all);
        if matches!(sender, BodySender::Address(_)) {
            change(&mut self.anonymous);
        }
        change(self.senders.entry(sender).or_default());
    }

    /// Adds a count if it is within every limit of its sender.
    fn add(&mut self, sender: BodySender, more: BodyCount) -> Result<(), Failure> {
        let after = |count: BodyCount| BodyCount {
            bodies: count.bodies + more.bodies,
            bytes: count.bytes + more.bytes,
        };
        let of_sender = after(self.senders.get(&sender).copied().unwrap_or_default());
        let is_full = match sender {
            BodySender::Caller(_) => of_sender.exceeds(MAX_CALLER),
            BodySender::Address(_) => of_sender.exceeds(MAX_ADDRESS),
        };
        if is_full {
            return Err(refusal(Code::RateLimited, "this sender"));
        }
        let is_anonymous = matches!(sender, BodySender::Address(_));
        if after(self.all).exceeds(MAX_ALL)
            || is_anonymous && after(self.anonymous).exceeds(MAX_ANONYMOUS)
        {
            return Err(refusal(Code::Unavailable, "the server"));
        }
        self.change(sender, |count| *count = after(*count));
        Ok(())
    }
}

impl Bodies {
    /// Creates the limits with no incomplete body.
    pub fn new(load: Arc<Load>) -> Bodies {
        Bodies { load, counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of incomplete bodies.
    pub fn count(&self) -> usize {
        self.counts().all.bodies
    }

    /// Takes a place for a body of which so many bytes have arrived. Its request does not count as
    /// in flight until the place is dropped.
    pub fn wait(
        &self,
        sender: BodySender,
        priority: Priority,
        bytes: usize,
    ) -> Result<IncompleteBody<'_>, Failure> {
        self.counts().add(sender, BodyCount { bodies: 1, bytes })?;
        let paused = self.load.aside(priority);
        Ok(IncompleteBody { bodies: self, sender, bytes, _paused: paused })
    }
}

fn refusal(code: Code, of: &str) -> Failure {
    let detail = format!(
        "{of} has too many incomplete bodies; send bodies without pauses, or try again in \
         {RETRY_SECONDS} s"
    );
    Failure::new(code, detail).retry_after(RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::net::limits::LimitOptions;

    fn bodies() -> Bodies {
        Bodies::new(Arc::new(Load::new(LimitOptions::default())))
    }

    fn address(number: u32) -> BodySender {
        BodySender::Address(IpAddr::V4(Ipv4Addr::from(number)))
    }

    #[test]
    fn a_request_whose_body_is_incomplete_is_not_in_flight() {
        let bodies = bodies();
        let admitted = bodies.load.admit(Priority::Metering).expect("there is room");
        assert_eq!(bodies.load.in_flight(), 1);
        let body =
            bodies.wait(BodySender::Caller(1), Priority::Metering, 1).expect("there is room");
        assert_eq!(bodies.load.in_flight(), 0);
        drop(body);
        assert_eq!(bodies.load.in_flight(), 1);
        drop(admitted);
        assert_eq!(bodies.load.in_flight(), 0);
    }

    #[test]
    fn a_sender_has_a_bounded_part_and_gets_it_back() {
        let bodies = bodies();
        for (sender, limit, other) in [
            (BodySender::Caller(1), MAX_CALLER, BodySender::Caller(2)),
            (address(1), MAX_ADDRESS, address(2)),
        ] {
            let wait = |sender| bodies.wait(sender, Priority::Change, 0);
            let held: Vec<_> =
                (0..limit.bodies).map(|_| wait(sender).expect("there is room")).collect();
            let refused = wait(sender).map(|_| ()).expect_err("its part is used up");
            assert_eq!(refused.problem.code, Code::RateLimited);
            assert!(refused.retry_after.is_some());
            assert!(wait(other).is_ok(), "another sender has its own part");
            drop(held);
            let mut body = wait(sender).expect("the part is free again");
            body.grow(limit.bytes).expect("all of its bytes");
            let refused = body.grow(1).expect_err("not one byte more");
            assert_eq!(refused.problem.code, Code::RateLimited);
        }
        assert_eq!(bodies.counts().all, BodyCount::default());
        assert!(bodies.counts().senders.is_empty());
    }

    #[test]
    fn requests_without_a_key_leave_room_for_those_with_one() {
        let bodies = bodies();
        let mut held = Vec::new();
        for number in 0.. {
            match bodies.wait(address(number / 64), Priority::Change, 0) {
                Ok(body) => held.push(body),
                Err(refused) => {
                    assert_eq!(refused.problem.code, Code::Unavailable);
                    break;
                }
            }
        }
        assert_eq!(held.len(), MAX_ANONYMOUS.bodies);
        assert!(bodies.wait(BodySender::Caller(1), Priority::Change, 0).is_ok());
    }
}
