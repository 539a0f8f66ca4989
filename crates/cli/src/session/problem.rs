//! Texts for problems, with the next step.

use std::borrow::Cow;

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
                 with --ca-file (docs/operate/operations.md, TLS)",
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
    let detail = in_options(&problem.detail);
    let mut failure = Failure::because(exit, why).with_particular(escaped(&detail));
    let blockers = problem.blockers.as_deref().unwrap_or_default();
    // A detail that is made of the blockers already says them.
    let said = |blocker: &&Blocker| !problem.detail.contains(&blocker.detail);
    for blocker in blockers.iter().filter(said) {
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
        Code::Conflict if problem.detail.starts_with("the node still runs attempts") => {
            "bursar node drain NODE --force stops them; without --force they may end first"
        }
        Code::Unauthenticated => {
            "bursar doctor says where the key is from; pass one with --key-file FILE, set \
             BURSAR_KEY_FILE, or keep it: bursar context add NAME --server URL --key-file FILE"
        }
        Code::Forbidden if problem.detail.contains("`issue`") => {
            "no role is enough: ask the platform for the credits, or for a key with --capability issue"
        }
        Code::Forbidden if problem.detail.contains("\"*\"") => {
            "no role is enough: ask the platform, whose keys have the scope *"
        }
        Code::Forbidden => {
            "ask for a key with such a role; an admin key makes one: bursar key create --role ROLE \
             --scope ACCOUNT --name NAME"
        }
        Code::NotFound => return Some(where_to_look(&problem.detail)),
        Code::AlreadyExists => "choose another --id, or leave it out",
        Code::AmbiguousId => "give the tenant: --tenant NAME",
        Code::IdempotencyKeyReused => "choose another --idempotency-key, or leave it out",
        Code::MalformedJson | Code::UnsupportedMediaType => "correct the body that you gave",
        Code::BodyTooLarge => "split it into several",
        Code::InvalidField => {
            let param =
                problem.param.as_deref().map_or(Cow::Borrowed("what is named above"), option_of);
            return Some(format!("correct {param}; --help shows what is expected"));
        }
        Code::Unavailable if problem.detail.contains("bursar cluster accept-loss") => {
            "no request succeeds before an operator has decided: docs/operate/operations.md, \"A \
             database that lost changes\""
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

/// The command that lists what exists, of the kind that a problem says was not found.
fn where_to_look(detail: &str) -> String {
    let kind = detail.strip_prefix("there is no ").and_then(|rest| rest.split(' ').next());
    let list = match kind {
        Some("account") => "bursar account ls lists",
        Some("job") => "bursar ls lists",
        Some("hold") => "bursar hold ls lists",
        Some("charge") => "bursar charge ls lists",
        Some("refund") => "bursar refund ls lists",
        Some("transfer") => "bursar transfer ls lists",
        Some("grant") => "bursar grant ls lists",
        Some("node") => "bursar node ls lists",
        Some("region") => "bursar region ls lists",
        Some("key") => "bursar key ls lists",
        Some("shard") => "bursar shard ls lists",
        Some("position") => return "bursar audit ls lists the records".to_owned(),
        Some("path") => return "GET /openapi.json describes every path".to_owned(),
        Some("machine") => return "bursar cluster status lists the machines".to_owned(),
        Some(_) | None => "bursar account ls, bursar ls and bursar node ls list",
    };
    format!("check the name; {list} what this key can see")
}

/// The command that removes a blocker, or the server's advice if there is none.
pub(crate) fn fix(blocker: &Blocker) -> String {
    let account = blocker.account.as_deref().unwrap_or("ACCOUNT");
    match blocker.kind {
        BlockerType::Credits => match (blocker.requested, blocker.spendable) {
            (Some(requested), Some(spendable)) if requested > spendable => {
                let missing = Sum::from_micros(requested.micros() - spendable.micros());
                format!(
                    "use less, or ask for {missing} more credits; a key that may issue them: bursar \
                     grant add {account} {missing}"
                )
            }
            _ => in_options(&blocker.fix),
        },
        BlockerType::Budget => {
            let budget = blocker.budget.as_deref().unwrap_or("NAME");
            format!(
                "use less, or ask for a larger budget; an admin or billing key: bursar budget set \
                 {account} {budget} LIMIT"
            )
        }
        BlockerType::Frozen => {
            format!("a billing or operator key can allow it: bursar account unfreeze {account}")
        }
        BlockerType::Quota if blocker.account.is_some() => format!(
            "wait until jobs end, or ask for a larger quota; an admin or operator key: bursar quota set \
             {account}"
        ),
        BlockerType::Quota
        | BlockerType::GpuType
        | BlockerType::Capacity
        | BlockerType::Gang
        | BlockerType::Memory
        | BlockerType::Group
        | BlockerType::Dependency
        | BlockerType::Reservation
        | BlockerType::Priority
        | BlockerType::Region
        | BlockerType::Drain => in_options(&blocker.fix),
    }
}

/// The option of the command line that sets a field of a body.
fn option_of(param: &str) -> Cow<'_, str> {
    let option = match param {
        "max_runtime_seconds" => "--time (-t), such as -t 4h",
        "gpus" | "gpus.types" | "gpus.count" | "gpus.share" => "--gpus (-g), such as -g H100:4",
        "gpus.memory_gib" => "--gpu-memory",
        "ttl_seconds" => "--ttl",
        "compensation_ttl_seconds" => "--compensation-ttl",
        "grace_seconds" => "--grace",
        "warn_ahead_seconds" => "--warn-ahead",
        "expires_at" => "--expires",
        "effective_at" => "--effective",
        "node_labels" => "--node-label",
        "regions" => "--region",
        "concurrency_group" => "--group",
        // Arguments without an option keep their name.
        "amount" | "account" | "id" | "limit" | "total" | "from" | "to" | "path" => param,
        // Fields of fields have no option of their own.
        nested if nested.contains(['.', '[']) => nested,
        other => return Cow::Owned(format!("--{}", other.replace('_', "-"))),
    };
    Cow::Borrowed(option)
}

/// The server's advice with the names of the command line.
fn in_options(advice: &str) -> String {
    let names = [
        (
            "send a valid key as `Authorization: Bearer <key>`",
            "no key was given, or it is unknown, expired or revoked",
        ),
        ("GET /v1/prices", "bursar price ls"),
        ("POST /v1/usage", "bursar usage report"),
        ("POST /v1/batch", "bursar batch"),
        ("unless reserve is \"rolling\"", "unless --reserve rolling is given"),
        ("gpus.types", "--gpus"),
        ("gpus.count", "--gpus"),
        ("(`nodes`)", "(--nodes)"),
        ("compensation_ttl_seconds", "--compensation-ttl"),
        ("ttl_seconds", "--ttl"),
        ("expires_at", "--expires"),
        ("effective_at", "--effective"),
        ("GET /v1/refunds", "bursar refund ls"),
        ("max_runtime_seconds", "--time"),
    ];
    let text =
        names.iter().fold(advice.to_owned(), |text, (field, option)| text.replace(field, option));
    with_commands(&text)
}

/// Paths of single resources as the commands for them.
fn with_commands(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let path = word.trim_end_matches(['.', ',', ';', ':']);
        let Some(command) = command_for(words.last().map(String::as_str), path) else {
            words.push(word.to_owned());
            continue;
        };
        words.pop();
        words.push(format!("{command}{}", &word[path.len()..]));
    }
    words.join(" ")
}

/// The command for a method and a path, if there is one.
fn command_for(method: Option<&str>, path: &str) -> Option<String> {
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    let mut next = || parts.next().unwrap_or("");
    let parts = [next(), next(), next(), next()];
    Some(match (method?, parts) {
        ("GET", ["jobs", id, "why", ""]) => format!("bursar why {id}"),
        ("GET", ["jobs", id, "", ""]) => format!("bursar job show {id}"),
        ("POST", ["jobs", id, "cancel", ""]) => format!("bursar cancel {id}"),
        ("POST", ["accounts", id, verb @ ("freeze" | "unfreeze" | "collect"), ""]) => {
            format!("bursar account {verb} {id}")
        }
        ("PUT", ["accounts", id, "quota", ""]) => format!("bursar quota set {id}"),
        ("PUT", ["accounts", id, "budgets", name]) => {
            format!("bursar budget set {id} {name} LIMIT")
        }
        ("POST", ["nodes", id, verb @ ("drain" | "resume"), ""]) => {
            format!("bursar node {verb} {id}")
        }
        _ => return None,
    })
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
            Some(
                "use less, or ask for 28.5 more credits; a key that may issue them: bursar grant add \
                 acme:nlp 28.5"
            )
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
        let kinds = Problem::new(Code::InvalidField, "no").with_param("gpus.types");
        assert!(next(kinds).contains("--gpus"));
        let fix = "a shorter max_runtime_seconds lets the job run before that";
        let reserved = Blocker::new(BlockerType::Reservation, "reserved", fix);
        assert_eq!(super::fix(&reserved), "a shorter --time lets the job run before that");
        for (server, shown) in [
            (
                "max_runtime_seconds: is needed unless reserve is \"rolling\"",
                "--time: is needed unless --reserve rolling is given",
            ),
            ("ttl_seconds: must be between 1 and 9", "--ttl: must be between 1 and 9"),
            ("compensation_ttl_seconds: is needed", "--compensation-ttl: is needed"),
            (
                "ask for at most 8, and for several nodes (`nodes`)",
                "ask for at most 8, and for several nodes (--nodes)",
            ),
        ] {
            assert_eq!(in_options(server), shown);
        }
        let busy = Problem::new(Code::Conflict, "the node still runs attempts; drain it");
        assert!(next(busy).contains("bursar node drain NODE --force"));
        for (advice, command) in [
            ("ask GET /v1/jobs/x/why for the reason", "ask bursar why x for the reason"),
            ("report it with POST /v1/usage.", "report it with bursar usage report."),
            (
                "with an operator key: PUT /v1/accounts/acme:nlp/quota",
                "with an operator key: bursar quota set acme:nlp",
            ),
            ("GET /v1/regions/x is not one", "GET /v1/regions/x is not one"),
        ] {
            assert_eq!(in_options(advice), command);
        }
        let shown = |param: &str| option_of(param).into_owned();
        assert_eq!(shown("overdraft_limit"), "--overdraft-limit");
        assert_eq!(shown("array"), "--array");
        assert_eq!(shown("amount"), "amount");
        assert_eq!(shown("records[0].seq"), "records[0].seq");
    }

    #[test]
    fn what_was_not_found_is_looked_for_in_its_own_list() {
        let missing = |what: &str| {
            let detail = format!("there is no {what} `x` that this key can see");
            next(Problem::new(Code::NotFound, detail), None).expect("a next step")
        };
        assert!(missing("hold").contains("bursar hold ls lists"));
        assert!(missing("job").contains("; bursar ls lists"));
        assert!(missing("shard").contains("; bursar shard ls lists"));
        assert!(missing("machine").contains("bursar cluster status"));
        assert!(missing("position").contains("bursar audit ls lists"));
        assert!(missing("path").contains("/openapi.json"));
        assert!(missing("thing").contains("bursar account ls"));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let problem = Problem::new(Code::InvalidField, "no").with_param("amount");
        let text = next(problem, None).expect("a next step");
        assert!(text.starts_with("correct amount;"), "{text}");
    }
}
