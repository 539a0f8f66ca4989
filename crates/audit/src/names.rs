//! What the stored numbers are called, for people.

/// A name and the names of the fields by key; fields that are maps themselves stay numbered.
type Named = (&'static str, &'static [&'static str]);

/// Events by tag.
pub(crate) const EVENTS: &[Named] = &[
    ("policy_set", &["idempotency_ttl_ms", "retention_ms", "lateness_ms", "compensation_ttl_ms"]),
    ("account_opened", &["account", "path", "kind", "settings", "fingerprint"]),
    ("account_changed", &["account", "settings"]),
    ("account_frozen", &["account"]),
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
    ("refunded", &["movement", "hold"]),
    ("credits_moved", &["movement", "from", "to"]),
    ("uncollected_collected", &["movement", "account"]),
    ("budget_set", &["account", "budget", "terms", "period_start", "spent", "held"]),
    ("budget_removed", &["account", "budget"]),
    ("budget_threshold_reached", &["account", "budget", "percent", "used"]),
    ("answered", &["key", "fingerprint", "answer"]),
    ("credits_denied", &["account", "refusal"]),
    ("forgotten", &["answers", "holds", "movements", "buckets"]),
    ("hold_revived", &["hold", "record"]),
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
];

/// Kinds of records by number.
pub(crate) const KINDS: &[&str] = &["barrier", "decision", "due", "group"];
