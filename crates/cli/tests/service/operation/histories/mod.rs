//! Retrying clients write down what they see while the server is killed under them. The checker
//! compares it with the journal.

mod journal;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_testkit::generate::Random;
use bursar_testkit::histories::{
    CallOutcome, ClientCall, ClientHistory, KeyLife, MicroCredits, MoneyRequest, RefusalReason,
    check,
};
use reqwest::{Client, Response};
use serde_json::{Value, json};

use crate::ledger::concurrency::micros;
use crate::server::Server;

const CLIENTS: u32 = 6;
const KILLS: u32 = 4;
const ACCOUNTS: [&str; 3] = ["acme", "acme:nlp", "umbra"];
/// A hold or a charge: tenant, id, micro-credits.
type Spending = (&'static str, String, MicroCredits);

/// What all clients share.
struct Notes {
    start: tokio::time::Instant,
    url: String,
    root: String,
    /// A key of the tenant acme that is revoked while it is used.
    guest: String,
    calls: Mutex<Vec<ClientCall>>,
    spendings: Mutex<Vec<Spending>>,
    answered: AtomicU64,
    stop: AtomicBool,
}

impl Notes {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a short test")
    }

    fn spendings(&self) -> std::sync::MutexGuard<'_, Vec<Spending>> {
        self.spendings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, call: ClientCall) {
        self.answered.fetch_add(u64::from(call.outcome != CallOutcome::Unknown), Ordering::SeqCst);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

fn tenant(account: &'static str) -> &'static str {
    account.split(':').next().unwrap_or(account)
}

fn credits(amount: MicroCredits) -> String {
    format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000)
}

fn amount(value: &Value) -> MicroCredits {
    MicroCredits::try_from(micros(value)).expect("not negative")
}

/// Path and body of a request.
fn wire(request: &MoneyRequest) -> (String, Value) {
    let with_id = |mut body: Value, id: &Option<String>| {
        if let Some(id) = id {
            body["id"] = json!(id);
        }
        body
    };
    match request {
        MoneyRequest::Grant { id, account, amount } => {
            let body =
                json!({ "account": account, "amount": credits(*amount), "kind": "purchase" });
            ("/v1/grants".into(), with_id(body, id))
        }
        MoneyRequest::Hold { id, account, amount } => {
            let body = json!({ "account": account, "amount": credits(*amount) });
            ("/v1/holds".into(), with_id(body, id))
        }
        MoneyRequest::Settle { hold, total } => {
            (format!("/v1/holds/{hold}/settle"), json!({ "total": credits(*total) }))
        }
        MoneyRequest::Charge { id, account, amount } => {
            let body = json!({ "account": account, "amount": credits(*amount) });
            ("/v1/charges".into(), with_id(body, id))
        }
        MoneyRequest::Refund { id, of, amount } => {
            let kind = if of.starts_with("charge") { "charge" } else { "hold" };
            ("/v1/refunds".into(), with_id(json!({ kind: of, "amount": credits(*amount) }), id))
        }
        MoneyRequest::Balance { account } => {
            (format!("/v1/accounts/{account}/balance"), Value::Null)
        }
    }
}

/// What an answer says, or nothing if it leaves the outcome open.
async fn outcome(request: &MoneyRequest, response: Response) -> CallOutcome {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let Ok(body) = response.json::<Value>().await else { return CallOutcome::Unknown };
    let code = body["code"].as_str().unwrap_or_default();
    match (status, code, request) {
        (500 | 503, _, _) => CallOutcome::Unknown,
        (401, _, _) => CallOutcome::Unauthenticated,
        (402, "insufficient_credits", _) => {
            CallOutcome::Refused(RefusalReason::InsufficientCredits)
        }
        (404, _, _) => CallOutcome::Refused(RefusalReason::NotFound),
        (409, "hold_closed", _) => CallOutcome::Refused(RefusalReason::HoldClosed),
        (409, _, MoneyRequest::Refund { .. }) => {
            CallOutcome::Refused(RefusalReason::RefundTooLarge)
        }
        (200, _, MoneyRequest::Balance { .. }) => CallOutcome::Balance {
            position: body["position"].as_u64().expect("a read has a position"),
            available: amount(&body["available"]),
            held: amount(&body["held"]),
            spendable: amount(&body["spendable"]),
        },
        (200 | 201, _, request) => {
            let done = match request {
                MoneyRequest::Grant { .. } | MoneyRequest::Hold { .. } => "amount",
                MoneyRequest::Settle { .. } => "captured",
                MoneyRequest::Charge { .. } => "charged",
                MoneyRequest::Refund { .. } => "refunded",
                MoneyRequest::Balance { .. } => panic!("a read is handled before"),
            };
            let position = headers["bursar-position"].to_str().expect("ascii");
            CallOutcome::Done {
                position: position.parse().expect("one shard"),
                id: body["id"].as_str().expect("an id").to_owned(),
                amount: amount(&body[done]),
                spendable_after: body.get("spendable_after").map(amount),
                first: !headers.contains_key("idempotent-replayed"),
            }
        }
        _ => panic!("{status} {body}"),
    }
}

/// Sends a request until it has an answer; every try is noted.
async fn send(
    notes: &Notes,
    http: &Client,
    client: u32,
    bearer: &str,
    tenant: &str,
    key: &str,
    request: MoneyRequest,
) -> CallOutcome {
    let secret = if bearer == "guest" { &notes.guest } else { &notes.root };
    loop {
        let (path, body) = wire(&request);
        let url = format!("{}{path}", notes.url);
        let is_read = body.is_null();
        let sending = if is_read { http.get(url) } else { http.post(url).json(&body) };
        let sending = sending.bearer_auth(secret).header("Bursar-Tenant", tenant);
        let sending = if is_read { sending } else { sending.header("Idempotency-Key", key) };
        let invoked = notes.now();
        let outcome = match sending.send().await {
            Ok(response) => outcome(&request, response).await,
            Err(_) => CallOutcome::Unknown,
        };
        notes.note(ClientCall {
            client,
            bearer: bearer.to_owned(),
            tenant: tenant.to_owned(),
            invoked,
            returned: notes.now(),
            repeat: (!is_read).then(|| key.to_owned()),
            request: request.clone(),
            outcome: outcome.clone(),
        });
        if outcome != CallOutcome::Unknown {
            return outcome;
        }
        // The server is away: not more often than a client would.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A request of this step, with its tenant.
fn choose(notes: &Notes, random: &mut Random, name: &str) -> (&'static str, MoneyRequest) {
    let account = *random.pick(&ACCOUNTS);
    let sum = u64::try_from(random.between(1, 900_000)).expect("positive");
    let id = random.chance(50).then(|| name.to_owned());
    let known = notes.spendings().clone();
    match random.index(10) {
        0 => (tenant(account), MoneyRequest::Grant { id, account: account.into(), amount: sum }),
        1 | 2 => (tenant(account), MoneyRequest::Hold { id, account: account.into(), amount: sum }),
        3 | 4 => (
            tenant(account),
            MoneyRequest::Charge { id: None, account: account.into(), amount: sum },
        ),
        // Several clients settle the same hold with different totals: one of them does it.
        5 | 6 if !known.is_empty() => {
            let (tenant, hold, most) = random.pick(&known).clone();
            match hold.starts_with("charge") {
                true => (tenant, MoneyRequest::Refund { id, of: hold, amount: 1 + sum % most }),
                false => (tenant, MoneyRequest::Settle { hold, total: 1 + sum % most }),
            }
        }
        7 if !known.is_empty() => {
            let (tenant, of, most) = random.pick(&known).clone();
            (tenant, MoneyRequest::Refund { id, of, amount: 1 + sum % most })
        }
        _ => (tenant(account), MoneyRequest::Balance { account: account.into() }),
    }
}

async fn work(notes: Arc<Notes>, client: u32) {
    let http = Client::new();
    let mut random = Random::new(client.into());
    let mut step = 0_u32;
    while !notes.stop.load(Ordering::SeqCst) {
        step += 1;
        let name = format!("c{client}-{step}");
        let (tenant, request) = choose(&notes, &mut random, &name);
        let is_grant = matches!(request, MoneyRequest::Grant { .. });
        let guest = tenant == "acme" && !is_grant && random.once_in(3);
        let bearer = if guest { "guest" } else { "root" };
        let answer = send(&notes, &http, client, bearer, tenant, &name, request.clone()).await;
        if let (
            CallOutcome::Done { id, amount, .. },
            MoneyRequest::Hold { .. } | MoneyRequest::Charge { .. },
        ) = (answer, &request)
        {
            notes.spendings().push((tenant, id, amount));
        }
    }
}

/// Revokes a key, and asks again until there is an answer.
async fn revoke(notes: &Notes, id: &str) -> (u64, Option<u64>) {
    let (http, asked) = (Client::new(), notes.now());
    let url = format!("{}/v1/keys/{id}", notes.url);
    loop {
        let sent = http.delete(&url).bearer_auth(&notes.root).send().await;
        // After an unanswered try the key may be gone.
        if sent.is_ok_and(|answer| matches!(answer.status().as_u16(), 200 | 204 | 404)) {
            return (asked, Some(notes.now()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_saw_through_four_kills_is_linearizable() {
    let mut server = Server::with(&[]);
    for (account, kind) in [("acme", "org"), ("acme:nlp", "team"), ("umbra", "org")] {
        server.open(account, kind).await;
    }
    let body = json!({ "role": "admin", "scope": "acme", "name": "guest" });
    let guest = server.call("POST", "/v1/keys", body).await.expect(201);
    let notes = Arc::new(Notes {
        start: tokio::time::Instant::now(),
        url: server.url.clone(),
        root: server.root.clone(),
        guest: guest["key"].as_str().expect("shown once").to_owned(),
        calls: Mutex::default(),
        spendings: Mutex::default(),
        answered: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(work(Arc::clone(&notes), number))).collect();
    let mut revoked = None;
    for kill in 1..=KILLS {
        let before = notes.answered.load(Ordering::SeqCst);
        while notes.answered.load(Ordering::SeqCst) < before + 150 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if kill == KILLS / 2 {
            // While the server is away.
            let (notes, id) = (Arc::clone(&notes), guest["id"].as_str().expect("an id").to_owned());
            let revoking = tokio::spawn(async move { revoke(&notes, &id).await });
            server.crash_and_restart(&[]);
            let life = revoking.await.expect("no panic");
            revoked = Some(life);
        } else {
            server.crash_and_restart(&[]);
        }
    }
    let before = notes.answered.load(Ordering::SeqCst);
    while notes.answered.load(Ordering::SeqCst) < before + 150 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    notes.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("no panic");
    }
    let key = |bearer: &str, revoked| KeyLife { bearer: bearer.to_owned(), made: 0, revoked };
    let history = ClientHistory {
        journals: vec![journal::exported(server.data())],
        calls: notes.calls.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        keys: vec![key("root", None), key("guest", revoked)],
    };
    let compared = check(&history).unwrap_or_else(|found| panic!("{found}"));
    println!("{KILLS} kills: {compared:?}");
    assert!(compared.changes > 100 && compared.reads > 50, "{compared:?}");
    assert!(compared.unanswered > 0 && compared.refusals > 0, "{compared:?}");
    let refused = |call: &&ClientCall| call.outcome == CallOutcome::Unauthenticated;
    assert!(history.calls.iter().filter(refused).count() > 0, "the revoked key was used");
}
