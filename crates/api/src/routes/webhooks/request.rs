//! Bodies of requests about webhooks.

use std::net::IpAddr;

use axum::{body::Body, http::HeaderMap};
use chrono::{DateTime, Utc};
use longhaul_domain::{ApiKeyId, addresses::is_public};
use longhaul_guards::sealing::{SealError, Sealer};
use longhaul_store::{
    tenants::api_keys::Scope,
    webhooks::{EndpointKind, EndpointOf, EventType, WrittenEndpoint},
};
use longhaul_webhooks::email;
use schemars::JsonSchema;
use serde::Deserialize;
use url::{Host, Url};
use uuid::Uuid;

use crate::{
    auth::Principal,
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// A webhook.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookBody {
    /// Form in which it is told; `standard` when absent. It cannot be changed.
    kind: Option<WebhookKind>,
    /// Address of the receiver, `https` or `http`. It must be on the public internet, unless the operator allows more.
    /// Of `slack` an incoming webhook, which no answer shows; of `email` a `mailto` URL with up to 10 addresses.
    #[schemars(length(max = 2_048))]
    url: String,
    /// Signing secret of the Slack app, which no answer shows. When absent from a replacement, it stays.
    #[schemars(length(min = 16, max = 256), regex(pattern = NO_NUL))]
    signing_secret: Option<String>,
    /// Note for people.
    #[schemars(length(max = 500), regex(pattern = NO_NUL))]
    description: Option<String>,
    /// Types of events that it is told: `execution.finished`, `execution.failed`, `execution.quarantined`,
    /// `approval.requested`, `question.asked`, `tool_call.requested`. All when absent.
    #[schemars(length(min = 1, max = 20))]
    types: Option<Vec<String>>,
    /// False: nothing is sent to it, and what happens meanwhile is not kept for it.
    #[serde(default = "enabled")]
    enabled: bool,
}

/// Form in which a webhook is told.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WebhookKind {
    /// A signed request.
    Standard,
    /// A message in Slack, with buttons to decide on approvals. Needs the scopes `executions:read` and
    /// `approvals:decide`.
    Slack,
    /// An e-mail, with a link to decide on an approval. Needs the scope `admin` too.
    Email,
}

impl From<WebhookKind> for EndpointKind {
    fn from(kind: WebhookKind) -> Self {
        match kind {
            WebhookKind::Standard => Self::Standard,
            WebhookKind::Slack => Self::Slack,
            WebhookKind::Email => Self::Email,
        }
    }
}

fn enabled() -> bool {
    true
}

/// Time for which the former secret signs as well.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateBody {
    /// In seconds, up to 7 days; a day when absent.
    #[schemars(range(max = 604_800))]
    pub(super) overlap_seconds: Option<u32>,
}

/// Deliveries to send again: one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedeliverBody {
    /// This delivery, which was delivered or given up.
    pub(super) delivery_id: Option<Uuid>,
    /// Those given up that occurred at this time or later, the oldest 10,000.
    pub(super) failed_since: Option<DateTime<Utc>>,
}

/// A webhook that was checked.
pub(super) struct Request {
    kind: EndpointKind,
    url: String,
    sealed_url: Option<String>,
    sealed_secret: Option<String>,
    key: Option<ApiKeyId>,
    written_by: ApiKeyId,
    description: Option<String>,
    types: Vec<EventType>,
    is_enabled: bool,
}

impl Request {
    /// Reads a webhook of `principal` that replaces one of the kind `old`, or is new.
    pub(super) async fn read(
        state: &ApiState,
        principal: &Principal,
        (headers, body): (&HeaderMap, Body),
        old: Option<EndpointKind>,
    ) -> ApiResult<Self> {
        let body: WebhookBody = read_json(headers, body, BODY_LIMIT).await?;
        let types = body.types.as_deref().map_or_else(|| Ok(EventType::choices().collect()), types)?;
        let kind = body.kind.map(EndpointKind::from).or(old).unwrap_or(EndpointKind::Standard);
        if old.is_some_and(|old| old != kind) {
            return Err(ApiError::invalid("/kind", "cannot be changed; create another webhook"));
        }
        if kind != EndpointKind::Slack && body.signing_secret.is_some() {
            return Err(ApiError::invalid("/signing_secret", "means nothing with this kind"));
        }
        let mut request = Self {
            kind,
            url: body.url,
            sealed_url: None,
            sealed_secret: None,
            key: None,
            written_by: principal.key_id(),
            description: body.description,
            types,
            is_enabled: body.enabled,
        };
        match kind {
            EndpointKind::Standard => request.url = checked(&request.url, state.options.private_webhooks)?.into(),
            EndpointKind::Slack => request.be_slack(state, body.signing_secret, old.is_none())?,
            EndpointKind::Email => request.be_email(state, principal)?,
        }
        if kind != EndpointKind::Standard {
            // The people in a channel see what this key sees, and decide as it may.
            principal.need(Scope::ExecutionsRead)?;
            principal.need(Scope::ApprovalsDecide)?;
            request.key = Some(principal.key_id());
        }
        Ok(request)
    }

    /// Both the URL and the secret let their holder write or decide, so they are stored encrypted.
    fn be_slack(&mut self, state: &ApiState, secret: Option<String>, is_new: bool) -> ApiResult<()> {
        let url = checked(&self.url, state.options.private_webhooks)?;
        if is_new && secret.is_none() {
            return Err(ApiError::invalid("/signing_secret", "is required with the kind `slack`"));
        }
        let sealer = &state.options.contract.sealer;
        self.sealed_url = Some(sealed(sealer, "/url", url.as_str())?);
        self.sealed_secret = secret.map(|secret| sealed(sealer, "/signing_secret", &secret)).transpose()?;
        self.url = url.origin().ascii_serialization();
        Ok(())
    }

    /// Recipients do not confirm, so only an administrator names them: the mail is the operator's.
    fn be_email(&mut self, state: &ApiState, principal: &Principal) -> ApiResult<()> {
        principal.need(Scope::Admin)?;
        if !state.options.has_email {
            return Err(ApiError::invalid("/kind", "is not possible: no mail server is configured (setting email)"));
        }
        email::recipients(&self.url).map_err(|error| ApiError::invalid("/url", error))?;
        Ok(())
    }

    pub(super) fn written(&self, of: EndpointOf) -> WrittenEndpoint<'_> {
        WrittenEndpoint {
            of,
            kind: self.kind,
            url: &self.url,
            sealed_url: self.sealed_url.as_deref(),
            sealed_secret: self.sealed_secret.as_deref(),
            key: self.key,
            written_by: Some(self.written_by),
            description: self.description.as_deref(),
            types: &self.types,
            is_enabled: self.is_enabled,
        }
    }
}

fn sealed(sealer: &Sealer, path: &str, secret: &str) -> ApiResult<String> {
    sealer.seal(secret).map_err(|error| match error {
        SealError::NoKey => {
            ApiError::invalid(path, "cannot be stored: no key is configured (setting contract.secret_keys)")
        }
        SealError::TooLong | SealError::DoesNotOpen | SealError::NoRandomness => {
            ApiError::invalid(path, format!("cannot be stored: {error}"))
        }
    })
}

fn types(names: &[String]) -> ApiResult<Vec<EventType>> {
    let known = |(i, name): (usize, &String)| {
        let found = EventType::choices().find(|of| of.as_str() == name);
        found.ok_or_else(|| ApiError::invalid(format!("/types/{i}"), format!("`{name}` is not a type of events")))
    };
    let mut types: Vec<EventType> = names.iter().enumerate().map(known).collect::<ApiResult<_>>()?;
    types.sort_by_key(|of| of.as_str());
    types.dedup();
    Ok(types)
}

/// The names of its host are checked at each attempt, because they may lead elsewhere by then.
fn checked(text: &str, allow_private: bool) -> ApiResult<Url> {
    let invalid = |message: &str| ApiError::invalid("/url", message);
    let url = Url::parse(text).map_err(|error| invalid(&format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(invalid("must be `https` or `http`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must not hold a password: deliveries are signed"));
    }
    let address: Option<IpAddr> = match url.host() {
        Some(Host::Ipv4(v4)) => Some(v4.into()),
        Some(Host::Ipv6(v6)) => Some(v6.into()),
        Some(Host::Domain(_)) => None,
        None => return Err(invalid("has no host")),
    };
    if !allow_private && address.is_some_and(|address| !is_public(address)) {
        return Err(invalid("is not on the public internet"));
    }
    Ok(url)
}
