//! A small disk.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A disk of one MiB, until it is dropped.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(crate) fn new() -> SmallDisk {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder.path())
            .status();
        assert!(mounted.expect("mount is there").success());
        SmallDisk(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.path().join("filler")).expect("made");
        for piece in [vec![0; 4096], vec![0; 1]] {
            while file.write_all(&piece).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
