//! Clients that send requests to any member, repeat those without an answer, and note everything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_testkit::generate::Random;
use bursar_testkit::histories::{
    CallOutcome, ClientCall, KeyLife, MicroCredits, MoneyRequest, RefusalReason,
};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::prices::{PriceChange, PriceRead};

/// How long a client waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);
/// The pause before a request is sent again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The pause between two requests of one client, so that the checker has little to compare.
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Clients that change credits.
pub(crate) const LANES: u32 = 6;
pub(crate) const CREDIT: MicroCredits = 1_000_000;

/// Everything that the clients noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientNotes {
    pub(crate) calls: Vec<ClientCall>,
    pub(crate) keys: Vec<KeyLife>,
    pub(crate) price_changes: Vec<PriceChange>,
    pub(crate) price_reads: Vec<PriceRead>,
}

/// What all clients share.
pub(crate) struct TestClients {
    urls: Vec<String>,
    pub(crate) root: String,
    begun: Instant,
    stop: AtomicBool,
    notes: Mutex<ClientNotes>,
    /// The guests' keys by their names.
    guests: Mutex<BTreeMap<String, String>>,
}

/// An answer: its status, headers and body; none if there was none.
pub(crate) type ClientAnswer = Option<(u16, reqwest::header::HeaderMap, Value)>;

pub(crate) fn client() -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::builder().timeout(ANSWER_TIMEOUT).build().expect("a plain client")
}

/// The tenant of an account.
fn tenant(account: &str) -> String {
    account.split(':').next().unwrap_or(account).to_owned()
}

/// Micro-credits out of an amount as it is written.
pub(crate) fn micros(amount: &Value) -> MicroCredits {
    let text = amount.as_str().unwrap_or_else(|| panic!("{amount} is no amount"));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().expect("digits");
    let part: u64 = format!("{part:0<6}").parse().expect("digits");
    whole * CREDIT + part
}

impl TestClients {
    pub(crate) fn new(urls: &[String], root: &str) -> Arc<TestClients> {
        let (urls, root) = (urls.to_vec(), root.to_owned());
        let root_life = KeyLife { bearer: "root".into(), made: 0, revoked: None };
        let notes = ClientNotes { keys: vec![root_life], ..ClientNotes::default() };
        Arc::new(TestClients {
            urls,
            root,
            begun: Instant::now(),
            stop: AtomicBool::new(false),
            notes: Mutex::new(notes),
            guests: Mutex::default(),
        })
    }

    /// The time on the clock that all clients share.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("tests end within centuries")
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, ClientNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on no client begins another request.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn any_url(&self, random: &mut Random) -> &str {
        random.pick::<String>(&self.urls)
    }

    pub(crate) async fn send(
        &self,
        http: &Client,
        url: &str,
        (method, path, body): (&str, &str, &Value),
        (key, repeat): (&str, Option<&str>),
    ) -> ClientAnswer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = http.request(method, format!("{url}{path}")).bearer_auth(key);
        if let Some(repeat) = repeat {
            request = request.header("Idempotency-Key", repeat);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.ok()?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let bytes = answer.bytes().await.ok()?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        assert_ne!(status, 500, "{path}: {body}");
        (status != 503 && status != 429).then_some((status, headers, body))
    }

    /// Sends an administrator's request to any member until it is answered.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (http, mut random) = (client(), Random::new(self.now()));
        loop {
            let url = self.any_url(&mut random).to_owned();
            let sent = self.send(&http, &url, (method, path, &body), (&self.root, None)).await;
            if let Some((status, _, body)) = sent {
                return (status, body);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Makes a key for the tenant `acme`. It is lost if its answer is.
    pub(crate) async fn make_guest(&self, name: &str) {
        let (http, mut random) = (client(), Random::new(self.now()));
        for number in 0.. {
            let id = format!("{name}-{number}");
            let body = json!({ "id": id, "role": "admin", "scope": "acme", "name": name });
            let url = self.any_url(&mut random).to_owned();
            let sent = ("POST", "/v1/keys", &body);
            if let Some((201, _, made)) = self.send(&http, &url, sent, (&self.root, None)).await {
                let key = made["key"].as_str().expect("shown once").to_owned();
                let life = KeyLife { bearer: id.clone(), made: self.now(), revoked: None };
                self.notes().keys.push(life);
                let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
                guests.insert(id, key);
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Revokes every guest's key. They go on to be tried.
    pub(crate) async fn revoke_guests(&self) {
        let open = |life: &&mut KeyLife| life.bearer != "root" && life.revoked.is_none();
        let mut revoked = Vec::new();
        for life in self.notes().keys.iter_mut().filter(open) {
            life.revoked = Some((self.now(), None));
            revoked.push(life.bearer.clone());
        }
        for id in revoked {
            let (status, body) = self.ask("DELETE", &format!("/v1/keys/{id}"), Value::Null).await;
            // The first try may have been carried out without an answer.
            assert!(matches!(status, 204 | 404), "{status}: {body}");
            let answered = self.now();
            for life in self.notes().keys.iter_mut().filter(|life| life.bearer == id) {
                life.revoked = life.revoked.map(|(asked, _)| (asked, Some(answered)));
            }
        }
    }

    /// Starts all clients.
    pub(crate) fn start(self: &Arc<TestClients>) -> Vec<tokio::task::JoinHandle<()>> {
        let lanes = (0..LANES).map(|number| tokio::spawn(TestLane::new(self, number).run()));
        let guest = tokio::spawn(Arc::clone(self).run_guest());
        let prices = tokio::spawn(Arc::clone(self).change_prices());
        let readers = tokio::spawn(Arc::clone(self).read_prices());
        lanes.chain([guest, prices, readers]).collect()
    }

    /// Tries the keys of guests, revoked ones as well.
    async fn run_guest(self: Arc<TestClients>) {
        let mut lane = TestLane::new(&self, LANES);
        while self.goes_on() {
            let guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let guests: Vec<(String, String)> = guests.into_iter().collect();
            tokio::time::sleep(RETRY_INTERVAL).await;
            if guests.is_empty() {
                continue;
            }
            let (bearer, key) = lane.random.pick(&guests).clone();
            let request = if lane.random.chance(50) {
                MoneyRequest::Balance { account: "acme".into() }
            } else {
                let id = Some(lane.new_id("gc"));
                MoneyRequest::Charge { id, account: "acme:nlp".into(), amount: CREDIT }
            };
            lane.settle_with(&bearer, &key, request).await;
        }
    }

    /// Sends one request with the root key until it is answered.
    pub(crate) async fn once(self: &Arc<TestClients>, number: u32, request: MoneyRequest) {
        let mut lane = TestLane::new(self, number);
        let root = self.root.clone();
        lane.settle_with("root", &root, request).await;
    }
}

/// One client: it sends one request after the other.
struct TestLane {
    clients: Arc<TestClients>,
    number: u32,
    http: Client,
    random: Random,
    made: u32,
    /// Open holds with their accounts and amounts.
    holds: Vec<(String, String, MicroCredits)>,
    /// Charges that were not refunded.
    charges: Vec<(String, String, MicroCredits)>,
}

impl TestLane {
    fn new(clients: &Arc<TestClients>, number: u32) -> TestLane {
        TestLane {
            clients: Arc::clone(clients),
            number,
            http: client(),
            random: Random::new(u64::from(number) + 1),
            made: 0,
            holds: Vec::new(),
            charges: Vec::new(),
        }
    }

    fn new_id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}-{}", self.number, self.made)
    }

    async fn run(mut self) {
        let root = self.clients.root.clone();
        while self.clients.goes_on() {
            let request = self.choose();
            let outcome = self.settle_with("root", &root, request.clone()).await;
            self.learn(request, outcome);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn choose(&mut self) -> MoneyRequest {
        let account = (*self.random.pick(&["acme", "acme:nlp", "umbra"])).to_owned();
        let amount = CREDIT * u64::try_from(self.random.between(1, 5)).expect("positive");
        // The server makes the other ids.
        let has_id = self.random.chance(50);
        match self.random.between(0, 9) {
            0 => MoneyRequest::Grant {
                id: Some(self.new_id("g")),
                account: tenant(&account),
                amount,
            },
            1 | 2 => {
                let id = has_id.then(|| self.new_id("h"));
                MoneyRequest::Hold { id, account, amount }
            }
            3 | 4 if !self.holds.is_empty() => {
                let (hold, _, amount) = self.holds[self.holds.len() - 1].clone();
                let parts = self.random.between(1, 4);
                let total = amount / 4 * u64::try_from(parts).expect("positive");
                MoneyRequest::Settle { hold, total }
            }
            5 if !self.charges.is_empty() => {
                let (of, _, amount) = self.charges[self.charges.len() - 1].clone();
                MoneyRequest::Refund { id: Some(self.new_id("r")), of, amount: amount / 2 }
            }
            6 | 7 => MoneyRequest::Balance { account },
            _ => {
                let id = has_id.then(|| self.new_id("c"));
                MoneyRequest::Charge { id, account, amount }
            }
        }
    }

    /// Remembers what can be settled or refunded later.
    fn learn(&mut self, request: MoneyRequest, outcome: CallOutcome) {
        let CallOutcome::Done { id, amount, .. } = outcome else { return };
        match request {
            MoneyRequest::Hold { account, .. } => self.holds.push((id, account, amount)),
            MoneyRequest::Charge { account, .. } => self.charges.push((id, account, amount)),
            MoneyRequest::Settle { .. } => drop(self.holds.pop()),
            MoneyRequest::Refund { .. } => drop(self.charges.pop()),
            MoneyRequest::Grant { .. } | MoneyRequest::Balance { .. } => {}
        }
    }

    /// The tenant that a request is about.
    fn tenant_of(&self, request: &MoneyRequest) -> String {
        let known = |list: &[(String, String, MicroCredits)], id: &str| {
            list.iter().find(|(known, _, _)| known == id).map(|(_, account, _)| tenant(account))
        };
        match request {
            MoneyRequest::Grant { account, .. }
            | MoneyRequest::Hold { account, .. }
            | MoneyRequest::Charge { account, .. }
            | MoneyRequest::Balance { account } => tenant(account),
            MoneyRequest::Settle { hold, .. } => known(&self.holds, hold).expect("its own hold"),
            MoneyRequest::Refund { of, .. } => known(&self.charges, of).expect("its own charge"),
        }
    }

    /// Sends a request, with the same idempotency key again and again, until it is answered.
    async fn settle_with(&mut self, bearer: &str, key: &str, request: MoneyRequest) -> CallOutcome {
        let is_read = matches!(request, MoneyRequest::Balance { .. });
        let repeat = (!is_read).then(|| self.new_id("k"));
        let tenant = self.tenant_of(&request);
        let (method, path, body) = wire(&request);
        loop {
            let url = self.clients.any_url(&mut self.random).to_owned();
            let invoked = self.clients.now();
            let sent = (method, path.as_str(), &body);
            let answer = self.clients.send(&self.http, &url, sent, (key, repeat.as_deref())).await;
            let outcome = answer.map_or(CallOutcome::Unknown, |(status, headers, body)| {
                read(&request, status, &headers, &body)
            });
            let call = ClientCall {
                client: self.number,
                bearer: bearer.to_owned(),
                tenant: tenant.clone(),
                invoked,
                returned: self.clients.now(),
                repeat: repeat.clone(),
                request: request.clone(),
                outcome: outcome.clone(),
            };
            self.clients.notes().calls.push(call);
            if outcome != CallOutcome::Unknown {
                return outcome;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// A request as it is sent.
fn wire(request: &MoneyRequest) -> (&'static str, String, Value) {
    let credits = |amount: &MicroCredits| {
        let (whole, part) = (amount / CREDIT, amount % CREDIT);
        let text = format!("{whole}.{part:06}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let (path, mut body, id) = match request {
        MoneyRequest::Grant { id, account, amount } => {
            let amount = credits(amount);
            let body = json!({ "account": account, "amount": amount, "kind": "purchase" });
            ("/v1/grants".to_owned(), body, id)
        }
        MoneyRequest::Hold { id, account, amount } => {
            let amount = credits(amount);
            let body = json!({ "account": account, "amount": amount, "ttl_seconds": 86_400 });
            ("/v1/holds".into(), body, id)
        }
        MoneyRequest::Charge { id, account, amount } => {
            ("/v1/charges".into(), json!({ "account": account, "amount": credits(amount) }), id)
        }
        MoneyRequest::Refund { id, of, amount } => {
            ("/v1/refunds".into(), json!({ "charge": of, "amount": credits(amount) }), id)
        }
        MoneyRequest::Settle { hold, total } => {
            (format!("/v1/holds/{hold}/settle"), json!({ "total": credits(total) }), &None)
        }
        MoneyRequest::Balance { account } => {
            return ("GET", format!("/v1/accounts/{account}/balance"), Value::Null);
        }
    };
    if let Some(id) = id {
        body["id"] = id.clone().into();
    }
    ("POST", path, body)
}

/// What a client learns from an answer.
fn read(
    request: &MoneyRequest,
    status: u16,
    headers: &reqwest::header::HeaderMap,
    body: &Value,
) -> CallOutcome {
    match (status, body["code"].as_str()) {
        (200 | 201, _) => done(request, headers, body),
        (401, _) => CallOutcome::Unauthenticated,
        (402, Some("insufficient_credits")) => {
            CallOutcome::Refused(RefusalReason::InsufficientCredits)
        }
        (409, Some("hold_closed")) => CallOutcome::Refused(RefusalReason::HoldClosed),
        (404, Some("not_found")) => CallOutcome::Refused(RefusalReason::NotFound),
        _ => panic!("{request:?}: {status} {body}"),
    }
}

fn done(request: &MoneyRequest, headers: &reqwest::header::HeaderMap, body: &Value) -> CallOutcome {
    let field = match request {
        MoneyRequest::Grant { .. } | MoneyRequest::Hold { .. } => "amount",
        MoneyRequest::Settle { .. } => "captured",
        MoneyRequest::Charge { .. } => "charged",
        MoneyRequest::Refund { .. } => "refunded",
        MoneyRequest::Balance { .. } => {
            return CallOutcome::Balance {
                position: body["position"].as_u64().expect("a position"),
                available: micros(&body["available"]),
                held: micros(&body["held"]),
                spendable: micros(&body["spendable"]),
            };
        }
    };
    // With several shards it names the one that answered.
    let position = headers["bursar-position"].to_str().expect("plain text");
    let position = position.rsplit(':').next().expect("at least one part").parse();
    let is_charge = matches!(request, MoneyRequest::Charge { .. });
    CallOutcome::Done {
        position: position.expect("a position"),
        id: body["id"].as_str().expect("an id").to_owned(),
        amount: micros(&body[field]),
        spendable_after: is_charge.then(|| micros(&body["spendable_after"])),
        first: !headers.contains_key("idempotent-replayed"),
    }
}
