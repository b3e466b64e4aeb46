//! Reasons why a call has no result.

/// Reason why a call of a browser has no result. Each is a text for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrowserError {
    /// The page or the browser refused. The browser can still be used.
    #[error("{0}")]
    Refused(String),
    /// There is no browser any more, and the call may have taken effect.
    #[error("{0}")]
    Gone(String),
}

impl BrowserError {
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}
