//! Properties of both orders of time, with whole inputs.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn answers_of<C: UserCredits>(input: &[u8]) -> (Vec<Value>, WrongLines) {
    let mut out = Vec::new();
    let wrong = serve::<C>(input, &mut out).expect("memory can be written");
    let text = String::from_utf8(out).expect("answers are UTF-8");
    let read = |line| serde_json::from_str(line).expect("answers are JSON");
    (text.lines().map(read).collect(), wrong)
}

/// The answers to operations that are all right, one each.
fn answers<C: UserCredits>(operations: &[Value]) -> Vec<Value> {
    let input: String = operations.iter().map(|operation| format!("{operation}\n")).collect();
    let (answers, wrong) = answers_of::<C>(input.as_bytes());
    assert_eq!(wrong, WrongLines::default(), "{input}");
    assert_eq!(answers.len(), operations.len());
    answers
}

fn add(user: &str, amount: u64, at: i64, expiry_time: i64) -> Value {
    json!({"type": "add_credits", "user": user, "amount": amount, "at": at,
        "expiry_time": expiry_time})
}

fn consume(user: &str, amount: u64, now: i64, allow_partial: bool) -> Value {
    json!({"type": "consume_credits", "user": user, "amount": amount, "current_time": now,
        "allow_partial": allow_partial})
}

fn balance(user: &str, now: i64) -> Value {
    json!({"type": "get_balance", "user": user, "current_time": now})
}

/// Operations of two users at few instants, so that many coincide. `partial` says how to draw
/// `allow_partial`.
fn operations(partial: BoxedStrategy<bool>) -> impl Strategy<Value = Vec<Value>> {
    let user = prop::sample::select(vec!["ada", "bob"]);
    let operation = (0..3, user, 1..20_u64, 0..30_i64, 0..30_i64, partial).prop_map(
        |(kind, user, amount, now, life, partial)| match kind {
            0 => add(user, amount, now, now + life),
            1 => consume(user, amount, now, partial),
            _ => balance(user, now),
        },
    );
    prop::collection::vec(operation, 0..60)
}

fn shuffled(partial: BoxedStrategy<bool>) -> impl Strategy<Value = Vec<Value>> {
    operations(partial).prop_shuffle()
}

/// The order in which the timeline applies operations: at one instant packs, then consumptions,
/// then questions; equal ones as they come.
fn place(operation: &Value) -> (i64, u8) {
    let instant = |name: &str| operation[name].as_i64().expect("a number");
    match operation["type"].as_str() {
        Some("add_credits") => (instant("at"), 0),
        Some("consume_credits") => (instant("current_time"), 1),
        _ => (instant("current_time"), 2),
    }
}

fn sorted(mut operations: Vec<Value>) -> Vec<Value> {
    operations.sort_by_key(place);
    operations
}

/// The part of an answer that both orders have, without the line.
fn common(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let fields = answer.as_object_mut().expect("an object");
    ["line", "packs", "changes"].iter().for_each(|name| drop(fields.remove(*name)));
    answer
}

/// The answers after all changes that later answers list. Each change names the value it replaces.
fn corrected(mut answers: Vec<Value>) -> Vec<Value> {
    for index in 0..answers.len() {
        let changes = answers[index]["changes"].as_array().cloned().unwrap_or_default();
        for change in changes {
            let line = change["line"].as_u64().expect("a line");
            let other = &mut answers[line as usize - 1];
            let name = if change.get("consumed").is_some() { "consumed" } else { "balance" };
            assert_eq!(other[name], change["was"], "{change}");
            assert_ne!(other[name], change[name], "{change}");
            assert!(line <= index as u64, "{change}");
            other[name] = change[name].clone();
        }
    }
    answers
}

/// Balances of both users after the last operation, as long as credits are valid.
fn final_balances() -> Vec<Value> {
    (30..62).flat_map(|now| [balance("ada", now), balance("bob", now)]).collect()
}

proptest! {
    #[test]
    fn any_order_ends_with_the_answers_of_time_order(shuffled in shuffled(Just(true).boxed())) {
        let mut late = shuffled.clone();
        late.extend(final_balances());
        let late_answers = corrected(answers::<TimelineCredits>(&late));
        let mut order: Vec<usize> = (0..shuffled.len()).collect();
        order.sort_by_key(|&index| place(&shuffled[index]));
        let mut timely: Vec<Value> = order.iter().map(|&index| shuffled[index].clone()).collect();
        timely.extend(final_balances());
        order.extend(shuffled.len()..late.len());
        let timely_answers = answers::<PoolCredits>(&timely);
        for (answer, index) in timely_answers.iter().zip(order) {
            prop_assert_eq!(common(answer), common(&late_answers[index]));
        }
    }

    #[test]
    fn without_late_operations_both_orders_answer_alike(
        operations in operations(any::<bool>().boxed()),
    ) {
        let operations = sorted(operations);
        let timely = answers::<PoolCredits>(&operations);
        let any_order = answers::<TimelineCredits>(&operations);
        for (timely, any_order) in timely.iter().zip(&any_order) {
            prop_assert_eq!(common(timely), common(any_order));
            prop_assert!(any_order.get("changes").is_none(), "{}", any_order);
        }
    }

    #[test]
    fn without_partial_consumptions_no_consumption_changes(
        shuffled in shuffled(Just(false).boxed()),
    ) {
        let mut late = shuffled.clone();
        late.extend(final_balances());
        let late_answers = answers::<TimelineCredits>(&late);
        for answer in &late_answers {
            let changes = answer["changes"].as_array().cloned().unwrap_or_default();
            prop_assert!(changes.iter().all(|change| change.get("consumed").is_none()));
        }
        // Refused consumptions have no effect: what was accepted is accepted in time order too.
        let kinds = late_answers.iter().map(|answer| answer["type"].as_str().expect("a type"));
        let accepted = late.iter().zip(kinds);
        let accepted = accepted.filter(|(_, kind)| !["insufficient", "committed"].contains(kind));
        let mut accepted: Vec<Value> = accepted.map(|(operation, _)| operation.clone()).collect();
        let questions = accepted.split_off(accepted.len() - final_balances().len());
        let mut timely = sorted(accepted);
        timely.extend(questions);
        let timely_answers = answers::<PoolCredits>(&timely);
        prop_assert!(timely_answers.iter().all(|answer| answer["type"] != "insufficient"));
        let last = final_balances().len();
        let balances = |answers: &[Value]| -> Vec<Value> {
            answers[answers.len() - last..].iter().map(|answer| answer["balance"].clone()).collect()
        };
        prop_assert_eq!(balances(&timely_answers), balances(&late_answers));
    }

    #[test]
    fn packs_are_drawn_by_expiry_and_add_up(operations in operations(any::<bool>().boxed())) {
        let operations = sorted(operations);
        for (answer, operation) in answers::<PoolCredits>(&operations).iter().zip(&operations) {
            let Some(packs) = answer["packs"].as_array() else { continue };
            let number = |value: &Value| value.as_u64().expect("a number");
            let sum: u64 = packs.iter().map(|pack| number(&pack["amount"])).sum();
            prop_assert_eq!(sum, number(&answer["consumed"]));
            let pack = |part: &Value| &operations[number(&part["line"]) as usize - 1];
            prop_assert!(packs.is_sorted_by_key(|part| number(&pack(part)["expiry_time"])));
            let now = number(&operation["current_time"]);
            prop_assert!(packs.iter().all(|part| number(&pack(part)["expiry_time"]) >= now));
            prop_assert!(packs.iter().all(|part| pack(part)["user"] == operation["user"]));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        answers_of::<PoolCredits>(&bytes);
        answers_of::<TimelineCredits>(&bytes);
    }

    #[test]
    fn every_line_is_answered_once_and_wrong_ones_have_no_effect(
        operations in operations(any::<bool>().boxed()),
        wrong in prop::collection::btree_map(0..60_usize, 0..6_usize, 0..20),
    ) {
        let wrong_lines = [
            "hello",
            r#"{"type": "add_credits", "amount": 1e999, "expiry_time": 1}"#,
            r#"{"type": "add_credits", "user": "ada", "amount": 5, "expiry_time": 40, "x": 1}"#,
            r#"{"type": "consume_credits", "user": "ada", "amount": 0, "current_time": 29}"#,
            r#"{"type": "get_balance", "user": "ada"}"#,
            r#"{"type": "add_credits", "user": "bob", "amount": 5, "at": 50, "expiry_time": 49}"#,
        ];
        let operations = sorted(operations);
        let mut input = String::new();
        let mut numbers = BTreeMap::new();
        for (index, operation) in operations.iter().enumerate() {
            if let Some(kind) = wrong.get(&index) {
                input.push_str(&format!("{}\n\n", wrong_lines[*kind]));
            }
            input.push_str(&format!("{operation}\n"));
            numbers.insert(input.lines().count() as u64, index);
        }
        let (all, found) = answers_of::<PoolCredits>(input.as_bytes());
        let (errors, right): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|answer| answer["type"] == "error");
        let mixed_in = wrong.keys().filter(|index| **index < operations.len()).count();
        prop_assert_eq!(errors.len(), mixed_in);
        prop_assert_eq!(found.count, mixed_in as u64);
        prop_assert_eq!(right.len(), operations.len());
        for (answer, alone) in right.iter().zip(answers::<PoolCredits>(&operations)) {
            let line = answer["line"].as_u64().expect("a line");
            prop_assert_eq!(numbers[&line] as u64 + 1, alone["line"].as_u64().expect("a line"));
            prop_assert_eq!(common(answer), common(&alone));
        }
    }
}
