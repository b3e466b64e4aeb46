//! Errors of a request, before a wire gives them its shape.

/// A reason to refuse a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// Text for people: says what is wrong and what to send instead.
    pub message: String,
    /// Member of the request that it is about, such as `tools[0].type`.
    pub param: Option<String>,
    /// Stable code, such as `model_not_found` or `unsupported_parameter`.
    pub code: Option<String>,
}

/// Kinds of errors, each with one HTTP status on every wire but where its table says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// 400.
    Invalid,
    /// 401.
    Unauthenticated,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409: the state forbids it now.
    Conflict,
    /// 413.
    TooLarge,
    /// 429.
    RateLimited,
    /// 500: a defect, or a run that failed.
    Internal,
    /// 503: not now.
    Unavailable,
}

impl FaultKind {
    /// HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::RateLimited => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}

impl Fault {
    /// A member of the request that is wrong.
    #[must_use]
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Invalid, message: message.into(), param: Some(param.into()), code: None }
    }

    /// The message as a sentence that names its member, for wires whose clients show the message alone.
    #[must_use]
    pub fn told(&self) -> String {
        match &self.param {
            // A predicate, of which the member is the subject.
            Some(param) if !param.is_empty() && self.message.starts_with(|c: char| c.is_ascii_lowercase()) => {
                if self.message.contains(param.as_str()) {
                    self.message.clone()
                } else {
                    format!("`{param}` {}", self.message)
                }
            }
            Some(_) | None => self.message.clone(),
        }
    }

    /// A member of the request that Longhaul does not support.
    #[must_use]
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter".into()), ..Self::invalid(param, message) }
    }
}

/// A text of the caller within a message: its first 100 characters.
pub(crate) fn brief(text: &str) -> &str {
    text.char_indices().nth(100).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicate_is_told_of_its_member() {
        assert_eq!(Fault::invalid("Longhaul-Attempt", "is missing").told(), "`Longhaul-Attempt` is missing");
        for whole in ["the model `x` does not exist", "`model` is empty", "This must be an object."] {
            assert_eq!(Fault::invalid("model", whole).told(), whole);
        }
        assert_eq!(Fault { param: None, ..Fault::invalid("", "is missing") }.told(), "is missing");
    }
}
