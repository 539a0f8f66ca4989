//! Writes and reads CBOR heads, numbers and texts in their shortest form. No other form is
//! accepted.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::wire::FormatError;

/// A text of at least this many bytes is written once in a body or image. Repetitions are written
/// as its number.
const SHARED_TEXT_BYTES: usize = 256;

/// The long texts of one body, in the order of their first occurrence.
#[derive(Default)]
struct SharedTexts {
    /// The position of each text in the buffer.
    places: Vec<Range<usize>>,
    by_hash: HashMap<u64, usize>,
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The major types of CBOR that are used.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
/// The simple values, as whole bytes.
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;

/// Appends values to a buffer.
///
/// Written by hand because every durable answer waits for it: a general encoder took three times as
/// long. The tests decode its output with another implementation.
pub(in crate::record) struct Writer<'a>(&'a mut Vec<u8>, Option<Box<SharedTexts>>);

impl<'a> Writer<'a> {
    pub(in crate::record) fn new(buffer: &'a mut Vec<u8>) -> Writer<'a> {
        Writer(buffer, None)
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
    pub(in crate::record) fn unsigned(&mut self, value: u64) {
        self.head(UNSIGNED, value);
    }

    #[inline]
    pub(in crate::record) fn signed(&mut self, value: i64) {
        // A negative number n is stored as −1 − n, which equals its inverted bits.
        if value < 0 {
            self.head(NEGATIVE, (!value).cast_unsigned());
        } else {
            self.head(UNSIGNED, value.cast_unsigned());
        }
    }

    pub(in crate::record) fn boolean(&mut self, value: bool) {
        self.0.push(if value { TRUE } else { FALSE });
    }

    pub(in crate::record) fn null(&mut self) {
        self.0.push(NULL);
    }

    pub(in crate::record) fn text(&mut self, value: &str) {
        self.head(TEXT, value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
    }

    /// A text, or the number of the same text if it was written before: the jobs of an array share
    /// one spec.
    pub(in crate::record) fn shared_text(&mut self, value: &str) {
        if value.len() < SHARED_TEXT_BYTES {
            return self.text(value);
        }
        let hash = hash_of(value);
        let shared = self.1.get_or_insert_default();
        if let Some(number) = shared.by_hash.get(&hash).copied()
            && self.0[shared.places[number].clone()] == *value.as_bytes()
        {
            return self.unsigned(number as u64);
        }
        self.text(value);
        let end = self.0.len();
        let shared = self.1.get_or_insert_default();
        shared.by_hash.entry(hash).or_insert(shared.places.len());
        shared.places.push(end - value.len()..end);
    }

    pub(in crate::record) fn bytes(&mut self, value: &[u8]) {
        self.head(BYTES, value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Like [`Writer::bytes`] for a hash, of which each record has several: head and bytes at once,
    /// of a known length.
    #[inline]
    pub(in crate::record) fn sixteen_bytes(&mut self, value: [u8; 16]) {
        let mut whole = [BYTES << 5 | 16; 17];
        whole[1..].copy_from_slice(&value);
        self.0.extend_from_slice(&whole);
    }

    #[inline]
    pub(in crate::record) fn array(&mut self, length: usize) {
        self.head(ARRAY, length as u64);
    }

    #[inline]
    pub(in crate::record) fn map(&mut self, length: u64) {
        self.head(MAP, length);
    }
}

/// Reads values from bytes.
pub(in crate::record) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Long texts read before.
    texts: Vec<&'a str>,
}

#[cold]
fn syntax(at: usize, reason: &str) -> FormatError {
    FormatError::Syntax { at, reason: reason.into() }
}

const CUT_OFF: &str = "the bytes end too early";

impl<'a> Reader<'a> {
    pub(in crate::record) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, texts: Vec::new() }
    }

    /// How many bytes are left.
    pub(in crate::record) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns an error if any bytes are left.
    pub(in crate::record) fn finish(&self) -> Result<(), FormatError> {
        match self.left() {
            0 => Ok(()),
            left => Err(FormatError::TrailingBytes { left }),
        }
    }

    #[inline]
    fn peek(&self) -> Result<u8, FormatError> {
        self.bytes.get(self.at).copied().ok_or_else(|| syntax(self.at, CUT_OFF))
    }

    /// The argument in the `N` bytes after the first byte of a head. `least` is the smallest value
    /// that needs them.
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

    /// Reads a head: its major type and its argument.
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
    pub(in crate::record) fn unsigned(&mut self) -> Result<u64, FormatError> {
        self.head_of(UNSIGNED, "a number belongs here")
    }

    #[inline]
    pub(in crate::record) fn signed(&mut self) -> Result<i64, FormatError> {
        let at = self.at;
        let (major, argument) = self.head()?;
        match (major, i64::try_from(argument)) {
            (UNSIGNED, Ok(value)) => Ok(value),
            (NEGATIVE, Ok(value)) => Ok(!value),
            (UNSIGNED | NEGATIVE, Err(_)) => Err(syntax(at, "the number has more than 64 bits")),
            _ => Err(syntax(at, "a number belongs here")),
        }
    }

    pub(in crate::record) fn boolean(&mut self) -> Result<bool, FormatError> {
        let value = match self.peek()? {
            FALSE => false,
            TRUE => true,
            _ => return Err(syntax(self.at, "true or false belongs here")),
        };
        self.at += 1;
        Ok(value)
    }

    /// Whether bytes are next.
    pub(in crate::record) fn next_is_bytes(&mut self) -> Result<bool, FormatError> {
        Ok(self.peek()? >> 5 == BYTES)
    }

    /// Reads a null if one is next.
    pub(in crate::record) fn skip_null(&mut self) -> Result<bool, FormatError> {
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

    pub(in crate::record) fn text(&mut self) -> Result<&'a str, FormatError> {
        let length = self.head_of(TEXT, "text belongs here")?;
        let at = self.at;
        std::str::from_utf8(self.content(length)?).map_err(|_| syntax(at, "text must be UTF-8"))
    }

    /// Reads a text written by [`Writer::shared_text`]. Records of older builds have every text in
    /// full.
    pub(in crate::record) fn shared_text(&mut self) -> Result<&'a str, FormatError> {
        let at = self.at;
        if self.peek()? >> 5 == UNSIGNED {
            let number = usize::try_from(self.unsigned()?).unwrap_or(usize::MAX);
            let known = self.texts.get(number).copied();
            return known.ok_or_else(|| syntax(at, "no text with this number came before"));
        }
        let text = self.text()?;
        if text.len() >= SHARED_TEXT_BYTES {
            self.texts.push(text);
        }
        Ok(text)
    }

    pub(in crate::record) fn bytes(&mut self) -> Result<&'a [u8], FormatError> {
        let length = self.head_of(BYTES, "bytes belong here")?;
        self.content(length)
    }

    /// The length of an array. Every element takes at least a byte, so a length above the bytes
    /// left is wrong.
    pub(in crate::record) fn array(&mut self) -> Result<usize, FormatError> {
        let length = self.head_of(ARRAY, "an array belongs here")?;
        self.possible(length)
    }

    pub(in crate::record) fn map(&mut self) -> Result<usize, FormatError> {
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
    pub(in crate::record) fn array_of(
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
