//! `bursar quote`: the cost of a job, and whether it would be accepted.

use bursar_client::api::jobs::job::{Reserve, SubmitJob};
use bursar_client::api::jobs::quote::{Quote, QuoteOffer};
use bursar_client::api::terminal::escaped;
use bursar_client::jobs;
use clap::Args;

use super::arguments::JobArguments;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::render::times;
use crate::session::Session;

#[derive(Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  bursar quote --account acme:nlp --gpus H100:4 --time 2h\n  \
    bursar quote -a acme:nlp -g H100,A100:8 -t 1d --class batch")]
pub(crate) struct QuoteArguments {
    #[command(flatten)]
    job: JobArguments,
}

pub(crate) async fn run(session: &Session, arguments: QuoteArguments) -> Result<(), Failure> {
    let job = arguments.job.into_job(session).await?;
    session.read(jobs::quote(&job)).await
}

impl Row for QuoteOffer {
    const COLUMNS: &'static [Column] = &[
        words("gpu_type"),
        words("region"),
        numbers("per_gpu_hour"),
        numbers("per_hour"),
        numbers("hold"),
        words("estimated_start_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.gpu_type),
            Cell::new(&self.region),
            Cell::new(self.per_gpu_hour),
            Cell::new(self.per_hour),
            Cell::new(self.hold),
            Cell::maybe_time(self.estimated_start_at),
        ]
    }
}

impl View for Quote {
    fn sheet(&self) -> Sheet {
        let answer = if self.admissible {
            Cell::new("yes").with_tone(Tone::Good)
        } else {
            Cell::new("no").with_tone(Tone::Bad)
        };
        let fields = Sheet::record([
            ("accepted_now", answer),
            ("would_hold", Cell::new(self.hold)),
            ("spendable_after", Cell::new(self.spendable_after)),
        ]);
        fields
            .with_section("offers", Sheet::list(&self.offers))
            .with_section("blocked by", Sheet::list(&self.blockers))
    }
}

/// The plan that is shown before a job is submitted.
pub(crate) fn plan(quote: &Quote, job: &SubmitJob) -> String {
    let is_external = job.external == Some(true);
    let mut lines = Vec::new();
    for offer in &quote.offers {
        let start = match offer.estimated_start_at {
            Some(start) if start <= quote.as_of => "starts at once".to_owned(),
            Some(start) => format!("could start at {}", times::local(start)),
            None if is_external => "runs outside Bursar".to_owned(),
            None => "start not known".to_owned(),
        };
        let (kind, region, price) = (&offer.gpu_type, &offer.region, offer.per_hour);
        lines.push(format!("  {kind} in {region}: {price} credits an hour, {start}"));
    }
    // Where a start is known, what is in the way will be gone by then.
    let is_unknown = quote.offers.iter().all(|offer| offer.estimated_start_at.is_none());
    if is_unknown && quote.admissible && !is_external {
        let reasons = quote.blockers.iter();
        lines.extend(reasons.map(|of| format!("  would wait: {}", escaped(&of.detail))));
    }
    let what = match (job.reserve.unwrap_or_default(), job.max_runtime_seconds) {
        (Reserve::Full, Some(seconds)) => format!("for all of {}", span(seconds)),
        (Reserve::Full, None) => "in all".to_owned(),
        (Reserve::Rolling, _) => "for the first hour, extended while it runs".to_owned(),
    };
    lines.push(format!("  holds {} {what}; unused credits are returned", quote.hold));
    lines.push(format!("  {} can still be spent afterwards", quote.spendable_after));
    lines.join("\n")
}

/// Seconds in a readable form.
fn span(seconds: u64) -> String {
    match seconds {
        1 => "1 second".to_owned(),
        60 => "1 minute".to_owned(),
        3600 => "1 hour".to_owned(),
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        172_800.. => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_client::api::amount::Sum;
    use bursar_client::api::{Blocker, BlockerType};

    #[test]
    fn the_plan_says_what_it_costs_and_when_it_starts() {
        let as_of = "2026-01-01T00:00:00Z".parse().expect("an instant");
        let offer = QuoteOffer {
            gpu_type: "H100".into(),
            region: "eu".into(),
            per_gpu_hour: Sum::from_micros(2_500_000),
            per_hour: Sum::from_micros(10_000_000),
            hold: Sum::from_micros(20_000_000),
            estimated_start_at: Some(as_of),
        };
        let job = SubmitJob { max_runtime_seconds: Some(7200), ..SubmitJob::default() };
        let mut quote = Quote {
            offers: vec![offer],
            hold: Sum::from_micros(20_000_000),
            admissible: true,
            blockers: vec![],
            spendable_after: Sum::from_micros(80_000_000),
            as_of,
            position: 1,
        };
        expect_test::expect![[r#"
            plan:
              H100 in eu: 10 credits an hour, starts at once
              holds 20 for all of 2 hours; unused credits are returned
              80 can still be spent afterwards"#]]
        .assert_eq(&format!("plan:\n{}", plan(&quote, &job)));
        quote.offers[0].estimated_start_at = None;
        let full = "no node in eu has 9 H100 GPUs";
        quote.blockers = vec![Blocker::new(BlockerType::GpuType, full, "ask for fewer")];
        let shown = plan(&quote, &job);
        assert!(shown.contains("start not known\n  would wait: no node in eu has 9"), "{shown}");
        let external = SubmitJob { external: Some(true), ..job };
        assert!(plan(&quote, &external).contains("runs outside Bursar"));
    }

    #[test]
    fn spans_are_rounded_down_to_what_people_say() {
        for (seconds, text) in [
            (1, "1 second"),
            (90, "90 seconds"),
            (1800, "30 minutes"),
            (3600, "1 hour"),
            (7200, "2 hours"),
            (259_200, "3 days"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
