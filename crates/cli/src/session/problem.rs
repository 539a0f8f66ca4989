//! Texts for problems, with the next step.

use bursar_client::ClientError;
use bursar_client::api::amount::Sum;
use bursar_client::api::terminal::escaped;
use bursar_client::api::{Blocker, BlockerType, Code, Problem};

use crate::exit::{Exit, Failure};

/// Why a call failed. `key` is the idempotency key under which it can be repeated.
pub(crate) fn failure(error: &ClientError, key: Option<&str>) -> Failure {
    let again = key.map(|key| format!("repeat it safely with --idempotency-key {key}"));
    match error {
        ClientError::Problem(problem) => of_problem(problem, again),
        ClientError::Unreachable { .. } => {
            let next = again.unwrap_or_else(|| "is the server running, and --server right?".into());
            Failure::because(Exit::Unavailable, escaped(&error.to_string())).with_next(next)
        }
        // rustls has no text of its own for it.
        ClientError::Untrusted { server, cause } if cause.contains("CaUsedAsEndEntity") => {
            let why = format!(
                "the certificate of {server} is one of an authority (CA:TRUE), which no server may use"
            );
            Failure::because(Exit::Failed, escaped(&why)).with_next(
                "make the server another one: openssl req -x509 … -addext \
                 basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:NAME, then pass it \
                 with --ca-file (docs/operations.md, TLS)",
            )
        }
        ClientError::Untrusted { .. } => {
            Failure::because(Exit::Failed, escaped(&error.to_string()))
                .with_next("pass --ca-file FILE with the authority that signed it")
        }
        ClientError::Unexpected { status, .. } => {
            let exit = Exit::of_status(*status).unwrap_or(Exit::Failed);
            Failure::because(exit, escaped(&error.to_string()))
                .with_next("check --server: is it a bursar server of this version?")
        }
        ClientError::Unusable(_) => Failure::because(Exit::Usage, escaped(&error.to_string())),
    }
}

fn of_problem(problem: &Problem, again: Option<String>) -> Failure {
    let exit = Exit::of_status(problem.status).unwrap_or(Exit::Failed);
    let why = format!("{} ({})", problem.title, problem.code.as_str());
    let mut failure = Failure::because(exit, why).with_particular(escaped(&problem.detail));
    let blockers = problem.blockers.as_deref().unwrap_or_default();
    for blocker in blockers {
        failure = failure.with_particular(format!("- {}", escaped(&blocker.detail)));
    }
    if !problem.request_id.is_empty() {
        failure = failure.with_particular(format!("request {}", problem.request_id));
    }
    match next_step(problem, again) {
        Some(next) => failure.with_next(next),
        None => failure,
    }
}

/// The next step; `None` if the detail has it already.
fn next_step(problem: &Problem, again: Option<String>) -> Option<String> {
    if let Some(blockers) = problem.blockers.as_deref().filter(|blockers| !blockers.is_empty()) {
        let fixes: Vec<String> = blockers.iter().map(|of| escaped(&fix(of)).into_owned()).collect();
        return Some(fixes.join("\n      "));
    }
    let text = match problem.code {
        Code::Unauthenticated => {
            "pass --key-file FILE, set BURSAR_KEY_FILE, or keep it: bursar context add NAME \
             --server URL --key-file FILE"
        }
        Code::Forbidden if problem.detail.contains("`issue`") => {
            "no role is enough: ask the platform for the credits, or for a key with --capability issue"
        }
        Code::Forbidden if problem.detail.contains("\"*\"") => {
            "no role is enough: ask the platform, whose keys have the scope *"
        }
        Code::Forbidden => "use a key with a role that may: bursar key create --role ROLE …",
        Code::NotFound => {
            "check the name; bursar account ls, bursar ls and bursar node ls list what this key can \
             see"
        }
        Code::AlreadyExists => "choose another --id, or leave it out",
        Code::AmbiguousId => "give the tenant: --tenant NAME",
        Code::IdempotencyKeyReused => "choose another --idempotency-key, or leave it out",
        Code::MalformedJson | Code::UnsupportedMediaType => "correct the body that you gave",
        Code::BodyTooLarge => "split it into several",
        Code::InvalidField => {
            let param = match problem.param.as_deref() {
                Some("max_runtime_seconds") => "--time (-t), such as -t 4h",
                Some(param) => param,
                None => "what is named above",
            };
            return Some(format!("correct {param}; --help shows what is expected"));
        }
        Code::RateLimited | Code::Unavailable | Code::StorageFull | Code::OutcomeUnknown => {
            return again.or(Some("try again a little later".into()));
        }
        Code::Internal => "report it with the id of the request",
        Code::InsufficientCredits
        | Code::BudgetExceeded
        | Code::MethodNotAllowed
        | Code::Conflict
        | Code::HoldClosed
        | Code::SequenceConflict
        | Code::AccountFrozen
        | Code::StaleIncarnation
        | Code::BatchAborted
        | Code::Unsatisfiable
        | Code::TooLate => return None,
    };
    Some(text.into())
}

/// The command that removes a blocker, or the server's advice if there is none.
pub(crate) fn fix(blocker: &Blocker) -> String {
    let account = blocker.account.as_deref().unwrap_or("ACCOUNT");
    match blocker.kind {
        BlockerType::Credits => match (blocker.requested, blocker.spendable) {
            (Some(requested), Some(spendable)) if requested > spendable => {
                let missing = Sum::from_micros(requested.micros() - spendable.micros());
                format!("with a key that may issue credits: bursar grant add {account} {missing}")
            }
            _ => blocker.fix.clone(),
        },
        BlockerType::Budget => {
            let budget = blocker.budget.as_deref().unwrap_or("NAME");
            format!("raise it with bursar budget set {account} {budget} LIMIT, or ask for less")
        }
        BlockerType::Frozen => format!("bursar account unfreeze {account}"),
        BlockerType::GpuType => blocker.fix.replace("GET /v1/prices", "bursar price ls"),
        BlockerType::Quota
        | BlockerType::Capacity
        | BlockerType::Gang
        | BlockerType::Memory
        | BlockerType::Group
        | BlockerType::Dependency
        | BlockerType::Reservation
        | BlockerType::Priority
        | BlockerType::Region
        | BlockerType::Drain => blocker.fix.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(problem: Problem, key: Option<&str>) -> Option<String> {
        next_step(&problem, key.map(|key| format!("--idempotency-key {key}")))
    }

    #[test]
    fn missing_credits_are_counted() {
        let mut problem = Problem::new(Code::InsufficientCredits, "too few");
        let mut blocker = Blocker::new(BlockerType::Credits, "12 of 40", "grant some");
        blocker.account = Some("acme:nlp".into());
        blocker.requested = Some(Sum::from_micros(40_500_000));
        blocker.spendable = Some(Sum::from_micros(12_000_000));
        problem.blockers = Some(vec![blocker]);
        assert_eq!(
            next(problem, None).as_deref(),
            Some("with a key that may issue credits: bursar grant add acme:nlp 28.5")
        );
    }

    #[test]
    fn every_blocker_has_its_own_fix() {
        let mut problem = Problem::new(Code::BudgetExceeded, "no room");
        let mut upper = Blocker::new(BlockerType::Budget, "full", "raise it");
        upper.account = Some("acme".into());
        upper.budget = Some("month".into());
        let frozen = Blocker::new(BlockerType::Frozen, "frozen", "thaw it");
        problem.blockers = Some(vec![upper, frozen]);
        let text = next(problem, None).expect("two fixes");
        assert!(text.contains("bursar budget set acme month LIMIT"), "{text}");
        assert!(text.contains("bursar account unfreeze ACCOUNT"), "{text}");
    }

    #[test]
    fn an_unknown_outcome_is_repeated_under_the_same_key() {
        let problem = Problem::new(Code::OutcomeUnknown, "perhaps");
        assert_eq!(next(problem, Some("k")).as_deref(), Some("--idempotency-key k"));
    }

    #[test]
    fn next_steps_use_the_names_of_the_command_line() {
        let next = |problem| next(problem, None).expect("a next step");
        let issue =
            "use a key whose scope is \"*\", or one that such a key gave the capability `issue`";
        assert!(next(Problem::new(Code::Forbidden, issue)).contains("--capability issue"));
        let platform = "this concerns the whole platform; use a key whose scope is \"*\"";
        assert!(next(Problem::new(Code::Forbidden, platform)).contains("the scope *"));
        let role = "the role viewer may not do this; use a key with one of: admin";
        assert!(next(Problem::new(Code::Forbidden, role)).contains("--role ROLE"));
        let time = Problem::new(Code::InvalidField, "is needed").with_param("max_runtime_seconds");
        assert!(next(time).contains("--time (-t)"));
        let fix = "name types that GET /v1/prices lists, or have the price set";
        let blocker = Blocker::new(BlockerType::GpuType, "there is no price for any GPU", fix);
        let mut unpriced = Problem::new(Code::Unsatisfiable, "no price");
        unpriced.blockers = Some(vec![blocker]);
        assert!(next(unpriced).contains("bursar price ls"));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let problem = Problem::new(Code::InvalidField, "no").with_param("amount");
        let text = next(problem, None).expect("a next step");
        assert!(text.starts_with("correct amount;"), "{text}");
    }
}
