//! A failed request: every refusal and error as a problem with its code, in one place.

use axum::http::HeaderMap;
use bursar_api::amount::Sum;
use bursar_api::json::BodyError;
use bursar_api::words::counted;
use bursar_api::{Blocker, BlockerType, Code, Problem, Time};
use bursar_core::credits::Credits;
use bursar_core::ledger::command::BudgetUnit;
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Conflict, Resource};
use bursar_core::ledger::{self, Refusal};
use bursar_core::{cell, directory};
use bursar_engine::EngineError;

use crate::ids::RequestId;
use crate::machines::wall_time;

/// A failed request.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The problem document.
    pub problem: Box<Problem>,
    /// The `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    /// Whether this is the stored answer to an earlier request.
    pub replayed: bool,
    /// The request that was first answered with it, if it was another one.
    pub(crate) first: Option<RequestId>,
    /// Further headers of the answer.
    pub(crate) headers: Option<Box<HeaderMap>>,
}

impl Failure {
    /// A failure with a code and a detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Failure {
        let problem = Box::new(Problem::new(code, detail));
        let retry_after = (code.status() == 503).then_some(1);
        Failure { problem, retry_after, replayed: false, first: None, headers: None }
    }

    /// A field, parameter or header that is never valid.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Failure {
        let field = field.into();
        let detail = format!("{field}: {}", reason.into());
        let mut failure = Failure::new(Code::InvalidField, detail);
        failure.problem.param = Some(field);
        failure
    }

    /// The resource does not exist or the key cannot see it; the answer is the same.
    pub fn not_found(what: &str, name: &str) -> Failure {
        let detail = format!("there is no {what} `{name}` that this key can see");
        Failure::new(Code::NotFound, detail)
    }

    /// The key does not allow this.
    pub fn forbidden(detail: impl Into<String>) -> Failure {
        Failure::new(Code::Forbidden, detail)
    }

    /// Sets the `Retry-After`.
    pub fn retry_after(mut self, seconds: u64) -> Failure {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds headers to the answer.
    pub fn with_headers(mut self, headers: HeaderMap) -> Failure {
        self.headers = Some(Box::new(headers));
        self
    }

    /// Sets whether this is the stored answer to an earlier request.
    pub fn replayed(mut self, replayed: bool) -> Failure {
        self.replayed = replayed;
        self
    }

    /// Sets the request that was first answered with it, if its number is known: a stored answer is
    /// repeated unchanged.
    pub fn first_answered_to(mut self, request: u128) -> Failure {
        self.first = (request != 0).then(|| RequestId::from_bits(request));
        self
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Failure {
        match error {
            BodyError::Malformed(detail) => Failure::new(Code::MalformedJson, detail),
            BodyError::Field { field, reason } => Failure::invalid(field, reason),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        let code = match error {
            EngineError::Unavailable(_) | EngineError::Stopped(_) => Code::Unavailable,
            EngineError::OutcomeUnknown => Code::OutcomeUnknown,
            EngineError::StorageFull => Code::StorageFull,
            EngineError::Internal => Code::Internal,
            EngineError::TooLarge(_) => Code::InvalidField,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<ledger::Refused> for Failure {
    fn from(refused: ledger::Refused) -> Failure {
        Failure::from(refused.refusal).replayed(refused.replayed).first_answered_to(refused.request)
    }
}

impl From<directory::DirectoryRefused> for Failure {
    fn from(refused: directory::DirectoryRefused) -> Failure {
        let failure = match refused.refusal {
            directory::Refusal::InvalidField { field, reason } => Failure::invalid(field, reason),
            directory::Refusal::IdempotencyKeyReused => reused(),
            directory::Refusal::NotFound => {
                Failure::new(Code::NotFound, "there is no such resource that this key can see")
            }
            directory::Refusal::AlreadyExists => {
                Failure::new(Code::AlreadyExists, "the id is taken; choose another one")
            }
            directory::Refusal::UnknownShard => {
                Failure::invalid("id", "there is no such shard: `bursar shard ls` shows all")
            }
            directory::Refusal::NoOpenShard => {
                let detail = "no shard would take new orgs: open or add another one first, `bursar shard open ID`";
                Failure::new(Code::Conflict, detail)
            }
            directory::Refusal::ClockBehind { behind_ms } => wall_time::behind(behind_ms),
        };
        failure.replayed(refused.replayed).first_answered_to(refused.request)
    }
}

/// The answer to an idempotency key that was used for another request.
pub(crate) fn reused() -> Failure {
    let detail = "this Idempotency-Key was used for another request before; use a new key for a new \
                  request";
    Failure::new(Code::IdempotencyKeyReused, detail)
}

fn noun(what: Resource) -> &'static str {
    match what {
        Resource::Account => "account",
        Resource::Grant => "grant",
        Resource::Hold => "hold",
        Resource::Charge => "charge",
        Resource::Refund => "refund",
        Resource::Transfer => "transfer",
        Resource::Collection => "collection",
        Resource::Budget => "budget",
        Resource::Job => "job",
        Resource::Region => "region",
        Resource::Quota => "quota",
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let mut failure = match &refusal {
            Refusal::InvalidField { field, reason } => Failure::invalid(*field, *reason),
            Refusal::IdempotencyKeyReused => reused(),
            Refusal::NotFound { what, name } => Failure::not_found(noun(*what), name),
            Refusal::AlreadyExists { what, name } => {
                let what = noun(*what);
                let detail =
                    format!("the {what} `{name}` was created differently; choose another id");
                Failure::new(Code::AlreadyExists, detail)
            }
            Refusal::FrozenByPlatform { account } => Failure::forbidden(format!(
                "the platform froze `{account}`; only a key whose scope is \"*\" lifts that freeze"
            )),
            Refusal::Forgotten { what, name } => {
                let what = noun(*what);
                let detail =
                    format!("the {what} `{name}` is just being archived; repeat the request");
                Failure::new(Code::Unavailable, detail)
            }
            Refusal::TooLate { earliest } => {
                let detail = format!("usage is accepted from {earliest} on");
                Failure::new(Code::TooLate, detail)
            }
            Refusal::AccountFrozen { .. } => {
                let detail = "spending is stopped here; a billing or operator key can unfreeze the accounts that block";
                Failure::new(Code::AccountFrozen, detail)
            }
            Refusal::HoldClosed { state } => {
                let state = state_name(*state);
                let detail = format!("the hold is {state}; place a new one");
                Failure::new(Code::HoldClosed, detail)
            }
            Refusal::SequenceConflict { seen } => {
                let detail =
                    format!("this seq was sent with the total {seen} before; use the next seq");
                Failure::new(Code::SequenceConflict, detail)
            }
            Refusal::Conflict(conflict) => Failure::new(Code::Conflict, conflict_detail(*conflict)),
            Refusal::QuotaExceeded { .. } => {
                let detail = "the quota of waiting jobs is used up; the blockers name each quota";
                Failure::new(Code::Conflict, detail)
            }
            Refusal::InsufficientCredits { .. } => {
                let detail = "too few credits can be drawn; the blockers say how many";
                Failure::new(Code::InsufficientCredits, detail)
            }
            Refusal::BudgetExceeded { .. } => {
                let detail = "a hard budget is exceeded; the blockers name each one";
                Failure::new(Code::BudgetExceeded, detail)
            }
            Refusal::BatchAborted { .. } => {
                Failure::new(Code::BatchAborted, "one operation failed; nothing happened")
            }
        };
        debug_assert_eq!(failure.problem.code.as_str(), refusal.code());
        failure.problem.blockers = match refusal {
            Refusal::AccountFrozen { blockers }
            | Refusal::QuotaExceeded { blockers }
            | Refusal::InsufficientCredits { blockers }
            | Refusal::BudgetExceeded { blockers } => {
                Some(blockers.into_iter().map(blocker).collect())
            }
            Refusal::InvalidField { .. }
            | Refusal::IdempotencyKeyReused
            | Refusal::NotFound { .. }
            | Refusal::AlreadyExists { .. }
            | Refusal::FrozenByPlatform { .. }
            | Refusal::Forgotten { .. }
            | Refusal::TooLate { .. }
            | Refusal::HoldClosed { .. }
            | Refusal::SequenceConflict { .. }
            | Refusal::Conflict(_)
            | Refusal::BatchAborted { .. } => None,
        };
        failure
    }
}

fn state_name(state: HoldState) -> &'static str {
    match state {
        HoldState::Open => "open",
        HoldState::Settled => "settled",
        HoldState::Released => "released",
        HoldState::Lapsed => "lapsed",
    }
}

fn conflict_detail(conflict: Conflict) -> String {
    match conflict {
        Conflict::SettleBelowCaptured { captured } => {
            format!("{captured} is captured already; settle at that or more")
        }
        Conflict::RefundAboveSpent { spent: Credits::ZERO } => {
            "nothing is left to refund: nothing was spent, or all of it was refunded before; GET \
             /v1/refunds lists the refunds"
                .into()
        }
        Conflict::RefundAboveSpent { spent } => {
            format!("only {spent} is still spent; refund at most that")
        }
        Conflict::StillOpen => {
            "only what is over can be refunded: settle or release the hold; cancel \
                                the job, or wait for its end"
                .into()
        }
        Conflict::NoRate => "the hold has no price per GPU-hour; report a total in credits".into(),
        Conflict::NothingUncollected => "nothing is uncollected".into(),
        Conflict::RecordMismatch => "the archived record contradicts itself or the ledger".into(),
        Conflict::HeldByJob => "the hold belongs to a job; cancel the job instead".into(),
        Conflict::JobEnded { state } => {
            format!("the job has ended: {}", crate::render::job::state(state).as_str())
        }
        Conflict::NotMeasuredByOthers => {
            "the job is measured by the agents of its region, or does not run yet".into()
        }
        Conflict::DependencyFailed => "a job that it depends on did not succeed".into(),
        Conflict::MessageSkipped { expected } => format!("message {expected} is due"),
    }
}

/// Micro-credits, or the count of a GPU-hour budget, as the decimal that the API shows.
pub(crate) fn budget_sum(unit: BudgetUnit, value: i128) -> Sum {
    Sum::from_micros(unit.micros(value))
}

pub(crate) fn blocker(blocker: ledger::Blocker) -> Blocker {
    match blocker {
        ledger::Blocker::Frozen { account } => {
            let detail = format!("{account} is frozen");
            let fix =
                format!("with a billing or operator key: POST /v1/accounts/{account}/unfreeze");
            let mut shown = Blocker::new(BlockerType::Frozen, detail, fix);
            shown.account = Some(account.into());
            shown
        }
        ledger::Blocker::Credits { account, requested, spendable } => {
            let spendable = Sum::from_micros(spendable);
            let detail = format!("{account} can spend {spendable} of the {requested} it needs");
            let fix = "ask for less, or have credits granted or transferred with a billing key";
            let mut shown = Blocker::new(BlockerType::Credits, detail, fix);
            shown.account = Some(account.into());
            shown.requested = Some(Sum::from_micros(requested.micros().into()));
            shown.spendable = Some(spendable);
            shown
        }
        ledger::Blocker::Budget {
            account,
            budget,
            unit,
            limit,
            spent,
            held,
            requested,
            period_end,
        } => {
            let [limit, spent, held, requested] =
                [limit, spent, held, requested].map(|value| budget_sum(unit, value));
            let detail = format!(
                "the budget `{budget}` of {account} has {limit}, of which {spent} is spent and \
                 {held} held; {requested} more does not fit"
            );
            let fix = format!(
                "ask for less, or with a billing key: PUT /v1/accounts/{account}/budgets/{budget}"
            );
            let mut shown = Blocker::new(BlockerType::Budget, detail, fix);
            shown.account = Some(account.into());
            shown.budget = Some(budget.into());
            shown.limit = Some(limit);
            shown.spent = Some(spent);
            shown.held = Some(held);
            shown.requested = Some(requested);
            shown.period_end = period_end.map(|at| Time::from_millis(at.millis()));
            shown
        }
        ledger::Blocker::WaitingJobs { account, region, limit, waiting, requested } => {
            let whole = |jobs: u32| Some(Sum::from_whole(jobs));
            let detail = format!(
                "{account} has {waiting} of at most {} waiting in {region}; {requested} more {} not fit",
                counted(limit, "job"),
                if requested == 1 { "does" } else { "do" }
            );
            let fix = format!(
                "wait until some start, or with an operator key: PUT /v1/accounts/{account}/quota"
            );
            let mut shown = Blocker::new(BlockerType::Quota, detail, fix);
            shown.account = Some(account.into());
            (shown.limit, shown.held) = (whole(limit), whole(waiting));
            shown.requested = whole(requested);
            shown
        }
        ledger::Blocker::Dependency { job, state } => {
            let state = crate::render::job::state(state).as_str();
            let detail = format!("job {job} must succeed first; it is {state}");
            let fix = format!("wait for it; GET /v1/jobs/{job}/why shows why it waits");
            Blocker::new(BlockerType::Dependency, detail, fix)
        }
    }
}

impl From<cell::Refusal> for Failure {
    fn from(refusal: cell::Refusal) -> Failure {
        match refusal {
            cell::Refusal::Invalid { field, must } => {
                Failure::invalid(field, format!("must be {must}"))
            }
            cell::Refusal::UnknownNode => {
                Failure::new(Code::NotFound, "there is no such node; register it")
            }
            cell::Refusal::UnknownJob => {
                Failure::new(Code::NotFound, "the region has no such job now")
            }
            cell::Refusal::UnknownMaintenance => {
                Failure::new(Code::NotFound, "no maintenance is planned")
            }
            cell::Refusal::StaleIncarnation { current } => {
                let detail = format!("the current incarnation is {current}; register again");
                Failure::new(Code::StaleIncarnation, detail)
            }
            cell::Refusal::KeyReused => reused(),
            cell::Refusal::NodeScope => {
                let detail = "a node of this name runs jobs of accounts outside of this key's \
                              scope; choose another name, or delete that node first";
                Failure::new(Code::Conflict, detail)
            }
            cell::Refusal::NodeBusy => {
                let detail = "the node still runs attempts; drain it with force and wait";
                Failure::new(Code::Conflict, detail)
            }
            cell::Refusal::GpuTaken { uuid, node: _ } => {
                let detail = format!(
                    "another node has the GPU {uuid}; delete that node, or wait until its lease is \
                     over"
                );
                Failure::new(Code::Conflict, detail)
            }
            cell::Refusal::StaleAttempt | cell::Refusal::AlreadyAdmitted => {
                Failure::new(Code::Conflict, "this was decided before")
            }
            cell::Refusal::MessageGap { expected } => {
                Failure::new(Code::Unavailable, format!("message {expected} is due"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_keeps_the_code_status_and_retryability_that_the_ledger_pins() {
        let refusals = [
            Refusal::InvalidField { field: "amount", reason: "must be positive" },
            Refusal::IdempotencyKeyReused,
            Refusal::NotFound { what: Resource::Hold, name: "h".into() },
            Refusal::AlreadyExists { what: Resource::Hold, name: "h".into() },
            Refusal::FrozenByPlatform { account: "acme".into() },
            Refusal::Forgotten { what: Resource::Hold, name: "h".into() },
            Refusal::TooLate { earliest: bursar_core::time::Timestamp::MIN },
            Refusal::AccountFrozen { blockers: vec![] },
            Refusal::HoldClosed { state: HoldState::Settled },
            Refusal::SequenceConflict { seen: bursar_core::credits::Credits::ZERO },
            Refusal::Conflict(Conflict::StillOpen),
            Refusal::QuotaExceeded { blockers: vec![] },
            Refusal::InsufficientCredits { blockers: vec![] },
            Refusal::BudgetExceeded { blockers: vec![] },
            Refusal::BatchAborted { answer: "{}".into() },
        ];
        let statuses = [422, 409, 404, 409, 403, 503, 422, 409, 409, 409, 409, 409, 402, 402, 409];
        for (refusal, status) in refusals.into_iter().zip(statuses) {
            let pinned = (refusal.code(), status, refusal.is_retryable());
            let kept = refusal.is_remembered();
            let problem = Failure::from(refusal).problem;
            assert_eq!((problem.code.as_str(), problem.status, problem.retryable), pinned);
            let stored = matches!(status, 402 | 409) && problem.code != Code::IdempotencyKeyReused;
            assert_eq!(kept, stored, "{}: what the API says is stored", problem.code.as_str());
        }
    }

    #[test]
    fn every_engine_error_has_its_code_and_retry_after() {
        for (error, code) in [
            (EngineError::Unavailable("starting".into()), Code::Unavailable),
            (EngineError::Stopped("ended".into()), Code::Unavailable),
            (EngineError::OutcomeUnknown, Code::OutcomeUnknown),
            (EngineError::StorageFull, Code::StorageFull),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.problem.code, failure.problem.status), (code, 503));
            assert_eq!(failure.retry_after, Some(1));
        }
        for (error, code, status) in [
            (EngineError::Internal, Code::Internal, 500),
            (EngineError::TooLarge("too much".into()), Code::InvalidField, 422),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.problem.code, failure.problem.status), (code, status));
            assert_eq!(failure.retry_after, None, "it does not help to wait");
        }
    }
}
