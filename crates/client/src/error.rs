//! Errors of calls.

use bursar_api::{Code, Problem};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with a problem.
    #[error("{}: {}", .0.title, .0.detail)]
    Problem(Box<Problem>),
    /// No attempt was answered.
    #[error("no answer from {server}: {cause}")]
    Unreachable {
        /// The address.
        server: String,
        /// The cause of the last failure.
        cause: String,
    },
    /// The server's certificate is not signed by a trusted authority.
    #[error("the certificate of {server} is not trusted: {cause}")]
    Untrusted {
        /// The address.
        server: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The answer is not one of a Bursar server.
    #[error("{server} answered {status} with something else than expected: {excerpt}")]
    Unexpected {
        /// The address.
        server: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong, or the beginning of the body.
        excerpt: String,
    },
    /// The call or the client's configuration is not valid.
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
