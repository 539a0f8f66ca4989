//! One sender: it tries every slot with every hostile value, in an order that depends on the seed.

use std::time::Instant;

use bursar_sim::random::Dice;
use serde_json::{Value, json};

use crate::description::{Description, Operation};
use crate::findings::Findings;
use crate::heavy;
use crate::hostile;
use crate::requests::{self, Poison};
use crate::slots::{Slot, slots};
use crate::wire::{Outcome, Wire};
use crate::world::{Client, World, gpus};

/// The number of requests after which the world is repaired and checked.
const EPOCH: usize = 100;

/// Operations that are sent at the end, because they destroy the world.
const LAST: &str = "move_clock";

/// The resources that requests can name; they grow with every epoch.
pub(crate) struct Things {
    lane: usize,
    epoch: usize,
    cursors: Vec<String>,
    attempts: Vec<String>,
    pub(crate) incarnation: u64,
    pub(crate) seq: u64,
}

impl Things {
    fn recent(&self, what: &str, tenant_one: &str, dice: &mut Dice) -> String {
        match dice.below(8) {
            0 => tenant_one.to_owned(),
            _ => format!("{what}-{}-{}", self.lane, self.epoch - dice.below(self.epoch.min(3) + 1)),
        }
    }

    pub(crate) fn hold(&self, dice: &mut Dice) -> String {
        self.recent("h", "acme-hold", dice)
    }

    pub(crate) fn charge(&self, dice: &mut Dice) -> String {
        self.recent("c", "acme-charge", dice)
    }

    pub(crate) fn job(&self, dice: &mut Dice) -> String {
        self.recent("j", "acme-job", dice)
    }

    pub(crate) fn node(&self, dice: &mut Dice) -> String {
        match dice.below(4) {
            0 => format!("n-other-{}", dice.below(3)),
            _ => format!("n-{}", self.lane),
        }
    }

    pub(crate) fn account(&self, dice: &mut Dice) -> String {
        ["acme:nlp", "acme:nlp", "acme:nlp:x", "acme", "umbra:nlp"][dice.below(5)].to_owned()
    }

    pub(crate) fn attempt(&self, dice: &mut Dice) -> String {
        match self.attempts.len() {
            0 => "att_0000000000001000000000001".to_owned(),
            count => self.attempts[count - 1 - dice.below(count.min(4))].clone(),
        }
    }

    /// A value that names a resource.
    pub(crate) fn path_value(&self, operation: &Operation, name: &str, dice: &mut Dice) -> String {
        let kind = operation.path.split('/').nth(2).unwrap_or("");
        match (kind, name) {
            ("accounts", "id") if operation.method == "GET" && !operation.path.ends_with('}') => {
                self.account(dice)
            }
            // Accounts that pay for other requests are not changed.
            ("accounts", "id") => "acme:scratch".into(),
            ("holds", _) => self.hold(dice),
            ("charges", _) => self.charge(dice),
            ("refunds", _) => "acme-refund".into(),
            ("transfers", _) => "acme-transfer".into(),
            ("grants", _) => self.recent("g", "umbra-more", dice),
            ("jobs", _) => self.job(dice),
            ("nodes", _) => self.node(dice),
            ("regions", _) => crate::world::REGIONS[dice.below(2)].into(),
            ("prices", _) => "H100".into(),
            ("shards", _) => "ledger-0".into(),
            ("keys", _) => self.recent("k", "nothing", dice),
            _ => "fuzz".into(),
        }
    }

    pub(crate) fn fit(&self, operation: &Operation, body: &mut Value, dice: &mut Dice) {
        requests::fitted(&operation.id, body, self, dice);
    }

    /// Creates new resources and repairs broken ones. None of this has to succeed: another sender may have
    /// frozen, drained or removed a resource that it needs.
    fn mend(&mut self, root: &mut Client) {
        self.epoch += 1;
        let (lane, epoch) = (self.lane, self.epoch);
        let name = |what: &str| format!("{what}-{lane}-{epoch}");
        let job = json!({
            "id": name("j"), "account": "acme:nlp", "gpus": { "types": ["H100"] },
            "max_runtime_seconds": 60, "command": ["true"]
        });
        let money = |id: String| json!({ "id": id, "account": "acme:nlp", "amount": "1" });
        let grant = json!({
            "id": name("g"), "account": "acme", "amount": "1000", "kind": "promotion",
            "expires_at": "2099-01-01T00:00:00Z"
        });
        let node = format!("n-{lane}");
        let register = json!({
            "id": node, "region": "default", "gpus": gpus(&node, "H100", 4), "cpus": 64,
            "memory_gib": 512
        });
        let region = "/v1/regions/default/maintenance";
        for (method, target, body) in [
            ("POST", "/v1/grants", grant),
            ("POST", "/v1/accounts/acme/unfreeze", Value::Null),
            ("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "6" })),
            ("DELETE", region, Value::Null),
            ("POST", "/v1/holds", money(name("h"))),
            ("POST", "/v1/charges", money(name("c"))),
            ("POST", "/v1/jobs", job),
            (
                "POST",
                "/v1/keys",
                json!({ "id": name("k"), "role": "viewer", "scope": "acme", "name": "spare" }),
            ),
            ("POST", "/v1/clock", json!({ "advance_seconds": 1 })),
            ("POST", &format!("/v1/nodes/{node}/resume"), Value::Null),
        ] {
            root.call(method, target, &body);
        }
        if epoch % 5 == 1
            && let Some(answer) = root.call("POST", "/v1/nodes", &register)
        {
            let made = answer.json().unwrap_or_default();
            self.incarnation = made["incarnation"].as_u64().unwrap_or(self.incarnation);
            self.seq = 0;
        }
        self.learn(root, &node);
    }

    /// Cursors and attempts are made by the server.
    fn learn(&mut self, root: &mut Client, node: &str) {
        self.seq += 10;
        let report = json!({ "incarnation": self.incarnation, "seq": self.seq, "attempts": [] });
        let heard = root.call("POST", &format!("/v1/nodes/{node}/heartbeat"), &report);
        let heard = heard.and_then(|answer| answer.json()).unwrap_or_default();
        for order in heard["orders"].as_array().into_iter().flatten() {
            self.attempts.extend(order["attempt"].as_str().map(str::to_owned));
        }
        for target in
            ["/v1/jobs?limit=1", "/v1/holds?limit=1&account=acme:nlp", "/v1/audit?limit=1"]
        {
            let page = root.call("GET", target, &Value::Null);
            let page = page.and_then(|answer| answer.json()).unwrap_or_default();
            self.cursors.extend(page["next_cursor"].as_str().map(str::to_owned));
        }
        let (cursors, attempts) = (self.cursors.len(), self.attempts.len());
        self.cursors.drain(..cursors.saturating_sub(16));
        self.attempts.drain(..attempts.saturating_sub(16));
    }
}

/// A cursor of the server with one of its characters changed.
fn bent(cursor: &str, dice: &mut Dice) -> String {
    let mut characters: Vec<char> = cursor.chars().collect();
    if !characters.is_empty() {
        let place = dice.below(characters.len());
        characters[place] = ['Z', '0', '9', 'f', ':', '_'][dice.below(6)];
    }
    characters.into_iter().collect()
}

/// Values of a header for one operation: headers are read in one place for all of them.
const HEADER_VALUES: usize = 6;
/// Values of `limit` and `min_position` for one operation, for the same reason.
const PAGE_VALUES: usize = 25;
/// How often a cursor is tried with each value, by other keys and on other things.
const CURSOR_TURNS: usize = 4;
/// Texts for one field of a body, beside all that is no text.
const FIELD_TEXTS: usize = 20;

/// Every slot of every operation with the values it can take, by index: the values are shared.
struct Plan<'a> {
    operations: Vec<(&'a Operation, Vec<Slot>)>,
    texts: Vec<String>,
    literals: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl Plan<'_> {
    /// The values that a slot is tried with in the plan. Cursors, paths and other parameters get all; slots that many
    /// operations parse in the same way get some, different ones for each operation.
    fn planned(&self, slot: &Slot, dice: &mut Dice) -> Vec<usize> {
        let all = 0..self.values(slot);
        let some = |from: usize, count: usize, dice: &mut Dice| -> Vec<usize> {
            let mut rest: Vec<usize> = (from..all.end).collect();
            dice.shuffle(&mut rest);
            rest.into_iter().take(count).collect()
        };
        match slot {
            Slot::Header(_) => some(0, HEADER_VALUES, dice),
            Slot::Query(name) if name == "limit" || name == "min_position" => {
                some(0, PAGE_VALUES, dice)
            }
            Slot::Field(_) | Slot::Unknown => {
                let texts = hostile::NO_TEXTS..hostile::NO_TEXTS + self.texts.len();
                let mut values: Vec<usize> = all.clone().filter(|v| !texts.contains(v)).collect();
                let drawn = some(texts.start, all.end, dice);
                values.extend(drawn.into_iter().filter(|v| texts.contains(v)).take(FIELD_TEXTS));
                values
            }
            Slot::Path(_) | Slot::Query(_) | Slot::Body => all.collect(),
        }
    }

    fn values(&self, slot: &Slot) -> usize {
        match slot {
            Slot::Path(_) | Slot::Query(_) | Slot::Header(_) => self.texts.len(),
            Slot::Field(_) | Slot::Unknown => self.literals.len(),
            Slot::Body => self.bodies.len(),
        }
    }

    fn poison(&self, slot: &Slot, value: usize) -> Poison {
        match slot {
            Slot::Path(_) | Slot::Query(_) | Slot::Header(_) => {
                Poison::Text(self.texts[value].clone())
            }
            Slot::Field(_) | Slot::Unknown => Poison::Literal(self.literals[value].clone()),
            Slot::Body => Poison::Bytes(self.bodies[value].clone()),
        }
    }
}

/// An operation, a slot of it and a value, by their places in the plan.
type Step = (usize, usize, usize);

/// The plan in the order of a seed, cursors first.
fn steps(plan: &Plan, seed: u64) -> Vec<Step> {
    let mut dice = Dice::new(seed, 1000);
    let cursor = Slot::Query("cursor".into());
    let mut steps: Vec<Step> = Vec::new();
    for (operation, (_, slots)) in plan.operations.iter().enumerate() {
        for (place, slot) in slots.iter().enumerate() {
            let values = plan.planned(slot, &mut dice);
            let turns = if *slot == cursor { CURSOR_TURNS } else { 1 };
            let values = values.into_iter().flat_map(|value| std::iter::repeat_n(value, turns));
            steps.extend(values.map(|value| (operation, place, value)));
        }
    }
    dice.shuffle(&mut steps);
    steps.sort_by_key(|(operation, place, _)| plan.operations[*operation].1[*place] != cursor);
    steps
}

/// Sends until the time is over, or until there are enough findings. Returns how many requests it
/// sent, and how many of them were in the plan.
pub(crate) fn run(
    (seed, lane, lanes): (u64, usize, usize),
    until: Instant,
    url: &str,
    description: &Description,
    world: &World,
    findings: &Findings,
) -> (usize, usize, usize) {
    let mut dice = Dice::new(seed, lane as u64);
    let operations = description.operations.iter().filter(|operation| operation.id != LAST);
    let operations = operations.map(|operation| (operation, slots(description, operation)));
    let (texts, literals) = (hostile::texts(), hostile::literals());
    let plan =
        Plan { operations: operations.collect(), texts, literals, bodies: hostile::bodies() };
    // All lanes use the same order of steps, and each takes its part of them.
    let mine: Vec<_> = steps(&plan, seed).into_iter().skip(lane).step_by(lanes).collect();
    let (cursors, attempts) = (Vec::new(), Vec::new());
    let mut things = Things { lane, epoch: 0, cursors, attempts, incarnation: 1, seq: 0 };
    let mut root = Client::new(url, &world.root);
    let mut wire = Wire::new(url);
    let mut sent = 0;
    if lane == 0 {
        heavy::send(&mut root, findings);
    }
    while crate::now() < until && !findings.is_enough() {
        if sent % EPOCH == 0 {
            things.mend(&mut root);
            findings.look_after(&mut root, lane, things.epoch);
        }
        let drawn = |dice: &mut Dice| mine[dice.below(mine.len())];
        let (operation, place, value) = mine.get(sent).copied().unwrap_or_else(|| drawn(&mut dice));
        let (operation, slots) = &plan.operations[operation];
        let mut poisons = vec![(slots[place].clone(), plan.poison(&slots[place], value))];
        // Some get a second value, and cursors also get values that look valid.
        if dice.below(6) == 0 {
            let slot = &slots[dice.below(slots.len())];
            poisons.push((slot.clone(), plan.poison(slot, dice.below(plan.values(slot)))));
        }
        if slots.contains(&Slot::Query("cursor".into())) && dice.below(6) == 0 {
            let count = things.cursors.len();
            if count > 0 {
                let cursor = bent(&things.cursors[dice.below(count)], &mut dice);
                poisons.push((Slot::Query("cursor".into()), Poison::Text(cursor)));
            }
        }
        let mut send = |operation: &Operation, poisons: &[(Slot, Poison)]| {
            let made = requests::make(description, operation, poisons, world, &things, &mut dice);
            let outcome = wire.send(&made.request);
            findings.judge(description, operation, &made, &outcome, poisons.is_empty());
            if matches!(outcome, Outcome::Closed(_)) {
                wire = Wire::new(url);
            }
        };
        send(operation, &poisons);
        sent += 1;
        // Valid requests in between create resources for the next ones.
        if sent % 4 == 0 {
            send(plan.operations[sent / 4 % plan.operations.len()].0, &[]);
        }
    }
    (sent, sent.min(mine.len()), mine.len())
}

/// The number of rounds in which every operation must succeed once.
const ROUNDS: usize = 40;

/// Sends valid requests with the root key until every operation succeeded once: later requests are then based on
/// requests that succeed.
pub(crate) fn rehearse(
    seed: u64,
    url: &str,
    description: &Description,
    world: &World,
    findings: &Findings,
) {
    let mut dice = Dice::new(seed, 3000);
    let world = World { keys: vec![world.root.clone()], root: world.root.clone() };
    let (cursors, attempts) = (Vec::new(), Vec::new());
    let mut things = Things { lane: 9, epoch: 0, cursors, attempts, incarnation: 1, seq: 0 };
    let mut root = Client::new(url, &world.root);
    let mut wire = Wire::new(url);
    for _ in 0..ROUNDS {
        things.mend(&mut root);
        let operations = description.operations.iter().filter(|operation| operation.id != LAST);
        for operation in operations.filter(|operation| !findings.is_done(operation)) {
            let made = requests::make(description, operation, &[], &world, &things, &mut dice);
            let outcome = wire.send(&made.request);
            findings.judge(description, operation, &made, &outcome, true);
        }
    }
}

/// Sends the whole plan of the operation that is left to the end.
pub(crate) fn run_last(
    seed: u64,
    url: &str,
    description: &Description,
    world: &World,
    findings: &Findings,
) {
    let mut dice = Dice::new(seed, 2000);
    let (cursors, attempts) = (Vec::new(), Vec::new());
    let things = Things { lane: 0, epoch: 1, cursors, attempts, incarnation: 1, seq: 0 };
    let mut wire = Wire::new(url);
    for operation in description.operations.iter().filter(|operation| operation.id == LAST) {
        for slot in slots(description, operation) {
            let poisons: Vec<Poison> = match &slot {
                Slot::Field(_) => hostile::literals().into_iter().map(Poison::Literal).collect(),
                _ => continue,
            };
            for poison in poisons {
                let poisons = [(slot.clone(), poison)];
                let made =
                    requests::make(description, operation, &poisons, world, &things, &mut dice);
                let outcome = wire.send(&made.request);
                findings.judge(description, operation, &made, &outcome, false);
            }
        }
    }
}
