//! The connections to one model endpoint.
//!
//! Over HTTP/1.1 the client's pool opens one for each request that is under way. Over HTTP/2 it keeps a single one and lets
//! whatever is above the server's limit of streams wait in it, unseen, while the clocks of those calls run. So over HTTP/2
//! there is a client for each [`STREAMS`] requests under way, each with a connection of its own. What a server speaks is known
//! with its first answer; until then one with TLS is taken to speak HTTP/2, and each request that finds no connection yet opens one to ask.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use reqwest::{Client, Version, redirect, retry};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;
use url::{Host, Url};

/// Requests under way over one HTTP/2 connection: what RFC 9113 §6.5.2 asks servers to allow at least, and most allow just that.
const STREAMS: usize = 100;

/// Its name in a TLS handshake (RFC 9113 §3.2).
const HTTP2: &[u8] = b"h2";

/// Idle connections are dropped before servers close them, typically after 60 s: a request on a connection that is being
/// closed fails, and costs the execution a retry.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// A connection that many share and that is silently gone would take every call on it, and each new one, along for minutes: while
/// calls are under way it is asked for a sign of life this often, and given up without one after this long.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the connections of an endpoint cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionsError {
    /// The file of further certificate authorities.
    #[error("{path:?} cannot be read as certificates in PEM")]
    Authorities {
        /// As configured.
        path: PathBuf,
        /// What is wrong with it; `None` when it holds no certificate.
        #[source]
        source: Option<rustls::pki_types::pem::Error>,
    },
    /// The certificate authorities of this machine.
    #[error("the certificate authorities of this machine cannot be used")]
    Tls(#[from] rustls::Error),
    /// The HTTP client.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
}

/// Opens connections to one endpoint as calls need them.
#[derive(Debug)]
pub(super) struct Connections {
    connect_timeout: Duration,
    tls: ClientConfig,
    is_tls: bool,
    is_local: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether the server speaks HTTP/2; `None` before it has answered.
    is_http2: Option<bool>,
    /// Filled from the front, so that what is no longer needed at the back becomes idle and is closed.
    clients: Vec<Shared>,
}

#[derive(Debug, Clone)]
struct Shared {
    client: Client,
    /// One clone here, and one with each request under way.
    place: Arc<()>,
}

/// A client for one request, which holds its place until this is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) client: Client,
    _place: Arc<()>,
}

impl Connections {
    /// `authorities` are certificates in PEM that are trusted beside those of the machine.
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
        // What the client does not like about its settings is said at the start, and not to the first call.
        connections.lend().map_err(ConnectionsError::Client)?;
        Ok(connections)
    }

    /// The first client that has a place, or one more.
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

    /// Notes what the server has answered in.
    pub(super) fn heard(&self, version: Version) {
        let is_http2 = version == Version::HTTP_2;
        let mut known = self.lock();
        if known.is_http2 == Some(is_http2) {
            return;
        }
        // A client that asked what the server speaks does for HTTP/1.1; over HTTP/2 only one that knows waits for a connection that
        // another request is opening.
        if is_http2 || known.is_http2.is_some() {
            known.clients.clear();
        }
        known.is_http2 = Some(is_http2);
    }

    /// A request failed: perhaps the server does not speak HTTP/2 any more, so the next ones ask again.
    pub(super) fn doubt(&self) {
        let mut known = self.lock();
        if known.is_http2 == Some(true) {
            *known = Known::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        // The environment's proxy is for the world outside; it cannot reach a model server on this machine.
        let builder = if self.is_local { builder.no_proxy() } else { builder };
        builder
            .connect_timeout(self.connect_timeout)
            .redirect(redirect::Policy::none())
            // It would keep each request until the answer; the caller writes it again instead.
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

/// Trusts this machine's authorities, which are read once for all endpoints, and those of the file.
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

/// For an address without TLS, which must not need a machine with certificates. Trusts nobody.
fn no_tls() -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(crypto()).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// What the process uses already, if anything.
fn crypto() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}
