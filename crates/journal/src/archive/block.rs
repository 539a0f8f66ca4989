//! Blocks of entries, compressed, and pages of an index. Each ends with a digest of its bytes.

use zstd::bulk::Compressor;

use super::{ArchiveEntry, ArchiveFamily};
use crate::error::JournalError;

/// The most bytes of a block with several entries, before it is compressed. It takes about a third of them.
const BLOCK_BYTES: usize = 12_000;
/// The most bytes of any block before it is compressed: one entry has a few kilobytes at most.
const MAX_BYTES: usize = 64 << 20;
/// How much work is spent to make blocks smaller.
const LEVEL: i32 = 3;
/// The size of a page of an index.
const PAGE_BYTES: usize = 4000;
const DIGEST_BYTES: usize = 16;

fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut short = [0; DIGEST_BYTES];
    short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..DIGEST_BYTES]);
    short
}

/// Appends the digest.
pub(super) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

/// The bytes before their digest.
pub(super) fn verified<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8], JournalError> {
    let damaged = || damaged(what, "it does not match its digest");
    let cut = bytes.len().checked_sub(DIGEST_BYTES).ok_or_else(damaged)?;
    let (content, stored) = bytes.split_at(cut);
    if digest(content) == *stored { Ok(content) } else { Err(damaged()) }
}

pub(super) fn damaged(part: &'static str, reason: &str) -> JournalError {
    JournalError::storage("reading the archive", format!("{part} is damaged: {reason}"))
}

/// Whether stored bytes are wrong, so that reading them again is of no use.
pub(super) fn is_damage(error: &JournalError) -> bool {
    error.to_string().contains(" is damaged: ")
}

/// Whether something that was stored is damaged or missing, so that only an archive that is written again has it.
pub fn is_lost(error: &JournalError) -> bool {
    is_damage(error) || error.to_string().ends_with(" is missing")
}

/// A block that is not stored yet.
#[derive(Clone, Debug)]
pub struct NewBlock {
    /// Its number.
    pub number: u32,
    /// What its entries are.
    pub family: ArchiveFamily,
    /// The instant of its newest entry.
    pub newest_at: i64,
    /// Its stored form.
    pub bytes: Vec<u8>,
}

fn write_part(out: &mut Vec<u8>, part: &[u8]) {
    let mut length = part.len() as u64;
    while length >= 128 {
        out.push(0x80 | (length & 0x7f) as u8);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(part);
}

fn read_part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (mut length, mut shift) = (0usize, 0u32);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        length |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if *byte < 128 {
            break;
        }
        shift += 7;
    }
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

/// Puts the entries of one family into blocks. Calls `each` with the hash of every entry and its block.
pub(super) fn blocks(
    family: ArchiveFamily,
    entries: &[ArchiveEntry],
    next: &mut u32,
    mut each: impl FnMut(u64, u32),
) -> Vec<NewBlock> {
    let mut all = Vec::new();
    // One for all blocks: to make it ready takes a fifth of the time that a block takes.
    let mut compressor = Compressor::new(LEVEL).expect("the level exists");
    let (mut bytes, mut one) = (Vec::with_capacity(BLOCK_BYTES), Vec::with_capacity(512));
    let mut newest_at = i64::MIN;
    let mut close = |bytes: &mut Vec<u8>, newest_at: &mut i64, number: &mut u32| {
        let compressed = compressor.compress(bytes).expect("memory can be written");
        bytes.clear();
        let bytes = sealed(compressed);
        all.push(NewBlock { number: *number, family, newest_at: *newest_at, bytes });
        let next = number.checked_add(1).expect("an archive has fewer than 2^32 blocks");
        (*number, *newest_at) = (next, i64::MIN);
    };
    for entry in entries.iter().filter(|entry| entry.family == family) {
        one.clear();
        write_part(&mut one, &entry.key);
        write_part(&mut one, &entry.value);
        if !bytes.is_empty() && bytes.len() + one.len() > BLOCK_BYTES {
            close(&mut bytes, &mut newest_at, next);
        }
        bytes.extend_from_slice(&one);
        newest_at = newest_at.max(entry.at);
        each(super::hash(&entry.key), *next);
    }
    if !bytes.is_empty() {
        close(&mut bytes, &mut newest_at, next);
    }
    all
}

/// Calls `each` with the key and the value of every entry of a block, in order.
pub(super) fn each_entry(
    block: &[u8],
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<(), JournalError> {
    let compressed = verified(block, "a block")?;
    let content = zstd::bulk::decompress(compressed, content_length(compressed)?)
        .map_err(|error| damaged("a block", &error.to_string()))?;
    let mut bytes = &content[..];
    while !bytes.is_empty() {
        let key = read_part(&mut bytes);
        let (Some(key), Some(value)) = (key, read_part(&mut bytes)) else {
            return Err(damaged("a block", "an entry is cut off"));
        };
        each(key, value);
    }
    Ok(())
}

/// The length of a block before it was compressed.
fn content_length(compressed: &[u8]) -> Result<usize, JournalError> {
    let stated = zstd::zstd_safe::get_frame_content_size(compressed).ok().flatten();
    let length = stated.and_then(|length| usize::try_from(length).ok());
    length
        .filter(|length| *length <= MAX_BYTES)
        .ok_or_else(|| damaged("a block", "its length is not known"))
}

/// The bytes of a page after its rows: its run, and the first and the last hash that it covers.
const PLACE_BYTES: usize = 20;

/// The pages of an index: the first hash that each covers, and its stored form. Together they cover all hashes. Equal
/// hashes are never on two pages.
pub(super) fn pages(run: u32, sorted: &[(u64, u32)]) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut page = Vec::with_capacity(PAGE_BYTES + 64);
    let mut first = 0u64;
    for (at, (hash, block)) in sorted.iter().enumerate() {
        page.extend_from_slice(&hash.to_le_bytes());
        page.extend_from_slice(&block.to_le_bytes());
        let next = sorted.get(at + 1).map(|(next, _)| *next);
        if next.is_none_or(|next| page.len() >= PAGE_BYTES && next != *hash) {
            let last = next.map_or(u64::MAX, |next| next - 1);
            page.extend_from_slice(&run.to_le_bytes());
            page.extend_from_slice(&first.to_le_bytes());
            page.extend_from_slice(&last.to_le_bytes());
            all.push((first, sealed(std::mem::take(&mut page))));
            first = last.wrapping_add(1);
        }
    }
    all
}

/// The blocks that a page of a run has for a hash, the last first. A page that does not cover the hash stands for one
/// that is missing.
pub(super) fn blocks_in_page(page: &[u8], run: u32, hash: u64) -> Result<Vec<u32>, JournalError> {
    let broken = |reason| damaged("a page of its index", reason);
    let page = verified(page, "a page of its index")?;
    let cut = page.len().checked_sub(PLACE_BYTES).ok_or_else(|| broken("it is cut off"))?;
    let (rows, place) = page.split_at(cut);
    let number =
        |at: usize| u64::from_le_bytes(*place[at..].first_chunk().expect("a place has 20 bytes"));
    let of = u32::from_le_bytes(*place.first_chunk().expect("a place has 20 bytes"));
    if of != run || hash < number(4) || hash > number(12) {
        return Err(broken("the page before or after it is missing"));
    }
    let (rows, rest) = rows.as_chunks::<12>();
    if !rest.is_empty() {
        return Err(broken("a row is cut off"));
    }
    let hash_at = |row: &[u8; 12]| u64::from_le_bytes(*row.first_chunk().expect("it has 12 bytes"));
    let from = rows.partition_point(|row| hash_at(row) < hash);
    let same = rows[from..].iter().take_while(|row| hash_at(row) == hash);
    let block = |row: &[u8; 12]| u32::from_le_bytes(*row.last_chunk().expect("it has 12 bytes"));
    let mut found: Vec<u32> = same.map(block).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.dedup();
    Ok(found)
}
