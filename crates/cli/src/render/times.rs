//! Instants for people: in the local time zone, or relative to now on a terminal.

use std::sync::OnceLock;

use bursar_client::api::Time;
use jiff::tz::{Offset, TimeZone};

use super::format::is_terminal;

/// The time zone in which instants are shown and read, and whether UTC was asked for; UTC if not set.
static ZONE: OnceLock<(TimeZone, bool)> = OnceLock::new();

/// Shows and reads instants in UTC, or in the local time zone.
pub(crate) fn use_zone(utc: bool) {
    let zone = if utc { TimeZone::UTC } else { TimeZone::system() };
    // Called once, at the start of the command; a second call would change nothing.
    let _ = ZONE.set((zone, utc));
}

/// The time zone in which instants are shown and read.
pub(crate) fn zone() -> &'static TimeZone {
    static UTC: TimeZone = TimeZone::UTC;
    ZONE.get().map_or(&UTC, |(zone, _)| zone)
}

/// An instant in the time zone, with its offset.
pub(crate) fn local(time: Time) -> String {
    written(time, zone())
}

/// An instant in a time zone, with its offset and without decimals that are zero.
fn written(time: Time, zone: &TimeZone) -> String {
    let text = time.to_string();
    let utc = text.strip_suffix(".000Z").map_or(text.clone(), |start| format!("{start}Z"));
    // Instants at the ends of the calendar have no local form.
    let Ok(instant) = jiff::Timestamp::from_millisecond(time.millis()) else { return utc };
    let local = instant.to_zoned(zone.clone());
    if local.offset() == Offset::UTC {
        return utc;
    }
    let decimals = if utc.contains('.') { "%.3f" } else { "" };
    local.strftime(&format!("%Y-%m-%dT%H:%M:%S{decimals}%:z")).to_string()
}

/// The distance of an instant from now, for lists on a terminal; `None` elsewhere and with --utc.
pub(crate) fn distance(time: Time) -> Option<String> {
    let is_wanted = is_terminal() && ZONE.get().is_some_and(|(_, utc)| !utc);
    is_wanted.then(|| relative(time.millis(), jiff::Timestamp::now().as_millisecond()))
}

/// `3m ago`, `in 2d`: one unit, rounded down.
fn relative(at: i64, now: i64) -> String {
    let seconds = at.abs_diff(now) / 1000;
    let text = match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        172_800.. => format!("{}d", seconds / 86_400),
    };
    if at > now { format!("in {text}") } else { format!("{text} ago") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_the_local_time_zone_with_its_offset() {
        let time = Time::from_millis(1_767_225_600_000);
        let decimals = Time::from_millis(1_767_225_600_007);
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(written(time, &TimeZone::UTC), "2026-01-01T00:00:00Z");
        assert_eq!(written(time, &zone), "2026-01-01T02:00:00+02:00");
        assert_eq!(written(decimals, &zone), "2026-01-01T02:00:00.007+02:00");
    }

    #[test]
    fn distances_have_one_unit() {
        for (seconds, past, future) in [
            (0, "0s ago", "0s ago"),
            (59, "59s ago", "in 59s"),
            (150, "2m ago", "in 2m"),
            (7_300, "2h ago", "in 2h"),
            (172_799, "47h ago", "in 47h"),
            (864_000, "10d ago", "in 10d"),
        ] {
            assert_eq!(relative(1_000_000_000 - seconds * 1000, 1_000_000_000), past);
            assert_eq!(relative(1_000_000_000 + seconds * 1000, 1_000_000_000), future);
        }
    }
}
