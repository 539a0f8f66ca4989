//! The closed list of problem codes: each is provoked here from outside, or there is a reason why
//! it cannot be. A code without either does not compile.

use bursar_client::api::Code;
use serde_json::{Value, json};

use crate::server::{Answer, Server, read};

/// How a code is met.
enum Case {
    /// A plain request meets it.
    Request(&'static str, &'static str, Value),
    /// It takes more than one plain request.
    Steps,
    /// No request to this server can meet it; why, and where it is shown instead.
    Elsewhere(&'static str),
}

fn case(code: Code) -> Case {
    use Case::{Elsewhere, Request, Steps};
    let amount = |account: &str, amount: &str| json!({ "account": account, "amount": amount });
    match code {
        Code::InsufficientCredits => Request("POST", "/v1/charges", amount("acme", "1000")),
        Code::BudgetExceeded => Request("POST", "/v1/charges", amount("acme:nlp", "5")),
        Code::NotFound => Request("GET", "/v1/holds/none", Value::Null),
        Code::MethodNotAllowed => Request("DELETE", "/v1/holds", Value::Null),
        Code::AlreadyExists => {
            Request("POST", "/v1/accounts", json!({ "id": "acme", "kind": "org", "name": "x" }))
        }
        Code::AmbiguousId => Request("GET", "/v1/grants/g", Value::Null),
        Code::Conflict => Request("POST", "/v1/refunds", json!({ "hold": "open" })),
        Code::HoldClosed => Request("POST", "/v1/holds/closed/settle", json!({ "total": "1" })),
        Code::SequenceConflict => {
            Request("POST", "/v1/holds/open/capture", json!({ "total": "1", "seq": 1 }))
        }
        Code::AccountFrozen => Request("POST", "/v1/charges", amount("acme:vision", "1")),
        Code::BatchAborted => {
            let charge = json!({
                "method": "POST", "path": "/v1/charges", "body": amount("acme", "1000")
            });
            Request("POST", "/v1/batch", json!({ "atomic": true, "operations": [charge] }))
        }
        Code::InvalidField => Request("POST", "/v1/charges", amount("acme", "-1")),
        Code::TooLate => {
            let mut late = amount("acme", "1");
            late["effective_at"] = "2019-12-01T00:00:00Z".into();
            Request("POST", "/v1/charges", late)
        }
        Code::Unavailable => {
            Request("GET", "/v1/accounts/acme/balance?min_position=900", Value::Null)
        }
        Code::MalformedJson
        | Code::Unauthenticated
        | Code::Forbidden
        | Code::IdempotencyKeyReused
        | Code::BodyTooLarge
        | Code::UnsupportedMediaType
        | Code::RateLimited => Steps,
        Code::StaleIncarnation | Code::Unsatisfiable => {
            Elsewhere("nodes and jobs meet it; their own tests show it")
        }
        Code::OutcomeUnknown | Code::StorageFull => Elsewhere(
            "the disk must fail under the writer; the engine's tests do that, and a test of \
             request/failure.rs pins the texts of the engine's errors",
        ),
        Code::Internal => Elsewhere("it would be a defect; a panic in a handler is answered so"),
    }
}

async fn prepare(server: &Server) {
    server.tree().await;
    server.grant("g", "acme", "10").await;
    server.grant("g", "umbra", "10").await;
    let budget = json!({ "limit": "1", "period": "total", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme:nlp/budgets/b", budget).await.expect(200);
    for id in ["open", "closed"] {
        let hold = json!({ "id": id, "account": "acme", "amount": "2" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
    }
    server.call("POST", "/v1/holds/closed/release", json!({})).await.expect(200);
    let capture = json!({ "total": "2", "seq": 1 });
    server.call("POST", "/v1/holds/open/capture", capture).await.expect(200);
    server.call("POST", "/v1/accounts/acme:vision/freeze", json!({})).await.expect(200);
}

async fn raw(server: &Server, kind: &str, body: String) -> Answer {
    let request = server.client.post(format!("{}/v1/charges", server.url));
    let request = request.bearer_auth(&server.root).header("content-type", kind).body(body);
    read(request.send().await.expect("the server is there")).await
}

async fn steps(server: &Server, code: Code) -> Answer {
    let viewer = server.key("viewer", "acme").await;
    let charge = json!({ "account": "acme", "amount": "1" });
    match code {
        Code::MalformedJson => raw(server, "application/json", "{".into()).await,
        Code::UnsupportedMediaType => raw(server, "text/plain", "{}".into()).await,
        Code::BodyTooLarge => raw(server, "application/json", " ".repeat(5 << 20)).await,
        Code::Unauthenticated => {
            server.send("GET", "/v1/accounts/acme", Value::Null, "nonsense", &[]).await
        }
        Code::Forbidden => server.send("POST", "/v1/charges", charge, &viewer, &[]).await,
        Code::IdempotencyKeyReused => {
            let key = [("Idempotency-Key", "k")];
            let root = server.root.clone();
            server.send("POST", "/v1/charges", charge, &root, &key).await.expect(201);
            let other = json!({ "account": "acme", "amount": "2" });
            server.send("POST", "/v1/charges", other, &root, &key).await
        }
        Code::RateLimited => loop {
            let answer = server.send("GET", "/v1/accounts/acme", Value::Null, &viewer, &[]).await;
            if answer.status != 200 {
                return answer;
            }
        },
        other => panic!("{} is met by a plain request", other.as_str()),
    }
}

#[tokio::test]
async fn every_problem_code_is_provoked_or_has_a_reason_why_not() {
    let server = Server::configured("[limits]\nper_key = 5\n", &["--clock", "manual"]);
    prepare(&server).await;
    for code in Code::ALL {
        let answer = match case(*code) {
            Case::Request(method, path, body) => server.call(method, path, body).await,
            Case::Steps => steps(&server, *code).await,
            Case::Elsewhere(reason) => {
                assert!(!reason.is_empty(), "{}", code.as_str());
                continue;
            }
        };
        let problem = answer.problem(code.as_str());
        assert_eq!(problem["status"], code.status());
        assert_eq!(problem["retryable"], code.is_retryable());
        let page = problem["type"].as_str().expect("an address").to_owned();
        let page = page.strip_prefix(&server.url).expect("a page of this server");
        server.send("GET", page, Value::Null, "", &[]).await.expect(200);
    }
}
