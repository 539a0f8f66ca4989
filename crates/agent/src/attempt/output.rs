//! The output of an attempt: one stream of bytes, stored in files. The oldest are removed first.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::folder::{no_link, private};

/// The number of files of a stream: removing the oldest loses at most this fraction.
const FILES_PER_STREAM: u64 = 8;

/// Writes the output of an attempt.
#[derive(Debug)]
pub struct OutputWriter {
    folder: PathBuf,
    file_limit: u64,
    /// The file that is written to, with the offset of its first byte.
    current: Option<(File, u64)>,
    /// The offset of the next byte.
    next: u64,
}

impl OutputWriter {
    /// Writes to a folder and keeps about `limit` bytes at most.
    pub fn new(folder: &Path, limit: u64) -> OutputWriter {
        OutputWriter {
            folder: folder.to_owned(),
            file_limit: (limit / FILES_PER_STREAM).max(1),
            current: None,
            next: 0,
        }
    }

    /// Appends. When the newest file is full, a new one is started and the oldest removed. Bytes that
    /// cannot be written to a full disk are lost: they leave a gap whose size is returned.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        let end = self.next + bytes.len() as u64;
        let lost = match self.append(bytes) {
            Ok(()) => 0,
            Err(_) => {
                // The next byte is written after the gap.
                self.current = None;
                end - self.next
            }
        };
        self.next = end;
        lost
    }

    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let is_full = |(_, first): &(File, u64)| self.next - first >= self.file_limit;
        if self.current.as_ref().is_none_or(is_full) {
            self.current = Some((self.begin(self.next)?, self.next));
        }
        let Some((file, _)) = &mut self.current else { return Ok(()) };
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.next += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn begin(&self, offset: u64) -> io::Result<File> {
        let files = files(&self.folder)?;
        let keep = FILES_PER_STREAM as usize - 1;
        for (_, path) in files.iter().rev().skip(keep) {
            fs::remove_file(path)?;
        }
        let path = self.folder.join(format!("output.{offset}"));
        private().create_new(true).append(true).open(path)
    }
}

/// Removes the oldest file of a stream. Returns whether there was one.
pub(crate) fn give_up_oldest(folder: &Path) -> bool {
    let oldest = files(folder).ok().and_then(|files| files.into_iter().next());
    oldest.is_some_and(|(_, path)| fs::remove_file(path).is_ok())
}

/// The files of a stream with the offsets of their first bytes, in order.
fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let offset = name.and_then(|name| name.strip_prefix("output."));
        if let Some(offset) = offset.and_then(|offset| offset.parse().ok()) {
            found.push((offset, path));
        }
    }
    found.sort();
    Ok(found)
}

/// At most `limit` bytes of the output from an offset, with the offset of the first byte: a later one
/// than requested if bytes were lost there.
pub fn read(folder: &Path, from: u64, limit: usize) -> io::Result<(u64, Vec<u8>)> {
    let mut start = None;
    let mut offset = from;
    let mut bytes = Vec::new();
    for (first, path) in files(folder)? {
        let length = fs::symlink_metadata(&path).map_or(0, |data| data.len());
        if first.saturating_add(length) <= offset {
            continue;
        }
        if start.is_some() && first > offset {
            break;
        }
        offset = offset.max(first);
        start.get_or_insert(offset);
        let mut file = no_link().read(true).open(path)?;
        file.seek(SeekFrom::Start(offset - first))?;
        let room = (limit - bytes.len()) as u64;
        offset += file.take(room).read_to_end(&mut bytes)? as u64;
        if bytes.len() == limit {
            break;
        }
    }
    Ok((start.unwrap_or(from), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> u64 {
        files(folder)
            .expect("readable")
            .iter()
            .map(|(_, path)| path.metadata().expect("there").len())
            .sum()
    }

    #[test]
    fn output_is_read_from_any_offset() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = OutputWriter::new(folder.path(), 80);
        let text: Vec<u8> = (0..60_u8).collect();
        for piece in text.chunks(7) {
            assert_eq!(writer.write(piece), 0);
        }
        for from in 0..=60_usize {
            for limit in [1, 9, 100] {
                let end = (from + limit).min(60);
                let read = read(folder.path(), from as u64, limit).expect("readable");
                assert_eq!(read, (from as u64, text[from..end].to_vec()));
            }
        }
        let nothing = tempfile::tempdir().expect("a folder");
        assert_eq!(super::read(nothing.path(), 0, 10).expect("readable"), (0, vec![]));
    }

    #[test]
    fn the_oldest_output_is_removed_and_the_newest_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = OutputWriter::new(folder.path(), 80);
        for byte in 0..200_u8 {
            assert_eq!(writer.write(&[byte]), 0);
            assert!(kept(folder.path()) <= 80);
        }
        let (start, bytes) = read(folder.path(), 0, 1000).expect("readable");
        assert_eq!(start + bytes.len() as u64, 200);
        assert!(bytes.len() > 60, "{}", bytes.len());
        assert_eq!(u64::from(bytes[0]), start);
    }

    #[test]
    fn bytes_that_cannot_be_written_leave_a_gap() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("output");
        fs::create_dir(&place).expect("made");
        let mut writer = OutputWriter::new(&place, 80);
        assert_eq!(writer.write(b"before "), 0);
        // The next file cannot be created: its name is taken.
        fs::write(place.join("output.17"), "").expect("written");
        assert_eq!(writer.write(b"more text "), 0);
        assert_eq!(writer.write(b"lost"), 4);
        fs::remove_file(place.join("output.17")).expect("there");
        assert_eq!(writer.write(b"after"), 0);
        assert_eq!(read(&place, 0, 100).expect("readable"), (0, b"before more text ".to_vec()));
        assert_eq!(read(&place, 17, 100).expect("readable"), (21, b"after".to_vec()));
        assert_eq!(read(&place, 26, 100).expect("readable"), (26, vec![]));
        assert!(give_up_oldest(&place));
        assert_eq!(read(&place, 0, 100).expect("readable"), (21, b"after".to_vec()));
        assert!(give_up_oldest(&place) && !give_up_oldest(&place));
    }
}
