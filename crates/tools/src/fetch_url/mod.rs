//! `fetch_url`: reads one page of the public internet for a model.
//!
//! GET only, with limits on size, time and redirects. Every hop is checked before it is requested, and every
//! name by its resolved addresses, so that neither a redirect nor a DNS answer leads into a private network.

pub(crate) mod html;

use encoding_rs::{Encoding, UTF_8};
use longhaul_domain::cut;
use longhaul_guards::guarded_client::{GuardedClient, read_body};
use longhaul_sdk::{Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait};
use reqwest::{Response, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

/// Name of [`FetchUrl`].
pub const FETCH_URL: &str = "fetch_url";

const MAX_REDIRECTS: usize = 5;
/// Bytes of an error page shown to the model.
const MAX_ERROR_BODY: usize = 2_000;

/// Settings of `fetch_url`, for one agent or as limits of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FetchUrlSettings {
    /// Allow loopback and private addresses.
    pub allow_private_addresses: bool,
    /// Largest number of bytes read of a response; the rest is ignored.
    pub max_bytes: u32,
}

impl Default for FetchUrlSettings {
    fn default() -> Self {
        Self { allow_private_addresses: false, max_bytes: 1 << 20 }
    }
}

/// Combines an agent's settings with the worker's, which they can restrict but not extend.
pub(super) fn settings_within(worker: &FetchUrlSettings, agent: &Value) -> Result<FetchUrlSettings, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Given {
        allow_private_addresses: Option<bool>,
        max_bytes: Option<u32>,
    }
    let given: Given = super::settings::settings_of(agent)?;
    Ok(FetchUrlSettings {
        allow_private_addresses: worker.allow_private_addresses && given.allow_private_addresses.unwrap_or(true),
        max_bytes: given.max_bytes.map_or(worker.max_bytes, |bytes| bytes.min(worker.max_bytes)),
    })
}

#[derive(Debug, Clone)]
pub struct FetchUrl {
    client: GuardedClient,
    settings: FetchUrlSettings,
}

/// Arguments of [`FetchUrl`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchUrlArgs {
    /// The absolute http or https URL to read.
    pub url: String,
}

impl FetchUrl {
    /// Returns the tool with these settings.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(settings: FetchUrlSettings) -> Result<Self, String> {
        Ok(Self { client: GuardedClient::new(settings.allow_private_addresses)?, settings })
    }

    /// Follows redirects itself, so that every hop is checked.
    async fn get(&self, mut url: Url) -> Result<Response, String> {
        for _ in 0..=MAX_REDIRECTS {
            check_form(&url)?;
            let response = self.client.send(self.client.get(url.clone())).await?;
            let location = response.headers().get(header::LOCATION).filter(|_| response.status().is_redirection());
            let Some(location) = location else { return Ok(response) };
            let location = location.to_str().map_err(|_| "it redirects to a URL that is not text".to_owned())?;
            url = url.join(location).map_err(|error| format!("it redirects to an invalid URL: {error}"))?;
        }
        Err(format!("it redirects more than {MAX_REDIRECTS} times"))
    }
}

#[async_trait]
impl Tool for FetchUrl {
    type Args = FetchUrlArgs;

    fn name(&self) -> &str {
        FETCH_URL
    }

    fn description(&self) -> &str {
        "Reads a web page or text document with HTTP GET and returns its text. HTML is reduced to readable text."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: Self::Args, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let url = Url::parse(&args.url).map_err(|error| format!("`url` is not an absolute URL: {error}"))?;
        let response = self.get(url).await?;
        let (status, url) = (response.status(), response.url().clone());
        let kind = content_type(&response);
        if !is_text(&kind) {
            let size = response.content_length().map_or("unknown size".into(), |bytes| format!("{bytes} bytes"));
            return if status.is_success() {
                Ok(format!("{url} is not text: [{kind}, {size}]").into())
            } else {
                Err(format!("{url} answered HTTP {status}").into())
            };
        }
        let (body, more) = read_body(response, self.settings.max_bytes as usize).await?;
        let text = decode(&body, &kind);
        let mut text = if is_html(&kind) { html::to_text(&text) } else { text };
        if !status.is_success() {
            return Err(format!("{url} answered HTTP {status}: {}", cut(&text, MAX_ERROR_BODY)).into());
        }
        if more {
            text.push_str(&format!("\n[only the first {} bytes of the document were read]", body.len()));
        }
        Ok(text.into())
    }
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or("text/plain").to_ascii_lowercase()
}

fn essence(kind: &str) -> &str {
    kind.split(';').next().unwrap_or_default().trim()
}

fn is_html(kind: &str) -> bool {
    matches!(essence(kind), "text/html" | "application/xhtml+xml")
}

fn is_text(kind: &str) -> bool {
    let kind = essence(kind);
    let named =
        ["application/json", "application/xml", "application/javascript", "application/yaml", "application/x-ndjson"];
    kind.starts_with("text/") || kind.ends_with("+json") || kind.ends_with("+xml") || named.contains(&kind)
}

/// Decodes the body by its byte-order mark, else the charset of the content type, else as UTF-8.
fn decode(body: &[u8], kind: &str) -> String {
    let label = kind.split(';').skip(1).find_map(|part| part.trim().strip_prefix("charset="));
    let encoding = label.and_then(|label| Encoding::for_label(label.trim_matches(['"', ' ']).as_bytes()));
    encoding.unwrap_or(UTF_8).decode(body).0.into_owned()
}

/// Checks that the URL is HTTP or HTTPS and holds no credentials.
fn check_form(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https URLs can be fetched, not `{}`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user name or password cannot be fetched".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agent_settings_cannot_exceed_the_workers() {
        let worker = FetchUrlSettings { allow_private_addresses: true, max_bytes: 10 };
        assert_eq!(settings_within(&worker, &Value::Null).unwrap(), worker);
        let given = settings_within(&worker, &json!({"allow_private_addresses": false, "max_bytes": 5})).unwrap();
        assert_eq!(given, FetchUrlSettings { allow_private_addresses: false, max_bytes: 5 });
        let careful = FetchUrlSettings { allow_private_addresses: false, ..worker };
        let given = settings_within(&careful, &json!({"allow_private_addresses": true, "max_bytes": 4_000_000_000u32}));
        assert_eq!(given.unwrap(), careful);
        assert!(
            settings_within(&worker, &json!({"allow_private": true}))
                .unwrap_err()
                .to_string()
                .contains("unknown field")
        );
        assert!(settings_within(&worker, &json!([])).is_err());
    }

    #[test]
    fn other_schemes_and_credentials_are_refused() {
        for url in ["file:///etc/passwd", "ftp://h/", "data:text/plain,x", "http://u:p@h/", "http://u@h/"] {
            assert!(check_form(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
        assert_eq!(check_form(&Url::parse("https://example.org/a?b#c").unwrap()), Ok(()));
    }

    #[test]
    fn body_is_decoded_in_its_charset() {
        assert_eq!(decode(b"caf\xe9", "text/plain; charset=iso-8859-1"), "café");
        assert_eq!(decode("café".as_bytes(), "text/plain"), "café");
        assert_eq!(decode(b"\xff\xfea\0", "text/plain; charset=\"utf-8\""), "a");
        assert_eq!(decode(b"a\xff", "text/plain; charset=nonsense"), "a\u{fffd}");
    }

    #[test]
    fn text_content_types_are_recognised() {
        for kind in ["text/csv", "application/json; charset=utf-8", "application/ld+json", "image/svg+xml"] {
            assert!(is_text(kind), "{kind}");
        }
        for kind in ["image/png", "application/pdf", "application/octet-stream"] {
            assert!(!is_text(kind), "{kind}");
        }
    }
}
