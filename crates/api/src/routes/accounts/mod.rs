//! `/v1/accounts`: people who sign in with an OpenID Connect provider. Their roles come from the provider, with each
//! sign-in.

pub(crate) mod disable;
pub(crate) mod list;
mod view;
