//! A folder outside the store that sealed segments are moved to.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{OpenSegment, SegmentMark, sync_folder};
use crate::chain::JournalId;
use crate::error::JournalError;

/// What was archived.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveTotals {
    /// Segments that were moved.
    pub moved: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments that were archived before.
    pub before: u64,
    /// Segments that stay: the newest one, which the next one continues.
    pub kept: u64,
}

/// The folder of one journal.
pub(crate) struct ArchiveFolder {
    path: PathBuf,
    id: JournalId,
}

pub(crate) fn failed(error: io::Error) -> JournalError {
    JournalError::io("archiving a segment", error)
}

impl ArchiveFolder {
    /// Makes the folder of a journal under `to`. It has the journal's identity in its name, so several
    /// stores may be archived into one folder.
    pub(crate) fn make(
        to: &Path,
        machine: &str,
        id: JournalId,
    ) -> Result<ArchiveFolder, JournalError> {
        let to = std::path::absolute(to).map_err(failed)?;
        let path = to.join(format!("{machine}-{id}"));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| {
            let (folder, reason) = (path.display(), error.to_string());
            JournalError::Refused(format!("{folder}: the folder cannot be made: {reason}"))
        })?;
        sync_mounted(&to).map_err(failed)?;
        Ok(ArchiveFolder { path, id })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a segment into the folder and reads it again. A file of its name that is not the segment
    /// is a part of it, left when an earlier attempt ended: nothing refers to it.
    pub(crate) fn store(
        &self,
        mark: &SegmentMark,
        segment: &OpenSegment,
    ) -> Result<(), JournalError> {
        let file = self.path.join(mark.name());
        if self.has(mark, &file)? {
            return Ok(());
        }
        // Without a rename, which not every mounted bucket has.
        let mut options = OpenOptions::new();
        let out = options.write(true).create(true).truncate(true).mode(0o600).open(&file);
        let mut out = out.map_err(failed)?;
        out.write_all(segment.bytes()).and_then(|()| out.sync_all()).map_err(failed)?;
        drop(out);
        sync_mounted(&self.path).map_err(failed)?;
        if self.has(mark, &file)? {
            return Ok(());
        }
        let file = file.display();
        Err(JournalError::Refused(format!(
            "{file}: what was written there cannot be read again. The segment stays where it was"
        )))
    }

    fn has(&self, mark: &SegmentMark, file: &Path) -> Result<bool, JournalError> {
        match fs::read(file) {
            Ok(bytes) => {
                Ok(OpenSegment::open(bytes, self.id).is_ok_and(|stored| stored.mark() == mark))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Syncs a folder. A mounted bucket may have no such call.
fn sync_mounted(folder: &Path) -> io::Result<()> {
    match sync_folder(Some(folder)) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        other => other,
    }
}
