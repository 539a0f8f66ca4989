//! Blocks of append-only rows: entries and decisions.
//!
//! A block is one row of its table, keyed by the number of its first row. Each row in it is encoded
//! as the difference from the row before: an integer as a step, every other value in full unless it
//! is equal. Rows from different slices of the journal are never in one block, so that a block is
//! written once.
//!
//! One SQLite row for each entry takes 16 instead of 7 µs of processor time a record
//! (`docs/evidence/performance.md`, Optimisations).

use crate::database::{Columns, Database, Row, Value};
use crate::error::HistoryError;

/// A block is closed at this size. Three blocks fit into a page.
const MAX_BYTES: usize = 1_250;
/// The number of blocks read at once.
const BLOCKS_AT_ONCE: i64 = 16;

/// The table of the rows.
#[derive(Copy, Clone, Debug)]
pub(crate) enum BlocksOf {
    /// Entries, by their number: position, time, account, type, amount, grant, hold, spender,
    /// movement, available and held afterwards.
    Entries,
    /// Decisions, by [`crate::lists::decision`]: time, actor, command, refusal, events, and the
    /// holds of those events that name a hold by its number only.
    Decisions,
}

impl BlocksOf {
    /// The column of a decision that contains its holds.
    pub(crate) const HOLDS: usize = 5;

    fn columns(self) -> usize {
        match self {
            BlocksOf::Entries => 11,
            BlocksOf::Decisions => 6,
        }
    }

    fn insert(self) -> &'static str {
        match self {
            BlocksOf::Entries => "INSERT INTO entries VALUES (?1, ?2)",
            BlocksOf::Decisions => "INSERT INTO decisions VALUES (?1, ?2)",
        }
    }

    /// Blocks that begin at or before a number, the last first.
    fn select_from(self) -> &'static str {
        match self {
            BlocksOf::Entries => {
                "SELECT first, block FROM entries WHERE first <= ?1 ORDER BY first DESC LIMIT ?2"
            }
            BlocksOf::Decisions => {
                "SELECT first, block FROM decisions WHERE first <= ?1 ORDER BY first DESC LIMIT ?2"
            }
        }
    }

    /// The block that begins next after a number.
    fn select_next(self) -> &'static str {
        match self {
            BlocksOf::Entries => {
                "SELECT first, block FROM entries WHERE first > ?1 ORDER BY first LIMIT 1"
            }
            BlocksOf::Decisions => {
                "SELECT first, block FROM decisions WHERE first > ?1 ORDER BY first LIMIT 1"
            }
        }
    }
}

const NULL: u8 = 0;
const SAME: u8 = 1;
const STEP: u8 = 2;
const TEXT: u8 = 3;
const BYTES: u8 = 4;

/// Rows that are not written yet.
pub(crate) struct NewBlocks<const N: usize> {
    of: BlocksOf,
    closed: Vec<[Value; 2]>,
    /// The open block: the number of its first row, and the number and values of its last row.
    open: Option<(i64, i64, [Value; N])>,
    bytes: Vec<u8>,
}

impl<const N: usize> NewBlocks<N> {
    pub(crate) fn new(of: BlocksOf) -> NewBlocks<N> {
        assert_eq!(of.columns(), N, "a row has a value for each column");
        NewBlocks { of, closed: Vec::new(), open: None, bytes: Vec::new() }
    }

    /// Adds a row under a number that is larger than all previous ones.
    pub(crate) fn push(&mut self, number: i64, row: [Value; N]) {
        let (first, last, before) =
            self.open.take().unwrap_or((number, number, [const { Value::Null }; N]));
        write_step(&mut self.bytes, number.wrapping_sub(last));
        for (value, before) in row.iter().zip(&before) {
            write_value(&mut self.bytes, value, before);
        }
        self.open = Some((first, number, row));
        if self.bytes.len() >= MAX_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some((first, _, _)) = self.open.take() {
            self.closed.push([first.into(), self.bytes.clone().into()]);
            self.bytes.clear();
        }
    }

    /// Writes all rows.
    pub(crate) fn flush(&mut self, database: &impl Database) -> Result<(), HistoryError> {
        self.close();
        database.execute_each(self.of.insert(), &self.closed)?;
        self.closed.clear();
        Ok(())
    }
}

/// Writes a step in zigzag encoding: the sign is in the lowest bit.
fn write_step(bytes: &mut Vec<u8>, step: i64) {
    write_length(bytes, (step << 1 ^ step >> 63).cast_unsigned());
}

/// Writes a number with seven bits per byte; the last byte is below 128.
pub(crate) fn write_length(bytes: &mut Vec<u8>, mut length: u64) {
    while length >= 128 {
        bytes.push(0x80 | (length & 0x7f) as u8);
        length >>= 7;
    }
    bytes.push(length as u8);
}

/// Writes a sum in as few bytes as it needs, with the sign in the lowest bit.
pub(crate) fn write_sum(bytes: &mut Vec<u8>, sum: i128) {
    let mut zigzag = (sum << 1 ^ sum >> 127).cast_unsigned();
    while zigzag >= 128 {
        bytes.push(0x80 | (zigzag & 0x7f) as u8);
        zigzag >>= 7;
    }
    bytes.push(zigzag as u8);
}

fn write_value(bytes: &mut Vec<u8>, value: &Value, before: &Value) {
    let long = |bytes: &mut Vec<u8>, tag: u8, content: &[u8]| {
        bytes.push(tag);
        write_length(bytes, content.len() as u64);
        bytes.extend_from_slice(content);
    };
    match value {
        value if value == before => bytes.push(SAME),
        Value::Null => bytes.push(NULL),
        Value::Integer(value) => {
            let before = if let Value::Integer(before) = before { *before } else { 0 };
            bytes.push(STEP);
            write_step(bytes, value.wrapping_sub(before));
        }
        Value::Text(text) => long(bytes, TEXT, text.as_bytes()),
        Value::Bytes(content) => long(bytes, BYTES, content),
        Value::Hash(content) => long(bytes, BYTES, content),
        Value::Sum(content) => long(bytes, BYTES, content),
    }
}

/// Reads the bytes of a block.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HistoryError> {
        let cut = || HistoryError::inconsistent("a block of rows is cut off");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn length(&mut self) -> Result<u64, HistoryError> {
        let (mut length, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)?[0];
            length |= u64::from(byte & 0x7f) << shift;
            if byte < 128 {
                return Ok(length);
            }
            shift += 7;
            if shift > 63 {
                return Err(HistoryError::inconsistent("a number in a block of rows is too long"));
            }
        }
    }

    fn step(&mut self) -> Result<i64, HistoryError> {
        let step = self.length()?;
        Ok((step >> 1).cast_signed() ^ -(step & 1).cast_signed())
    }

    pub(crate) fn sum(&mut self) -> Result<i128, HistoryError> {
        let (mut zigzag, mut shift) = (0u128, 0);
        loop {
            let byte = self.take(1)?[0];
            zigzag |= u128::from(byte & 0x7f) << shift;
            if byte < 128 {
                return Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            }
            shift += 7;
            if shift > 127 {
                return Err(HistoryError::inconsistent("a sum in a block of rows is too long"));
            }
        }
    }

    fn content(&mut self) -> Result<&'a [u8], HistoryError> {
        let length = usize::try_from(self.length()?).map_err(HistoryError::inconsistent)?;
        self.take(length)
    }

    fn value(&mut self, before: &Value) -> Result<Value, HistoryError> {
        Ok(match self.take(1)?[0] {
            NULL => Value::Null,
            SAME => before.clone(),
            STEP => {
                let before = if let Value::Integer(before) = before { *before } else { 0 };
                Value::Integer(before.wrapping_add(self.step()?))
            }
            TEXT => {
                let text = std::str::from_utf8(self.content()?);
                Value::from(text.map_err(HistoryError::inconsistent)?)
            }
            BYTES => Value::Bytes(self.content()?.to_vec()),
            other => {
                let what = format!("a block of rows has a value of kind {other}");
                return Err(HistoryError::inconsistent(what));
            }
        })
    }
}

/// A row under its number.
pub(crate) type Numbered = (i64, Row);

fn decode(of: BlocksOf, block: Row) -> Result<Vec<Numbered>, HistoryError> {
    let mut block = Columns::of(block);
    let (mut number, bytes) = (block.integer()?, block.bytes()?);
    let mut bytes = Bytes(&bytes);
    let mut rows: Vec<Numbered> = Vec::new();
    let nothing = vec![Value::Null; of.columns()];
    while !bytes.0.is_empty() {
        number = number.wrapping_add(bytes.step()?);
        let before = rows.last().map_or(&nothing, |(_, row)| row);
        let row = before.iter().map(|before| bytes.value(before)).collect::<Result<Row, _>>()?;
        rows.push((number, row));
    }
    Ok(rows)
}

/// Reads rows. Keeps the last block, so that neighbouring rows are decoded once.
pub(crate) struct Reader<'a, D> {
    database: &'a D,
    of: BlocksOf,
    /// The block that was read last.
    block: Vec<Numbered>,
}

impl<'a, D: Database> Reader<'a, D> {
    pub(crate) fn new(database: &'a D, of: BlocksOf) -> Reader<'a, D> {
        Reader { database, of, block: Vec::new() }
    }

    /// The row with this number.
    pub(crate) fn row(&mut self, number: i64) -> Result<Option<Row>, HistoryError> {
        let covers = |block: &[Numbered]| {
            block.first().is_some_and(|(first, _)| *first <= number)
                && block.last().is_some_and(|(last, _)| number <= *last)
        };
        if !covers(&self.block) {
            let blocks =
                self.database.query(self.of.select_from(), &[number.into(), 1i64.into()])?;
            let block =
                blocks.into_iter().next().map(|block| decode(self.of, block)).transpose()?;
            self.block = block.unwrap_or_default();
        }
        let found = self.block.binary_search_by_key(&number, |(number, _)| *number);
        Ok(found.ok().map(|place| self.block[place].1.clone()))
    }

    /// The first row whose number is at least `number`.
    pub(crate) fn first_from(&mut self, number: i64) -> Result<Option<Numbered>, HistoryError> {
        let before = self.database.query(self.of.select_from(), &[number.into(), 1i64.into()])?;
        let after = || self.database.query(self.of.select_next(), &[number.into()]);
        for blocks in [before, after()?] {
            for block in blocks {
                let mut rows = decode(self.of, block)?.into_iter();
                if let Some(found) = rows.find(|(found, _)| *found >= number) {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The last rows whose numbers are at least `low` and less than `below`, newest first.
    pub(crate) fn newest(
        &self,
        (low, below): (i64, i64),
        limit: usize,
    ) -> Result<Vec<Numbered>, HistoryError> {
        let mut found = Vec::new();
        let mut last = below.saturating_sub(1);
        loop {
            let values = [last.into(), BLOCKS_AT_ONCE.into()];
            let blocks = self.database.query(self.of.select_from(), &values)?;
            if blocks.is_empty() {
                return Ok(found);
            }
            for block in blocks {
                let rows = decode(self.of, block)?;
                let Some((first, _)) = rows.first() else { continue };
                last = first.saturating_sub(1);
                let wanted = rows.into_iter().rev();
                let wanted = wanted.filter(|(number, _)| (low..below).contains(number));
                found.extend(wanted.take(limit - found.len()));
                if found.len() == limit || last < low {
                    return Ok(found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rows: &[(i64, [Value; 6])]) -> Vec<Row> {
        let mut blocks = NewBlocks::new(BlocksOf::Decisions);
        for (number, row) in rows {
            blocks.push(*number, row.clone());
        }
        blocks.close();
        blocks.closed.into_iter().map(Row::from).collect()
    }

    fn rows() -> Vec<(i64, [Value; 6])> {
        let text = |text: &str| Value::from(text);
        vec![
            (7, [1i64.into(), text("a"), Value::Null, i64::MIN.into(), text(""), Value::Null]),
            (8, [1i64.into(), text("a"), 5u32.into(), i64::MAX.into(), text("held"), 9i64.into()]),
            (
                4096,
                [
                    Value::Null,
                    text("ä"),
                    5u32.into(),
                    Value::Null,
                    vec![0, 1, 255].into(),
                    vec![1].into(),
                ],
            ),
            (
                i64::MAX,
                [3i64.into(), Value::Null, 4u32.into(), 0i64.into(), text("held"), 7i64.into()],
            ),
        ]
    }

    #[test]
    fn rows_are_read_under_their_numbers() {
        let blocks = written(&rows());
        assert_eq!(blocks.len(), 1);
        let found = decode(BlocksOf::Decisions, blocks[0].clone()).expect("a block");
        let wanted: Vec<Numbered> =
            rows().into_iter().map(|(number, row)| (number, Row::from(row))).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn many_rows_are_in_many_blocks_that_decode_alone() {
        let rows: Vec<(i64, [Value; 6])> = (0..1000)
            .map(|number: i64| {
                let text = Value::from(format!("actor-{}", number / 3).as_str());
                (
                    number * 2,
                    [number.into(), text, Value::Null, Value::Null, "held".into(), number.into()],
                )
            })
            .collect();
        let blocks = written(&rows);
        assert!(blocks.len() > 5, "{} blocks", blocks.len());
        let found: Result<Vec<_>, _> =
            blocks.into_iter().map(|block| decode(BlocksOf::Decisions, block)).collect();
        let found: Vec<Numbered> = found.expect("blocks").into_iter().flatten().collect();
        let wanted: Vec<Numbered> =
            rows.into_iter().map(|(number, row)| (number, Row::from(row))).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn sums_are_read_as_written_and_longer_ones_are_errors() {
        for sum in [0, 1, -1, 63, 64, -64, -65, 1 << 64, i128::MAX, i128::MIN] {
            let mut bytes = Vec::new();
            write_sum(&mut bytes, sum);
            let mut read = Bytes(&bytes);
            assert_eq!((read.sum(), read.0.len()), (Ok(sum), 0));
            assert!(Bytes(&bytes[..bytes.len() - 1]).sum().is_err());
        }
        assert!(Bytes(&[0x80; 20]).sum().is_err());
    }

    #[test]
    fn a_block_that_is_cut_off_or_unknown_is_an_error() {
        let block = written(&rows()).remove(0);
        let Value::Bytes(bytes) = &block[1] else { panic!("a block is bytes") };
        let whole = decode(BlocksOf::Decisions, block.clone()).expect("a block").len();
        for end in 1..bytes.len() {
            let cut = vec![block[0].clone(), bytes[..end].to_vec().into()];
            // A block cut after a row is a valid block with fewer rows.
            if let Ok(rows) = decode(BlocksOf::Decisions, cut) {
                assert!(rows.len() < whole, "cut at {end}");
            }
        }
        let unknown = vec![0i64.into(), vec![0, 9].into()];
        assert!(decode(BlocksOf::Decisions, unknown).is_err());
        let endless = vec![0i64.into(), vec![0x80; 12].into()];
        assert!(decode(BlocksOf::Decisions, endless).is_err());
    }
}
