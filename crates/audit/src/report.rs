//! The result of a verification, for people and for programs.

use std::fmt;

use bursar_core::credits::format_micros;
use bursar_core::time::Timestamp;
use serde_json::{Value, json};

/// The first error that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The batch that contains it.
    pub sequence: u64,
    /// The numbers of the records that this batch should contain. The bad record is among them.
    pub positions: (u64, u64),
    /// The number of the bad record, if more than the hash of the batch is known to be wrong.
    pub position: Option<u64>,
    /// The violated law: `chain`, `format`, `time`, `L1`…`L13`, `frozen` or `storage`.
    pub law: &'static str,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.positions;
        match self.position {
            Some(position) => write!(f, "record {position} (batch {})", self.sequence)?,
            None => write!(f, "batch {} (records {first} to {last})", self.sequence)?,
        }
        write!(f, " breaks {}: {}", self.law, self.detail)
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The journal's identity.
    pub journal: [u8; 16],
    /// The number of valid batches.
    pub batches: u64,
    /// The number of valid records.
    pub records: u64,
    /// The number of their events.
    pub events: u64,
    /// The hash of the last valid batch.
    pub head: [u8; 32],
    /// The time of the last valid record.
    pub until: Option<Timestamp>,
    /// The number of accounts, grants and open holds after the last event.
    pub accounts: u64,
    /// See `accounts`.
    pub grants: u64,
    /// See `accounts`.
    pub open_holds: u64,
    /// All units by part: free, held, spent, expired, revoked, moved.
    pub parts: [u128; 6],
    /// The number of sealed segments whose signed checkpoint was verified.
    pub signed_segments: u64,
    /// The first error, if there is one.
    pub problem: Option<Problem>,
    /// Whether the balances were compared with those of a replay by the ledger itself.
    pub compared: bool,
    /// Differences from that replay, at most a hundred lines.
    pub differences: Vec<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn credits(micros: u128) -> String {
    let mut text = String::new();
    // Sums of 64-bit amounts stay far below 127 bits; writing to a string cannot fail.
    let _ = format_micros(i128::try_from(micros).unwrap_or(i128::MAX), &mut text);
    text
}

const PARTS: [&str; 6] = ["available", "held", "spent", "expired", "revoked", "moved"];

impl Report {
    /// Whether no error and no difference was found.
    pub fn holds(&self) -> bool {
        self.problem.is_none() && self.differences.is_empty()
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let parts: serde_json::Map<String, Value> = PARTS
            .iter()
            .zip(self.parts)
            .map(|(name, sum)| ((*name).to_owned(), Value::String(credits(sum))))
            .collect();
        let problem = self.problem.as_ref().map(|problem| {
            json!({
                "sequence": problem.sequence,
                "first_position": problem.positions.0,
                "last_position": problem.positions.1,
                "position": problem.position,
                "law": problem.law,
                "detail": problem.detail,
            })
        });
        json!({
            "ok": self.holds(),
            "journal": hex(&self.journal),
            "batches": self.batches,
            "records": self.records,
            "events": self.events,
            "head": hex(&self.head),
            "until": self.until.map(|until| until.to_string()),
            "accounts": self.accounts,
            "grants": self.grants,
            "open_holds": self.open_holds,
            "credits": parts,
            "signed_segments": self.signed_segments,
            "problem": problem,
            "compared_with_live": self.compared,
            "differences": self.differences,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "journal  {}", hex(&self.journal))?;
        writeln!(
            f,
            "read     {} batches, {} records, {} events",
            self.batches, self.records, self.events
        )?;
        writeln!(f, "head     {}", hex(&self.head))?;
        if let Some(until) = self.until {
            writeln!(f, "until    {until}")?;
        }
        if self.signed_segments > 0 {
            let count = self.signed_segments;
            writeln!(f, "signed   {count} sealed segments, each by its checkpoint")?;
        }
        writeln!(
            f,
            "derived  {} accounts, {} grants, {} open holds",
            self.accounts, self.grants, self.open_holds
        )?;
        for (name, sum) in PARTS.iter().zip(self.parts) {
            writeln!(f, "         {name:9} {:>24}", credits(sum))?;
        }
        match (&self.problem, self.compared) {
            (Some(problem), _) => writeln!(f, "BAD      {problem}")?,
            (None, false) => writeln!(f, "ok       chain, records and balances")?,
            (None, true) if self.differences.is_empty() => {
                writeln!(
                    f,
                    "ok       chain, records and balances; a replay by the ledger itself agrees"
                )?;
            }
            (None, true) => {
                writeln!(f, "BAD      a replay by the ledger itself says something else:")?
            }
        }
        self.differences.iter().try_for_each(|line| writeln!(f, "         {line}"))
    }
}
