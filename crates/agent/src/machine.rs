//! The machine, without its GPUs.

use std::fs;
use std::io;

/// The host name.
pub fn host_name() -> io::Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().to_owned())
}

/// The number of cores that this process may use.
pub fn cpus() -> io::Result<u32> {
    let cores = std::thread::available_parallelism()?;
    Ok(u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// Its main memory, in whole GiB.
pub fn memory_gib() -> io::Result<u32> {
    let text = fs::read_to_string("/proc/meminfo")?;
    total_gib(&text).ok_or_else(|| io::Error::other("/proc/meminfo has an unknown form"))
}

fn total_gib(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    u32::try_from(kib >> 20).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_can_be_read() {
        assert!(!host_name().expect("it has a name").is_empty());
        assert!(cpus().expect("it has cores") >= 1);
        memory_gib().expect("it has memory");
    }

    #[test]
    fn memory_is_counted_in_whole_gibibytes() {
        assert_eq!(total_gib("MemTotal:       16777216 kB\nMemFree: 1 kB\n"), Some(16));
        assert_eq!(total_gib("MemTotal:       16777215 kB\n"), Some(15));
        assert_eq!(total_gib("MemFree: 1 kB\n"), None);
    }
}
