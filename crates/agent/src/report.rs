//! The reports on the attempts of this node.

use std::collections::BTreeMap;

use bursar_api::nodes::node::{AttemptReport, AttemptState};

use crate::attempt::record::{AttemptRecord, Exit, StopCause};
use crate::reconcile::Local;
use crate::runner::Observed;

/// The most bytes of a message that are reported: a command may be long.
const MAX_MESSAGE_BYTES: usize = 800;

/// The most attempts in a report.
const MAX_REPORTED: usize = 1024;

/// The fewest samples of which an average is reported.
const MIN_SAMPLES: u64 = 2;

/// How busy the GPUs of each attempt were, sampled with each report.
#[derive(Debug, Default)]
pub struct AttemptUtilization(BTreeMap<String, SampleSum>);

/// Samples of one attempt.
#[derive(Copy, Clone, Debug, Default)]
struct SampleSum {
    percent: u64,
    count: u64,
}

impl AttemptUtilization {
    /// Adds a sample of each GPU of each running attempt, and forgets attempts that are gone.
    /// `percent` is how busy a GPU is now, if that is known.
    pub fn observe(&mut self, observed: &[Observed], percent: impl Fn(&str) -> Option<u32>) {
        self.0.retain(|attempt, _| observed.iter().any(|one| one.attempt == *attempt));
        for one in observed.iter().filter(|one| one.local == Local::Running) {
            let gpus = one.launch.iter().flat_map(|launch| &launch.gpus);
            for percent in gpus.filter_map(|gpu| percent(gpu)) {
                let sum = self.0.entry(one.attempt.clone()).or_default();
                sum.percent += u64::from(percent);
                sum.count += 1;
            }
        }
    }

    /// The average of an attempt, for people; `None` if there are too few samples.
    fn words(&self, attempt: &str) -> Option<String> {
        let sum = self.0.get(attempt).filter(|sum| sum.count >= MIN_SAMPLES)?;
        Some(format!("GPU utilisation {} %", sum.percent / sum.count))
    }
}

/// The reports on all attempts. Running ones come first: a missing one would lose its GPUs.
pub fn all(observed: &[Observed], utilization: &AttemptUtilization) -> Vec<AttemptReport> {
    let (over, running): (Vec<&Observed>, Vec<&Observed>) =
        observed.iter().partition(|one| one.local == Local::Ended);
    let running = running.into_iter().filter_map(of);
    let over = over.into_iter().filter_map(|one| {
        let mut report = of(one)?;
        let parts = [report.message.take(), utilization.words(&one.attempt)];
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
    use crate::clock::BootTime;
    use std::time::Duration;

    fn observed(local: Local, exit: Option<Exit>, stop: Option<StopCause>) -> Observed {
        let supervisor = Identity { pid: 1, start_ticks: 1 };
        let mut record =
            AttemptRecord::claimed("boot".into(), supervisor, BootTime::from_millis(0));
        record.exit = exit;
        record.stop = stop;
        let launch = crate::attempt::record::Launch {
            attempt: "att_1".into(),
            job: "job_1".into(),
            node: "n1".into(),
            rank: 0,
            nodes: vec!["n1".into()],
            command: vec!["true".into()],
            env: Default::default(),
            workdir: None,
            gpus: vec!["a".into(), "b".into()],
            run_as: None,
            cgroup: None,
            output_limit: 1,
            machine_env: Default::default(),
            tmp_bytes: None,
        };
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

    #[test]
    fn the_end_says_how_busy_the_gpus_were() {
        let mut utilization = AttemptUtilization::default();
        let running = [observed(Local::Running, None, None)];
        utilization.observe(&running, |_| Some(20));
        let ended = [observed(Local::Ended, Some(Exit::Code(0)), None)];
        let message =
            |utilization: &AttemptUtilization| all(&ended, utilization)[0].message.clone();
        let gpus = running[0].launch.as_ref().map_or(0, |launch| launch.gpus.len());
        if gpus < 2 {
            assert_eq!(message(&utilization), None, "one sample says little");
        }
        utilization.observe(&running, |_| Some(41));
        assert_eq!(message(&utilization).as_deref(), Some("GPU utilisation 30 %"));
        utilization.observe(&ended, |_| Some(100));
        assert_eq!(message(&utilization).as_deref(), Some("GPU utilisation 30 %"));
        utilization.observe(&[], |_| None);
        assert_eq!(message(&utilization), None, "it is forgotten with the attempt");
        let simulated = AttemptUtilization::default();
        assert_eq!(message(&simulated), None);
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
