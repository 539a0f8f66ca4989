//! What an attempt prints: one stream of bytes, kept in files of which the oldest go first.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::folder::private;

/// The stream is cut into so many files, so that the bound costs at most one of them.
const FILES: u64 = 8;

/// Writes the output of an attempt.
#[derive(Debug)]
pub struct OutputWriter {
    folder: PathBuf,
    file_limit: u64,
    /// The file that is written to, with the offsets of its first byte and of the next one.
    current: Option<(File, u64, u64)>,
}

impl OutputWriter {
    /// Writes into a folder, and keeps at most about `limit` bytes.
    pub fn new(folder: &Path, limit: u64) -> OutputWriter {
        OutputWriter {
            folder: folder.to_owned(),
            file_limit: (limit / FILES).max(1),
            current: None,
        }
    }

    /// Appends. When the newest file is full another is begun and the oldest removed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut file, first, next) = match self.current.take() {
            Some((file, first, next)) if next - first < self.file_limit => (file, first, next),
            full => {
                let next = full.map_or(0, |(_, _, next)| next);
                (self.begin(next)?, next, next)
            }
        };
        file.write_all(bytes)?;
        self.current = Some((file, first, next + bytes.len() as u64));
        Ok(())
    }

    fn begin(&self, offset: u64) -> io::Result<File> {
        let files = files(&self.folder)?;
        let keep = FILES as usize - 1;
        for (_, path) in files.iter().rev().skip(keep) {
            fs::remove_file(path)?;
        }
        let path = self.folder.join(format!("output.{offset}"));
        private().create(true).append(true).open(path)
    }
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

/// At most `limit` bytes of the output from an offset on, with the offset of the first: a later one
/// than asked for if the earlier bytes were given up.
pub fn read(folder: &Path, from: u64, limit: usize) -> io::Result<(u64, Vec<u8>)> {
    let files = files(folder)?;
    let Some((oldest, _)) = files.first() else { return Ok((from, Vec::new())) };
    let mut offset = from.max(*oldest);
    let start = offset;
    let mut bytes = Vec::new();
    for (first, path) in files.iter().skip_while(|(first, path)| {
        let length = fs::metadata(path).map_or(0, |data| data.len());
        first + length <= start
    }) {
        if *first > offset {
            break;
        }
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset - first))?;
        let room = (limit - bytes.len()) as u64;
        offset += file.take(room).read_to_end(&mut bytes)? as u64;
        if bytes.len() == limit {
            break;
        }
    }
    Ok((start, bytes))
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
    fn what_was_written_is_read_from_any_offset() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = OutputWriter::new(folder.path(), 80);
        let text: Vec<u8> = (0..60_u8).collect();
        for piece in text.chunks(7) {
            writer.write(piece).expect("there is room");
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
    fn the_oldest_output_is_given_up_and_the_newest_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = OutputWriter::new(folder.path(), 80);
        for byte in 0..200_u8 {
            writer.write(&[byte]).expect("there is room");
            assert!(kept(folder.path()) <= 80);
        }
        let (start, bytes) = read(folder.path(), 0, 1000).expect("readable");
        assert_eq!(start + bytes.len() as u64, 200);
        assert!(bytes.len() > 60, "{}", bytes.len());
        assert_eq!(u64::from(bytes[0]), start);
    }
}
