//! Turns an operation into a request: a valid one, then with hostile values in some of its slots.

use bursar_sim::random::Dice;
use serde_json::{Value, json};

use crate::description::{Description, Operation, Place};
use crate::hostile::MARK;
use crate::lane::Things;
use crate::slots::{self, Slot};
use crate::wire::Request;
use crate::world::{self, World};

/// A hostile value: a text for parameters and headers, a literal for fields, bytes for bodies.
#[derive(Clone, Debug)]
pub(crate) enum Poison {
    Text(String),
    Literal(String),
    Bytes(Vec<u8>),
}

/// The parts of a request.
struct Draft {
    path: Vec<(String, String)>,
    query: Vec<(String, String)>,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Value>,
    raw_body: Option<Vec<u8>>,
    literals: Vec<String>,
    /// Whether the target is written without percent-encoding.
    is_raw: bool,
}

/// The request, and whether it is still one for this operation and well-formed as HTTP.
pub(crate) struct Made {
    pub(crate) request: Request,
    pub(crate) is_plain: bool,
}

pub(crate) fn make(
    description: &Description,
    operation: &Operation,
    poisons: &[(Slot, Poison)],
    world: &World,
    things: &Things,
    dice: &mut Dice,
) -> Made {
    let mut draft = valid(description, operation, world, things, dice);
    // One in eight is written raw: most of these are rejected before they are parsed.
    draft.is_raw = dice.below(8) == 0;
    for (slot, poison) in poisons {
        poisoned(description, operation, &mut draft, slot, poison);
    }
    finished(operation, draft)
}

fn valid(
    description: &Description,
    operation: &Operation,
    world: &World,
    things: &Things,
    dice: &mut Dice,
) -> Draft {
    let path = operation.parameters.iter().filter(|(place, _)| *place == Place::Path);
    let path = path.map(|(_, name)| (name.clone(), things.path_value(operation, name, dice)));
    let path = path.collect();
    // The root key is permitted everything, so its requests reach the machines; other keys must be rejected.
    let key = match dice.below(3) {
        0 => &world.keys[dice.below(world.keys.len())],
        _ => &world.root,
    };
    let mut headers = vec![("Authorization".to_owned(), format!("Bearer {key}").into_bytes())];
    if dice.below(4) == 0 && operation.method != "GET" {
        let key = format!("fuzz-{}", dice.below(1000));
        headers.push(("Idempotency-Key".into(), key.into()));
    }
    let body = operation.body.as_ref().map(|schema| {
        let mut body = slots::sample(description, schema, "");
        things.fit(operation, &mut body, dice);
        if operation.id == "create_session" {
            body["key"] = world.root.as_str().into();
        }
        body
    });
    if body.is_some() {
        headers.push(("Content-Type".into(), b"application/json".to_vec()));
    }
    let mut query = Vec::new();
    let needed: &[(&str, &str)] = match operation.id.as_str() {
        "get_statement" => &[("from", world::BEGINNING), ("to", world::NEXT_DAY[0])],
        "get_proof" => &[("position", "1")],
        "get_account_series" => &[("metric", "available")],
        "get_region_series" => &[("metric", "jobs_running")],
        _ => &[],
    };
    query.extend(needed.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    let (raw_body, literals) = (None, Vec::new());
    Draft { path, query, headers, body, raw_body, literals, is_raw: false }
}

fn poisoned(
    description: &Description,
    operation: &Operation,
    draft: &mut Draft,
    slot: &Slot,
    poison: &Poison,
) {
    let set = |pairs: &mut Vec<(String, String)>, name: &str, text: &str| {
        pairs.retain(|(other, _)| other != name);
        pairs.push((name.to_owned(), text.to_owned()));
    };
    match (slot, poison) {
        (Slot::Path(name), Poison::Text(text)) => set(&mut draft.path, name, text),
        (Slot::Query(name), Poison::Text(text)) => set(&mut draft.query, name, text),
        (Slot::Header(name), Poison::Text(text)) => {
            draft.headers.retain(|(other, _)| other != name);
            draft.headers.push((name.clone(), text.clone().into_bytes()));
        }
        (Slot::Field(way), Poison::Literal(literal)) => {
            let (Some(body), Some(schema)) = (&mut draft.body, &operation.body) else { return };
            let mark = format!("{MARK}{}", draft.literals.len());
            slots::put(description, schema, body, way, mark.into());
            draft.literals.push(literal.clone());
        }
        (Slot::Unknown, Poison::Literal(literal)) => {
            let Some(body) = &mut draft.body else { return };
            body["unknown\u{202e}"] = format!("{MARK}{}", draft.literals.len()).into();
            draft.literals.push(literal.clone());
        }
        (Slot::Body, Poison::Bytes(bytes)) => draft.raw_body = Some(bytes.clone()),
        _ => unreachable!("slots get what they can take"),
    }
}

/// Whether a text can be a value of a header.
fn is_header_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f)
}

fn encoded(text: &str, is_raw: bool) -> String {
    // Only characters that end a request line are always encoded: they would start another request.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes()
        .map(|byte| match byte {
            _ if plain(byte) => (byte as char).to_string(),
            0x21..=0x7e if is_raw => (byte as char).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn finished(operation: &Operation, draft: Draft) -> Made {
    let mut target = operation.path.clone();
    let mut is_plain = true;
    for (name, text) in &draft.path {
        target = target.replace(&format!("{{{name}}}"), &encoded(text, draft.is_raw));
        is_plain &= !text.is_empty() && !draft.is_raw;
    }
    for (place, (name, text)) in draft.query.iter().enumerate() {
        let mark = if place == 0 { '?' } else { '&' };
        target += &format!("{mark}{name}={}", encoded(text, draft.is_raw));
    }
    is_plain &= !draft.is_raw && target.len() < 8000;
    for (_, value) in &draft.headers {
        is_plain &= is_header_text(value) && value.len() < 8000;
    }
    let body = match (draft.raw_body, draft.body) {
        (Some(bytes), _) => bytes,
        (None, Some(body)) => {
            let mut text = body.to_string();
            for (place, literal) in draft.literals.iter().enumerate() {
                text = text.replacen(&format!("\"{MARK}{place}\""), literal, 1);
            }
            text.into_bytes()
        }
        (None, None) => Vec::new(),
    };
    let waits = ["wait_seconds", "min_position", "follow"];
    let lingers = draft.query.iter().any(|(name, _)| waits.contains(&name.as_str()));
    let headers = draft.headers;
    let method = operation.method.clone();
    Made { request: Request { method, target, headers, body, lingers }, is_plain }
}

/// A valid body for the present world.
pub(crate) fn fitted(id: &str, body: &mut Value, things: &Things, dice: &mut Dice) {
    let account = things.account(dice);
    let mut set = |name: &str, value: Value| body[name] = value;
    match id {
        "place_hold" | "create_charge" => {
            set("account", account.into());
            set("amount", "0.01".into());
        }
        "issue_grant" => {
            set("account", account.into());
            set("expires_at", "2099-01-01T00:00:00Z".into());
        }
        "submit_job" | "get_quote" => {
            set("account", account.into());
            set("gpus", json!({ "types": ["H100"], "count": 1 }));
            set("max_runtime_seconds", 60.into());
        }
        "create_transfer" => {
            set("from", "acme:nlp".into());
            set("to", "acme:scratch".into());
            set("amount", "0.01".into());
        }
        "create_refund" => {
            *body = match dice.below(3) {
                0 => json!({
                    "charge": things.charge(dice), "amount": "0.001", "reason": "a reason",
                    "reference": "a reference"
                }),
                1 => json!({ "hold": things.hold(dice), "amount": "0.001" }),
                _ => json!({ "job": things.job(dice) }),
            };
        }
        "report_usage" => {
            let record = match dice.below(2) {
                0 => json!({ "hold": things.hold(dice), "seq": 1, "amount_total": "0.001" }),
                _ => json!({ "job": things.job(dice), "seq": 1, "gpu_ms_total": 10 }),
            };
            set("records", json!([record]));
        }
        "plan_maintenance" => {
            let [from, to] = world::NEXT_DAY;
            *body = json!({ "from": from, "to": to });
        }
        "settle_hold" | "capture_hold" => set("total", "0.001".into()),
        "open_account" => set("id", format!("acme:scratch:n{}", dice.below(50)).into()),
        "create_key" => set("scope", account.into()),
        "register_node" => {
            let node = things.node(dice);
            set("gpus", world::gpus(&node, "H100", 2));
            set("id", node.into());
        }
        "heartbeat_node" => {
            set("incarnation", things.incarnation.into());
            set("seq", (things.seq + dice.below(3) as u64).into());
            let report =
                json!({ "id": things.attempt(dice), "state": "running", "gpu_ms_total": 5 });
            set("attempts", json!([report]));
        }
        "send_node_log" => {
            set("incarnation", things.incarnation.into());
            set("attempt", things.attempt(dice).into());
        }
        "dry_run" => {
            set("method", "POST".into());
            set("path", "/v1/holds".into());
            set("body", json!({ "account": account, "amount": "0.01" }));
        }
        "run_batch" => {
            let hold = json!({ "account": account, "amount": "0.01" });
            let operation =
                |path: &str, body: &Value| json!({ "method": "POST", "path": path, "body": body });
            let settle = format!("/v1/holds/{}/settle", things.hold(dice));
            let operations = [
                operation("/v1/holds", &hold),
                operation("/v1/charges", &hold),
                operation(&settle, &json!({ "total": "0.001" })),
            ];
            set("operations", json!(operations));
            set("atomic", (dice.below(2) == 0).into());
        }
        _ => {}
    }
}
