//! The reports on the attempts of this node.

use std::collections::BTreeMap;
use std::time::Duration;

use bursar_api::nodes::node::{AttemptReport, AttemptState};

use crate::attempt::record::{AttemptRecord, Exit, StopCause};
use crate::clock::BootTime;
use crate::gpu::sampler::GpuSample;
use crate::reconcile::Local;
use crate::runner::Observed;

/// The most bytes of a message that are reported: a command may be long.
const MAX_MESSAGE_BYTES: usize = 800;

/// The most attempts in a report.
const MAX_REPORTED: usize = 1024;

/// The fewest samples of which an average is reported.
const MIN_SAMPLES: u32 = 3;

/// Looks this soon after the start do not count: a GPU reports how busy it was in a time before.
const WARM_UP_WINDOW: Duration = Duration::from_secs(5);

/// The longest time that one sample stands for.
const MAX_COVERED: Duration = Duration::from_secs(30);

/// How busy the GPUs of each attempt were.
#[derive(Debug, Default)]
pub struct AttemptUtilization(BTreeMap<String, LookSum>);

/// The samples of the GPUs of one attempt. Each stands for the time since the one before.
#[derive(Copy, Clone, Debug, Default)]
struct LookSum {
    count: u32,
    covered_ms: u64,
    /// Milliseconds × percent.
    busy: u64,
    /// The last sample.
    seen: Option<BootTime>,
}

impl AttemptUtilization {
    /// Adds samples to the attempts that ran then, and forgets attempts that are gone.
    pub fn observe(&mut self, observed: &[Observed], samples: &[GpuSample]) {
        self.0.retain(|attempt, _| observed.iter().any(|one| one.attempt == *attempt));
        for one in observed {
            let gpus = one.launch.as_ref().map(|launch| launch.gpus.as_slice()).unwrap_or_default();
            let Some((from, until)) = counted(one).filter(|_| !gpus.is_empty()) else { continue };
            let sum = self.0.entry(one.attempt.clone()).or_default();
            for sample in samples.iter().filter(|sample| sample.at >= from && sample.at <= until) {
                let known = gpus.iter().map(|gpu| sample.percent(gpu));
                let Some(percents) = known.collect::<Option<Vec<u32>>>() else { continue };
                let covered = sample.at.since(sum.seen.unwrap_or(from)).min(MAX_COVERED);
                let covered_ms = u64::try_from(covered.as_millis()).unwrap_or(0);
                let average = percents.iter().copied().map(u64::from).sum::<u64>()
                    / u64::try_from(gpus.len()).unwrap_or(1);
                sum.count += 1;
                sum.covered_ms += covered_ms;
                sum.busy += covered_ms * average;
                sum.seen = Some(sample.at);
            }
        }
    }

    /// The average of an attempt, for people; `None` if too little of it was sampled.
    fn words(&self, one: &Observed) -> Option<String> {
        let sum = self.0.get(&one.attempt).filter(|sum| sum.count >= MIN_SAMPLES)?;
        let most = u128::from(sum.covered_ms) * 2 >= one.running_time.as_millis();
        let percent =
            (sum.busy + sum.covered_ms / 2).checked_div(sum.covered_ms).filter(|_| most)?;
        Some(format!("GPU utilisation {percent} %"))
    }
}

/// From when to when the samples at the GPUs of an attempt count. Its last part is known once it ended.
fn counted(one: &Observed) -> Option<(BootTime, BootTime)> {
    let record = one.record.as_ref()?;
    let from = record.started?.plus(WARM_UP_WINDOW);
    match one.local {
        Local::Running => Some((from, BootTime::MAX)),
        Local::Ended if record.stop.is_none() => Some((from, record.seen)),
        Local::Ended
        | Local::Absent
        | Local::Launching
        | Local::Stopping
        | Local::Killing
        | Local::Forgotten => None,
    }
}

/// The reports on all attempts. Running ones come first: a missing one would lose its GPUs.
pub fn all(observed: &[Observed], utilization: &AttemptUtilization) -> Vec<AttemptReport> {
    let (over, running): (Vec<&Observed>, Vec<&Observed>) =
        observed.iter().partition(|one| one.local == Local::Ended);
    let running = running.into_iter().filter_map(of);
    let over = over.into_iter().filter_map(|one| {
        let mut report = of(one)?;
        let parts = [report.message.take(), utilization.words(one)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        report.message = (!parts.is_empty()).then(|| parts.join("; "));
        Some(report)
    });
    running.chain(over).take(MAX_REPORTED).collect()
}

/// The report on one attempt. `None` while its process has not started: the order to start it is
/// repeated until then, and no time is measured.
pub fn of(observed: &Observed) -> Option<AttemptReport> {
    let record = observed.record.as_ref()?;
    let state = match observed.local {
        Local::Absent | Local::Launching | Local::Forgotten => return None,
        Local::Running | Local::Stopping | Local::Killing => AttemptState::Running,
        Local::Ended => end(record),
    };
    let over = observed.local == Local::Ended;
    let exit_code = record.exit.as_ref().filter(|_| over).and_then(Exit::code);
    Some(AttemptReport {
        id: observed.attempt.clone(),
        state,
        gpu_ms_total: gpu_ms(observed),
        exit_code,
        message: over.then(|| bounded(message(record), record.output_lost)).flatten(),
        log_tail: None,
    })
}

/// Time multiplied by devices.
fn gpu_ms(observed: &Observed) -> u64 {
    let devices = observed.launch.as_ref().map_or(0, |launch| launch.gpus.len() as u64);
    let millis = u64::try_from(observed.running_time.as_millis()).unwrap_or(u64::MAX);
    millis.saturating_mul(devices)
}

/// The reported end. An ordered end is a stop, whatever the exit code; so is
/// an end that was not observed.
fn end(record: &AttemptRecord) -> AttemptState {
    match (&record.exit, record.stop) {
        (_, Some(StopCause::Ordered | StopCause::LeaseRanOut)) | (None, None) => {
            AttemptState::Stopped
        }
        // The job is at fault, so it does not start again.
        (_, Some(StopCause::Idle)) => AttemptState::Failed,
        (Some(Exit::Code(0)), None) => AttemptState::Succeeded,
        (Some(Exit::Code(_) | Exit::Signal(_) | Exit::NotStarted(_)), None) => AttemptState::Failed,
    }
}

fn message(record: &AttemptRecord) -> Option<String> {
    match (&record.exit, record.stop) {
        (Some(Exit::NotStarted(why)), _) => Some(why.clone()),
        (_, Some(StopCause::LeaseRanOut)) => {
            Some("stopped by its node: the server could not be reached in time".into())
        }
        (_, Some(StopCause::Idle)) => Some(
            "stopped by its node: its GPUs did nothing for too long; see the end of its output"
                .into(),
        ),
        (Some(Exit::Signal(signal)), None) => Some(format!("killed by signal {signal}")),
        (None, None) => {
            Some("its supervisor ended: the node was restarted, or it was killed".into())
        }
        (Some(Exit::Code(_) | Exit::Signal(_)) | None, Some(StopCause::Ordered))
        | (Some(Exit::Code(_)), None) => None,
    }
}

/// A message of a bounded length, with a note where output was lost.
fn bounded(message: Option<String>, output_lost: u64) -> Option<String> {
    let lost = (output_lost > 0)
        .then(|| format!("{output_lost} bytes of its output were lost: the node's disk was full"));
    let message = message.map(|text| {
        let end = text.floor_char_boundary(MAX_MESSAGE_BYTES);
        if end < text.len() { format!("{}…", &text[..end]) } else { text }
    });
    match (message, lost) {
        (Some(message), Some(lost)) => Some(format!("{message}; {lost}")),
        (message, lost) => message.or(lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::process::Identity;
    use crate::gpu::GpuUse;

    fn observed(local: Local, exit: Option<Exit>, stop: Option<StopCause>) -> Observed {
        let supervisor = Identity { pid: 1, start_ticks: 1 };
        let mut record =
            AttemptRecord::claimed("boot".into(), supervisor, BootTime::from_millis(0));
        record.exit = exit;
        record.stop = stop;
        let launch = crate::attempt::record::Launch::example(&["a", "b"]);
        Observed {
            attempt: "att_1".into(),
            local,
            launch: Some(launch),
            record: Some(record),
            running_time: Duration::from_millis(1500),
        }
    }

    #[test]
    fn every_state_is_reported_as_what_the_server_knows() {
        let state = |local| of(&observed(local, Some(Exit::Code(0)), None)).map(|one| one.state);
        for local in Local::ALL {
            let expected = match local {
                Local::Absent | Local::Launching | Local::Forgotten => None,
                Local::Running | Local::Stopping | Local::Killing => Some(AttemptState::Running),
                Local::Ended => Some(AttemptState::Succeeded),
            };
            assert_eq!(state(local), expected, "{local:?}");
        }
    }

    #[test]
    fn an_end_is_a_success_a_failure_or_a_stop() {
        use AttemptState::{Failed, Stopped, Succeeded};
        let ordered = Some(StopCause::Ordered);
        let lease = Some(StopCause::LeaseRanOut);
        for (exit, stop, state, code) in [
            (Some(Exit::Code(0)), None, Succeeded, Some(0)),
            (Some(Exit::Code(3)), None, Failed, Some(3)),
            (Some(Exit::Signal(11)), None, Failed, Some(139)),
            (Some(Exit::NotStarted("no".into())), None, Failed, None),
            (Some(Exit::Code(0)), ordered, Stopped, Some(0)),
            (Some(Exit::Signal(15)), ordered, Stopped, Some(143)),
            (Some(Exit::Signal(9)), lease, Stopped, Some(137)),
            (Some(Exit::Signal(15)), Some(StopCause::Idle), Failed, Some(143)),
            (None, None, Stopped, None),
        ] {
            let report = of(&observed(Local::Ended, exit.clone(), stop)).expect("reported");
            assert_eq!((report.state, report.exit_code), (state, code), "{exit:?} {stop:?}");
        }
    }

    #[test]
    fn time_counts_once_for_each_device() {
        let report = of(&observed(Local::Running, None, None)).expect("reported");
        assert_eq!(report.gpu_ms_total, 3000);
        assert_eq!(report.exit_code, None);
    }

    /// What the end of an attempt says that ran from second 100 for this long, when the samples of
    /// each report are at these seconds after its start, with what both GPUs did then.
    fn end_after(seconds: u64, reports: &[&[(u64, Option<u32>)]]) -> Option<String> {
        let at = |second: u64| BootTime::from_millis((100 + second) * 1000);
        let with = |local, exit| {
            let mut one = observed(local, exit, None);
            let record = one.record.as_mut().expect("it has one");
            record.started = Some(at(0));
            record.seen = at(seconds);
            one.running_time = Duration::from_secs(seconds);
            [one]
        };
        let (running, ended) =
            (with(Local::Running, None), with(Local::Ended, Some(Exit::Code(0))));
        let mut utilization = AttemptUtilization::default();
        for (number, samples) in reports.iter().enumerate() {
            let samples: Vec<GpuSample> = samples
                .iter()
                .map(|(second, percent)| {
                    let used = percent.map(|utilization_percent| GpuUse {
                        utilization_percent,
                        memory_used_bytes: 0,
                    });
                    let gpus = ["a", "b"].map(str::to_owned).into_iter();
                    let uses = gpus.filter_map(|gpu| Some((gpu, used?))).collect();
                    GpuSample { at: at(*second), uses }
                })
                .collect();
            let is_last = number + 1 == reports.len();
            utilization.observe(if is_last { &ended } else { &running }, &samples);
        }
        all(&ended, &utilization)[0].message.clone()
    }

    fn busy(seconds: impl IntoIterator<Item = u64>, percent: u32) -> Vec<(u64, Option<u32>)> {
        seconds.into_iter().map(|second| (second, Some(percent))).collect()
    }

    #[test]
    fn the_end_says_how_busy_the_gpus_were() {
        let said = |text: &str| Some(format!("GPU utilisation {text} %"));
        // The samples right after the start found the GPUs as they were before.
        let start = busy(0..5, 0);
        assert_eq!(end_after(12, &[&start, &busy([6, 11], 99)]), None, "two samples say little");
        let samples = busy([6, 11, 16, 21, 26], 99);
        assert_eq!(end_after(26, &[&start, &samples]), said("99"));
        assert_eq!(end_after(26, &[&start, &samples, &[]]), said("99"), "it is reported again");
        // Many samples in a short time have the weight of that time.
        let parts = [busy([15], 0), busy(16..26, 100), busy([35], 0)];
        let parts: Vec<(u64, Option<u32>)> = parts.concat();
        assert_eq!(end_after(60, &[&parts, &[]]), said("33"));
        // What follows the end is not its own.
        assert_eq!(end_after(26, &[&samples, &busy([27, 32, 37], 0)]), said("99"));
    }

    #[test]
    fn no_average_is_better_than_a_wrong_one() {
        assert_eq!(end_after(60, &[&[(10, None), (20, None), (30, None)], &[]]), None);
        // The agent started again near the end.
        let late = busy([3586, 3591, 3596], 0);
        assert_eq!(end_after(3600, &[&late, &[]]), None);
        assert_eq!(end_after(60, &[]), None, "simulated GPUs");
        let mut utilization = AttemptUtilization::default();
        utilization.0.insert("att_1".into(), LookSum::default());
        utilization.observe(&[], &[]);
        assert!(utilization.0.is_empty(), "it is forgotten with the attempt");
    }

    #[test]
    fn messages_are_short_and_name_lost_output() {
        let long = Some(Exit::NotStarted("x".repeat(40_000)));
        let message = of(&observed(Local::Ended, long, None)).and_then(|one| one.message);
        assert_eq!(message.expect("said").chars().count(), MAX_MESSAGE_BYTES + 1);
        let mut full = observed(Local::Ended, Some(Exit::Code(0)), None);
        full.record.as_mut().expect("it has one").output_lost = 7;
        let message = of(&full).and_then(|one| one.message).expect("said");
        assert!(message.starts_with("7 bytes of its output were lost"), "{message}");
    }

    #[test]
    fn a_report_is_bounded_and_includes_running_attempts() {
        let mut many = vec![observed(Local::Ended, Some(Exit::Code(0)), None); 2000];
        many.push(observed(Local::Running, None, None));
        let reports = all(&many, &AttemptUtilization::default());
        assert_eq!(reports.len(), MAX_REPORTED);
        assert_eq!(reports[0].state, AttemptState::Running);
    }
}
