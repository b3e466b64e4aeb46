//! `/v1/channels/email/{ticket}`: the page of an approval's link in an e-mail. Reading it decides nothing, because
//! scanners of mail follow links; its form does.

use axum::{
    Extension, Form,
    extract::{State, rejection::FormRejection},
    http::StatusCode,
    response::{Html, IntoResponse, Response},
};
use longhaul_shared::visible;
use longhaul_store::{
    human_requests::{HumanRequest, Verdict},
    webhooks::{Channel, EndpointKind},
};
use longhaul_webhooks::{
    email,
    message::Message,
    ticket::{Right, Ticket},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Choice;
use crate::{
    audit::AuditSlot,
    error::{ApiError, ApiResult},
    extract::Path,
    page_session::SameSite,
    routes::human_requests::view::standing,
    state::ApiState,
};

/// Longest reason, in characters.
const REASON_CHARS: usize = 2_000;

/// A link that was checked.
struct Link {
    channel: Channel,
    ticket: Ticket,
    /// Recipient of the link.
    person: String,
}

#[derive(Deserialize)]
pub(crate) struct Decision {
    decision: Button,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Button {
    Approve,
    Reject,
}

/// `GET /v1/channels/email/{ticket}`: what is to be decided, and a form.
pub(crate) async fn ask(State(state): State<ApiState>, Path(ticket): Path<String>) -> ApiResult<Response> {
    let Some(link) = open(&state, &ticket).await? else { return Ok(no_link()) };
    let request = match super::approval(&state, &link.ticket).await {
        Ok(request) => request,
        Err(ApiError::NotFound(_)) => return Ok(no_link()),
        Err(error) => return Err(error),
    };
    Ok(page(request, Some(&link.person)))
}

/// `POST /v1/channels/email/{ticket}`: decides.
pub(crate) async fn decide(
    State(state): State<ApiState>,
    Path(ticket): Path<String>,
    Extension(audit): Extension<AuditSlot>,
    _: SameSite,
    form: Result<Form<Decision>, FormRejection>,
) -> ApiResult<Response> {
    let Some(link) = open(&state, &ticket).await? else { return Ok(no_link()) };
    let Form(form) = form.map_err(|_| ApiError::invalid("/decision", "must be approve or reject, in a form"))?;
    let reason = form.reason.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if reason.as_ref().is_some_and(|text| text.contains('\0') || text.chars().count() > REASON_CHARS) {
        return Err(ApiError::invalid("/reason", "is too long, or contains U+0000"));
    }
    let verdict = match form.decision {
        Button::Approve => Verdict::Approve,
        Button::Reject => Verdict::Reject,
    };
    let choice = Choice { ticket: &link.ticket, verdict, person: link.person, reason, audit };
    match super::decide(&state, &link.channel, choice).await {
        Ok(request) => Ok(page(request, None)),
        Err(error) if error.status().is_server_error() => Err(error),
        Err(error) => Ok(problem(error.status(), &error.to_string())),
    }
}

/// Checks a link: it is one of ours, and its recipient is still one.
async fn open(state: &ApiState, ticket: &str) -> ApiResult<Option<Link>> {
    let Some(ticket) = Ticket::read(ticket, &state.pepper) else { return Ok(None) };
    let Some(channel) = super::find(state, &ticket, EndpointKind::Email).await? else { return Ok(None) };
    let Right::Decide(person) = ticket.right.clone() else { return Ok(None) };
    let recipients = email::recipients(&channel.url).unwrap_or_default();
    let is_recipient = recipients.iter().any(|recipient| recipient.to_string() == person);
    Ok(is_recipient.then_some(Link { channel, ticket, person }))
}

/// The approval, and a form if `person` can decide on it.
fn page(request: HumanRequest, person: Option<&str>) -> Response {
    let outcome = standing(&request);
    let message = Message::of_request(request);
    let facts: Vec<Value> = message.facts.iter().map(|(name, fact)| json!([name, visible::line(fact)])).collect();
    let body = message.body.map(|body| visible::visible(&body).collect::<String>());
    let values = json!({ "facts": facts, "body": body, "outcome": outcome, "person": person });
    Html(longhaul_page::decision(&values)).into_response()
}

fn no_link() -> Response {
    problem(StatusCode::NOT_FOUND, "the link is not valid, or not any more")
}

fn problem(status: StatusCode, problem: &str) -> Response {
    (status, Html(longhaul_page::decision(&json!({ "problem": problem })))).into_response()
}
