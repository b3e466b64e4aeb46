//! The only constructor of HTTP clients.
//!
//! Invariants: the TLS provider is installed before any client is built; connecting has a timeout; redirects are
//! not followed unless requested (they would carry credentials to other hosts); proxy settings of the environment
//! are ignored; each request in flight has its own connection. The caller sets the limit of a whole request,
//! because a model may stream for minutes.

use std::{sync::Arc, time::Duration};

use crate::address_guard::GuardedResolver;
use longhaul_shared::tls::install_tls_provider;

#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Limit of DNS lookup, TCP connect and TLS handshake together.
    pub connect_timeout: Duration,
    /// Longest silence while a response is read. `None` if the caller has its own timeouts.
    pub read_timeout: Option<Duration>,
    /// Maximum number of redirects followed.
    pub max_redirects: usize,
    /// Never sends a request twice, for requests with side effects: connections are not pooled (a pooled one may be
    /// closing), and protocol-level retries are off.
    pub sends_once: bool,
    /// Addresses to which names may lead; any if `None`. The caller checks an address in the URL itself.
    pub guard: Option<GuardedResolver>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: None,
            max_redirects: 0,
            sends_once: false,
            guard: None,
        }
    }
}

/// Builds a client. Create it once and share it: it owns the connection pool.
///
/// # Errors
/// Fails if the machine's TLS roots cannot be read.
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
        // Over HTTP/2 the pool keeps one connection per host. Requests beyond the server's stream limit (often 100)
        // would queue inside the pool while their timeouts run.
        .http1_only()
        .redirect(redirects)
        .no_proxy();
    if let Some(limit) = options.read_timeout {
        builder = builder.read_timeout(limit);
    }
    if let Some(guard) = options.guard {
        builder = builder.dns_resolver(Arc::new(guard));
    }
    if options.sends_once {
        builder = builder.pool_max_idle_per_host(0).retry(reqwest::retry::never());
    }
    builder.build()
}
