//! The one clock of the agent: time since the machine booted.
//!
//! Nobody can set it, it counts while the machine sleeps, as the server's lease does, and every
//! process of the machine reads the same value: what one process wrote down another can go on
//! counting from.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant: milliseconds since the machine booted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(u64);

impl BootTime {
    /// So many milliseconds after the boot.
    pub const fn from_millis(millis: u64) -> BootTime {
        BootTime(millis)
    }

    /// The instant of this call.
    pub fn now() -> BootTime {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock");
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let millis = u64::try_from(time.tv_nsec() / 1_000_000).unwrap_or(0);
        BootTime(seconds * 1000 + millis)
    }

    /// Milliseconds since the boot.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// So much later.
    pub fn plus(self, duration: Duration) -> BootTime {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        BootTime(self.0.saturating_add(millis))
    }

    /// The time from an instant to this one; none if it lies ahead.
    pub fn since(self, earlier: BootTime) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// What names this boot of the machine: instants of another one mean nothing.
pub fn boot_id() -> std::io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_runs_backward() {
        let first = BootTime::now();
        let second = BootTime::now();
        assert!(second >= first);
        assert_eq!(first.since(first.plus(Duration::from_secs(1))), Duration::ZERO);
        assert_eq!(first.plus(Duration::from_secs(1)).since(first), Duration::from_secs(1));
    }
}
