//! The files of a backup beside the journals: the signing key and the output of jobs.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bursar_core::ledger::Ledger;

use super::{BackupError, KEY, LOGS};
use crate::followers::checkpoint;
use crate::logs::is_lost;

/// The public key of what signs checkpoints with a key file, if there is one.
pub(super) fn signer_of(file: &Path) -> Result<Option<String>, BackupError> {
    let key =
        checkpoint::read_key(file).map_err(|error| BackupError::new(file.display(), error))?;
    Ok(key.as_ref().map(checkpoint::public_key))
}

/// Copies the key that signs checkpoints, if it is the one that is known.
pub(super) fn copy_key(from: &Path, known: Option<&str>, folder: &Path) -> Result<(), BackupError> {
    if let (Some(found), Some(known)) = (signer_of(from)?, known)
        && found != known
    {
        let reason = format!(
            "its public key is {found}, and the checkpoints of this store were signed under {known}"
        );
        return Err(
            BackupError::new(from.display(), reason).with_next("put back the file as it was")
        );
    }
    match fs::copy(from, folder.join(KEY)) {
        Ok(_) => {
            fs::set_permissions(folder.join(KEY), fs::Permissions::from_mode(0o600))?;
            Ok(())
        }
        Err(error) => Err(BackupError::new(from.display(), error)
            .with_next("start the server once: it makes the key that signs checkpoints")),
    }
}

/// Copies the output of jobs from a backup, without attempts after the cut: new attempts will have
/// their ids.
pub(super) fn copy_logs(backup: &Path, to: &Path, books: &[Ledger]) -> Result<(), BackupError> {
    let is_known = |name: &str| !books.iter().all(|ledger| is_lost(ledger, name));
    copy_folder(&backup.join(LOGS), to, &is_known)
}

/// Copies all that jobs printed.
pub(super) fn copy_all_logs(from: &Path, folder: &Path) -> Result<(), BackupError> {
    copy_folder(from, &folder.join(LOGS), &|_| true)
}

/// Copies a folder with everything in it.
pub(super) fn copy_files(from: &Path, to: &Path) -> Result<(), BackupError> {
    copy_folder(from, to, &|_| true)
}

/// Copies what jobs printed, where the name of the file is wanted. What is shed meanwhile is left out.
fn copy_folder(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(), BackupError> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let entries = match fs::read_dir(from) {
        Err(error) if is_gone(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(wanted) {
            continue;
        }
        let target = to.join(entry.file_name());
        let copied = match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                copy_folder(&entry.path(), &target, wanted)?;
                continue;
            }
            Ok(_) => fs::copy(entry.path(), &target).map(|_| ()),
            Err(error) => Err(error),
        };
        match copied {
            Err(error) if is_gone(&error) => {}
            copied => copied?,
        }
    }
    Ok(())
}

pub(super) fn sync_all(folder: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()?;
    Ok(())
}
