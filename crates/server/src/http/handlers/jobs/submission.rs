//! Converts the body of a job to the command that submits it, with the present prices.

use bursar_api::jobs::job::{self, JobGpus, MAX_ARRAY, SubmitJob};
use bursar_api::json::convert;
use bursar_api::nodes::node::RunSpec;
use bursar_api::{Amount, Blocker, BlockerType, Code};
use bursar_core::cell::command::GroupSpec;
use bursar_core::cell::ids::ClassRank;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::directory::{Class, Directory};
use bursar_core::ledger::command;
use bursar_core::ledger::credits::price::pinned_price;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::jobs::{
    JobTerms, Offer, OnExhausted, ROLLING_WINDOW_MS, Reserve, WARN_AHEAD_MS,
};
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{
    ClassName, GpuModel, InvalidName, JobName, NAME_FORM, Region, is_valid_name,
};
use bursar_core::opaque::Opaque;
use bursar_core::time::Timestamp;
use serde_json::Value;

use crate::app::App;
use crate::http::convert::{millis, name_list, text};
use crate::http::labels::{check_labels, label_list, memory_mib};
use crate::http::respond::{account_field, new_id};
use crate::request::Failure;

/// The class of a job that names none.
const DEFAULT_CLASS: &str = "normal";
/// The default number of requeues after a node was lost.
const DEFAULT_REQUEUES: u32 = 3;
/// The most GPUs of one node: one bit each.
const MAX_GPUS: u32 = 64;
/// The most nodes of a gang.
const MAX_NODES: u32 = 4096;
/// The most bytes that are stored of a job for the agent.
const MAX_PAYLOAD: usize = 256 << 10;

/// The most bytes of a variable with its name, and of a word of a command, with which Linux starts a
/// process.
const MAX_STRING: usize = (128 << 10) - 1;

/// A submission without its tenant.
pub(super) struct Submission {
    /// The command.
    pub(in crate::http) command: command::SubmitJob,
    /// The resource that it creates, its id, and whether the caller chose the id.
    pub(in crate::http) creates: (Resource, Name, bool),
}

/// A value between 1 and `most`, or `usual` if absent.
fn count(value: Option<u32>, usual: u32, most: u32, field: &str) -> Result<u32, Failure> {
    match value.unwrap_or(usual) {
        value if (1..=most).contains(&value) => Ok(value),
        _ => Err(Failure::invalid(field, format!("must be between 1 and {most}"))),
    }
}

fn demand(gpus: &JobGpus) -> Result<GpuDemand, Failure> {
    let Some(share) = gpus.share else {
        let count = count(gpus.count, 1, MAX_GPUS, "gpus.count")?;
        return Ok(GpuDemand::Whole(u16::try_from(count).unwrap_or(u16::MAX)));
    };
    if gpus.count.is_some() {
        return Err(Failure::invalid("gpus.share", "give either count or share"));
    }
    match share.thousandths().and_then(|thousandths| u16::try_from(thousandths).ok()) {
        Some(thousandths @ 1..1000) => Ok(GpuDemand::Share(thousandths)),
        Some(1000) => Ok(GpuDemand::Whole(1)),
        Some(_) | None => {
            let reason = "must be more than 0 and at most 1, with at most three decimals";
            Err(Failure::invalid("gpus.share", reason))
        }
    }
}

/// Names in the given order, without duplicates.
fn ordered<T: PartialEq>(
    list: Vec<String>,
    field: &str,
    parse: fn(String) -> Result<T, InvalidName>,
) -> Result<Vec<T>, Failure> {
    let mut names = Vec::new();
    for name in name_list(list, field, parse)? {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The acceptable regions: those named, or all.
fn regions(app: &App, named: Option<Vec<String>>) -> Result<Vec<Region>, Failure> {
    let Some(named) = named else {
        return Ok(app.cells.iter().map(|cell| cell.region.clone()).collect());
    };
    let regions = ordered(named, "regions", Region::parse)?;
    match regions.iter().find(|region| app.cells.of_region(region).is_none()) {
        Some(unknown) => {
            Err(Failure::invalid("regions", format!("there is no region `{unknown}`")))
        }
        None => Ok(regions),
    }
}

/// The price of the job on each GPU type in each region that has one, by preference of type.
fn offers(
    directory: &Directory,
    types: &[GpuModel],
    regions: &[Region],
    class: &Class,
    now: Timestamp,
) -> Result<Vec<Offer>, Failure> {
    let mut offers = Vec::new();
    for gpu_type in types {
        for region in regions {
            let Some(price) = directory.price(gpu_type, region, now) else { continue };
            let pinned = pinned_price(price, class.price_multiplier_milli);
            let reason = "the price of its class is more than an amount can be";
            let per_gpu_hour = pinned.ok_or_else(|| Failure::invalid("class", reason))?;
            let (gpu_type, region) = (gpu_type.clone(), region.clone());
            offers.push(Offer { gpu_type, region, per_gpu_hour });
        }
    }
    if offers.is_empty() {
        return Err(unpriced(types, regions, &priced_types(directory, regions, now)));
    }
    Ok(offers)
}

/// No acceptable GPU type has a price: the job could never be paid for, so it can never run.
fn unpriced(types: &[GpuModel], regions: &[Region], priced: &[GpuModel]) -> Failure {
    let wanted = if types.is_empty() { "any GPU".to_owned() } else { types.join(" or ") };
    let mut detail = format!("there is no price for {wanted} in {}", regions.join(" or "));
    if let Some(similar) = types.iter().find_map(|wanted| most_similar(wanted, priced)) {
        detail.push_str(&format!(" (did you mean {similar}?)"));
    }
    let fix = "name types that GET /v1/prices lists, or have the price set";
    let mut failure = Failure::new(Code::Unsatisfiable, format!("{detail}; {fix}"));
    failure.problem.param = Some("gpus.types".to_owned());
    failure.problem.blockers = Some(vec![Blocker::new(BlockerType::GpuType, detail, fix)]);
    failure
}

/// The names as the price list writes them: GPU types match without case.
fn as_priced(types: Vec<GpuModel>, priced: &[GpuModel]) -> Vec<GpuModel> {
    let mut names: Vec<GpuModel> = Vec::new();
    for name in types {
        let same = |known: &&GpuModel| known.eq_ignore_ascii_case(&name);
        let known = if priced.contains(&name) { None } else { priced.iter().find(same) };
        let name = known.cloned().unwrap_or(name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The most changed letters of a name that is suggested.
const MAX_CHANGED_LETTERS: usize = 2;

/// The name that differs least from an unknown one, if it differs little.
fn most_similar<'a>(wanted: &str, known: &'a [GpuModel]) -> Option<&'a GpuModel> {
    let wanted = wanted.to_ascii_lowercase();
    let distance = |name: &GpuModel| changed_letters(&wanted, &name.to_ascii_lowercase());
    let nearest = known.iter().min_by_key(|name| distance(name))?;
    (distance(nearest) <= MAX_CHANGED_LETTERS.min(wanted.len() / 2)).then_some(nearest)
}

/// How many letters must be changed, added or removed to get from one name to the other.
fn changed_letters(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, a) in from.bytes().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (at, b) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

/// All GPU types that have a price in one of the regions.
fn priced_types(directory: &Directory, regions: &[Region], now: Timestamp) -> Vec<GpuModel> {
    let priced = directory.prices_at(now).into_iter();
    let here = priced.filter(|price| price.region.as_ref().is_none_or(|at| regions.contains(at)));
    let mut types: Vec<GpuModel> = here.map(|price| price.gpu_type.clone()).collect();
    types.dedup();
    types
}

fn group(group: Option<job::ConcurrencyGroup>) -> Result<Option<GroupSpec>, Failure> {
    let Some(group) = group else { return Ok(None) };
    if !is_valid_name(&group.name) {
        return Err(Failure::invalid("concurrency_group.name", NAME_FORM));
    }
    if group.limit == 0 {
        return Err(Failure::invalid("concurrency_group.limit", "must be at least 1"));
    }
    Ok(Some(GroupSpec { name: group.name.into(), limit: group.limit }))
}

fn runtime(job: &SubmitJob, reserve: Reserve) -> Result<Option<i64>, Failure> {
    match (job.max_runtime_seconds, reserve) {
        (Some(0), _) => Err(Failure::invalid("max_runtime_seconds", "must be at least 1")),
        (Some(seconds), _) if seconds > 315_360_000 => {
            Err(Failure::invalid("max_runtime_seconds", "must be at most ten years"))
        }
        (Some(seconds), _) => Ok(Some(millis(seconds))),
        (None, Reserve::Rolling { .. }) => Ok(None),
        (None, Reserve::Full) => {
            let reason = "is needed unless reserve is \"rolling\"";
            Err(Failure::invalid("max_runtime_seconds", reason))
        }
    }
}

fn terms(
    job: &SubmitJob,
    name: ClassName,
    class: &Class,
    gpu_types: Vec<GpuModel>,
) -> Result<JobTerms, Failure> {
    let reserve = match job.reserve.unwrap_or_default() {
        job::Reserve::Full => Reserve::Full,
        job::Reserve::Rolling => Reserve::Rolling { window_ms: ROLLING_WINDOW_MS },
    };
    let nodes = count(job.nodes, 1, MAX_NODES, "nodes")?;
    let grace = job.grace_seconds.unwrap_or(class.grace_seconds);
    if grace > 86_400 {
        return Err(Failure::invalid("grace_seconds", "must be at most a day"));
    }
    let cpu_milli = job.cpus.unwrap_or(0).checked_mul(1000);
    let gpu_memory = job.gpus.memory_gib.unwrap_or(0);
    Ok(JobTerms {
        class: name,
        rank: ClassRank(u8::try_from(class.rank).unwrap_or(u8::MAX)),
        gpu: demand(&job.gpus)?,
        gpu_types,
        // Checked above.
        nodes: u16::try_from(nodes).unwrap_or(u16::MAX),
        gpu_memory_mib: memory_mib(gpu_memory, "gpus.memory_gib")?,
        cpu_milli: cpu_milli.ok_or_else(|| Failure::invalid("cpus", "is too large"))?,
        memory_mib: memory_mib(job.memory_gib.unwrap_or(0), "memory_gib")?,
        labels: label_list(job.node_labels.clone(), "node_labels")?,
        max_runtime_ms: runtime(job, reserve)?,
        preemptible: job.preemptible.unwrap_or(class.default_preemptible),
        resumable: job.resumable.unwrap_or(false),
        grace_ms: i64::from(grace) * 1000,
        reserve,
        on_exhausted: match job.on_exhausted.unwrap_or_default() {
            job::OnExhausted::Stop => OnExhausted::Stop,
            job::OnExhausted::Overdraft => OnExhausted::Overdraft,
        },
        group: group(job.concurrency_group.clone())?,
        max_requeues: job.max_requeues.unwrap_or(DEFAULT_REQUEUES),
        warn_ahead_ms: job
            .warn_ahead_seconds
            .map_or(WARN_AHEAD_MS, |ahead| i64::from(ahead) * 1000),
        external: job.external.unwrap_or(false),
    })
}

/// Rejects values with which no process can be started: a variable name with `=` would set another
/// variable, NUL ends a string, and Linux takes no longer strings.
fn check_process(job: &SubmitJob) -> Result<(), Failure> {
    let has_nul = |text: &String| text.contains('\0');
    let has_no_program = |command: &Vec<String>| command.first().is_some_and(String::is_empty);
    if job.command.as_ref().is_some_and(has_no_program) {
        let reason = "begins with a program; leave the field out if there is nothing to run";
        return Err(Failure::invalid("command", reason));
    }
    if job.command.iter().flatten().any(|word| word.len() > MAX_STRING) {
        let reason = format!("a word has at most {MAX_STRING} bytes; put longer ones in a file");
        return Err(Failure::invalid("command", reason));
    }
    if job.command.iter().flatten().any(has_nul) {
        return Err(Failure::invalid("command", "must not have the character NUL in it"));
    }
    if job.workdir.iter().any(has_nul) {
        return Err(Failure::invalid("workdir", "must not have the character NUL in it"));
    }
    for (name, value) in job.env.iter().flatten() {
        if name.is_empty() || name.contains(['=', '\0']) {
            let reason = "names have at least one character, and neither `=` nor NUL";
            return Err(Failure::invalid("env", reason));
        }
        if has_nul(value) {
            return Err(Failure::invalid("env", "values must not have the character NUL in them"));
        }
        // With the `=` between them.
        if name.len() + value.len() >= MAX_STRING {
            let reason = format!(
                "a variable has at most {MAX_STRING} bytes with its name; put longer values in a file"
            );
            return Err(Failure::invalid("env", reason));
        }
    }
    Ok(())
}

/// The specification for the agent.
fn payload(job: &SubmitJob) -> Result<Opaque, Failure> {
    check_process(job)?;
    let spec = RunSpec {
        account: job.account.clone(),
        name: job.name.clone(),
        command: job.command.clone().unwrap_or_default(),
        env: job.env.clone().unwrap_or_default(),
        workdir: job.workdir.clone(),
        labels: check_labels(job.labels.clone(), "labels")?,
        nodes: job.nodes.unwrap_or(1),
        node_names: Vec::new(),
        rank: 0,
        share: job.gpus.share.filter(|share| *share < Amount::from_micros(1_000_000)),
        cpus: job.cpus,
        memory_gib: job.memory_gib,
        max_runtime_seconds: job.max_runtime_seconds,
        // The index of each job is in its name.
        array_index: job.array.map(|_| 0),
        attempt_number: None,
    };
    let text = serde_json::to_string(&spec).expect("a spec has only plain fields");
    if text.len() > MAX_PAYLOAD {
        let reason = "command, env, workdir and labels have at most 256 KiB together";
        return Err(Failure::invalid("env", reason));
    }
    Ok(text.into())
}

/// The specification as the API shows it, with the defaults that apply.
fn submitted(mut job: SubmitJob, terms: &JobTerms, regions: &[Region]) -> Opaque {
    job.id = None;
    job.gpus.types = Some(terms.gpu_types.iter().map(GpuModel::to_string).collect());
    if job.gpus.share.is_none() {
        job.gpus.count = Some(terms.gpu.devices().into());
    }
    job.nodes = Some(terms.nodes.into());
    job.class = Some(terms.class.to_string());
    job.preemptible = Some(terms.preemptible);
    job.resumable = Some(terms.resumable);
    job.grace_seconds = u32::try_from(terms.grace_ms / 1000).ok();
    job.regions = Some(regions.iter().map(Region::to_string).collect());
    job.reserve = Some(job.reserve.unwrap_or_default());
    job.on_exhausted = Some(job.on_exhausted.unwrap_or_default());
    job.warn_ahead_seconds = u32::try_from(terms.warn_ahead_ms / 1000).ok();
    job.max_requeues = Some(terms.max_requeues);
    let text = serde_json::to_string(&job).expect("a job has only plain fields");
    text.into()
}

/// Parses the body of a job.
pub(in crate::http) fn submission(app: &App, body: Value) -> Result<Submission, Failure> {
    let mut job: SubmitJob = convert(body)?;
    let account = account_field(job.account.clone(), "account")?;
    let (id, creates) = new_id(app, Resource::Job, job.id.take(), "job")?;
    text(job.name.clone(), "name", 256)?;
    text(job.workdir.clone(), "workdir", 4096)?;
    let directory = app.directory.current();
    let class_name = ClassName::unchecked(job.class.as_deref().unwrap_or(DEFAULT_CLASS));
    let class = directory.class(&class_name);
    let class = class.ok_or_else(|| Failure::invalid("class", "there is no such class"))?;
    let regions = regions(app, job.regions.clone())?;
    let now = app.clock.now();
    let types = match job.gpus.types.clone() {
        Some(types) => {
            let types = ordered(types, "gpus.types", GpuModel::parse)?;
            as_priced(types, &priced_types(&directory, &regions, now))
        }
        None => priced_types(&directory, &regions, now),
    };
    let terms = terms(&job, class_name, class, types)?;
    let offers = offers(&directory, &terms.gpu_types, &regions, class, now)?;
    let array = match job.array {
        Some(size) => Some(count(Some(size), 1, MAX_ARRAY, "array")?),
        None => None,
    };
    let after = match job.after.clone() {
        Some(after) if after.is_empty() => Vec::new(),
        Some(after) => ordered(after, "after", JobName::parse)?,
        None => Vec::new(),
    };
    let payload = payload(&job)?;
    let submitted = submitted(job, &terms, &regions);
    let hold = app.ids.make("hold", now).into();
    let command = command::SubmitJob {
        id: id.into(),
        account,
        terms,
        offers,
        payload,
        submitted,
        hold,
        array,
        after,
        scope: None,
    };
    Ok(Submission { command, creates })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> GpuModel {
        GpuModel::parse(name).expect("a name")
    }

    fn models(names: &[&str]) -> Vec<GpuModel> {
        names.iter().map(|name| model(name)).collect()
    }

    #[test]
    fn gpu_types_match_without_case() {
        let priced = models(&["A100", "H100", "h200"]);
        let matched = |types: &[&str]| as_priced(models(types), &priced);
        assert_eq!(matched(&["h100", "a100"]), models(&["H100", "A100"]));
        assert_eq!(matched(&["H200", "h200"]), models(&["h200"]));
        assert_eq!(matched(&["B200"]), models(&["B200"]));
    }

    #[test]
    fn a_similar_gpu_type_is_suggested() {
        let priced = models(&["A100", "H100", "L4"]);
        assert_eq!(most_similar("h10", &priced), Some(&model("H100")));
        assert_eq!(most_similar("H1000", &priced), Some(&model("H100")));
        assert_eq!(most_similar("MI300X", &priced), None);
        assert_eq!(most_similar("T", &priced), None);
        assert_eq!(most_similar("H100", &[]), None);
        let detail = unpriced(&models(&["H10"]), &[Region::parse("eu").expect("a name")], &priced)
            .problem
            .detail
            .clone();
        assert!(detail.contains("did you mean H100?"), "{detail}");
    }
}
