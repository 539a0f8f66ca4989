//! Requests under idempotency keys: each is carried out once, and its answer is kept for a week.
//!
//! The record of a request's effects notes that it was carried out. The answer contains more than
//! the cell knows, so the shell stores it with a second command before it answers. A crash in
//! between leaves a request without an answer, and the next retry stores one.

use std::collections::{BTreeMap, VecDeque};

use crate::cell::command::{Refusal, RequestKey, StoredAnswer};
use crate::cell::event::Event;
use crate::cell::index::timers::Timer;
use crate::cell::state::Cell;
use crate::time::Timestamp;

/// How long a request is kept.
const KEPT_MS: i64 = 7 * 24 * 3_600_000;
/// The most requests that are forgotten in one step.
const MAX_AT_ONCE: usize = 1024;

/// A request that was carried out, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DoneRequest {
    /// The request.
    pub request: RequestKey,
    /// When it was first made.
    pub at: Timestamp,
    /// The stored answer. `None`: not answered yet.
    pub answer: Option<Box<StoredAnswer>>,
}

/// All requests that are kept.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Done {
    by_key: BTreeMap<u128, DoneRequest>,
    /// Keys, the oldest first.
    aging: VecDeque<(Timestamp, u128)>,
}

impl Done {
    pub(crate) fn get(&self, key: u128) -> Option<&DoneRequest> {
        self.by_key.get(&key)
    }

    /// All requests, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DoneRequest> {
        self.aging.iter().filter_map(|(_, key)| self.by_key.get(key))
    }

    /// How many requests may be forgotten now.
    pub(crate) fn due(&self, now: Timestamp) -> u32 {
        let due = |(at, _): &&(Timestamp, u128)| at.plus_millis(KEPT_MS) < now;
        let due = self.aging.iter().take(MAX_AT_ONCE).take_while(due).count();
        u32::try_from(due).expect("few at once")
    }

    /// When the next request may be forgotten.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.aging.front().map(|(at, _)| at.plus_millis(KEPT_MS + 1))
    }

    pub(crate) fn add(&mut self, done: DoneRequest) {
        self.aging.push_back((done.at, done.request.key));
        self.by_key.insert(done.request.key, done);
    }
}

impl Cell {
    /// The request under an idempotency key and its answer.
    pub fn done_request(&self, key: u128) -> Option<&DoneRequest> {
        self.requests_done.get(key)
    }

    /// Whether a request was carried out before. A different request under the same key is refused.
    pub(crate) fn is_done(&self, request: RequestKey) -> Result<bool, Refusal> {
        match self.requests_done.get(request.key) {
            Some(done) if done.request != request => Err(Refusal::KeyReused),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Stores an answer, unless one is stored.
    pub(crate) fn decide_keep(
        &self,
        request: RequestKey,
        answer: &StoredAnswer,
        events: &mut Vec<Event>,
    ) {
        let kept = self.requests_done.get(request.key).is_some_and(|done| done.answer.is_some());
        if !kept {
            events.push(Event::AnswerKept { request, answer: Box::new(answer.clone()) });
        }
    }

    pub(crate) fn apply_request_done(
        &mut self,
        at: Timestamp,
        request: RequestKey,
        answer: Option<&StoredAnswer>,
    ) {
        let answer = answer.cloned().map(Box::new);
        if let Some(done) = self.requests_done.by_key.get_mut(&request.key) {
            done.answer = answer;
            return;
        }
        self.requests_done.add(DoneRequest { request, at, answer });
        if self.requests_done.aging.len() == 1 {
            self.time_requests();
        }
    }

    pub(crate) fn apply_requests_forgotten(&mut self, requests: u32) {
        if let Some(deadline) = self.requests_done.deadline() {
            self.timers.clear(deadline, Timer::Requests);
        }
        for _ in 0..requests {
            if let Some((_, key)) = self.requests_done.aging.pop_front() {
                self.requests_done.by_key.remove(&key);
            }
        }
        self.time_requests();
    }

    fn time_requests(&mut self) {
        if let Some(deadline) = self.requests_done.deadline() {
            self.timers.set(deadline, Timer::Requests);
        }
    }
}
