//! Attempts whose GPUs do nothing: two warnings in the job's output, and then, if the node is
//! configured so, its end. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_api::words::length;

use crate::clock::BootTime;
use crate::reconcile::Local;
use crate::runner::Observed;

/// The longest time between two samples. What happened in a longer one is not known.
const MAX_GAP: Duration = Duration::from_secs(120);

/// When a job with idle GPUs is warned and stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IdleLimits {
    /// The first warning comes after this time, the second after twice this time.
    pub warn_after: Duration,
    /// The job is stopped after this time, which is longer than twice the other; `None`: never.
    pub stop_after: Option<Duration>,
}

/// What to do about an attempt whose GPUs do nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IdleStep {
    /// The first warning.
    Warn,
    /// The second warning.
    WarnAgain,
    /// It is stopped.
    Stop,
}

/// Since when the GPUs of an attempt do nothing, the last look, and the last step that was taken.
#[derive(Copy, Clone, Debug)]
struct IdleSince {
    since: BootTime,
    seen: BootTime,
    taken: Option<IdleStep>,
}

/// Watches the GPUs of attempts. A restart of the agent begins anew.
#[derive(Debug)]
pub struct IdleWatch {
    limits: Option<IdleLimits>,
    idle: BTreeMap<String, IdleSince>,
}

impl IdleWatch {
    /// Watches with these limits; `None`: not at all.
    pub fn new(limits: Option<IdleLimits>) -> IdleWatch {
        IdleWatch { limits, idle: BTreeMap::new() }
    }

    /// Looks at the GPUs of each running attempt, and returns the steps that are due. `percent` is
    /// how busy a GPU is now. One that is not known counts as busy.
    pub fn observe(
        &mut self,
        observed: &[Observed],
        now: BootTime,
        percent: impl Fn(&str) -> Option<u32>,
    ) -> Vec<(String, IdleStep)> {
        let Some(limits) = self.limits else { return Vec::new() };
        let is_idle = |one: &&Observed| {
            let gpus = one.launch.as_ref().map(|launch| launch.gpus.as_slice()).unwrap_or_default();
            one.local == Local::Running
                && !gpus.is_empty()
                && gpus.iter().all(|gpu| percent(gpu) == Some(0))
        };
        let idle: Vec<&str> =
            observed.iter().filter(is_idle).map(|one| one.attempt.as_str()).collect();
        self.idle.retain(|attempt, _| idle.contains(&attempt.as_str()));
        let mut steps = Vec::new();
        for attempt in idle {
            let begun = IdleSince { since: now, seen: now, taken: None };
            let known = self.idle.entry(attempt.to_owned()).or_insert(begun);
            if now.since(known.seen) > MAX_GAP {
                *known = begun;
            }
            known.seen = now;
            if let Some(step) = limits.due(now.since(known.since), known.taken) {
                known.taken = Some(step);
                steps.push((attempt.to_owned(), step));
            }
        }
        steps
    }
}

impl IdleLimits {
    /// The next step after `idle`. No step is skipped: a job is stopped after two warnings only.
    fn due(&self, idle: Duration, taken: Option<IdleStep>) -> Option<IdleStep> {
        let (after, step) = match taken {
            None => (Some(self.warn_after), IdleStep::Warn),
            Some(IdleStep::Warn) => (Some(self.warn_after * 2), IdleStep::WarnAgain),
            Some(IdleStep::WarnAgain) => (self.stop_after, IdleStep::Stop),
            Some(IdleStep::Stop) => (None, IdleStep::Stop),
        };
        after.is_some_and(|after| idle >= after).then_some(step)
    }

    /// The line that a job finds in its output.
    pub fn line(&self, step: IdleStep, job: &str) -> String {
        let words = |time: Duration| length(time.as_secs());
        let end = match self.stop_after {
            Some(stop_after) => format!("It is stopped after {}", words(stop_after)),
            None => "They are charged all the same".to_owned(),
        };
        let (which, idle) = match step {
            IdleStep::Warn => ("first warning", self.warn_after),
            IdleStep::WarnAgain => ("second warning", self.warn_after * 2),
            IdleStep::Stop => {
                let idle = self.stop_after.map(words).unwrap_or_default();
                return format!("[bursar: stopped: the GPUs of this job did nothing for {idle}]");
            }
        };
        let idle = words(idle);
        format!(
            "[bursar: {which}: the GPUs of this job have done nothing for {idle}. {end}. If it hangs: \
             bursar cancel {job}]"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::record::Launch;

    const LIMITS: IdleLimits = IdleLimits {
        warn_after: Duration::from_secs(1800),
        stop_after: Some(Duration::from_secs(7200)),
    };

    fn running(gpus: &[&str]) -> Observed {
        let launch = Launch {
            attempt: "att_1".into(),
            job: "train".into(),
            node: "n1".into(),
            rank: 0,
            nodes: vec!["n1".into()],
            command: vec!["true".into()],
            env: Default::default(),
            workdir: None,
            gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(),
            run_as: None,
            cgroup: None,
            output_limit: 1,
            machine_env: Default::default(),
            tmp_bytes: None,
        };
        Observed {
            attempt: "att_1".into(),
            local: Local::Running,
            launch: Some(launch),
            record: None,
            running_time: Duration::ZERO,
        }
    }

    /// The steps of a watch that looks at these minutes, with what the GPUs do then.
    fn steps(
        limits: IdleLimits,
        one: &Observed,
        looks: &[(u64, Option<u32>)],
    ) -> Vec<(u64, IdleStep)> {
        let mut watch = IdleWatch::new(Some(limits));
        let mut taken = Vec::new();
        for (minute, percent) in looks {
            let now = BootTime::from_millis(minute * 60_000);
            let due = watch.observe(std::slice::from_ref(one), now, |_| *percent);
            taken.extend(due.into_iter().map(|(_, step)| (*minute, step)));
        }
        taken
    }

    #[test]
    fn two_warnings_come_before_a_stop() {
        use IdleStep::{Stop, Warn, WarnAgain};
        let one = running(&["a", "b"]);
        let idle: Vec<(u64, Option<u32>)> = (0..300).map(|minute| (minute, Some(0))).collect();
        let expected = vec![(30, Warn), (60, WarnAgain), (120, Stop)];
        assert_eq!(steps(LIMITS, &one, &idle), expected);
        let warned = IdleLimits { stop_after: None, ..LIMITS };
        assert_eq!(steps(warned, &one, &idle), expected[..2]);
        // A look for each step: nothing is stopped that was not warned twice.
        let second = Duration::from_secs(1);
        let short = IdleLimits { warn_after: second, stop_after: Some(second * 3) };
        assert_eq!(steps(short, &one, &idle[..9]), [(1, Warn), (2, WarnAgain), (3, Stop)]);
    }

    #[test]
    fn a_gpu_that_works_or_is_not_known_begins_anew() {
        let one = running(&["a"]);
        let looks = |at_29| (0..62).map(move |at| (at, if at == 29 { at_29 } else { Some(0) }));
        for percent in [Some(1), None] {
            let looks: Vec<(u64, Option<u32>)> = looks(percent).collect();
            assert_eq!(steps(LIMITS, &one, &looks), [(60, IdleStep::Warn)], "{percent:?}");
        }
        let gap: Vec<(u64, Option<u32>)> =
            (0..62).filter(|at| *at < 20 || *at > 22).map(|at| (at, Some(0))).collect();
        assert_eq!(steps(LIMITS, &one, &gap), [(53, IdleStep::Warn)], "it did not look at 21");
        let looks: Vec<(u64, Option<u32>)> = looks(Some(0)).collect();
        assert_eq!(steps(LIMITS, &running(&[]), &looks), [], "a job without GPUs");
        let mut stopping = running(&["a"]);
        stopping.local = Local::Stopping;
        assert_eq!(steps(LIMITS, &stopping, &looks), []);
        let now = BootTime::from_millis(0);
        assert_eq!(IdleWatch::new(None).observe(&[one], now, |_| Some(0)), []);
    }

    #[test]
    fn a_warning_says_what_happens_and_what_to_do() {
        let line = LIMITS.line(IdleStep::Warn, "train");
        assert_eq!(
            line,
            "[bursar: first warning: the GPUs of this job have done nothing for 30m. It is stopped \
             after 2h. If it hangs: bursar cancel train]"
        );
        let warned = IdleLimits { stop_after: None, ..LIMITS };
        let line = warned.line(IdleStep::WarnAgain, "train");
        assert!(line.contains("second") && line.contains(" 1h. They are charged"), "{line}");
        let line = LIMITS.line(IdleStep::Stop, "train");
        assert_eq!(line, "[bursar: stopped: the GPUs of this job did nothing for 2h]");
    }
}
