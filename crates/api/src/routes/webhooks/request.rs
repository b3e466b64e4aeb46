//! Bodies of requests about webhooks.

use std::net::IpAddr;

use axum::{body::Body, http::HeaderMap};
use chrono::{DateTime, Utc};
use longhaul_shared::addresses::is_public;
use longhaul_store::webhooks::{EndpointOf, EventType, WrittenEndpoint};
use schemars::JsonSchema;
use serde::Deserialize;
use url::{Host, Url};
use uuid::Uuid;

use crate::{
    body::{BODY_LIMIT, NO_NUL, read_json},
    error::{ApiError, ApiResult},
};

/// A webhook.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookBody {
    /// Address of the receiver, `https` or `http`. It must be on the public internet, unless the operator allows more.
    #[schemars(length(max = 2_048))]
    url: String,
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

fn enabled() -> bool {
    true
}

/// How long the secret before signs as well.
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
    url: Url,
    description: Option<String>,
    types: Vec<EventType>,
    is_enabled: bool,
}

impl Request {
    pub(super) async fn read(headers: &HeaderMap, body: Body, allow_private: bool) -> ApiResult<Self> {
        let body: WebhookBody = read_json(headers, body, BODY_LIMIT).await?;
        let url = checked(&body.url, allow_private)?;
        let types = match body.types {
            None => EventType::choices().collect(),
            Some(names) => types(&names)?,
        };
        Ok(Self { url, description: body.description, types, is_enabled: body.enabled })
    }

    pub(super) fn written(&self, of: EndpointOf) -> WrittenEndpoint<'_> {
        WrittenEndpoint {
            of,
            url: self.url.as_str(),
            description: self.description.as_deref(),
            types: &self.types,
            is_enabled: self.is_enabled,
        }
    }
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
