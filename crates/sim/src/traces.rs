//! Reads trace files strictly: an invalid line is an error that names it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bursar_core::cell::nodes::node::MAX_GPUS;
use bursar_core::cell::schedule::shape::{GpuDemand, WHOLE_GPU};

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read, or is not well-formed CSV.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: csv::Error,
    },
    /// A required column is missing.
    #[error("{}: there is no column `{column}`; the columns are: {found}", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The missing column.
        column: &'static str,
        /// The columns of the file.
        found: String,
    },
    /// A value is invalid.
    #[error("{}, line {line}: {problem}", path.display())]
    BadValue {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// The file has no rows.
    #[error("{}: no rows below the header", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// One machine of a cluster trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Main memory, in MiB.
    pub memory_mib: u32,
    /// The number of GPUs.
    pub gpus: u16,
    /// Their model; empty if there are none.
    pub model: String,
}

/// One task of a cluster trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Its name.
    pub name: String,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Main memory, in MiB.
    pub memory_mib: u32,
    /// The requested GPUs, or a share of one.
    pub gpu: GpuDemand,
    /// Accepted models. Empty means any.
    pub models: Vec<String>,
}

/// Reads the machines of a cluster: `sn,cpu_milli,memory_mib,gpu,model`.
pub fn read_nodes(path: &Path) -> Result<Vec<NodeRow>, TraceError> {
    let mut table = Table::open(path, ["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let mut names = BTreeSet::new();
    let mut nodes = Vec::new();
    while let Some(row) = table.next_row()? {
        let node = NodeRow {
            name: row.new_name(0, &mut names)?,
            cpu_milli: row.number(1)?,
            memory_mib: row.number(2)?,
            gpus: row.number(3)?,
            model: row.text(4).to_string(),
        };
        if usize::from(node.gpus) > MAX_GPUS {
            return Err(row.bad(format!("{} GPUs; a node has at most {MAX_GPUS}", node.gpus)));
        }
        if node.gpus > 0 && node.model.is_empty() {
            return Err(row.bad("a node with GPUs needs a model".into()));
        }
        nodes.push(node);
    }
    table.not_empty(nodes)
}

/// Reads the tasks of a cluster: `name,cpu_milli,memory_mib,num_gpu,gpu_milli`, and `gpu_spec` if
/// the file has it. Other columns are ignored.
pub fn read_tasks(path: &Path) -> Result<Vec<TaskRow>, TraceError> {
    let needed = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
    let mut table = Table::open(path, needed)?;
    let spec_column = table.optional_column("gpu_spec");
    let mut names = BTreeSet::new();
    let mut tasks = Vec::new();
    while let Some(row) = table.next_row()? {
        let (count, thousandths) = (row.number(3)?, row.number(4)?);
        let Some(gpu) = GpuDemand::new(count, thousandths) else {
            return Err(row.bad(format!(
                "{count} GPUs with {thousandths} thousandths of each; a task requests none (0 and \
                 0), for a share of one (1 and 1 to 999) or for whole ones (n and {WHOLE_GPU})"
            )));
        };
        let spec = spec_column.map_or("", |column| row.cell(column));
        let models: Vec<String> =
            spec.split('|').filter(|_| !spec.is_empty()).map(str::to_string).collect();
        if models.iter().any(String::is_empty) {
            return Err(row.bad(format!("an empty model in the list `{spec}`")));
        }
        tasks.push(TaskRow {
            name: row.new_name(0, &mut names)?,
            cpu_milli: row.number(1)?,
            memory_mib: row.number(2)?,
            gpu,
            models,
        });
    }
    table.not_empty(tasks)
}

/// A CSV file with the indexes of the required columns.
pub(crate) struct Table<const N: usize> {
    path: PathBuf,
    reader: csv::Reader<std::fs::File>,
    headers: csv::StringRecord,
    columns: [usize; N],
}

impl<const N: usize> Table<N> {
    pub(crate) fn open(path: &Path, needed: [&'static str; N]) -> Result<Table<N>, TraceError> {
        let unreadable = |source| TraceError::Unreadable { path: path.to_path_buf(), source };
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(unreadable)?;
        let headers = reader.headers().map_err(unreadable)?.clone();
        let mut columns = [0; N];
        for (column, name) in columns.iter_mut().zip(needed) {
            *column = headers.iter().position(|header| header == name).ok_or_else(|| {
                TraceError::MissingColumn {
                    path: path.to_path_buf(),
                    column: name,
                    found: headers.iter().collect::<Vec<_>>().join(", "),
                }
            })?;
        }
        Ok(Table { path: path.to_path_buf(), reader, headers, columns })
    }

    pub(crate) fn optional_column(&self, name: &str) -> Option<usize> {
        self.headers.iter().position(|header| header == name)
    }

    pub(crate) fn next_row(&mut self) -> Result<Option<Row<'_, N>>, TraceError> {
        let mut record = csv::StringRecord::new();
        match self.reader.read_record(&mut record) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(Row { table: self, record })),
            Err(source) => Err(TraceError::Unreadable { path: self.path.clone(), source }),
        }
    }

    pub(crate) fn not_empty<T>(self, rows: Vec<T>) -> Result<Vec<T>, TraceError> {
        if rows.is_empty() { Err(TraceError::Empty { path: self.path }) } else { Ok(rows) }
    }
}

/// One line of a [`Table`]. Fields are numbered in the order of the required columns.
pub(crate) struct Row<'a, const N: usize> {
    table: &'a Table<N>,
    record: csv::StringRecord,
}

impl<const N: usize> Row<'_, N> {
    pub(crate) fn cell(&self, column: usize) -> &str {
        // The reader rejects lines that are shorter than the header.
        self.record.get(column).unwrap_or("")
    }

    pub(crate) fn text(&self, field: usize) -> &str {
        self.cell(self.table.columns[field])
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, field: usize) -> Result<T, TraceError> {
        let text = self.text(field);
        text.parse().map_err(|_| {
            let header = self.table.headers.get(self.table.columns[field]).unwrap_or("");
            self.bad(format!("`{header}` should be a whole number in range, not `{text}`"))
        })
    }

    pub(crate) fn new_name(
        &self,
        field: usize,
        seen: &mut BTreeSet<String>,
    ) -> Result<String, TraceError> {
        let name = self.text(field).to_string();
        if name.is_empty() {
            return Err(self.bad("a row needs a name".into()));
        }
        if !seen.insert(name.clone()) {
            return Err(self.bad(format!("the name `{name}` occurs twice")));
        }
        Ok(name)
    }

    pub(crate) fn bad(&self, problem: String) -> TraceError {
        let line = self.record.position().map_or(0, csv::Position::line);
        TraceError::BadValue { path: self.table.path.clone(), line, problem }
    }
}

/// One job of a queueing trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The tenant, if the trace has one.
    pub tenant: Option<String>,
    /// When it is submitted, in milliseconds since the start of the trace.
    pub submit_ms: i64,
    /// How long it runs on all its GPUs, in milliseconds.
    pub duration_ms: i64,
    /// The number of whole GPUs.
    pub gpus: u32,
    /// Whether it is submitted as resumable. A study keeps its work in both cases.
    pub resumable: bool,
    /// Its stated longest runtime, in milliseconds. Traces have none.
    pub max_runtime_ms: Option<i64>,
}

/// Reads the jobs of a queueing trace, in order of submission.
///
/// A file whose name ends in `.trace` is read as tab-separated text without a header: GPUs in the
/// 7th column, duration and arrival in seconds in the last two. Any other file is CSV with the
/// columns `num_gpu`, `submit_time` and `duration`, in milliseconds, and `tenant` and `resumable`
/// (`true` or `false`) if the file has them.
pub fn read_jobs(path: &Path) -> Result<Vec<JobRow>, TraceError> {
    let mut jobs = if path.extension().is_some_and(|extension| extension == "trace") {
        read_tabbed_jobs(path)?
    } else {
        read_csv_jobs(path)?
    };
    jobs.sort_by_key(|job| job.submit_ms);
    Ok(jobs)
}

fn read_csv_jobs(path: &Path) -> Result<Vec<JobRow>, TraceError> {
    let mut table = Table::open(path, ["num_gpu", "submit_time", "duration"])?;
    let tenant_column = table.optional_column("tenant");
    let resumable_column = table.optional_column("resumable");
    let mut jobs = Vec::new();
    while let Some(row) = table.next_row()? {
        let tenant = tenant_column.map(|column| row.cell(column).to_string());
        let resumable = match resumable_column.map_or("", |column| row.cell(column)) {
            "true" | "" => true,
            "false" => false,
            other => return Err(row.bad(format!("`resumable` is true or false, not `{other}`"))),
        };
        let job = JobRow {
            tenant: tenant.filter(|name| !name.is_empty()),
            gpus: row.number(0)?,
            submit_ms: row.number(1)?,
            duration_ms: row.number(2)?,
            resumable,
            max_runtime_ms: None,
        };
        if let Some(problem) = problem(&job) {
            return Err(row.bad(problem));
        }
        jobs.push(job);
    }
    table.not_empty(jobs)
}

fn read_tabbed_jobs(path: &Path) -> Result<Vec<JobRow>, TraceError> {
    let unreadable = |source| TraceError::Unreadable { path: path.to_path_buf(), source };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(b'\t')
        .has_headers(false)
        .quoting(false)
        .from_path(path)
        .map_err(unreadable)?;
    let mut jobs = Vec::new();
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        let line = record.position().map_or(0, csv::Position::line);
        let bad = |problem| TraceError::BadValue { path: path.to_path_buf(), line, problem };
        let number = |column: usize, what: &str| {
            let text = record.get(column).unwrap_or("");
            let number = text.parse::<i64>().ok().filter(|number| *number <= i64::MAX / 1000);
            number.ok_or_else(|| bad(format!("{what} should be a whole number, not `{text}`")))
        };
        let columns = record.len();
        if columns < 9 {
            return Err(bad(format!("{columns} columns; at least 9 are needed")));
        }
        let gpus = number(6, "the 7th column, GPUs,")?;
        let job = JobRow {
            tenant: None,
            gpus: u32::try_from(gpus).map_err(|_| bad(format!("{gpus} GPUs")))?,
            duration_ms: number(columns - 2, "the last column but one, the duration,")? * 1000,
            submit_ms: number(columns - 1, "the last column, the arrival,")? * 1000,
            resumable: true,
            max_runtime_ms: None,
        };
        if let Some(problem) = problem(&job) {
            return Err(bad(problem));
        }
        jobs.push(job);
    }
    if jobs.is_empty() {
        return Err(TraceError::Empty { path: path.to_path_buf() });
    }
    Ok(jobs)
}

/// The maximum time in a trace: a thousand years.
const MAX_TIME_MS: i64 = 1000 * 366 * 86_400_000;

/// What is wrong with a job, if anything is.
fn problem(job: &JobRow) -> Option<String> {
    if job.gpus == 0 {
        return Some("a job needs at least one GPU".into());
    }
    if !(1..=MAX_TIME_MS).contains(&job.duration_ms) {
        return Some(format!("a duration of {} ms", job.duration_ms));
    }
    if !(0..=MAX_TIME_MS).contains(&job.submit_ms) {
        return Some(format!("submitted at {} ms", job.submit_ms));
    }
    None
}
