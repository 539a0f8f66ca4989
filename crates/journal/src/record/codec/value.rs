//! The stored form of numbers, names, times, amounts and pieces.

use std::sync::Arc;

use bursar_core::credits::Credits;
use bursar_core::digest::Digest;
use bursar_core::ledger::event::{Piece, Pieces, SliceAmount};
use bursar_core::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo, Name};
use bursar_core::name::{
    AccountPath, BudgetName, ClassName, GpuModel, GrantId, HoldId, JobName, KeyId, MovementId,
    NodeName, Region,
};
use bursar_core::opaque::Opaque;
use bursar_core::time::Timestamp;
use fefo::Span;
use smallvec::SmallVec;

use super::wire::{FormatError, Reader, Stored, Writer};

macro_rules! stored_unsigned {
    ($($type:ty),*) => { $(
        impl Stored for $type {
            fn write(&self, out: &mut Writer<'_>) {
                out.unsigned(u64::from(*self));
            }

            fn read(input: &mut Reader<'_>) -> Result<$type, FormatError> {
                let value = input.unsigned()?;
                <$type>::try_from(value)
                    .map_err(|_| FormatError::impossible(stringify!($type), value))
            }
        }
    )* };
}

stored_unsigned!(u8, u16, u32, u64);

/// Stores a number like the integer in it.
macro_rules! stored_number {
    ($($type:ident),*) => { $(
        impl Stored for $type {
            fn write(&self, out: &mut Writer<'_>) {
                out.unsigned(self.0.into());
            }

            fn read(input: &mut Reader<'_>) -> Result<$type, FormatError> {
                Stored::read(input).map($type)
            }
        }
    )* };
}

pub(in crate::record) use stored_number;

stored_number!(AccountNo, GrantNo, BucketNo, HoldNo);

impl Stored for i64 {
    fn write(&self, out: &mut Writer<'_>) {
        out.signed(*self);
    }

    fn read(input: &mut Reader<'_>) -> Result<i64, FormatError> {
        input.signed()
    }
}

impl Stored for i16 {
    fn write(&self, out: &mut Writer<'_>) {
        out.signed((*self).into());
    }

    fn read(input: &mut Reader<'_>) -> Result<i16, FormatError> {
        let value = input.signed()?;
        i16::try_from(value).map_err(|_| FormatError::impossible("i16", value))
    }
}

/// A sum: a plain integer if it fits into 64 bits, otherwise the 16 bytes of its two's complement.
impl Stored for i128 {
    fn write(&self, out: &mut Writer<'_>) {
        match i64::try_from(*self) {
            Ok(small) => out.signed(small),
            Err(_) => out.bytes(&self.to_be_bytes()),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<i128, FormatError> {
        if input.next_is_bytes()? {
            let value = i128::from_be_bytes(sixteen(input)?);
            return match i64::try_from(value) {
                Ok(small) => Err(FormatError::impossible("a long sum", small)),
                Err(_) => Ok(value),
            };
        }
        input.signed().map(i128::from)
    }
}

/// A hash: always 16 bytes.
impl Stored for u128 {
    fn write(&self, out: &mut Writer<'_>) {
        out.sixteen_bytes(self.to_be_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Result<u128, FormatError> {
        sixteen(input).map(u128::from_be_bytes)
    }
}

fn sixteen(input: &mut Reader<'_>) -> Result<[u8; 16], FormatError> {
    let bytes = input.bytes()?;
    bytes
        .try_into()
        .map_err(|_| FormatError::impossible("a 128-bit value", format!("{} bytes", bytes.len())))
}

impl Stored for Digest {
    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(&self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<Digest, FormatError> {
        let bytes = input.bytes()?;
        bytes
            .try_into()
            .map(Digest)
            .map_err(|_| FormatError::impossible("a digest", format!("{} bytes", bytes.len())))
    }
}

impl Stored for bool {
    fn write(&self, out: &mut Writer<'_>) {
        out.boolean(*self);
    }

    fn read(input: &mut Reader<'_>) -> Result<bool, FormatError> {
        input.boolean()
    }
}

impl Stored for Name {
    fn write(&self, out: &mut Writer<'_>) {
        out.text(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Name, FormatError> {
        input.text().map(Name::from)
    }
}

/// Names are stored as text. They were checked before they were stored.
macro_rules! stored_names {
    ($($name:ident),*) => {
        $(
            impl Stored for $name {
                fn write(&self, out: &mut Writer<'_>) {
                    out.text(self);
                }

                fn read(input: &mut Reader<'_>) -> Result<$name, FormatError> {
                    input.text().map($name::unchecked)
                }
            }
        )*
    };
}

stored_names!(
    AccountPath,
    BudgetName,
    ClassName,
    GpuModel,
    GrantId,
    HoldId,
    JobName,
    KeyId,
    MovementId,
    NodeName,
    Region
);

impl Stored for Box<str> {
    fn write(&self, out: &mut Writer<'_>) {
        out.shared_text(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Box<str>, FormatError> {
        input.shared_text().map(Box::from)
    }
}

impl Stored for Opaque {
    fn write(&self, out: &mut Writer<'_>) {
        out.shared_text(self.text());
    }

    fn read(input: &mut Reader<'_>) -> Result<Opaque, FormatError> {
        input.shared_text().map(Opaque::from)
    }
}

impl Stored for Credits {
    fn write(&self, out: &mut Writer<'_>) {
        out.unsigned(self.length());
    }

    fn read(input: &mut Reader<'_>) -> Result<Credits, FormatError> {
        let length = input.unsigned()?;
        Credits::from_length(length).ok_or_else(|| FormatError::impossible("an amount", length))
    }
}

impl Stored for Timestamp {
    fn write(&self, out: &mut Writer<'_>) {
        out.signed(self.millis());
    }

    fn read(input: &mut Reader<'_>) -> Result<Timestamp, FormatError> {
        let millis = input.signed()?;
        let time = Timestamp::from_millis(millis);
        if time.millis() != millis {
            return Err(FormatError::impossible("a time", millis));
        }
        Ok(time)
    }
}

/// Only for fields whose default is `None`: an absent field is `None`, a present one is `Some`.
impl<T: Stored> Stored for Option<T> {
    fn write(&self, out: &mut Writer<'_>) {
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Option<T>, FormatError> {
        T::read(input).map(Some)
    }
}

impl<T: Stored> Stored for Box<T> {
    fn write(&self, out: &mut Writer<'_>) {
        T::write(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Box<T>, FormatError> {
        T::read(input).map(Box::new)
    }
}

impl<T: Stored> Stored for Arc<T> {
    fn write(&self, out: &mut Writer<'_>) {
        T::write(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Arc<T>, FormatError> {
        T::read(input).map(Arc::new)
    }
}

fn write_list<T: Stored>(list: &[T], out: &mut Writer<'_>) {
    out.array(list.len());
    list.iter().for_each(|element| element.write(out));
}

impl<T: Stored> Stored for Vec<T> {
    fn write(&self, out: &mut Writer<'_>) {
        write_list(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Vec<T>, FormatError> {
        // No memory is reserved: a damaged length must not cost memory.
        (0..input.array()?).map(|_| T::read(input)).collect()
    }
}

impl Stored for SmallVec<[u16; 4]> {
    fn write(&self, out: &mut Writer<'_>) {
        write_list(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<SmallVec<[u16; 4]>, FormatError> {
        (0..input.array()?).map(|_| u16::read(input)).collect()
    }
}

impl<T: Stored, U: Stored> Stored for (T, U) {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(2);
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<(T, U), FormatError> {
        input.array_of("a pair", 2)?;
        Ok((T::read(input)?, U::read(input)?))
    }
}

/// First unit and number of units, of which there is at least one.
pub(in crate::record) fn write_span(span: Span, out: &mut Writer<'_>) {
    out.unsigned(span.start);
    out.unsigned(span.len());
}

pub(in crate::record) fn read_span(input: &mut Reader<'_>) -> Result<Span, FormatError> {
    let (start, length) = (input.unsigned()?, input.unsigned()?);
    match start.checked_add(length) {
        Some(end) if length > 0 => Ok(Span::new(start, end)),
        _ => Err(FormatError::impossible("a span", format!("{length} units from {start}"))),
    }
}

/// A flat list, three numbers for each piece: bucket, first unit, number of units.
impl Stored for Pieces {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(self.len() * 3);
        for piece in self {
            piece.bucket.write(out);
            write_span(piece.span, out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Pieces, FormatError> {
        let length = multiple_of(3, "a list of pieces", input)?;
        (0..length)
            .map(|_| Ok(Piece { bucket: BucketNo::read(input)?, span: read_span(input)? }))
            .collect()
    }
}

/// A flat list, two numbers for each: slice and number of units.
impl Stored for SmallVec<[SliceAmount; 2]> {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(self.len() * 2);
        for SliceAmount { slice, amount } in self {
            slice.write(out);
            amount.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<SmallVec<[SliceAmount; 2]>, FormatError> {
        let length = multiple_of(2, "a list of slices", input)?;
        (0..length)
            .map(|_| Ok(SliceAmount { slice: u32::read(input)?, amount: u64::read(input)? }))
            .collect()
    }
}

fn multiple_of(
    width: usize,
    what: &'static str,
    input: &mut Reader<'_>,
) -> Result<usize, FormatError> {
    let length = input.array()?;
    if length % width != 0 {
        return Err(FormatError::impossible(what, format!("{length} numbers")));
    }
    Ok(length / width)
}
