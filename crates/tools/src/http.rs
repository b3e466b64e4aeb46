//! HTTP clients for tools. No client follows redirects by itself or uses a proxy from the environment.

use std::{error::Error as _, sync::Arc, time::Duration};

use bytes::BytesMut;
use longhaul_shared::{addresses::is_public, domain::cut};
use reqwest::{Client, RequestBuilder, Response, redirect::Policy};
use url::Url;

use super::guard::{AddressRefused, GuardedResolver, check_address, refused};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));

#[expect(clippy::disallowed_methods, reason = "the clients of tools differ from the shared one in their resolver")]
fn builder() -> reqwest::ClientBuilder {
    // Fails if the process already has a crypto provider, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(CONNECT_TIMEOUT).user_agent(USER_AGENT)
}

/// Client for `fetch_url` and `web_search`, which reaches only the addresses that the worker permits.
#[derive(Debug, Clone)]
pub(super) struct GuardedClient {
    client: Client,
    allow_private: bool,
}

impl GuardedClient {
    pub(super) fn new(allow_private: bool) -> Result<Self, String> {
        let client = builder()
            .dns_resolver(Arc::new(GuardedResolver { allow_private }))
            .read_timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| format!("the HTTP client could not be built: {error}"))?;
        Ok(Self { client, allow_private })
    }

    pub(super) fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// Sends a request. Checks an address in its URL, those of its name, and the one that answered.
    ///
    /// # Errors
    /// An address is not permitted, or there is no response; as a message.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let request = request.build().map_err(|error| describe(&error))?;
        check_address(request.url(), self.allow_private)?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let response = self.client.execute(request).await.map_err(|error| describe(&error))?;
        match response.remote_addr() {
            Some(peer) if !self.allow_private && !is_public(peer.ip()) => Err(refused(&host)),
            Some(_) | None => Ok(response),
        }
    }
}

/// Reads up to `max` bytes of a body. Returns true if there is more.
pub(super) async fn read_body(mut response: Response, max: usize) -> Result<(BytesMut, bool), String> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| describe(&error))? {
        let room = max - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((body, true));
        }
    }
    Ok((body, false))
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

/// The innermost cause of an error. Does not repeat the URL, whose query may hold secrets.
pub(super) fn describe(error: &reqwest::Error) -> String {
    let mut source = error.source();
    let mut innermost = None;
    while let Some(current) = source {
        if let Some(refused) = current.downcast_ref::<AddressRefused>() {
            return refused.to_string();
        }
        innermost = Some(current.to_string());
        source = current.source();
    }
    let kind = if error.is_timeout() {
        "the server did not answer in time"
    } else if error.is_connect() {
        "the connection failed"
    } else {
        "the request failed"
    };
    innermost.map_or_else(|| kind.to_owned(), |cause| format!("{kind}: {}", cut(&cause, 300)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn name_resolving_to_private_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let guarded = GuardedClient::new(false).unwrap().client;
        for client in [guarded, mcp_client(GuardedResolver { allow_private: false }).unwrap()] {
            let refused = client.get(&url).send().await.unwrap_err();
            assert!(refused.is_connect() && format!("{refused:?}").contains("AddressRefused"), "{refused:?}");
        }
    }
}
