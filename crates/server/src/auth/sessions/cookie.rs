//! The cookies of sessions and of a sign-in that is under way.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};

/// The cookies of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookies {
    /// The cookie of sessions.
    pub(crate) session: String,
    /// The cookie of a sign-in with an identity provider.
    pub(crate) login: String,
    /// Whether browsers send them over TLS only.
    is_secure: bool,
}

impl Cookies {
    /// The cookies of a server with this URL. Browsers keep cookies of all ports of a machine
    /// together, so on loopback the port is part of the names.
    pub(crate) fn new(base_url: &str) -> Cookies {
        let (scheme, rest) = base_url.split_once("://").unwrap_or(("https", base_url));
        let authority = rest.split('/').next().unwrap_or(rest);
        if scheme != "http" || !is_loopback(authority) {
            return Cookies {
                session: "__Host-bursar_session".to_owned(),
                login: "__Host-bursar_login".to_owned(),
                is_secure: true,
            };
        }
        let port = authority.rsplit_once(':').map_or("80", |(_, port)| port);
        let port = if port.bytes().all(|digit| digit.is_ascii_digit()) { port } else { "80" };
        Cookies {
            session: format!("bursar_session_{port}"),
            login: format!("bursar_login_{port}"),
            is_secure: false,
        }
    }

    fn set(&self, name: &str, value: &str, site: &str, seconds: u64) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let text =
            format!("{name}={value}; Path=/; HttpOnly; SameSite={site}; Max-Age={seconds}{secure}");
        HeaderValue::from_str(&text).expect("names and values are visible characters")
    }

    /// Sets the cookie of a session.
    pub(crate) fn set_session(&self, secret: &str, seconds: u64) -> HeaderValue {
        self.set(&self.session, secret, "Strict", seconds)
    }

    /// Sets the cookie of a sign-in with an identity provider, which leads back from another site.
    pub(crate) fn set_login(&self, sealed: &str, seconds: u64) -> HeaderValue {
        self.set(&self.login, sealed, "Lax", seconds)
    }

    /// Removes the cookie of a sign-in.
    pub(crate) fn clear_login(&self) -> HeaderValue {
        self.set_login("", 0)
    }

    /// Removes the cookie of a session.
    pub(crate) fn clear_session(&self) -> HeaderValue {
        self.set_session("", 0)
    }
}

/// Whether the host of an authority is this machine.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The value of a cookie in a request.
pub(crate) fn read<'headers>(headers: &'headers HeaderMap, name: &str) -> Option<&'headers str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|one| one.split_once('='));
    pairs
        .find(|(key, value)| key.trim() == name && !value.is_empty())
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_secure_except_on_loopback() {
        for (url, name) in [
            ("http://127.0.0.1:7070", "bursar_session_7070"),
            ("http://[::1]:81", "bursar_session_81"),
            ("http://localhost", "bursar_session_80"),
            ("https://127.0.0.1:7070", "__Host-bursar_session"),
            ("https://bursar.example", "__Host-bursar_session"),
            ("http://10.0.0.1:7070", "__Host-bursar_session"),
            ("http://127.0.0.1.example:7070", "__Host-bursar_session"),
            ("http://localhost.example", "__Host-bursar_session"),
        ] {
            let cookies = Cookies::new(url);
            assert_eq!(cookies.session, name, "{url}");
            let set = cookies.set_session("x", 9);
            let set = set.to_str().expect("visible");
            assert_eq!(set.ends_with("; Secure"), name.starts_with("__Host-"), "{set}");
            assert!(set.contains("HttpOnly; SameSite=Strict; Max-Age=9"), "{set}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; b=; session2=no"));
        headers.append(header::COOKIE, HeaderValue::from_static("session=yes=1"));
        assert_eq!(read(&headers, "a"), Some("1"));
        assert_eq!(read(&headers, "b"), None);
        assert_eq!(read(&headers, "session"), Some("yes=1"));
        assert_eq!(read(&headers, "c"), None);
    }
}
