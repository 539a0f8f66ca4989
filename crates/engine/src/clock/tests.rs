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
fn a_clock_that_was_corrected_before_it_is_used_begins_with_the_right_time() {
    let (readings, clock) = rigged();
    tick(&readings, -50_000_000, 10_000);
    clock.restart();
    tick(&readings, 1_000, 1_000);
    assert_eq!(clock.now().millis(), 100_000 - 50_000_000 + 1_000);
    assert_eq!((clock.alarm(), clock.mark_after()), (None, Some(MARK_MS)));
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
    let soon =
        clock.until(Timestamp::from_millis(718_090)).expect("a wall clock moves without requests");
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
    assert_eq!(clock.alarm(), Some(ClockAlarm { ahead_ms: -299_000 }), "the clock is not ahead");
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
