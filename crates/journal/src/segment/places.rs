//! Where archived segments are.
//!
//! A segment is beside its journal until an operator moves it. A file beside the journal then
//! remembers the folder. Only `bursar admin archive` writes that file, and a server that runs reads
//! it, so neither waits for the other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SegmentMark;
use crate::chain::JournalId;
use crate::error::{JournalError, SegmentFault};
use crate::segment::{OpenSegment, SegmentDamage};

/// The format of the file.
const FORMAT: u32 = 1;

/// One archived segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedSegment {
    /// The name of the file.
    pub name: String,
    /// Number of its first batch.
    pub first: u64,
    /// Number of its last batch.
    pub last: u64,
    /// The digest of the file, in hex.
    pub digest: String,
    /// The folder that it was moved to.
    pub folder: PathBuf,
}

impl ArchivedSegment {
    /// A segment in this folder.
    pub(crate) fn at(mark: &SegmentMark, folder: PathBuf) -> ArchivedSegment {
        let (name, digest) = (mark.name(), mark.digest.to_string());
        ArchivedSegment { name, first: mark.first, last: mark.last, digest, folder }
    }
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    journal: String,
    segments: Vec<ArchivedSegment>,
}

/// The folders in which the segments of a journal may be.
#[derive(Clone, Debug)]
pub struct Places {
    journal: PathBuf,
    id: JournalId,
}

fn beside(journal: &Path, suffix: &str) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Places {
    /// The places of the segments of the journal in this file.
    pub fn of(journal: &Path, id: JournalId) -> Places {
        Places { journal: journal.to_owned(), id }
    }

    /// The folder beside the journal.
    pub fn folder(&self) -> PathBuf {
        beside(&self.journal, ".segments")
    }

    /// The file that says where archived segments are.
    pub fn file(&self) -> PathBuf {
        beside(&self.journal, ".archived")
    }

    /// The archived segments, in order.
    pub fn archived(&self) -> Result<Vec<ArchivedSegment>, JournalError> {
        let file = self.file();
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(JournalError::io("reading where segments are", error)),
        };
        let refused = |reason: String| {
            JournalError::Refused(format!(
                "{}: {reason}. Put back the file as it was, or remove it and put back the archived \
                 segments into {}",
                file.display(),
                self.folder().display()
            ))
        };
        match serde_json::from_slice::<Stored>(&text) {
            Ok(stored) if stored.format != FORMAT => {
                Err(refused(format!("it has format {}; this build knows {FORMAT}", stored.format)))
            }
            Ok(stored) if stored.journal != self.id.to_string() => {
                Err(refused("it belongs to another journal".into()))
            }
            Ok(stored) => Ok(stored.segments),
            Err(error) => Err(refused(format!("it cannot be read: {error}"))),
        }
    }

    /// Remembers where archived segments are, atomically and durably.
    pub fn write(&self, segments: Vec<ArchivedSegment>) -> Result<(), JournalError> {
        let stored = Stored { format: FORMAT, journal: self.id.to_string(), segments };
        let text = serde_json::to_vec_pretty(&stored).expect("it has only plain fields");
        let (file, temporary) = (self.file(), beside(&self.journal, ".archived.tmp"));
        let write = || {
            let mut options = OpenOptions::new();
            let mut out =
                options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            out.write_all(&text)?;
            out.sync_all()?;
            fs::rename(&temporary, &file)?;
            sync_folder(file.parent())
        };
        write()
            .map_err(|error: io::Error| JournalError::io("remembering where segments are", error))
    }

    /// Reads a segment from where it is and verifies its file.
    ///
    /// # Errors
    /// [`JournalError::Segment`] with the name and the range of a missing or altered one.
    pub fn open(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        self.find(mark).map(|(_, segment)| segment)
    }

    /// Opens a segment, and returns also the file that it was read from.
    pub fn find(&self, mark: &SegmentMark) -> Result<(PathBuf, OpenSegment), JournalError> {
        let name = mark.name();
        let here = self.folder().join(&name);
        let mut places = vec![self.folder()];
        if let Some(segment) = open_file(mark, self.id, &here)? {
            return Ok((here, segment));
        }
        // Read after the folder: the archive is remembered before a segment leaves the folder.
        for archived in self.archived()?.into_iter().filter(|segment| segment.name == name) {
            let place = archived.folder.join(&name);
            if let Some(segment) = open_file(mark, self.id, &place)? {
                return Ok((place, segment));
            }
            places.push(archived.folder);
        }
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        Err(mark.error(SegmentFault::Missing { places: places.join(" and in ") }))
    }
}

/// The segment in this file, if there is one.
pub(crate) fn open_file(
    mark: &SegmentMark,
    id: JournalId,
    file: &Path,
) -> Result<Option<OpenSegment>, JournalError> {
    let place = file.display().to_string();
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => {
            let reason = error.to_string();
            return Err(mark.error(SegmentFault::Unreadable { place, reason }));
        }
    };
    let reason = match OpenSegment::open(bytes, id) {
        Ok(segment) if segment.mark() == mark => return Ok(Some(segment)),
        Ok(_) => SegmentDamage::OtherSegment,
        Err(reason) => reason,
    };
    Err(mark.error(SegmentFault::Altered { place, reason }))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
