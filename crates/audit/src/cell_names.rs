//! Readable names of the stored numbers of a cell's journal.

use crate::names::Named;

/// Events by tag.
pub(crate) const EVENTS: &[Named] = &[
    ("message_received", &["shard", "number", "position"]),
    ("ledger_told", &["shard", "number", "message"]),
    (
        "configured",
        &[
            "half_life_ms",
            "entry_charge_ms",
            "ageing_after_ms",
            "ageing_one_in",
            "node_lease_ms",
            "heartbeat_ms",
            "meter_slack_ms",
            "requeue_delay_ms",
            "kill_timeout_ms",
            "start_allowance_ms",
            "assumed_runtime_ms",
            "share_preemption",
            "share_minimum_runtime_ms",
            "review_ms",
            "victims_per_review",
            "plan_timeout_ms",
        ],
    ),
    ("price_set", &["model", "price"]),
    ("account_set", &["path", "weight", "frozen", "quota"]),
    ("node_registered", &["node", "offer", "incarnation", "lease_until", "kept_until"]),
    ("node_reported", &["node", "seq", "lease_until"]),
    ("node_lost", &["node"]),
    ("node_drained", &["node"]),
    ("node_resumed", &["node"]),
    ("node_removed", &["node"]),
    ("maintenance_planned", &["id", "from", "to", "nodes"]),
    ("maintenance_began", &["id"]),
    ("maintenance_ended", &["id"]),
    (
        "job_queued",
        &[
            "job",
            "account",
            "class",
            "gpu",
            "models",
            "gpu_memory_mib",
            "cpu_milli",
            "memory_mib",
            "labels",
            "nodes",
            "max_runtime_ms",
            "preemptible",
            "grace_ms",
            "group",
            "max_requeues",
            "submitted_at",
            "attempts_before",
            "payload",
            "class_name",
            "resumable",
        ],
    ),
    ("job_funded", &["job", "attempts_before"]),
    ("job_released", &["job"]),
    ("job_held_by_group", &["job"]),
    ("job_ended", &["job", "outcome"]),
    ("placement_proposed", &["attempt", "model", "members"]),
    ("placement_confirmed", &["attempt", "price", "funded_ms"]),
    ("placement_refused", &["attempt", "blocker"]),
    ("member_started", &["attempt", "node"]),
    ("usage_metered", &["node", "usage"]),
    ("member_ended", &["attempt", "node", "end", "exit_code"]),
    ("funding_set", &["attempt", "funded_ms"]),
    ("funds_needed", &["attempt"]),
    ("funding_ended", &["attempt"]),
    ("stop_ordered", &["attempt", "reason", "kill_at"]),
    ("cancel_noted", &["attempt"]),
    ("kill_ordered", &["attempt", "end_at"]),
    ("attempt_ended", &["attempt", "outcome", "gpu_ms", "exit_code", "requeued"]),
    ("fence_lifted", &["attempt", "node"]),
    ("request_parked", &["class", "request"]),
    ("request_blocked", &["account", "request", "mixed"]),
    ("reservation_made", &["job", "model", "nodes", "start_at", "preempting", "guests"]),
    ("reservation_kept", &["job"]),
    ("reservations_done", &["class", "model"]),
    ("reservation_dropped", &["job"]),
    ("review_began", &[]),
    ("review_passed", &["class"]),
    ("pass_ended", &[]),
    ("class_set", &["class", "preempts"]),
    ("request_done", &["request"]),
    ("answer_kept", &["request", "answer"]),
    ("requests_forgotten", &["requests"]),
    ("set_aside", &["what", "digest"]),
    ("rewound", &["generation", "served"]),
    ("node_cleared", &["node"]),
];

/// Commands by number.
pub(crate) const COMMANDS: &[&str] = &[
    "configure",
    "set_price",
    "set_account",
    "register_node",
    "heartbeat",
    "drain_node",
    "resume_node",
    "remove_node",
    "plan_maintenance",
    "cancel_maintenance",
    "admit_job",
    "cancel_job",
    "withdraw_job",
    "preempt_job",
    "confirm_placement",
    "refuse_placement",
    "set_funding",
    "refuse_funding",
    "set_class",
    "keep_answer",
    "rewind",
];

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/journal-format.md");

    #[test]
    fn the_names_match_the_format_page() {
        let (_, cells) = PAGE.split_once("## Cells").expect("the page has a part on cells");
        let table = cells.lines().skip_while(|line| !line.starts_with("| Tag | Event | Fields |"));
        let rows = table.skip(2).take_while(|line| line.starts_with("| "));
        let documented: Vec<(usize, String)> = rows
            .map(|row| {
                let columns: Vec<&str> = row.split('|').map(str::trim).collect();
                let tag = columns[1].parse().expect("a tag is a number");
                (tag, columns[2].trim_matches('`').to_owned())
            })
            .collect();
        let known = EVENTS.iter().enumerate().map(|(tag, (name, _))| (tag, (*name).to_owned()));
        assert_eq!(documented, known.collect::<Vec<_>>());
        let words = cells.split_whitespace().collect::<Vec<_>>().join(" ");
        for (number, command) in COMMANDS.iter().enumerate() {
            assert!(words.contains(&format!("{number} {command}")), "{number} {command}");
        }
    }
}
