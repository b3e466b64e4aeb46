//! Search services with a JSON API over HTTP: Brave and SearXNG.

use longhaul_config::{WebSearchBackend, WebSearchConfig};
use longhaul_domain::cut;
use longhaul_guards::guarded_client::{GuardedClient, read_body};
use reqwest::{
    RequestBuilder, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::found;
use crate::mcp::Secrets;

const BRAVE: &str = "https://api.search.brave.com";
/// Most results that Brave returns for one request.
const BRAVE_MAX_COUNT: u32 = 20;
/// Bytes of an error's text shown to the model.
const MAX_ERROR_BODY: usize = 500;

pub(super) struct HttpService {
    client: GuardedClient,
    url: Url,
    is_brave: bool,
    /// The key in the header of its service.
    headers: HeaderMap,
    secrets: Secrets,
    max_bytes: usize,
}

impl HttpService {
    /// # Errors
    /// The URL is invalid, or the HTTP client cannot be built.
    pub(super) fn new(config: &WebSearchConfig, key: Option<SecretString>) -> Result<Self, String> {
        let is_brave = config.backend == WebSearchBackend::Brave;
        let base = config.url.as_deref().unwrap_or(BRAVE).trim_end_matches('/');
        let path = if is_brave { "/res/v1/web/search" } else { "/search" };
        let url = Url::parse(&format!("{base}{path}")).map_err(|error| format!("tools.web_search.url: {error}"))?;
        Ok(Self {
            client: GuardedClient::new(config.allow_private_addresses)?,
            url,
            is_brave,
            headers: key_header(is_brave, key.as_ref())?,
            secrets: Secrets::of(key),
            max_bytes: config.max_bytes as usize,
        })
    }

    /// The results as JSON text.
    ///
    /// # Errors
    /// A message for the model, without the key.
    pub(super) async fn search(&self, query: &str, count: u32) -> Result<String, String> {
        let found = self.ask(query, count).await;
        found.map(|text| self.secrets.scrub(text)).map_err(|error| self.secrets.scrub(error))
    }

    async fn ask(&self, query: &str, count: u32) -> Result<String, String> {
        let response = self.client.send(self.request(query, count)).await?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(rate_limited(response.headers()));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            // The model cannot mend the key: the operator must see it.
            tracing::warn!(
                http.response.status_code = status.as_u16(),
                "search service refused the key of tools.web_search"
            );
        }
        let body = read_body(response, self.max_bytes).await;
        if !status.is_success() {
            let said = body.unwrap_or_default().0;
            let said = String::from_utf8_lossy(&said);
            return Err(format!("the search service answered HTTP {status}: {}", cut(said.trim(), MAX_ERROR_BODY)));
        }
        let (body, has_more) = body?;
        if has_more {
            return Err(format!("the answer of the search service is larger than {} bytes", self.max_bytes));
        }
        let parse = if self.is_brave { found::of_brave } else { found::of_searxng };
        parse(&body, count as usize)
    }

    fn request(&self, query: &str, count: u32) -> RequestBuilder {
        let request = self.client.get(self.url.clone()).headers(self.headers.clone());
        let request = request.header(header::ACCEPT, "application/json").query(&[("q", query)]);
        if self.is_brave {
            let count = count.min(BRAVE_MAX_COUNT).to_string();
            return request.query(&[("count", count.as_str()), ("text_decorations", "false")]);
        }
        request.query(&[("format", "json")])
    }
}

/// The key as the service takes it.
///
/// # Errors
/// The key has characters that no header can hold.
fn key_header(is_brave: bool, key: Option<&SecretString>) -> Result<HeaderMap, String> {
    let Some(key) = key.map(ExposeSecret::expose_secret) else { return Ok(HeaderMap::new()) };
    let (name, value) = if is_brave {
        (HeaderName::from_static("x-subscription-token"), key.to_owned())
    } else {
        (header::AUTHORIZATION, format!("Bearer {key}"))
    };
    let value = HeaderValue::from_str(&value);
    let mut value = value.map_err(|_| "tools.web_search.api_key holds characters that no header can".to_owned())?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(name, value)]))
}

/// The error of a 429, with the time after which the service accepts a search again, if it says so.
fn rate_limited(headers: &HeaderMap) -> String {
    let numbers = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').map(|number| number.trim().parse::<u32>().ok()).collect::<Vec<_>>()
    };
    // Brave lists its windows, such as a second and a month: the search fits again when the last one that is used up
    // begins anew.
    let windows = numbers("x-ratelimit-remaining").into_iter().zip(numbers("x-ratelimit-reset"));
    let reset = windows.filter_map(|(remaining, reset)| reset.filter(|_| remaining == Some(0))).max();
    match numbers("retry-after").into_iter().next().flatten().or(reset) {
        Some(seconds) => format!("the search service limits the rate of searches; try again in {seconds} s"),
        None => "the search service limits the rate of searches; try again later".into(),
    }
}
