//! Contexts: saved connections in a file that only its owner can read.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// The default server.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";

/// The file of contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The default context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// All contexts by name.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A server and its credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// Its address.
    pub(crate) server: String,
    /// The key itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The file with the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    /// The tenant of the ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The authority that signed the server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Where the file is: `BURSAR_CONTEXTS`, or `bursar/config.toml` in the user's configuration folder.
pub(crate) fn location(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf, Failure> {
    if let Some(file) = variable("BURSAR_CONTEXTS") {
        return Ok(file.into());
    }
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).and_then(absolute);
    let home = || variable("HOME").map(|home| Path::new(&home).join(".config"));
    match folder.or_else(home) {
        Some(folder) => Ok(folder.join("bursar/config.toml")),
        None => Err(Failure::because(Exit::Failed, "no folder for contexts: HOME is not set")
            .with_next("set BURSAR_CONTEXTS to a file")),
    }
}

impl Contexts {
    /// Reads the file; a missing file has no contexts.
    pub(crate) fn load(path: &Path) -> Result<Contexts, Failure> {
        let failed = |cause: &dyn std::fmt::Display| {
            Failure::new(format_args!("cannot read {}", path.display()), cause)
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(failed(&error)),
        };
        let contexts: Contexts = toml::from_str(&text).map_err(|error| failed(&error))?;
        let has_key = contexts.contexts.values().any(|context| context.key.is_some());
        let mode = std::fs::metadata(path).map_err(|error| failed(&error))?.mode();
        if has_key && mode & 0o077 != 0 {
            let why = format!("{} has a key and other users can read it", path.display());
            let next = format!("chmod 600 {}", path.display());
            return Err(Failure::because(Exit::Failed, why).with_next(next));
        }
        Ok(contexts)
    }

    /// Writes the file atomically, readable only by its owner.
    pub(crate) fn save(&self, path: &Path) -> Result<(), Failure> {
        let failed = |cause: std::io::Error| {
            Failure::new(format_args!("cannot write {}", path.display()), cause)
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let text = toml::to_string_pretty(self)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// The context with this name.
    pub(crate) fn named(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            Failure::because(Exit::Usage, format!("there is no context `{name}`"))
                .with_next("bursar context ls lists them")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn example() -> Contexts {
        let context = Context {
            server: "https://credits.example".into(),
            key: Some("secret".into()),
            ..Context::default()
        };
        Contexts { current: Some("main".into()), contexts: [("main".into(), context)].into() }
    }

    #[test]
    fn the_file_follows_the_environment() {
        let at = |pairs: &[(&str, &str)]| {
            location(|name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
            .ok()
            .map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/a");
        assert_eq!(at(&[home]).as_deref(), Some("/home/a/.config/bursar/config.toml"));
        let xdg = ("XDG_CONFIG_HOME", "/etc/a");
        assert_eq!(at(&[home, xdg]).as_deref(), Some("/etc/a/bursar/config.toml"));
        let relative = ("XDG_CONFIG_HOME", "a");
        assert_eq!(at(&[home, relative]).as_deref(), Some("/home/a/.config/bursar/config.toml"));
        assert_eq!(at(&[home, xdg, ("BURSAR_CONTEXTS", "/x")]).as_deref(), Some("/x"));
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn a_saved_file_is_read_back_and_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/config.toml");
        assert_eq!(Contexts::load(&path).expect("nothing yet"), Contexts::default());
        example().save(&path).expect("written");
        assert_eq!(Contexts::load(&path).expect("read"), example());
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        example().save(&path).expect("written");
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, open).expect("changed");
        assert!(Contexts::load(&path).is_err());
    }

    #[test]
    fn a_file_with_unknown_fields_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "curent = \"main\"\n").expect("written");
        assert!(Contexts::load(&path).is_err());
    }
}
