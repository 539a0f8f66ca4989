//! The address of PostgreSQL, and how connections to it are protected.
//!
//! The driver supports neither `sslmode=verify-ca|verify-full` nor `sslrootcert`, so both are
//! removed from the address before the driver parses the rest.

pub(super) mod hosts;

use std::borrow::Cow;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::session::described;
use crate::error::JournalError;

/// How a connection is protected, in terms of libpq.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// Not at all (`disable`).
    Plain,
    /// Encrypted, without a check of the certificate (`require`).
    Encrypted,
    /// Encrypted, with a certificate of a trusted authority (`verify-ca`).
    Authority,
    /// Also with a certificate issued for the name in the address (`verify-full`).
    Name,
}

/// A parsed address.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) protection: Protection,
    /// The authorities to trust. Those of the operating system if none is given.
    pub(super) root_certificates: Option<PathBuf>,
}

impl Address {
    /// Parses an address. Without `sslmode` a connection to this machine is not encrypted, and any
    /// other is protected as with `verify-full`.
    ///
    /// # Errors
    /// Rejects an address that cannot be parsed, and an unencrypted connection over the network
    /// unless `unsafe_plaintext`.
    pub(super) fn read(url: &str, unsafe_plaintext: bool) -> Result<Address, JournalError> {
        let refuse = |reason: &str| {
            JournalError::Refused(format!("the address of PostgreSQL cannot be used: {reason}"))
        };
        let Parts { rest, mode, root } = if url.contains("://") {
            split_url(url)
        } else {
            split_words(url).ok_or_else(|| refuse("a quoted value does not end"))?
        };
        let mut config: Config =
            rest.parse().map_err(|error| described("reading the address of PostgreSQL", &error))?;
        let local = is_local(&config);
        let root_certificates = root.filter(|root| root != "system").map(PathBuf::from);
        let protection = match mode.as_deref() {
            None if local => Protection::Plain,
            None => Protection::Name,
            Some("disable") => Protection::Plain,
            // As in libpq: `require` with an authority verifies the authority.
            Some("require") if root_certificates.is_some() => Protection::Authority,
            Some("require") => Protection::Encrypted,
            Some("verify-ca") => Protection::Authority,
            Some("verify-full") => Protection::Name,
            Some("allow" | "prefer") => {
                return Err(refuse(
                    "sslmode=allow and prefer drop encryption when an attacker in between \
                     asks for it: use verify-full, verify-ca, require or disable",
                ));
            }
            Some(_) => {
                return Err(refuse("sslmode must be disable, require, verify-ca or verify-full"));
            }
        };
        if protection == Protection::Plain && !local && !unsafe_plaintext {
            return Err(JournalError::Refused(
                "sslmode=disable would send passwords and journals over the network in the clear: \
                 use sslmode=verify-full with sslrootcert, or accept the risk with \
                 --unsafe-plaintext-postgres"
                    .into(),
            ));
        }
        let encrypted = protection != Protection::Plain;
        config.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
        Ok(Address { config, protection, root_certificates })
    }
}

/// Whether every host is this machine itself.
fn is_local(config: &Config) -> bool {
    let local_name = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
        Host::Unix(_) => true,
    };
    // A numeric address beside the names is the actual target of the connection.
    config.get_hosts().iter().all(local_name)
        && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

/// An address without the parameters that the driver does not support, and these parameters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    rest: String,
    mode: Option<String>,
    root: Option<String>,
}

impl Parts {
    /// Keeps a parameter if it is one of these. Returns whether it was.
    fn take(&mut self, key: &str, value: Cow<'_, str>) -> bool {
        match key {
            "sslmode" => self.mode = Some(value.into_owned()),
            "sslrootcert" => self.root = Some(value.into_owned()),
            _ => return false,
        }
        true
    }
}

/// `postgres://host/database?key=value&…`
fn split_url(url: &str) -> Parts {
    let mut parts = Parts::default();
    let (before, query) = url.split_once('?').unwrap_or((url, ""));
    let mut others = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = percent_decode_str(value).decode_utf8_lossy();
        if !parts.take(key, decoded) {
            others.push(pair);
        }
    }
    parts.rest = before.to_owned();
    if !others.is_empty() {
        parts.rest = format!("{before}?{}", others.join("&"));
    }
    parts
}

/// `key=value key = 'quoted value' …`; `None` if a quote does not end.
fn split_words(words: &str) -> Option<Parts> {
    let mut parts = Parts::default();
    let mut left = words.trim_start();
    while let Some((key, after)) = left.split_once('=') {
        let after = after.trim_start();
        let (value, length) = read_value(after)?;
        let (word, rest) = left.split_at(left.len() - after.len() + length);
        if !parts.take(key.trim(), Cow::Owned(value)) {
            parts.rest.push_str(word);
            parts.rest.push(' ');
        }
        left = rest.trim_start();
    }
    parts.rest.push_str(left);
    Some(parts)
}

/// A value, quoted or not, and its length in bytes.
fn read_value(text: &str) -> Option<(String, usize)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut letters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => return Some((value, at + 1)),
            _ if !quoted && letter.is_whitespace() => return Some((value, at)),
            _ => value.push(letter),
        }
    }
    (!quoted).then_some((value, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(url: &str) -> Protection {
        Address::read(url, false).unwrap_or_else(|error| panic!("{url}: {error}")).protection
    }

    fn refusal(url: &str) -> String {
        Address::read(url, false).err().unwrap_or_else(|| panic!("{url} was accepted")).to_string()
    }

    #[test]
    fn a_connection_to_another_machine_is_protected_by_default() {
        assert_eq!(protection("host=/run/postgresql user=a"), Protection::Plain);
        assert_eq!(protection("postgres://a@localhost/b"), Protection::Plain);
        assert_eq!(protection("postgres://a@127.0.0.1:5432,[::1]/b"), Protection::Plain);
        for url in ["postgres://a@db.example/b", "host=db.example", "host=localhost,10.0.0.1"] {
            assert_eq!(protection(url), Protection::Name, "{url}");
        }
        let elsewhere = "host=localhost hostaddr=10.0.0.1";
        assert_eq!(protection(elsewhere), Protection::Name, "the numeric address is the target");
    }

    #[test]
    fn every_mode_is_read_in_both_forms_of_an_address() {
        use Protection::{Authority, Encrypted, Name, Plain};
        let modes = [("require", Encrypted), ("verify-ca", Authority), ("verify-full", Name)];
        for (mode, expected) in modes {
            let url = format!("postgres://a:p%40ss@db.example/b?sslmode={mode}&connect_timeout=3");
            let address = Address::read(&url, false).expect("it can be read");
            assert_eq!(
                (address.protection, address.config.get_ssl_mode()),
                (expected, SslMode::Require)
            );
            assert_eq!(address.config.get_password(), Some(&b"p@ss"[..]));
            assert!(
                address.config.get_connect_timeout().is_some(),
                "the other parameters are kept"
            );
            let words = format!("user='a b' sslmode = {mode} host=db.example");
            let address = Address::read(&words, false).expect("it can be read");
            assert_eq!(address.protection, expected);
            assert_eq!(address.config.get_user(), Some("a b"));
        }
        let open = Address::read("host=db.example sslmode=disable", true).expect("it was accepted");
        assert_eq!((open.protection, open.config.get_ssl_mode()), (Plain, SslMode::Disable));
    }

    #[test]
    fn authorities_are_a_file_or_those_of_the_system() {
        let root = |url: &str| Address::read(url, false).expect("it can be read").root_certificates;
        let url = "postgres://a@db.example/b?sslrootcert=/etc/my%20ca.pem";
        assert_eq!(root(url), Some(PathBuf::from("/etc/my ca.pem")));
        let words = r"host=db.example sslrootcert='/etc/o\'hara.pem' user=a";
        assert_eq!(root(words), Some(PathBuf::from("/etc/o'hara.pem")));
        assert_eq!(root("host=db.example sslrootcert=system"), None);
        let asked = "host=db.example sslmode=require sslrootcert=/etc/ca.pem";
        assert_eq!(protection(asked), Protection::Authority, "as in libpq");
    }

    #[test]
    fn an_unprotected_address_is_refused_with_a_fix() {
        assert!(refusal("host=db.example sslmode=disable").contains("--unsafe-plaintext-postgres"));
        assert!(refusal("host=db.example sslmode=prefer").contains("verify-full"));
        assert!(refusal("host=db.example sslmode=sometimes").contains("sslmode must be"));
        assert!(refusal("host='db.example sslmode=disable").contains("does not end"));
    }
}
