//! Signing in to the page at an OpenID Connect provider: the browser is sent there and comes back with a code.
//!
//! Between the two requests the browser holds the sign-in in a signed cookie, so nothing is kept here, and a code that
//! another person's browser began (login CSRF) is refused: its state is not the cookie's.

use axum::{
    Extension,
    extract::{Query, State},
    http::HeaderMap,
    response::{Html, IntoResponse, Redirect, Response},
};
use longhaul_oidc::{Flow, Person, Provider, SignInError};
use longhaul_store::tenants::accounts::SignedIn;
use serde::{Deserialize, Serialize};

use crate::{
    audit::AuditSlot,
    auth,
    error::{ApiError, ApiResult},
    page_session::{own_page, with_cookies},
    sealed_cookie::SealedCookie,
    session_cookie::Session,
    state::ApiState,
};

const COOKIE: SealedCookie = SealedCookie {
    name: "longhaul_sign_in",
    purpose: "oidc-sign-in",
    // The provider's redirect comes from another site, so `Strict` would withhold it.
    same_site: "Lax",
    // Time for a person to sign in at the provider.
    life_seconds: 600,
};
/// Longest address to return to; a cookie holds it.
const MAX_NEXT: usize = 1_000;

/// What the browser holds while the person is at the provider.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    flow: Flow,
    next: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    next: String,
}

/// Parameters of the provider's redirect (RFC 6749, section 4.1.2).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Returned {
    code: Option<String>,
    state: String,
    error: Option<String>,
}

/// `GET /login/oidc`
pub(crate) async fn begin(State(state): State<ApiState>, Query(asked): Query<Asked>) -> ApiResult<Response> {
    let provider = provider(&state)?;
    let (url, flow) = match provider.begin().await {
        Ok(begun) => begun,
        Err(error) => return Ok(refused(&error)),
    };
    let next = if asked.next.len() <= MAX_NEXT { own_page(&asked.next) } else { "/" };
    let held = Held { flow, next: next.to_owned() };
    let cookie = COOKIE.set(&state, &held, state.store.now().await?)?;
    Ok(with_cookies(Redirect::to(url.as_str()).into_response(), &[cookie]))
}

/// `GET /login/oidc/callback`
pub(crate) async fn callback(
    State(state): State<ApiState>,
    Extension(audit): Extension<AuditSlot>,
    headers: HeaderMap,
    Query(returned): Query<Returned>,
) -> ApiResult<Response> {
    let provider = provider(&state)?;
    let done = COOKIE.remove(&state);
    let away = |problem: &str| Ok(with_cookies(to_login(problem), std::slice::from_ref(&done)));
    let Some((held, _)) = COOKIE.read::<Held>(&state, &headers) else { return away("sign_in_expired") };
    let code = match (returned.code, returned.error.as_deref()) {
        (Some(code), None) => code,
        (_, Some("access_denied")) => return away("denied"),
        (None, _) | (_, Some(_)) => return away("sign_in_failed"),
    };
    let person = match provider.complete(held.flow, &returned.state, code).await {
        Ok(person) => person,
        Err(error) => return Ok(with_cookies(refused(&error), &[done])),
    };
    let Some(hash) = signed_in(&state, provider, &person).await? else { return away("account_disabled") };
    state.keys.forget(&hash);
    auth::by_hash(&state, hash.clone(), auth::Age::Now).await?.act_in(&audit);
    let session = Session::cookie(&state, &hash, state.store.now().await?)?;
    // The session's cookie is `Strict`: a redirect would be part of the provider's navigation, and lack it.
    Ok(with_cookies(Html(longhaul_page::signed_in(&held.next)).into_response(), &[done, session]))
}

fn provider(state: &ApiState) -> ApiResult<&Provider> {
    state.oidc.as_ref().ok_or(ApiError::NoSuchRoute)
}

/// Stores the sign-in. Returns the hash that names the account, or `None` if it is disabled.
async fn signed_in(state: &ApiState, provider: &Provider, person: &Person) -> ApiResult<Option<Vec<u8>>> {
    let tenant = state.store.ensure_tenant(&person.org_id, person.group_id.as_deref()).await?.id;
    let signed_in = SignedIn {
        tenant,
        issuer: provider.issuer(),
        subject: &person.subject,
        name: &person.name,
        email: person.email.as_deref(),
        roles: &person.roles,
    };
    Ok(state.store.sign_in(&signed_in).await?)
}

fn refused(error: &SignInError) -> Response {
    tracing::warn!(%error, "a person could not sign in");
    to_login(match error {
        SignInError::Unavailable(_) => "provider_unavailable",
        SignInError::Refused(_) => "sign_in_failed",
        SignInError::NoRole => "no_role",
        SignInError::NoTenant => "no_tenant",
    })
}

fn to_login(problem: &str) -> Response {
    Redirect::to(&format!("/login?problem={problem}")).into_response()
}
