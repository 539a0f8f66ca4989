//! The client against a real HTTP server.

mod scripted;

use std::time::Duration;

use bursar_client::api::credits::hold::{Capture, HoldFilter, PlaceHold};
use bursar_client::api::{Amount, Code};
use bursar_client::credits::{grants, holds};
use bursar_client::system::{clock, keys};
use bursar_client::{Call, Client, ClientError, EventStream, Method, Nothing, RetryPolicy};
use scripted::{Reply, Scripted};

const NOW: &str = r#"{"now":"2020-01-01T00:00:00.000Z"}"#;

fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 3,
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(1),
        timeout: Duration::from_secs(5),
    }
}

fn client(server: &Scripted) -> Client {
    Client::builder(&server.address).key("secret").retry(quick()).build().expect("usable")
}

#[tokio::test]
async fn a_read_carries_the_key_and_no_idempotency_key() {
    let server = Scripted::start([Reply::json(200, NOW)]).await;
    let answer = client(&server).send(clock::show()).await.expect("an answer");
    assert_eq!((answer.body.as_str(), answer.status, answer.replayed), (NOW, 200, false));
    assert_eq!(answer.value.now.to_string(), "2020-01-01T00:00:00.000Z");
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "GET /v1/clock");
    assert_eq!(asked.bearer.as_deref(), Some("Bearer secret"));
    assert_eq!(asked.key, None);
}

#[tokio::test]
async fn a_change_is_retried_under_one_key_until_it_is_answered() {
    let busy = || Reply::problem(Code::Unavailable, "later").with_header("retry-after", "0");
    let limited = Reply::problem(Code::RateLimited, "slower");
    let done = Reply::json(200, NOW).with_header("idempotent-replayed", "true");
    let server = Scripted::start([busy(), limited, done]).await;
    let answer = client(&server).send(clock::advance(60)).await.expect("the third time");
    assert!(answer.replayed);
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].body, r#"{"advance_seconds":60}"#);
    assert!(asked[0].key.as_deref().is_some_and(|key| key.len() == 36));
    assert!(asked.iter().all(|again| again == &asked[0]));
}

#[tokio::test]
async fn two_changes_have_two_keys_and_a_given_key_is_used() {
    let server = Scripted::start([(); 3].map(|()| Reply::json(200, NOW))).await;
    let client = client(&server);
    for call in [clock::advance(1), clock::advance(1), clock::advance(1).with_idempotency_key("k")]
    {
        client.send(call).await.expect("an answer");
    }
    let keys: Vec<_> = server.asked().into_iter().map(|asked| asked.key).collect();
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[2].as_deref(), Some("k"));
}

#[tokio::test]
async fn the_last_problem_is_returned_after_the_allowed_attempts() {
    let server = Scripted::start([(); 9].map(|()| Reply::problem(Code::StorageFull, "full"))).await;
    let error = client(&server).send(clock::advance(1)).await.expect_err("full");
    assert_eq!(error.code(), Some(Code::StorageFull));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_call_fails_if_the_requested_pause_is_too_long() {
    let reply = Reply::problem(Code::Unavailable, "much later").with_header("retry-after", "3600");
    let server = Scripted::start([reply]).await;
    let error = client(&server).send(clock::show()).await.expect_err("too long");
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn rejections_are_problems_and_are_not_retried() {
    let server = Scripted::start([Reply::problem(Code::InsufficientCredits, "too few")]).await;
    let hold = PlaceHold {
        id: None,
        account: "acme".into(),
        amount: "28.8".parse::<Amount>().expect("an amount"),
        ttl_seconds: None,
        context: None,
        on_expiry: None,
        reference: None,
    };
    let error = client(&server).send(holds::place(&hold)).await.expect_err("refused");
    let problem = error.problem().expect("a problem");
    assert_eq!((problem.code, problem.detail.as_str()), (Code::InsufficientCredits, "too few"));
    assert_eq!(error.status(), Some(402));
    assert_eq!(server.asked().len(), 1);
    assert_eq!(server.asked()[0].body, r#"{"account":"acme","amount":"28.8"}"#);
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let client = Client::builder(&address).retry(quick()).build().expect("usable");
    let error = client.send(clock::show()).await.expect_err("no server listens");
    assert!(matches!(&error, ClientError::Unreachable { server, .. } if *server == address));
}

#[tokio::test]
async fn answers_of_other_programs_are_unexpected() {
    let html = Reply::json(200, "<html>welcome</html>");
    let moved = Reply::json(302, "").with_header("location", "http://127.0.0.1:1/");
    let server = Scripted::start([html, moved]).await;
    let client = client(&server);
    for status in [200, 302] {
        let error = client.send(clock::show()).await.expect_err("not ours");
        assert!(matches!(error, ClientError::Unexpected { .. }), "{error}");
        assert_eq!(error.status(), Some(status));
    }
}

#[tokio::test]
async fn an_empty_answer_is_fine_where_nothing_is_expected() {
    let server = Scripted::start([Reply::json(204, "")]).await;
    let answer = client(&server).send(keys::revoke("key_1")).await.expect("revoked");
    assert_eq!((answer.value, answer.status), (Nothing, 204));
    assert_eq!(server.asked()[0].line, "DELETE /v1/keys/key_1");
}

#[tokio::test]
async fn every_page_of_a_list_is_fetched() {
    let page = |data: &str, more: bool, cursor: &str| {
        let body = format!(r#"{{"data":[{data}],"has_more":{more},"next_cursor":{cursor}}}"#);
        Reply::json(200, &body)
    };
    let server = Scripted::start([
        page("", true, r#""c1""#),
        page("", true, r#""c2""#),
        page("", false, "null"),
    ])
    .await;
    let filter = HoldFilter { account: Some("acme".into()), ..HoldFilter::default() };
    let all = client(&server).send_all(holds::list(&filter)).await.expect("three pages");
    assert_eq!(all, []);
    let lines: Vec<_> = server.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/holds?account=acme",
            "GET /v1/holds?account=acme&cursor=c1",
            "GET /v1/holds?account=acme&cursor=c2",
        ]
    );
}

#[tokio::test]
async fn an_id_that_would_change_the_path_is_rejected() {
    let server = Scripted::start([]).await;
    for id in ["..", "."] {
        let error = client(&server).send(grants::show(id)).await.expect_err("not sent");
        assert!(matches!(error, ClientError::Unusable(_)), "{error}");
    }
    assert_eq!(server.asked(), []);
}

#[tokio::test]
async fn a_server_address_may_have_a_path() {
    let server = Scripted::start([Reply::json(200, NOW)]).await;
    let client = Client::new(&format!("{}/bursar/", server.address), "k").expect("usable");
    client.send(clock::show()).await.expect("an answer");
    assert_eq!(server.asked()[0].line, "GET /bursar/v1/clock");
}

#[test]
fn invalid_addresses_and_keys_are_named() {
    for (server, key) in [
        ("127.0.0.1:7070", "k"),
        ("ftp://host", "k"),
        ("", "k"),
        ("http://host/?a=b", "k"),
        ("http://host", "line\nbreak"),
    ] {
        let error = Client::new(server, key).expect_err("unusable");
        assert!(matches!(error, ClientError::Unusable(_)), "{server} {key}: {error}");
    }
}

#[test]
fn the_key_is_never_shown() {
    let client = Client::new("http://127.0.0.1:1", "hush").expect("usable");
    assert_eq!(format!("{client:?}"), "Client(http://127.0.0.1:1)");
}

#[test]
fn a_call_can_be_an_operation_of_a_batch() {
    let capture = Capture { total: "2".parse().expect("an amount"), seq: Some(1) };
    let operation = holds::capture("h", &capture).with_idempotency_key("k").into_operation();
    assert_eq!(
        (operation.method.as_str(), operation.path.as_str()),
        ("POST", "/v1/holds/h/capture")
    );
    assert_eq!(operation.body.expect("a body")["total"], "2");
    assert_eq!(operation.idempotency_key.as_deref(), Some("k"));
}

#[tokio::test]
async fn any_path_can_be_requested() {
    let server = Scripted::start([Reply::json(200, r#"{"data":[]}"#)]).await;
    let call: Call<serde_json::Value> = Call::new(Method::Get, "/v1/nodes");
    let answer = client(&server).send(call).await.expect("an answer");
    assert_eq!(answer.value["data"], serde_json::json!([]));
}

fn event(id: u64) -> String {
    format!(
        "id: {id}\ndata: {{\"id\":\"{id}\",\"type\":\"hold.placed\",\
         \"at\":\"2020-01-01T00:00:00.000Z\",\"position\":{id},\"data\":{{}}}}\n\n"
    )
}

#[tokio::test]
async fn the_feed_resumes_after_the_last_complete_event() {
    let cut_off = format!("{}{}id: 3\ndata: {{", event(1), event(2));
    let busy = Reply::problem(Code::Unavailable, "later");
    let server = Scripted::start([
        Reply::json(200, &cut_off),
        busy,
        Reply::json(200, ": nothing new\n\nid: 7\n\n"),
        Reply::json(200, &event(8)),
    ])
    .await;
    let mut stream = EventStream::new(client(&server), Some("0".into()));
    for id in ["1", "2", "8"] {
        assert_eq!(stream.next().await.expect("an event").id, id);
    }
    let lines: Vec<_> = server.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/events?after=0",
            "GET /v1/events?after=2",
            "GET /v1/events?after=2",
            "GET /v1/events?after=7",
        ]
    );
}

#[tokio::test]
async fn the_feed_ends_when_the_server_rejects_the_key() {
    let server = Scripted::start([Reply::problem(Code::Unauthenticated, "unknown key")]).await;
    let error = EventStream::new(client(&server), None).next().await.expect_err("refused");
    assert_eq!(error.code(), Some(Code::Unauthenticated));
}
