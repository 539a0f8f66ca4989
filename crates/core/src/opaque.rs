//! Text that the machines store and return unchanged.

use std::fmt;

/// Text with a form that only other crates know, such as the specification of a job for its agent.
/// This crate stores it, counts its bytes and never reads it.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Opaque(Box<str>);

impl Opaque {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, for the crates that know its form.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Opaque {
    fn from(text: &str) -> Opaque {
        Opaque(text.into())
    }
}

impl From<Box<str>> for Opaque {
    fn from(text: Box<str>) -> Opaque {
        Opaque(text)
    }
}

impl From<String> for Opaque {
    fn from(text: String) -> Opaque {
        Opaque(text.into())
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
