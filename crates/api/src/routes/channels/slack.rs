//! `POST /v1/channels/slack`: the interactivity request URL of Slack apps. Slack signs what it sends; no API key is
//! needed.

use std::time::Duration;

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_shared::visible;
use longhaul_store::{
    human_requests::{HumanRequest, Verdict},
    webhooks::{Channel, EndpointKind},
};
use longhaul_webhooks::{
    message::Message,
    slack,
    ticket::{Right, Ticket},
};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use url::{Url, form_urlencoded};

use super::{ChannelError, Choice, approval, decide, find};
use crate::{
    audit::AuditSlot,
    body::{BODY_LIMIT, read_as},
    error::{ApiError, ApiResult},
    routes::human_requests::{DecisionError, view::standing},
    state::ApiState,
};

/// Time for an answer to Slack, which waits three seconds for ours.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest name of a person, in characters.
const NAME_CHARS: usize = 150;

/// The payload that Slack sends when a person presses a button. Other fields are not read.
#[derive(Deserialize)]
struct Interaction {
    user: User,
    #[serde(default)]
    actions: Vec<Action>,
    response_url: Option<String>,
}

#[derive(Deserialize)]
struct User {
    id: String,
    /// Handle. Slack sends it under both names, other servers under one.
    username: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Action {
    value: Option<String>,
}

/// Decides as the pressed button says. The message is changed to show who decided; a person who may not decide is told
/// alone.
pub(crate) async fn pressed(
    State(state): State<ApiState>,
    Extension(audit): Extension<AuditSlot>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<StatusCode> {
    let bytes = read_as(&headers, body, "application/x-www-form-urlencoded", BODY_LIMIT).await?;
    let interaction = read(&bytes).ok_or_else(|| ApiError::invalid("/payload", "is no interaction of Slack"))?;
    // The button says whose secret Slack signed with; neither is enough without the other.
    let value = interaction.actions.first().and_then(|action| action.value.as_deref());
    let ticket = value.and_then(|value| Ticket::read(value, &state.pepper)).ok_or(ChannelError::InvalidButton)?;
    let channel = verified(&state, &ticket, &headers, &bytes).await?;
    let verdict = match &ticket.right {
        Right::Approve => Verdict::Approve,
        Right::Reject => Verdict::Reject,
        // The link of an e-mail is no button.
        Right::Decide(_) => return Err(ChannelError::InvalidButton.into()),
    };
    let choice = Choice { ticket: &ticket, verdict, person: interaction.user.shown(), reason: None, audit };
    let answer = match decide(&state, &channel, choice).await {
        Ok(request) => replacement(request),
        Err(error) if matches!(error.area(), Some(DecisionError::AlreadyDecided(_))) => {
            replacement(approval(&state, &ticket).await?)
        }
        Err(error) if error.status().is_server_error() => return Err(error),
        Err(error) => slack::refused(&error.to_string()),
    };
    if let Some(url) = &interaction.response_url {
        answer_at(&state, &channel, url, &answer).await;
    }
    Ok(StatusCode::OK)
}

/// The channel of a button, if Slack signed `body` for it.
async fn verified(state: &ApiState, ticket: &Ticket, headers: &HeaderMap, body: &[u8]) -> ApiResult<Channel> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let signature = text("x-slack-signature").ok_or(ChannelError::InvalidSignature)?;
    let timestamp = text("x-slack-request-timestamp").and_then(|text| text.parse().ok());
    let timestamp: i64 = timestamp.ok_or(ChannelError::InvalidSignature)?;
    let channel = find(state, ticket, EndpointKind::Slack).await?.ok_or(ChannelError::InvalidSignature)?;
    let sealed = channel.sealed_secret.as_deref().unwrap_or_default();
    let secret = state.options.contract.sealer.open(sealed).map_err(|error| {
        tracing::error!(error = %error, webhook.id = %channel.of.id, "the signing secret of a channel cannot be read");
        ApiError::Internal
    })?;
    let now = SystemClock::new().now();
    if slack::verifies(secret.expose_secret(), timestamp, signature, body, now) {
        Ok(channel)
    } else {
        Err(ChannelError::InvalidSignature.into())
    }
}

fn read(form: &[u8]) -> Option<Interaction> {
    let payload = form_urlencoded::parse(form).find_map(|(name, value)| (name == "payload").then_some(value))?;
    serde_json::from_str(&payload).ok()
}

impl User {
    /// The person, as the decision records it.
    fn shown(&self) -> String {
        let short = |text: &str| visible::line(text).chars().take(NAME_CHARS / 2).collect::<String>();
        let id = short(&self.id);
        match self.username.as_deref().or(self.name.as_deref()).map(short) {
            Some(name) => format!("{name} (Slack {id})"),
            None => format!("Slack {id}"),
        }
    }
}

fn replacement(request: HumanRequest) -> Value {
    let outcome = standing(&request).unwrap_or_else(|| "the time of the button is over".into());
    slack::decided(&Message::of_request(request), &outcome)
}

/// Posts an answer to the address that Slack named, if it is on the server of the channel's own URL: a tenant, which
/// can sign for its channel, cannot have this process call others. A failure leaves the message as it was: its buttons
/// then say what became of the approval.
async fn answer_at(state: &ApiState, channel: &Channel, url: &str, answer: &Value) {
    let own = state.options.contract.sealer.open(&channel.url).ok();
    let own = own.and_then(|own| Url::parse(own.expose_secret()).ok());
    let (Some(client), Some(own), Ok(url)) = (&state.answers, own, Url::parse(url)) else { return };
    if url.origin() != own.origin() {
        tracing::warn!(webhook.id = %channel.of.id, "Slack's answer address is of another server");
        return;
    }
    match timeout(ANSWER_TIMEOUT, client.send(client.post(url).json(answer))).await {
        Ok(Ok(response)) if response.status().is_success() => {}
        Ok(Ok(response)) => {
            tracing::warn!(
                status = response.status().as_u16(), webhook.id = %channel.of.id, "a message was not changed"
            );
        }
        Ok(Err(error)) => tracing::warn!(%error, webhook.id = %channel.of.id, "a message was not changed"),
        Err(_) => tracing::warn!(webhook.id = %channel.of.id, "a message was not changed in time"),
    }
}
