//! Signs people in with an OpenID Connect provider, by the authorization code flow with PKCE, `state` and `nonce`
//! ([design](docs/design/access.md)).
//!
//! **Invariant:** `openidconnect` is named here only. Nothing of a person is kept: the caller holds the [`Flow`]
//! between the two requests, and stores the [`Person`].

mod error;
mod http;
mod person;
mod provider;

pub use error::SignInError;
pub use person::Person;
pub use provider::{Flow, Provider};
