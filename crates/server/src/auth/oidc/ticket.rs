//! A sign-in that is under way. It travels in a cookie of the browser, sealed with a key of this
//! process, so that the server keeps nothing.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bursar_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::auth::sessions::{SessionId, random_text};

/// How long a person may take to sign in.
pub(crate) const LIFETIME_SECONDS: u64 = 600;

/// A sign-in that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    /// Returned by the provider.
    pub(crate) state: String,
    /// Repeated in the token.
    pub(crate) nonce: String,
    /// Proves to the provider that the code is redeemed where it was requested.
    pub(crate) verifier: String,
    /// The page to show afterwards.
    pub(crate) return_to: String,
    /// The session of the browser before. The browser does not send its strict cookie when the provider
    /// leads it back.
    #[serde(default)]
    pub(crate) session_before: Option<SessionId>,
    /// When it began, in milliseconds.
    began: i64,
}

/// Seals tickets.
pub(crate) struct TicketKey([u8; 32]);

impl TicketKey {
    /// A new key.
    pub(crate) fn new() -> TicketKey {
        TicketKey(*blake3::hash(random_text().as_bytes()).as_bytes())
    }

    /// The value of the cookie.
    pub(crate) fn seal(&self, ticket: &Ticket) -> String {
        let text = serde_json::to_string(ticket).expect("plain fields");
        let text = URL_SAFE_NO_PAD.encode(text);
        let seal = blake3::keyed_hash(&self.0, text.as_bytes()).to_hex();
        format!("{text}.{seal}")
    }

    /// The ticket of a cookie, if it was sealed here and is not too old.
    pub(crate) fn open(&self, sealed: &str, now: Timestamp) -> Option<Ticket> {
        let (text, seal) = sealed.split_once('.')?;
        let expected = blake3::keyed_hash(&self.0, text.as_bytes()).to_hex();
        if !bool::from(expected.as_bytes().ct_eq(seal.as_bytes())) {
            return None;
        }
        let text = URL_SAFE_NO_PAD.decode(text).ok()?;
        let ticket: Ticket = serde_json::from_slice(&text).ok()?;
        let age = now.millis().saturating_sub(ticket.began);
        (0..=i64::try_from(LIFETIME_SECONDS * 1000).unwrap_or(i64::MAX))
            .contains(&age)
            .then_some(ticket)
    }
}

impl Ticket {
    /// Begins a sign-in that returns to a page of this server.
    pub(crate) fn new(
        return_to: Option<&str>,
        session_before: Option<SessionId>,
        now: Timestamp,
    ) -> Ticket {
        Ticket {
            state: random_text(),
            nonce: random_text(),
            verifier: random_text(),
            return_to: return_to.filter(|path| is_own_page(path)).unwrap_or("/").to_owned(),
            session_before,
            began: now.millis(),
        }
    }

    /// What the provider gets of the verifier.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }

    /// Whether the provider returned the state of this sign-in.
    pub(crate) fn has_state(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }
}

/// Whether a path is a page of this server, and not an address elsewhere.
pub(crate) fn is_own_page(path: &str) -> bool {
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>".contains(&byte));
    is_plain && path.len() <= 1024 && path.starts_with('/') && !path.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_opened_only_where_and_when_it_was_sealed() {
        let (key, now) = (TicketKey::new(), Timestamp::from_millis(1_000_000));
        let ticket = Ticket::new(Some("/jobs?x=1"), None, now);
        let sealed = key.seal(&ticket);
        assert_eq!(key.open(&sealed, now).as_ref(), Some(&ticket));
        assert_eq!(ticket.return_to, "/jobs?x=1");
        assert_eq!(key.open(&sealed, now.plus_millis(600_001)), None);
        assert_eq!(key.open(&sealed, now.plus_millis(-1)), None);
        assert_eq!(TicketKey::new().open(&sealed, now), None);
        for place in 0..sealed.len() {
            let mut wrong = sealed.clone().into_bytes();
            wrong[place] = if wrong[place] == b'A' { b'B' } else { b'A' };
            let wrong = String::from_utf8(wrong).expect("ascii");
            assert_eq!(key.open(&wrong, now), None, "{place}");
        }
    }

    #[test]
    fn a_sign_in_returns_to_a_page_of_this_server_alone() {
        for (path, expected) in [
            ("/jobs/j-1?tab=why#x", true),
            ("/", true),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("https://evil.example", false),
            ("/a\"b", false),
            ("/a b", false),
            ("", false),
        ] {
            assert_eq!(is_own_page(path), expected, "{path}");
        }
        let ticket = Ticket::new(Some("//evil.example"), None, Timestamp::from_millis(0));
        assert_eq!(ticket.return_to, "/");
    }

    #[test]
    fn the_challenge_is_the_hash_of_the_verifier() {
        // The example of RFC 7636, appendix B.
        let mut ticket = Ticket::new(None, None, Timestamp::from_millis(0));
        ticket.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        assert_eq!(ticket.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
