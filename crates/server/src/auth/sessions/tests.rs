use super::*;

fn sessions() -> Sessions {
    let seconds = |count| NonZeroU64::new(count).expect("not zero");
    Sessions::new(SessionOptions { idle_seconds: seconds(10), max_seconds: seconds(25) })
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn of(id: &str, scope: &str) -> Principal {
    Principal { id: id.into(), scope: Some(scope.into()), ..Principal::root() }
}

#[test]
fn a_session_ends_when_idle_and_at_its_latest() {
    let sessions = sessions();
    let new = sessions.begin(Principal::root(), None, None, at(0));
    let id = new.session.principal.session.expect("it has one");
    assert!(sessions.used(&new.secret, at(10)).is_some());
    assert!(sessions.is_live(id, at(20)) && !sessions.is_live(id, at(21)));
    assert!(sessions.used(&new.secret, at(20)).is_some());
    assert!(sessions.used(&new.secret, at(25)).is_some());
    assert!(sessions.used(&new.secret, at(26)).is_none());
    assert!(sessions.used(&new.secret, at(25)).is_none(), "it is gone");
    let new = sessions.begin(Principal::root(), None, None, at(0));
    assert!(sessions.used(&new.secret, at(11)).is_none());
}

#[test]
fn what_a_page_reads_by_itself_does_not_keep_its_session() {
    let sessions = sessions();
    let new = sessions.begin(Principal::root(), None, None, at(0));
    let ask = |background: bool, now: i64| {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", format!("s={}", new.secret).parse().expect("ascii"));
        if background {
            headers.insert(BACKGROUND, "true".parse().expect("ascii"));
        }
        let found = sessions.authenticate((&Method::GET, &headers), "s", at(now));
        found.expect("it has the cookie").is_ok()
    };
    assert!(ask(false, 5) && ask(true, 14), "it is read");
    assert!(ask(true, 15) && !ask(true, 16), "it ends ten seconds after its last use");
    assert!(!ask(false, 16), "it has ended for every request");
}

#[test]
fn all_sessions_of_a_person_end_in_every_tenant() {
    let sessions = sessions();
    let person = |scope: Option<&str>| Principal {
        id: "ada@https://id.example".into(),
        scope: scope.map(Into::into),
        ..Principal::root()
    };
    let begin = |who: Principal| sessions.begin(who, None, None, at(0)).secret;
    let own = [begin(person(Some("acme"))), begin(person(Some("umbra"))), begin(person(None))];
    let other = begin(of("ada", "umbra"));
    sessions.end_all_of(&person(Some("acme")));
    assert!(own.iter().all(|secret| sessions.used(secret, at(1)).is_none()));
    assert!(sessions.used(&other, at(1)).is_some());
}

#[test]
fn an_administrator_ends_sessions_within_its_scope_alone() {
    let sessions = sessions();
    let begin = |id, scope| sessions.begin(of(id, scope), None, None, at(0)).secret;
    let meant = [begin("p", "acme:nlp"), begin("p", "acme")];
    let others = [begin("q", "acme"), begin("p", "umbra")];
    let platform = Principal { id: "p".into(), ..Principal::root() };
    let platform = sessions.begin(platform, None, None, at(0)).secret;
    assert_eq!(sessions.end_within(&of("admin", "acme"), "p"), 2);
    assert!(meant.iter().all(|secret| sessions.used(secret, at(1)).is_none()));
    let lasts = |secret: &String| sessions.used(secret, at(1)).is_some();
    assert!(others.iter().all(lasts) && lasts(&platform));
    assert_eq!(sessions.end_within(&of("admin", "acme"), "p"), 0);
    assert_eq!(sessions.end_within(&Principal::root(), "p"), 2);
}

#[test]
fn a_session_does_not_outlive_its_key() {
    let key = Principal { expires_at: Some(at(5)), ..Principal::root() };
    assert_eq!(sessions().begin(key.clone(), None, None, at(0)).session.ends_at, at(5));
    for (until, ends) in [(3, 3), (9, 5)] {
        let begun = sessions().begin(key.clone(), None, Some(at(until)), at(0));
        assert_eq!(begun.session.ends_at, at(ends));
    }
}

#[test]
fn a_key_has_so_many_sessions_and_the_least_recently_used_ends() {
    let sessions = sessions();
    let other = sessions.begin(of("l", "acme"), None, None, at(0));
    let first = sessions.begin(of("k", "acme:nlp"), None, None, at(0));
    let second = sessions.begin(of("k", "acme:nlp"), None, None, at(0));
    assert!(sessions.used(&first.secret, at(1)).is_some());
    for _ in 2..=MAX_OF_KEY {
        sessions.begin(of("k", "acme:nlp"), None, None, at(2));
    }
    assert!(sessions.used(&first.secret, at(2)).is_some());
    assert!(sessions.used(&second.secret, at(2)).is_none());
    assert!(sessions.used(&other.secret, at(2)).is_some(), "another key's is kept");
}

#[test]
fn a_tenant_has_so_many_sessions_and_takes_none_of_others() {
    let sessions = sessions();
    let other = sessions.begin(of("k", "umbra"), None, None, at(0));
    for number in 0..=MAX_OF_TENANT {
        sessions.begin(of(&format!("k{number}"), "acme"), None, None, at(1));
    }
    assert_eq!(sessions.table().sessions[&Some("acme".into())].len(), MAX_OF_TENANT);
    assert!(sessions.used(&other.secret, at(1)).is_some());
    sessions.remove_ended(at(100));
    let table = sessions.table();
    assert!(table.sessions.is_empty() && table.tenants.is_empty(), "nothing is kept");
}

#[test]
fn all_sessions_of_a_key_end_at_once_and_no_others() {
    let sessions = sessions();
    let key = |id, scope| Principal { secret_hash: Some([7; 32]), ..of(id, scope) };
    let begin = |id, scope| sessions.begin(key(id, scope), None, None, at(0)).secret;
    let own = [begin("k", "acme"), begin("k", "acme")];
    let others = [begin("l", "acme"), begin("k", "umbra")];
    let renewed = Principal { secret_hash: Some([1; 32]), ..of("k", "acme") };
    let renewed = sessions.begin(renewed, None, None, at(0)).secret;
    sessions.end_all_of(&key("k", "acme"));
    assert!(own.iter().all(|secret| sessions.used(secret, at(1)).is_none()));
    let lasts = |secret: &String| sessions.used(secret, at(1)).is_some();
    assert!(others.iter().all(lasts) && lasts(&renewed));
}
