//! Tests of the directory's decisions and limits.

use super::*;
use crate::credits::Credits;
use crate::directory::key_ring::{MAX_ENDED_KEYS, MAX_TENANT_KEYS};
use crate::directory::state::{Role, Secret};
use crate::machine::{advance, execute};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn envelope(fingerprint: u128, key: Option<u128>) -> Envelope {
    Envelope { actor: "test".into(), fingerprint, key, ..Envelope::default() }
}

fn run(
    directory: &mut Directory,
    now: i64,
    envelope: &Envelope,
    command: &Command,
) -> Result<DirectoryAccepted, DirectoryRefused> {
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
    let tenant = Some(tenant.into());
    Command::RevokeKey { id: id.into(), tenant, by_platform: false }
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
fn a_key_is_created_once_and_its_id_is_never_reused() {
    let mut directory = Directory::new();
    let first = run(&mut directory, 1, &envelope(1, None), &key_command("k"));
    let made = Reply::Key { id: "k".into(), created: true };
    assert_eq!(first.map(|accepted| accepted.reply), Ok(made));
    let again = run(&mut directory, 2, &envelope(1, None), &key_command("k"));
    let found = Reply::Key { id: "k".into(), created: false };
    assert_eq!(again.map(|accepted| accepted.reply), Ok(found));
    let other = run(&mut directory, 2, &envelope(2, None), &key_command("k"));
    assert_eq!(other.map_err(|refused| refused.refusal), Err(Refusal::AlreadyExists));
    run(&mut directory, 3, &envelope(3, None), &revoke_command("k", "acme")).expect("it exists");
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
    for (fingerprint, scope) in [(1, Some("acme:nlp")), (2, Some("umbra")), (3, None)] {
        let made = run(&mut directory, 1, &envelope(fingerprint, None), &scoped(scope));
        let reply = Reply::Key { id: "k".into(), created: true };
        assert_eq!(made.map(|accepted| accepted.reply), Ok(reply), "{scope:?}");
    }
    let taken = run(&mut directory, 2, &envelope(4, None), &scoped(Some("acme")));
    assert_eq!(taken.map_err(|refused| refused.refusal), Err(Refusal::AlreadyExists));
    assert_eq!(directory.keys_named("k").count(), 3);
    run(&mut directory, 3, &envelope(5, None), &revoke_command("k", "acme")).expect("there");
    assert!(directory.key("k", Some("acme")).is_none());
    let platform_key = Command::RevokeKey { id: "k".into(), tenant: None, by_platform: true };
    run(&mut directory, 3, &envelope(6, None), &platform_key).expect("there");
    assert!(directory.key("k", Some("umbra")).is_some());
    assert_eq!(directory.keys_named("k").count(), 1);
    let ended = directory.ended_keys("k").map(|key| (key.scope.as_deref(), key.by_platform));
    assert_eq!(ended.collect::<Vec<_>>(), [(None, true), (Some("acme:nlp"), false)]);
    // As in older journals, where ids were unique over all tenants.
    let before = Event::KeyRevoked { id: "k".into(), tenant: None, by_platform: false };
    directory.apply(at(4), &before);
    assert_eq!(directory.keys_named("k").count(), 0);
}

#[test]
fn the_latest_effective_price_applies_and_a_regions_own_comes_first() {
    let mut directory = Directory::new();
    for (now, command) in [(10, price(1, None)), (11, price(9, Some(100))), (12, price(2, None))] {
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
fn no_deadline_lies_after_the_end_of_time() {
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
    run(&mut directory, 2, &envelope(2, None), &revoke_command("k", "acme")).expect("it exists");
    assert_ne!(directory.digest(), before);
    directory.rollback_group();
    assert_eq!(directory.digest(), before);
}

fn key_of(tenant: Option<&str>, id: &str, expires_at: Option<i64>) -> Command {
    let Command::CreateKey { id, mut key } = key_command(id) else {
        unreachable!("it makes a key")
    };
    key.scope = tenant.map(Into::into);
    key.expires_at = expires_at.map(at);
    Command::CreateKey { id, key }
}

fn too_many(answer: Result<DirectoryAccepted, DirectoryRefused>) -> bool {
    answer.is_err_and(|refused| {
        matches!(refused.refusal, Refusal::InvalidField { field: "scope", .. })
    })
}

#[test]
fn the_keys_of_a_tenant_are_limited_and_an_ended_or_expired_one_makes_room() {
    let mut directory = Directory::new();
    for number in 0..MAX_TENANT_KEYS {
        // One of them expires.
        let end = (number == 7).then_some(100);
        let command = key_of(Some("acme:nlp"), &format!("k{number}"), end);
        run(&mut directory, 1, &envelope(1, None), &command).expect("there is room");
    }
    let one_more = |id| key_of(Some("acme"), id, None);
    let before = directory.digest();
    assert!(too_many(run(&mut directory, 2, &envelope(2, None), &one_more("more"))));
    assert_eq!(directory.digest(), before);
    for other in [Some("umbra"), None] {
        let command = key_of(other, "more", None);
        run(&mut directory, 2, &envelope(2, None), &command).expect("others have their own");
    }
    run(&mut directory, 2, &envelope(3, None), &revoke_command("k3", "acme")).expect("there");
    run(&mut directory, 2, &envelope(2, None), &one_more("more")).expect("one was revoked");
    assert!(too_many(run(&mut directory, 100, &envelope(4, None), &one_more("last"))));
    run(&mut directory, 101, &envelope(4, None), &one_more("last")).expect("one has expired");
    assert!(directory.key("k7", Some("acme")).is_none(), "it was replaced");
    assert!(too_many(run(&mut directory, 999, &envelope(5, None), &one_more("no"))));
    assert_eq!(directory.keys_of("acme").count(), MAX_TENANT_KEYS);
    assert_eq!(directory.keys_of("umbra").count(), 1);
    let taken = run(&mut directory, 999, &envelope(6, None), &one_more("k7"));
    assert_eq!(taken.map_err(|refused| refused.refusal), Err(Refusal::AlreadyExists));
}

#[test]
fn the_latest_ids_of_ended_keys_are_kept_per_tenant() {
    let mut directory = Directory::new();
    let own = key_of(Some("umbra"), "k0", None);
    run(&mut directory, 1, &envelope(1, None), &own).expect("there is room");
    run(&mut directory, 1, &envelope(1, None), &revoke_command("k0", "umbra")).expect("there");
    let more = 20;
    for number in 0..MAX_ENDED_KEYS + more {
        let command = key_of(Some("acme"), &format!("k{number}"), Some(5));
        run(&mut directory, 1, &envelope(1, None), &command).expect("there is room");
        let revoke = revoke_command(&format!("k{number}"), "acme");
        run(&mut directory, 1, &envelope(1, None), &revoke).expect("it exists");
    }
    assert_eq!(directory.keys.sizes(), (0, MAX_ENDED_KEYS + 1));
    let again = |tenant, number: usize| key_of(Some(tenant), &format!("k{number}"), None);
    let mut make = |tenant, number| {
        let made = run(&mut directory, 2, &envelope(2, None), &again(tenant, number));
        made.map(drop).map_err(|refused| refused.refusal)
    };
    assert_eq!(make("acme", MAX_ENDED_KEYS + more - 1), Err(Refusal::AlreadyExists));
    assert_eq!(make("acme", more), Err(Refusal::AlreadyExists));
    assert_eq!(make("acme", more - 1), Ok(()));
    assert_eq!(make("umbra", 0), Err(Refusal::AlreadyExists), "another tenant's ids stay");
}

#[test]
fn a_copy_of_the_directory_shares_what_does_not_change() {
    let mut directory = Directory::new();
    for number in 0..20_000 {
        let tenant = format!("t{}", number % 40);
        let command = key_of(Some(&tenant), &format!("k{number}"), Some(number));
        run(&mut directory, 1, &envelope(1, None), &command).expect("there is room");
    }
    let published = directory.clone();
    assert_eq!(directory.keys.unshared(&published.keys), 0);
    let command = key_of(Some("t3"), "new", Some(9));
    run(&mut directory, 2, &envelope(2, None), &command).expect("there is room");
    run(&mut directory, 2, &envelope(2, None), &revoke_command("k3", "t3")).expect("there");
    // Six tables, each at most 21 levels high, two changes.
    let copied = directory.keys.unshared(&published.keys);
    assert!((1..=6 * 21 * 2 * 2).contains(&copied), "{copied}");
    assert!(published.key("k3", Some("t3")).is_some());
    assert!(published.key("new", Some("t3")).is_none());
}

#[test]
fn prices_their_versions_and_classes_are_bounded() {
    let mut directory = Directory::new();
    let set = |gpu: String| Command::SetPrice {
        gpu_type: GpuModel::unchecked(gpu),
        region: None,
        per_gpu_hour: Credits::from_whole(1).expect("small"),
        effective_at: None,
    };
    let refused = |answer: Result<DirectoryAccepted, DirectoryRefused>| match answer
        .map_err(|no| no.refusal)
    {
        Err(Refusal::InvalidField { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    for number in 0..MAX_PRICES {
        let command = set(format!("G{number}"));
        run(&mut directory, 1, &envelope(1, None), &command).expect("there is room");
    }
    assert_eq!(refused(run(&mut directory, 1, &envelope(1, None), &set("X".into()))), "gpu_type");
    for version in 2..=MAX_PRICE_VERSIONS {
        let added = run(&mut directory, 1, &envelope(1, None), &set("G0".into()));
        let version = u32::try_from(version).expect("small");
        let price = Reply::Price { version, effective_at: at(1) };
        assert_eq!(added.map(|added| added.reply), Ok(price));
    }
    let more = run(&mut directory, 1, &envelope(1, None), &set("G0".into()));
    assert_eq!(refused(more), "per_gpu_hour");
    let class = |name: String| {
        let class = Class {
            rank: 1,
            preempts: Vec::new(),
            grace_seconds: 1,
            default_preemptible: true,
            price_multiplier_milli: 1,
        };
        Command::SetClass { name: name.into(), class: Box::new(class) }
    };
    for number in directory.classes().count()..MAX_CLASSES {
        let command = class(format!("c{number}"));
        run(&mut directory, 1, &envelope(1, None), &command).expect("there is room");
    }
    let more = run(&mut directory, 1, &envelope(1, None), &class("more".into()));
    assert_eq!(refused(more), "name");
    run(&mut directory, 1, &envelope(1, None), &class("c9".into())).expect("it exists");
}
