//! `bursar simulate ablation`: what each rule of the scheduling policy buys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bursar_core::cell::schedule::preemption::rules::{Rule, Rules};
use bursar_sim::ablation::cases::{Half, cases};
use bursar_sim::ablation::{PolicySummary, Variant, study};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::queue::{parse_setting, settings};
use crate::exit::Failure;
use crate::render::{print_line, progress, rounded, table};

#[derive(Args)]
pub(crate) struct AblationArguments {
    /// The folder of the published traces, with jct/. Without it only generated workloads run.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// The half of the workloads to run.
    #[arg(long, value_enum, default_value = "report")]
    half: HalfName,
    /// Leave this rule out of every run; may be given several times.
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    without: Vec<Rule>,
    /// Change a setting of the cell in every run, such as half_life_ms=86400000; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(usize, i64)>,
    /// Run only workloads of this family, such as gang-heavy; may be given several times.
    #[arg(long, value_name = "NAME")]
    family: Vec<String>,
    /// Run only the policy as given, and not again without each of its rules.
    #[arg(long)]
    whole_only: bool,
    /// Print only JSON on standard output.
    #[arg(long)]
    json: bool,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
enum HalfName {
    /// The half on which rules and settings were chosen.
    Tune,
    /// The half on which figures are reported.
    Report,
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let known = || Rule::ALL.map(Rule::name).join(", ");
    let rule = Rule::ALL.into_iter().find(|rule| rule.name() == text);
    rule.ok_or_else(|| format!("no such rule; there are: {}", known()))
}

pub(crate) fn run(arguments: AblationArguments) -> Result<(), Failure> {
    let half = match arguments.half {
        HalfName::Tune => Half::Tune,
        HalfName::Report => Half::Report,
    };
    let mut cases = cases(half, arguments.traces.as_deref())?;
    if let Some(unknown) =
        arguments.family.iter().find(|name| cases.iter().all(|case| case.family != **name))
    {
        let known: std::collections::BTreeSet<&str> =
            cases.iter().map(|case| case.family.as_str()).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            format_args!("there is no family {unknown} in this half"),
            format_args!("use one of {known}"),
        ));
    }
    cases.retain(|case| arguments.family.is_empty() || arguments.family.contains(&case.family));
    let (config, changed) = settings(&arguments.settings);
    let rules = arguments.without.iter().fold(Rules::ALL, |rules, rule| rules.without(*rule));
    let whole = Variant { name: "all rules".into(), rules, config };
    let variants = if arguments.whole_only { vec![whole] } else { Variant::each_rule_off(&whole) };
    let bar = progress((cases.len() * variants.len()) as u64);
    let summaries = study(&cases, &variants, &|| bar.inc(1))?;
    bar.finish_and_clear();
    if arguments.json {
        let report = AblationReport {
            half: half.name(),
            workloads: cases.len(),
            settings: changed,
            without: arguments.without.iter().map(|rule| rule.name()).collect(),
            policies: summaries.iter().map(PolicyReport::of).collect(),
        };
        return print_line(&serde_json::to_string(&report)?);
    }
    print_line(&text_table(&summaries))?;
    print_line(&family_table(&summaries))?;
    print_line(&format!("half {}, {} workloads", half.name(), cases.len()))?;
    changed.iter().try_for_each(|(name, value)| print_line(&format!("setting {name} = {value}")))
}

#[derive(Serialize)]
struct AblationReport {
    half: &'static str,
    workloads: usize,
    /// Settings of the cell that differ from the defaults.
    settings: BTreeMap<&'static str, i64>,
    /// Rules that no run has.
    without: Vec<&'static str>,
    policies: Vec<PolicyReport>,
}

#[derive(Serialize)]
struct PolicyReport {
    policy: String,
    /// Compared with the first policy.
    mean_completion: f64,
    p99_completion: f64,
    /// Compared with shortest remaining time first.
    mean_completion_of_srtf: f64,
    share_error_mean: f64,
    share_error_p95: f64,
    share_error_worst: f64,
    /// Of tenants whose jobs do not resume.
    share_error_p95_not_resumable: f64,
    share_error_p95_beyond_rule: f64,
    starts_per_job: f64,
    wasted_gpu_time: f64,
    longest_wait_hours: f64,
    families: BTreeMap<String, FamilyReport>,
}

#[derive(Serialize)]
struct FamilyReport {
    mean_completion: f64,
    mean_completion_of_srtf: f64,
    share_error_p95: Option<f64>,
    starts_per_job: f64,
}

impl PolicyReport {
    fn of(summary: &PolicySummary) -> PolicyReport {
        let families = summary.families.iter().map(|(name, family)| {
            let report = FamilyReport {
                mean_completion: rounded(family.mean),
                mean_completion_of_srtf: rounded(family.of_srtf),
                share_error_p95: family.error.map(|error| rounded(error.p95)),
                starts_per_job: rounded(family.starts),
            };
            (name.clone(), report)
        });
        PolicyReport {
            policy: summary.name.clone(),
            mean_completion: rounded(summary.mean),
            p99_completion: rounded(summary.p99),
            mean_completion_of_srtf: rounded(summary.of_srtf),
            share_error_mean: rounded(summary.error.mean),
            share_error_p95: rounded(summary.error.p95),
            share_error_worst: rounded(summary.error.worst),
            share_error_p95_not_resumable: rounded(summary.error_of_rest),
            share_error_p95_beyond_rule: rounded(summary.beyond),
            starts_per_job: rounded(summary.starts),
            wasted_gpu_time: rounded(summary.wasted),
            longest_wait_hours: rounded(summary.longest_wait_h),
            families: families.collect(),
        }
    }
}

fn percent(part: f64) -> String {
    format!("{:.1}", 100.0 * part)
}

fn text_table(summaries: &[PolicySummary]) -> String {
    let header = [
        "policy",
        "mean JCT",
        "p99 JCT",
        "of SRTF",
        "share error: mean, %",
        "p95, %",
        "worst, %",
        "not resumable p95, %",
        "beyond the rule p95, %",
        "preemptions/job",
        "wasted GPU time, %",
        "longest wait, h",
    ];
    let rows = summaries.iter().map(|summary| {
        vec![
            summary.name.clone(),
            format!("{:.3}", summary.mean),
            format!("{:.3}", summary.p99),
            format!("{:.3}", summary.of_srtf),
            percent(summary.error.mean),
            percent(summary.error.p95),
            percent(summary.error.worst),
            percent(summary.error_of_rest),
            percent(summary.beyond),
            format!("{:.2}", summary.starts - 1.0),
            percent(summary.wasted),
            format!("{:.1}", summary.longest_wait_h),
        ]
    });
    table(header.map(String::from).to_vec(), rows)
}

/// Mean completion time and 95th percentile of the share error, by family.
fn family_table(summaries: &[PolicySummary]) -> String {
    let families = summaries.first().into_iter().flat_map(|first| first.families.keys());
    let header =
        std::iter::once("mean JCT / share error p95, %").chain(families.map(String::as_str));
    let rows = summaries.iter().map(|summary| {
        let figures = summary.families.values().map(|family| match family.error {
            Some(error) => format!("{:.3} / {}", family.mean, percent(error.p95)),
            None => format!("{:.3}", family.mean),
        });
        std::iter::once(summary.name.clone()).chain(figures).collect()
    });
    table(header.map(String::from).collect(), rows)
}
