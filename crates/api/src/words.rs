//! Numbers in sentences.

/// A number with its noun: `1 job`, `3 jobs`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Milliseconds of GPU time: `1.234s`, `1m01s`, `2h01m`.
pub fn gpu_time(gpu_ms: u64) -> String {
    let seconds = gpu_ms / 1000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}.{:03}s", gpu_ms % 1000),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

/// Seconds as people write them: `45s`, `30m`, `1h30m`, `2d`.
pub fn length(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, 'd'),
        (seconds / 3600 % 24, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let text: String = parts.map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(0_u32, "job"), "0 jobs");
        assert_eq!(counted(1_usize, "job"), "1 job");
        assert_eq!(counted(2_u64, "job"), "2 jobs");
    }

    #[test]
    fn gpu_time_is_written_as_people_read_it() {
        assert_eq!(gpu_time(1_234), "1.234s");
        assert_eq!(gpu_time(61_000), "1m01s");
        assert_eq!(gpu_time(7_260_000), "2h01m");
    }

    #[test]
    fn lengths_leave_out_what_is_zero() {
        for (seconds, text) in [(0, "0s"), (45, "45s"), (1800, "30m"), (5400, "1h30m")] {
            assert_eq!(length(seconds), text);
        }
        assert_eq!(length(2 * 86_400 + 60), "2d1m");
    }
}
