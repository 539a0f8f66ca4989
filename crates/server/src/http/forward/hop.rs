//! What a member says of a request that it forwards: how often it was forwarded, and the address of the client. Only
//! the word of members counts: they know a secret.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};

/// The header of a forwarded request.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("bursar-forwarded");
/// How often a request is forwarded at most.
pub(super) const MAX_HOPS: u8 = 2;
/// Distinguishes this use of the root key from every other one.
const CONTEXT: &str = "bursar v1 requests between the members of a cluster";

/// The secret that the members of a cluster share.
#[derive(Clone)]
pub(crate) struct MemberSecret([u8; 32]);

/// How a request came here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// From a client.
    Direct,
    /// From a member, after so many hops; the client had this address.
    Forwarded(u8, IpAddr),
    /// With the header of a member, but not from one with the same secret.
    Unproven,
}

impl MemberSecret {
    /// Reads the secret of a file.
    pub(crate) fn read(file: &Path) -> std::io::Result<MemberSecret> {
        let text = std::fs::read_to_string(file)?;
        let text = text.trim();
        if text.len() < 32 {
            let reason = format!("{}: it must hold at least 32 characters", file.display());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, reason));
        }
        Ok(MemberSecret::derived_from(text))
    }

    /// The secret that follows from a longer-lived one.
    pub(crate) fn derived_from(text: &str) -> MemberSecret {
        MemberSecret(blake3::derive_key(CONTEXT, text.as_bytes()))
    }

    /// The header of a request to `path`, with its query, that is forwarded for the `hops`-th time.
    pub(super) fn header(&self, hops: u8, client: IpAddr, to: (&Method, &str)) -> HeaderValue {
        let mut text = String::new();
        let seal = self.seal(hops, client, to).to_hex();
        write!(text, "{hops} {client} {seal}").expect("writing to a string never fails");
        HeaderValue::try_from(text).expect("digits, an address and hex digits")
    }

    /// How a request came here.
    pub(super) fn arrival(&self, headers: &HeaderMap, to: (&Method, &str)) -> Arrival {
        let mut values = headers.get_all(FORWARDED).iter();
        let Some(value) = values.next() else { return Arrival::Direct };
        let said = value.to_str().ok().filter(|_| values.next().is_none());
        said.and_then(|said| self.proven(said, to)).unwrap_or(Arrival::Unproven)
    }

    fn proven(&self, said: &str, to: (&Method, &str)) -> Option<Arrival> {
        let mut words = said.split(' ');
        let (hops, client, seal) = (words.next()?, words.next()?, words.next()?);
        let (hops, client) = (hops.parse().ok()?, client.parse().ok()?);
        let seal = blake3::Hash::from_hex(seal).ok()?;
        // Hashes are compared in constant time.
        let is_proven = words.next().is_none() && self.seal(hops, client, to) == seal;
        is_proven.then_some(Arrival::Forwarded(hops, client))
    }

    fn seal(&self, hops: u8, client: IpAddr, (method, path): (&Method, &str)) -> blake3::Hash {
        let text = format!("{hops} {client} {method} {path}");
        blake3::keyed_hash(&self.0, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_member_with_the_secret_is_believed_and_only_about_this_request() {
        let secret = MemberSecret::derived_from("the root key of a store, long enough");
        let client: IpAddr = "203.0.113.7".parse().expect("an address");
        let to = (&Method::POST, "/v1/holds?x=1");
        let mut headers = HeaderMap::new();
        assert_eq!(secret.arrival(&headers, to), Arrival::Direct);
        headers.insert(FORWARDED, secret.header(1, client, to));
        assert_eq!(secret.arrival(&headers, to), Arrival::Forwarded(1, client));

        let other = MemberSecret::derived_from("the root key of another store, as long");
        assert_eq!(other.arrival(&headers, to), Arrival::Unproven);
        assert_eq!(secret.arrival(&headers, (&Method::GET, to.1)), Arrival::Unproven);
        assert_eq!(secret.arrival(&headers, (to.0, "/v1/holds")), Arrival::Unproven);
        let sealed = headers[FORWARDED].to_str().expect("text").to_owned();
        for altered in [
            sealed.replace("1 203", "0 203"),
            sealed.replace("203.0.113.7", "203.0.113.8"),
            format!("{sealed} more"),
            sealed[..sealed.len() - 1].to_owned(),
            "1".to_owned(),
            String::new(),
        ] {
            let value = HeaderValue::try_from(altered.clone()).expect("visible");
            headers.insert(FORWARDED, value);
            assert_eq!(secret.arrival(&headers, to), Arrival::Unproven, "{altered}");
        }
        headers.insert(FORWARDED, secret.header(1, client, to));
        headers.append(FORWARDED, secret.header(1, client, to));
        assert_eq!(secret.arrival(&headers, to), Arrival::Unproven, "twice");
    }

    #[test]
    fn a_short_secret_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("secret");
        std::fs::write(&file, "short\n").expect("the folder is ours");
        assert!(MemberSecret::read(&file).is_err());
        std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("the folder is ours");
        assert!(MemberSecret::read(&file).is_ok());
    }
}
