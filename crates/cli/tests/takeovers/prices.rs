//! Clients that change a price and read it, and the check that no read is stale.

use std::sync::Arc;

use bursar_testkit::generate::Random;
use serde_json::{Value, json};

use crate::clients::{CREDIT, RETRY_INTERVAL, TestClients, client, micros};

/// A change of a price, and when it was asked for and answered.
#[derive(Clone, Debug)]
pub(crate) struct PriceChange {
    pub(crate) price: u64,
    pub(crate) asked: u64,
    pub(crate) answered: Option<u64>,
}

/// A price that was read.
#[derive(Clone, Debug)]
pub(crate) struct PriceRead {
    pub(crate) price: u64,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}

impl TestClients {
    /// Raises a price again and again. A change without an answer is not sent again.
    pub(crate) async fn change_prices(self: Arc<TestClients>) {
        let (http, mut random) = (client(), Random::new(77));
        for price in 10.. {
            if !self.goes_on() {
                return;
            }
            let change = PriceChange { price, asked: self.now(), answered: None };
            self.notes().price_changes.push(change);
            let url = self.any_url(&mut random).to_owned();
            let body = json!({ "per_gpu_hour": price.to_string() });
            let sent = ("PUT", "/v1/prices/A100", &body);
            let answer = self.send(&http, &url, sent, (&self.root, None)).await;
            if let Some((status, _, body)) = answer {
                assert_eq!(status, 200, "{body}");
                let answered = Some(self.now());
                self.notes().price_changes.last_mut().expect("just pushed").answered = answered;
            }
            tokio::time::sleep(RETRY_INTERVAL * 3).await;
        }
    }

    pub(crate) async fn read_prices(self: Arc<TestClients>) {
        let (http, mut random) = (client(), Random::new(78));
        while self.goes_on() {
            let (url, asked) = (self.any_url(&mut random).to_owned(), self.now());
            let sent = ("GET", "/v1/prices", &Value::Null);
            if let Some((status, _, body)) = self.send(&http, &url, sent, (&self.root, None)).await
            {
                assert_eq!(status, 200, "{body}");
                let prices = body["data"].as_array().expect("a list");
                let found = prices.iter().find(|price| price["gpu_type"] == "A100");
                if let Some(price) = found.map(|price| micros(&price["per_gpu_hour"]) / CREDIT) {
                    let answered = self.now();
                    self.notes().price_reads.push(PriceRead { price, asked, answered });
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// The reads that show a price which had been replaced before they were sent, or one that was not set yet.
pub(crate) fn stale_prices(changes: &[PriceChange], reads: &[PriceRead]) -> Vec<String> {
    let of = |price: u64| changes.iter().find(|change| change.price == price);
    let is_stale = |read: &&PriceRead| {
        let Some(shown) = of(read.price) else { return true };
        // One that was not answered may take effect at any later time.
        let replaced = shown.answered.is_some_and(|answered| {
            changes.iter().any(|later| {
                later.asked > answered && later.answered.is_some_and(|until| until < read.asked)
            })
        });
        replaced || shown.asked > read.answered
    };
    reads.iter().filter(is_stale).map(|read| format!("{read:?}")).collect()
}
