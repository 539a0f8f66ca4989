//! How a command ends: 0 it worked, 1 it did not and standard error says why, 2 it was called
//! wrongly (clap says how).

use std::fmt;
use std::process::ExitCode;

/// Why a command did not work, in words for the user.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure with what was being done and why it did not work.
    pub(crate) fn new(doing: impl fmt::Display, cause: impl fmt::Display) -> Failure {
        Failure(format!("{doing}: {cause}"))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Says why a command failed, if it did, and gives the exit code.
pub(crate) fn report(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
