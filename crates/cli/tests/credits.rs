//! `bursar credits` as a process: lines in, lines out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.arg("credits").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Feeds a whole input and waits for the end.
fn feed(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let input = input.to_vec();
    // On a thread of its own: the program answers while it reads.
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("the program ends");
    writing.join().expect("no panic").expect("the program reads everything");
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn answers(output: &Output) -> Vec<Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("answers are JSON"))
        .collect()
}

/// What is printed for an input without wrong lines.
fn printed(arguments: &[&str], input: &str) -> String {
    let output = feed(arguments, input.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).to_owned()
}

#[test]
fn credits_that_expire_first_are_consumed_first() {
    let input = r#"
{"type": "add_credits", "amount": 30, "expiry_time": 200}
{"type": "add_credits", "amount": 10, "expiry_time": 100}
{"type": "get_balance", "current_time": 10}
{"type": "consume_credits", "amount": 15, "current_time": 50}
{"type": "get_balance", "current_time": 100}
{"type": "consume_credits", "amount": 26, "current_time": 200}
{"type": "consume_credits", "amount": 26, "current_time": 200, "allow_partial": true}
{"type": "get_balance", "current_time": 200}
{"type": "get_balance", "current_time": 201}"#;
    expect_test::expect![[r#"
        {"line":2,"type":"credits_added","at":0}
        {"line":3,"type":"credits_added","at":0}
        {"line":4,"type":"balance","balance":40}
        {"line":5,"type":"credits_consumed","consumed":15,"packs":[{"line":3,"amount":10},{"line":2,"amount":5}]}
        {"line":6,"type":"balance","balance":25}
        {"line":7,"type":"insufficient","available":25}
        {"line":8,"type":"credits_consumed","consumed":25,"packs":[{"line":2,"amount":25}]}
        {"line":9,"type":"balance","balance":0}
        {"line":10,"type":"balance","balance":0}
    "#]]
    .assert_eq(&printed(&[], input));
}

#[test]
fn a_pack_is_valid_at_its_last_instant_and_not_after_it() {
    let input = r#"{"type": "add_credits", "amount": 7, "expiry_time": 100}
{"type": "get_balance", "current_time": 100}
{"type": "get_balance", "current_time": 101}
{"type": "consume_credits", "amount": 1, "current_time": 101, "allow_partial": true}
"#;
    for arguments in [&[][..], &["--any-order"]] {
        let output = feed(arguments, input.as_bytes());
        let answers = answers(&output);
        assert_eq!(answers[1]["balance"], 7);
        assert_eq!(answers[2]["balance"], 0);
        assert_eq!(answers[3]["consumed"], 0);
    }
}

#[test]
fn users_have_credits_and_times_of_their_own() {
    let input = r#"{"type": "add_credits", "amount": 5, "expiry_time": 90, "at": 50, "user": "ada"}
{"type": "add_credits", "amount": 3, "expiry_time": 90, "at": 10, "user": "bob"}
{"type": "get_balance", "current_time": 20, "user": "bob"}
{"type": "get_balance", "current_time": 50, "user": "ada"}
{"type": "get_balance", "current_time": 0}
"#;
    expect_test::expect![[r#"
        {"line":1,"user":"ada","type":"credits_added","at":50}
        {"line":2,"user":"bob","type":"credits_added","at":10}
        {"line":3,"user":"bob","type":"balance","balance":3}
        {"line":4,"user":"ada","type":"balance","balance":5}
        {"line":5,"type":"balance","balance":0}
    "#]]
    .assert_eq(&printed(&[], input));
}

#[test]
fn a_wrong_line_is_answered_with_its_number_and_changes_nothing() {
    let input = r#"{"type": "add_credits", "amount": 5, "expiry_time": 100, "at": 10}
hello

{"type": "consume_credits", "amount": 5, "current_time": 9}
{"type": "consume_credits", "amount": 2.5, "current_time": 20}
{"type": "add_credits", "amount": 5, "expires": 100}
{"type": "add_credits", "amount": 5, "expiry_time": 9}
{"type": "add_credits", "amount": 18446744073709551615, "expiry_time": 100}
{"type": "spend", "amount": 5}
{"type": "get_balance", "current_time": 11}"#;
    let output = feed(&[], input.as_bytes());
    expect_test::expect![[r#"
        {"line":1,"type":"credits_added","at":10}
        {"line":2,"type":"error","code":"not_json","text":"not JSON: expected value at column 1"}
        {"line":4,"type":"error","code":"out_of_order","text":"9 is before 10, the time of the last operation of this user; --any-order accepts late operations"}
        {"line":5,"type":"error","code":"malformed","text":"`amount` is 2.5; write a whole number from 1 to 18446744073709551615"}
        {"line":6,"type":"error","code":"malformed","text":"add_credits has no field `expires`; its fields are amount, expiry_time, at and user"}
        {"line":7,"type":"error","code":"expires_before_start","text":"the pack would expire at 9, before it starts at 10; write an expiry_time of 10 or later"}
        {"line":8,"type":"error","code":"overflow","text":"the packs that expire at 100 would have more than 18446744073709551615 credits together; write a smaller amount"}
        {"line":9,"type":"error","code":"malformed","text":"there is no operation `spend`; write add_credits, consume_credits or get_balance"}
        {"line":10,"type":"balance","balance":5}
    "#]]
    .assert_eq(text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "error: 7 lines are wrong; the first is line 2\n");
}

#[test]
fn the_exit_code_says_whether_a_line_was_wrong() {
    let right = r#"{"type": "consume_credits", "amount": 5, "current_time": 0}"#;
    for (input, code, complaint) in [
        (String::new(), 0, ""),
        ("\n \r\n\n".to_owned(), 0, ""),
        // Too few credits are an answer, not a wrong line.
        (right.to_owned(), 0, ""),
        (format!("{right}\n{{}}\n{right}\n"), 1, "error: line 2 is wrong\n"),
    ] {
        let output = feed(&[], input.as_bytes());
        assert_eq!(output.status.code(), Some(code), "{input}");
        assert_eq!(text(&output.stderr), complaint);
    }
}

#[test]
fn a_late_operation_lists_the_answers_that_it_changes() {
    let input = r#"{"type": "add_credits", "amount": 10, "expiry_time": 100}
{"type": "consume_credits", "amount": 8, "current_time": 60, "allow_partial": true}
{"type": "get_balance", "current_time": 60}
{"type": "consume_credits", "amount": 5, "current_time": 20, "allow_partial": true}
{"type": "add_credits", "amount": 4, "expiry_time": 90, "at": 30}
{"type": "add_credits", "amount": 1, "expiry_time": 8, "at": 5}
{"type": "consume_credits", "amount": 5, "current_time": 40}
{"type": "consume_credits", "amount": 11, "current_time": 10}
{"type": "get_balance", "current_time": 60}
"#;
    expect_test::expect![[r#"
        {"line":1,"type":"credits_added","at":0}
        {"line":2,"type":"credits_consumed","consumed":8}
        {"line":3,"type":"balance","balance":2}
        {"line":4,"type":"credits_consumed","consumed":5,"changes":[{"line":2,"consumed":5,"was":8},{"line":3,"balance":0,"was":2}]}
        {"line":5,"type":"credits_added","at":30,"changes":[{"line":2,"consumed":8,"was":5},{"line":3,"balance":1,"was":0}]}
        {"line":6,"type":"credits_added","at":5,"changes":[]}
        {"line":7,"type":"committed","shortfall":4}
        {"line":8,"type":"insufficient","available":10}
        {"line":9,"type":"balance","balance":1}
    "#]]
    .assert_eq(&printed(&["--any-order"], input));
}

#[test]
fn a_pack_without_an_instant_starts_at_the_last_one_of_its_user() {
    let input = r#"{"type": "get_balance", "current_time": 40}
{"type": "add_credits", "amount": 4, "expiry_time": 90}
{"type": "get_balance", "current_time": 40}
"#;
    for arguments in [&[][..], &["--any-order"]] {
        let output = feed(arguments, input.as_bytes());
        assert_eq!(answers(&output)[1]["at"], 40);
        assert_eq!(answers(&output)[2]["balance"], 4);
    }
    // In any order it can be spent at 40 and later only.
    let earlier = format!("{input}{}\n", r#"{"type": "get_balance", "current_time": 39}"#);
    assert_eq!(answers(&feed(&["--any-order"], earlier.as_bytes()))[3]["balance"], 0);
}

#[test]
fn a_line_above_the_limit_is_an_error_and_the_next_one_is_answered() {
    let question = |padding: usize| {
        format!(r#"{{"type": "get_balance", "current_time": 0{}}}"#, " ".repeat(padding))
    };
    let longest = question((1 << 20) - question(0).len());
    assert_eq!(longest.len(), 1 << 20);
    let too_long = question(50 << 20);
    let output = feed(&[], format!("{longest}\n{longest} \n{too_long}\n{longest}").as_bytes());
    let too_long = |line| {
        let text = "the line has more than 1048576 bytes";
        json!({"line": line, "type": "error", "code": "too_long", "text": text})
    };
    let right = |line| json!({"line": line, "type": "balance", "balance": 0});
    assert_eq!(answers(&output), [right(1), too_long(2), too_long(3), right(4)]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn each_line_is_answered_before_the_next_is_read() {
    let mut child = command(&[]).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
    for line in 1..4 {
        writeln!(stdin, "{}", json!({"type": "get_balance", "current_time": line})).expect("read");
        let mut answer = String::new();
        stdout.read_line(&mut answer).expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("answers are JSON");
        assert_eq!(answer, json!({"line": line, "type": "balance", "balance": 0}));
    }
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_reader_that_stops_early_is_not_a_failure() {
    let mut child = command(&[]).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    drop(child.stdout.take());
    let question = json!({"type": "get_balance", "current_time": 0});
    writeln!(stdin, "{question}").expect("it reads");
    drop(stdin);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// Two thousand operations of three users in an order without pattern, and the same sorted.
#[test]
fn shuffled_operations_end_with_the_balances_of_sorted_ones() {
    let mut operations: Vec<(i64, u8, Value)> = (0..2000_i64)
        .map(|number| {
            let mixed = |step: i64, below: i64| (number * step + number / 7) % below;
            let (user, at) = (format!("user-{}", number % 3), mixed(7919, 1000));
            if mixed(31, 5) < 3 {
                let amount = 1 + mixed(13, 40);
                let expiry_time = at + mixed(101, 300);
                let add = json!({"type": "add_credits", "user": user, "amount": amount, "at": at,
                    "expiry_time": expiry_time});
                (at, 0, add)
            } else {
                let amount = 1 + mixed(17, 60);
                let consume = json!({"type": "consume_credits", "user": user, "amount": amount,
                    "current_time": at, "allow_partial": true});
                (at, 1, consume)
            }
        })
        .collect();
    let questions: Vec<Value> = (1000..1300)
        .step_by(20)
        .flat_map(|now| (0..3).map(move |user| (now, user)))
        .map(|(now, user)| {
            json!({"type": "get_balance", "user": format!("user-{user}"), "current_time": now})
        })
        .collect();
    let mut balances = |arguments: &[&str], sort: bool| -> Vec<Value> {
        if sort {
            operations.sort_by_key(|(at, kind, _)| (*at, *kind));
        }
        let all = operations.iter().map(|(_, _, operation)| operation).chain(&questions);
        let input: String = all.map(|operation| format!("{operation}\n")).collect();
        let answers: Vec<Value> =
            printed(arguments, &input).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let last = &answers[answers.len() - questions.len()..];
        last.iter().map(|answer| answer["balance"].clone()).collect()
    };
    let late = balances(&["--any-order"], false);
    let timely = balances(&[], true);
    assert_eq!(late, timely);
    assert!(late.iter().any(|balance| *balance != 0), "the comparison is not empty");
}
