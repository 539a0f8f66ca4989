//! `bursar credits`: credits that expire, one JSON operation per line on standard input, one answer
//! per line on standard output.
//!
//! See `operation.rs` for the operations, `answer.rs` for the answers. `time_order.rs` and
//! `any_order.rs` apply them to a [`fefo::Pool`] and to a [`fefo::Timeline`].

mod answer;
mod any_order;
mod lines;
mod operation;
#[cfg(test)]
mod tests;
mod time_order;

use std::collections::BTreeMap;
use std::io::{BufRead, ErrorKind, Write};

use clap::Args;

use self::answer::{BadLine, Code, LineAnswer, LineOutcome};
use self::any_order::TimelineCredits;
use self::lines::{InputLine, Lines, MAX_LINE_BYTES};
use self::operation::{Action, Operation};
use self::time_order::PoolCredits;
use crate::exit::{Exit, Failure};
use crate::render::format::shown;

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar credits < operations.jsonl\n  \
    echo '{\"type\": \"get_balance\", \"current_time\": 0}' | bursar credits\n\n\
    Operations, one JSON object in a line; amounts and times are whole numbers:\n  \
    {\"type\": \"add_credits\", \"amount\": 30, \"expiry_time\": 200}                       also at, user\n  \
    {\"type\": \"consume_credits\", \"amount\": 15, \"current_time\": 50}   also allow_partial, user\n  \
    {\"type\": \"get_balance\", \"current_time\": 50}                                    also user\n\n\
    Exit codes: 0 every line was an operation · 1 a line was wrong; its answer says why")]
pub(crate) struct CreditsArguments {
    /// Accept operations earlier than the last one of their user. Their answers list the earlier
    /// answers that they change.
    #[arg(long)]
    any_order: bool,
}

/// The credits of one user.
trait UserCredits: Default {
    /// Applies the operation of a line. An error changes nothing.
    fn apply(&mut self, line: u64, action: Action) -> Result<LineOutcome, BadLine>;
}

/// The wrong lines of an input.
#[derive(Debug, Default, PartialEq, Eq)]
struct WrongLines {
    count: u64,
    first: u64,
}

pub(crate) fn run(arguments: &CreditsArguments) -> Result<(), Failure> {
    let (input, answers) = (std::io::stdin().lock(), std::io::stdout().lock());
    let wrong = if arguments.any_order {
        serve::<TimelineCredits>(input, answers)
    } else {
        serve::<PoolCredits>(input, answers)
    }?;
    match wrong {
        WrongLines { count: 0, .. } => Ok(()),
        WrongLines { count: 1, first } => {
            Err(Failure::because(Exit::Failed, format!("line {first} is wrong")))
        }
        WrongLines { count, first } => {
            let why = format!("{count} lines are wrong; the first is line {first}");
            Err(Failure::because(Exit::Failed, why))
        }
    }
}

/// Answers every line until the input ends.
fn serve<C: UserCredits>(
    input: impl BufRead,
    mut answers: impl Write,
) -> Result<WrongLines, Failure> {
    let mut users: BTreeMap<Option<String>, C> = BTreeMap::new();
    let mut wrong = WrongLines::default();
    let mut lines = Lines::new(input);
    for line in 1.. {
        let read = lines.next().map_err(|cause| Failure::new("cannot read the input", cause))?;
        let Some(text) = read else { break };
        let operation = match text {
            InputLine::Whole(text) if text.trim_ascii().is_empty() => continue,
            InputLine::Whole(text) => Operation::read(text),
            InputLine::TooLong => {
                let text = format!("the line has more than {MAX_LINE_BYTES} bytes");
                Err(BadLine::new(Code::TooLong, text))
            }
        };
        let (user, applied) = match operation {
            Ok(Operation { user, action }) => {
                let applied = match users.get_mut(&user) {
                    Some(known) => known.apply(line, action),
                    None => {
                        let mut new = C::default();
                        let applied = new.apply(line, action);
                        if applied.is_ok() {
                            users.insert(user.clone(), new);
                        }
                        applied
                    }
                };
                (user, applied)
            }
            Err(bad) => (None, Err(bad)),
        };
        if applied.is_err() {
            wrong.first = if wrong.count == 0 { line } else { wrong.first };
            wrong.count += 1;
        }
        let outcome = applied.unwrap_or_else(LineOutcome::from);
        let answer = serde_json::to_string(&LineAnswer { line, user, outcome })?;
        match writeln!(answers, "{}", shown(answer)).and_then(|()| answers.flush()) {
            Ok(()) => {}
            // The reader has closed the pipe, as `head` does: not a failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::new("cannot write the answers", error)),
        }
    }
    Ok(wrong)
}
