//! Attempts whose GPUs do nothing: two warnings in the job's output, and then, if the node is
//! configured so, its end. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_api::words::length;

use crate::clock::BootTime;
use crate::gpu::sampler::GpuSample;
use crate::reconcile::Local;
use crate::runner::Observed;

/// The longest time between two samples. The activity in a longer gap is unknown.
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
    /// The stop.
    Stop,
}

/// The state of an attempt whose GPUs are idle.
#[derive(Copy, Clone, Debug)]
struct IdleSince {
    since: BootTime,
    /// The last sample.
    seen: BootTime,
    /// The last step, and when it was taken.
    taken: Option<(IdleStep, BootTime)>,
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

    /// Considers samples, which are in the order of time, and returns the steps that are due. A step is
    /// due until it is [taken](Self::took). A GPU that is not known counts as busy.
    pub fn observe(
        &mut self,
        observed: &[Observed],
        samples: &[GpuSample],
    ) -> Vec<(String, IdleStep)> {
        let Some(limits) = self.limits else { return Vec::new() };
        self.idle.retain(|attempt, _| {
            observed.iter().any(|one| one.attempt == *attempt && started(one).is_some())
        });
        let mut steps = Vec::new();
        for one in observed {
            let Some(started) = started(one) else { continue };
            for sample in samples.iter().filter(|sample| sample.at >= started) {
                self.consider(one, sample);
            }
            let known = self.idle.get(&one.attempt).filter(|_| !samples.is_empty());
            if let Some(step) = known.and_then(|known| limits.due(known)) {
                steps.push((one.attempt.clone(), step));
            }
        }
        steps
    }

    /// Notes that a step was taken.
    pub fn took(&mut self, attempt: &str, step: IdleStep) {
        if let Some(known) = self.idle.get_mut(attempt) {
            known.taken = Some((step, known.seen));
        }
    }

    fn consider(&mut self, one: &Observed, sample: &GpuSample) {
        let gpus = one.launch.as_ref().map(|launch| launch.gpus.as_slice()).unwrap_or_default();
        let is_idle = !gpus.is_empty() && gpus.iter().all(|gpu| sample.percent(gpu) == Some(0));
        if !is_idle {
            self.idle.remove(&one.attempt);
            return;
        }
        let begun = IdleSince { since: sample.at, seen: sample.at, taken: None };
        let known = self.idle.entry(one.attempt.clone()).or_insert(begun);
        if sample.at.since(known.seen) > MAX_GAP {
            *known = begun;
        }
        known.seen = sample.at;
    }
}

/// The start of a running attempt, if it is known.
fn started(one: &Observed) -> Option<BootTime> {
    one.record.as_ref().filter(|_| one.local == Local::Running)?.started
}

impl IdleLimits {
    /// The next step. None is skipped, and after each warning the job has the announced time, also
    /// where the warning came late: a job is stopped after two warnings only.
    fn due(&self, known: &IdleSince) -> Option<IdleStep> {
        let twice = self.warn_after * 2;
        let (step, after, pause) = match known.taken.map(|(step, _)| step) {
            None => (IdleStep::Warn, self.warn_after, Duration::ZERO),
            Some(IdleStep::Warn) => (IdleStep::WarnAgain, twice, self.warn_after),
            Some(IdleStep::WarnAgain) => {
                let stop_after = self.stop_after?;
                (IdleStep::Stop, stop_after, stop_after.saturating_sub(twice))
            }
            Some(IdleStep::Stop) => return None,
        };
        let paused = known.taken.is_none_or(|(_, at)| known.seen.since(at) >= pause);
        (known.seen.since(known.since) >= after && paused).then_some(step)
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
    use crate::attempt::process::Identity;
    use crate::attempt::record::{AttemptRecord, Launch};
    use crate::gpu::GpuUse;

    const LIMITS: IdleLimits = IdleLimits {
        warn_after: Duration::from_secs(1800),
        stop_after: Some(Duration::from_secs(7200)),
    };

    /// An attempt that started at this minute.
    fn running(gpus: &[&str], minute: u64) -> Observed {
        let launch = Launch::example(gpus);
        let supervisor = Identity { pid: 1, start_ticks: 1 };
        let mut record = AttemptRecord::claimed("boot".into(), supervisor, at(minute));
        record.started = Some(at(minute));
        Observed {
            attempt: "att_1".into(),
            local: Local::Running,
            launch: Some(launch),
            record: Some(record),
            running_time: Duration::ZERO,
        }
    }

    fn at(minute: u64) -> BootTime {
        BootTime::from_millis(minute * 60_000)
    }

    /// A sample of the GPUs `a` and `b` at a minute.
    fn sample(minute: u64, percent: Option<u32>) -> GpuSample {
        let used =
            percent.map(|utilization_percent| GpuUse { utilization_percent, memory_used_bytes: 0 });
        let gpus = ["a", "b"].map(str::to_owned).into_iter();
        let uses = gpus.filter_map(|gpu| Some((gpu, used?))).collect();
        GpuSample { at: at(minute), uses }
    }

    /// The steps of a watch that takes samples at these minutes, with the activity of the GPUs then.
    fn steps(
        limits: IdleLimits,
        one: &Observed,
        samples: &[(u64, Option<u32>)],
    ) -> Vec<(u64, IdleStep)> {
        let mut watch = IdleWatch::new(Some(limits));
        let mut taken = Vec::new();
        for (minute, percent) in samples {
            let due = watch.observe(std::slice::from_ref(one), &[sample(*minute, *percent)]);
            for (attempt, step) in due {
                watch.took(&attempt, step);
                taken.push((*minute, step));
            }
        }
        taken
    }

    #[test]
    fn two_warnings_come_before_a_stop() {
        use IdleStep::{Stop, Warn, WarnAgain};
        let one = running(&["a", "b"], 0);
        let idle: Vec<(u64, Option<u32>)> = (0..300).map(|minute| (minute, Some(0))).collect();
        let expected = vec![(30, Warn), (60, WarnAgain), (120, Stop)];
        assert_eq!(steps(LIMITS, &one, &idle), expected);
        let warned = IdleLimits { stop_after: None, ..LIMITS };
        assert_eq!(steps(warned, &one, &idle), expected[..2]);
        // A sample for each step: nothing is stopped that was not warned twice.
        let second = Duration::from_secs(1);
        let short = IdleLimits { warn_after: second, stop_after: Some(second * 3) };
        assert_eq!(steps(short, &one, &idle[..9]), [(1, Warn), (2, WarnAgain), (3, Stop)]);
    }

    #[test]
    fn a_late_warning_leaves_the_announced_time() {
        use IdleStep::{Stop, Warn, WarnAgain};
        let minute = Duration::from_secs(60);
        let limits = IdleLimits { warn_after: minute / 2, stop_after: Some(minute / 2 * 3) };
        let second = |second: u64| {
            let at = BootTime::from_millis(second * 1000);
            GpuSample { at, ..sample(0, Some(0)) }
        };
        let mut watch = IdleWatch::new(Some(limits));
        let mut taken = Vec::new();
        // The agent does nothing for 100 s.
        for at in std::iter::once(0).chain((100..200).step_by(5)) {
            for (attempt, step) in watch.observe(&[running(&["a"], 0)], &[second(at)]) {
                watch.took(&attempt, step);
                taken.push((at, step));
            }
        }
        assert_eq!(taken, [(100, Warn), (130, WarnAgain), (160, Stop)]);
    }

    #[test]
    fn a_step_that_did_not_reach_the_job_is_due_again() {
        let one = [running(&["a"], 0)];
        let mut watch = IdleWatch::new(Some(LIMITS));
        let warn = vec![("att_1".to_owned(), IdleStep::Warn)];
        let samples: Vec<GpuSample> = (0..=30).map(|minute| sample(minute, Some(0))).collect();
        assert_eq!(watch.observe(&one, &samples), warn, "one step for all samples of a report");
        assert_eq!(watch.observe(&one, &[]), [], "nothing is known without a sample");
        assert_eq!(watch.observe(&one, &[sample(31, Some(0))]), warn);
        watch.took("att_1", IdleStep::Warn);
        assert_eq!(watch.observe(&one, &[sample(32, Some(0))]), []);
        // The second warning has its time after the first, which came a minute late.
        let samples: Vec<GpuSample> = (33..=61).map(|minute| sample(minute, Some(0))).collect();
        assert_eq!(watch.observe(&one, &samples[..28]), []);
        assert_eq!(watch.observe(&one, &samples[28..])[0].1, IdleStep::WarnAgain);
    }

    #[test]
    fn use_between_two_reports_is_seen_and_looks_before_the_start_do_not_count() {
        let mut watch = IdleWatch::new(Some(LIMITS));
        let one = [running(&["a"], 20)];
        let mut samples: Vec<GpuSample> = (0..=49).map(|minute| sample(minute, Some(0))).collect();
        assert_eq!(watch.observe(&one, &samples), []);
        samples = (50..=90).map(|minute| sample(minute, Some(u32::from(minute == 70)))).collect();
        assert_eq!(watch.observe(&one, &samples), []);
        samples = (91..=101).map(|minute| sample(minute, Some(0))).collect();
        assert_eq!(watch.observe(&one, &samples[..10]), []);
        assert_eq!(watch.observe(&one, &samples[10..])[0].1, IdleStep::Warn);
    }

    #[test]
    fn a_gpu_that_works_or_is_not_known_begins_anew() {
        let one = running(&["a"], 0);
        let samples = |at_29| (0..62).map(move |at| (at, if at == 29 { at_29 } else { Some(0) }));
        for percent in [Some(1), None] {
            let samples: Vec<(u64, Option<u32>)> = samples(percent).collect();
            assert_eq!(steps(LIMITS, &one, &samples), [(60, IdleStep::Warn)], "{percent:?}");
        }
        let gap: Vec<(u64, Option<u32>)> =
            (0..62).filter(|at| *at < 20 || *at > 22).map(|at| (at, Some(0))).collect();
        assert_eq!(steps(LIMITS, &one, &gap), [(53, IdleStep::Warn)], "it did not sample at 21");
        let samples: Vec<(u64, Option<u32>)> = samples(Some(0)).collect();
        assert_eq!(steps(LIMITS, &running(&[], 0), &samples), [], "a job without GPUs");
        assert_eq!(steps(LIMITS, &running(&["c"], 0), &samples), [], "a GPU that is not known");
        let mut stopping = running(&["a"], 0);
        stopping.local = Local::Stopping;
        assert_eq!(steps(LIMITS, &stopping, &samples), []);
        assert_eq!(IdleWatch::new(None).observe(&[one], &[sample(0, Some(0))]), []);
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
