//! Decisions of people in channels: `slack.rs` takes the buttons of messages, `email.rs` the links of e-mails
//! ([guide](../../../../../docs/guide/channels.md)).
//!
//! Invariant: a channel decides with the key that wrote it last, through the same checks and the same statement as
//! `POST /v1/approvals/{id}/decision`.

pub(crate) mod email;
mod error;
pub(crate) mod slack;

use longhaul_domain::RequestKind;
use longhaul_store::{
    human_requests::{Decider, HumanRequest, NewDecision, Verdict},
    tenants::api_keys::Scope,
    webhooks::{Channel, EndpointKind},
};
use longhaul_webhooks::ticket::Ticket;

pub(crate) use error::ChannelError;

use super::human_requests::{self, DecisionError, may_decide};
use crate::{
    audit::AuditSlot,
    auth,
    error::{ApiError, ApiResult},
    state::ApiState,
};

/// The enabled channel of a ticket, if it is of that kind.
pub(crate) async fn find(state: &ApiState, ticket: &Ticket, kind: EndpointKind) -> ApiResult<Option<Channel>> {
    let found = state.store.channel(ticket.channel).await?;
    Ok(found.filter(|channel| channel.kind == kind))
}

/// The approval of a ticket.
pub(crate) async fn approval(state: &ApiState, ticket: &Ticket) -> ApiResult<HumanRequest> {
    let tenant = ticket.channel.tenant.into();
    let found = state.store.get_request(&tenant, RequestKind::Approval, ticket.request).await?;
    found.ok_or(ApiError::NotFound("approval"))
}

/// The choice of a person.
pub(crate) struct Choice<'a> {
    pub(crate) ticket: &'a Ticket,
    pub(crate) verdict: Verdict,
    pub(crate) person: String,
    pub(crate) reason: Option<String>,
    /// The request's row in the audit log.
    pub(crate) audit: AuditSlot,
}

/// Decides with the channel's key.
///
/// # Errors
/// The key was revoked or may not decide, or nothing waits any more.
pub(crate) async fn decide(state: &ApiState, channel: &Channel, choice: Choice<'_>) -> ApiResult<HumanRequest> {
    let mut principal = auth::by_id(state, channel.key).await?;
    principal.act_in(&choice.audit);
    // In place of the path, which is the ticket of a link.
    choice.audit.name_target(choice.ticket.request.to_string());
    principal.need(Scope::ApprovalsDecide)?;
    let request = approval(state, choice.ticket).await?;
    may_decide(state, &principal, &request, &choice.ticket.hash).await?;
    if choice.ticket.is_over(state.store.believed_now()) {
        return Err(DecisionError::AlreadyDecided("the time of the button or link is over".into()).into());
    }
    let key_name = principal.key().name.clone();
    let by = Decider { key_id: principal.key_id(), key_name, person: Some(choice.person) };
    let decision = NewDecision { verdict: choice.verdict, hash: choice.ticket.hash, by, reason: choice.reason };
    human_requests::decide(state, &principal, &request, &decision).await
}
