//! How jobs, their attempts, blockers, shares and timelines are laid out.

use std::time::Duration;

use bursar_client::api::Blocker;
use bursar_client::api::amount::Sum;
use bursar_client::api::jobs::job::{
    Attempt, EndReason, Job, JobHold, JobShare, JobState, SubmitJob, Why,
};
use bursar_client::api::jobs::timeline::{Timeline, TimelineEntry};
use bursar_client::api::words::gpu_time;

use crate::arguments::in_one_unit;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::problem::fix;

/// A state in its colour.
fn state_cell(state: JobState) -> Cell {
    let tone = match state {
        JobState::Running | JobState::Succeeded => Tone::Good,
        JobState::Queued | JobState::Starting | JobState::Stopping => Tone::Warning,
        JobState::Failed | JobState::Lost | JobState::OutOfCredits | JobState::TimedOut => {
            Tone::Bad
        }
        JobState::Cancelled => Tone::Plain,
    };
    Cell::new(state.as_str()).with_tone(tone)
}

/// `4 × H100,A100`, with the nodes if there are several.
fn gpus(spec: &SubmitJob) -> String {
    let types = spec.gpus.types.as_deref().map(|types| types.join(",")).unwrap_or_default();
    let types = if types.is_empty() { "any".to_owned() } else { types };
    let amount = match (spec.gpus.share, spec.gpus.count) {
        (Some(share), _) => share.to_string(),
        (None, count) => count.unwrap_or(1).to_string(),
    };
    let nodes = spec.nodes.filter(|nodes| *nodes > 1);
    let nodes = nodes.map(|nodes| format!(" × {nodes} nodes")).unwrap_or_default();
    format!("{amount} × {types}{nodes}")
}

impl Row for Job {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("account"),
        words("name"),
        words("state"),
        words("gpus"),
        words("region"),
        numbers("cost"),
        words("created_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::new(&self.account),
            Cell::maybe(self.spec.name.as_ref()),
            state_cell(self.state),
            Cell::new(gpus(&self.spec)),
            Cell::maybe(self.region.as_ref()),
            Cell::new(self.cost_so_far.unwrap_or(self.charged)),
            Cell::time(self.created_at),
        ]
    }
}

/// What a hold still has: held means the same here as in a balance.
pub(super) fn left(hold: &JobHold) -> Sum {
    Sum::from_micros(hold.amount.micros() - hold.captured.micros())
}

impl View for Job {
    fn sheet(&self) -> Sheet {
        let hold = self.hold.as_ref();
        let fields = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("name", Cell::maybe(self.spec.name.as_ref())),
            ("account", Cell::new(&self.account)),
            ("state", state_cell(self.state)),
            ("gpus", Cell::new(gpus(&self.spec))),
            ("class", Cell::maybe(self.spec.class.as_ref())),
            ("region", Cell::maybe(self.region.as_ref())),
            ("command", Cell::maybe(self.spec.command.as_ref().map(|words| words.join(" ")))),
            ("hold", Cell::maybe(hold.map(|hold| &hold.id))),
            ("held", Cell::maybe(hold.filter(|_| !self.state.is_final()).map(left))),
            ("charged", Cell::new(self.charged)),
            ("cost_so_far", Cell::maybe(self.cost_so_far)),
            ("returned", Cell::new(self.returned)),
            ("position", Cell::maybe(self.position)),
            ("estimated_start_at", Cell::maybe_time(self.estimated_start_at)),
            ("created_at", Cell::time(self.created_at)),
            ("ended_at", Cell::maybe_time(self.ended_at)),
        ]);
        let blockers = self.blockers.as_deref().unwrap_or_default();
        let array: Vec<ArrayJob> = self.array.iter().flatten().cloned().map(ArrayJob).collect();
        fields
            .with_section("attempts", Sheet::list(&numbered(&self.attempts)))
            .with_section("waits for", Sheet::list(blockers))
            .with_section("jobs", Sheet::list(&array))
    }
}

/// A job of an array.
struct ArrayJob(String);

impl Row for ArrayJob {
    const COLUMNS: &'static [Column] = &[words("id")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.0)]
    }
}

/// An attempt and its number from 1, as `bursar logs --attempt` takes it.
struct NumberedAttempt<'a>(usize, &'a Attempt);

fn numbered(attempts: &[Attempt]) -> Vec<NumberedAttempt<'_>> {
    attempts
        .iter()
        .enumerate()
        .map(|(index, attempt)| NumberedAttempt(index + 1, attempt))
        .collect()
}

impl Row for NumberedAttempt<'_> {
    const COLUMNS: &'static [Column] = &[
        numbers("attempt"),
        words("id"),
        words("nodes"),
        words("gpu_type"),
        numbers("per_gpu_hour"),
        words("started_at"),
        words("ended_at"),
        words("end"),
        numbers("exit"),
        numbers("gpu_time"),
        numbers("charged"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let NumberedAttempt(number, attempt) = self;
        vec![
            Cell::new(number),
            Cell::new(&attempt.id),
            Cell::joined(Some(&attempt.nodes)),
            Cell::new(&attempt.gpu_type),
            Cell::new(attempt.per_gpu_hour),
            Cell::maybe_time(attempt.started_at),
            Cell::maybe_time(attempt.ended_at),
            attempt.end_reason.map_or_else(|| Cell::new(""), end_cell),
            Cell::maybe(attempt.exit_code),
            Cell::new(gpu_time(attempt.gpu_ms)),
            Cell::new(attempt.charged),
        ]
    }
}

fn end_cell(reason: EndReason) -> Cell {
    let tone = match reason {
        EndReason::Succeeded => Tone::Good,
        EndReason::Cancelled => Tone::Plain,
        EndReason::Preempted | EndReason::Drained => Tone::Warning,
        EndReason::Failed | EndReason::TimedOut | EndReason::OutOfCredits | EndReason::Lost => {
            Tone::Bad
        }
    };
    Cell::word(&reason).with_tone(tone)
}

impl Row for Blocker {
    const COLUMNS: &'static [Column] = &[words("what"), words("detail"), words("fix")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::word(&self.kind), Cell::new(&self.detail), Cell::new(fix(self))]
    }
}

impl View for Why {
    fn sheet(&self) -> Sheet {
        let fields = Sheet::record([
            ("job", Cell::new(&self.job)),
            ("state", state_cell(self.state)),
            ("position", Cell::maybe(self.position)),
            ("estimated_start_at", Cell::maybe_time(self.estimated_start_at)),
            ("preempted", Cell::maybe(self.preempted.as_ref().map(|cause| &cause.detail))),
        ]);
        let sheet = fields.with_section("waits for", Sheet::list(&self.blockers));
        sheet.with_section("fair shares", Sheet::list(&self.shares))
    }
}

impl Row for JobShare {
    const COLUMNS: &'static [Column] = &[
        words("region"),
        words("account"),
        numbers("weight"),
        numbers("entitled"),
        numbers("received"),
        numbers("usage"),
        words("half_life"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.region),
            Cell::new(&self.account),
            Cell::new(self.weight),
            Cell::new(self.entitled),
            Cell::new(self.received),
            Cell::new(self.usage),
            Cell::new(in_one_unit(Duration::from_secs(self.half_life_seconds))),
        ]
    }
}

impl Row for TimelineEntry {
    const COLUMNS: &'static [Column] =
        &[words("at"), words("source"), words("what"), numbers("amount"), words("detail")];

    fn cells(&self) -> Vec<Cell> {
        let slices = self.slices.as_deref().unwrap_or_default();
        let slices: Vec<String> =
            slices.iter().map(|slice| format!("{} {}", slice.grant, slice.amount)).collect();
        let detail = match slices.is_empty() {
            true => self.detail.clone(),
            false => format!("{} ({})", self.detail, slices.join(", ")),
        };
        vec![
            Cell::time(self.at),
            Cell::new(&self.source),
            Cell::new(&self.kind),
            Cell::maybe(self.amount),
            Cell::new(detail),
        ]
    }
}

impl View for Timeline {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_needs_is_one_short_text() {
        let mut spec = SubmitJob::default();
        assert_eq!(gpus(&spec), "1 × any");
        spec.gpus.types = Some(vec!["H100".into(), "A100".into()]);
        spec.gpus.count = Some(4);
        spec.nodes = Some(2);
        assert_eq!(gpus(&spec), "4 × H100,A100 × 2 nodes");
    }
}
