//! CBOR as the records use it: one way to write each value, and nothing else is read.
//!
//! On top of RFC 8949: lengths are definite, integers as short as possible, map keys are small
//! integers in ascending order, and a field that has its default is left out. So there is exactly
//! one encoding of each value, and `encode(decode(bytes)) == bytes` whenever decoding succeeds.

use thiserror::Error;

/// Why bytes are not what this build writes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Not CBOR, cut off, or of another type than expected.
    #[error("at byte {at}: {reason}")]
    Syntax {
        /// Where.
        at: usize,
        /// What is wrong.
        reason: String,
    },
    /// A longer form than necessary: this build never wrote it.
    #[error("at byte {at}: not in the shortest form")]
    NotShortest {
        /// Where.
        at: usize,
    },
    /// Written by a newer build, or damaged.
    #[error("version {version} of {what} is unknown: use the build that wrote it or a newer one")]
    UnknownVersion {
        /// Of what.
        what: &'static str,
        /// Which.
        version: u64,
    },
    /// A variant that this build does not know.
    #[error("{what} has the unknown tag {tag}: use the build that wrote it or a newer one")]
    UnknownTag {
        /// Of what.
        what: &'static str,
        /// Which.
        tag: u64,
    },
    /// A field that this build does not know.
    #[error("{what} has the unknown field {key}: use the build that wrote it or a newer one")]
    UnknownField {
        /// Of what.
        what: &'static str,
        /// Which.
        key: u64,
    },
    /// A field that must be there is not.
    #[error("{what} lacks its field {key}")]
    MissingField {
        /// Of what.
        what: &'static str,
        /// Which.
        key: u64,
    },
    /// A field comes twice or out of order.
    #[error("{what} has its field {key} twice or out of order")]
    RepeatedField {
        /// Of what.
        what: &'static str,
        /// Which.
        key: u64,
    },
    /// A field is written although it has its default.
    #[error("{what} has its field {key} although it says nothing")]
    IdleField {
        /// Of what.
        what: &'static str,
        /// Which.
        key: u64,
    },
    /// A value that can never be right.
    #[error("{what} cannot be {value}")]
    Impossible {
        /// Of what.
        what: &'static str,
        /// Which.
        value: String,
    },
    /// More bytes than the value has.
    #[error("{left} bytes follow the end")]
    TrailingBytes {
        /// How many.
        left: usize,
    },
}

impl FormatError {
    pub(super) fn impossible(what: &'static str, value: impl ToString) -> FormatError {
        FormatError::Impossible { what, value: value.to_string() }
    }
}

/// Something with a stored form.
pub(super) trait Stored: Sized {
    fn write(&self, out: &mut Writer<'_>);
    fn read(input: &mut Reader<'_>) -> Result<Self, FormatError>;
}

/// The major types of CBOR that are used.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
/// The simple values, whole.
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;

/// Appends values to a buffer.
///
/// Written by hand because every durable answer waits for it: a general encoder took three times as
/// long. The tests read what it writes with another implementation.
pub(super) struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    pub(super) fn new(buffer: &'a mut Vec<u8>) -> Writer<'a> {
        Writer(buffer)
    }

    /// Major type and argument, as short as possible.
    #[inline]
    fn head(&mut self, major: u8, argument: u64) {
        let major = major << 5;
        let bytes = argument.to_be_bytes();
        match argument {
            0..=23 => self.0.push(major | bytes[7]),
            24..=0xff => self.0.extend_from_slice(&[major | 24, bytes[7]]),
            0x100..=0xffff => self.0.extend_from_slice(&[major | 25, bytes[6], bytes[7]]),
            0x1_0000..=0xffff_ffff => {
                let [.., a, b, c, d] = bytes;
                self.0.extend_from_slice(&[major | 26, a, b, c, d]);
            }
            _ => {
                let [a, b, c, d, e, f, g, h] = bytes;
                self.0.extend_from_slice(&[major | 27, a, b, c, d, e, f, g, h]);
            }
        }
    }

    #[inline]
    pub(super) fn unsigned(&mut self, value: u64) {
        self.head(UNSIGNED, value);
    }

    #[inline]
    pub(super) fn signed(&mut self, value: i64) {
        // A negative number n is stored as −1 − n, which is the same as its bits turned over.
        if value < 0 {
            self.head(NEGATIVE, (!value).cast_unsigned());
        } else {
            self.head(UNSIGNED, value.cast_unsigned());
        }
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.0.push(if value { TRUE } else { FALSE });
    }

    pub(super) fn null(&mut self) {
        self.0.push(NULL);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.head(TEXT, value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.head(BYTES, value.len() as u64);
        self.0.extend_from_slice(value);
    }

    #[inline]
    pub(super) fn array(&mut self, length: usize) {
        self.head(ARRAY, length as u64);
    }

    #[inline]
    pub(super) fn map(&mut self, length: u64) {
        self.head(MAP, length);
    }
}

/// Takes values from bytes.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[cold]
fn syntax(at: usize, reason: &str) -> FormatError {
    FormatError::Syntax { at, reason: reason.into() }
}

const CUT_OFF: &str = "the bytes end too early";

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Says so if anything is left.
    pub(super) fn finish(&self) -> Result<(), FormatError> {
        match self.left() {
            0 => Ok(()),
            left => Err(FormatError::TrailingBytes { left }),
        }
    }

    #[inline]
    fn peek(&self) -> Result<u8, FormatError> {
        self.bytes.get(self.at).copied().ok_or_else(|| syntax(self.at, CUT_OFF))
    }

    /// The argument of `N` bytes behind the first byte of a head; `least` is the smallest that
    /// needs them.
    #[inline]
    fn argument<const N: usize>(&mut self, least: u64) -> Result<u64, FormatError> {
        let Some(bytes) = self.bytes[self.at + 1..].first_chunk::<N>() else {
            return Err(syntax(self.at, CUT_OFF));
        };
        let argument = bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        if argument < least {
            return Err(FormatError::NotShortest { at: self.at });
        }
        self.at += 1 + N;
        Ok(argument)
    }

    /// Takes a head: its major type and its argument.
    #[inline]
    fn head(&mut self) -> Result<(u8, u64), FormatError> {
        let first = self.peek()?;
        let argument = match first & 31 {
            small @ 0..=23 => {
                self.at += 1;
                u64::from(small)
            }
            24 => self.argument::<1>(24)?,
            25 => self.argument::<2>(0x100)?,
            26 => self.argument::<4>(0x1_0000)?,
            27 => self.argument::<8>(0x1_0000_0000)?,
            _ => return Err(syntax(self.at, "a length must be definite")),
        };
        Ok((first >> 5, argument))
    }

    #[inline]
    fn head_of(&mut self, major: u8, expected: &'static str) -> Result<u64, FormatError> {
        let at = self.at;
        match self.head()? {
            (found, argument) if found == major => Ok(argument),
            _ => Err(syntax(at, expected)),
        }
    }

    #[inline]
    pub(super) fn unsigned(&mut self) -> Result<u64, FormatError> {
        self.head_of(UNSIGNED, "a number belongs here")
    }

    #[inline]
    pub(super) fn signed(&mut self) -> Result<i64, FormatError> {
        let at = self.at;
        let (major, argument) = self.head()?;
        match (major, i64::try_from(argument)) {
            (UNSIGNED, Ok(value)) => Ok(value),
            (NEGATIVE, Ok(value)) => Ok(!value),
            (UNSIGNED | NEGATIVE, Err(_)) => Err(syntax(at, "the number has more than 64 bits")),
            _ => Err(syntax(at, "a number belongs here")),
        }
    }

    pub(super) fn boolean(&mut self) -> Result<bool, FormatError> {
        let value = match self.peek()? {
            FALSE => false,
            TRUE => true,
            _ => return Err(syntax(self.at, "true or false belongs here")),
        };
        self.at += 1;
        Ok(value)
    }

    /// Whether bytes are next.
    pub(super) fn next_is_bytes(&mut self) -> Result<bool, FormatError> {
        Ok(self.peek()? >> 5 == BYTES)
    }

    /// Takes a null if one is next.
    pub(super) fn skip_null(&mut self) -> Result<bool, FormatError> {
        let null = self.peek()? == NULL;
        self.at += usize::from(null);
        Ok(null)
    }

    #[inline]
    fn content(&mut self, length: u64) -> Result<&'a [u8], FormatError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let content = self.bytes[self.at..].get(..length);
        let content = content.ok_or_else(|| syntax(self.at, CUT_OFF))?;
        self.at += length;
        Ok(content)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, FormatError> {
        let length = self.head_of(TEXT, "text belongs here")?;
        let at = self.at;
        std::str::from_utf8(self.content(length)?).map_err(|_| syntax(at, "text must be UTF-8"))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], FormatError> {
        let length = self.head_of(BYTES, "bytes belong here")?;
        self.content(length)
    }

    /// The length of an array. Every element takes at least a byte, so more than are left is wrong.
    pub(super) fn array(&mut self) -> Result<usize, FormatError> {
        let length = self.head_of(ARRAY, "an array belongs here")?;
        self.possible(length)
    }

    pub(super) fn map(&mut self) -> Result<usize, FormatError> {
        let length = self.head_of(MAP, "a map belongs here")?;
        self.possible(length)
    }

    fn possible(&self, length: u64) -> Result<usize, FormatError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.left() {
            return Err(syntax(self.at, "announces more than there is"));
        }
        Ok(length)
    }

    /// The length of an array that must be `length` long.
    pub(super) fn array_of(
        &mut self,
        what: &'static str,
        length: usize,
    ) -> Result<(), FormatError> {
        match self.array()? {
            found if found == length => Ok(()),
            found => Err(FormatError::impossible(what, format!("an array of {found}"))),
        }
    }
}

/// Where a reader is inside a map.
pub(super) struct Fields {
    what: &'static str,
    left: usize,
    next: u64,
}

impl Fields {
    pub(super) fn open(what: &'static str, input: &mut Reader<'_>) -> Result<Fields, FormatError> {
        Ok(Fields { what, left: input.map()?, next: 0 })
    }

    /// The key of the next field.
    pub(super) fn next(&mut self, input: &mut Reader<'_>) -> Result<Option<u64>, FormatError> {
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

    pub(super) fn required<T>(&self, key: u64, value: Option<T>) -> Result<T, FormatError> {
        value.ok_or(FormatError::MissingField { what: self.what, key })
    }

    pub(super) fn optional<T: PartialEq>(
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

    pub(super) fn unknown(&self, key: u64) -> FormatError {
        FormatError::UnknownField { what: self.what, key }
    }
}

pub(super) fn differs<T: PartialEq>(value: &T, default: T) -> bool {
    *value != default
}

/// Whether a field is written: always, or only if it differs from its default.
macro_rules! is_written {
    ($field:ident) => {
        true
    };
    ($field:ident, $default:expr) => {
        $crate::record::ledger::wire::differs($field, $default)
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
        $( count += u64::from($crate::record::ledger::wire::is_written!($field $(, $default)?)); )*
        $out.map(count);
        $(
            if $crate::record::ledger::wire::is_written!($field $(, $default)?) {
                $out.unsigned($key);
                $crate::record::ledger::wire::Stored::write($field, $out);
            }
        )*
    };
}

/// Reads the fields of a map into variables.
macro_rules! read_fields {
    ($input:ident, $what:expr, { $($key:literal $field:ident $(= $default:expr)?),* }) => {
        let mut fields = $crate::record::ledger::wire::Fields::open($what, $input)?;
        $( let mut $field = None; )*
        #[allow(clippy::never_loop, reason = "a variant may have no fields")]
        while let Some(key) = fields.next($input)? {
            match key {
                $( $key => {
                    $field = Some($crate::record::ledger::wire::Stored::read($input)?);
                } )*
                other => return Err(fields.unknown(other)),
            }
        }
        $(
            let $field = $crate::record::ledger::wire::field_or_default!(
                fields, $key, $field $(, $default)?
            );
        )*
    };
}

/// The stored form of a struct: a map. Fields with a default are left out when they have it.
macro_rules! stored_struct {
    ($name:ident { $($key:literal $field:ident $(= $default:expr)?),* $(,)? }) => {
        impl $crate::record::ledger::wire::Stored for $name {
            fn write(&self, out: &mut $crate::record::ledger::wire::Writer<'_>) {
                let $name { $($field),* } = self;
                $crate::record::ledger::wire::write_fields!(
                    out, { $($key $field $(= $default)?),* }
                );
            }

            fn read(
                input: &mut $crate::record::ledger::wire::Reader<'_>,
            ) -> Result<$name, $crate::record::ledger::wire::FormatError> {
                $crate::record::ledger::wire::read_fields!(
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
        impl $crate::record::ledger::wire::Stored for $name {
            fn write(&self, out: &mut $crate::record::ledger::wire::Writer<'_>) {
                out.array(2);
                match self {
                    $( $name::$variant $( { $($field),* } )? $( ( $inner ) )? => {
                        out.unsigned($tag);
                        $( $crate::record::ledger::wire::write_fields!(
                            out, { $($key $field $(= $default)?),* }
                        ); )?
                        $( $crate::record::ledger::wire::Stored::write($inner, out); )?
                    } )*
                }
            }

            fn read(
                input: &mut $crate::record::ledger::wire::Reader<'_>,
            ) -> Result<$name, $crate::record::ledger::wire::FormatError> {
                input.array_of(stringify!($name), 2)?;
                match input.unsigned()? {
                    $( $tag => {
                        $( $crate::record::ledger::wire::read_fields!(
                            input, stringify!($variant), { $($key $field $(= $default)?),* }
                        ); )?
                        $( let $inner = $crate::record::ledger::wire::Stored::read(input)?; )?
                        Ok($name::$variant $( { $($field),* } )? $( ( $inner ) )?)
                    } )*
                    tag => Err($crate::record::ledger::wire::FormatError::UnknownTag {
                        what: stringify!($name), tag,
                    }),
                }
            }
        }
    };
}

/// The stored form of an enum whose variants are bare: a number.
macro_rules! stored_choice {
    ($name:ident { $($tag:literal $variant:ident),* $(,)? }) => {
        impl $crate::record::ledger::wire::Stored for $name {
            fn write(&self, out: &mut $crate::record::ledger::wire::Writer<'_>) {
                out.unsigned(match self {
                    $( $name::$variant => $tag, )*
                });
            }

            fn read(
                input: &mut $crate::record::ledger::wire::Reader<'_>,
            ) -> Result<$name, $crate::record::ledger::wire::FormatError> {
                match input.unsigned()? {
                    $( $tag => Ok($name::$variant), )*
                    tag => Err($crate::record::ledger::wire::FormatError::UnknownTag {
                        what: stringify!($name), tag,
                    }),
                }
            }
        }
    };
}

pub(super) use {
    field_or_default, is_written, read_fields, stored_choice, stored_enum, stored_struct,
    write_fields,
};
