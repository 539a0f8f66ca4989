//! The error of everything that reads stored bytes.

use std::borrow::Cow;

/// Stored bytes that do not have the documented form. Says what is wrong with them, for the report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(Cow<'static, str>);

impl From<&'static str> for Malformed {
    fn from(detail: &'static str) -> Malformed {
        Malformed(detail.into())
    }
}

impl From<String> for Malformed {
    fn from(detail: String) -> Malformed {
        Malformed(detail.into())
    }
}

impl From<minicbor::decode::Error> for Malformed {
    fn from(error: minicbor::decode::Error) -> Malformed {
        error.to_string().into()
    }
}
