//! Commands that talk to a server, as processes: what they send, print and return.

#[path = "../../client/tests/scripted/mod.rs"]
mod scripted;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bursar_client::api::amount::Sum;
use bursar_client::api::{Blocker, BlockerType, Code, Problem};
use scripted::{Reply, Scripted};

const NOW: &str = r#"{"now":"2020-01-01T00:00:00.000Z"}"#;
const TOP: &str = r#"{"data":[{"id":"acme","value":"28.8"},{"id":"umbrella","value":"5"}],"has_more":false,"next_cursor":null,"as_of":"2020-01-01T00:00:00.000Z","position":7}"#;

/// The command with an environment of its own.
fn bursar(server: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(arguments).env_clear();
    command.env("BURSAR_SERVER", server).env("BURSAR_KEY", "secret").env("HOME", "/nowhere");
    command
}

/// Runs a command while the server, in this process, answers it.
async fn run(server: &Scripted, arguments: &[&str]) -> Output {
    output(bursar(&server.address, arguments)).await
}

async fn output(mut command: Command) -> Output {
    let waiting = tokio::task::spawn_blocking(move || command.output());
    waiting.await.expect("no panic").expect("the binary starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("text")
}

fn page(data: &str, next: Option<&str>) -> Reply {
    let next_cursor = next.map_or("null".to_owned(), |next| format!("{next:?}"));
    let more = next.is_some();
    let body = format!(r#"{{"data":[{data}],"has_more":{more},"next_cursor":{next_cursor}}}"#);
    Reply::json(200, &body)
}

fn account(id: &str) -> String {
    format!(
        r#"{{"id":"{id}","parent":null,"kind":"org","name":null,"weight":"1","home_region":null,"metadata":null,"compensation_ttl_seconds":null,"overdraft_limit":null,"frozen":false,"uncollected":"0"}}"#
    )
}

#[tokio::test]
async fn json_is_what_the_server_sent() {
    let server = Scripted::start([Reply::json(200, TOP)]).await;
    let shown = run(&server, &["top", "--kind", "org", "-k", "2", "-o", "json"]).await;
    assert_eq!(stdout(&shown), format!("{TOP}\n"));
    assert_eq!(shown.status.code(), Some(0));
    assert_eq!(server.asked()[0].line, "GET /v1/top?kind=org&k=2");
    assert_eq!(server.asked()[0].bearer.as_deref(), Some("Bearer secret"));
}

#[tokio::test]
async fn the_same_answer_is_a_table_yaml_or_csv() {
    let server = Scripted::start([(); 3].map(|()| Reply::json(200, TOP))).await;
    let table = run(&server, &["top"]).await;
    expect_test::expect![[r#"
        ID        VALUE
        acme       28.8
        umbrella    5
    "#]]
    .assert_eq(stdout(&table));
    let yaml = run(&server, &["top", "--output", "yaml"]).await;
    expect_test::expect![[r#"
        data:
        - id: acme
          value: "28.8"
        - id: umbrella
          value: "5"
        has_more: false
        next_cursor: null
        as_of: "2020-01-01T00:00:00.000Z"
        position: 7
    "#]]
    .assert_eq(stdout(&yaml));
    let csv = run(&server, &["--output", "csv", "top"]).await;
    assert_eq!(stdout(&csv), "id,value\nacme,28.8\numbrella,5\n");
}

#[tokio::test]
async fn a_rejection_ends_with_the_command_that_fixes_it() {
    let mut problem = Problem::new(Code::InsufficientCredits, "too few credits can be drawn");
    let mut blocker = Blocker::new(BlockerType::Credits, "acme can spend 2 of 5", "grant some");
    blocker.account = Some("acme".into());
    blocker.requested = Some(Sum::from_micros(5_000_000));
    blocker.spendable = Some(Sum::from_micros(2_000_000));
    problem.blockers = Some(vec![blocker]);
    problem.request_id = "req_1".into();
    let body = serde_json::to_string(&problem).expect("plain");
    let server = Scripted::start([Reply::json(402, &body), Reply::json(402, &body)]).await;
    let refused = run(&server, &["charge", "acme", "5"]).await;
    assert_eq!(refused.status.code(), Some(5));
    assert_eq!(stdout(&refused), "");
    expect_test::expect![[r#"
        error: Not enough credits (insufficient_credits)
          too few credits can be drawn
          - acme can spend 2 of 5
          request req_1
        next: use less, or ask for 3 more credits; a key that may issue them: bursar grant add acme 3
    "#]]
    .assert_eq(stderr(&refused));
    let machine = run(&server, &["charge", "acme", "5", "-o", "json"]).await;
    assert_eq!(stderr(&machine), format!("{body}\n"));
    assert_eq!(server.asked()[0].body, r#"{"account":"acme","amount":"5"}"#);
}

#[tokio::test]
async fn each_kind_of_refusal_has_its_exit_code() {
    for (code, exit) in [
        (Code::Unauthenticated, 3),
        (Code::Forbidden, 3),
        (Code::HoldClosed, 3),
        (Code::InvalidField, 3),
        (Code::NotFound, 4),
        (Code::BudgetExceeded, 5),
        (Code::Internal, 6),
    ] {
        let server = Scripted::start([Reply::problem(code, "no")]).await;
        let refused = run(&server, &["hold", "release", "h"]).await;
        assert_eq!(refused.status.code(), Some(exit), "{}", code.as_str());
    }
}

#[tokio::test]
async fn a_change_without_answer_says_how_to_repeat_it() {
    let full = || Reply::problem(Code::OutcomeUnknown, "perhaps").with_header("retry-after", "0");
    let server = Scripted::start([(); 5].map(|()| full())).await;
    let lost = run(&server, &["charge", "acme", "5"]).await;
    assert_eq!(lost.status.code(), Some(6));
    let key = server.asked()[0].key.clone().expect("a key");
    assert!(stderr(&lost).contains(&format!("--idempotency-key {key}")), "{}", stderr(&lost));
    assert_eq!(server.asked().len(), 5);
}

#[tokio::test]
async fn a_closed_port_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let lost = output(bursar(&address, &["clock", "show"])).await;
    assert_eq!(lost.status.code(), Some(6));
    assert!(stderr(&lost).starts_with("error: no answer from http://127.0.0.1:"));
    assert!(stderr(&lost).contains(": Connection refused (os error"), "{}", stderr(&lost));
}

#[tokio::test]
async fn wrong_usage_is_reported_before_anything_is_sent() {
    let server = Scripted::start([]).await;
    for arguments in [
        &["account", "open", "acme:nlp"][..],
        &["charge", "acme", "-5"],
        &["charge", "acme", "1.2345678"],
        &["hold", "extend", "h"],
        &["account", "change", "acme"],
        &["statement", "acme"],
        &["refund"],
        &["refund", "--charge", "a", "--hold", "b"],
        &["hold", "show", ".."],
        &["api", "GET", "v1/nodes"],
        &["top", "--by", "beauty"],
        &["--context", "unknown", "top"],
    ] {
        let wrong = run(&server, arguments).await;
        assert_eq!(wrong.status.code(), Some(2), "{arguments:?}: {}", stderr(&wrong));
    }
    assert_eq!(server.asked(), []);
}

#[tokio::test]
async fn a_dry_run_sends_nothing_that_changes() {
    let balance = r#"{"account":"acme","available":"10","held":"0","by_kind":{"purchase":"10","grant":"0","promotion":"0","compensation":"0"},"spendable":"10","expiring":[],"uncollected":"0","as_of":"2020-01-01T00:00:00.000Z","position":7}"#;
    let budgets = r#"{"data":[{"name":"day","account":"acme","limit":"5","unit":"credits","period":"day","mode":"hard","thresholds":[],"utc_offset_minutes":0,"spent":"2","held":"0","used":"2","remaining":"3","period_start":null,"period_end":null}],"has_more":false,"next_cursor":null,"as_of":"2020-01-01T00:00:00.000Z","position":7}"#;
    let accepted = Reply::json(204, "");
    let answers = [accepted, Reply::json(200, balance), Reply::json(200, budgets)];
    let server = Scripted::start(answers).await;
    let arguments =
        ["hold", "place", "acme", "4", "--ttl", "2h", "--gpu-type", "H100", "--dry-run"];
    let planned = run(&server, &arguments).await;
    expect_test::expect![[r#"
        would send POST /v1/holds
        {
          "account": "acme",
          "amount": "4",
          "ttl_seconds": 7200,
          "context": {
            "gpu_types": [
              "H100"
            ]
          }
        }
        the server would accept it now
        spendable now 10, afterwards 6
        would be refused: the budget `day` of acme has 3 left
    "#]]
    .assert_eq(stdout(&planned));
    let lines: Vec<String> = server.asked().into_iter().map(|asked| asked.line).collect();
    let expected = [
        "POST /v1/dry-run",
        "GET /v1/accounts/acme/balance?gpu_type=H100",
        "GET /v1/accounts/acme/budgets",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn all_pages_become_one_table_or_one_line_each() {
    let pages = || [page(&account("a"), Some("c")), page(&account("b"), None)];
    let server = Scripted::start(pages().into_iter().chain(pages())).await;
    let csv = run(&server, &["account", "ls", "--all", "-o", "csv"]).await;
    assert_eq!(
        stdout(&csv),
        "id,kind,name,weight,state,uncollected\na,org,,1,active,0\nb,org,,1,active,0\n"
    );
    let json = run(&server, &["account", "ls", "--all", "-o", "json"]).await;
    let ids: Vec<String> = stdout(&json)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("one page a line"))
        .map(|page| page["data"][0]["id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(server.asked()[1].line, "GET /v1/accounts?cursor=c");
}

#[tokio::test]
async fn a_page_that_is_not_the_last_says_how_to_go_on() {
    let server = Scripted::start([page(&account("a"), Some("next-one"))]).await;
    let shown = run(&server, &["account", "ls", "--limit", "1"]).await;
    assert_eq!(stderr(&shown), "there is more: --all, or --cursor next-one\n");
}

#[tokio::test]
async fn watching_shows_it_again_until_it_is_refused() {
    let server = Scripted::start([
        Reply::json(200, TOP),
        Reply::json(200, TOP),
        Reply::problem(Code::NotFound, "gone"),
    ])
    .await;
    let watched = run(&server, &["top", "--watch=1", "-o", "json"]).await;
    assert_eq!(stdout(&watched), format!("{TOP}\n{TOP}\n"));
    assert_eq!(watched.status.code(), Some(4));
}

#[tokio::test]
async fn a_closed_pipe_is_not_a_failure() {
    let server = Scripted::start((0..100).map(|_| Reply::json(200, TOP))).await;
    let mut command = bursar(&server.address, &["top", "--watch=1", "-o", "json"]);
    let status = tokio::task::spawn_blocking(move || {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut reader = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        drop(reader);
        child.wait().expect("it ends")
    });
    assert_eq!(status.await.expect("no panic").code(), Some(0));
}

#[tokio::test]
async fn events_are_one_line_each_and_go_on_after_a_break() {
    let event = |id: u64| {
        format!(
            "id: {id}\ndata: {{\"id\":\"{id}\",\"type\":\"hold.placed\",\"at\":\"2020-01-01T00:00:00.000Z\",\"position\":{id},\"account\":\"acme\",\"data\":{{\"amount\":\"5\"}}}}\n\n"
        )
    };
    let server = Scripted::start([Reply::json(200, &event(1)), Reply::json(200, &event(2))]).await;
    let shown = run(&server, &["events", "--after", "0", "--count", "2"]).await;
    expect_test::expect![[r#"
        2020-01-01T00:00:00.000Z  hold.placed           acme  {"amount":"5"}
        2020-01-01T00:00:00.000Z  hold.placed           acme  {"amount":"5"}
    "#]]
    .assert_eq(stdout(&shown));
    assert_eq!(server.asked()[1].line, "GET /v1/events?after=1");
}

#[tokio::test]
async fn a_batch_fails_as_its_first_failed_operation() {
    let results = r#"{"results":[{"status":201,"body":{"id":"charge_1"}},{"status":402,"body":{"code":"budget_exceeded","detail":"no room"}}]}"#;
    let server = Scripted::start([Reply::json(200, results)]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("operations.jsonl");
    let line = r#"{"method":"POST","path":"/v1/charges","body":{"account":"a","amount":"1"}}"#;
    std::fs::write(&file, format!("{line}\n{line}\n")).expect("written");
    let done = run(&server, &["batch", &file.display().to_string()]).await;
    assert_eq!(done.status.code(), Some(5));
    expect_test::expect![[r#"
        OPERATION  STATUS  ID        CODE             DETAIL
                1     201  charge_1
                2     402            budget_exceeded  no room
    "#]]
    .assert_eq(stdout(&done));
    assert!(stderr(&done).contains("1 of 2 operations failed"), "{}", stderr(&done));
}

#[tokio::test]
async fn a_saved_secret_is_private_and_not_shown() {
    let key = r#"{"id":"key_1","key":"the-secret","role":"viewer","scope":"*","name":"n","expires_at":null,"created_at":"2020-01-01T00:00:00.000Z"}"#;
    let server =
        Scripted::start([Reply::json(201, key), Reply::problem(Code::Forbidden, "no")]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    let path = file.display().to_string();
    let create =
        ["key", "create", "--role", "viewer", "--scope", "*", "--name", "n", "--save", &path];
    let made = run(&server, &[&create[..], &["-o", "json"]].concat()).await;
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert!(!stdout(&made).contains("the-secret"));
    assert_eq!(std::fs::read_to_string(&file).expect("saved"), "the-secret\n");
    assert_eq!(mode(&file), 0o600);
    let again = run(&server, &create).await;
    assert_eq!(again.status.code(), Some(1), "a file that is there is not overwritten");
    assert_eq!(server.asked().len(), 1);
    std::fs::remove_file(&file).expect("removed");
    let refused = run(&server, &create).await;
    assert_eq!(refused.status.code(), Some(3));
    assert!(!file.exists(), "nothing is left behind");
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).expect("it is there").mode() & 0o777
}

#[tokio::test]
async fn contexts_are_kept_privately_and_used() {
    let server = Scripted::start([Reply::json(200, NOW), Reply::json(200, NOW)]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("contexts.toml");
    let context = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(arguments).env_clear().env("BURSAR_CONTEXTS", &config);
        output(command)
    };
    let add = ["context", "add", "test", "--server", &server.address, "--key", "context-key"];
    let added = context(&add).await;
    assert_eq!(added.status.code(), Some(0), "{}", stderr(&added));
    assert_eq!(mode(&config), 0o600);
    context(&["clock", "show"]).await;
    assert_eq!(server.asked()[0].bearer.as_deref(), Some("Bearer context-key"));
    let listed = context(&["context", "ls", "-o", "csv"]).await;
    let expected = format!("current,name,server,key\n*,test,{},kept\n", server.address);
    assert_eq!(stdout(&listed), expected);
    let elsewhere = format!("{}/", server.address);
    context(&["clock", "show", "--server", &elsewhere]).await;
    assert_eq!(server.asked()[1].bearer, None, "the key stays with its server");
}

#[test]
fn completion_is_printed_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        // The static script names the commands; the live one asks the binary for them.
        for (options, expected) in [(vec!["--static"], "hold"), (vec![], "bursar")] {
            let arguments = [vec!["completion", shell], options].concat();
            let output = bursar("http://127.0.0.1:1", &arguments).output();
            let output = output.expect("the binary starts");
            assert_eq!(output.status.code(), Some(0));
            assert!(stdout(&output).contains(expected), "{shell}");
        }
    }
}

fn grant(expires_at: &str) -> String {
    format!(
        r#"{{"id":"g","account":"acme","kind":"grant","amount":"5","available":"5","held":"0","spent":"0","expired":"0","revoked":"0","moved":"0","effective_at":"2020-01-01T00:00:00.000Z","expires_at":"{expires_at}","priority":100,"restrict":null,"reference":null,"metadata":null,"is_revoked":false,"created_at":"2020-01-01T00:00:00.000Z"}}"#
    )
}

#[tokio::test]
async fn a_day_of_expiry_is_the_last_day_and_the_output_says_so() {
    let end = "2020-03-01T23:59:59.999Z";
    let replies = [(); 3].map(|()| Reply::json(201, &grant(end)));
    let server = Scripted::start(replies).await;
    let arguments = ["grant", "add", "acme", "5", "--expires", "2020-03-01"];
    let remark = "2020-03-01 is its last day, until 2020-03-01T23:59:59.999Z\n";
    let added = run(&server, &arguments).await;
    assert_eq!(added.status.code(), Some(0), "{}", stderr(&added));
    assert!(
        stdout(&added).contains("expires at    2020-03-01T23:59:59.999Z"),
        "{}",
        stdout(&added)
    );
    assert_eq!(stderr(&added), remark);
    let expected = format!(r#""expires_at":"{end}""#);
    assert!(server.asked()[0].body.contains(&expected), "{}", server.asked()[0].body);
    // Programs get the instant; the remark is for people.
    let json = run(&server, &[&arguments[..], &["-o", "json"]].concat()).await;
    assert_eq!((stdout(&json), stderr(&json)), (format!("{}\n", grant(end)).as_str(), ""));
    let instant = ["grant", "add", "acme", "5", "--expires", "2020-03-01T23:59:59.999Z"];
    assert_eq!(stderr(&run(&server, &instant).await), "");
    let planned = run(&server, &[&arguments[..], &["--dry-run"]].concat()).await;
    assert!(stdout(&planned).ends_with(remark), "{}", stdout(&planned));
    let key = ["key", "create", "--role", "viewer", "--scope", "acme", "--name", "x", "--dry-run"];
    let planned = run(&server, &[&key[..], &["--expires", "2020-03-01"]].concat()).await;
    let expected = format!(r#""expires_at": "{end}""#);
    assert!(stdout(&planned).contains(&expected), "{}", stdout(&planned));
    assert!(stdout(&planned).ends_with(remark), "{}", stdout(&planned));
    let changes = server.asked().into_iter().filter(|asked| asked.line != "POST /v1/dry-run");
    assert_eq!(changes.count(), 3);
}

#[tokio::test]
async fn a_duration_needs_a_unit_everywhere() {
    let server = Scripted::start([]).await;
    for arguments in [
        &["quote", "-a", "acme", "-t", "4"][..],
        &["run", "-a", "acme", "-t", "4", "--", "true"],
        &["run", "-a", "acme", "-t", "1h", "--grace", "4", "--", "true"],
        &["run", "-a", "acme", "-t", "1h", "--warn-ahead", "4", "--", "true"],
        &["hold", "place", "acme", "5", "--ttl", "4"],
        &["hold", "extend", "h", "--ttl", "4"],
        &["account", "change", "acme", "--compensation-ttl", "4"],
        &["clock", "advance", "4"],
        &["top", "--window", "4"],
    ] {
        let wrong = run(&server, arguments).await;
        assert_eq!(wrong.status.code(), Some(2), "{arguments:?}: {}", stderr(&wrong));
        let advice = "4 what? write 4m, 4h or 4d";
        assert!(stderr(&wrong).contains(advice), "{arguments:?}: {}", stderr(&wrong));
    }
    assert_eq!(server.asked(), []);
}

#[tokio::test]
async fn durations_are_sent_in_the_units_of_the_server() {
    let server = Scripted::start((0..3).map(|_| Reply::json(200, TOP))).await;
    for window in ["1h30m", "01:30:00", "90m"] {
        let shown = run(&server, &["top", "--window", window, "-o", "json"]).await;
        assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    }
    assert!(server.asked().iter().all(|asked| asked.line == "GET /v1/top?window=90m"));
    let held = ["hold", "extend", "h", "--ttl", "1d12h", "--dry-run", "-o", "json"];
    let planned = run(&Scripted::start([]).await, &held).await;
    assert!(stdout(&planned).contains(r#""ttl_seconds":129600"#), "{}", stdout(&planned));
}
