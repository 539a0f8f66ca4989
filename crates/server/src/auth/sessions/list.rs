//! The sessions that an administrator sees.

use bursar_core::time::Timestamp;

use super::{Kept, LiveSession, Sessions};
use crate::auth::Principal;

/// A session and when it was last used.
#[derive(Clone, Debug)]
pub(crate) struct ListedSession {
    pub(crate) session: LiveSession,
    pub(crate) used_at: Timestamp,
    /// Its place in the order of last use.
    pub(crate) place: u64,
}

impl Kept {
    /// Whether an administrator covers the scope of the session.
    pub(super) fn is_within(&self, caller: &Principal) -> bool {
        match &self.session.principal.scope {
            Some(scope) => caller.sees(scope),
            None => caller.is_of_platform(),
        }
    }
}

impl Sessions {
    /// Live sessions whose scope a caller covers, the last used first, before a place in that order.
    pub(crate) fn within(
        &self,
        caller: &Principal,
        before: Option<u64>,
        now: Timestamp,
    ) -> Vec<ListedSession> {
        let table = self.table();
        let all = table.sessions.values().flat_map(|sessions| sessions.values());
        let meant = all.filter(|kept| {
            let earlier = before.is_none_or(|before| kept.last_use < before);
            earlier && kept.is_within(caller) && self.lasts(kept, now)
        });
        let listed = |kept: &Kept| {
            let (session, used_at, place) = (kept.session.clone(), kept.used_at, kept.last_use);
            ListedSession { session, used_at, place }
        };
        let mut listed: Vec<ListedSession> = meant.map(listed).collect();
        listed.sort_unstable_by_key(|one| std::cmp::Reverse(one.place));
        listed
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::auth::sessions::SessionOptions;

    #[test]
    fn an_administrator_lists_live_sessions_within_its_scope_alone() {
        let seconds = |count| NonZeroU64::new(count).expect("not zero");
        let options = SessionOptions { idle_seconds: seconds(10), max_seconds: seconds(25) };
        let sessions = Sessions::new(options);
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let of = |id: &str, scope: Option<&str>| Principal {
            id: id.into(),
            scope: scope.map(Into::into),
            ..Principal::root()
        };
        let begin = |id, scope, now| sessions.begin(of(id, scope), None, None, at(now)).secret;
        begin("ended", Some("acme"), 0);
        let first = begin("p", Some("acme:nlp"), 5);
        begin("q", Some("acme"), 6);
        begin("r", Some("umbra"), 6);
        begin("platform", None, 6);
        assert!(sessions.used(&first, at(7)).is_some());
        let ids = |caller: &Principal, before| -> Vec<String> {
            let listed = sessions.within(caller, before, at(12));
            listed.iter().map(|one| one.session.principal.id.to_string()).collect()
        };
        let admin = of("admin", Some("acme"));
        assert_eq!(ids(&admin, None), ["p", "q"]);
        let place = sessions.within(&admin, None, at(12))[0].place;
        assert_eq!(ids(&admin, Some(place)), ["q"]);
        assert_eq!(ids(&of("root", None), None), ["p", "platform", "r", "q"]);
    }
}
