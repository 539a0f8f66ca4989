//! Exit codes and failures. The codes are part of the interface: scripts rely on them.
//!
//! | Code | Meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | local failure: a file, the configuration, an invalid answer |
//! | 2 | wrong usage; standard error has the reason |
//! | 3 | the server refused: wrong key or role, wrong field, conflicting state |
//! | 4 | not found, or not visible to the key |
//! | 5 | not enough credits, or a hard budget is exceeded |
//! | 6 | no answer, the server is unavailable, or a wait took too long; repeating is safe |
//!
//! `bursar run` and `bursar wait` return the job's exit code instead.

use std::fmt;
use std::io::IsTerminal;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use bursar_client::api::terminal::escaped_lines;

const BAD: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();

/// The exit code of a command that failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Local failure.
    Failed = 1,
    /// Wrong usage.
    Usage = 2,
    /// The server refused.
    Refused = 3,
    /// Not found.
    NotFound = 4,
    /// Not enough credits, or a budget is exceeded.
    Insufficient = 5,
    /// No answer, or the server is unavailable.
    Unavailable = 6,
}

impl Exit {
    /// The exit code of an HTTP status; `None` for a success.
    pub(crate) fn of_status(status: u16) -> Option<Exit> {
        match status {
            0..=399 => None,
            402 => Some(Exit::Insufficient),
            404 => Some(Exit::NotFound),
            429 | 500.. => Some(Exit::Unavailable),
            400..=499 => Some(Exit::Refused),
        }
    }
}

/// Why a command failed, for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// The exit code of the job, if it is returned.
    code: Option<u8>,
    why: String,
    particulars: Vec<String>,
    next: Option<String>,
    /// The problem document, printed instead with JSON output.
    machine: Option<String>,
}

impl Failure {
    /// A failure with the action and its cause.
    pub(crate) fn new(doing: impl fmt::Display, cause: impl fmt::Display) -> Failure {
        Failure::because(Exit::Failed, format!("{doing}: {cause}"))
    }

    /// A failure with an exit code.
    pub(crate) fn because(exit: Exit, why: impl Into<String>) -> Failure {
        Failure {
            exit,
            code: None,
            why: why.into(),
            particulars: vec![],
            next: None,
            machine: None,
        }
    }

    /// Arguments that clap refused, with its text.
    pub(crate) fn of_usage(text: &str) -> Failure {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or("wrong usage");
        let why = first.strip_prefix("error: ").unwrap_or(first);
        let is_hint = |line: &&str| !line.starts_with("For more information");
        let mut failure =
            Failure::because(Exit::Usage, why).with_next("--help shows what is expected");
        failure.particulars = lines.filter(is_hint).map(str::to_owned).collect();
        failure
    }

    /// What failed of several things, with the exit code of the first failure.
    pub(crate) fn of_several(failures: Vec<(String, Failure)>, of: usize) -> Failure {
        let exit = failures.first().map_or(Exit::Failed, |(_, failure)| failure.exit);
        let mut all = Failure::because(exit, format!("{} of {of} failed", failures.len()));
        for (id, failure) in failures {
            let words: Vec<String> =
                std::iter::once(failure.why).chain(failure.particulars).collect();
            all.particulars.push(format!("{id}: {}", words.join("; ")));
        }
        all
    }

    /// Whether a line below the reason begins with a text.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.particulars.iter().any(|line| line.starts_with(text))
    }

    /// The reason.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The next step.
    pub(crate) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Sets the exit code of the job.
    pub(crate) fn with_code(mut self, code: u8) -> Failure {
        self.code = Some(code);
        self
    }

    /// Adds a line below the reason.
    pub(crate) fn with_particular(mut self, line: impl Into<String>) -> Failure {
        self.particulars.push(line.into());
        self
    }

    /// Sets the next step.
    pub(crate) fn with_next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// Sets the machine-readable form.
    pub(crate) fn with_machine(mut self, text: impl Into<String>) -> Failure {
        self.machine = Some(text.into());
        self
    }

    /// The failure as one JSON object, for errors that no server answered.
    fn json(&self) -> String {
        let object = serde_json::json!({
            "error": self.why,
            "details": self.particulars,
            "next": self.next,
            "exit_code": self.code.unwrap_or(self.exit as u8),
        });
        object.to_string()
    }

    /// The text for the terminal.
    fn text(&self) -> String {
        // The server's text may contain text of other users.
        let mut text = format!("{BAD}error:{BAD:#} {}", escaped_lines(&self.why));
        for line in &self.particulars {
            text.push_str(&format!("\n  {}", escaped_lines(line)));
        }
        if let Some(next) = &self.next {
            text.push_str(&format!("\n{GOOD}next:{GOOD:#} {}", escaped_lines(next)));
        }
        text
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::because(Exit::Failed, error.to_string())
    }
}

/// Prints why a command failed, if it did, and returns the exit code. `json`: as one JSON object.
pub(crate) fn report(outcome: Result<(), Failure>, json: bool) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let machine = failure.machine.clone().or_else(|| json.then(|| failure.json()));
            match &machine {
                Some(text) if std::io::stderr().is_terminal() => {
                    eprintln!("{}", escaped_lines(text))
                }
                Some(text) => eprintln!("{text}"),
                None => anstream::eprintln!("{}", failure.text()),
            }
            ExitCode::from(failure.code.unwrap_or(failure.exit as u8))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_decides_the_code() {
        for (status, exit) in [
            (200, None),
            (204, None),
            (401, Some(Exit::Refused)),
            (402, Some(Exit::Insufficient)),
            (403, Some(Exit::Refused)),
            (404, Some(Exit::NotFound)),
            (409, Some(Exit::Refused)),
            (422, Some(Exit::Refused)),
            (429, Some(Exit::Unavailable)),
            (500, Some(Exit::Unavailable)),
            (503, Some(Exit::Unavailable)),
        ] {
            assert_eq!(Exit::of_status(status), exit, "{status}");
        }
    }

    #[test]
    fn control_characters_from_the_server_are_escaped() {
        let hostile = "there is no account `x\u{1b}]0;t\u{7}\u{9b}2J\u{202e}`";
        let failure =
            Failure::because(Exit::NotFound, hostile).with_particular(hostile).with_next(hostile);
        let plain = failure.text().replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
        let plain = plain.replace("\u{1b}[31m", "").replace("\u{1b}[32m", "");
        let obeyed = |c: &char| bursar_client::api::terminal::is_obeyed(*c) && *c != '\n';
        assert_eq!(plain.chars().find(obeyed), None, "{plain:?}");
        assert_eq!(plain.matches(r"x\u001b]0;t\u0007\u009b2J\u202e").count(), 3, "{plain}");
    }

    #[test]
    fn a_failure_is_one_json_object() {
        let failure = Failure::because(Exit::Unavailable, "no answer").with_next("start it");
        let read: serde_json::Value = serde_json::from_str(&failure.json()).expect("JSON");
        let expected = serde_json::json!({
            "error": "no answer", "details": [], "next": "start it", "exit_code": 6
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn the_text_ends_with_the_next_step() {
        let failure = Failure::because(Exit::Insufficient, "Not enough credits")
            .with_particular("acme has 2 of 5")
            .with_next("bursar grant add acme 3");
        let plain = anstream::adapter::strip_str(&failure.text()).to_string();
        expect_test::expect![[r#"
            error: Not enough credits
              acme has 2 of 5
            next: bursar grant add acme 3"#]]
        .assert_eq(&plain);
    }
}
