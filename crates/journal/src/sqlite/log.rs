//! Detects damage in SQLite's log, which SQLite itself treats as the end of an unfinished write.
//!
//! Recovery reads the log up to the first frame with a wrong checksum and drops the rest. That is
//! right for a torn write, but a silent loss if a bit flipped in an acknowledged transaction. The
//! two can be distinguished: a transaction begins only after the one before it was synced, so a
//! power loss tears at most the last one. Two commits after the first bad frame prove damage. Every
//! open starts a new generation of the log ([`super::schema::restart_log`]), so that leftovers of
//! earlier crashes are never counted.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::files::beside;
use super::schema::PAGE_BYTES;
use crate::error::JournalError;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// First word of the log if checksums are over big-endian words. One less for little-endian.
const MAGIC_BIG_ENDIAN: u32 = 0x377f_0683;
/// The smallest page size of SQLite.
const LEAST_PAGE_BYTES: usize = 512;
/// Commits that a power loss can leave after a torn frame.
const MAX_COMMITS_AFTER_TORN: u32 = 1;

/// Rejects a log that has lost synced transactions.
pub(super) fn check(path: &Path) -> Result<(), JournalError> {
    let storage = |error: io::Error| JournalError::io("reading the log", error);
    let mut file = match File::open(beside(path, "-wal")) {
        Ok(file) => BufReader::with_capacity(1 << 16, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(storage(error)),
    };
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut file, &mut header).map_err(storage)? {
        return Ok(());
    }
    let page_bytes = page_bytes(path).map_err(storage)?;
    let lost = lost_commits(&mut file, &header, page_bytes).map_err(storage)?;
    if lost > MAX_COMMITS_AFTER_TORN {
        return Err(damaged(&format!("{lost} transactions lie behind a damaged frame")));
    }
    Ok(())
}

/// The page size according to the database: the log's own header may be damaged.
fn page_bytes(path: &Path) -> io::Result<usize> {
    let mut header = [0; 18];
    match File::open(path) {
        Ok(mut file) => fill(&mut file, &mut header)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let page_bytes = usize::from(u16::from_be_bytes([header[16], header[17]]));
    // Without a database no log counts, and SQLite rejects an impossible page size.
    let possible = page_bytes.is_power_of_two() && page_bytes >= LEAST_PAGE_BYTES;
    Ok(if possible { page_bytes } else { PAGE_BYTES })
}

fn damaged(reason: &str) -> JournalError {
    JournalError::Damaged { part: "log", reason: reason.to_owned() }
}

/// Fills `bytes`. Returns false if the file ends before.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The big-endian number at `at`.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes were taken"))
}

/// How many commits of this generation follow the first frame that SQLite would not accept.
fn lost_commits(
    file: &mut impl Read,
    header: &[u8; HEADER_BYTES],
    page_bytes: usize,
) -> io::Result<u32> {
    let big_endian = word(header, 0) == MAGIC_BIG_ENDIAN;
    let mut sum = checksum(&header[..24], big_endian, (0, 0));
    let mut valid = sum == (word(header, 24), word(header, 28))
        && word(header, 0) & !1 == MAGIC_BIG_ENDIAN & !1;
    let header_valid = valid;
    let mut salts = header[16..24].to_vec();
    let mut lost = 0;
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let mut first = true;
    while fill(file, &mut frame)? {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        if first && !header_valid {
            // Only the frames still contain the salts of this generation.
            salts = head[8..16].to_vec();
        }
        first = false;
        sum = checksum(page, big_endian, checksum(&head[..8], big_endian, sum));
        valid = valid && head[8..16] == salts[..] && sum == (word(head, 16), word(head, 20));
        let commit = word(head, 4) != 0;
        if !valid && commit && differing_bits(&head[8..16], &salts) <= 1 {
            lost += 1;
        }
    }
    Ok(lost)
}

/// A frame whose salt has one flipped bit is still of this generation: the next generation's salt
/// is random.
fn differing_bits(left: &[u8], right: &[u8]) -> u32 {
    left.iter().zip(right).map(|(left, right)| (left ^ right).count_ones()).sum()
}

/// SQLite's running checksum over pairs of words.
fn checksum(bytes: &[u8], big_endian: bool, start: (u32, u32)) -> (u32, u32) {
    let number = |word: [u8; 4]| {
        if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    let (pairs, _) = bytes.as_chunks::<8>();
    pairs.iter().fold(start, |(first, second), pair| {
        let [a, b, c, d, e, f, g, h] = *pair;
        let first = first.wrapping_add(number([a, b, c, d])).wrapping_add(second);
        let second = second.wrapping_add(number([e, f, g, h])).wrapping_add(first);
        (first, second)
    })
}
