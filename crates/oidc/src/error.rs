//! Why a person is not signed in.

/// Reason why a person is not signed in.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("the provider cannot be reached: {0}")]
    Unavailable(String),
    /// The provider or the browser sent what must not be trusted.
    #[error("the sign-in is not valid: {0}")]
    Refused(String),
    #[error("the provider's claims give the person no role")]
    NoRole,
    #[error("the provider's claims name no organisation or group")]
    NoTenant,
}
