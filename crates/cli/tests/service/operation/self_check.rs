//! A violated invariant at run time: counted, reported, and the tenant's spending stops.

use std::time::Duration;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit};
use bursar_core::ledger::event::Event;
use bursar_core::ledger::id::AccountNo;
use bursar_journal::record::ledger::{decode_record, encode_body};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{BatchBuilder, Head, Journal, RecordKind};
use serde_json::{Value, json};

use crate::server::Server;

/// Writes an event behind the end of a ledger's journal, with a valid chain, as its owner would.
pub(crate) fn write_behind(
    file: &std::path::Path,
    event: impl FnOnce(AccountNo) -> Event,
    path: &str,
) {
    let journal =
        SqliteJournal::open(file, SqliteOptions::default()).expect("no process has it open");
    let mut found = None;
    let mut last = None;
    for batch in journal.read(Head::genesis(journal.id())).expect("it can be read") {
        let batch = batch.expect("it is whole");
        for record in batch.frames() {
            let record = record.expect("it is whole");
            last = Some(record.time);
            for body in decode_record(record.kind, record.body).expect("it is known") {
                found = found.or(body.events.iter().find_map(|event| match event {
                    Event::AccountOpened { account, path: opened, .. } if opened == path => {
                        Some(*account)
                    }
                    _ => None,
                }));
            }
        }
    }
    let event = event(found.expect("the account was opened"));
    let lease = journal.acquire_lease("test", Duration::from_secs(30)).expect("it is free");
    let mut batch = BatchBuilder::new();
    let time = last.expect("there are records");
    batch.push(RecordKind::Due, time, |body| encode_body(None, &[event], body));
    let head = journal.head().expect("it can be read");
    let batch = batch.finish().expect("one record");
    journal.begin_append(lease.epoch, head, batch).wait().expect("it is written");
    journal.release_lease(&lease).expect("it was ours");
}

/// A budget that says that 7 credits were spent of which the ledger knows nothing.
fn false_budget(account: AccountNo) -> Event {
    let credits = |number: i64| Credits::from_micros(number * 1_000_000).expect("not negative");
    let terms = BudgetTerms {
        limit: credits(100),
        unit: BudgetUnit::Credits,
        period: BudgetPeriod::Day,
        mode: BudgetMode::Soft,
        thresholds: [100].into_iter().collect(),
        utc_offset_minutes: 0,
    };
    let day = bursar_core::time::Timestamp::from_millis(1_577_836_800_000);
    let (period_start, _) = terms.period_of(day);
    let (budget, spent, held) = ("b".into(), 7_000_000, 0);
    Event::BudgetSet { account, budget, terms, period_start, spent, held }
}

#[tokio::test]
async fn a_violated_invariant_is_counted_and_stops_the_spending_of_its_tenant_only() {
    let flags = ["--clock", "manual"];
    let mut server = Server::with(&flags);
    server.tree().await;
    server.grant("g-acme", "acme", "10").await;
    server.grant("g-umbra", "umbra", "10").await;
    server.crash();
    server.spoil("a record that breaks a law is written into its journal");
    write_behind(&server.data().join("ledger-0.db"), false_budget, "acme:nlp");
    server.restart(&flags);
    server.until_metric("bursar_self_check_violations_total", |count| count > 0.0).await;
    // The freeze is posted before the next look; a later unfreeze is undone by it.
    while server.get("/v1/accounts/acme").await["frozen"] != true {
        tokio::task::yield_now().await;
    }
    let spend = async |account: &str| {
        let charge = json!({ "account": account, "amount": "1" });
        server.call("POST", "/v1/charges", charge).await
    };
    spend("acme").await.problem("account_frozen");
    spend("acme:vision").await.problem("account_frozen");
    spend("umbra").await.expect(201);
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    assert!(ready["broken_laws"].as_u64().is_some_and(|count| count > 0), "{ready}");
    assert_eq!(ready["invariant_violations"], ready["broken_laws"], "{ready}");
    let path = "/v1/audit?account=acme";
    let trail = server.get(path).await;
    let freezes = |entry: &Value| entry["command"] == "freeze_account";
    let found = trail["data"].as_array().expect("a list").iter().find(|entry| freezes(entry));
    assert_eq!(found.map(|entry| &entry["actor"]), Some(&json!("self-check")));
}
