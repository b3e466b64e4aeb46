//! The HTTP clients of tools. No client follows a redirect by itself or uses a proxy of the environment.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, redirect::Policy};

use super::guard::GuardedResolver;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));

#[expect(clippy::disallowed_methods, reason = "the clients of tools differ from the shared one in their resolver")]
fn builder() -> reqwest::ClientBuilder {
    // Fails when a provider is installed already, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(CONNECT_TIMEOUT).user_agent(USER_AGENT)
}

/// For `fetch_url`: names resolve to addresses that `resolver` permits, and to no others.
pub(super) fn guarded_client(resolver: GuardedResolver) -> Result<Client, String> {
    builder()
        .dns_resolver(Arc::new(resolver))
        .read_timeout(Duration::from_secs(30))
        .build()
        .map_err(|error| format!("the HTTP client could not be built: {error}"))
}

/// For the services of a platform: one request on each connection, which is never sent a second time.
pub(crate) fn platform_client() -> Result<Client, String> {
    let client = builder().pool_max_idle_per_host(0).http1_only().build();
    client.map_err(|error| format!("the HTTP client could not be built: {error}"))
}

/// For tool servers. A stream may be silent for as long as a tool runs, so only connecting has a limit here; calls have
/// their own. Connections are not reused: a pooled one whose last body was not read to its end stalls the next call. Nor are they
/// shared, as over HTTP/2: calls above the server's limit of streams would wait unseen while their clocks run.
pub(super) fn mcp_client(resolver: GuardedResolver) -> Result<Client, String> {
    builder()
        .dns_resolver(Arc::new(resolver))
        .pool_max_idle_per_host(0)
        .http1_only()
        .build()
        .map_err(|error| format!("the HTTP client could not be built: {error}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_name_that_comes_to_mean_a_private_address_is_not_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        for client in [guarded_client, mcp_client] {
            let client = client(GuardedResolver { allow_private: false }).unwrap();
            let refused = client.get(&url).send().await.unwrap_err();
            assert!(refused.is_connect() && format!("{refused:?}").contains("AddressRefused"), "{refused:?}");
        }
    }
}
