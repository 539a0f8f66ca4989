//! Names with a grammar, one type for each kind, so that a region is never taken for an account.
//!
//! A text from outside becomes a name with `parse`, which checks it. Stored text was checked before
//! it was stored and is read with `unchecked` or `into`, so that a journal stays readable whatever
//! the grammar was when it was written. Each machine checks the names of its commands once more.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use compact_str::CompactString;

use crate::ledger::id::Name;

mod grammar;
mod path;

pub use grammar::{MAX_DEPTH, is_valid_name};
pub use path::{is_at_or_below, parent_of, tenant_of};

/// A text that does not follow the grammar of its kind.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct InvalidName {
    /// What a valid text is.
    pub must: &'static str,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.must)
    }
}

impl std::error::Error for InvalidName {}

/// Checks an id from outside.
pub fn parse_name(text: impl Into<CompactString>) -> Result<Name, InvalidName> {
    let text = text.into();
    if is_valid_name(&text) { Ok(text) } else { Err(InvalidName { must: NAME_FORM }) }
}

/// The form of ids, regions, GPU models and classes, in words.
pub const NAME_FORM: &str = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -";

/// Declares a name: a text with its own type and grammar. It compares, sorts, hashes and prints as
/// its text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $is_valid:path, $form:expr) => {
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(CompactString);

        impl $name {
            /// The grammar in words.
            pub const FORM: &'static str = $form;

            /// Whether a text follows the grammar.
            pub fn is_valid(text: &str) -> bool {
                $is_valid(text)
            }

            /// Checks a text from outside.
            pub fn parse(text: impl Into<CompactString>) -> Result<$name, InvalidName> {
                let text = text.into();
                if $name::is_valid(&text) {
                    Ok($name(text))
                } else {
                    Err(InvalidName { must: $name::FORM })
                }
            }

            /// Takes a text that was checked before, such as one from a journal, or that the machine
            /// will check.
            pub fn unchecked(text: impl Into<CompactString>) -> $name {
                $name(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text without its type.
            pub fn into_text(self) -> CompactString {
                self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name::unchecked(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name::unchecked(text)
            }
        }

        impl From<CompactString> for $name {
            fn from(text: CompactString) -> $name {
                $name::unchecked(text)
            }
        }

        impl From<$name> for CompactString {
            fn from(name: $name) -> CompactString {
                name.0
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.into()
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, other: &$name) -> bool {
                other.0 == self
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, other: &$name) -> bool {
                other.0 == **self
            }
        }

        impl PartialEq<CompactString> for $name {
            fn eq(&self, other: &CompactString) -> bool {
                self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.as_str(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
    };
}

name!(
    /// The path of an account: one to eight segments joined by colons, the tenant first.
    AccountPath,
    grammar::is_valid_path,
    "must be one to eight segments of a-z 0-9 . _ - joined by colons"
);
name!(
    /// A grant, within its tenant.
    GrantId,
    is_valid_name,
    NAME_FORM
);
name!(
    /// A hold or a charge, each within its tenant.
    HoldId,
    is_valid_name,
    NAME_FORM
);
name!(
    /// A refund, a transfer or a collection, each within its tenant.
    MovementId,
    is_valid_name,
    NAME_FORM
);
name!(
    /// A job, within its tenant: an id, or the id of an array with an index.
    JobName,
    grammar::is_valid_job_name,
    "must be the name of a job"
);
name!(
    /// A region: a set of nodes that one cell schedules.
    Region,
    is_valid_name,
    NAME_FORM
);
name!(
    /// A GPU model, such as `H100`. The API calls it the GPU type.
    GpuModel,
    is_valid_name,
    NAME_FORM
);

name!(
    /// A priority class.
    ClassName,
    is_valid_name,
    NAME_FORM
);
name!(
    /// A budget, within its account.
    BudgetName,
    is_valid_name,
    NAME_FORM
);
name!(
    /// A node, within its owner.
    NodeName,
    is_valid_name,
    NAME_FORM
);
name!(
    /// An API key, within its tenant or the platform.
    KeyId,
    is_valid_name,
    NAME_FORM
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_text_of_the_grammar_is_parsed() {
        for text in ["eu-west.1", "H100", "a:b_c", &"x".repeat(64)] {
            assert_eq!(Region::parse(text).as_deref(), Ok(text));
            assert_eq!(GpuModel::parse(text).as_deref(), Ok(text));
            assert_eq!(parse_name(text).as_deref(), Ok(text));
        }
        for text in ["", "a b", "*", "é", "a/b", &"x".repeat(65)] {
            assert_eq!(Region::parse(text), Err(InvalidName { must: NAME_FORM }), "{text:?}");
            assert!(GpuModel::parse(text).is_err() && parse_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_name_sorts_compares_and_prints_as_its_text() {
        let regions: BTreeSet<Region> = ["us", "eu"].map(Region::from).into();
        assert_eq!(regions.iter().map(Region::as_str).collect::<Vec<_>>(), ["eu", "us"]);
        let eu = Region::from("eu");
        assert!(regions.contains("eu") && eu == "eu");
        assert_eq!(format!("{eu} {eu:?} {eu:>4}"), "eu \"eu\"   eu");
        assert_eq!(size_of::<Option<Region>>(), size_of::<Option<CompactString>>());
    }
}
