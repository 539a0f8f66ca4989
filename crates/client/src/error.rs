//! Every way in which a call fails.

use bursar_api::{Code, Problem};

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with a problem.
    #[error("{}: {}", .0.title, .0.detail)]
    Problem(Box<Problem>),
    /// No answer came, however often it was tried.
    #[error("no answer from {server}: {cause}")]
    Unreachable {
        /// The address.
        server: String,
        /// What happened the last time.
        cause: String,
    },
    /// The server showed a certificate that nobody trusted has signed.
    #[error("the certificate of {server} is not trusted: {cause}")]
    Untrusted {
        /// The address.
        server: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Something answered that does not speak our language.
    #[error("{server} answered {status} with something else than expected: {excerpt}")]
    Unexpected {
        /// The address.
        server: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong, or the beginning of what came.
        excerpt: String,
    },
    /// The call could not be made from what was given.
    #[error("{0}")]
    Unusable(String),
}

impl ClientError {
    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Problem(problem) => Some(problem.status),
            ClientError::Unexpected { status, .. } => Some(*status),
            ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Unusable(_) => None,
        }
    }

    /// The code of the problem, if the server answered with one.
    pub fn code(&self) -> Option<Code> {
        self.problem().map(|problem| problem.code)
    }

    /// The problem, if the server answered with one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            ClientError::Problem(problem) => Some(problem),
            ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Unexpected { .. }
            | ClientError::Unusable(_) => None,
        }
    }
}
