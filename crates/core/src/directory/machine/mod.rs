//! The directory as a machine.

use super::command::{Command, DirectoryAccepted, DirectoryRefused, Refusal, Reply};
use super::event::{Event, PLATFORM_KEYS};
use super::price::Versions;
use super::state::{ApiKey, Class, Directory, DirectoryKeptAnswer};
use crate::digest::Digest;
use crate::ledger::command::Envelope;
use crate::machine::Machine;
use crate::name::{AccountPath, ClassName, GpuModel, KeyId, NAME_FORM, Region, is_valid_name};
use crate::time::Timestamp;

/// How long an answer is kept for its idempotency key.
const ANSWER_TTL_MS: i64 = 7 * 24 * 3_600_000;
/// Answers are forgotten in steps of a minute, so that many need one record.
const STEP_MS: i64 = 60_000;
const MAX_AT_ONCE: usize = 1024;
/// The most prices: pairs of a GPU type and a region.
const MAX_PRICES: usize = 4096;
/// The most versions of one price.
const MAX_PRICE_VERSIONS: usize = 10_000;
/// The most priority classes.
const MAX_CLASSES: usize = 256;

impl Machine for Directory {
    type Command = Command;
    type Event = Event;
    type Reply = DirectoryAccepted;
    type Refusal = DirectoryRefused;
    type Envelope = Envelope;

    fn decide(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<DirectoryAccepted, DirectoryRefused> {
        let fresh =
            |refusal| DirectoryRefused { refusal, replayed: false, request: envelope.request };
        command.validate().map_err(fresh)?;
        if let Some(answer) = self.answered(envelope) {
            return answer;
        }
        let answer = self.decide_command(now, envelope, command, events);
        let kept = answer.as_ref().map_or_else(Refusal::is_remembered, |_| true);
        if let Some(key) = envelope.key.filter(|_| kept) {
            let request = if answer.is_err() { envelope.request } else { 0 };
            let (fingerprint, answer) = (envelope.fingerprint, Box::new(answer.clone()));
            events.push(Event::Answered { key, fingerprint, answer, request });
        }
        match answer {
            Ok(reply) => Ok(DirectoryAccepted { reply, replayed: false }),
            Err(refusal) => Err(fresh(refusal)),
        }
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        self.now = self.now.max(at);
        match event {
            Event::RegionAdded { region } => {
                self.regions.insert(region.clone(), ());
            }
            Event::OrgAssigned { org, shard } => {
                self.shards.assign(org, *shard);
            }
            Event::ShardSet { shard, state } => self.shards.set(*shard, *state),
            Event::KeyCreated { id, key } => {
                self.keys.add(id, key, at);
            }
            Event::KeyRevoked { id, tenant, by_platform } => {
                let tenants = match tenant {
                    Some(tenant) if tenant == PLATFORM_KEYS => vec![None],
                    Some(tenant) => vec![Some(tenant.clone())],
                    // When ids were unique over all tenants there was one.
                    None => self.keys_named(id).map(ApiKey::tenant).collect(),
                };
                for tenant in tenants {
                    self.keys.end(id, tenant.as_ref(), *by_platform);
                }
            }
            Event::PriceSet { gpu_type, region, per_gpu_hour, effective_at } => {
                let price = (gpu_type.clone(), region.clone());
                let mut versions = self.prices.get(&price).cloned().unwrap_or_default();
                versions.insert((*effective_at, next_version(&versions)), *per_gpu_hour);
                self.prices.insert(price, versions);
            }
            Event::ClassSet { name, class } => {
                self.classes.insert(name.clone(), (**class).clone());
            }
            Event::QuotaSet { account, region, quota } => {
                self.quotas.insert((account.clone(), region.clone()), (**quota).clone());
            }
            Event::QuotaRemoved { account, region } => {
                self.quotas.remove(&(account.clone(), region.clone()));
            }
            Event::AttemptSecretSet { secret } => {
                self.attempt_secret = Some((secret.clone(), at));
            }
            // The event's own instant is the information.
            Event::ClockNoted => {}
            Event::Answered { key, fingerprint, answer, request } => {
                let (fingerprint, request) = (*fingerprint, *request);
                let kept = DirectoryKeptAnswer { fingerprint, answer: (**answer).clone(), request };
                self.answers.insert(*key, kept);
                self.aging.insert(self.answers_so_far, (at, *key));
                self.answers_so_far += 1;
            }
            Event::AnswersForgotten { answers } => {
                for _ in 0..*answers {
                    let Some((number, (_, key))) = self.aging.iter().next() else { break };
                    let (number, key) = (*number, *key);
                    self.aging.remove(&number);
                    self.answers.remove(&key);
                }
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let (_, (answered_at, _)) = self.aging.iter().next()?;
        let due = answered_at.millis() + ANSWER_TTL_MS + 1;
        let past_minute = due.rem_euclid(STEP_MS);
        let deadline = due + (STEP_MS - past_minute) % STEP_MS;
        // An answer whose retention ends after the end of time is never forgotten.
        (deadline <= Timestamp::MAX.millis()).then(|| Timestamp::from_millis(deadline))
    }

    fn decide_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        let kept_from = now.plus_millis(-ANSWER_TTL_MS);
        let due = self.aging.iter().take(MAX_AT_ONCE);
        let due = due.take_while(|(_, (at, _))| *at < kept_from);
        let answers = u32::try_from(due.count()).unwrap_or(u32::MAX);
        events.push(Event::AnswersForgotten { answers });
    }

    fn begin_group(&mut self) {
        assert!(self.before_group.is_none(), "groups do not nest");
        self.before_group = Some(Box::new(self.clone()));
    }

    fn commit_group(&mut self) {
        self.before_group = None;
    }

    fn rollback_group(&mut self) {
        if let Some(before) = self.before_group.take() {
            *self = *before;
        }
    }

    fn digest(&self) -> Digest {
        self.state_digest()
    }
}

impl Directory {
    /// The stored answer for a request's idempotency key, or the refusal if another request used
    /// the key.
    pub fn answered(
        &self,
        envelope: &Envelope,
    ) -> Option<Result<DirectoryAccepted, DirectoryRefused>> {
        let kept = self.answers.get(&envelope.key?)?;
        if kept.fingerprint != envelope.fingerprint {
            let (refusal, request) = (Refusal::IdempotencyKeyReused, envelope.request);
            return Some(Err(DirectoryRefused { refusal, replayed: false, request }));
        }
        Some(match &kept.answer {
            Ok(reply) => Ok(DirectoryAccepted { reply: reply.clone(), replayed: true }),
            Err(refusal) => {
                let (refusal, request) = (refusal.clone(), kept.request);
                Err(DirectoryRefused { refusal, replayed: true, request })
            }
        })
    }

    fn decide_command(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        match command {
            Command::AddRegion { region } => {
                if !self.regions.contains_key(region) {
                    events.push(Event::RegionAdded { region: region.clone() });
                }
                Ok(Reply::Done)
            }
            Command::AssignOrg { org, shard } => match self.shards.of(org) {
                Some(present) if present != *shard => Err(Refusal::AlreadyExists),
                Some(_) => Ok(Reply::Done),
                None => {
                    events.push(Event::OrgAssigned { org: org.clone(), shard: *shard });
                    Ok(Reply::Done)
                }
            },
            Command::PlaceOrg { org, unassigned } => {
                self.decide_place_org(org, *unassigned, events)
            }
            Command::AddShard { shard, state } => self.decide_add_shard(*shard, *state, events),
            Command::SetShard { shard, state } => self.decide_set_shard(*shard, *state, events),
            Command::SetAttemptSecret { secret } => {
                if self.attempt_secret.is_none() {
                    events.push(Event::AttemptSecretSet { secret: secret.clone() });
                }
                Ok(Reply::Done)
            }
            Command::CreateKey { id, key } => {
                self.decide_create_key(now, envelope, id, key, events)
            }
            Command::RevokeKey { id, tenant, by_platform } => {
                if self.key(id, tenant.as_deref()).is_some() {
                    let tenant = Some(tenant.clone().unwrap_or_else(|| PLATFORM_KEYS.into()));
                    let (id, by_platform) = (id.clone(), *by_platform);
                    events.push(Event::KeyRevoked { id, tenant, by_platform });
                    Ok(Reply::Done)
                } else {
                    Err(Refusal::NotFound)
                }
            }
            Command::SetPrice { gpu_type, region, per_gpu_hour, effective_at } => {
                let effective_at = effective_at.unwrap_or(now);
                let present = self.prices.get(&(gpu_type.clone(), region.clone()));
                let room = present.is_some() || self.prices.len() < MAX_PRICES;
                let reason = "the limit of 4096 prices is reached; change an existing one";
                require(room, "gpu_type", reason)?;
                let room = present.is_none_or(|versions| versions.len() < MAX_PRICE_VERSIONS);
                let reason = "the limit of 10000 versions of a price is reached";
                require(room, "per_gpu_hour", reason)?;
                events.push(Event::PriceSet {
                    gpu_type: gpu_type.clone(),
                    region: region.clone(),
                    per_gpu_hour: *per_gpu_hour,
                    effective_at,
                });
                let version = present.map_or(1, next_version);
                Ok(Reply::Price { version, effective_at })
            }
            Command::SetClass { name, class } => {
                let lower = |other: &ClassName| {
                    let known = self.classes.get(other).filter(|_| other != name);
                    known.is_some_and(|known| known.rank < class.rank)
                };
                let reason = "must be existing classes of a lower rank";
                require(class.preempts.iter().all(lower), "preempts", reason)?;
                let room = self.classes.contains_key(name) || self.classes.len() < MAX_CLASSES;
                let reason = "the limit of 256 classes is reached; change an existing one";
                require(room, "name", reason)?;
                if self.classes.get(name) != Some(&**class) {
                    events.push(Event::ClassSet { name: name.clone(), class: class.clone() });
                }
                Ok(Reply::Done)
            }
            Command::AimClock { target } => Ok(Reply::Clock { target: *target }),
            Command::RefuseClock { behind_ms } => {
                Err(Refusal::ClockBehind { behind_ms: *behind_ms })
            }
            Command::NoteClock => {
                events.push(Event::ClockNoted);
                Ok(Reply::Done)
            }
        }
    }

    fn decide_create_key(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        id: &KeyId,
        key: &ApiKey,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let tenant = key.tenant();
        if let Some(present) = self.key(id, tenant.as_deref()) {
            return if present.fingerprint == envelope.fingerprint {
                Ok(Reply::Key { id: id.clone(), created: false })
            } else {
                Err(Refusal::AlreadyExists)
            };
        }
        if self.keys.was_used(id, tenant.as_ref()) {
            return Err(Refusal::AlreadyExists);
        }
        let reason = match tenant {
            Some(_) => {
                "the limit of 5000 keys of a tenant is reached; revoke some or let them expire"
            }
            None => "the limit of 100000 keys of the platform is reached; revoke some",
        };
        require(self.keys.has_room(tenant.as_ref(), now), "scope", reason)?;
        let mut key = key.clone();
        key.created_at = now;
        key.fingerprint = envelope.fingerprint;
        events.push(Event::KeyCreated { id: id.clone(), key: Box::new(key) });
        Ok(Reply::Key { id: id.clone(), created: true })
    }
}

/// The number of the next version.
fn next_version(versions: &Versions) -> u32 {
    u32::try_from(versions.len()).unwrap_or(u32::MAX).saturating_add(1)
}

fn require(holds: bool, field: &'static str, reason: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::InvalidField { field, reason }) }
}

fn optional_region(region: Option<&Region>) -> Result<(), Refusal> {
    require(region.is_none_or(|region| Region::is_valid(region)), "region", Region::FORM)
}

impl Command {
    /// Refuses what is invalid in every state.
    fn validate(&self) -> Result<(), Refusal> {
        match self {
            Command::AddRegion { region } => {
                require(Region::is_valid(region), "region", Region::FORM)
            }
            Command::AssignOrg { org, shard: _ } | Command::PlaceOrg { org, unassigned: _ } => {
                require(AccountPath::is_tenant(org), "org", "must be the first segment of a path")
            }
            Command::CreateKey { id, key } => {
                require(is_valid_name(id), "id", NAME_FORM)?;
                validate_key(key)
            }
            Command::RevokeKey { id, .. } => require(is_valid_name(id), "id", NAME_FORM),
            Command::SetPrice { gpu_type, region, per_gpu_hour: _, effective_at: _ } => {
                require(GpuModel::is_valid(gpu_type), "gpu_type", GpuModel::FORM)?;
                optional_region(region.as_ref())
            }
            Command::SetClass { name, class } => {
                require(is_valid_name(name), "name", NAME_FORM)?;
                validate_class(class)
            }
            Command::AddShard { .. }
            | Command::SetShard { .. }
            | Command::SetAttemptSecret { .. }
            | Command::AimClock { .. }
            | Command::RefuseClock { .. }
            | Command::NoteClock => Ok(()),
        }
    }
}

fn validate_key(key: &ApiKey) -> Result<(), Refusal> {
    let scope = key.scope.as_ref().is_none_or(|scope| AccountPath::is_valid(scope));
    require(scope, "scope", "must be an account path or \"*\"")?;
    let named = (1..=256).contains(&key.name.len());
    require(named, "name", "must have 1 to 256 bytes")?;
    let bound = key.region.is_some() || key.node.is_some();
    let agent = key.role == super::state::Role::Agent;
    require(agent || !bound, "region", "only an agent's key is bound to a region or a node")?;
    optional_region(key.region.as_ref())?;
    require(key.node.as_ref().is_none_or(|node| is_valid_name(node)), "node", NAME_FORM)
}

fn validate_class(class: &Class) -> Result<(), Refusal> {
    let names = class.preempts.iter().all(|name| is_valid_name(name));
    require(names && class.preempts.len() <= 64, "preempts", "must be at most 64 class names")?;
    require(class.grace_seconds <= 86_400, "grace_seconds", "must be at most 86400")?;
    let multiplier = (1..=1_000_000).contains(&class.price_multiplier_milli);
    require(multiplier, "price_multiplier", "must be between 0.001 and 1000")
}

#[cfg(test)]
mod tests;
