//! Readable names of the stored numbers.

/// A name and its field names by key. Names inside the fields are in `forms`.
pub(crate) type Named = (&'static str, &'static [&'static str]);

/// Events by tag.
pub(crate) const EVENTS: &[Named] = &[
    (
        "policy_set",
        &[
            "idempotency_ttl_ms",
            "retention_ms",
            "lateness_ms",
            "compensation_ttl_ms",
            "expiry_waits",
        ],
    ),
    ("account_opened", &["account", "path", "kind", "settings", "fingerprint"]),
    ("account_changed", &["account", "settings", "cleared"]),
    ("account_frozen", &["account", "by_platform"]),
    ("account_unfrozen", &["account"]),
    (
        "grant_issued",
        &[
            "grant",
            "id",
            "account",
            "kind",
            "amount",
            "effective_at",
            "expires_at",
            "priority",
            "restriction",
            "origin",
            "reference",
            "metadata",
            "fingerprint",
        ],
    ),
    ("grant_activated", &["grant"]),
    ("grant_revoked", &["grant", "amount"]),
    ("bucket_expired", &["bucket", "amount"]),
    ("expiry_reversed", &["pieces"]),
    ("return_expired", &["hold", "pieces"]),
    ("return_revoked", &["hold", "pieces"]),
    (
        "hold_placed",
        &[
            "hold",
            "id",
            "account",
            "pieces",
            "expires_at",
            "context",
            "on_expiry",
            "rate",
            "gpu_ms",
            "reference",
            "fingerprint",
            "job",
        ],
    ),
    ("hold_extended", &["hold", "pieces", "gpu_ms", "expires_at"]),
    ("hold_captured", &["hold", "seq", "total", "gpu_ms", "taken", "uncollected"]),
    ("hold_cut", &["hold", "cut"]),
    ("hold_closed", &["hold", "state", "cause", "returned"]),
    (
        "charged",
        &[
            "hold",
            "id",
            "account",
            "pieces",
            "requested",
            "late_for",
            "spendable_after",
            "fingerprint",
        ],
    ),
    ("refunded", &["movement", "hold", "note"]),
    ("credits_moved", &["movement", "from", "to", "note"]),
    ("uncollected_collected", &["movement", "account"]),
    ("budget_set", &["account", "budget", "terms", "period_start", "spent", "held"]),
    ("budget_removed", &["account", "budget"]),
    ("budget_threshold_reached", &["account", "budget", "percent", "used"]),
    ("answered", &["key", "fingerprint", "answer", "request"]),
    ("credits_denied", &["account", "refusal"]),
    ("forgotten", &["answers", "holds", "movements", "buckets", "jobs", "archived"]),
    ("hold_revived", &["hold", "record"]),
    ("region_opened", &["cell", "region", "shard"]),
    ("quota_set", &["account", "region", "quota"]),
    ("quota_removed", &["account", "region"]),
    ("job_submitted", &["job", "order", "after"]),
    ("hold_pinned", &["hold", "rate", "returned", "expires_at"]),
    (
        "attempt_confirmed",
        &["job", "cell", "number", "gpu_type", "members", "per_gpu_hour", "funded_ms"],
    ),
    ("attempt_started", &["job"]),
    ("attempt_funded", &["job", "funded_ms", "overdraft", "short", "credits_ms"]),
    ("attempt_stopping", &["job"]),
    ("attempt_ended", &["job", "end"]),
    ("cancel_asked", &["job"]),
    ("dependencies_met", &["job", "met"]),
    ("job_ended", &["job", "state"]),
    ("held_up_reviewed", &["tenant", "next"]),
    ("cell_told", &["cell", "number", "message"]),
    ("message_received", &["cell", "number", "position"]),
    ("exhaustion_warned", &["job", "ends_at", "then"]),
    ("set_aside", &["what", "digest"]),
    ("region_briefed", &["cell", "next"]),
];

/// Commands by number.
pub(crate) const COMMANDS: &[&str] = &[
    "set_policy",
    "open_account",
    "change_account",
    "freeze_account",
    "unfreeze_account",
    "issue_grant",
    "revoke_grant",
    "place_hold",
    "capture_hold",
    "extend_hold",
    "settle_hold",
    "release_hold",
    "charge",
    "refund",
    "transfer",
    "collect_uncollected",
    "set_budget",
    "remove_budget",
    "revive_hold",
    "open_region",
    "set_quota",
    "remove_quota",
    "submit_job",
    "cancel_job",
    "report_usage",
    "receive",
    "keep_batch",
    "forget",
];

/// Refusals by number.
pub(crate) const REFUSALS: &[&str] = &[
    "invalid_field",
    "idempotency_key_reused",
    "not_found",
    "already_exists",
    "too_late",
    "account_frozen",
    "hold_closed",
    "sequence_conflict",
    "conflict",
    "insufficient_credits",
    "budget_exceeded",
    "quota_exceeded",
    "batch_aborted",
    "frozen_by_platform",
    "forgotten",
];

/// Kinds of records by number.
pub(crate) const KINDS: &[&str] = &["barrier", "decision", "due", "group"];

#[cfg(test)]
mod tests {
    use bursar_journal::record::ledger::{CommandKind, RefusalCode};

    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/journal-format.md");

    /// The table of the ledger's events, the first one with this heading. Similar events share a
    /// row.
    fn documented() -> Vec<(usize, String)> {
        let table = PAGE.lines().skip_while(|line| !line.starts_with("| Tag | Event | Fields |"));
        let rows = table.skip(2).take_while(|line| line.starts_with("| "));
        let mut found = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.split('|').collect();
            for (tag, name) in cells[1].split(',').zip(cells[2].split(',')) {
                let tag = tag.trim().parse().expect("a tag is a number");
                found.push((tag, name.trim().to_owned()));
            }
        }
        found
    }

    #[test]
    fn every_documented_event_has_its_name_here() {
        let known = EVENTS.iter().enumerate().map(|(tag, (name, _))| (tag, (*name).to_owned()));
        assert_eq!(documented(), known.collect::<Vec<_>>());
    }

    #[test]
    fn commands_and_refusals_are_numbered_as_documented() {
        let page = PAGE.replace('\n', " ");
        let listed = |heading: &str| {
            let (_, list) = page.split_once(heading).expect("the page lists them");
            let list = list.split_once('.').map_or(list, |(list, _)| list);
            list.split(',').map(|entry| entry.trim().to_owned()).collect::<Vec<String>>()
        };
        let numbered = |names: &[&str]| {
            let entries = names.iter().enumerate().map(|(number, name)| format!("{number} {name}"));
            entries.collect::<Vec<String>>()
        };
        assert_eq!(listed("Commands:"), numbered(COMMANDS));
        assert_eq!(listed("Refusals:"), numbered(REFUSALS));
    }

    /// An unknown number would make a valid journal look broken.
    #[test]
    fn everything_that_the_journal_can_store_is_known_here() {
        let commands: Vec<&str> = CommandKind::ALL.iter().map(|kind| kind.name()).collect();
        let refusals: Vec<&str> = RefusalCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!((commands.as_slice(), refusals.as_slice()), (COMMANDS, REFUSALS));
    }
}
