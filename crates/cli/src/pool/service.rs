//! Handles the messages of the pool.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use serde_json::Value;
use uuid::Uuid;

use super::message::{Message, Reply, Request, RequestError, Requirement, queued};
use super::resources::{Allocation, AllocationAnswer, Amounts, ConcurrencyGroup, Granted, Pool};

/// Sender, receiver and number of a request. Sender and number identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    src: String,
    msg_id: i64,
    dest: String,
}

impl Question {
    fn answer(&self, body: Reply) -> Message {
        Message { src: self.dest.clone(), dest: self.src.clone(), body }
    }
}

/// The number of requests whose replies are kept; a later retry is a new request.
const MAX_KEPT_REPLIES: usize = 100_000;

/// A message without a sender to reply to.
#[derive(Debug)]
pub(super) struct NoSender(Value);

impl fmt::Display for NoSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message needs `src` and `dest`: {}", self.0)
    }
}

/// The pool, the groups, and the last replies.
pub(super) struct Service {
    pool: Pool<Question>,
    groups: BTreeMap<String, ConcurrencyGroup>,
    allocations: BTreeMap<String, Allocation>,
    /// The last reply to each request, by sender and number.
    answers: BTreeMap<(String, i64), Message>,
    /// The keys of `answers`, the oldest first.
    order: VecDeque<(String, i64)>,
}

impl Service {
    pub(super) fn new(capacity: &Amounts) -> Service {
        Service {
            pool: Pool::new(capacity),
            groups: BTreeMap::new(),
            allocations: BTreeMap::new(),
            answers: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Handles one message and returns the replies to send.
    pub(super) fn receive(&mut self, message: &Value) -> Result<Vec<Message>, NoSender> {
        let text = |field: &str| message.get(field).and_then(Value::as_str).map(str::to_string);
        let (Some(src), Some(dest)) = (text("src"), text("dest")) else {
            return Err(NoSender(message.clone()));
        };
        let body = message.get("body").unwrap_or(&Value::Null);
        let Some(msg_id) = body.get("msg_id").and_then(Value::as_i64) else {
            let text = "the body needs a `msg_id`, a whole number".to_string();
            let RequestError { code, text } = RequestError::malformed(&text);
            let body = Reply::Error { in_reply_to: None, code, text };
            return Ok(vec![Message { src: dest, dest: src, body }]);
        };
        let question = Question { src, msg_id, dest };
        if let Some(answer) = self.answers.get(&(question.src.clone(), msg_id)) {
            return Ok(vec![answer.clone()]);
        }
        let mut messages = Vec::new();
        let reply = Request::read(body)
            .and_then(|request| self.serve(&question, request, &mut messages))
            .unwrap_or_else(|RequestError { code, text }| Reply::Error {
                in_reply_to: Some(msg_id),
                code,
                text,
            });
        let answer = question.answer(reply);
        self.remember(&question, &answer);
        messages.insert(0, answer);
        Ok(messages)
    }

    /// Handles a request. Replies to other waiting requests are added to `others`.
    fn serve(
        &mut self,
        question: &Question,
        request: Request,
        others: &mut Vec<Message>,
    ) -> Result<Reply, RequestError> {
        let in_reply_to = question.msg_id;
        match request {
            Request::Allocate { requirements } => self.allocate(question, &requirements),
            Request::Release { allocation_id } => {
                let Some(allocation) = self.allocations.remove(&allocation_id) else {
                    return Err(RequestError::unknown("allocation", &allocation_id));
                };
                let (freed, granted) =
                    self.pool.release(allocation).expect("every allocation that is named is held");
                others.extend(granted.into_iter().map(|granted| self.granted_reply(granted)));
                let resources_freed = (&freed).into();
                Ok(Reply::Released { in_reply_to, allocation_id, resources_freed })
            }
            Request::SubmitJob { category, concurrency_limit, jobs } => {
                let group = self.groups.entry(category).or_default();
                let Some(queued) = group.submit(jobs, concurrency_limit) else {
                    return Err(RequestError::malformed("too many jobs to count"));
                };
                let (running, waiting) = (group.running(), group.waiting());
                Ok(Reply::JobsSubmitted { in_reply_to, queued, running, waiting })
            }
            Request::FinishJob { category, jobs } => {
                let Some(group) = self.groups.get_mut(&category) else {
                    return Err(RequestError::unknown("category", &category));
                };
                let finished = group.finish(jobs);
                let (running, waiting) = (group.running(), group.waiting());
                Ok(Reply::JobsFinished { in_reply_to, finished, running, waiting })
            }
            Request::Init => Ok(Reply::InitOk { in_reply_to }),
        }
    }

    fn allocate(
        &mut self,
        question: &Question,
        requirements: &[Requirement],
    ) -> Result<Reply, RequestError> {
        let mut wanted = Amounts::default();
        for Requirement { resource, amount } in requirements {
            if *amount == 0 {
                return Err(RequestError::malformed("an `amount` is at least 1"));
            }
            if !wanted.add(resource, *amount) {
                return Err(RequestError::malformed("too much to count"));
            }
        }
        if wanted.is_empty() {
            return Err(RequestError::malformed("`requirements` names at least one resource"));
        }
        let resources = wanted.clone();
        Ok(match self.pool.allocate(wanted, question.clone()) {
            AllocationAnswer::Allocated(allocation) => {
                self.allocated(question.msg_id, allocation, &resources)
            }
            AllocationAnswer::Queued(shortages) => queued(question.msg_id, &shortages),
        })
    }

    /// Names an allocation.
    fn allocated(&mut self, in_reply_to: i64, allocation: Allocation, held: &Amounts) -> Reply {
        let allocation_id = Uuid::now_v7().to_string();
        self.allocations.insert(allocation_id.clone(), allocation);
        Reply::Allocated { in_reply_to, allocation_id, resources: held.into() }
    }

    /// The reply to a waiting request that is granted. A retry gets the same reply.
    fn granted_reply(&mut self, granted: Granted<Question>) -> Message {
        let Granted { allocation, resources, ticket: question } = granted;
        let answer = question.answer(self.allocated(question.msg_id, allocation, &resources));
        if let Some(stored) = self.answers.get_mut(&(question.src, question.msg_id)) {
            *stored = answer.clone();
        }
        answer
    }

    fn remember(&mut self, question: &Question, answer: &Message) {
        let key = (question.src.clone(), question.msg_id);
        self.answers.insert(key.clone(), answer.clone());
        self.order.push_back(key);
        if self.order.len() > MAX_KEPT_REPLIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }
}
