//! Clocks. The only file that reads the system time.
//!
//! A machine's time never goes backwards and never stops. While the wall clock cannot be followed,
//! time advances with the monotonic clock, so that usage is still metered and leases still end, and
//! an alarm is raised:
//! - The wall clock is behind an instant that was journaled or returned before. Time advances at nine
//!   tenths of the monotonic clock until the wall clock has caught up; then it is followed again.
//! - The wall clock jumped ahead of the monotonic clock by more than two seconds. Which of the two is
//!   right is unknown, so nothing may expire by the wall clock: time advances with the monotonic
//!   clock. The wall clock is followed again when the clocks agree or when an operator accepts the
//!   new time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bursar_core::time::Timestamp;
use bursar_seeded::{Bug, seeded};

/// The largest difference between the clocks within [`ANCHOR_MS`].
const DIVERGENCE_MS: i64 = 2_000;
/// The length of one comparison of the clocks. Drift over longer times is accepted.
const ANCHOR_MS: i64 = 60_000;
/// How far answers may be ahead of the last record: an error of the clock may be undetected.
const MARK_MS: i64 = 60_000;
/// How far answers may be ahead of the last record after the wall clock was found wrong.
const WRONG_MARK_MS: i64 = 2_000;
/// The speed of time while the wall clock is behind, as a fraction of the monotonic clock.
const SLOW: (i64, i64) = (9, 10);

/// The time source of a machine.
pub trait Clock: Send + Sync + 'static {
    /// The current time. Never earlier than a time returned before.
    fn now(&self) -> Timestamp;

    /// How long to sleep until `deadline`. `None` if only a request moves this clock.
    fn until(&self, deadline: Timestamp) -> Option<Duration>;

    /// Why the wall clock is not followed. `None` while it is followed.
    fn alarm(&self) -> Option<ClockAlarm>;

    /// Never returns an instant before `journaled` from now on.
    fn at_least(&self, _journaled: Timestamp) {}

    /// How many milliseconds an answer may be ahead of the last record before the time is
    /// journaled. Without the record, a restart could answer as of an earlier instant. A clean stop
    /// always journals the time. `None`: never journaled, because only requests move this clock.
    fn mark_after(&self) -> Option<i64> {
        None
    }

    /// Accepts the wall clock after an operator has checked it.
    ///
    /// # Errors
    /// The number of milliseconds by which the wall clock is behind a time returned before, if that
    /// is more than the tolerance.
    fn accept(&self) -> Result<(), i64> {
        Ok(())
    }
}

/// The alarm raised while the wall clock is not followed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClockAlarm {
    /// Positive: how far the wall clock jumped ahead of the monotonic clock. Negative: how far it
    /// is behind the machine's time.
    pub ahead_ms: i64,
}

/// Two readings taken at the same moment, in milliseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    /// Since 1970, by the wall clock.
    pub wall: i64,
    /// Since a fixed instant, by the monotonic clock.
    pub monotonic: i64,
}

#[derive(Debug)]
struct Watch {
    /// The readings when the clocks last agreed.
    anchor: Readings,
    /// The last time that was returned.
    returned: i64,
    /// The monotonic reading at that instant.
    returned_at: i64,
    /// Set while time advances with the monotonic clock.
    alone: Option<MonotonicTime>,
    alarm: Option<ClockAlarm>,
    /// Whether the wall clock was found wrong since the start. The next start may read an earlier
    /// time.
    was_wrong: bool,
}

/// Time that advances with the monotonic clock alone, from an instant on.
#[derive(Copy, Clone, Debug)]
struct MonotonicTime {
    returned: i64,
    monotonic: i64,
    /// Advances at [`SLOW`], so that the wall clock catches up.
    slowly: bool,
}

impl MonotonicTime {
    fn at(self, monotonic: i64) -> i64 {
        let elapsed = monotonic.saturating_sub(self.monotonic).max(0);
        let passed = if self.slowly { elapsed.saturating_mul(SLOW.0) / SLOW.1 } else { elapsed };
        self.returned.saturating_add(passed)
    }
}

impl Watch {
    fn begin(anchor: Readings) -> Watch {
        let (returned, returned_at) = (anchor.wall, anchor.monotonic);
        Watch { anchor, returned, returned_at, alone: None, alarm: None, was_wrong: false }
    }

    fn read(&mut self, read: Readings) -> Timestamp {
        let elapsed = read.monotonic - self.anchor.monotonic;
        let jump = read.wall - self.anchor.wall - elapsed;
        let behind = match self.alone {
            Some(slow) if slow.slowly => slow.at(read.monotonic),
            _ => self.returned,
        } - read.wall;
        // A clock that is behind and steps forward is not ahead, so there is no new time to accept.
        let is_behind = behind > DIVERGENCE_MS;
        let jumped = jump > DIVERGENCE_MS && !is_behind && !seeded(Bug::FollowsClockJump);
        // A clock that was set back is followed: nothing happens early while it catches up.
        if is_behind || (!jumped && (elapsed >= ANCHOR_MS || jump < -DIVERGENCE_MS)) {
            self.anchor = read;
        }
        if behind > 0 || jumped {
            self.follow_monotonic(read.monotonic, behind > 0);
            let behind = self.returned - read.wall;
            let ahead_ms = if jumped { jump } else { -behind };
            self.alarm = (jumped || behind > DIVERGENCE_MS).then_some(ClockAlarm { ahead_ms });
            self.was_wrong |= self.alarm.is_some();
        } else {
            self.alone = None;
            self.alarm = None;
            self.returned = read.wall;
        }
        self.returned_at = read.monotonic;
        Timestamp::from_millis(self.returned)
    }

    /// Advances without the wall clock. Counts from the instant where this began, so that rounding
    /// errors do not add up.
    fn follow_monotonic(&mut self, monotonic: i64, slowly: bool) {
        let from = MonotonicTime { returned: self.returned, monotonic: self.returned_at, slowly };
        let alone = self.alone.filter(|alone| alone.slowly == slowly).unwrap_or(from);
        self.alone = Some(alone);
        self.returned = alone.at(monotonic).max(self.returned);
    }
}

/// The system clocks, monitored for jumps.
pub struct WallClock {
    start: Instant,
    read: Box<dyn Fn(Instant) -> Readings + Send + Sync>,
    watch: Mutex<Watch>,
}

#[expect(clippy::disallowed_methods, reason = "this is where clocks are read")]
fn system_readings(start: Instant) -> Readings {
    let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    };
    Readings { wall, monotonic: millis(Instant::now().duration_since(start)) }
}

/// The system's wall clock in milliseconds since 1970, whether it is followed or not. Used to
/// compare it with another clock.
pub fn wall_millis() -> i64 {
    system_readings(monotonic_start()).wall
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Time on the monotonic clock since `start`.
#[expect(clippy::disallowed_methods, reason = "this is where clocks are read")]
pub(crate) fn monotonic_since(start: Instant) -> Duration {
    Instant::now().duration_since(start)
}

#[expect(clippy::disallowed_methods, reason = "this is where clocks are read")]
pub(crate) fn monotonic_start() -> Instant {
    Instant::now()
}

/// Time since the system was started, including time while it was suspended.
pub(crate) fn boot_time() -> Duration {
    let read = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    Duration::from(read.expect("Linux has this clock"))
}

impl WallClock {
    /// Reads the system clocks.
    pub fn new() -> WallClock {
        WallClock::reading(Box::new(system_readings))
    }

    /// Reads other clocks. For tests.
    pub fn with_readings(read: impl Fn() -> Readings + Send + Sync + 'static) -> WallClock {
        WallClock::reading(Box::new(move |_| read()))
    }

    fn reading(read: Box<dyn Fn(Instant) -> Readings + Send + Sync>) -> WallClock {
        let start = monotonic_start();
        let watch = Mutex::new(Watch::begin(read(start)));
        WallClock { start, read, watch }
    }

    /// Begins anew with what the system clocks show now, as a new clock would. For a server that waited before it
    /// served: the wall clock may have been wrong when it started. Not for a clock whose time was used.
    pub fn restart(&self) {
        let read = (self.read)(self.start);
        *self.watch() = Watch::begin(read);
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        // Nothing that holds this lock can panic half way.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let read = (self.read)(self.start);
        self.watch().read(read)
    }

    fn until(&self, deadline: Timestamp) -> Option<Duration> {
        let millis = deadline.millis_since(self.now());
        // While time advances slowly the sleep is longer, and the wall clock may be followed again
        // at any moment.
        let millis = match self.watch().alone {
            Some(alone) if alone.slowly => (millis + millis / 8 + 1).min(1_000),
            Some(_) => millis.min(1_000),
            None => millis,
        };
        Some(Duration::from_millis(millis.cast_unsigned()))
    }

    fn alarm(&self) -> Option<ClockAlarm> {
        self.watch().alarm
    }

    fn at_least(&self, journaled: Timestamp) {
        let read = (self.read)(self.start);
        let mut watch = self.watch();
        if watch.returned < journaled.millis() {
            (watch.returned, watch.returned_at, watch.alone) =
                (journaled.millis(), read.monotonic, None);
        }
    }

    fn mark_after(&self) -> Option<i64> {
        Some(if self.watch().was_wrong { WRONG_MARK_MS } else { MARK_MS })
    }

    fn accept(&self) -> Result<(), i64> {
        let read = (self.read)(self.start);
        let mut watch = self.watch();
        let behind = watch.read(read).millis() - read.wall;
        if behind > DIVERGENCE_MS {
            return Err(behind);
        }
        watch.anchor = read;
        watch.read(read);
        Ok(())
    }
}

/// A clock that moves only when it is set.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `start`.
    pub fn new(start: Timestamp) -> ManualClock {
        ManualClock(AtomicI64::new(start.millis()))
    }

    /// Moves the clock to `now`. Returns the current time as an error if `now` is earlier.
    pub fn set(&self, now: Timestamp) -> Result<(), Timestamp> {
        let before = self.0.fetch_max(now.millis(), Ordering::SeqCst);
        if before > now.millis() { Err(Timestamp::from_millis(before)) } else { Ok(()) }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn until(&self, deadline: Timestamp) -> Option<Duration> {
        (deadline <= self.now()).then_some(Duration::ZERO)
    }

    fn alarm(&self) -> Option<ClockAlarm> {
        None
    }
}

#[cfg(test)]
mod tests;
