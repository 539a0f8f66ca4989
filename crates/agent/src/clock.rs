//! The clock of the agent: time since the machine booted.
//!
//! It cannot be set, it includes suspended time, as the server's lease does, and every
//! process of the machine reads the same value: a process can use instants that
//! another one stored.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An instant: milliseconds since the machine booted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(u64);

impl BootTime {
    /// Later than every instant.
    pub const MAX: BootTime = BootTime(u64::MAX);

    /// An instant from milliseconds since the boot.
    pub const fn from_millis(millis: u64) -> BootTime {
        BootTime(millis)
    }

    /// The present instant.
    pub fn now() -> BootTime {
        match OFFSET.get() {
            None => BootTime::read(),
            Some(offset) => BootTime(BootTime::read().0.saturating_add_signed(offset.millis())),
        }
    }

    fn read() -> BootTime {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock");
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let millis = u64::try_from(time.tv_nsec() / 1_000_000).unwrap_or(0);
        BootTime(seconds * 1000 + millis)
    }

    /// Milliseconds since the boot.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// A later instant.
    pub fn plus(self, duration: Duration) -> BootTime {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        BootTime(self.0.saturating_add(millis))
    }

    /// The time from an instant to this one; zero if it is later.
    pub fn since(self, earlier: BootTime) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The error of the clock, for tests of nodes with a wrong clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offset {
    /// A number of seconds.
    Fixed(i64),
    /// The number of seconds in a file, which is read at each use; 0 if it has none.
    File(PathBuf),
}

static OFFSET: OnceLock<Offset> = OnceLock::new();

impl Offset {
    /// Applies the error to every later instant of this process.
    pub fn set(self) {
        // Set once, from the command line.
        let _ = OFFSET.set(self);
    }

    /// The error of this process, if any.
    pub(crate) fn of_process() -> Option<&'static Offset> {
        OFFSET.get()
    }

    fn millis(&self) -> i64 {
        let seconds = match self {
            Offset::Fixed(seconds) => *seconds,
            Offset::File(file) => {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                text.trim().parse().unwrap_or(0)
            }
        };
        seconds.saturating_mul(1000)
    }
}

/// A text that is not an offset.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Error)]
#[error("seconds, or @ and a file with seconds")]
pub struct InvalidOffset;

impl FromStr for Offset {
    type Err = InvalidOffset;

    fn from_str(text: &str) -> Result<Offset, InvalidOffset> {
        match text.strip_prefix('@') {
            Some(file) => Ok(Offset::File(file.into())),
            None => text.parse().map(Offset::Fixed).map_err(|_| InvalidOffset),
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Offset::Fixed(seconds) => write!(f, "{seconds}"),
            Offset::File(file) => write!(f, "@{}", file.display()),
        }
    }
}

/// The id of this boot: instants of another boot are meaningless.
pub fn boot_id() -> std::io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_fixed_or_read_from_a_file_at_each_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("offset");
        let offset: Offset = format!("@{}", file.display()).parse().expect("a file");
        assert_eq!(offset.millis(), 0);
        for (text, millis) in [("300", 300_000), ("-7\n", -7000), ("soon", 0)] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(offset.millis(), millis, "{text}");
        }
        assert_eq!("-300".parse(), Ok(Offset::Fixed(-300)));
        assert!("soon".parse::<Offset>().is_err());
        for text in ["-300", "@/some/file"] {
            assert_eq!(text.parse::<Offset>().expect("an offset").to_string(), text);
        }
    }

    #[test]
    fn it_never_runs_backward() {
        let first = BootTime::now();
        let second = BootTime::now();
        assert!(second >= first);
        assert_eq!(first.since(first.plus(Duration::from_secs(1))), Duration::ZERO);
        assert_eq!(first.plus(Duration::from_secs(1)).since(first), Duration::from_secs(1));
    }
}
