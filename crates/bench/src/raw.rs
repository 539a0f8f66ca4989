//! Lower bound of a durable write: write and fdatasync, by system calls only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::figure::now;

/// Size of the file. It is allocated before the loop, which overwrites it again and again.
const FILE_BYTES: u64 = 64 << 20;

/// Average seconds to write `bytes` in `directory` and sync them, over `time`.
pub fn sync_seconds(directory: &Path, bytes: usize, time: Duration) -> io::Result<f64> {
    RawLoop::new(directory, bytes)?.run(time)
}

pub(crate) struct RawLoop {
    file: File,
    block: Vec<u8>,
    offset: u64,
}

impl RawLoop {
    /// Prepares a file for blocks of `bytes`.
    pub(crate) fn new(directory: &Path, bytes: usize) -> io::Result<RawLoop> {
        let path = directory.join("raw");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for offset in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        Ok(RawLoop { file, block: vec![7; bytes], offset: 0 })
    }

    /// Average seconds of one write and its sync, over `time`.
    pub(crate) fn run(&mut self, time: Duration) -> io::Result<f64> {
        let start = now();
        let mut syncs = 0.0;
        loop {
            self.file.write_all_at(&self.block, self.offset)?;
            self.file.sync_data()?;
            syncs += 1.0;
            let bytes = self.block.len() as u64;
            let next = self.offset + bytes;
            self.offset = if next + bytes > FILE_BYTES { 0 } else { next };
            let elapsed = start.elapsed();
            if elapsed >= time {
                return Ok(elapsed.as_secs_f64() / syncs);
            }
        }
    }
}
