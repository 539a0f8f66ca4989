//! Stored values as a tree, decoded with another CBOR implementation than the one that encoded
//! them.

use std::collections::BTreeMap;

use minicbor::Decoder;
use minicbor::data::Type;

use crate::malformed::Malformed;

/// A decoded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Number(i128),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Node>),
    Map(BTreeMap<u64, Node>),
    Bool(bool),
    Null,
}

/// No stored value nests deeper.
const MAX_DEPTH: u32 = 16;

type Read<T> = Result<T, Malformed>;

/// Decodes exactly one value.
pub(crate) fn read(bytes: &[u8]) -> Read<Node> {
    let mut decoder = Decoder::new(bytes);
    let node = one(&mut decoder, MAX_DEPTH)?;
    match bytes.len() - decoder.position() {
        0 => Ok(node),
        left => Err(format!("{left} bytes follow the end of the body").into()),
    }
}

fn one(decoder: &mut Decoder<'_>, depth: u32) -> Read<Node> {
    let depth = depth.checked_sub(1).ok_or("nested too deeply")?;
    Ok(match decoder.datatype()? {
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Node::Number(decoder.u64()?.into()),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Int => {
            Node::Number(decoder.int()?.into())
        }
        Type::Bytes => Node::Bytes(decoder.bytes()?.to_vec()),
        Type::String => Node::Text(decoder.str()?.to_owned()),
        Type::Bool => Node::Bool(decoder.bool()?),
        Type::Null => {
            decoder.null()?;
            Node::Null
        }
        Type::Array => {
            let length = decoder.array()?.ok_or("a length must be definite")?;
            Node::List((0..length).map(|_| one(decoder, depth)).collect::<Read<_>>()?)
        }
        Type::Map => {
            let length = decoder.map()?.ok_or("a length must be definite")?;
            let mut map = BTreeMap::new();
            for _ in 0..length {
                let key = decoder.u64()?;
                if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                    return Err(format!("field {key} comes twice or out of order").into());
                }
                map.insert(key, one(decoder, depth)?);
            }
            Node::Map(map)
        }
        other => return Err(format!("{other} has no place in a record").into()),
    })
}

impl Node {
    /// What it is, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Node::Number(_) => "a number",
            Node::Bytes(_) => "a string of bytes",
            Node::Text(_) => "a text",
            Node::List(_) => "a list",
            Node::Map(_) => "a map",
            Node::Bool(_) => "true or false",
            Node::Null => "nothing",
        }
    }

    pub(crate) fn number(&self) -> Read<i128> {
        match self {
            Node::Number(value) => Ok(*value),
            // A sum of more than 64 bits.
            Node::Bytes(bytes) => {
                let bytes = <[u8; 16]>::try_from(&bytes[..]).map_err(|_| "not a sum")?;
                Ok(i128::from_be_bytes(bytes))
            }
            other => Err(format!("{} is not a number", other.kind()).into()),
        }
    }

    pub(crate) fn unsigned(&self) -> Read<u64> {
        let value = self.number()?;
        u64::try_from(value).map_err(|_| format!("{value} is out of range").into())
    }

    pub(crate) fn index(&self) -> Read<u32> {
        let value = self.number()?;
        u32::try_from(value).map_err(|_| format!("{value} is out of range").into())
    }

    pub(crate) fn time(&self) -> Read<i64> {
        let value = self.number()?;
        i64::try_from(value).map_err(|_| format!("{value} is no time").into())
    }

    pub(crate) fn text(&self) -> Read<&str> {
        match self {
            Node::Text(text) => Ok(text),
            other => Err(format!("{} is not text", other.kind()).into()),
        }
    }

    pub(crate) fn bytes(&self) -> Read<&[u8]> {
        match self {
            Node::Bytes(bytes) => Ok(bytes),
            other => Err(format!("{} is not bytes", other.kind()).into()),
        }
    }

    pub(crate) fn flag(&self) -> Read<bool> {
        match self {
            Node::Bool(value) => Ok(*value),
            other => Err(format!("{} is neither true nor false", other.kind()).into()),
        }
    }

    pub(crate) fn list(&self) -> Read<&[Node]> {
        match self {
            Node::List(list) => Ok(list),
            other => Err(format!("{} is not a list", other.kind()).into()),
        }
    }

    pub(crate) fn map(&self) -> Read<&BTreeMap<u64, Node>> {
        match self {
            Node::Map(map) => Ok(map),
            other => Err(format!("{} is not a map", other.kind()).into()),
        }
    }

    /// A field of a map.
    pub(crate) fn get(&self, key: u64) -> Option<&Node> {
        match self {
            Node::Map(map) => map.get(&key),
            Node::Number(_)
            | Node::Bytes(_)
            | Node::Text(_)
            | Node::List(_)
            | Node::Bool(_)
            | Node::Null => None,
        }
    }

    /// A required field.
    pub(crate) fn field(&self, key: u64) -> Read<&Node> {
        self.get(key).ok_or_else(|| format!("field {key} is missing").into())
    }

    /// A number, or zero if the field is absent.
    pub(crate) fn unsigned_or_zero(&self, key: u64) -> Read<u64> {
        self.get(key).map_or(Ok(0), Node::unsigned)
    }

    /// `[tag, content]`.
    pub(crate) fn tagged(&self) -> Read<(u64, &Node)> {
        match self.list()? {
            [tag, content] => Ok((tag.unsigned()?, content)),
            other => Err(format!("a list of {} is not a tag and its content", other.len()).into()),
        }
    }
}
