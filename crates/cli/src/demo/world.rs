//! The accounts, prices and credits at the start of the demo. Prices are sixty times real ones, so
//! that a minute of the demo corresponds to an hour.

use bursar_client::accounts::balances;
use bursar_client::api::Time;
use bursar_client::{Call, Client, Method, Nothing};
use bursar_server::config::Config;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::session::problem;

pub(super) const REGIONS: [&str; 2] = ["eu", "us"];

/// Nodes by name: region and simulated GPUs.
pub(super) const NODES: [(&str, &str, &str); 3] = [
    ("eu-h100-1", "eu", "H100:8:80"),
    ("eu-a100-1", "eu", "A100:8:80"),
    ("us-l40s-1", "us", "L40S:8:48"),
];

const ACCOUNTS: [(&str, &str, &str); 9] = [
    ("acme", "org", "Acme Research"),
    ("acme:nlp", "team", "Language"),
    ("acme:nlp:pretrain", "project", "Pretraining"),
    ("acme:nlp:chat", "project", "Chat"),
    ("acme:vision", "team", "Vision"),
    ("umbra", "org", "Umbra Robotics"),
    ("umbra:control", "team", "Control"),
    ("umbra:perception", "team", "Perception"),
    ("umbra:perception:mapping", "project", "Mapping"),
];

const PRICES: [(&str, &str); 3] = [("H100", "150"), ("A100", "90"), ("L40S", "48")];

/// A configuration in which nodes report every second.
pub(super) fn demo_config() -> Config {
    Config { heartbeat_seconds: Some(1), node_lease_seconds: Some(15), ..Config::default() }
}

/// Opens accounts and sets prices, grants and limits.
pub(super) async fn seed(client: &Client) -> Result<(), Failure> {
    for (gpu_type, price) in PRICES {
        let body = json!({ "per_gpu_hour": price });
        send(client, Method::Put, &format!("/v1/prices/{gpu_type}"), &body).await?;
    }
    for (id, kind, name) in ACCOUNTS {
        let body = json!({ "id": id, "kind": kind, "name": name });
        send(client, Method::Post, "/v1/accounts", &body).await?;
    }
    let answer = client.send(balances::now("acme")).await;
    let now = answer.map_err(|error| problem::failure(&error, None))?.value.as_of;
    for body in grants(now) {
        send(client, Method::Post, "/v1/grants", &body).await?;
    }
    for (account, name, limit, mode) in [
        ("acme", "day", "3000", "hard"),
        ("acme:vision", "day", "400", "hard"),
        ("umbra:perception", "day", "500", "soft"),
    ] {
        let body = json!({ "limit": limit, "period": "day", "mode": mode });
        send(client, Method::Put, &format!("/v1/accounts/{account}/budgets/{name}"), &body).await?;
    }
    let quota = json!({ "gpus": { "*": 12 }, "waiting_jobs": 20 });
    send(client, Method::Put, "/v1/accounts/umbra/quota", &quota).await?;
    charge_storage(client).await
}

/// A charge without a job that uses most of a budget, and a refund of a part of it.
async fn charge_storage(client: &Client) -> Result<(), Failure> {
    let budget = json!({ "limit": "240", "period": "month", "mode": "soft" });
    let path = "/v1/accounts/umbra:perception:mapping/budgets/storage";
    send(client, Method::Put, path, &budget).await?;
    let charge =
        json!({ "id": "map-storage", "account": "umbra:perception:mapping", "amount": "220" });
    send(client, Method::Post, "/v1/charges", &charge).await?;
    let reason = "two days without access";
    let refund = json!({ "charge": "map-storage", "amount": "12.5", "reason": reason });
    send(client, Method::Post, "/v1/refunds", &refund).await
}

/// Purchases without expiry, and promotions that expire soon.
fn grants(now: Time) -> [Value; 5] {
    let later = |minutes: i64| Time::from_millis(now.millis() + minutes * 60_000);
    [
        json!({ "account": "acme", "amount": "2000", "kind": "purchase", "id": "acme-order-1" }),
        json!({ "account": "acme:nlp", "amount": "150", "kind": "promotion", "id": "acme-welcome",
            "expires_at": later(15) }),
        json!({ "account": "acme:vision", "amount": "100", "kind": "promotion",
            "id": "vision-h100", "expires_at": later(30), "restrict": { "gpu_types": ["H100"] } }),
        json!({ "account": "umbra", "amount": "1200", "kind": "purchase", "id": "umbra-order-1" }),
        json!({ "account": "umbra:perception", "amount": "80", "kind": "grant",
            "id": "perception-seed", "expires_at": later(60) }),
    ]
}

/// Sends a request and ignores the answer's body.
pub(super) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<(), Failure> {
    let call: Call<Nothing> = Call::new(method, path).with_body(body);
    client.send(call).await.map(|_| ()).map_err(|error| problem::failure(&error, None))
}
