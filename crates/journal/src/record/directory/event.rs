//! The stored form of the directory's events. Names are pinned: new ones may be added, existing
//! ones never change.

use std::collections::BTreeMap;

use bursar_core::credits::Credits;
use bursar_core::directory::{
    ApiKey, Capability, Class, Event, Quota, Refusal, Reply, Role, Secret, ShardState,
};
use bursar_core::ledger::id::Name;
use bursar_core::name::{AccountPath, ClassName, GpuModel, KeyId, NodeName, Region};
use bursar_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DirectoryHeader, LineError, read_digest, read_hash};

/// One event and its author.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredEvent {
    /// The version of the stored form.
    v: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    /// The id of the request, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Kind {
    RegionAdded {
        region: String,
    },
    OrgAssigned {
        org: String,
        shard: u16,
    },
    ShardSet {
        shard: u16,
        state: String,
    },
    KeyCreated(Box<StoredKey>),
    KeyRevoked {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_platform: bool,
    },
    PriceSet {
        gpu_type: String,
        region: Option<String>,
        micros: i64,
        effective_ms: i64,
    },
    ClassSet(StoredClass),
    QuotaSet(StoredQuota),
    QuotaRemoved {
        account: String,
        region: Option<String>,
    },
    ClockNoted {},
    AttemptSecretSet {
        secret: String,
    },
    Answered {
        key: String,
        fingerprint: String,
        answer: StoredDirectoryAnswer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
    },
    AnswersForgotten {
        answers: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredKey {
    id: String,
    secret_hash: String,
    role: String,
    scope: Option<String>,
    name: String,
    expires_ms: Option<i64>,
    region: Option<String>,
    node: Option<String>,
    created_ms: i64,
    fingerprint: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    capabilities: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredClass {
    name: String,
    rank: u32,
    preempts: Vec<String>,
    grace_seconds: u32,
    default_preemptible: bool,
    price_multiplier_milli: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredQuota {
    account: String,
    region: Option<String>,
    gpus: BTreeMap<String, u32>,
    running_jobs: Option<u32>,
    waiting_jobs: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredDirectoryAnswer {
    Done,
    Key { id: String, created: bool },
    Price { version: u32, effective_ms: i64 },
    Clock { target_ms: i64 },
    Shard { shard: u16, created: bool },
    NoOpenShard,
    AlreadyExists,
    ClockBehind { behind_ms: i64 },
}

const VERSION: u8 = 1;

const ROLES: [(Role, &str); 7] = [
    (Role::Admin, "admin"),
    (Role::Billing, "billing"),
    (Role::Operator, "operator"),
    (Role::Submitter, "submitter"),
    (Role::Viewer, "viewer"),
    (Role::Auditor, "auditor"),
    (Role::Agent, "agent"),
];

fn text(name: Option<&impl ToString>) -> Option<String> {
    name.map(ToString::to_string)
}

fn region(text: Option<String>) -> Option<Region> {
    text.map(Region::unchecked)
}

impl StoredEvent {
    pub(super) fn new(header: &DirectoryHeader, event: &Event) -> StoredEvent {
        let kind = match event {
            Event::RegionAdded { region } => Kind::RegionAdded { region: region.to_string() },
            Event::OrgAssigned { org, shard } => {
                Kind::OrgAssigned { org: org.to_string(), shard: *shard }
            }
            Event::ShardSet { shard, state } => {
                Kind::ShardSet { shard: *shard, state: state.name().to_owned() }
            }
            Event::KeyCreated { id, key } => Kind::KeyCreated(Box::new(store_key(id, key))),
            Event::KeyRevoked { id, tenant, by_platform } => Kind::KeyRevoked {
                id: id.to_string(),
                tenant: text(tenant.as_ref()),
                by_platform: *by_platform,
            },
            Event::PriceSet { gpu_type, region, per_gpu_hour, effective_at } => Kind::PriceSet {
                gpu_type: gpu_type.to_string(),
                region: text(region.as_ref()),
                micros: per_gpu_hour.micros(),
                effective_ms: effective_at.millis(),
            },
            Event::ClassSet { name, class } => Kind::ClassSet(StoredClass {
                name: name.to_string(),
                rank: class.rank,
                preempts: class.preempts.iter().map(ClassName::to_string).collect(),
                grace_seconds: class.grace_seconds,
                default_preemptible: class.default_preemptible,
                price_multiplier_milli: class.price_multiplier_milli,
            }),
            Event::QuotaSet { account, region, quota } => Kind::QuotaSet(StoredQuota {
                account: account.to_string(),
                region: text(region.as_ref()),
                gpus: quota.gpus.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
                running_jobs: quota.running_jobs,
                waiting_jobs: quota.waiting_jobs,
            }),
            Event::QuotaRemoved { account, region } => {
                Kind::QuotaRemoved { account: account.to_string(), region: text(region.as_ref()) }
            }
            Event::ClockNoted => Kind::ClockNoted {},
            Event::AttemptSecretSet { secret } => Kind::AttemptSecretSet {
                secret: blake3::Hash::from_bytes(secret.0).to_hex().to_string(),
            },
            Event::Answered { key, fingerprint, answer, request } => Kind::Answered {
                key: format!("{key:032x}"),
                fingerprint: format!("{fingerprint:032x}"),
                answer: store_answer(answer),
                request: (*request != 0).then(|| format!("{request:032x}")),
            },
            Event::AnswersForgotten { answers } => Kind::AnswersForgotten { answers: *answers },
        };
        let request_id = (header.request != 0).then(|| format!("{:032x}", header.request));
        StoredEvent { v: VERSION, actor: header.actor.clone(), request_id, kind }
    }

    /// Takes out the author.
    pub(super) fn take_header(&mut self) -> Result<DirectoryHeader, LineError> {
        let request = self.request_id.take().map(|text| read_hash(&text)).transpose()?.unwrap_or(0);
        Ok(DirectoryHeader { actor: self.actor.take(), request })
    }

    pub(super) fn into_event(self) -> Result<Event, LineError> {
        if self.v != VERSION {
            return Err(LineError::Version(self.v));
        }
        let instant = Timestamp::from_millis;
        Ok(match self.kind {
            Kind::RegionAdded { region } => {
                Event::RegionAdded { region: Region::unchecked(region) }
            }
            Kind::OrgAssigned { org, shard } => {
                Event::OrgAssigned { org: AccountPath::unchecked(org), shard }
            }
            Kind::ShardSet { shard, state } => {
                let known = ShardState::named(&state);
                Event::ShardSet { shard, state: known.ok_or(LineError::ShardState(state))? }
            }
            Kind::KeyCreated(stored) => {
                let (id, key) = read_key(*stored)?;
                Event::KeyCreated { id, key: Box::new(key) }
            }
            Kind::KeyRevoked { id, tenant, by_platform } => Event::KeyRevoked {
                id: KeyId::unchecked(id),
                tenant: tenant.map(AccountPath::unchecked),
                by_platform,
            },
            Kind::PriceSet { gpu_type, region, micros, effective_ms } => Event::PriceSet {
                gpu_type: GpuModel::unchecked(gpu_type),
                region: region.map(Region::unchecked),
                per_gpu_hour: Credits::from_micros(micros).ok_or(LineError::NegativePrice)?,
                effective_at: instant(effective_ms),
            },
            Kind::ClassSet(stored) => {
                let class = Class {
                    rank: stored.rank,
                    preempts: stored.preempts.into_iter().map(ClassName::unchecked).collect(),
                    grace_seconds: stored.grace_seconds,
                    default_preemptible: stored.default_preemptible,
                    price_multiplier_milli: stored.price_multiplier_milli,
                };
                Event::ClassSet { name: ClassName::unchecked(stored.name), class: Box::new(class) }
            }
            Kind::QuotaSet(stored) => {
                let gpus = stored.gpus.into_iter();
                let quota = Quota {
                    gpus: gpus.map(|(name, count)| (Name::from(name), count)).collect(),
                    running_jobs: stored.running_jobs,
                    waiting_jobs: stored.waiting_jobs,
                };
                let (account, region) =
                    (AccountPath::unchecked(stored.account), region(stored.region));
                Event::QuotaSet { account, region, quota: Box::new(quota) }
            }
            Kind::QuotaRemoved { account, region } => Event::QuotaRemoved {
                account: AccountPath::unchecked(account),
                region: region.map(Region::unchecked),
            },
            Kind::ClockNoted {} => Event::ClockNoted,
            Kind::AttemptSecretSet { secret } => {
                Event::AttemptSecretSet { secret: Secret(read_digest(&secret)?) }
            }
            Kind::Answered { key, fingerprint, answer, request } => Event::Answered {
                key: read_hash(&key)?,
                fingerprint: read_hash(&fingerprint)?,
                answer: Box::new(read_answer(answer)),
                request: request.map_or(Ok(0), |request| read_hash(&request))?,
            },
            Kind::AnswersForgotten { answers } => Event::AnswersForgotten { answers },
        })
    }
}

/// The name of an event wherever it is shown, which is its stored type.
pub fn event_name(event: &Event) -> &'static str {
    match event {
        Event::RegionAdded { .. } => "region_added",
        Event::OrgAssigned { .. } => "org_assigned",
        Event::ShardSet { .. } => "shard_set",
        Event::KeyCreated { .. } => "key_created",
        Event::KeyRevoked { .. } => "key_revoked",
        Event::PriceSet { .. } => "price_set",
        Event::ClassSet { .. } => "class_set",
        Event::QuotaSet { .. } => "quota_set",
        Event::QuotaRemoved { .. } => "quota_removed",
        Event::ClockNoted => "clock_noted",
        Event::AttemptSecretSet { .. } => "attempt_secret_set",
        Event::Answered { .. } => "answered",
        Event::AnswersForgotten { .. } => "answers_forgotten",
    }
}

fn store_key(id: &KeyId, key: &ApiKey) -> StoredKey {
    let role = ROLES.iter().find(|(role, _)| *role == key.role).map_or("", |(_, name)| name);
    StoredKey {
        id: id.to_string(),
        secret_hash: blake3::Hash::from_bytes(key.secret_hash).to_hex().to_string(),
        role: role.into(),
        scope: text(key.scope.as_ref()),
        name: key.name.to_string(),
        expires_ms: key.expires_at.map(Timestamp::millis),
        region: text(key.region.as_ref()),
        node: text(key.node.as_ref()),
        created_ms: key.created_at.millis(),
        fingerprint: format!("{:032x}", key.fingerprint),
        capabilities: key.capabilities.iter().map(|of| capability_name(*of).to_owned()).collect(),
    }
}

fn capability_name(capability: Capability) -> &'static str {
    match capability {
        Capability::Issue => "issue",
    }
}

fn read_capability(name: &str) -> Result<Capability, LineError> {
    match name {
        "issue" => Ok(Capability::Issue),
        other => Err(LineError::Capability(other.to_owned())),
    }
}

fn read_key(stored: StoredKey) -> Result<(KeyId, ApiKey), LineError> {
    let role = ROLES.iter().find(|(_, name)| *name == stored.role);
    let (role, _) = role.ok_or_else(|| LineError::Role(stored.role.clone()))?;
    let key = ApiKey {
        secret_hash: read_digest(&stored.secret_hash)?,
        role: *role,
        scope: stored.scope.map(AccountPath::unchecked),
        name: stored.name.into(),
        expires_at: stored.expires_ms.map(Timestamp::from_millis),
        region: region(stored.region),
        node: stored.node.map(NodeName::unchecked),
        created_at: Timestamp::from_millis(stored.created_ms),
        fingerprint: read_hash(&stored.fingerprint)?,
        capabilities: stored
            .capabilities
            .iter()
            .map(|name| read_capability(name))
            .collect::<Result<_, LineError>>()?,
    };
    Ok((KeyId::unchecked(stored.id), key))
}

fn store_answer(answer: &Result<Reply, Refusal>) -> StoredDirectoryAnswer {
    match answer {
        Ok(Reply::Done) => StoredDirectoryAnswer::Done,
        Ok(Reply::Key { id, created }) => {
            StoredDirectoryAnswer::Key { id: id.to_string(), created: *created }
        }
        Ok(Reply::Price { version, effective_at }) => {
            StoredDirectoryAnswer::Price { version: *version, effective_ms: effective_at.millis() }
        }
        Ok(Reply::Shard { shard, created }) => {
            StoredDirectoryAnswer::Shard { shard: *shard, created: *created }
        }
        Err(Refusal::NoOpenShard) => StoredDirectoryAnswer::NoOpenShard,
        Ok(Reply::Clock { target }) => StoredDirectoryAnswer::Clock { target_ms: target.millis() },
        Err(Refusal::ClockBehind { behind_ms }) => {
            StoredDirectoryAnswer::ClockBehind { behind_ms: *behind_ms }
        }
        // No other refusal is kept: see `Refusal::is_remembered`.
        Err(
            Refusal::AlreadyExists
            | Refusal::InvalidField { .. }
            | Refusal::IdempotencyKeyReused
            | Refusal::NotFound
            | Refusal::UnknownShard,
        ) => StoredDirectoryAnswer::AlreadyExists,
    }
}

fn read_answer(stored: StoredDirectoryAnswer) -> Result<Reply, Refusal> {
    match stored {
        StoredDirectoryAnswer::Done => Ok(Reply::Done),
        StoredDirectoryAnswer::Key { id, created } => {
            Ok(Reply::Key { id: KeyId::unchecked(id), created })
        }
        StoredDirectoryAnswer::Price { version, effective_ms } => {
            Ok(Reply::Price { version, effective_at: Timestamp::from_millis(effective_ms) })
        }
        StoredDirectoryAnswer::Clock { target_ms } => {
            Ok(Reply::Clock { target: Timestamp::from_millis(target_ms) })
        }
        StoredDirectoryAnswer::Shard { shard, created } => Ok(Reply::Shard { shard, created }),
        StoredDirectoryAnswer::NoOpenShard => Err(Refusal::NoOpenShard),
        StoredDirectoryAnswer::AlreadyExists => Err(Refusal::AlreadyExists),
        StoredDirectoryAnswer::ClockBehind { behind_ms } => Err(Refusal::ClockBehind { behind_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Event> {
        let key = ApiKey {
            secret_hash: [0xab; 32],
            role: Role::Agent,
            scope: Some("acme".into()),
            name: "node".into(),
            expires_at: Some(Timestamp::from_millis(9)),
            region: Some("eu".into()),
            node: None,
            created_at: Timestamp::from_millis(7),
            fingerprint: 1 << 100,
            capabilities: Vec::new(),
        };
        let issuing = ApiKey { capabilities: vec![Capability::Issue], ..key.clone() };
        let class = Class {
            rank: 1,
            preempts: vec!["batch".into()],
            grace_seconds: 2,
            default_preemptible: true,
            price_multiplier_milli: 1500,
        };
        let quota = Quota {
            gpus: BTreeMap::from([("*".into(), 4)]),
            running_jobs: Some(1),
            waiting_jobs: None,
        };
        let answered = |answer, request| Event::Answered {
            key: 5,
            fingerprint: 6,
            answer: Box::new(answer),
            request,
        };
        let answer = |answer| answered(answer, 0);
        let revoked = |by_platform| Event::KeyRevoked {
            id: "k".into(),
            tenant: Some("acme".into()),
            by_platform,
        };
        vec![
            Event::RegionAdded { region: "eu".into() },
            Event::OrgAssigned { org: "acme".into(), shard: 2 },
            Event::KeyCreated { id: "k".into(), key: Box::new(key) },
            Event::KeyRevoked { id: "k".into(), tenant: None, by_platform: false },
            Event::PriceSet {
                gpu_type: "H100".into(),
                region: None,
                per_gpu_hour: Credits::MAX,
                effective_at: Timestamp::from_millis(-1),
            },
            Event::ClassSet { name: "c".into(), class: Box::new(class) },
            Event::QuotaSet { account: "acme".into(), region: None, quota: Box::new(quota) },
            Event::QuotaRemoved { account: "acme".into(), region: Some("eu".into()) },
            Event::ClockNoted,
            answer(Ok(Reply::Done)),
            answer(Ok(Reply::Key { id: "k".into(), created: true })),
            answer(Ok(Reply::Price { version: 3, effective_at: Timestamp::from_millis(4) })),
            answer(Err(Refusal::AlreadyExists)),
            Event::AnswersForgotten { answers: 8 },
            answer(Ok(Reply::Clock { target: Timestamp::from_millis(5) })),
            revoked(false),
            answered(Err(Refusal::AlreadyExists), 7),
            Event::AttemptSecretSet { secret: Secret([0xcd; 32]) },
            Event::KeyCreated { id: "k".into(), key: Box::new(issuing) },
            revoked(true),
            answered(Err(Refusal::ClockBehind { behind_ms: 9 }), 7),
            Event::ShardSet { shard: 1, state: ShardState::Draining },
            answer(Ok(Reply::Shard { shard: 1, created: true })),
        ]
    }

    #[test]
    fn every_event_is_read_back_as_it_was() {
        for event in one_of_each() {
            let header = DirectoryHeader { actor: Some("root".into()), request: 1 << 90 };
            let line = serde_json::to_string(&StoredEvent::new(&header, &event)).expect("plain");
            assert!(line.contains(&format!("\"type\":\"{}\"", event_name(&event))), "{line}");
            let mut stored: StoredEvent = serde_json::from_str(&line).expect("its own form");
            assert_eq!(stored.take_header(), Ok(header));
            assert_eq!(stored.into_event().as_ref(), Ok(&event), "{line}");
        }
    }

    /// Journals written by every release stay readable: these lines never change.
    #[test]
    fn the_stored_form_is_pinned() {
        let none = DirectoryHeader::default();
        let lines: Vec<String> = one_of_each()
            .iter()
            .map(|event| serde_json::to_string(&StoredEvent::new(&none, event)).expect("plain"))
            .collect();
        let pinned = include_str!("stored_v1.jsonl");
        assert_eq!(lines.join("\n") + "\n", pinned);
    }
}
