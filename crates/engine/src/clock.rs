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
        let anchor = read(start);
        let (returned, returned_at) = (anchor.wall, anchor.monotonic);
        let (alone, alarm, was_wrong) = (None, None, false);
        let watch = Mutex::new(Watch { anchor, returned, returned_at, alone, alarm, was_wrong });
        WallClock { start, read, watch }
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
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A clock whose two readings the test sets, in seconds.
    fn rigged() -> (Arc<Mutex<Readings>>, WallClock) {
        let readings = Arc::new(Mutex::new(Readings { wall: 100_000, monotonic: 0 }));
        let shared = Arc::clone(&readings);
        let clock = WallClock::with_readings(move || *shared.lock().expect("no panic"));
        (readings, clock)
    }

    fn tick(readings: &Mutex<Readings>, wall: i64, monotonic: i64) {
        let mut readings = readings.lock().expect("no panic");
        readings.wall += wall;
        readings.monotonic += monotonic;
    }

    fn wall(readings: &Mutex<Readings>) -> i64 {
        readings.lock().expect("no panic").wall
    }

    #[test]
    fn time_follows_the_wall_clock_while_both_agree() {
        let (readings, clock) = rigged();
        tick(&readings, 1_500, 1_000);
        assert_eq!(clock.now().millis(), 101_500);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn after_a_small_step_back_time_is_slow_until_the_wall_clock_has_caught_up() {
        let (readings, clock) = rigged();
        assert_eq!(clock.now().millis(), 100_000);
        tick(&readings, -1_000, 0);
        assert_eq!(clock.now().millis(), 100_000, "time never goes backwards");
        tick(&readings, 5_000, 5_000);
        assert_eq!(clock.now().millis(), 104_500);
        assert_eq!(clock.alarm(), None, "the difference is tolerated");
        tick(&readings, 5_000, 5_000);
        assert_eq!(clock.now().millis(), 109_000, "caught up");
        tick(&readings, 1_000, 1_000);
        assert_eq!(clock.now().millis(), 110_000);
    }

    #[test]
    fn a_jump_forward_is_not_followed_and_raises_an_alarm_until_accepted() {
        let (readings, clock) = rigged();
        tick(&readings, 1_000, 1_000);
        assert_eq!(clock.now().millis(), 101_000);
        tick(&readings, 3_600_000, 10);
        assert_eq!(clock.now().millis(), 101_010);
        assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: 3_599_990 }));
        tick(&readings, 5_000, 5_000);
        assert_eq!(clock.now().millis(), 106_010, "usage is metered in full");
        // Rounding errors do not add up over many reads.
        for _ in 0..1_000 {
            tick(&readings, 1, 1);
            clock.now();
        }
        assert_eq!(clock.now().millis(), 107_010);
        assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: 3_599_990 }));
        assert_eq!(clock.accept(), Ok(()));
        assert_eq!(clock.now().millis(), 3_707_000);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn a_jump_that_is_reversed_clears_the_alarm() {
        let (readings, clock) = rigged();
        tick(&readings, 400_000, 10);
        assert_eq!(clock.now().millis(), 100_010);
        assert!(clock.alarm().is_some());
        tick(&readings, -399_500, 490);
        assert_eq!(clock.now().millis(), 100_500);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn time_advances_slowly_after_the_clock_is_set_back() {
        let (readings, clock) = rigged();
        tick(&readings, -600_000, 10);
        assert_eq!(clock.now().millis(), 100_009);
        assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: -600_009 }));
        tick(&readings, 20_000, 20_000);
        assert_eq!(clock.now().millis(), 118_009, "20 s are metered as 18 s");
        // A tenth of the time is caught up: 6 000 s for ten minutes.
        for _ in 0..600 {
            tick(&readings, 10_000, 10_000);
            clock.now();
        }
        assert_eq!(clock.alarm(), None);
        assert_eq!(clock.now().millis(), 100_000 - 600_000 + 20_000 + 6_000_000);
    }

    #[test]
    fn time_advances_from_a_last_record_that_is_ahead_of_the_clock() {
        let (readings, clock) = rigged();
        clock.at_least(Timestamp::from_millis(700_000));
        assert_eq!(clock.now().millis(), 700_000);
        assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: -600_000 }));
        tick(&readings, 20_000, 20_000);
        assert_eq!(clock.now().millis(), 718_000);
        let soon = clock
            .until(Timestamp::from_millis(718_090))
            .expect("a wall clock moves without requests");
        assert!(soon >= Duration::from_millis(100), "{soon:?}");
        clock.at_least(Timestamp::from_millis(600_000));
        assert_eq!(clock.now().millis(), 718_000);
        tick(&readings, 10_000_000, 10_000_000);
        assert_eq!(clock.now().millis(), 10_120_000);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn time_is_slow_while_a_clock_that_jumped_is_still_behind() {
        let (readings, clock) = rigged();
        clock.at_least(Timestamp::from_millis(700_000));
        assert_eq!(clock.now().millis(), 700_000);
        tick(&readings, 310_000, 10_000);
        assert_eq!(clock.now().millis(), 709_000, "slow while the clock is behind");
        assert_eq!(
            clock.alarm(),
            Some(ClockAlarm { ahead_ms: -299_000 }),
            "the clock is not ahead"
        );
        assert_eq!(clock.accept(), Err(299_000), "the same difference as in the alarm");
        tick(&readings, 1_010_000, 10_000);
        assert_eq!(clock.now().millis(), 719_000, "full speed once the clock is not behind");
        tick(&readings, 10_000, 10_000);
        assert_eq!(clock.now().millis(), 729_000);
        assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: 1_000_000 }), "the clock jumped");
    }

    #[test]
    fn a_clock_that_steps_forward_while_it_is_behind_is_followed_when_it_has_caught_up() {
        let (readings, clock) = rigged();
        clock.at_least(Timestamp::from_millis(700_000));
        for _ in 0..10 {
            // Each step of five seconds is more than the tolerated difference.
            tick(&readings, 55_000, 50_000);
            let now = clock.now().millis();
            let ahead_ms = wall(&readings) - now;
            assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms }), "the clock is behind");
            assert_eq!(clock.accept(), Err(-ahead_ms));
        }
        for _ in 0..600 {
            tick(&readings, 10_000, 10_000);
            clock.now();
        }
        assert_eq!(clock.alarm(), None, "the clock caught up and never was ahead");
        assert_eq!(clock.now().millis(), wall(&readings));
    }

    #[test]
    fn a_clock_that_is_behind_cannot_be_accepted() {
        let (readings, clock) = rigged();
        clock.at_least(Timestamp::from_millis(700_000));
        assert_eq!(clock.accept(), Err(600_000));
        tick(&readings, 310_000, 10_000);
        assert_eq!(clock.accept(), Err(299_000));
        assert!(clock.alarm().is_some(), "the alarm is unchanged");
        tick(&readings, 297_000, 0);
        assert_eq!(clock.accept(), Ok(()), "two seconds are tolerated");
        assert_eq!(clock.alarm(), None);
        tick(&readings, 5_000_000, 5_000_000);
        clock.now();
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn slow_drift_is_tolerated() {
        let (readings, clock) = rigged();
        for _ in 0..100 {
            tick(&readings, 61_000, 60_000);
            clock.now();
            assert_eq!(clock.alarm(), None);
        }
        assert_eq!(clock.now().millis(), 100_000 + 6_100_000);
    }

    #[test]
    fn a_manual_clock_moves_only_forward() {
        let clock = ManualClock::new(Timestamp::from_millis(5));
        assert_eq!(clock.set(Timestamp::from_millis(9)), Ok(()));
        assert_eq!(clock.set(Timestamp::from_millis(8)), Err(Timestamp::from_millis(9)));
        assert_eq!(clock.now().millis(), 9);
        assert_eq!(clock.until(Timestamp::from_millis(10)), None);
        assert_eq!(clock.until(Timestamp::from_millis(9)), Some(Duration::ZERO));
    }
}
