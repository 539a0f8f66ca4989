//! The root key: the one key that is there before any other.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::auth::{is_key, looks_like_key, make_key};
use crate::config::Config;

/// The fewest characters of a root key that was not made by this program.
const MIN_CHOSEN_LENGTH: usize = 32;

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
    let key = match read(&path)? {
        Some(key) => key,
        None => {
            let key = make_key("root");
            write(&path, &key)?;
            key
        }
    };
    Ok(RootKey { key, show: config.dev })
}

/// Refuses a file that is there and holds no key. Writes nothing.
pub fn check(config: &Config) -> std::io::Result<()> {
    file(config).map_or(Ok(()), |path| read(&path).map(drop))
}

/// The key in a file, if there is one.
fn read(path: &Path) -> std::io::Result<Option<String>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let reason = format!("{}: {error}", path.display());
            return Err(std::io::Error::new(error.kind(), reason));
        }
    };
    match usable(&String::from_utf8_lossy(&bytes)) {
        Ok(key) => Ok(Some(key)),
        Err(reason) => {
            let reason = format!(
                "{}: {reason}. Nothing was changed. Put back the key as it was, or move the file away: \
                 the next start makes a new root key, and other keys stay as they are",
                path.display()
            );
            Err(std::io::Error::new(std::io::ErrorKind::InvalidData, reason))
        }
    }
}

/// The key in a text: one that this program made, or one that was chosen and cannot be guessed.
fn usable(text: &str) -> Result<String, &'static str> {
    let key = text.trim();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._~+/=-".contains(letter);
    if key.is_empty() {
        return Err("it is empty; it must hold one key");
    }
    if !key.chars().all(allowed) {
        return Err("it must hold one key and nothing else");
    }
    if looks_like_key(key) && !is_key(key) {
        return Err("the key in it is not whole: its checksum is wrong");
    }
    if key.len() < MIN_CHOSEN_LENGTH {
        return Err("the key in it is too short; one of your own needs at least 32 characters");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_key_or_a_long_one_is_a_root_key() {
        let made = make_key("root");
        let half = &made[..made.len() / 2];
        let (short, mistyped) = ("a".repeat(31), made.replace("bur_root_", "bur_rood_"));
        for text in ["", " \n", "x", "bur_", half, "a b", "Ω", &short, &mistyped, &made[1..20]] {
            assert!(usable(text).is_err(), "{text:?} was taken");
        }
        assert_eq!(usable(&format!("{made}\n")).as_ref(), Ok(&made));
        let chosen = "a-secret-of-my-own-that-is-long-enough";
        assert_eq!(usable(chosen).as_deref(), Ok(chosen));
    }
}
