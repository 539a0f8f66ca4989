//! The root key: the one key that is there before any other.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::auth::make_key;
use crate::config::Config;

/// The root key of this start, and whether to show it.
pub struct RootKey {
    /// The bearer secret.
    pub key: String,
    /// Whether nobody else has it: it goes to standard output.
    pub show: bool,
}

/// Where the key is kept, if anywhere.
fn file(config: &Config) -> Option<PathBuf> {
    let beside = || config.data.as_ref().map(|data| data.join("root.key"));
    config.root_key_file.clone().or_else(beside)
}

/// Reads the root key, or makes and keeps one on the first start.
pub fn load(config: &Config) -> std::io::Result<RootKey> {
    let Some(path) = file(config) else {
        return Ok(RootKey { key: make_key("root"), show: true });
    };
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => read(&path, &text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = make_key("root");
            write(&path, &key)?;
            key
        }
        Err(error) => return Err(error),
    };
    Ok(RootKey { key, show: config.dev })
}

fn read(path: &Path, text: &str) -> std::io::Result<String> {
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        let reason = format!("{} must hold one key and nothing else", path.display());
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, reason));
    }
    Ok(key.to_owned())
}

/// Nobody but the owner may read it, and it is on the disk before it is used.
fn write(path: &Path, key: &str) -> std::io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{key}")?;
    file.sync_all()
}
