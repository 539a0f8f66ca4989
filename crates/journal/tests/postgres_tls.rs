//! Encrypted connections to PostgreSQL: a real server with test certificates.

use crate::support;

use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use bursar_journal::{Journal, JournalError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use support::TempDir;
use support::postgres::TestPostgres;

/// An authority, its certificate in a file, and the certificate that it issued to `localhost`.
struct Authority {
    directory: TempDir,
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("there is randomness");
        let mut own = CertificateParams::new(Vec::new()).expect("no names");
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        own.distinguished_name = DistinguishedName::new();
        own.distinguished_name.push(DnType::CommonName, "Bursar's test authority");
        let root = own.self_signed(&key).expect("it signs itself").pem();
        let issuer = Issuer::new(own, key);
        let server_key = KeyPair::generate().expect("there is randomness");
        let server = CertificateParams::new(vec!["localhost".into()]).expect("a plain name");
        let issued = server.signed_by(&server_key, &issuer).expect("it signs the server's");
        let directory = TempDir::new();
        std::fs::write(directory.path().join("root.pem"), root).expect("the directory is ours");
        Authority { directory, certificate: issued.pem(), key: server_key.serialize_pem() }
    }

    fn server(&self) -> TestPostgres {
        TestPostgres::on_a_port(Some((&self.certificate, &self.key)))
    }

    fn root(&self) -> String {
        format!("sslrootcert={}", self.directory.path().join("root.pem").display())
    }
}

fn open(url: String) -> Result<PostgresJournal, JournalError> {
    let mut options = PostgresOptions::new(url, "ledger-0");
    options.unsafe_single = true;
    PostgresJournal::open(options)
}

fn refusal(url: String) -> String {
    open(url).err().expect("it must not be opened").to_string()
}

/// The numbers of encrypted and of unencrypted connections to the server.
fn connections(server: &TestPostgres) -> (String, String) {
    let of = |encrypted: &str| {
        server.sql(&format!(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
             WHERE backend_type = 'client backend' AND client_addr IS NOT NULL AND {encrypted}"
        ))
    };
    (of("ssl"), of("NOT ssl"))
}

#[test]
fn a_trusted_authority_opens_the_journal_encrypted() {
    let authority = Authority::new();
    let server = authority.server();
    for (host, mode) in [
        ("localhost", "sslmode=verify-full"),
        // The certificate is issued for another name, which this mode does not check.
        ("127.0.0.1", "sslmode=verify-ca"),
        ("127.0.0.1", "sslmode=require"),
    ] {
        let url = format!("{} {mode} {}", server.url_by_port(host), authority.root());
        let journal = open(url).unwrap_or_else(|error| panic!("{host} {mode}: {error}"));
        assert_eq!(journal.head().expect("it answers").sequence, 0);
        assert_eq!(connections(&server), ("3".into(), "0".into()), "{mode}");
        drop(journal);
        server.wait_for("SELECT count(*) FROM pg_stat_ssl WHERE ssl", "0");
    }
}

#[test]
fn require_encrypts_without_checking_the_certificate() {
    let server = Authority::new().server();
    let url = format!("{} sslmode=require", server.url_by_port("localhost"));
    let journal = open(url).expect("any certificate is accepted");
    assert_eq!(connections(&server), ("3".into(), "0".into()));
    drop(journal);
}

#[test]
fn another_authority_or_another_name_is_refused_with_a_fix() {
    let authority = Authority::new();
    let server = authority.server();
    let stranger = Authority::new();
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = server.url_by_port("localhost");
        let reason = refusal(format!("{url} sslmode={mode} {}", stranger.root()));
        assert!(reason.contains("not trusted") && reason.contains("sslrootcert"), "{reason}");
    }
    let url = server.url_by_port("127.0.0.1");
    let reason = refusal(format!("{url} sslmode=verify-full {}", authority.root()));
    assert!(reason.contains("not trusted") && reason.contains("host in the address"), "{reason}");
    let reason = refusal(format!("{url} sslmode=verify-full sslrootcert=/nowhere/ca.pem"));
    assert!(reason.contains("/nowhere/ca.pem"), "{reason}");
    assert_eq!(connections(&server), ("0".into(), "0".into()), "no connection was left open");
}

#[test]
fn a_server_without_encryption_is_refused_if_encryption_is_required() {
    let server = TestPostgres::on_a_port(None);
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{} sslmode={mode}", server.url_by_port("localhost"));
        let error = open(url).err().expect("there is no encryption").to_string();
        assert!(error.contains("TLS"), "{error}");
    }
    open(server.url_by_port("localhost")).expect("on this machine nothing has to be encrypted");
}
