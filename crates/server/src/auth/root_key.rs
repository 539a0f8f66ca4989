//! The root key: the one key that is there before any other.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::auth::{is_key, looks_like_key, make_key};
use crate::config::Config;
use crate::store::{LEDGER, MANIFEST, Manifest};

/// The fewest characters of a root key that was not made by this program.
const MIN_CHOSEN_LENGTH: usize = 32;
/// What an operator does about a root key that may be guessed.
const REPLACE: &str = "write at least 32 characters of A-Z a-z 0-9 . _ ~ + / = - into the file, or move \
     it away, and the next start makes a root key; other keys stay as they are";

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

/// Reads the root key, or makes and keeps one on the first start. `is_new`: the store has no record
/// yet.
pub fn load(config: &Config, is_new: bool) -> std::io::Result<RootKey> {
    let Some(path) = file(config) else {
        return Ok(RootKey { key: make_key("root"), show: true });
    };
    let key = match read(&path, is_new)? {
        Some(Found { key, weakness }) => {
            if let Some(weakness) = weakness {
                tracing::warn!(
                    file = %path.display(),
                    "the root key can be guessed: {weakness}. Replace it: {REPLACE}"
                );
            }
            key
        }
        None => {
            let key = make_key("root");
            write(&path, &key)?;
            key
        }
    };
    Ok(RootKey { key, show: config.dev })
}

/// Refuses a file that is there and holds no key, before anything is written. Whether a database has
/// a store is not known here: [`load`] refuses the rest.
pub fn check(config: &Config) -> std::io::Result<()> {
    let begun =
        |data: &PathBuf| data.join(MANIFEST).exists() || Manifest::file(data, LEDGER).exists();
    let is_new = config.store.is_none() && !config.data.as_ref().is_some_and(begun);
    file(config).map_or(Ok(()), |path| read(&path, is_new).map(drop))
}

/// A key that was found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    key: String,
    /// Why it may be guessed: a store of before goes on with it, a new one is not begun.
    weakness: Option<&'static str>,
}

/// The key in a file, if there is one.
fn read(path: &Path, is_new: bool) -> std::io::Result<Option<Found>> {
    let refused = |reason: &str, next: &str| {
        let reason = format!("{}: {reason}. {next}", path.display());
        std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let reason = format!("{}: {error}", path.display());
            return Err(std::io::Error::new(error.kind(), reason));
        }
    };
    match usable(&bytes) {
        Ok(Found { weakness: Some(weakness), .. }) if is_new => {
            let next =
                format!("No record was written. To begin a store, choose another key: {REPLACE}");
            Err(refused(weakness, &next))
        }
        Ok(found) => Ok(Some(found)),
        Err(reason) => {
            let next = "Nothing was changed. Put back the key as it was, or move the file away: the \
                        next start makes a new root key, and other keys stay as they are";
            Err(refused(reason, next))
        }
    }
}

/// The key in a file: one that this program made, or one that was chosen. Refuses what was never a key.
fn usable(bytes: &[u8]) -> Result<Found, &'static str> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err("it is not text; it must hold one key");
    };
    let key = text.trim();
    if key.is_empty() {
        return Err("it is empty; it must hold one key");
    }
    if key.contains(char::is_whitespace) {
        return Err("it must hold one key and nothing else");
    }
    if looks_like_key(key) && !is_key(key) {
        return Err("the key in it is not whole: its checksum is wrong");
    }
    let usual = |letter: char| letter.is_ascii_alphanumeric() || "._~+/=-".contains(letter);
    let weakness = if key.len() < MIN_CHOSEN_LENGTH {
        Some("the key in it has fewer than 32 characters")
    } else if !key.chars().all(usual) {
        Some("the key in it has characters other than A-Z a-z 0-9 . _ ~ + / = -")
    } else {
        None
    };
    Ok(Found { key: key.to_owned(), weakness })
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
        let mistyped = made.replace("bur_root_", "bur_rood_");
        for text in ["", " \n", "bur_", half, "a b", &mistyped] {
            assert!(usable(text.as_bytes()).is_err(), "{text:?} was taken");
        }
        assert!(usable(b"\xff").is_err());
        let (short, other) = ("a".repeat(31), "Ω".repeat(32));
        for text in ["x", "Ω", &short, &other, &made[1..20]] {
            let found = usable(text.as_bytes()).expect("stores of before have such keys");
            assert!(found.key == text && found.weakness.is_some(), "{found:?}");
        }
        for text in [&*made, "a-secret-of-my-own-that-is-long-enough"] {
            let found = Found { key: text.to_owned(), weakness: None };
            assert_eq!(usable(format!("{text}\n").as_bytes()), Ok(found));
        }
    }
}
