//! The journal of the ledger as the checker of histories reads it.

use std::collections::BTreeMap;

use bursar_testkit::histories::{JournalEntry, MachineJournal, MicroCredits, MoneyEffect};
use serde_json::Value;

/// What the numbers in records stand for.
#[derive(Default)]
struct StoredNumbers {
    accounts: BTreeMap<u64, String>,
    /// Tenant and id of holds and charges.
    spendings: BTreeMap<u64, (String, String)>,
}

/// Units of pieces: each is a bucket, its first unit, and how many.
fn units(pieces: &Value) -> MicroCredits {
    let numbers = pieces.as_array().expect("a list");
    numbers.chunks(3).map(|piece| amount(&piece[2])).sum()
}

/// A number: those of more than 53 bits are written as text.
fn amount(value: &Value) -> u64 {
    let text = || value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or_else(text).unwrap_or_else(|| panic!("{value} is no number"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// The tenant of an account.
fn tenant(account: &str) -> String {
    account.split(':').next().unwrap_or(account).to_owned()
}

/// The effects of exported records on the credits of these tenants. In this world only the account of a whole tenant
/// has grants, so everything is drawn from it.
pub(crate) fn read(machine: String, export: &str, tenants: &[&str]) -> MachineJournal {
    let mut numbers = StoredNumbers::default();
    let mut journal = MachineJournal { machine, ..MachineJournal::default() };
    for line in export.lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        journal.last = record["position"].as_u64().expect("a number");
        for decision in record["decisions"].as_array().expect("a list") {
            let repeat = decision.get("key").filter(|key| !key.is_null()).map(Value::to_string);
            for effect in numbers.effects(decision["events"].as_array().expect("a list")) {
                if tenants.contains(&effect.tenant()) {
                    let (position, repeat) = (journal.last, repeat.clone());
                    journal.entries.push(JournalEntry { position, repeat, effect });
                }
            }
        }
    }
    journal
}

impl StoredNumbers {
    fn account(&self, number: &Value) -> String {
        self.accounts.get(&amount(number)).expect("it was opened").clone()
    }

    fn effects(&mut self, events: &[Value]) -> Vec<MoneyEffect> {
        let mut taken = 0;
        events.iter().filter_map(|event| self.effect(event, &mut taken)).collect()
    }

    /// The effect of one event. `taken` is what the same decision captured of a hold before.
    fn effect(&mut self, event: &Value, taken: &mut MicroCredits) -> Option<MoneyEffect> {
        let drawn = |account: &str| vec![(tenant(account), units(&event["pieces"]))];
        match event["type"].as_str()? {
            "account_opened" => {
                let account = text(&event["path"]);
                self.accounts.insert(amount(&event["account"]), account.clone());
                Some(MoneyEffect::Opened { account })
            }
            "grant_issued" => {
                let (id, account) = (text(&event["id"]), self.account(&event["account"]));
                Some(MoneyEffect::Granted { id, account, amount: amount(&event["amount"]) })
            }
            "hold_placed" => {
                let (id, account) = (text(&event["id"]), self.account(&event["account"]));
                let named = (tenant(&account), id.clone());
                self.spendings.insert(amount(&event["hold"]), named);
                let from = drawn(&account);
                Some(MoneyEffect::Held { id, account, from })
            }
            "charged" => {
                let (id, account) = (text(&event["id"]), self.account(&event["account"]));
                let named = (tenant(&account), id.clone());
                self.spendings.insert(amount(&event["hold"]), named);
                let (from, spendable_after) = (drawn(&account), amount(&event["spendable_after"]));
                Some(MoneyEffect::Charged { id, account, from, spendable_after })
            }
            "hold_captured" => {
                // Of each slice: its place, and how much.
                let slices = event["taken"].as_array().map_or(&[][..], Vec::as_slice);
                *taken += slices.chunks(2).map(|slice| amount(&slice[1])).sum::<u64>();
                None
            }
            "hold_closed" => {
                let (tenant, hold) = self.spendings.get(&amount(&event["hold"]))?.clone();
                let taken = vec![(tenant.clone(), *taken)];
                Some(MoneyEffect::Settled { tenant, hold, taken })
            }
            "refunded" => {
                let (tenant, of) = self.spendings.get(&amount(&event["hold"]))?.clone();
                let movement = &event["movement"];
                let to = vec![(tenant.clone(), units(&movement["pieces"]))];
                Some(MoneyEffect::Refunded { id: text(&movement["id"]), tenant, of, to })
            }
            _ => None,
        }
    }
}
