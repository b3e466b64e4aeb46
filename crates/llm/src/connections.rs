//! The HTTP connections to one model endpoint.
//!
//! Over HTTP/1.1 the client's pool opens one connection per concurrent request. Over HTTP/2 it keeps one
//! connection and queues requests above the server's stream limit inside it while their timeouts run. Therefore
//! each [`STREAMS`] concurrent HTTP/2 requests get a client, and so a connection, of their own. The protocol is
//! known from the first response; until then a TLS endpoint is assumed to speak HTTP/2, and each request
//! without a connection opens one to negotiate.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use reqwest::{Client, Version, redirect, retry};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;
use url::{Host, Url};

/// Concurrent requests per HTTP/2 connection: the minimum that RFC 9113 §6.5.2 recommends servers allow, and
/// the limit of most.
const STREAMS: usize = 100;

/// ALPN protocol id of HTTP/2 (RFC 9113 §3.2).
const HTTP2: &[u8] = b"h2";

/// Idle connections are closed before servers close them, typically after 60 s: a request on a closing
/// connection fails and costs the execution a retry.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// A silently dead shared connection would fail all its calls, and new ones, for minutes. While calls are
/// running, HTTP/2 pings are sent at this interval, and the connection is closed if one stays unanswered for
/// this timeout.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Errors of setting up an endpoint's connections.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionsError {
    /// The configured certificate file is unreadable or holds no certificate.
    #[error("{path:?} cannot be read as certificates in PEM")]
    Authorities {
        /// The path as configured.
        path: PathBuf,
        /// The read error; `None` if the file holds no certificate.
        #[source]
        source: Option<rustls::pki_types::pem::Error>,
    },
    /// The machine's certificate authorities cannot be used.
    #[error("the certificate authorities of this machine cannot be used")]
    Tls(#[from] rustls::Error),
    /// The HTTP client cannot be built.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
}

/// Opens connections to one endpoint on demand.
#[derive(Debug)]
pub(super) struct Connections {
    connect_timeout: Duration,
    tls: ClientConfig,
    is_tls: bool,
    is_local: bool,
    known: Mutex<EndpointClients>,
}

#[derive(Debug, Default)]
struct EndpointClients {
    /// True if the server speaks HTTP/2; `None` before its first response.
    is_http2: Option<bool>,
    /// Filled from the front, so that surplus clients at the back become idle and close their connections.
    clients: Vec<Shared>,
}

#[derive(Debug, Clone)]
struct Shared {
    client: Client,
    /// One clone is held here and one by each running request: the count of clones limits the requests.
    place: Arc<()>,
}

/// A client for one request. Occupies one stream of the client until dropped.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) client: Client,
    _place: Arc<()>,
}

impl Connections {
    /// `authorities` is a PEM file of certificates trusted in addition to the machine's.
    pub(super) fn new(
        url: &Url,
        connect_timeout: Duration,
        authorities: Option<&Path>,
    ) -> Result<Self, ConnectionsError> {
        let is_tls = url.scheme() == "https";
        let connections = Self {
            connect_timeout,
            tls: if is_tls { tls(authorities)? } else { no_tls()? },
            is_tls,
            is_local: is_local(url),
            known: Mutex::default(),
        };
        // Build a client now, so that bad settings fail at start-up and not at the first call.
        connections.lend().map_err(ConnectionsError::Client)?;
        Ok(connections)
    }

    /// Returns the first client with a free stream, or a new client.
    pub(super) fn lend(&self) -> Result<Lent, reqwest::Error> {
        let mut known = self.lock();
        let places = if known.is_http2.unwrap_or(self.is_tls) { STREAMS } else { usize::MAX };
        let free = known.clients.iter().find(|shared| Arc::strong_count(&shared.place) <= places);
        let shared = match free {
            Some(shared) => shared.clone(),
            None => {
                let client = self.client(known.is_http2 == Some(true))?;
                let shared = Shared { client, place: Arc::new(()) };
                known.clients.push(shared.clone());
                shared
            }
        };
        Ok(Lent { client: shared.client, _place: shared.place })
    }

    /// Records the HTTP version of a response.
    pub(super) fn heard(&self, version: Version) {
        let is_http2 = version == Version::HTTP_2;
        let mut known = self.lock();
        if known.is_http2 == Some(is_http2) {
            return;
        }
        // Clients that negotiated the protocol can go on with HTTP/1.1. For HTTP/2 they are replaced: only a
        // client that knows the protocol waits for a connection that another request is opening.
        if is_http2 || known.is_http2.is_some() {
            known.clients.clear();
        }
        known.is_http2 = Some(is_http2);
    }

    /// Handles a failed request: the server may no longer speak HTTP/2, so the next requests negotiate again.
    pub(super) fn doubt(&self) {
        let mut known = self.lock();
        if known.is_http2 == Some(true) {
            *known = EndpointClients::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, EndpointClients> {
        self.known.lock()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the connect clock differs by provider, and streams must not have a total timeout of the client"
    )]
    fn client(&self, is_http2: bool) -> Result<Client, reqwest::Error> {
        let mut tls = self.tls.clone();
        let builder = if is_http2 {
            tls.alpn_protocols = vec![HTTP2.to_vec()];
            Client::builder().http2_prior_knowledge()
        } else {
            Client::builder()
        };
        let builder = builder.tls_backend_preconfigured(tls);
        // The environment's proxy is meant for external hosts and cannot reach a model server on this machine.
        let builder = if self.is_local { builder.no_proxy() } else { builder };
        builder
            .connect_timeout(self.connect_timeout)
            .redirect(redirect::Policy::none())
            // The client's own retry would keep a copy of every request until its response; the caller rebuilds
            // the body instead.
            .retry(retry::never().max_retries_per_request(0))
            .pool_idle_timeout(POOL_IDLE)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build()
    }
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Trusts the machine's authorities, read once for all endpoints, and those of the file.
fn tls(authorities: Option<&Path>) -> Result<ClientConfig, ConnectionsError> {
    static OF_THE_MACHINE: OnceLock<ClientConfig> = OnceLock::new();
    let Some(path) = authorities else {
        if let Some(config) = OF_THE_MACHINE.get() {
            return Ok(config.clone());
        }
        let config = trusting(Vec::new())?;
        return Ok(OF_THE_MACHINE.get_or_init(|| config).clone());
    };
    let failed = |source| ConnectionsError::Authorities { path: path.to_owned(), source };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| failed(Some(error)))?;
    if certificates.is_empty() {
        return Err(failed(None));
    }
    Ok(trusting(certificates)?)
}

fn trusting(authorities: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let provider = crypto();
    let verifier = Verifier::new_with_extra_roots(authorities, provider.clone())?;
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// TLS settings for an address without TLS, which must work on a machine without certificates. Trusts no authority.
fn no_tls() -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(crypto()).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// The crypto provider already installed in the process, or `ring`.
fn crypto() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}
