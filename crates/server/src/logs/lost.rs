//! Output of attempts that a restore discarded. After a restore ids of attempts repeat, so this
//! output would be taken for that of new attempts.

use std::io::ErrorKind;
use std::path::Path;

use bursar_core::ledger::Ledger;
use bursar_core::ledger::jobs::Attempt;

use crate::ids::attempt::read_stored;
use crate::machines::gateway::Gateway;
use crate::render::job::place_of;
use crate::request::Failure;

/// The file with the generation of the store for which the folder was checked.
const NOTE: &str = "generation";

/// Whether a file, by its name, belongs to an attempt that the ledger does not know.
pub fn is_lost(ledger: &Ledger, name: &str) -> bool {
    let id = name.split('.').next().unwrap_or_default();
    let Some((cell, attempt)) = read_stored(id) else { return false };
    let Some(number) = ledger.job_of_cells(attempt.job) else { return true };
    match ledger.job(number) {
        Some(job) => {
            let is_it = |known: &Attempt| place_of(attempt.job, known) == (cell, attempt);
            !job.attempts.iter().any(is_it)
        }
        // An earlier job is forgotten by the ledger; history has it.
        None => number >= ledger.next_job(),
    }
}

fn failed(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::new(bursar_api::Code::Internal, format!("{}: {error}", folder.display()))
}

/// The names of all files.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// Moves files into a subfolder and records the generation.
fn move_away(folder: &Path, lost: &[String], generation: u32) -> std::io::Result<()> {
    if !lost.is_empty() {
        let aside = folder.join(format!("lost-{generation}"));
        crate::store::make_folder(&aside).map_err(std::io::Error::other)?;
        for name in lost {
            std::fs::rename(folder.join(name), aside.join(name))?;
        }
        tracing::warn!(
            files = lost.len(), folder = %aside.display(),
            "output of attempts that the restore discarded was moved"
        );
    }
    if let Err(error) = std::fs::write(folder.join(NOTE), format!("{generation}\n")) {
        tracing::warn!(%error, "output will be checked again at the next start");
    }
    Ok(())
}

/// Moves the output of discarded attempts away, once for each generation of the store. Called
/// before requests are served, when no new attempt has any output.
pub(crate) async fn set_aside_lost(
    folder: &Path,
    generation: u32,
    ledgers: &[Gateway<Ledger>],
) -> Result<(), Failure> {
    let noted = std::fs::read_to_string(folder.join(NOTE)).unwrap_or_default();
    if noted.trim().parse().unwrap_or(0) >= generation {
        return Ok(());
    }
    let mut lost = names(folder).map_err(|error| failed(folder, &error))?;
    // What one ledger knows is not lost.
    for ledger in ledgers {
        let look = move |ledger: &Ledger| {
            lost.into_iter().filter(|name| is_lost(ledger, name)).collect::<Vec<String>>()
        };
        lost = ledger.read(look).await?.value;
    }
    move_away(folder, &lost, generation).map_err(|error| failed(folder, &error))
}
