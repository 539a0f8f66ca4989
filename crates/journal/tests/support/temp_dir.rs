//! A temporary directory. The tests of other crates include this file.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]

use std::path::{Path, PathBuf};

/// A directory that is removed when dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new directory in the system's temporary one.
    pub fn new() -> TempDir {
        TempDir::under(&std::env::temp_dir())
    }

    /// A new directory in memory where the system has one: syncs are free there.
    pub fn in_memory() -> TempDir {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() { TempDir::under(shared_memory) } else { TempDir::new() }
    }

    fn under(parent: &Path) -> TempDir {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        let path = parent.join(format!("bursar-test-{:016x}", u64::from_le_bytes(bytes)));
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover directory is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
