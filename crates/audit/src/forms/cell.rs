//! Names inside the fields of a cell's events, and of its messages to a ledger.

use super::Form::{self, Choice, Each, Fields, Plain, Word};
use super::{as_is, bare};

/// The form of a field.
pub(super) fn form_of(event: &str, field: &str) -> &'static Form {
    match (event, field) {
        ("ledger_told", "message") => &TO_LEDGER,
        ("account_set", "quota") => &CELL_QUOTA,
        ("node_registered", "offer") => &NODE_OFFER,
        ("job_queued", "gpu") => &GPU,
        ("job_queued", "group") => &GROUP,
        ("job_ended", "outcome") => &JOB_OUTCOME,
        ("placement_proposed", "members") => &MEMBERS,
        ("placement_refused", "blocker") => &FUNDS_BLOCKER,
        ("member_ended", "end") => &Word(&["succeeded", "failed", "stopped"]),
        ("stop_ordered", "reason") => &STOP_REASON,
        ("attempt_ended", "outcome") => &ATTEMPT_OUTCOME,
        ("request_done", "request") | ("answer_kept", "request") => &REQUEST_KEY,
        ("answer_kept", "answer") => &KEPT_ANSWER,
        ("set_aside", "what") => &CELL_WORK,
        _ => &Plain,
    }
}

pub(super) const GPU: Form = Choice(&[bare("none"), as_is("thousandths"), as_is("count")]);
pub(super) const GROUP: Form = Fields(&[as_is("name"), as_is("limit")]);
pub(super) const MEMBERS: Form = Each(&Fields(&[as_is("node"), as_is("gpus")]));
pub(super) const CELL_QUOTA: Form =
    Fields(&[as_is("gpus"), as_is("total_gpus"), as_is("running_jobs"), as_is("waiting_jobs")]);
pub(super) const FUNDS_BLOCKER: Form = Word(&["credits", "budget", "frozen"]);

const TO_LEDGER: Form = Choice(&[
    ("placement_proposed", &Fields(&[as_is("attempt"), as_is("gpu_type"), ("members", &MEMBERS)])),
    ("attempt_started", &Fields(&[as_is("attempt")])),
    as_is("usage_metered"),
    ("funds_needed", &Fields(&[as_is("attempt")])),
    ("stop_ordered", &Fields(&[as_is("attempt"), ("reason", &STOP_REASON)])),
    (
        "attempt_ended",
        &Fields(&[
            as_is("attempt"),
            ("outcome", &ATTEMPT_OUTCOME),
            as_is("gpu_ms"),
            as_is("exit_code"),
            as_is("requeued"),
        ]),
    ),
    ("job_ended", &Fields(&[as_is("job"), ("outcome", &JOB_OUTCOME)])),
]);
const JOB_OUTCOME: Form = Word(&[
    "succeeded",
    "failed",
    "cancelled",
    "lost",
    "out_of_credits",
    "timed_out",
    "withdrawn",
    "waiting_quota",
    "too_many_demands",
]);
const ATTEMPT_OUTCOME: Form =
    Choice(&[bare("succeeded"), bare("failed"), ("stopped", &STOP_REASON), bare("lost")]);
const STOP_REASON: Form = Choice(&[
    bare("cancelled"),
    ("preempted", &Fields(&[as_is("by"), as_is("for_share"), ("cause", &PREEMPTION_CAUSE)])),
    ("operator", &Fields(&[as_is("by_platform")])),
    bare("drained"),
    bare("max_runtime"),
    bare("out_of_credits"),
]);
const PREEMPTION_CAUSE: Form = Choice(&[
    ("class", &Fields(&[as_is("victim"), as_is("taker")])),
    (
        "share",
        &Fields(&[as_is("victim_used"), as_is("taker_used"), as_is("ran_ms"), as_is("quantum_ms")]),
    ),
    ("own_job", &Fields(&[as_is("victim_gpus"), as_is("taker_gpus")])),
    ("guest", &Fields(&[as_is("start_at")])),
]);
const NODE_OFFER: Form = Fields(&[
    as_is("name"),
    as_is("rack"),
    as_is("model"),
    as_is("gpus"),
    as_is("uuids"),
    as_is("gpu_memory_mib"),
    as_is("cpu_milli"),
    as_is("memory_mib"),
    as_is("labels"),
    as_is("scope"),
]);
const KEPT_ANSWER: Form = Fields(&[as_is("code"), as_is("body"), as_is("scope")]);
const REQUEST_KEY: Form = Fields(&[as_is("key"), as_is("fingerprint")]);
const CELL_WORK: Form = Choice(&[
    ("message", &Fields(&[as_is("shard"), as_is("number")])),
    ("timer", &Fields(&[as_is("at"), ("timer", &TIMER)])),
    ("pass", &Fields(&[as_is("at")])),
]);
const TIMER: Form = Choice(&[
    as_is("node_lease"),
    as_is("max_runtime"),
    as_is("funds_needed"),
    as_is("funds_end"),
    as_is("kill"),
    as_is("kill_timeout"),
    as_is("release"),
    as_is("reservation"),
    as_is("maintenance_begin"),
    as_is("maintenance_end"),
    bare("review"),
    bare("requests"),
]);
