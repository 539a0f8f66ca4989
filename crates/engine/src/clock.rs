//! Where time comes from. The only file that reads a clock.
//!
//! A machine's time never runs back. If the wall clock jumps, that is, moves by more than two seconds
//! against the monotonic one, nobody knows which of the two is right: time stands still, so that
//! nothing expires early, and an alarm is up until the clocks agree again or somebody accepts the new
//! time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bursar_core::time::Timestamp;

/// How far the clocks may part within [`ANCHOR_MS`].
const DIVERGENCE_MS: i64 = 2_000;
/// How long one comparison of the clocks lasts; slow drift is forgiven after that.
const ANCHOR_MS: i64 = 60_000;

/// Tells the time to a machine.
pub trait Clock: Send + Sync + 'static {
    /// The present instant; never earlier than what was told before.
    fn now(&self) -> Timestamp;

    /// How long to sleep until `deadline`; nothing if only somebody's call moves this clock.
    fn until(&self, deadline: Timestamp) -> Option<Duration>;

    /// Why time stands still, if it does.
    fn alarm(&self) -> Option<ClockAlarm>;
}

/// The wall clock jumped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClockAlarm {
    /// How far the wall clock is ahead of where the monotonic one expects it; negative: behind.
    pub ahead_ms: i64,
}

/// Two readings taken together, in milliseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Readings {
    /// Since 1970, by the wall clock.
    pub wall: i64,
    /// Since any fixed instant, by the monotonic clock.
    pub monotonic: i64,
}

#[derive(Debug)]
struct Watch {
    anchor: Readings,
    told: i64,
    alarm: Option<ClockAlarm>,
}

impl Watch {
    fn read(&mut self, read: Readings) -> Timestamp {
        let elapsed = read.monotonic - self.anchor.monotonic;
        let ahead_ms = read.wall - self.anchor.wall - elapsed;
        if ahead_ms.abs() > DIVERGENCE_MS {
            self.alarm = Some(ClockAlarm { ahead_ms });
        } else {
            self.alarm = None;
            self.told = self.told.max(read.wall);
            if elapsed >= ANCHOR_MS {
                self.anchor = read;
            }
        }
        Timestamp::from_millis(self.told)
    }
}

/// The system's clocks, watched for jumps.
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

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Time on the monotonic clock since an instant that is the same for the whole process.
#[expect(clippy::disallowed_methods, reason = "this is where clocks are read")]
pub(crate) fn monotonic_since(start: Instant) -> Duration {
    Instant::now().duration_since(start)
}

#[expect(clippy::disallowed_methods, reason = "this is where clocks are read")]
pub(crate) fn monotonic_start() -> Instant {
    Instant::now()
}

impl WallClock {
    /// Reads the system's clocks.
    pub fn new() -> WallClock {
        WallClock::reading(Box::new(system_readings))
    }

    /// Reads other clocks, for tests.
    pub fn with_readings(read: impl Fn() -> Readings + Send + Sync + 'static) -> WallClock {
        WallClock::reading(Box::new(move |_| read()))
    }

    fn reading(read: Box<dyn Fn(Instant) -> Readings + Send + Sync>) -> WallClock {
        let start = monotonic_start();
        let anchor = read(start);
        let watch = Mutex::new(Watch { anchor, told: anchor.wall, alarm: None });
        WallClock { start, read, watch }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        // Nothing that holds this lock can panic half way.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the wall clock's word after a jump: an operator has looked at it.
    pub fn accept(&self) {
        let read = (self.read)(self.start);
        let mut watch = self.watch();
        watch.anchor = read;
        watch.alarm = None;
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
        // While time stands still, look again every second.
        let millis = if self.alarm().is_some() { millis.max(1_000) } else { millis };
        Some(Duration::from_millis(millis.cast_unsigned()))
    }

    fn alarm(&self) -> Option<ClockAlarm> {
        self.watch().alarm
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> ManualClock {
        ManualClock(AtomicI64::new(start.millis()))
    }

    /// Moves the clock to `now`. Says what it shows instead if that would be backwards.
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

    #[test]
    fn time_goes_with_the_wall_clock_while_both_agree() {
        let (readings, clock) = rigged();
        tick(&readings, 1_500, 1_000);
        assert_eq!(clock.now().millis(), 101_500);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn a_small_step_back_lets_time_stand_and_never_run_back() {
        let (readings, clock) = rigged();
        assert_eq!(clock.now().millis(), 100_000);
        tick(&readings, -1_000, 10);
        assert_eq!(clock.now().millis(), 100_000);
        tick(&readings, 1_500, 1_500);
        assert_eq!(clock.now().millis(), 100_500);
    }

    #[test]
    fn a_jump_forward_stops_time_and_raises_the_alarm_until_it_is_accepted() {
        let (readings, clock) = rigged();
        tick(&readings, 3_600_000, 10);
        assert_eq!(clock.now().millis(), 100_000);
        assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: 3_599_990 }));
        tick(&readings, 5_000, 5_000);
        assert_eq!(clock.now().millis(), 100_000, "it does not creep on");
        clock.accept();
        assert_eq!(clock.now().millis(), 3_705_000);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn a_jump_that_is_taken_back_heals_by_itself() {
        let (readings, clock) = rigged();
        tick(&readings, -400_000, 10);
        assert_eq!(clock.now().millis(), 100_000);
        assert!(clock.alarm().is_some());
        tick(&readings, 400_500, 490);
        assert_eq!(clock.now().millis(), 100_500);
        assert_eq!(clock.alarm(), None);
    }

    #[test]
    fn slow_drift_is_forgiven() {
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
