//! A provider, and the two requests of a sign-in.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longhaul_config::OidcOptions;
use openidconnect::{
    AccessTokenHash, AuthorizationCode, ClaimsVerificationError, Client, ClientId, ClientSecret, CsrfToken,
    EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, IdTokenFields, IssuerUrl, Nonce,
    OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope, StandardErrorResponse,
    StandardTokenResponse, TokenResponse, UserInfoClaims,
    core::{
        CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim,
        CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata,
        CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
    },
};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use crate::{error::SignInError, http::Http, person::Person};

/// Time for which the provider's endpoints and keys are cached.
const REMEMBER: Duration = Duration::from_secs(3_600);
/// Shortest time between two readings because of an unknown key, which a forged token could name.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Claims beyond the standard ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OtherClaims {
    #[serde(flatten)]
    all: Map<String, Value>,
}

impl openidconnect::AdditionalClaims for OtherClaims {}

type Tokens = StandardTokenResponse<
    IdTokenFields<
        OtherClaims,
        EmptyExtraTokenFields,
        CoreGenderClaim,
        CoreJweContentEncryptionAlgorithm,
        CoreJwsSigningAlgorithm,
    >,
    CoreTokenType,
>;

type OidcClient = Client<
    OtherClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    Tokens,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// A sign-in between its two requests. The browser holds it; it is worthless without the provider's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    state: String,
    nonce: String,
    verifier: String,
}

/// An OpenID Connect provider.
#[derive(Debug)]
pub struct Provider {
    options: OidcOptions,
    http: Http,
    metadata: Mutex<Option<(Instant, Arc<CoreProviderMetadata>)>>,
}

impl Provider {
    /// # Errors
    /// The machine's TLS roots cannot be read.
    pub fn new(options: OidcOptions) -> Result<Self, reqwest::Error> {
        Ok(Self { options, http: Http::new()?, metadata: Mutex::new(None) })
    }

    /// Issuer as configured, which together with a subject identifies a person.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Name for people.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.options.label
    }

    /// Begins a sign-in: the address to send the browser to, and the flow to hold meanwhile.
    ///
    /// # Errors
    /// The provider cannot be reached.
    pub async fn begin(&self) -> Result<(Url, Flow), SignInError> {
        let client = self.client(REMEMBER).await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let (url, state, nonce) = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, CsrfToken::new_random, Nonce::new_random)
            .add_scopes(self.options.scopes.iter().cloned().map(Scope::new))
            .set_pkce_challenge(challenge)
            .url();
        let flow = Flow { state: state.into_secret(), nonce: nonce.secret().clone(), verifier: verifier.into_secret() };
        Ok((url, flow))
    }

    /// Completes a sign-in with what the provider's redirect carries.
    ///
    /// # Errors
    /// The redirect does not belong to `flow`, the provider refuses the code or cannot be reached, its token is not
    /// valid, or it gives the person no role or tenant.
    pub async fn complete(&self, flow: Flow, state: &str, code: String) -> Result<Person, SignInError> {
        // The visitor holds both, so the time of the comparison reveals nothing.
        if state != flow.state {
            return Err(SignInError::Refused("the state is of another sign-in".into()));
        }
        let client = self.client(REMEMBER).await?;
        let request = client.exchange_code(AuthorizationCode::new(code)).map_err(unavailable)?;
        let tokens = request.set_pkce_verifier(PkceCodeVerifier::new(flow.verifier)).request_async(&self.http).await;
        let tokens = tokens.map_err(|error| match error {
            openidconnect::RequestTokenError::ServerResponse(refusal) => SignInError::Refused(refusal.to_string()),
            openidconnect::RequestTokenError::Request(error) => unavailable(error),
            // Their bodies may hold tokens.
            openidconnect::RequestTokenError::Parse(..) => SignInError::Refused("the tokens are malformed".into()),
            openidconnect::RequestTokenError::Other(_) => SignInError::Refused("there is no token".into()),
        })?;
        let nonce = Nonce::new(flow.nonce);
        let claims = match verified(&client, &tokens, &nonce) {
            // The provider may have changed its keys since they were read.
            Err(ClaimsVerificationError::SignatureVerification(_)) => {
                verified(&self.client(READ_AGAIN_AFTER).await?, &tokens, &nonce)
            }
            verified => verified,
        };
        let mut claims = claims.map_err(|error| SignInError::Refused(error.to_string()))?;
        if Person::lacks(&claims, &self.options) {
            self.add_user_info(&client, &tokens, &mut claims).await?;
        }
        Person::of(&claims, &self.options)
    }

    /// Adds the claims of the user info endpoint, if the provider has one. Those of the signed token win.
    async fn add_user_info(&self, client: &OidcClient, tokens: &Tokens, claims: &mut Value) -> Result<(), SignInError> {
        let subject = openidconnect::SubjectIdentifier::new(claims["sub"].as_str().unwrap_or_default().to_owned());
        let Ok(request) = client.user_info(tokens.access_token().clone(), Some(subject)) else { return Ok(()) };
        let found: UserInfoClaims<OtherClaims, CoreGenderClaim> =
            request.request_async(&self.http).await.map_err(|error| SignInError::Unavailable(error.to_string()))?;
        let found = serde_json::to_value(found).map_err(unavailable)?;
        if let (Value::Object(claims), Value::Object(found)) = (claims, found) {
            for (name, value) in found {
                claims.entry(name).or_insert(value);
            }
        }
        Ok(())
    }

    /// A client with endpoints and keys that were read within `max_age`.
    async fn client(&self, max_age: Duration) -> Result<OidcClient, SignInError> {
        let known = self.metadata.lock().clone().filter(|(at, _)| at.elapsed() < max_age);
        let metadata = match known {
            Some((_, metadata)) => metadata,
            None => {
                let issuer = IssuerUrl::new(self.options.issuer.clone()).map_err(unavailable)?;
                let read = CoreProviderMetadata::discover_async(issuer, &self.http).await.map_err(unavailable)?;
                let read = Arc::new(read);
                *self.metadata.lock() = Some((Instant::now(), Arc::clone(&read)));
                read
            }
        };
        let secret = self.options.client_secret.as_ref().map(|of| ClientSecret::new(of.expose_secret().to_owned()));
        let client_id = ClientId::new(self.options.client_id.clone());
        let redirect = RedirectUrl::from_url(self.options.redirect_url.clone());
        Ok(OidcClient::from_provider_metadata((*metadata).clone(), client_id, secret).set_redirect_uri(redirect))
    }
}

/// The claims of the signed token, once signature, issuer, audience, times, nonce and the hash of the access token are
/// verified (OpenID Connect Core 1.0, sections 3.1.3.7 and 3.1.3.8).
fn verified(client: &OidcClient, tokens: &Tokens, nonce: &Nonce) -> Result<Value, ClaimsVerificationError> {
    let other = |why: &str| ClaimsVerificationError::Other(why.to_owned());
    let verifier = client.id_token_verifier();
    let token = tokens.id_token().ok_or_else(|| other("there is no ID token"))?;
    let claims = token.claims(&verifier, nonce)?;
    if let Some(expected) = claims.access_token_hash() {
        let (algorithm, key) = (token.signing_alg(), token.signing_key(&verifier));
        let (algorithm, key) = (algorithm.map_err(|_| other("no algorithm"))?, key.map_err(|_| other("no key"))?);
        let found = AccessTokenHash::from_token(tokens.access_token(), algorithm, key);
        if found.map_err(|_| other("the access token cannot be hashed"))? != *expected {
            return Err(other("the access token is of another sign-in"));
        }
    }
    serde_json::to_value(claims).map_err(|_| other("the claims are malformed"))
}

fn unavailable(error: impl std::error::Error) -> SignInError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    SignInError::Unavailable(text)
}
