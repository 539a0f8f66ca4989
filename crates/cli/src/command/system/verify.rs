//! `bursar audit verify` of a server, by its signature and proofs.

use std::path::PathBuf;

use bursar_audit::export::{JournalKind, one_record};
use bursar_client::api::system::audit::{Checkpoint, Proof};
use bursar_client::api::words::counted;
use bursar_client::system::audit;
use bursar_journal::JournalId;
use bursar_journal::merkle::{InclusionProof, ProofError, SignedCheckpoint, Verifier};
use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::local::audit::{bytes, public_key};
use crate::render::format::{Format, print, yaml};
use crate::session::Session;

/// What to verify a server against.
#[derive(Args)]
pub(crate) struct RemoteArguments {
    /// An earlier checkpoint, as printed by `bursar audit checkpoint -o json`: the journal must only
    /// have grown since.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "store"])]
    since: Option<PathBuf>,
    /// The identity of the journal, as 32 hexadecimal digits; else that of --since.
    #[arg(long, value_name = "HEX", conflicts_with_all = ["data", "store"])]
    journal: Option<String>,
    /// The public key of the checkpoints, as 64 hexadecimal digits; else that of --since, or the one
    /// that the store names. Of a store whose key was replaced, give each.
    #[arg(long, value_name = "HEX")]
    public_key: Vec<String>,
    /// How many records to fetch with their proofs, evenly spread.
    #[arg(long, default_value_t = 16, conflicts_with_all = ["data", "store"])]
    samples: u64,
    /// The machine whose journal is verified: `ledger-0`, `directory`, or `cell-REGION`; every ledger if
    /// absent.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["data", "store"])]
    machine: Option<String>,
}

impl RemoteArguments {
    /// The public keys that were given.
    pub(crate) fn public_keys(&self) -> &[String] {
        &self.public_key
    }
}

/// The result of one journal.
struct VerifyResult {
    /// The machine.
    machine: String,
    /// The newest checkpoint.
    checkpoint: Checkpoint,
    /// Whether the identity and the key came from another source than this server.
    trusted: bool,
    /// The size of the earlier checkpoint that the journal continues.
    since: Option<u64>,
    /// The number of records whose proofs are valid.
    records: u64,
}

pub(crate) async fn run(session: &Session, arguments: &RemoteArguments) -> Result<(), Failure> {
    let since = arguments.since.as_ref().map(read_checkpoint).transpose()?;
    let machines = match &arguments.machine {
        Some(name) => {
            let checkpoint = session.send(audit::checkpoint(Some(name))).await?.value;
            vec![(name.clone(), checkpoint)]
        }
        None => ledgers(session).await?,
    };
    let given = arguments.journal.as_ref().or(since.as_ref().map(|since| &since.journal));
    let several = machines.len() > 1;
    if let Some(journal) = given.filter(|_| several)
        && !machines.iter().any(|(_, checkpoint)| checkpoint.journal == **journal)
    {
        let next = "keep the earlier checkpoint and ask the operator for the store itself";
        let why = format!("no ledger of the server has the journal {journal}");
        return Err(Failure::because(Exit::Refused, why).with_next(next));
    }
    let mut results = Vec::new();
    for (machine, checkpoint) in machines {
        // What was given is about one journal.
        let is_given = !several || given == Some(&checkpoint.journal);
        let name = machine.clone();
        let named = Named { since: since.as_ref(), journal: given.filter(|_| is_given) };
        let result = verified(session, arguments, machine, checkpoint, &named).await;
        results.push(result.map_err(|failure| match several {
            true => failure.with_particular(format!("the machine is {name}")),
            false => failure,
        })?);
    }
    print(&shown(&results, session.format()))
}

/// Every ledger of the server, with its checkpoint. An auditor may ask for these, but not for the shards.
async fn ledgers(session: &Session) -> Result<Vec<(String, Checkpoint)>, Failure> {
    let mut all = Vec::new();
    for shard in 0..=u16::MAX {
        let name = format!("ledger-{shard}");
        match session.send(audit::checkpoint(Some(&name))).await {
            Ok(answer) => all.push((name, answer.value)),
            Err(failure) if shard > 0 && failure.exit() == Exit::NotFound => break,
            Err(failure) => return Err(failure),
        }
    }
    Ok(all)
}

/// What was given about the journal of a machine.
struct Named<'a> {
    since: Option<&'a Checkpoint>,
    /// Its identity; none if nothing was given about this journal.
    journal: Option<&'a String>,
}

async fn verified(
    session: &Session,
    arguments: &RemoteArguments,
    machine: String,
    checkpoint: Checkpoint,
    named: &Named<'_>,
) -> Result<VerifyResult, Failure> {
    // All journals of a store have one key.
    let key = match (arguments.public_keys(), named.since) {
        ([], since) => &since.unwrap_or(&checkpoint).public_key,
        ([key], _) => key,
        _ => return Err(Failure::because(Exit::Usage, "--public-key: give one for a server")),
    };
    let key = public_key(key, "--public-key")?;
    let journal = named.journal.unwrap_or(&checkpoint.journal);
    let verifier = Verifier::new(JournalId(bytes(journal, "--journal")?), key);
    verifier.checkpoint(&signed(&checkpoint)?).map_err(refused("the server's checkpoint"))?;
    let since = named.since.filter(|_| named.journal.is_some());
    if let Some(since) = since {
        continued(session, &verifier, Some(&machine), since).await?;
    }
    let size = checkpoint.size;
    let samples = arguments.samples.min(size);
    for sample in 0..samples {
        let position = 1 + sample * (size - 1) / (samples - 1).max(1);
        let proof = session.send(audit::proof(Some(&machine), position)).await?.value;
        let (frame, path) = (frame(&proof)?, path(&proof)?);
        verifier
            .inclusion(&signed(&proof.checkpoint)?, position, &frame, &path)
            .map_err(refused(&format!("record {position}")))?;
    }
    let is_given = named.journal.is_some() && !arguments.public_key.is_empty();
    let trusted = is_given || since.is_some();
    let since = since.map(|since| since.size);
    Ok(VerifyResult { machine, checkpoint, trusted, since, records: samples })
}

/// Shows what a record says, after its proof was checked.
pub(super) async fn show(
    session: &Session,
    machine: Option<&str>,
    position: u64,
) -> Result<(), Failure> {
    let proof = session.send(audit::proof(machine, position)).await?.value;
    let key = public_key(&proof.checkpoint.public_key, "public_key")?;
    let verifier = Verifier::new(JournalId(bytes(&proof.checkpoint.journal, "journal")?), key);
    let (frame, path) = (frame(&proof)?, path(&proof)?);
    verifier
        .inclusion(&signed(&proof.checkpoint)?, position, &frame, &path)
        .map_err(refused(&format!("record {position}")))?;
    let of = match machine {
        Some("directory") => JournalKind::Directory,
        Some(machine) if machine.starts_with("cell-") => JournalKind::Cell,
        None | Some(_) => JournalKind::Ledger,
    };
    let record = one_record(position, &frame, of)
        .map_err(|why| Failure::new("the record cannot be read", why))?;
    match session.format() {
        Format::Json => print(&record.to_string()),
        Format::Table | Format::Yaml | Format::Csv => print(&yaml(&record.to_string())?),
    }
}

/// Verifies that the journal begins with the records of an earlier checkpoint.
async fn continued(
    session: &Session,
    verifier: &Verifier,
    machine: Option<&str>,
    since: &Checkpoint,
) -> Result<(), Failure> {
    let older = signed(since)?;
    verifier.checkpoint(&older).map_err(refused("the earlier checkpoint"))?;
    let proof = session.send(audit::proof(machine, since.size)).await.map_err(|failure| {
        failure.with_particular(format!(
            "the earlier checkpoint has {}",
            counted(since.size, "record")
        ))
    })?;
    let newer = signed(&proof.value.checkpoint)?;
    let (frame, path) = (frame(&proof.value)?, path(&proof.value)?);
    let what = format!("the history since {}", counted(since.size, "record"));
    verifier.continuation(&older, &newer, &frame, &path).map_err(refused(&what))
}

fn shown(results: &[VerifyResult], format: Format) -> String {
    match (results, format) {
        ([one], Format::Json) => format!("{:#}\n", as_json(one)),
        (several, Format::Json) => {
            let ledgers: Vec<serde_json::Value> = several.iter().map(as_json).collect();
            format!("{:#}\n", json!({ "ok": true, "ledgers": ledgers }))
        }
        ([one], _) => describe(one),
        (several, _) => {
            let text =
                |one: &VerifyResult| format!("ledger       {}\n{}", one.machine, describe(one));
            several.iter().map(text).collect()
        }
    }
}

fn as_json(shown: &VerifyResult) -> serde_json::Value {
    let VerifyResult { machine, checkpoint, trusted, since, records } = shown;
    json!({
        "ok": true, "machine": machine, "journal": checkpoint.journal,
        "public_key": checkpoint.public_key, "size": checkpoint.size, "root": checkpoint.root,
        "trusted_before": trusted, "continues": since, "records_proven": records,
    })
}

fn describe(shown: &VerifyResult) -> String {
    let VerifyResult { checkpoint, trusted, since, records, .. } = shown;
    let mut text = format!(
        "signed       {} records, root {}\n",
        checkpoint.size,
        checkpoint.root.get(..16).unwrap_or(&checkpoint.root)
    );
    if let Some(since) = since {
        text.push_str(&format!("continues    the checkpoint of {}\n", counted(*since, "record")));
    }
    text.push_str(&format!("records      {records} are where the journal says\n"));
    text.push_str("not checked  balances: run this on the store, with --data or --store\n");
    if !trusted {
        text.push_str(&format!(
            "not checked  who signs: next time pass --journal {} --public-key {}\n",
            checkpoint.journal, checkpoint.public_key
        ));
    }
    text
}

fn refused(what: &str) -> impl FnOnce(ProofError) -> Failure {
    let what = what.to_owned();
    move |error| {
        let next = "keep the earlier checkpoint and ask the operator for the store itself";
        Failure::because(Exit::Refused, format!("{what}: {error}")).with_next(next)
    }
}

fn read_checkpoint(file: &PathBuf) -> Result<Checkpoint, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format_args!("cannot read {}", file.display()), error))?;
    serde_json::from_str(&text).map_err(|error| {
        let next = "give --since what `bursar audit checkpoint -o json` printed";
        Failure::new(format_args!("{} is not a checkpoint", file.display()), error).with_next(next)
    })
}

/// The signed form. The unsigned fields beside it prove nothing, so they must match it.
fn signed(checkpoint: &Checkpoint) -> Result<SignedCheckpoint, Failure> {
    let wrong = || {
        Failure::because(Exit::Refused, "the fields of the checkpoint differ from its signed form")
    };
    let signed = SignedCheckpoint::from_bytes(&hex(&checkpoint.signed)?).ok_or_else(wrong)?;
    let inside = &signed.checkpoint;
    let same = inside.size == checkpoint.size
        && inside.root.to_string() == checkpoint.root
        && inside.journal.to_string() == checkpoint.journal;
    if same { Ok(signed) } else { Err(wrong()) }
}

fn frame(proof: &Proof) -> Result<Vec<u8>, Failure> {
    hex(&proof.frame)
}

fn path(proof: &Proof) -> Result<InclusionProof, Failure> {
    let hashes = proof.path.iter().map(|hash| bytes(hash, "path").map(bursar_core::digest::Digest));
    Ok(InclusionProof { path: hashes.collect::<Result<_, _>>()? })
}

fn hex(text: &str) -> Result<Vec<u8>, Failure> {
    let wrong = || Failure::because(Exit::Refused, "the server sent no hexadecimal digits");
    if text.len() % 2 == 1 || !text.is_ascii() {
        return Err(wrong());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong()))
        .collect()
}
