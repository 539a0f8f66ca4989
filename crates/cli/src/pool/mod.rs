//! `bursar pool`: a shared pool of resources, one JSON message per line on standard input and output.
//!
//! A message has `src`, `dest` and `body`; in a reply `src` and `dest` are swapped. See
//! `message.rs` for the messages and `service.rs` for their handling.

mod input;
mod message;
mod resources;
mod service;

use std::io::{BufRead, Write};

use clap::Args;

use self::input::{Input, Line};
use self::resources::Amounts;
use self::service::Service;
use crate::exit::Failure;

#[derive(Args)]
pub(crate) struct PoolArguments {
    /// A resource of the pool and its capacity; may be given several times.
    #[arg(
        long = "resource",
        value_name = "NAME=AMOUNT",
        value_parser = parse_resource,
        default_values = ["cpu=8", "memory=16", "gpu=2"],
    )]
    resources: Vec<(String, u64)>,
}

fn parse_resource(text: &str) -> Result<(String, u64), String> {
    let (name, amount) = text.split_once('=').ok_or("NAME=AMOUNT is needed, such as gpu=2")?;
    if name.is_empty() {
        return Err("a resource needs a name, such as gpu=2".into());
    }
    let amount = amount.parse().map_err(|_| format!("`{amount}` is not a whole number"))?;
    Ok((name.to_string(), amount))
}

pub(crate) fn run(arguments: PoolArguments) -> Result<(), Failure> {
    let mut capacity = Amounts::default();
    for (name, amount) in &arguments.resources {
        if !capacity.add(name, *amount) {
            return Err(Failure::new(format_args!("--resource {name}"), "too much to count"));
        }
    }
    serve(&capacity, std::io::stdin().lock(), std::io::stdout().lock(), std::io::stderr())
}

/// Answers every message until the input ends.
fn serve(
    capacity: &Amounts,
    mut lines: impl BufRead,
    mut replies: impl Write,
    mut complaints: impl Write,
) -> Result<(), Failure> {
    let mut service = Service::new(capacity);
    let mut input = Input::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let ended = lines.read_until(b'\n', &mut line)? == 0;
        for part in if ended { input.end() } else { input.take(&line) } {
            match part {
                Line::Json(value) => match service.receive(&value) {
                    Ok(messages) => {
                        for message in messages {
                            writeln!(replies, "{}", serde_json::to_string(&message)?)?;
                        }
                        replies.flush()?;
                    }
                    Err(complaint) => writeln!(complaints, "{complaint}")?,
                },
                Line::NotJson(text) => writeln!(complaints, "not JSON: {}", text.trim_end())?,
            }
        }
        if ended {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replies_to(lines: &[u8]) -> (String, String) {
        let mut capacity = Amounts::default();
        assert!(capacity.add("cpu", 8) && capacity.add("gpu", 2));
        let (mut replies, mut complaints) = (Vec::new(), Vec::new());
        serve(&capacity, lines, &mut replies, &mut complaints).expect("memory can be written");
        let text = |bytes| String::from_utf8(bytes).expect("replies are UTF-8");
        (text(replies), text(complaints))
    }

    /// Bodies with at most one error.
    fn bodies() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            Just("1".to_string()),
            Just("0".to_string()),
            Just("-1".to_string()),
            Just("1.5".to_string()),
            Just("18446744073709551615".to_string()),
            Just("1e999".to_string()),
            Just("null".to_string()),
            Just("\"x\"".to_string()),
            Just("[]".to_string()),
        ];
        let kind = prop::sample::select(vec![
            "allocate",
            "release",
            "submit_job",
            "finish_job",
            "init",
            "x",
        ]);
        (kind, number.clone(), number.clone(), number).prop_map(|(kind, one, two, three)| {
            format!(
                r#"{{"src":"c","dest":"n","body":{{"type":"{kind}","msg_id":{one},"requirements":[{{"type":"gpu","amount":{two}}},{{"type":"gpu","amount":{three}}}],"allocation_id":{two},"category":"h","concurrency_limit":{two},"jobs":{three}}}}}"#
            )
        })
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(lines in prop::collection::vec(any::<u8>(), 0..300)) {
            replies_to(&lines);
        }

        #[test]
        fn almost_right_messages_are_each_answered_once(
            messages in prop::collection::vec(bodies(), 1..20),
        ) {
            let (replies, complaints) = replies_to(messages.join("\n").as_bytes());
            // 1e999 is no number, so its line is not JSON.
            let answered = replies.lines().count() + complaints.lines().count();
            prop_assert!(answered >= messages.len(), "{replies}{complaints}");
            for reply in replies.lines() {
                let reply: serde_json::Value = serde_json::from_str(reply).expect("replies are JSON");
                prop_assert_eq!(&reply["src"], "n");
                prop_assert_eq!(&reply["dest"], "c");
                prop_assert!(reply["body"]["type"].is_string());
            }
        }

        #[test]
        fn a_truncated_message_never_swallows_the_next(
            cut in 1..90usize,
        ) {
            let message = r#"{"src":"c","dest":"n","body":{"type":"submit_job","msg_id":1,"category":"h","concurrency_limit":2,"jobs":3}}"#;
            let input = format!("{}\n{message}\n", &message[..cut]);
            let (replies, complaints) = replies_to(input.as_bytes());
            prop_assert_eq!(replies.lines().count(), 1);
            prop_assert_eq!(complaints.lines().count(), 1);
        }
    }
}
