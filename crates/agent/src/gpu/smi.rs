//! The GPUs of this machine through NVIDIA's command `nvidia-smi`: for static builds, which cannot
//! load the library.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{Gpu, GpuError, GpuUse, type_of};
use crate::clock::BootTime;

/// A command that takes longer has failed.
const SMI_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a running command is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

const MIB: u64 = 1 << 20;

/// The reason why a command printed nothing useful.
enum SmiError {
    /// There is no command, or it failed.
    Failed(String),
    /// It did not end in time. It was killed, but one that hangs in the driver does not end.
    Hangs(Child),
}

/// The command.
#[derive(Debug)]
pub struct SmiCommand {
    program: PathBuf,
    timeout: Duration,
}

impl SmiCommand {
    /// The command at a path, or of that name on the path.
    pub fn new(program: impl Into<PathBuf>) -> SmiCommand {
        SmiCommand { program: program.into(), timeout: SMI_TIMEOUT }
    }

    /// All GPUs with their numbers. `named` overrides the driver's name.
    pub fn list(&self, named: Option<&str>) -> Result<Vec<(u32, Gpu)>, GpuError> {
        let rows = self.query("index,uuid,memory.total,name").map_err(|error| match error {
            SmiError::Failed(why) => GpuError::NoDriver(format!("nvidia-smi: {why}")),
            SmiError::Hangs(_) => GpuError::NoAnswer(self.timeout.as_secs()),
        })?;
        let read = |row: &String| {
            let [index, uuid, mib, name] = fields(row)?;
            let memory_gib = (mib.parse::<u64>().ok()? + 512) / 1024;
            let gpu = Gpu {
                uuid: uuid.to_owned(),
                gpu_type: named.map_or_else(|| type_of(name), str::to_owned),
                memory_gib: u32::try_from(memory_gib).ok()?,
            };
            Some((index.parse().ok()?, gpu))
        };
        let unknown = |row: &String| GpuError::NoDriver(format!("nvidia-smi: {row}"));
        rows.iter().map(|row| read(row).ok_or_else(|| unknown(row))).collect()
    }

    /// The present use of each GPU, without those that do not report it. Waits until a command that
    /// hangs has ended: their number must not grow.
    pub fn uses(&self) -> BTreeMap<String, GpuUse> {
        let rows = match self.query("uuid,utilization.gpu,memory.used") {
            Ok(rows) => rows,
            Err(SmiError::Failed(_)) => Vec::new(),
            Err(SmiError::Hangs(mut child)) => {
                tracing::warn!("nvidia-smi hangs: the use of the GPUs is not known");
                let _ = child.wait();
                Vec::new()
            }
        };
        let read = |row: &String| {
            let [uuid, percent, mib] = fields(row)?;
            let memory_used_bytes = mib.parse::<u64>().ok()? * MIB;
            let utilization_percent = percent.parse().ok()?;
            Some((uuid.to_owned(), GpuUse { utilization_percent, memory_used_bytes }))
        };
        rows.iter().filter_map(read).collect()
    }

    /// One line for each GPU, or why there is none.
    fn query(&self, names: &str) -> Result<Vec<String>, SmiError> {
        let failed = |why: &dyn Display| SmiError::Failed(why.to_string());
        let mut command = Command::new(&self.program);
        command.arg(format!("--query-gpu={names}")).arg("--format=csv,noheader,nounits");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let end = BootTime::now().plus(self.timeout);
        let status = loop {
            // What it prints fits into the pipe, so that it ends without a reader.
            match child.try_wait().map_err(|error| failed(&error))? {
                Some(status) => break status,
                None if BootTime::now() < end => thread::sleep(POLL_INTERVAL),
                None => {
                    let _ = child.kill();
                    return Err(SmiError::Hangs(child));
                }
            }
        };
        let mut text = String::new();
        let read = child.stdout.take().map(|mut out| out.read_to_string(&mut text));
        match read {
            Some(Ok(_)) if status.success() => Ok(text.lines().map(str::to_owned).collect()),
            _ => Err(failed(&format!("{status}: {}", text.lines().next().unwrap_or_default()))),
        }
    }
}

/// The fields of a row; the last may contain commas.
fn fields<const N: usize>(row: &str) -> Option<[&str; N]> {
    let fields: Vec<&str> = row.splitn(N, ',').map(str::trim).collect();
    fields.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A command that prints what a driver would.
    fn command(folder: &Path, script: &str) -> SmiCommand {
        let program = folder.join("nvidia-smi");
        // A shell writes it. A file that this process has open for writing is passed on to what other tests start at
        // that moment, and cannot be executed until that has ended.
        let written = std::process::Command::new("sh")
            .args(["-c", "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .arg(&program)
            .arg(format!("#!/bin/sh\n{script}\n"))
            .status();
        assert!(written.expect("there is a shell").success());
        SmiCommand::new(program)
    }

    #[test]
    fn gpus_and_their_use_are_read_from_the_command() {
        let folder = tempfile::tempdir().expect("a folder");
        let smi = command(
            folder.path(),
            "case $1 in *index*) echo '0, GPU-a, 143771, NVIDIA H200'
             echo '1, GPU-b, 143771, NVIDIA H200';;
             *) echo 'GPU-a, 37, 1024'; echo 'GPU-b, [N/A], 3';; esac",
        );
        let gpu = |uuid: &str| Gpu { uuid: uuid.into(), gpu_type: "H200".into(), memory_gib: 140 };
        assert_eq!(smi.list(None).expect("two"), [(0, gpu("GPU-a")), (1, gpu("GPU-b"))]);
        assert_eq!(smi.list(Some("X")).expect("two")[0].1.gpu_type, "X");
        let busy = GpuUse { utilization_percent: 37, memory_used_bytes: 1 << 30 };
        let uses = smi.uses();
        assert_eq!(uses.get("GPU-a"), Some(&busy));
        assert_eq!(uses.get("GPU-b"), None, "what is not reported is not zero");
    }

    #[test]
    fn a_machine_without_the_command_or_the_driver_says_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let failing = command(folder.path(), "echo 'Driver/library version mismatch'; exit 18");
        let missing = SmiCommand::new(folder.path().join("none"));
        let strange = tempfile::tempdir().expect("a folder");
        let strange = command(strange.path(), "echo 'No devices were found'");
        for (smi, why) in
            [(failing, "version mismatch"), (missing, "No such file"), (strange, "No devices")]
        {
            let error = smi.list(None).expect_err("no GPU").to_string();
            assert!(error.contains(why) && error.contains("--fake-gpus"), "{error}");
            assert_eq!(smi.uses(), BTreeMap::new());
        }
    }

    #[test]
    fn a_command_that_hangs_is_not_a_missing_driver() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut smi = command(folder.path(), "exec sleep 600");
        smi.timeout = Duration::from_millis(1);
        let error = smi.list(None).expect_err("no answer").to_string();
        assert!(error.contains("did not answer within 0 seconds"), "{error}");
        assert!(!error.contains("no NVIDIA driver") && error.contains("by hand"), "{error}");
        assert_eq!(smi.uses(), BTreeMap::new());
    }
}
