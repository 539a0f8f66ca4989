//! The subset of CBOR that records use: each value has one encoding, and no other is accepted.
//!
//! In addition to RFC 8949: lengths are definite, integers as short as possible, map keys are small
//! integers in ascending order, and a field with its default value is left out. There is exactly
//! one encoding of each value, and `encode(decode(bytes)) == bytes` whenever decoding succeeds.

use thiserror::Error;

pub(in crate::record) use super::cbor::{Reader, Writer};

/// Why bytes are not an encoding that this build writes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Not CBOR, cut off, or of another type than expected.
    #[error("at byte {at}: {reason}")]
    Syntax {
        /// The offset.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// A longer form than necessary, which this build never writes.
    #[error("at byte {at}: not in the shortest form")]
    NotShortest {
        /// The offset.
        at: usize,
    },
    /// Written by a newer build, or damaged.
    #[error("version {version} of {what} is unknown: use the build that wrote it or a newer one")]
    UnknownVersion {
        /// The type.
        what: &'static str,
        /// The version.
        version: u64,
    },
    /// A variant that this build does not know.
    #[error("{what} has the unknown tag {tag}: use the build that wrote it or a newer one")]
    UnknownTag {
        /// The type.
        what: &'static str,
        /// The tag.
        tag: u64,
    },
    /// A field that this build does not know.
    #[error("{what} has the unknown field {key}: use the build that wrote it or a newer one")]
    UnknownField {
        /// The type.
        what: &'static str,
        /// The field.
        key: u64,
    },
    /// A required field is missing.
    #[error("{what} lacks its field {key}")]
    MissingField {
        /// The type.
        what: &'static str,
        /// The field.
        key: u64,
    },
    /// A field is repeated or out of order.
    #[error("{what} has its field {key} twice or out of order")]
    RepeatedField {
        /// The type.
        what: &'static str,
        /// The field.
        key: u64,
    },
    /// A field is present although it has its default.
    #[error("{what} has its field {key} although it has its default")]
    IdleField {
        /// The type.
        what: &'static str,
        /// The field.
        key: u64,
    },
    /// A value that is never valid.
    #[error("{what} cannot be {value}")]
    Impossible {
        /// The type.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// More bytes than the value has.
    #[error("{left} bytes follow the end")]
    TrailingBytes {
        /// The number of bytes.
        left: usize,
    },
}

impl FormatError {
    pub(in crate::record) fn impossible(what: &'static str, value: impl ToString) -> FormatError {
        FormatError::Impossible { what, value: value.to_string() }
    }
}

/// A type with a stored form.
pub(in crate::record) trait Stored: Sized {
    fn write(&self, out: &mut Writer<'_>);
    fn read(input: &mut Reader<'_>) -> Result<Self, FormatError>;
}

/// The position of a reader inside a map.
pub(in crate::record) struct Fields {
    what: &'static str,
    left: usize,
    next: u64,
}

impl Fields {
    pub(in crate::record) fn open(
        what: &'static str,
        input: &mut Reader<'_>,
    ) -> Result<Fields, FormatError> {
        Ok(Fields { what, left: input.map()?, next: 0 })
    }

    /// The key of the next field.
    pub(in crate::record) fn next(
        &mut self,
        input: &mut Reader<'_>,
    ) -> Result<Option<u64>, FormatError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let key = input.unsigned()?;
        if key < self.next {
            return Err(FormatError::RepeatedField { what: self.what, key });
        }
        self.next = key.saturating_add(1);
        Ok(Some(key))
    }

    pub(in crate::record) fn required<T>(
        &self,
        key: u64,
        value: Option<T>,
    ) -> Result<T, FormatError> {
        value.ok_or(FormatError::MissingField { what: self.what, key })
    }

    pub(in crate::record) fn optional<T: PartialEq>(
        &self,
        key: u64,
        value: Option<T>,
        default: T,
    ) -> Result<T, FormatError> {
        match value {
            None => Ok(default),
            Some(value) if value == default => Err(FormatError::IdleField { what: self.what, key }),
            Some(value) => Ok(value),
        }
    }

    pub(in crate::record) fn unknown(&self, key: u64) -> FormatError {
        FormatError::UnknownField { what: self.what, key }
    }
}

pub(in crate::record) fn differs<T: PartialEq>(value: &T, default: T) -> bool {
    *value != default
}

/// Whether a field is written: always, or only if it differs from its default.
macro_rules! is_written {
    ($field:ident) => {
        true
    };
    ($field:ident, $default:expr) => {
        $crate::record::codec::wire::differs($field, $default)
    };
}

macro_rules! field_or_default {
    ($fields:ident, $key:literal, $field:ident) => {
        $fields.required($key, $field)?
    };
    ($fields:ident, $key:literal, $field:ident, $default:expr) => {
        $fields.optional($key, $field, $default)?
    };
}

/// Writes variables as the fields of a map.
macro_rules! write_fields {
    ($out:ident, { $($key:literal $field:ident $(= $default:expr)?),* }) => {
        #[allow(unused_mut, reason = "a variant may have no fields")]
        let mut count = 0u64;
        $( count += u64::from($crate::record::codec::wire::is_written!($field $(, $default)?)); )*
        $out.map(count);
        $(
            if $crate::record::codec::wire::is_written!($field $(, $default)?) {
                $out.unsigned($key);
                $crate::record::codec::wire::Stored::write($field, $out);
            }
        )*
    };
}

/// Reads the fields of a map into variables.
macro_rules! read_fields {
    ($input:ident, $what:expr, { $($key:literal $field:ident $(= $default:expr)?),* }) => {
        let mut fields = $crate::record::codec::wire::Fields::open($what, $input)?;
        $( let mut $field = None; )*
        #[allow(clippy::never_loop, reason = "a variant may have no fields")]
        while let Some(key) = fields.next($input)? {
            match key {
                $( $key => {
                    $field = Some($crate::record::codec::wire::Stored::read($input)?);
                } )*
                other => return Err(fields.unknown(other)),
            }
        }
        $(
            let $field = $crate::record::codec::wire::field_or_default!(
                fields, $key, $field $(, $default)?
            );
        )*
    };
}

/// The stored form of a struct: a map. Fields with their default value are left out.
macro_rules! stored_struct {
    ($name:ident { $($key:literal $field:ident $(= $default:expr)?),* $(,)? }) => {
        impl $crate::record::codec::wire::Stored for $name {
            fn write(&self, out: &mut $crate::record::codec::wire::Writer<'_>) {
                let $name { $($field),* } = self;
                $crate::record::codec::wire::write_fields!(
                    out, { $($key $field $(= $default)?),* }
                );
            }

            fn read(
                input: &mut $crate::record::codec::wire::Reader<'_>,
            ) -> Result<$name, $crate::record::codec::wire::FormatError> {
                $crate::record::codec::wire::read_fields!(
                    input, stringify!($name), { $($key $field $(= $default)?),* }
                );
                Ok($name { $($field),* })
            }
        }
    };
}

/// The stored form of an enum whose variants have content: `[tag, content]`.
macro_rules! stored_enum {
    ($name:ident { $(
        $tag:literal $variant:ident
        $( { $($key:literal $field:ident $(= $default:expr)?),* $(,)? } )?
        $( ( $inner:ident ) )?
    ;)* }) => {
        impl $crate::record::codec::wire::Stored for $name {
            fn write(&self, out: &mut $crate::record::codec::wire::Writer<'_>) {
                out.array(2);
                match self {
                    $( $name::$variant $( { $($field),* } )? $( ( $inner ) )? => {
                        out.unsigned($tag);
                        $( $crate::record::codec::wire::write_fields!(
                            out, { $($key $field $(= $default)?),* }
                        ); )?
                        $( $crate::record::codec::wire::Stored::write($inner, out); )?
                    } )*
                }
            }

            fn read(
                input: &mut $crate::record::codec::wire::Reader<'_>,
            ) -> Result<$name, $crate::record::codec::wire::FormatError> {
                input.array_of(stringify!($name), 2)?;
                match input.unsigned()? {
                    $( $tag => {
                        $( $crate::record::codec::wire::read_fields!(
                            input, stringify!($variant), { $($key $field $(= $default)?),* }
                        ); )?
                        $( let $inner = $crate::record::codec::wire::Stored::read(input)?; )?
                        Ok($name::$variant $( { $($field),* } )? $( ( $inner ) )?)
                    } )*
                    tag => Err($crate::record::codec::wire::FormatError::UnknownTag {
                        what: stringify!($name), tag,
                    }),
                }
            }
        }
    };
}

/// The stored form of an enum whose variants have no content: a number.
macro_rules! stored_choice {
    ($name:ident { $($tag:literal $variant:ident),* $(,)? }) => {
        impl $crate::record::codec::wire::Stored for $name {
            fn write(&self, out: &mut $crate::record::codec::wire::Writer<'_>) {
                out.unsigned(match self {
                    $( $name::$variant => $tag, )*
                });
            }

            fn read(
                input: &mut $crate::record::codec::wire::Reader<'_>,
            ) -> Result<$name, $crate::record::codec::wire::FormatError> {
                match input.unsigned()? {
                    $( $tag => Ok($name::$variant), )*
                    tag => Err($crate::record::codec::wire::FormatError::UnknownTag {
                        what: stringify!($name), tag,
                    }),
                }
            }
        }
    };
}

pub(in crate::record) use {
    field_or_default, is_written, read_fields, stored_choice, stored_enum, stored_struct,
    write_fields,
};
