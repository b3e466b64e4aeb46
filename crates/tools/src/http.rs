//! HTTP clients for tools. No client follows redirects by itself or uses a proxy from the environment.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, redirect::Policy};

use super::guard::GuardedResolver;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));

#[expect(clippy::disallowed_methods, reason = "the clients of tools differ from the shared one in their resolver")]
fn builder() -> reqwest::ClientBuilder {
    // Fails if the process already has a crypto provider, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(CONNECT_TIMEOUT).user_agent(USER_AGENT)
}

/// Client for `fetch_url`, which connects only to addresses that `resolver` permits.
pub(super) fn guarded_client(resolver: GuardedResolver) -> Result<Client, String> {
    builder()
        .dns_resolver(Arc::new(resolver))
        .read_timeout(Duration::from_secs(30))
        .build()
        .map_err(|error| format!("the HTTP client could not be built: {error}"))
}

/// Client for platform services. Each connection carries one request, so the client never resends it.
pub fn platform_client() -> Result<Client, String> {
    let client = builder().pool_max_idle_per_host(0).http1_only().build();
    client.map_err(|error| format!("the HTTP client could not be built: {error}"))
}

/// Client for tool servers. A stream may be silent as long as a tool runs, so only connecting has a timeout
/// here; calls have their own. Connections are not reused: a pooled one whose last body was not read completely
/// stalls the next call. HTTP/2 is off: calls above the server's stream limit would queue while their timeouts
/// run.
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
    async fn name_resolving_to_private_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        for client in [guarded_client, mcp_client] {
            let client = client(GuardedResolver { allow_private: false }).unwrap();
            let refused = client.get(&url).send().await.unwrap_err();
            assert!(refused.is_connect() && format!("{refused:?}").contains("AddressRefused"), "{refused:?}");
        }
    }
}
