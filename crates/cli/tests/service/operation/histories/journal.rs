//! The exported journal of a ledger in the terms of the checker.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use bursar_testkit::histories::{JournalEntry, MachineJournal, MicroCredits, MoneyEffect, Parts};
use serde_json::Value;

/// A hold or a charge: tenant, id, and the account of each of its pieces with their units.
type Drawn = (String, String, Parts);

/// What the numbers in the journal stand for.
#[derive(Default)]
struct Names {
    accounts: BTreeMap<u64, String>,
    /// The account of each bucket. All grants of an account lie in one bucket here: they have the same
    /// kind and never expire.
    buckets: Vec<String>,
    spendings: BTreeMap<u64, Drawn>,
    /// What the record taken so far captures of each hold.
    captured: BTreeMap<u64, Parts>,
}

/// Reads the journal of the ledger in a data folder, also beside a running server.
pub(crate) fn exported(data: &Path) -> MachineJournal {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    let output = command.args(["admin", "export", "--data"]).arg(data).output();
    let output = output.expect("the binary is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut journal = MachineJournal { machine: "ledger-0".into(), ..MachineJournal::default() };
    let mut names = Names::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let record: Value = serde_json::from_str(line).expect("a line is JSON");
        journal.last = record["position"].as_u64().expect("a number");
        for decision in record["decisions"].as_array().expect("a list") {
            let repeat = decision["key"].as_str().map(str::to_owned);
            for event in decision["events"].as_array().expect("a list") {
                if let Some(effect) = names.effect(event) {
                    let position = journal.last;
                    journal.entries.push(JournalEntry { position, repeat: repeat.clone(), effect });
                }
            }
        }
    }
    journal
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().map(number).collect()
}

fn tenant(account: &str) -> String {
    account.split(':').next().unwrap_or(account).to_owned()
}

impl Names {
    /// The effect of an event on credits; none for events beside them. An event that the checker does
    /// not know fails the test.
    fn effect(&mut self, event: &Value) -> Option<MoneyEffect> {
        let account = |names: &Names| names.accounts[&number(&event["account"])].clone();
        match event["type"].as_str().expect("a name") {
            "account_opened" => {
                let account = text(&event["path"]);
                self.accounts.insert(number(&event["account"]), account.clone());
                Some(MoneyEffect::Opened { account })
            }
            "grant_issued" => {
                let (account, id) = (account(self), text(&event["id"]));
                if !self.buckets.contains(&account) {
                    self.buckets.push(account.clone());
                }
                Some(MoneyEffect::Granted { id, account, amount: number(&event["amount"]) })
            }
            "hold_placed" => {
                let (id, account, from) =
                    (text(&event["id"]), account(self), self.pieces(&event["pieces"]));
                let drawn = (tenant(&account), id.clone(), from.clone());
                self.spendings.insert(number(&event["hold"]), drawn);
                Some(MoneyEffect::Held { id, account, from })
            }
            "hold_captured" => {
                let hold = number(&event["hold"]);
                let pieces = &self.spendings[&hold].2;
                let taken = numbers(&event["taken"]);
                let taken = taken.chunks(2).map(|slice| {
                    let piece = usize::try_from(slice[0]).expect("small");
                    (pieces[piece].0.clone(), slice[1])
                });
                let taken = taken.collect();
                self.captured.insert(hold, taken);
                None
            }
            "hold_closed" => {
                let hold = number(&event["hold"]);
                let (tenant, id, _) = self.spendings[&hold].clone();
                let taken = self.captured.remove(&hold).unwrap_or_default();
                Some(MoneyEffect::Settled { tenant, hold: id, taken })
            }
            "charged" => {
                let (id, account, from) =
                    (text(&event["id"]), account(self), self.pieces(&event["pieces"]));
                let drawn = (tenant(&account), id.clone(), from.clone());
                self.spendings.insert(number(&event["hold"]), drawn);
                let spendable_after = number(&event["spendable_after"]);
                Some(MoneyEffect::Charged { id, account, from, spendable_after })
            }
            "refunded" => {
                let (tenant, of, _) = self.spendings[&number(&event["hold"])].clone();
                let movement = &event["movement"];
                let (id, to) = (text(&movement["id"]), self.pieces(&movement["pieces"]));
                Some(MoneyEffect::Refunded { id, tenant, of, to })
            }
            // It left memory for the archive, and came back to be refunded, perhaps under another number.
            "hold_revived" => {
                let hold = &event["record"]["hold"];
                let account = &self.accounts[&number(&hold["account"])];
                let spent = (tenant(account), text(&hold["id"]), Vec::new());
                self.spendings.insert(number(&event["hold"]), spent);
                None
            }
            "answered" | "credits_denied" | "region_opened" | "region_briefed" | "policy_set"
            | "message_received" | "forgotten" => None,
            // Messages to cells.
            other if other.starts_with("cell_") => None,
            other => panic!("the checker does not know {other}"),
        }
    }

    /// Units by the account whose grant they are of, one part for each piece.
    fn pieces(&self, pieces: &Value) -> Parts {
        let part = |piece: &[u64]| -> (String, MicroCredits) {
            let bucket = usize::try_from(piece[0]).expect("small");
            (self.buckets[bucket].clone(), piece[2])
        };
        numbers(pieces).chunks(3).map(part).collect()
    }
}
