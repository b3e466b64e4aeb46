//! HTTP clients for tool servers and platform services.

use longhaul_guards::address_guard::GuardedResolver;
use longhaul_guards::http::{HttpOptions, client};
use reqwest::Client;

/// Client for platform services. Each connection carries one request, so the client never resends it.
///
/// # Errors
/// The machine's TLS roots cannot be read; as a message.
pub fn platform_client() -> Result<Client, String> {
    made(&HttpOptions { sends_once: true, ..HttpOptions::default() })
}

/// Client for tool servers. A stream may be silent as long as a tool runs, so only connecting has a timeout
/// here; calls have their own. Connections are not reused: a pooled one whose last body was not read completely
/// stalls the next call.
pub(super) fn mcp_client(guard: GuardedResolver) -> Result<Client, String> {
    made(&HttpOptions { sends_once: true, guard: Some(guard), ..HttpOptions::default() })
}

fn made(options: &HttpOptions) -> Result<Client, String> {
    client(options).map_err(|error| format!("the HTTP client could not be built: {error}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn name_resolving_to_private_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let client = mcp_client(GuardedResolver { allow_private: false }).unwrap();
        let refused = client.get(&url).send().await.unwrap_err();
        assert!(refused.is_connect() && format!("{refused:?}").contains("AddressRefused"), "{refused:?}");
    }
}
