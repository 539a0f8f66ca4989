//! Encryption of connections to PostgreSQL, with rustls.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{Address, Protection};
use crate::error::JournalError;

const TRUSTING: &str = "reading the certificates to trust PostgreSQL by";

/// The TLS connector for an address. `None` if its connections are not encrypted.
pub(super) fn connector(address: &Address) -> Result<Option<MakeRustlsConnect>, JournalError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let trusted = || -> Result<_, JournalError> {
        let roots = match &address.root_certificates {
            Some(file) => roots_in(file)?,
            None => roots_of_the_system()?,
        };
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| JournalError::storage(TRUSTING, error))
    };
    let verifier: Arc<dyn ServerCertVerifier> = match address.protection {
        Protection::Plain => return Ok(None),
        Protection::Encrypted => Arc::new(AcceptAnyCertificate(Arc::clone(&provider))),
        Protection::Authority => Arc::new(AnyName(trusted()?)),
        Protection::Name => trusted()?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| JournalError::storage("setting up TLS", error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Some(MakeRustlsConnect::new(config)))
}

fn roots_in(file: &Path) -> Result<RootCertStore, JournalError> {
    let unusable = |reason: &dyn std::fmt::Display| {
        JournalError::storage(TRUSTING, format!("{}: {reason}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"there is no certificate in it"));
    }
    Ok(roots)
}

fn roots_of_the_system() -> Result<RootCertStore, JournalError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = "this machine has none: give sslrootcert";
        return Err(JournalError::storage(TRUSTING, reason));
    }
    Ok(roots)
}

/// Why a certificate was rejected, if that caused the error. The certificate may be replaced, so a
/// retry is allowed.
pub(super) fn certificate_rejection(error: &tokio_postgres::Error) -> Option<JournalError> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let wrapped = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let found = wrapped.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::InvalidCertificate(reason)) =
            found.or_else(|| inner.downcast_ref::<rustls::Error>())
        {
            let reason = format!(
                "its certificate is not trusted ({reason}): sslrootcert must name the authority \
                 that issued it, and with sslmode=verify-full it must be made out to the host in \
                 the address"
            );
            return Some(JournalError::storage("connecting to PostgreSQL", reason));
        }
        cause = inner.source();
    }
    None
}

/// Verifies everything except the name, for `verify-ca`.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // The name is checked last, after everything else.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts any certificate whose key the server has, for `require`.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
