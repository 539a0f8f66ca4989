//! Names inside the fields of a ledger's events, and of its messages to a cell.

use super::Form::{self, Choice, Each, Fields, Plain, Word};
use super::cell::{CELL_QUOTA, FUNDS_BLOCKER, GPU, GROUP, MEMBERS};
use super::{as_is, bare};

/// The form of a field.
pub(super) fn form_of(event: &str, field: &str) -> &'static Form {
    match (event, field) {
        ("account_opened", "kind") => &Word(&["org", "team", "project", "user"]),
        ("account_opened" | "account_changed", "settings") => &SETTINGS,
        ("account_changed", "cleared") => &CLEARED,
        ("grant_issued", "kind") => &Word(&["promotion", "compensation", "grant", "purchase"]),
        ("grant_issued", "restriction") => &RESTRICTION,
        ("grant_issued", "origin") => &ORIGIN,
        ("hold_placed", "context") => &CONTEXT,
        ("hold_placed", "on_expiry") => &ON_EXPIRY,
        ("hold_placed" | "hold_pinned", "rate") => &RATE,
        ("hold_closed", "state") => &HOLD_STATE,
        ("hold_closed", "cause") => &CAUSE,
        ("refunded" | "credits_moved" | "uncollected_collected", "movement") => &MOVEMENT,
        ("refunded" | "credits_moved", "note") => &NOTE,
        ("budget_set", "terms") => &BUDGET_TERMS,
        ("answered", "answer") => &ANSWER,
        ("credits_denied", "refusal") => &REFUSAL,
        ("forgotten", "archived") => &FORGETTING,
        ("hold_revived", "record") => &ARCHIVED_HOLD,
        ("quota_set", "quota") => &QUOTA,
        ("job_submitted", "order") => &ORDER,
        ("attempt_confirmed", "members") => &MEMBERS,
        ("attempt_ended", "end") => &ATTEMPT_END,
        ("job_ended", "state") => &JOB_STATE,
        ("held_up_reviewed", "next") => &NEXT_REVIEW,
        ("cell_told", "message") => &TO_CELL,
        ("exhaustion_warned", "then") => &ON_EXHAUSTED,
        ("set_aside", "what") => &LEDGER_WORK,
        _ => &Plain,
    }
}

const SETTINGS: Form = Fields(&[
    as_is("name"),
    as_is("weight_milli"),
    as_is("home_region"),
    as_is("metadata"),
    as_is("compensation_ttl_ms"),
    as_is("overdraft_limit"),
]);
const CLEARED: Form = Fields(&[
    as_is("name"),
    as_is("metadata"),
    as_is("compensation_ttl_ms"),
    as_is("overdraft_limit"),
]);
const RESTRICTION: Form =
    Fields(&[as_is("gpu_types"), as_is("regions"), as_is("classes"), as_is("max_share_micro")]);
const CONTEXT: Form = Fields(&[as_is("gpu_types"), as_is("regions"), as_is("class")]);
const ORIGIN: Form = Choice(&[
    bare("issued"),
    ("compensation", &Fields(&[as_is("hold")])),
    ("transfer", &Fields(&[as_is("from")])),
]);
const ON_EXPIRY: Form = Word(&["honor_hold", "strict"]);
const ON_EXHAUSTED: Form = Word(&["stop", "overdraft"]);
const CAUSE: Form = Word(&["holder", "platform"]);
const RATE: Form = Fields(&[as_is("per_gpu_hour"), as_is("share_milli"), as_is("gpu_ms_limit")]);
const MOVEMENT: Form =
    Fields(&[as_is("number"), as_is("id"), as_is("pieces"), as_is("fingerprint")]);
const NOTE: Form = Fields(&[as_is("reason"), as_is("reference")]);
const BUDGET_UNIT: Form = Word(&["credits", "gpu_hours"]);
const BUDGET_TERMS: Form = Fields(&[
    as_is("limit"),
    ("unit", &BUDGET_UNIT),
    ("period", &Word(&["total", "day", "week", "month"])),
    ("mode", &Word(&["hard", "soft"])),
    as_is("thresholds"),
    as_is("utc_offset_minutes"),
]);
const HOLD_STATE: Form = Word(&["open", "settled", "released", "lapsed"]);
const JOB_STATE: Form = Word(&[
    "queued",
    "starting",
    "running",
    "stopping",
    "succeeded",
    "failed",
    "cancelled",
    "lost",
    "out_of_credits",
    "timed_out",
]);
const RESOURCE: Form = Word(&[
    "account",
    "grant",
    "hold",
    "charge",
    "refund",
    "transfer",
    "collection",
    "budget",
    "job",
    "region",
    "quota",
]);

const ANSWER: Form = Choice(&[("reply", &REPLY), ("refusal", &REFUSAL)]);
const REPLY: Form = Choice(&[
    bare("done"),
    as_is("unused"),
    ("grant", &Fields(&[as_is("grant"), as_is("units_by_part")])),
    (
        "hold",
        &Fields(&[
            as_is("hold"),
            ("state", &HOLD_STATE),
            as_is("amount"),
            as_is("captured"),
            as_is("uncollected"),
            as_is("expires_at"),
            as_is("slices"),
        ]),
    ),
    (
        "charge",
        &Fields(&[as_is("hold"), as_is("requested"), as_is("charged"), as_is("spendable_after")]),
    ),
    ("movement", &Fields(&[as_is("number"), as_is("amount")])),
    as_is("unused"),
    ("jobs", &Fields(&[as_is("first"), as_is("count")])),
    ("job", &Fields(&[as_is("job"), ("state", &JOB_STATE)])),
    as_is("region"),
    ("received", &Fields(&[as_is("taken")])),
    (
        "account",
        &Fields(&[
            as_is("account"),
            ("settings", &SETTINGS),
            as_is("frozen"),
            as_is("uncollected"),
        ]),
    ),
    (
        "budget",
        &Fields(&[
            as_is("account"),
            as_is("budget"),
            ("terms", &BUDGET_TERMS),
            as_is("at"),
            as_is("spent"),
            as_is("held"),
        ]),
    ),
    ("archived", &Choice(&[("hold", &ARCHIVED_HOLD), ("movement", &Each(&MOVED_PART))])),
]);
const MOVED_PART: Form = Fields(&[
    ("what", &RESOURCE),
    as_is("tenant"),
    ("movement", &MOVEMENT),
    as_is("expired"),
    as_is("hold"),
]);

const MISSING: Form = Fields(&[("what", &RESOURCE), as_is("name")]);
const BLOCKED: Form = Fields(&[("blockers", &Each(&BLOCKER))]);
const REFUSAL: Form = Choice(&[
    as_is("invalid_field"),
    bare("idempotency_key_reused"),
    ("not_found", &MISSING),
    ("already_exists", &MISSING),
    ("too_late", &Fields(&[as_is("earliest")])),
    ("account_frozen", &BLOCKED),
    ("hold_closed", &Fields(&[("state", &HOLD_STATE)])),
    ("sequence_conflict", &Fields(&[as_is("seen")])),
    ("conflict", &CONFLICT),
    ("insufficient_credits", &BLOCKED),
    ("budget_exceeded", &BLOCKED),
    ("quota_exceeded", &BLOCKED),
    ("batch_aborted", &Fields(&[as_is("answer")])),
    as_is("frozen_by_platform"),
    as_is("forgotten"),
]);
const BLOCKER: Form = Choice(&[
    ("frozen", &Fields(&[as_is("account")])),
    ("credits", &Fields(&[as_is("account"), as_is("requested"), as_is("spendable")])),
    (
        "budget",
        &Fields(&[
            as_is("account"),
            as_is("budget"),
            ("unit", &BUDGET_UNIT),
            as_is("limit"),
            as_is("spent"),
            as_is("held"),
            as_is("requested"),
            as_is("period_end"),
        ]),
    ),
    (
        "waiting_jobs",
        &Fields(&[
            as_is("account"),
            as_is("region"),
            as_is("limit"),
            as_is("waiting"),
            as_is("requested"),
        ]),
    ),
    ("dependency", &Fields(&[as_is("job"), ("state", &JOB_STATE)])),
]);
const CONFLICT: Form = Choice(&[
    ("settle_below_captured", &Fields(&[as_is("captured")])),
    ("refund_above_spent", &Fields(&[as_is("spent")])),
    bare("still_open"),
    bare("no_rate"),
    bare("nothing_uncollected"),
    bare("record_mismatch"),
    bare("held_by_job"),
    ("job_ended", &Fields(&[("state", &JOB_STATE)])),
    bare("not_measured_by_others"),
    bare("dependency_failed"),
    ("message_skipped", &Fields(&[as_is("expected")])),
]);

const FORGETTING: Form = Fields(&[
    as_is("through"),
    as_is("old_holds"),
    as_is("kept"),
    as_is("longer"),
    as_is("kept_movements"),
    as_is("jobs"),
]);
const ARCHIVED_HOLD: Form = Fields(&[("hold", &HOLD), as_is("counted")]);
const HOLD: Form = Fields(&[
    as_is("id"),
    as_is("account"),
    ("kind", &Word(&["hold", "charge"])),
    ("state", &HOLD_STATE),
    as_is("fingerprint"),
    as_is("amount"),
    as_is("captured"),
    as_is("metered"),
    as_is("refunded"),
    as_is("placed_at"),
    as_is("expires_at"),
    as_is("moved_at"),
    as_is("slices"),
    ("rare", &RARE),
    ("charge", &Fields(&[as_is("requested"), as_is("spendable_after"), as_is("late_for")])),
    as_is("closed_at"),
]);
const RARE: Form = Fields(&[
    ("context", &CONTEXT),
    ("on_expiry", &ON_EXPIRY),
    ("rate", &RATE),
    as_is("reference"),
    as_is("last_report"),
    as_is("gpu_ms"),
    as_is("gpu_spent"),
    as_is("draws"),
    as_is("uncollected"),
    ("cause", &CAUSE),
    as_is("revived"),
    as_is("job"),
]);

const QUOTA: Form = Fields(&[as_is("gpus"), as_is("running_jobs"), as_is("waiting_jobs")]);
const ORDER: Form = Fields(&[
    as_is("id"),
    as_is("account"),
    ("terms", &JOB_TERMS),
    ("offers", &Each(&Fields(&[as_is("gpu_type"), as_is("region"), as_is("per_gpu_hour")]))),
    as_is("payload"),
    as_is("shown"),
    as_is("hold"),
    as_is("fingerprint"),
]);
const JOB_TERMS: Form = Fields(&[
    as_is("class"),
    as_is("rank"),
    ("gpu", &GPU),
    as_is("gpu_types"),
    as_is("nodes"),
    as_is("gpu_memory_mib"),
    as_is("cpu_milli"),
    as_is("memory_mib"),
    as_is("labels"),
    as_is("max_runtime_ms"),
    as_is("preemptible"),
    as_is("grace_ms"),
    ("reserve", &Choice(&[bare("full"), ("rolling", &Fields(&[as_is("window_ms")]))])),
    ("on_exhausted", &ON_EXHAUSTED),
    ("group", &GROUP),
    as_is("max_requeues"),
    as_is("warn_ahead_ms"),
    as_is("resumable"),
    as_is("external"),
]);
const ATTEMPT_END: Form = Fields(&[
    as_is("at"),
    (
        "reason",
        &Word(&[
            "succeeded",
            "failed",
            "cancelled",
            "preempted",
            "operator",
            "drained",
            "timed_out",
            "out_of_credits",
            "lost",
        ]),
    ),
    as_is("exit_code"),
    as_is("gpu_ms"),
    as_is("charged"),
    as_is("uncollected"),
    as_is("returned"),
]);
const NEXT_REVIEW: Form = Fields(&[as_is("at"), as_is("from"), as_is("retry_at")]);
const LEDGER_WORK: Form = Choice(&[
    ("message", &Fields(&[as_is("cell"), as_is("number")])),
    ("activation", &Fields(&[as_is("grant")])),
    ("expiry", &Fields(&[as_is("bucket")])),
    ("cut", &Fields(&[as_is("bucket"), as_is("hold")])),
    ("lapse", &Fields(&[as_is("hold"), as_is("expires_at")])),
    ("dependant", &Fields(&[as_is("job")])),
    ("review", &Fields(&[as_is("tenant"), as_is("at")])),
    ("warning", &Fields(&[as_is("job"), as_is("at")])),
    ("briefing", &Fields(&[as_is("cell")])),
    bare("forgetting"),
]);

const TO_CELL: Form = Choice(&[
    (
        "account_policy_changed",
        &Fields(&[as_is("path"), as_is("weight"), as_is("frozen"), ("quota", &CELL_QUOTA)]),
    ),
    ("job_admitted", &JOB_SPEC),
    ("placement_confirmed", &Fields(&[as_is("attempt"), as_is("price"), as_is("funded_ms")])),
    (
        "placement_refused",
        &Fields(&[
            as_is("attempt"),
            ("verdict", &Choice(&[bare("withdraw"), ("wait", &FUNDS_BLOCKER)])),
        ]),
    ),
    ("funding_changed", &Fields(&[as_is("attempt"), as_is("funded_ms")])),
    ("funds_refused", &Fields(&[as_is("attempt")])),
    ("cancel_requested", &Fields(&[as_is("job")])),
    ("job_withdrawn", &Fields(&[as_is("job")])),
]);
const JOB_SPEC: Form = Fields(&[
    as_is("job"),
    as_is("account"),
    as_is("class"),
    ("gpu", &GPU),
    as_is("models"),
    as_is("gpu_memory_mib"),
    as_is("cpu_milli"),
    as_is("memory_mib"),
    as_is("labels"),
    as_is("nodes"),
    as_is("max_runtime_ms"),
    as_is("preemptible"),
    as_is("grace_ms"),
    ("group", &GROUP),
    as_is("max_requeues"),
    as_is("submitted_at"),
    as_is("attempts_before"),
    as_is("payload"),
    as_is("class_name"),
    as_is("resumable"),
]);
