//! The workloads of the ablation, in two halves: rules and settings are chosen on one half, and
//! figures are reported on the other.
//!
//! | Half | Traces | Mixes | Generated |
//! |---|---|---|---|
//! | tune | trace3; the queue families with seed 31 | every second | Poisson, bursty and gang-heavy loads, and two whose jobs state their ends; seeds 31 to 36 |
//! | report | trace1, trace3_pr, shockwave; the queue families with seed 51 | the others | all seven loads, seeds 51 to 56 |
//!
//! So days, floods and three traces are never seen while a rule or a setting is chosen.

use std::path::Path;

use crate::families::load::{self, LoadFamily};
use crate::families::queue::{self, QueueFamily};
use crate::queue::Cluster;
use crate::traces::{JobRow, TraceError, read_jobs};

/// Half of the workloads.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// Rules and settings are chosen on it.
    Tune,
    /// Figures are reported on it.
    Report,
}

impl Half {
    /// The name in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Half::Tune => "tune",
            Half::Report => "report",
        }
    }

    /// The seeds of the generated loads.
    fn seeds(self) -> &'static [u64] {
        match self {
            Half::Tune => &[31, 32, 33, 34, 35, 36],
            Half::Report => &[51, 52, 53, 54, 55, 56],
        }
    }
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it belongs to: means are taken over the cases of a family first.
    pub family: String,
    /// Its own name.
    pub name: String,
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// The account of each job.
    pub accounts: Vec<String>,
    /// The cluster.
    pub cluster: Cluster,
}

const EIGHT_NODES: Cluster = Cluster { nodes: 8, gpus_per_node: 8 };

/// GPUs and minutes of the jobs of each of three tenants.
type Mix = [(u32, u32); 3];

/// Tenants with jobs of one kind each and a backlog of more than three days.
const MIXES: [Mix; 16] = [
    [(8, 60), (8, 120), (16, 60)],
    [(1, 120), (2, 30), (8, 60)],
    [(1, 360), (8, 360), (32, 180)],
    [(4, 240), (16, 240), (24, 240)],
    [(32, 120), (8, 200), (1, 90)],
    [(1, 400), (8, 300), (32, 200)],
    [(1, 600), (8, 600), (32, 300)],
    [(1, 1440), (8, 60), (8, 60)],
    [(32, 60), (1, 720), (1, 30)],
    [(64, 60), (1, 60), (8, 60)],
    [(48, 60), (2, 240), (8, 480)],
    [(64, 240), (1, 60), (1, 60)],
    [(64, 600), (1, 600), (8, 600)],
    [(64, 60), (64, 60), (1, 60)],
    [(56, 90), (24, 240), (1, 400)],
    [(48, 180), (48, 60), (8, 60)],
];

/// Among how many tenants the jobs of a trace are dealt out. One: each job is its own user.
const TENANTS: [usize; 5] = [1, 2, 3, 4, 8];

/// The workloads of a half. Without a folder of traces, those are left out.
pub fn cases(half: Half, traces: Option<&Path>) -> Result<Vec<Case>, TraceError> {
    let mut cases = generated(half);
    cases.extend(mixes(half));
    cases.extend(queues(half));
    if let Some(folder) = traces {
        cases.extend(published(half, folder)?);
    }
    Ok(cases)
}

/// The generated loads.
fn generated(half: Half) -> Vec<Case> {
    let seen = |family: &LoadFamily| match family {
        LoadFamily::Poisson
        | LoadFamily::Bursty
        | LoadFamily::GangHeavy
        | LoadFamily::StatedEnds
        | LoadFamily::StatedGangs => true,
        LoadFamily::Diurnal | LoadFamily::TinyFlood => half == Half::Report,
    };
    let families = LoadFamily::ALL.into_iter().filter(seen);
    families
        .flat_map(|family| half.seeds().iter().map(move |seed| (family, *seed)))
        .map(|(family, seed)| {
            let jobs = load::jobs(family, seed);
            let account = |job: &JobRow| format!("lab:{}", job.tenant.as_deref().unwrap_or("t"));
            Case {
                family: family.name().to_string(),
                name: format!("{} {seed}", family.name()),
                accounts: jobs.iter().map(account).collect(),
                jobs,
                cluster: EIGHT_NODES,
            }
        })
        .collect()
}

fn mixes(half: Half) -> Vec<Case> {
    let parity = usize::from(half == Half::Report);
    let of_half = MIXES.into_iter().enumerate().filter(|(place, _)| place % 2 == parity);
    of_half.map(|(_, mix)| mix_case(mix)).collect()
}

fn mix_case(mix: Mix) -> Case {
    let (mut jobs, mut accounts) = (Vec::new(), Vec::new());
    for (tenant, (gpus, minutes)) in mix.into_iter().enumerate() {
        for _ in 0..64 * 4800 / 3 / (gpus * minutes) {
            let duration_ms = i64::from(minutes) * 60_000;
            jobs.push(JobRow {
                tenant: None,
                submit_ms: 0,
                duration_ms,
                gpus,
                resumable: true,
                max_runtime_ms: None,
            });
            accounts.push(format!("lab:t{tenant}"));
        }
    }
    let name = mix.map(|(gpus, minutes)| format!("{gpus}x{minutes}")).join(",");
    Case { family: "mixes".into(), name, jobs, accounts, cluster: EIGHT_NODES }
}

/// The queue families that stand in for the traces, among one and four tenants.
fn queues(half: Half) -> Vec<Case> {
    let seed = match half {
        Half::Tune => 31,
        Half::Report => 51,
    };
    let families = [QueueFamily::Gangs, QueueFamily::GangsAtOnce];
    families
        .into_iter()
        .flat_map(|family| [(family, 1), (family, 4)])
        .map(|(family, tenants)| {
            let name = format!("{} {seed}, {tenants}", family.name());
            dealt(family.name().into(), name, queue::jobs(family, seed), tenants, EIGHT_NODES)
        })
        .collect()
}

fn published(half: Half, folder: &Path) -> Result<Vec<Case>, TraceError> {
    let names: &[&str] = match half {
        Half::Tune => &["trace3.csv"],
        Half::Report => &["trace1.csv", "trace3_pr.csv"],
    };
    let mut cases = Vec::new();
    for name in names {
        let jobs = read_jobs(&folder.join("jct").join(name))?;
        for tenants in TENANTS {
            let family = name.trim_end_matches(".csv").to_string();
            let named = format!("{family}, {tenants}");
            cases.push(dealt(family, named, jobs.clone(), tenants, EIGHT_NODES));
        }
    }
    if half == Half::Report {
        let jobs = read_jobs(&folder.join("jct").join("shockwave_120.trace"))?;
        let cluster = Cluster { nodes: 8, gpus_per_node: 4 };
        cases.push(dealt("shockwave".into(), "shockwave, 1".into(), jobs, 1, cluster));
    }
    Ok(cases)
}

/// A case whose jobs are dealt out among tenants in turn. With one, each job is its own user.
fn dealt(
    family: String,
    name: String,
    jobs: Vec<JobRow>,
    tenants: usize,
    cluster: Cluster,
) -> Case {
    let account = |job: usize| match tenants {
        1 => format!("lab:u{job}"),
        _ => format!("lab:t{}", job % tenants),
    };
    let accounts = (0..jobs.len()).map(account).collect();
    Case { family, name, jobs, accounts, cluster }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_halves_have_no_case_in_common() {
        let names = |half| -> BTreeSet<String> {
            let cases = cases(half, None).expect("no file is read");
            cases.into_iter().map(|case| case.name).collect()
        };
        let (tune, report) = (names(Half::Tune), names(Half::Report));
        assert!(tune.len() > 15 && report.len() > 20, "{} and {}", tune.len(), report.len());
        assert!(tune.is_disjoint(&report));
    }
}
