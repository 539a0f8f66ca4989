//! The hash chain and the frames, implemented independently from `docs/reference/journal-format.md`.

use crate::malformed::Malformed;
use crate::source::RawBatch;

/// The hash that the first batch of a journal follows.
pub(crate) fn genesis(journal: &[u8; 16]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bursar genesis1\0");
    hasher.update(journal);
    hasher.finalize().into()
}

/// The expected hash of a batch.
pub(crate) fn hash(batch: &RawBatch) -> [u8; 32] {
    let mut content = Vec::with_capacity(96 + batch.payload.len());
    content.extend_from_slice(b"bursar batch v1\0");
    content.extend_from_slice(&batch.previous);
    content.extend_from_slice(&batch.sequence.to_le_bytes());
    content.extend_from_slice(&batch.first_position.to_le_bytes());
    content.extend_from_slice(&u64::from(batch.records).to_le_bytes());
    content.extend_from_slice(&batch.epoch.to_le_bytes());
    content.extend_from_slice(&batch.time.to_le_bytes());
    content.extend_from_slice(&batch.payload);
    *blake3::hash(&content).as_bytes()
}

/// One record of a batch.
pub(crate) struct RawRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) time: i64,
    pub(crate) body: &'a [u8],
}

/// The kinds of records.
pub(crate) const BARRIER: u8 = 0;
pub(crate) const DECISION: u8 = 1;
pub(crate) const DUE: u8 = 2;
pub(crate) const GROUP: u8 = 3;

/// Splits the first record off a payload.
pub(crate) fn first_record(payload: &[u8]) -> Result<(RawRecord<'_>, &[u8]), Malformed> {
    let (length, rest) = payload.split_first_chunk::<4>().ok_or("a record is cut off")?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| "too long")?;
    let (content, rest) = rest.split_at_checked(length).ok_or("a record is cut off")?;
    let (head, body) = content.split_first_chunk::<10>().ok_or("a record has no header")?;
    let [version, kind, time @ ..] = *head;
    if version != 1 {
        return Err(format!("a record of version {version}").into());
    }
    if kind > GROUP {
        return Err(format!("a record of kind {kind}").into());
    }
    Ok((RawRecord { kind, time: i64::from_le_bytes(time), body }, rest))
}

/// The decision bodies of a record: none for a barrier, several for a group.
pub(crate) fn bodies<'a>(record: &RawRecord<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
    match record.kind {
        BARRIER if record.body.is_empty() => Ok(Vec::new()),
        BARRIER => Err("a barrier with a body".into()),
        DECISION | DUE => Ok(vec![record.body]),
        _ => {
            let mut bodies = Vec::new();
            let mut rest = record.body;
            while !rest.is_empty() {
                let (length, after) = rest.split_first_chunk::<4>().ok_or("a group is cut off")?;
                let length =
                    usize::try_from(u32::from_le_bytes(*length)).map_err(|_| "too long")?;
                let (body, after) = after.split_at_checked(length).ok_or("a group is cut off")?;
                bodies.push(body);
                rest = after;
            }
            Ok(bodies)
        }
    }
}
