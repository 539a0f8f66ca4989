//! The regions of a server: added to the directory, opened in the ledger, configured in their cells.

use bursar_core::cell;
use bursar_core::cell::{CellConfig, Origin};
use bursar_core::directory::{Command, Secret, ShardState};
use bursar_core::ledger::command as ledger;
use bursar_core::ledger::id::CellNo;
use bursar_core::ledger::reply::Reply;
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::name::Region;

use super::StartError;
use crate::config::Config;
use crate::ids::attempt::AttemptIds;
use crate::machines::cells::CellService;
use crate::machines::directory::DirectoryService;
use crate::machines::gateway::Gateway;
use crate::request::Failure;

pub(super) async fn add_regions(
    directory: &DirectoryService,
    config: &Config,
) -> Result<(), StartError> {
    for region in config.region_names()? {
        let envelope = Envelope { actor: "start".into(), ..Envelope::default() };
        let command = Command::AddRegion { region };
        directory.submit(envelope, command).await?;
    }
    Ok(())
}

/// Adds shards to the directory until there are so many. Those that were added since the last start are opened.
pub(super) async fn add_shards(
    directory: &DirectoryService,
    count: usize,
) -> Result<(), StartError> {
    let envelope = || Envelope { actor: "start".into(), ..Envelope::default() };
    let state = ShardState::Open;
    for shard in (0u16..).take(count).skip(directory.current().shards().count()) {
        directory.submit(envelope(), Command::AddShard { shard, state }).await?;
    }
    for (shard, known) in directory.current().shards() {
        if known == ShardState::Closed {
            directory.submit(envelope(), Command::SetShard { shard, state }).await?;
        }
    }
    Ok(())
}

/// Makes all regions known to the ledgers after the first one. Every ledger gives a cell the same number: ids of
/// attempts have it.
pub(super) async fn open_everywhere(
    ledgers: &[Gateway<Ledger>],
    cells: &[CellService],
) -> Result<(), StartError> {
    let mut in_order: Vec<&CellService> = cells.iter().collect();
    in_order.sort_by_key(|cell| cell.number);
    for (shard, ledger) in (0u16..).zip(ledgers).skip(1) {
        for cell in &in_order {
            let number = open_region(ledger, shard, &cell.region).await?;
            if number != cell.number {
                let detail = format!(
                    "ledger-{shard} knows the region {} under the number {number}, ledger-0 under {}: the \
                     files are not those of one store. Put them back as they were, or restore the last backup",
                    cell.region, cell.number
                );
                return Err(StartError::Other(detail));
            }
        }
    }
    Ok(())
}

/// The encoder of attempt ids, under the secret of the store. A store without a secret gets one.
pub(super) async fn attempt_ids(directory: &DirectoryService) -> Result<AttemptIds, StartError> {
    let other = |detail: String| StartError::Other(detail);
    if directory.current().attempt_secret().is_none() {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| other(error.to_string()))?;
        let envelope = Envelope { actor: "start".into(), ..Envelope::default() };
        let command = Command::SetAttemptSecret { secret: Secret(secret) };
        directory.submit(envelope, command).await?;
    }
    let known = AttemptIds::of(&directory.current());
    known.ok_or_else(|| other("the directory has no secret for ids of attempts".to_owned()))
}

/// Makes a region known to the ledger of a shard and returns the number of its cell.
pub(super) async fn open_region(
    ledger: &Gateway<Ledger>,
    shard: u16,
    region: &Region,
) -> Result<CellNo, StartError> {
    let envelope = Envelope { actor: "start".into(), ..Envelope::default() };
    let command = ledger::Command::OpenRegion { region: region.clone(), shard };
    let seen = ledger.post(envelope, command).answer().await?;
    match seen.value.map_err(Failure::from)?.reply {
        Reply::Region(cell) => Ok(cell),
        Reply::Done
        | Reply::Account(_)
        | Reply::Grant { .. }
        | Reply::Hold(_)
        | Reply::Charge { .. }
        | Reply::Movement { .. }
        | Reply::Budget(_)
        | Reply::Jobs { .. }
        | Reply::Job { .. }
        | Reply::Archived(_)
        | Reply::Received { .. } => {
            Err(StartError::Other("the ledger did not answer with the region's number".to_owned()))
        }
    }
}

/// Sets the heartbeat interval and node lease of a region, if the configuration differs from the
/// cell's.
pub(super) async fn configure(
    cell: &CellService,
    known: CellConfig,
    config: &Config,
) -> Result<(), StartError> {
    let millis = |seconds: Option<u32>, known| seconds.map_or(known, |all| i64::from(all) * 1000);
    let wanted = CellConfig {
        heartbeat_ms: millis(config.heartbeat_seconds, known.heartbeat_ms),
        node_lease_ms: millis(config.node_lease_seconds, known.node_lease_ms),
        ..known.clone()
    };
    if wanted == known {
        return Ok(());
    }
    let origin = Origin::component("start");
    let seen = cell.gateway.post(origin, cell::Command::Configure(wanted)).answer().await?;
    match seen.value {
        Ok(_) => Ok(()),
        Err(refusal) => {
            Err(StartError::Other(format!("the cell refused its configuration: {refusal}")))
        }
    }
}

/// Records in a cell that its store was restored. Unless the cell was served since, agents must
/// register again before their reports are accepted.
pub(super) async fn rewind(cell: &CellService) -> Result<(), StartError> {
    let Some(command) = cell.unannounced_restore() else { return Ok(()) };
    let seen = cell.gateway.post(Origin::component("start"), command).answer().await?;
    seen.value
        .map(drop)
        .map_err(|refusal| StartError::Other(format!("the cell refused the restore: {refusal}")))
}
