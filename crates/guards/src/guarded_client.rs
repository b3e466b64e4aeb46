//! HTTP client for requests on behalf of tenants: it follows no redirect and reaches public addresses only.

use std::{error::Error as _, time::Duration};

use bytes::BytesMut;
use reqwest::{Client, RequestBuilder, Response};
use url::Url;

use crate::address_guard::{AddressRefused, GuardedResolver, check_address, refused};
use crate::http::{HttpOptions, client};
use longhaul_domain::{addresses::is_public, cut};

/// Longest silence while a response is read.
const SILENCE: Duration = Duration::from_secs(30);

/// Client that reaches only the addresses that the operator permits.
#[derive(Debug, Clone)]
pub struct GuardedClient {
    client: Client,
    allow_private: bool,
}

impl GuardedClient {
    /// # Errors
    /// The machine's TLS roots cannot be read; as a message.
    pub fn new(allow_private: bool) -> Result<Self, String> {
        let guard = Some(GuardedResolver { allow_private });
        let client = client(&HttpOptions { read_timeout: Some(SILENCE), guard, ..HttpOptions::default() })
            .map_err(|error| format!("the HTTP client could not be built: {error}"))?;
        Ok(Self { client, allow_private })
    }

    /// A request to get `url`; [`Self::send`] sends it.
    pub fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// A request to post to `url`; [`Self::send`] sends it.
    pub fn post(&self, url: Url) -> RequestBuilder {
        self.client.post(url)
    }

    /// Sends a request. Checks an address in its URL, those of its name, and the one that answered.
    ///
    /// # Errors
    /// An address is not permitted, or there is no response; as a message.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
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
///
/// # Errors
/// The connection fails; as a message.
pub async fn read_body(mut response: Response, max: usize) -> Result<(BytesMut, bool), String> {
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

/// The innermost cause of an error. Does not repeat the URL, whose query may hold secrets.
fn describe(error: &reqwest::Error) -> String {
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
        let refused = GuardedClient::new(false).unwrap().client.get(&url).send().await.unwrap_err();
        assert!(refused.is_connect() && format!("{refused:?}").contains("AddressRefused"), "{refused:?}");
    }
}
