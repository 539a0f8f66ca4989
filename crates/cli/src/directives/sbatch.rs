//! `#SBATCH` lines: the common options of Slurm scripts, as options of `bursar run`.

use std::fmt;

/// The translation of all `#SBATCH` lines of a script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Options of `bursar run`.
    pub(crate) options: Vec<String>,
    /// Options of Slurm that have no counterpart and are not followed.
    pub(crate) ignored: Vec<String>,
}

/// Short options and their long names.
const SHORT: &[(&str, &str)] = &[
    ("-A", "--account"),
    ("-a", "--array"),
    ("-c", "--cpus-per-task"),
    ("-d", "--dependency"),
    ("-G", "--gpus"),
    ("-J", "--job-name"),
    ("-N", "--nodes"),
    ("-t", "--time"),
    ("-D", "--chdir"),
    ("-o", "--output"),
    ("-e", "--error"),
    ("-p", "--partition"),
    ("-q", "--qos"),
    ("-n", "--ntasks"),
    ("-C", "--constraint"),
];

/// An option that cannot be followed as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Untranslatable {
    option: String,
    advice: String,
}

impl fmt::Display for Untranslatable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.option, self.advice)
    }
}

fn untranslatable(option: &str, advice: &str) -> Untranslatable {
    Untranslatable { option: option.to_owned(), advice: advice.to_owned() }
}

/// Translates the words of `#SBATCH` lines.
pub(crate) fn translate(words: &[String]) -> Result<Translation, Untranslatable> {
    let mut made = Translation::default();
    let (mut nodes, mut total) = (1, None);
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let short =
            SHORT.iter().find(|(short, _)| name.starts_with(short) && !name.starts_with("--"));
        let name = match short {
            // The value may follow without a space, as in -N2.
            Some((short, long)) => {
                value = value.or_else(|| word.strip_prefix(short).filter(|rest| !rest.is_empty()));
                *long
            }
            None => name,
        };
        let next = words.next_if(|next| value.is_none() && !next.starts_with('-'));
        let value = value.or(next).unwrap_or_default();
        let mut push = |option: &str, value: String| {
            made.options.extend([option.to_owned(), value]);
        };
        match name {
            "--job-name" => push("--name", value.to_owned()),
            "--account" => push("--account", value.to_owned()),
            "--chdir" => push("--workdir", value.to_owned()),
            "--cpus-per-task" => push("--cpus", value.to_owned()),
            "--time" => push("--time", format!("{}s", seconds(value)?)),
            "--mem" => push("--memory", gib(value)?),
            "--nodes" => {
                let wrong = || untranslatable(word, "give one number of nodes");
                nodes = value.parse::<u32>().map_err(|_| wrong())?;
                push("--nodes", value.to_owned());
            }
            "--gres" => push("--gpus", gpus(value.strip_prefix("gpu").unwrap_or(value))?),
            "--gpus-per-node" => push("--gpus", gpus(value)?),
            "--gpus" => total = Some(value.to_owned()),
            "--array" => push("--array", array(value)?),
            "--dependency" => {
                let jobs = value.strip_prefix("afterok:").ok_or_else(|| {
                    untranslatable(word, "only afterok is possible; use --after JOB")
                })?;
                jobs.split(':').for_each(|job| push("--after", job.to_owned()));
            }
            "--no-requeue" => push("--max-requeues", "0".to_owned()),
            "--ntasks" | "--ntasks-per-node" if value != "1" => {
                let reason = "one process is started on each node; start the others from it";
                return Err(untranslatable(word, reason));
            }
            "--ntasks" | "--ntasks-per-node" | "--requeue" | "--export" => {}
            _ => made.ignored.push(name.to_owned()),
        }
    }
    if let Some(total) = total {
        made.options.extend(["--gpus".to_owned(), on_each_node(&total, nodes)?]);
    }
    Ok(made)
}

/// `h100:4`, `:h100:4`, `4` and nothing, as `bursar run --gpus` takes them.
fn gpus(value: &str) -> Result<String, Untranslatable> {
    let value = value.trim_start_matches(':');
    if value.contains(',') {
        let advice = "give one GPU type; alternatives are bursar run --gpus A,B:4";
        return Err(untranslatable(value, advice));
    }
    Ok(if value.is_empty() { "1".to_owned() } else { value.to_owned() })
}

/// GPUs of the whole job, divided among its nodes.
fn on_each_node(total: &str, nodes: u32) -> Result<String, Untranslatable> {
    let option = format!("--gpus={total}");
    let (kind, count) = match total.rsplit_once(':') {
        Some((kind, count)) => (Some(kind), count),
        None => (None, total),
    };
    let count: u32 = count.parse().map_err(|_| untranslatable(&option, "give a number"))?;
    if nodes == 0 || !count.is_multiple_of(nodes) {
        let advice = format!("{count} GPUs cannot be divided among {nodes} nodes");
        return Err(untranslatable(&option, &advice));
    }
    let each = count / nodes;
    Ok(kind.map_or_else(|| each.to_string(), |kind| format!("{kind}:{each}")))
}

/// The seconds of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` and `D-H:M:S`.
fn seconds(value: &str) -> Result<u64, Untranslatable> {
    let wrong = || untranslatable(&format!("--time={value}"), "write 30, 01:30:00 or 2-00:00:00");
    let (days, rest) = match value.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().map_err(|_| wrong())?), rest),
        None => (None, value),
    };
    let parts: Result<Vec<u64>, _> = rest.split(':').map(str::parse::<u64>).collect();
    let units: &[u64] = match (days.is_some(), rest.split(':').count()) {
        (true, 1..=3) => &[3_600, 60, 1],
        (false, 1 | 2) => &[60, 1],
        (false, 3) => &[3_600, 60, 1],
        _ => return Err(wrong()),
    };
    let parts = parts.map_err(|_| wrong())?;
    let sums = parts.iter().zip(units).map(|(part, unit)| part.checked_mul(*unit));
    let sum: Option<u64> = sums.chain([days.unwrap_or(0).checked_mul(86_400)]).sum();
    sum.ok_or_else(wrong)
}

/// Memory in GiB, rounded up. Without a unit Slurm means megabytes.
fn gib(value: &str) -> Result<String, Untranslatable> {
    let wrong = || untranslatable(&format!("--mem={value}"), "write 64G");
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let gib = match value[digits.len()..].to_ascii_uppercase().as_str() {
        "T" | "TB" => number.checked_mul(1_024).ok_or_else(wrong)?,
        "G" | "GB" => number,
        "" | "M" | "MB" => number.div_ceil(1_024),
        "K" | "KB" => number.div_ceil(1_024 * 1_024),
        _ => return Err(wrong()),
    };
    Ok(gib.to_string())
}

/// The size of an array that begins at 0.
fn array(value: &str) -> Result<String, Untranslatable> {
    let wrong = || {
        let advice = "write 0-9; indexes begin at 0, without steps or limits";
        untranslatable(&format!("--array={value}"), advice)
    };
    let last = value.strip_prefix("0-").ok_or_else(wrong)?;
    let last: u32 = last.parse().map_err(|_| wrong())?;
    Ok(last.checked_add(1).ok_or_else(wrong)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Translation, Untranslatable> {
        translate(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn options(line: &str) -> String {
        of(line).expect(line).options.join(" ")
    }

    #[test]
    fn common_options_of_slurm_become_options_of_run() {
        for (line, expected) in [
            ("--job-name=train -t 2:00:00", "--name train --time 7200s"),
            ("-J train --time=1-12", "--name train --time 129600s"),
            ("--gres=gpu:h100:4 --cpus-per-task=16", "--gpus h100:4 --cpus 16"),
            ("--gres=gpu:2 -N2", "--gpus 2 --nodes 2"),
            ("--gpus-per-node=a100:8 --nodes 4", "--gpus a100:8 --nodes 4"),
            ("--gpus=h100:16 -N 2", "--nodes 2 --gpus h100:8"),
            ("--mem=512G", "--memory 512"),
            ("--mem=1500", "--memory 2"),
            ("-A acme:nlp --array=0-9", "--account acme:nlp --array 10"),
            ("--dependency=afterok:a:b --no-requeue", "--after a --after b --max-requeues 0"),
            ("--ntasks=1 --requeue", ""),
        ] {
            assert_eq!(options(line), expected, "{line}");
        }
        for (time, expected) in
            [("30", 1_800), ("30:15", 1_815), ("1-0:30", 88_200), ("0-00:00:05", 5)]
        {
            assert_eq!(seconds(time), Ok(expected), "{time}");
        }
    }

    #[test]
    fn what_has_no_counterpart_is_named_and_what_is_impossible_is_refused() {
        let made = of("-p gpu --output=out-%j.txt --mail-type=END -t 5").expect("a translation");
        assert_eq!(made.ignored, ["--partition", "--output", "--mail-type"]);
        assert_eq!(made.options, ["--time", "300s"]);
        for wrong in [
            "--ntasks=8",
            "--array=1-4",
            "--array=0-9%2",
            "--time=soon",
            "--gpus=3 -N2",
            "--dependency=singleton",
            "--mem=lots",
            "--gres=gpu:a100:1,gpu:h100:1",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
