//! The interface of a store: portable statements, values in and out.

use bursar_core::ledger::id::Name;

use crate::error::HistoryError;
use crate::sum;

/// One value of a row or of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// Text. Short text is stored inline.
    Text(Name),
    /// Bytes: records, hashes, and sums that were read (see [`crate::sum`]).
    Bytes(Vec<u8>),
    /// A short hash to be written. It is read as [`Value::Bytes`].
    Hash([u8; 16]),
    /// A sum to be written. It is read as [`Value::Bytes`].
    Sum(sum::Encoded),
}

impl Value {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Integer(_) => "a number",
            Value::Text(_) => "a text",
            Value::Bytes(_) => "bytes",
            Value::Hash(_) => "a hash",
            Value::Sum(_) => "a sum",
        }
    }
}

/// One row.
pub type Row = Vec<Value>;

/// A store. Statements are portable SQL with numbered parameters (`?1`), which a PostgreSQL store
/// writes as `$1`.
pub trait Database {
    /// Runs a statement that changes rows.
    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<(), HistoryError>;

    /// Runs a statement for each of these rows, in order.
    fn execute_each<const N: usize>(
        &self,
        sql: &'static str,
        rows: &[[Value; N]],
    ) -> Result<(), HistoryError>;

    /// Runs a query.
    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, HistoryError>;

    /// Starts a transaction that only reads.
    fn begin_read(&self) -> Result<(), HistoryError>;

    /// Starts a transaction.
    fn begin(&self) -> Result<(), HistoryError>;

    /// Commits the transaction.
    fn commit(&self) -> Result<(), HistoryError>;

    /// Rolls the transaction back.
    fn rollback(&self) -> Result<(), HistoryError>;
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Integer(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Integer(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.into())
    }
}

impl From<Name> for Value {
    fn from(value: Name) -> Value {
        Value::Text(value)
    }
}

impl From<u128> for Value {
    fn from(value: u128) -> Value {
        Value::Hash(value.to_be_bytes())
    }
}

impl From<i128> for Value {
    fn from(value: i128) -> Value {
        Value::Sum(sum::encode(value))
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Value {
        Value::Bytes(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// Reads the columns of a row one by one.
pub(crate) struct Columns(std::vec::IntoIter<Value>);

fn wrong(expected: &str, found: Option<&Value>) -> HistoryError {
    let found = found.map_or("nothing", Value::kind);
    HistoryError::inconsistent(format!("a column holds {found} where {expected} belongs"))
}

impl Columns {
    pub(crate) fn of(row: Row) -> Columns {
        Columns(row.into_iter())
    }

    pub(crate) fn integer(&mut self) -> Result<i64, HistoryError> {
        self.maybe_integer()?.ok_or_else(|| wrong("a number", Some(&Value::Null)))
    }

    pub(crate) fn maybe_integer(&mut self) -> Result<Option<i64>, HistoryError> {
        match self.0.next() {
            Some(Value::Integer(value)) => Ok(Some(value)),
            Some(Value::Null) => Ok(None),
            other => Err(wrong("a number", other.as_ref())),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u32, HistoryError> {
        let value = self.integer()?;
        u32::try_from(value).map_err(|_| wrong("a small number", Some(&Value::Integer(value))))
    }

    pub(crate) fn maybe_number(&mut self) -> Result<Option<u32>, HistoryError> {
        let value = self.maybe_integer()?;
        value.map(u32::try_from).transpose().map_err(|_| wrong("a small number", None))
    }

    pub(crate) fn text(&mut self) -> Result<String, HistoryError> {
        self.maybe_text()?.ok_or_else(|| wrong("text", Some(&Value::Null)))
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, HistoryError> {
        match self.0.next() {
            Some(Value::Text(value)) => Ok(Some(value.into())),
            Some(Value::Null) => Ok(None),
            other => Err(wrong("text", other.as_ref())),
        }
    }

    pub(crate) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>, HistoryError> {
        match self.0.next() {
            Some(Value::Bytes(value)) => Ok(Some(value)),
            Some(Value::Null) => Ok(None),
            other => Err(wrong("bytes", other.as_ref())),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, HistoryError> {
        self.maybe_bytes()?.ok_or_else(|| wrong("bytes", Some(&Value::Null)))
    }

    pub(crate) fn sum(&mut self) -> Result<i128, HistoryError> {
        let bytes = self.bytes()?;
        sum::decode(&bytes).ok_or_else(|| wrong("a sum", Some(&Value::Bytes(bytes))))
    }
}
