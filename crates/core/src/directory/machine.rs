//! The directory as a machine.

use super::command::{Accepted, Command, Refusal, Refused, Reply};
use super::event::{Event, PLATFORM_KEYS};
use super::price::PriceVersion;
use super::state::{ApiKey, Class, Directory, KeptAnswer};
use crate::digest::Digest;
use crate::ledger::command::Envelope;
use crate::ledger::id::{Name, is_valid_name, is_valid_path, is_valid_segment};
use crate::machine::Machine;
use crate::time::Timestamp;

/// How long an answer is kept for its idempotency key.
const ANSWER_TTL_MS: i64 = 7 * 24 * 3_600_000;
/// Forgetting happens in steps of a minute, so that it costs one record for many answers.
const STEP_MS: i64 = 60_000;
const MOST_AT_ONCE: usize = 1024;

const NAME_FORM: &str = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -";

impl Machine for Directory {
    type Command = Command;
    type Event = Event;
    type Reply = Accepted;
    type Refusal = Refused;
    type Envelope = Envelope;

    fn decide(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Accepted, Refused> {
        let fresh = |refusal| Refused { refusal, replayed: false, request: envelope.request };
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
            Ok(reply) => Ok(Accepted { reply, replayed: false }),
            Err(refusal) => Err(fresh(refusal)),
        }
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        self.now = self.now.max(at);
        match event {
            Event::RegionAdded { region } => {
                self.regions.insert(region.clone());
            }
            Event::OrgAssigned { org, shard } => {
                self.shards.insert(org.clone(), *shard);
            }
            Event::KeyCreated { id, key } => {
                self.keys.insert((id.clone(), key.tenant()), (**key).clone());
            }
            Event::KeyRevoked { id, tenant } => {
                let tenants = match tenant {
                    Some(tenant) if tenant == PLATFORM_KEYS => vec![None],
                    Some(tenant) => vec![Some(tenant.clone())],
                    // When ids were unique everywhere there was one.
                    None => self.keys_named(id).map(ApiKey::tenant).collect(),
                };
                for tenant in tenants {
                    let name = (id.clone(), tenant);
                    self.keys.remove(&name);
                    self.revoked.insert(name);
                }
            }
            Event::PriceSet { gpu_type, region, per_gpu_hour, effective_at } => {
                let versions = self.prices.entry((gpu_type.clone(), region.clone())).or_default();
                let (per_gpu_hour, effective_at) = (*per_gpu_hour, *effective_at);
                versions.push(PriceVersion { per_gpu_hour, effective_at });
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
            // The instant itself is what it says.
            Event::ClockNoted => {}
            Event::Answered { key, fingerprint, answer, request } => {
                let (fingerprint, request) = (*fingerprint, *request);
                let kept = KeptAnswer { fingerprint, answer: (**answer).clone(), request };
                self.answers.insert(*key, kept);
                self.aging.push_back((at, *key));
            }
            Event::AnswersForgotten { answers } => {
                for (_, key) in self.aging.drain(..*answers as usize) {
                    self.answers.remove(&key);
                }
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let due = self.aging.front()?.0.millis() + ANSWER_TTL_MS + 1;
        let past_minute = due.rem_euclid(STEP_MS);
        let deadline = due + (STEP_MS - past_minute) % STEP_MS;
        // An answer that would be kept beyond the end of time is never forgotten.
        (deadline <= Timestamp::MAX.millis()).then(|| Timestamp::from_millis(deadline))
    }

    fn decide_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        let kept_from = now.plus_millis(-ANSWER_TTL_MS);
        let due = self.aging.iter().take(MOST_AT_ONCE).take_while(|(at, _)| *at < kept_from);
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
    /// The answer that is kept for a request's key, or that the key came with another request.
    pub fn answered(&self, envelope: &Envelope) -> Option<Result<Accepted, Refused>> {
        let kept = self.answers.get(&envelope.key?)?;
        if kept.fingerprint != envelope.fingerprint {
            let (refusal, request) = (Refusal::IdempotencyKeyReused, envelope.request);
            return Some(Err(Refused { refusal, replayed: false, request }));
        }
        Some(match &kept.answer {
            Ok(reply) => Ok(Accepted { reply: reply.clone(), replayed: true }),
            Err(refusal) => {
                let (refusal, request) = (refusal.clone(), kept.request);
                Err(Refused { refusal, replayed: true, request })
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
                if !self.regions.contains(region) {
                    events.push(Event::RegionAdded { region: region.clone() });
                }
                Ok(Reply::Done)
            }
            Command::AssignOrg { org, shard } => match self.shards.get(org) {
                Some(present) if present != shard => Err(Refusal::AlreadyExists),
                Some(_) => Ok(Reply::Done),
                None => {
                    events.push(Event::OrgAssigned { org: org.clone(), shard: *shard });
                    Ok(Reply::Done)
                }
            },
            Command::SetAttemptSecret { secret } => {
                if self.attempt_secret.is_none() {
                    events.push(Event::AttemptSecretSet { secret: secret.clone() });
                }
                Ok(Reply::Done)
            }
            Command::CreateKey { id, key } => {
                self.decide_create_key(now, envelope, id, key, events)
            }
            Command::RevokeKey { id, tenant } => {
                if self.key(id, tenant.as_deref()).is_some() {
                    let tenant = tenant.clone().unwrap_or_else(|| PLATFORM_KEYS.into());
                    events.push(Event::KeyRevoked { id: id.clone(), tenant: Some(tenant) });
                    Ok(Reply::Done)
                } else {
                    Err(Refusal::NotFound)
                }
            }
            Command::SetPrice { gpu_type, region, per_gpu_hour, effective_at } => {
                let effective_at = effective_at.unwrap_or(now);
                let present = self.prices.get(&(gpu_type.clone(), region.clone()));
                let versions = present.map_or(0, Vec::len);
                events.push(Event::PriceSet {
                    gpu_type: gpu_type.clone(),
                    region: region.clone(),
                    per_gpu_hour: *per_gpu_hour,
                    effective_at,
                });
                let version = u32::try_from(versions).unwrap_or(u32::MAX).saturating_add(1);
                Ok(Reply::Price { version, effective_at })
            }
            Command::SetClass { name, class } => {
                let lower = |other: &Name| {
                    let known = self.classes.get(other).filter(|_| other != name);
                    known.is_some_and(|known| known.rank < class.rank)
                };
                let reason = "must be classes that are there and of a lower rank";
                require(class.preempts.iter().all(lower), "preempts", reason)?;
                if self.classes.get(name) != Some(class) {
                    events.push(Event::ClassSet { name: name.clone(), class: class.clone() });
                }
                Ok(Reply::Done)
            }
            Command::AimClock { target } => Ok(Reply::Clock { target: *target }),
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
        id: &Name,
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
        if self.revoked.contains(&(id.clone(), tenant)) {
            return Err(Refusal::AlreadyExists);
        }
        let mut key = key.clone();
        key.created_at = now;
        key.fingerprint = envelope.fingerprint;
        events.push(Event::KeyCreated { id: id.clone(), key: Box::new(key) });
        Ok(Reply::Key { id: id.clone(), created: true })
    }
}

fn require(holds: bool, field: &'static str, reason: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(Refusal::InvalidField { field, reason }) }
}

fn optional_name(name: Option<&Name>, field: &'static str) -> Result<(), Refusal> {
    require(name.is_none_or(|name| is_valid_name(name)), field, NAME_FORM)
}

impl Command {
    /// Refuses what no state could accept.
    fn validate(&self) -> Result<(), Refusal> {
        match self {
            Command::AddRegion { region } => require(is_valid_name(region), "region", NAME_FORM),
            Command::AssignOrg { org, shard: _ } => {
                require(is_valid_segment(org), "org", "must be the first segment of a path")
            }
            Command::CreateKey { id, key } => {
                require(is_valid_name(id), "id", NAME_FORM)?;
                validate_key(key)
            }
            Command::RevokeKey { id, tenant: _ } => require(is_valid_name(id), "id", NAME_FORM),
            Command::SetPrice { gpu_type, region, per_gpu_hour: _, effective_at: _ } => {
                require(is_valid_name(gpu_type), "gpu_type", NAME_FORM)?;
                optional_name(region.as_ref(), "region")
            }
            Command::SetClass { name, class } => {
                require(is_valid_name(name), "name", NAME_FORM)?;
                validate_class(class)
            }
            Command::SetAttemptSecret { .. } | Command::AimClock { .. } | Command::NoteClock => {
                Ok(())
            }
        }
    }
}

fn validate_key(key: &ApiKey) -> Result<(), Refusal> {
    let scope = key.scope.as_ref().is_none_or(|scope| is_valid_path(scope));
    require(scope, "scope", "must be an account path or \"*\"")?;
    let named = (1..=256).contains(&key.name.len());
    require(named, "name", "must have 1 to 256 bytes")?;
    let bound = key.region.is_some() || key.node.is_some();
    let agent = key.role == super::state::Role::Agent;
    require(agent || !bound, "region", "only an agent's key is bound to a region or a node")?;
    optional_name(key.region.as_ref(), "region")?;
    optional_name(key.node.as_ref(), "node")
}

fn validate_class(class: &Class) -> Result<(), Refusal> {
    let names = class.preempts.iter().all(|name| is_valid_name(name));
    require(names && class.preempts.len() <= 64, "preempts", "must be at most 64 class names")?;
    require(class.grace_seconds <= 86_400, "grace_seconds", "must be at most 86400")?;
    let multiplier = (1..=1_000_000).contains(&class.price_multiplier_milli);
    require(multiplier, "price_multiplier", "must be between 0.001 and 1000")
}

#[cfg(test)]
mod tests {
    use super::super::state::{Role, Secret};
    use super::*;
    use crate::credits::Credits;
    use crate::machine::{advance, execute};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn envelope(fingerprint: u128, key: Option<u128>) -> Envelope {
        Envelope { actor: "test".into(), fingerprint, key, batch: None, request: 0 }
    }

    fn run(
        directory: &mut Directory,
        now: i64,
        envelope: &Envelope,
        command: &Command,
    ) -> Result<Accepted, Refused> {
        advance(directory, at(now), |_, _| {});
        execute(directory, at(now), envelope, command, &mut Vec::new())
    }

    fn key_command(id: &str) -> Command {
        let key = ApiKey {
            secret_hash: [7; 32],
            role: Role::Viewer,
            scope: Some("acme".into()),
            name: "ci".into(),
            expires_at: None,
            region: None,
            node: None,
            capabilities: Vec::new(),
            created_at: Timestamp::MIN,
            fingerprint: 0,
        };
        Command::CreateKey { id: id.into(), key: Box::new(key) }
    }

    fn revoke_command(id: &str, tenant: &str) -> Command {
        Command::RevokeKey { id: id.into(), tenant: Some(tenant.into()) }
    }

    fn price(credits: i64, from: Option<i64>) -> Command {
        Command::SetPrice {
            gpu_type: "H100".into(),
            region: None,
            per_gpu_hour: Credits::from_whole(credits).expect("small"),
            effective_at: from.map(at),
        }
    }

    #[test]
    fn a_key_is_made_once_and_its_id_is_never_given_out_again() {
        let mut directory = Directory::new();
        let first = run(&mut directory, 1, &envelope(1, None), &key_command("k"));
        let made = Reply::Key { id: "k".into(), created: true };
        assert_eq!(first.map(|accepted| accepted.reply), Ok(made));
        let again = run(&mut directory, 2, &envelope(1, None), &key_command("k"));
        let found = Reply::Key { id: "k".into(), created: false };
        assert_eq!(again.map(|accepted| accepted.reply), Ok(found));
        let other = run(&mut directory, 2, &envelope(2, None), &key_command("k"));
        assert_eq!(other.map_err(|refused| refused.refusal), Err(Refusal::AlreadyExists));
        run(&mut directory, 3, &envelope(3, None), &revoke_command("k", "acme"))
            .expect("it is there");
        assert!(directory.key("k", Some("acme")).is_none());
        let reborn = run(&mut directory, 4, &envelope(1, None), &key_command("k"));
        assert_eq!(reborn.map_err(|refused| refused.refusal), Err(Refusal::AlreadyExists));
    }

    #[test]
    fn the_secret_of_attempts_is_set_once_and_never_shown() {
        let mut directory = Directory::new();
        let set = |byte| Command::SetAttemptSecret { secret: Secret([byte; 32]) };
        for (now, byte) in [(5, 7), (6, 8)] {
            run(&mut directory, now, &envelope(0, None), &set(byte)).expect("it is fine");
            let known = directory.attempt_secret();
            assert_eq!(known, Some((&Secret([7; 32]), at(5))));
        }
        assert!(!format!("{:?} {directory:?}", set(7)).contains("7, 7"));
        assert_ne!(directory.digest(), Directory::new().digest());
    }

    #[test]
    fn ids_of_keys_are_unique_per_tenant() {
        let mut directory = Directory::new();
        let scoped = |scope: Option<&str>| {
            let Command::CreateKey { id, mut key } = key_command("k") else {
                unreachable!("it makes a key")
            };
            key.scope = scope.map(Into::into);
            Command::CreateKey { id, key }
        };
        for (print, scope) in [(1, Some("acme:nlp")), (2, Some("umbra")), (3, None)] {
            let made = run(&mut directory, 1, &envelope(print, None), &scoped(scope));
            let reply = Reply::Key { id: "k".into(), created: true };
            assert_eq!(made.map(|accepted| accepted.reply), Ok(reply), "{scope:?}");
        }
        let taken = run(&mut directory, 2, &envelope(4, None), &scoped(Some("acme")));
        assert_eq!(taken.map_err(|refused| refused.refusal), Err(Refusal::AlreadyExists));
        assert_eq!(directory.keys_named("k").count(), 3);
        run(&mut directory, 3, &envelope(5, None), &revoke_command("k", "acme")).expect("there");
        assert!(directory.key("k", Some("acme")).is_none());
        let everybody = Command::RevokeKey { id: "k".into(), tenant: None };
        run(&mut directory, 3, &envelope(6, None), &everybody).expect("there");
        assert!(directory.key("k", Some("umbra")).is_some());
        assert_eq!(directory.keys_named("k").count(), 1);
        let tenants: Vec<Option<&str>> =
            directory.revoked_in("k").map(|tenant| tenant.map(Name::as_str)).collect();
        assert_eq!(tenants, [None, Some("acme")]);
        // As journals of before ids were unique per tenant have it.
        directory.apply(at(4), &Event::KeyRevoked { id: "k".into(), tenant: None });
        assert_eq!(directory.keys_named("k").count(), 0);
    }

    #[test]
    fn the_latest_price_that_has_begun_counts_and_a_region_beats_the_general_one() {
        let mut directory = Directory::new();
        for (now, command) in
            [(10, price(1, None)), (11, price(9, Some(100))), (12, price(2, None))]
        {
            run(&mut directory, now, &envelope(0, None), &command).expect("a valid price");
        }
        let whole = |credits: i64| Credits::from_whole(credits);
        assert_eq!(directory.price("H100", "eu", at(9)), None);
        assert_eq!(directory.price("H100", "eu", at(10)), whole(1));
        assert_eq!(directory.price("H100", "eu", at(99)), whole(2));
        assert_eq!(directory.price("H100", "eu", at(100)), whole(9));
        let own = Command::SetPrice {
            gpu_type: "H100".into(),
            region: Some("eu".into()),
            per_gpu_hour: whole(3).expect("small"),
            effective_at: None,
        };
        run(&mut directory, 20, &envelope(0, None), &own).expect("a valid price");
        assert_eq!(directory.price("H100", "eu", at(100)), whole(3));
        assert_eq!(directory.price("H100", "us", at(100)), whole(9));
        assert_eq!(directory.prices_at(at(100)).len(), 2);
    }

    #[test]
    fn an_idempotency_key_has_one_effect_until_it_is_forgotten() {
        let mut directory = Directory::new();
        let keyed = envelope(5, Some(77));
        let first = run(&mut directory, 1, &keyed, &price(1, None)).expect("valid");
        assert!(!first.replayed);
        let again = run(&mut directory, 2, &keyed, &price(1, None)).expect("kept");
        assert_eq!((again.reply, again.replayed), (first.reply, true));
        let reused = run(&mut directory, 2, &envelope(6, Some(77)), &price(2, None));
        assert_eq!(reused.map_err(|r| r.refusal), Err(Refusal::IdempotencyKeyReused));
        let later = ANSWER_TTL_MS + 2 * STEP_MS;
        let fresh = run(&mut directory, later, &keyed, &price(1, None)).expect("valid");
        assert!(!fresh.replayed);
    }

    #[test]
    fn time_may_end_without_anything_being_due_for_ever() {
        let mut directory = Directory::new();
        let end = Timestamp::MAX.millis();
        run(&mut directory, end, &envelope(5, Some(77)), &price(1, None)).expect("valid");
        assert_eq!(directory.next_deadline(), None);
        let again = run(&mut directory, end, &envelope(5, Some(77)), &price(1, None));
        assert!(again.expect("kept").replayed);
    }

    #[test]
    fn a_group_that_is_rolled_back_leaves_no_trace() {
        let mut directory = Directory::new();
        run(&mut directory, 1, &envelope(1, None), &key_command("k")).expect("valid");
        let before = directory.digest();
        directory.begin_group();
        run(&mut directory, 2, &envelope(2, None), &price(4, None)).expect("valid");
        run(&mut directory, 2, &envelope(2, None), &revoke_command("k", "acme"))
            .expect("it is there");
        assert_ne!(directory.digest(), before);
        directory.rollback_group();
        assert_eq!(directory.digest(), before);
    }
}
