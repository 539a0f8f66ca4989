//! Writes families in the columns that [`crate::traces`] reads.

use std::path::Path;

use super::cluster::{self, TaskFamily};
use super::queue::{self, QueueFamily};
use crate::traces::{JobRow, NodeRow, TaskRow};

/// Writes every family of a seed to a folder, which is created if it is missing: `nodes.csv`,
/// `tasks-FAMILY.csv` and `jobs-FAMILY.csv`.
pub fn write_all(folder: &Path, seed: u64) -> Result<(), csv::Error> {
    std::fs::create_dir_all(folder)?;
    write_nodes(&folder.join("nodes.csv"), &cluster::nodes(seed))?;
    for family in TaskFamily::ALL {
        let file = folder.join(format!("tasks-{}.csv", family.name()));
        write_tasks(&file, &cluster::tasks(family, seed))?;
    }
    for family in QueueFamily::ALL {
        let file = folder.join(format!("jobs-{}.csv", family.name()));
        write_jobs(&file, &queue::jobs(family, seed))?;
    }
    Ok(())
}

fn write_nodes(file: &Path, nodes: &[NodeRow]) -> Result<(), csv::Error> {
    let mut table = csv::Writer::from_path(file)?;
    table.write_record(["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    for node in nodes {
        let numbers = [node.cpu_milli, node.memory_mib, u32::from(node.gpus)];
        let [cpu, memory, gpus] = numbers.map(|number| number.to_string());
        table.write_record([&node.name, &cpu, &memory, &gpus, &node.model])?;
    }
    Ok(table.flush()?)
}

fn write_tasks(file: &Path, tasks: &[TaskRow]) -> Result<(), csv::Error> {
    let mut table = csv::Writer::from_path(file)?;
    table.write_record(["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"])?;
    for task in tasks {
        let [gpus, each] = [task.gpu.devices(), task.gpu.per_device()].map(u32::from);
        let numbers = [task.cpu_milli, task.memory_mib, gpus, each];
        let [cpu, memory, gpus, each] = numbers.map(|number| number.to_string());
        table.write_record([&task.name, &cpu, &memory, &gpus, &each, &task.models.join("|")])?;
    }
    Ok(table.flush()?)
}

fn write_jobs(file: &Path, jobs: &[JobRow]) -> Result<(), csv::Error> {
    let mut table = csv::Writer::from_path(file)?;
    table.write_record(["num_gpu", "submit_time", "duration"])?;
    for job in jobs {
        let numbers = [i64::from(job.gpus), job.submit_ms, job.duration_ms];
        table.write_record(numbers.map(|number| number.to_string()))?;
    }
    Ok(table.flush()?)
}
