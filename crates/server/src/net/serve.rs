//! Accepts connections: TLS, timeouts for slow clients, and graceful shutdown.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Extensions, Request, Version, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::config::{Config, ConfigError, Timeouts};
use crate::net::connections::Connections;
use crate::net::stall_timeout::StallTimeout;
use crate::net::unread::UnreadAnswers;

/// How long requests in flight may take at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);
const HEADER_BYTES: u32 = 32 * 1024;
/// Streams of one HTTP/2 connection at once.
const MAX_STREAMS: u32 = 256;
/// Bytes of a body over HTTP/2 that are accepted before its handler reads them, of one stream and of
/// one connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Streams over HTTP/2 that were reset before they were accepted, and streams that broke the
/// protocol. A client with more is closed: opening and resetting streams costs it nothing.
const MAX_RESET_STREAMS: usize = 64;

fn duration(ms: std::num::NonZeroU64) -> Duration {
    Duration::from_millis(ms.get())
}

/// The TLS acceptor, if TLS is configured.
pub fn tls(config: &Config) -> Result<Option<TlsAcceptor>, ConfigError> {
    let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
    let wrong = |error: String| ConfigError::Contradiction(format!("TLS: {error}"));
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let chain = chain.map_err(|error| wrong(format!("{}: {error}", cert.display())))?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong(format!("{}: {error}", key.display())))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(error.to_string()))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(tls))))
}

/// The address that a connection came from.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PeerAddress(IpAddr);

impl PeerAddress {
    /// An address that a member of the cluster vouches for.
    pub(crate) fn new(address: IpAddr) -> PeerAddress {
        PeerAddress(address)
    }

    /// Notes the address in a request without a key, and in one that signs in. Other requests do not need it.
    fn note(self, request: &mut Request<Incoming>) {
        let signs_in =
            |path: &str| ["/v1/session", "/auth/"].iter().any(|start| path.starts_with(start));
        if signs_in(request.uri().path()) || !request.headers().contains_key(header::AUTHORIZATION)
        {
            request.extensions_mut().insert(self);
        }
    }

    /// The address of a request without a key, or of one that signs in.
    pub(crate) fn of(extensions: &Extensions) -> IpAddr {
        extensions.get::<PeerAddress>().map_or_else(PeerAddress::unknown, |peer| peer.0)
    }

    /// Stands for an address that is not known.
    pub(crate) fn unknown() -> IpAddr {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    }

    pub(crate) fn address(self) -> IpAddr {
        self.0
    }
}

/// Answers requests.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
    /// Answers one request.
    fn answer(
        self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + 'static;
}

/// Serves until `stop` resolves, then finishes the requests in flight.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answer: impl Answers,
    timeouts: Timeouts,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let connections = Connections::within_file_limit();
    tokio::pin!(stop);
    loop {
        let permit = tokio::select! {
            permit = connections.wait_for_slot() => permit,
            () = &mut stop => break,
        };
        let Some(permit) = permit else { break };
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    // Most likely out of file descriptors: give connections time to end.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let Some(place) = connections.admit(permit, address) else {
            tracing::debug!(%address, "closed: too many connections from one address");
            continue;
        };
        // Small responses are sent without delay.
        let _ = stream.set_nodelay(true);
        let (answer, tls, watcher) = (answer.clone(), tls.clone(), graceful.watcher());
        let peer = PeerAddress(address);
        tokio::spawn(async move {
            connection((stream, peer), tls, answer, timeouts, watcher).await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

async fn connection(
    (stream, peer): (TcpStream, PeerAddress),
    tls: Option<TlsAcceptor>,
    answer: impl Answers,
    timeouts: Timeouts,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let handshake = duration(timeouts.handshake_ms);
    match tls {
        None => serve_http((stream, peer), answer, timeouts, watcher).await,
        Some(tls) => match tokio::time::timeout(handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => serve_http((stream, peer), answer, timeouts, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("TLS took too long"),
        },
    }
}

async fn serve_http(
    (stream, peer): (impl AsyncRead + AsyncWrite + Unpin + Send + 'static, PeerAddress),
    answer: impl Answers,
    timeouts: Timeouts,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let header = duration(timeouts.header_ms);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .keep_alive_interval(Some(header))
        .keep_alive_timeout(duration(timeouts.handshake_ms));
    let unread = UnreadAnswers::new(duration(timeouts.write_ms));
    let watched = Arc::clone(&unread);
    let stream = StallTimeout::new(stream, header, duration(timeouts.write_ms));
    let seen_length = stream.seen_length();
    let service = service_fn(move |mut request: Request<Incoming>| {
        peer.note(&mut request);
        seen_length.mark(&mut request);
        // Over HTTP/1 an answer that is not read is a write that is pending: see `StallTimeout`.
        let watched = (request.version() == Version::HTTP_2).then(|| Arc::clone(&watched));
        let answering = answer.clone().answer(request);
        async move {
            let answer = answering.await?;
            Ok::<Response, Infallible>(match watched {
                Some(watched) => watched.watch(answer),
                None => answer,
            })
        }
    });
    let talk = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    tokio::select! {
        ended = watcher.watch(talk) => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
        () = unread.stalled() => tracing::debug!("closed: an answer was not read in time"),
    }
}
