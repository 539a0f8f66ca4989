//! Names and units of metrics.

use bursar_journal::{Epoch, JournalError, LeaseError};

use super::*;

#[test]
fn metrics_have_stable_names() {
    let metrics = Metrics::new();
    metrics.request("POST", "/v1/holds".into(), 201, Duration::from_millis(3));
    metrics.problem("not_found");
    metrics.violation();
    metrics.append(LEDGER, Written { took: Duration::from_micros(150), records: 3 });
    let error = JournalError::storage("writing a snapshot", "no answer in time");
    metrics.trouble(LEDGER, &Trouble::NoSnapshot(error.into()));
    metrics.trouble(LEDGER, &Trouble::LeaseNotRenewed(LeaseError::Lost { epoch: Epoch(1) }));
    let (panics, set_aside) = (4, 1);
    let stats = Stats { replayed: 40, replay_until: 90, panics, set_aside, ..Stats::default() };
    metrics.machine(LEDGER, 0, &stats, &Status::Starting);
    let text = metrics.text(2, 7);
    for line in [
        "bursar_http_requests_total{method=\"POST\",route=\"/v1/holds\",status=\"201\"} 1",
        "bursar_problems_total{code=\"not_found\"} 1",
        "bursar_self_check_violations_total 1",
        "bursar_http_in_flight 2",
        "bursar_history_position 7",
        "bursar_journal_append_duration_seconds_count{machine=\"Ledger\"} 1",
        "bursar_journal_batch_records_sum{machine=\"Ledger\"} 3.0",
        "bursar_replay_position{machine=\"Ledger\"} 40",
        "bursar_snapshot_failures_total{machine=\"Ledger\"} 1",
        "bursar_lease_renewal_failures_total{machine=\"Ledger\"} 1",
        "bursar_replay_target{machine=\"Ledger\"} 90",
        "bursar_machine_panics_total{machine=\"Ledger\"} 4",
        "bursar_machine_set_aside{machine=\"Ledger\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
}

#[test]
fn counters_are_counters_and_units_are_base_units() {
    let metrics = Metrics::new();
    let (batches, longest_turn_micros) = (3, 1_500);
    let stats = Stats { batches, longest_turn_micros, ..Stats::default() };
    metrics.machine(LEDGER, 0, &stats, &Status::Serving);
    metrics.heartbeat("eu", Duration::from_millis(2), Some(1_250));
    metrics.time(-250, false);
    let gpus = vec![("H100".to_owned(), 500, 1_500)];
    metrics.region("eu", &RegionCounts { gpus, ..RegionCounts::default() });
    let text = metrics.text(0, 0);
    for line in [
        "# TYPE bursar_journal_batches counter",
        "bursar_journal_batches_total{machine=\"Ledger\"} 3",
        "bursar_machine_longest_turn_seconds{machine=\"Ledger\"} 0.0015",
        "bursar_agent_clock_ahead_seconds{region=\"eu\"} 1.25",
        "bursar_clock_ahead_seconds -0.25",
        "bursar_gpus{region=\"eu\",gpu_type=\"H100\",state=\"used\"} 0.5",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, _) = name.split_once(' ').expect("a name and a type");
        let other = ["_ms", "_micros", "_thousandths", "_percent"];
        assert!(!other.iter().any(|unit| name.ends_with(unit)), "{name}");
    }
}
