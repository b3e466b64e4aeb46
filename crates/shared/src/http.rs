//! The one constructor of HTTP clients. (Tools have their own, because their clients resolve names under guard.)
//!
//! What must hold: the TLS provider is installed before any client is built, a connection attempt has a limit, redirects
//! are not followed unless asked for (they would carry credentials elsewhere), no proxy of the environment is used, and
//! every request under way has a connection of its own.
//! Limits of whole requests are the caller's: a model may stream for minutes.

use std::time::Duration;

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Limit of name look-up, TCP and TLS together.
    pub connect_timeout: Duration,
    /// Limit of the silence while an answer is read; `None` for callers with clocks of their own.
    pub read_timeout: Option<Duration>,
    /// Redirects followed.
    pub max_redirects: usize,
    /// No request is ever sent a second time: connections are not kept, so that none is met that is just being closed, and what the
    /// protocol would let a client repeat is not repeated. For requests that change something on the other side.
    pub sends_once: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(10), read_timeout: None, max_redirects: 0, sends_once: false }
    }
}

/// Installs the process's TLS provider; without one, building a client panics. Calling it again changes nothing.
pub fn install_tls_provider() {
    // An error says that one is installed already, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client, to be made once and shared: it holds the connection pool.
///
/// # Errors
/// When the TLS roots of the machine cannot be read.
#[expect(clippy::disallowed_methods, reason = "this is the constructor that everybody else uses")]
pub fn client(options: &HttpOptions) -> Result<reqwest::Client, reqwest::Error> {
    install_tls_provider();
    let redirects = match options.max_redirects {
        0 => reqwest::redirect::Policy::none(),
        max => reqwest::redirect::Policy::limited(max),
    };
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        // Over HTTP/2 the pool keeps one connection for each host, and requests above the server's limit of streams, often 100,
        // wait in it unseen while their clocks run.
        .http1_only()
        .redirect(redirects)
        .no_proxy();
    if let Some(limit) = options.read_timeout {
        builder = builder.read_timeout(limit);
    }
    if options.sends_once {
        builder = builder.pool_max_idle_per_host(0).retry(reqwest::retry::never());
    }
    builder.build()
}
