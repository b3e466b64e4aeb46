//! Errors of model calls, and their failure classes and codes as listed in docs/reference/failures.md.
//!
//! No error holds a request header or a prompt. The endpoint's own message is kept scrubbed and truncated
//! ([`Answer`]), as are the words of a refusal: they are part of the stored summary and detail, and not of the
//! `Display` that logs print.

use std::{borrow::Cow, time::Duration};

use longhaul_sdk::{Failure, FailureClass, FailureCode};
use serde_json::{Value, json};

use super::{
    answer::{Answer, Scrub},
    retry_after,
    types::{Message, ModelReply},
};

/// Errors of a model call without a usable reply.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No connection, or it broke before the endpoint answered.
    #[error("could not reach the model endpoint")]
    Unreachable {
        /// The cause; never names the URL.
        #[source]
        source: reqwest::Error,
    },
    /// The connection was not established in time.
    #[error("the model endpoint did not accept a connection within {} ms", after.as_millis())]
    ConnectTimeout {
        /// The connect timeout.
        after: Duration,
    },
    /// Nothing of the reply arrived in time.
    #[error("the model wrote nothing within {} ms", after.as_millis())]
    FirstTokenTimeout {
        /// The first-token timeout.
        after: Duration,
    },
    /// The reply began and then stalled.
    #[error("the model's reply stalled for {} ms", after.as_millis())]
    GapTimeout {
        /// The gap timeout.
        after: Duration,
    },
    /// The whole call took too long.
    #[error("the model call took longer than {} ms", after.as_millis())]
    TotalTimeout {
        /// The total timeout.
        after: Duration,
    },
    /// The connection ended before the reply did.
    #[error("the model's reply was cut before it ended")]
    StreamCut {
        /// The connection error; absent if the server closed the connection in good order.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// 429 or 408.
    #[error("the model endpoint asked to try later ({answer})")]
    RateLimited {
        answer: Answer,
        /// The requested wait, at most 24 h.
        retry_after: Option<Duration>,
    },
    /// The provider's quota, credit or plan is exhausted. A retry after seconds does not help; the circuit
    /// breaker decides.
    #[error("the quota of the model provider is exhausted ({answer})")]
    QuotaExhausted {
        answer: Answer,
        /// The requested wait, at most 24 h.
        retry_after: Option<Duration>,
    },
    /// Any 5xx.
    #[error("the model endpoint failed ({answer})")]
    Server {
        answer: Answer,
        /// The requested wait, at most 24 h.
        retry_after: Option<Duration>,
    },
    /// The endpoint answered 200 and then reported an error, usually inside the stream.
    #[error("the model endpoint reported an error ({answer})")]
    InReply {
        /// The endpoint's error, scrubbed and truncated.
        answer: Answer,
    },
    /// The reply ended with a reason that does not prove that it is complete: the provider's words for an error of its
    /// own, or an unknown one.
    #[error("the model's reply ended without a sign that it is complete ({answer})")]
    Unproven {
        /// The reason as its code, or the error that ended the reply.
        answer: Answer,
    },
    /// The model wrote a call that its server could not read and did not pass on.
    #[error("the model wrote a call that its server could not read ({answer})")]
    BadCall {
        /// The server's error, scrubbed and truncated.
        answer: Answer,
    },
    /// The reply violates the provider's format.
    #[error("the model's reply is malformed: {what}")]
    Malformed {
        /// The defect, without any content of the reply.
        what: &'static str,
        /// The parser's error.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// The reply holds neither text nor calls.
    #[error("the model's reply is empty")]
    Empty,
    /// The reply, or one of its events, exceeds the size limit.
    #[error("the model's reply is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The conversation exceeds the model's context window.
    #[error("the conversation does not fit the model's window ({answer})")]
    ContextTooLong {
        /// The endpoint's error, scrubbed and truncated.
        answer: Answer,
    },
    /// Any other 4xx, or a redirect; redirects are not followed.
    #[error("the model endpoint refused the request ({answer})")]
    RequestRefused {
        /// The endpoint's error, scrubbed and truncated.
        answer: Answer,
    },
    /// The model declined to answer, or a content filter of the provider stopped it.
    #[error("the model refused to answer")]
    Refused {
        /// The refusal itself, with its usage.
        reply: Box<ModelReply>,
    },
    /// The request could not be built from the agent's settings.
    #[error("the agent's model settings cannot be sent: {what}")]
    InvalidSettings {
        /// The unusable setting and the reason.
        what: String,
    },
    /// The scripted model's program failed.
    #[error("the scripted model's program failed: {what}")]
    Script {
        /// The error, naming positions in the program and no content of the conversation.
        what: String,
    },
    /// The worker has no provider of this name in its configuration.
    #[error("no model provider `{name}` is configured")]
    UnknownProvider {
        /// The provider's name in the agent's spec.
        name: String,
    },
    /// The reply failed after calls had been completed. A caller that launched one of them continues from
    /// `partial` and never repeats the request; otherwise it handles `source`.
    #[error("the model's reply failed after {} complete calls", partial.calls().len())]
    Interrupted {
        /// The reply so far: its text, and the calls with complete arguments.
        partial: Box<Message>,
        #[source]
        source: Box<ModelError>,
    },
}

impl ModelError {
    /// Classifies the error of an endpoint: exhausted quota, exceeded context window and unreadable calls by names and
    /// text, all others by status, or what stands for it inside a reply.
    pub(crate) fn of_answer(answer: Answer, retry_after: Option<Duration>) -> Self {
        let retry_after = retry_after.or_else(|| retry_after::in_text(answer.message.as_deref()?));
        if answer.says_quota_exhausted() {
            return Self::QuotaExhausted { answer, retry_after };
        }
        if answer.says_context_too_long() {
            return Self::ContextTooLong { answer };
        }
        if answer.says_bad_call() {
            return Self::BadCall { answer };
        }
        match answer.told_status() {
            None if answer.says_overloaded() => Self::Server { answer, retry_after },
            None => Self::InReply { answer },
            Some(408 | 429) => Self::RateLimited { answer, retry_after },
            Some(500..) => Self::Server { answer, retry_after },
            Some(_) => Self::RequestRefused { answer },
        }
    }

    /// The failure class, which decides the retry.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        let root = self.root();
        // The breaker handles an exhausted quota. The code's class, `permanent`, applies only when that takes
        // too long.
        if matches!(root, Self::QuotaExhausted { .. }) {
            return FailureClass::Transient;
        }
        // The loop compresses the conversation. The code's class applies only when that is not enough.
        if matches!(root, Self::ContextTooLong { .. }) {
            return FailureClass::ContextLimit;
        }
        root.code().class()
    }

    /// The stable failure code.
    #[must_use]
    pub fn code(&self) -> FailureCode {
        match self {
            Self::Unreachable { .. } => FailureCode::MODEL_UNREACHABLE,
            Self::ConnectTimeout { .. }
            | Self::FirstTokenTimeout { .. }
            | Self::GapTimeout { .. }
            | Self::TotalTimeout { .. } => FailureCode::MODEL_TIMEOUT,
            Self::StreamCut { .. } | Self::Unproven { .. } => FailureCode::MODEL_STREAM_CUT,
            Self::RateLimited { .. } => FailureCode::MODEL_RATE_LIMITED,
            Self::QuotaExhausted { .. } => FailureCode::MODEL_QUOTA_EXHAUSTED,
            Self::Server { .. } | Self::InReply { .. } => FailureCode::MODEL_API_ERROR,
            Self::Malformed { .. } | Self::BadCall { .. } | Self::Empty | Self::TooLarge { .. } => {
                FailureCode::MODEL_MALFORMED_REPLY
            }
            Self::ContextTooLong { .. } => FailureCode::CONTEXT_LIMIT_EXCEEDED,
            Self::RequestRefused { .. } => FailureCode::MODEL_REQUEST_REFUSED,
            Self::Refused { .. } => FailureCode::MODEL_REFUSAL,
            Self::InvalidSettings { .. } | Self::Script { .. } | Self::UnknownProvider { .. } => {
                FailureCode::INVALID_DEFINITION
            }
            Self::Interrupted { source, .. } => source.code(),
        }
    }

    /// The wait that the endpoint asked for, at most 24 h.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::QuotaExhausted { retry_after, .. }
            | Self::Server { retry_after, .. } => *retry_after,
            Self::Interrupted { source, .. } => source.retry_after(),
            Self::Unreachable { .. }
            | Self::ConnectTimeout { .. }
            | Self::FirstTokenTimeout { .. }
            | Self::GapTimeout { .. }
            | Self::TotalTimeout { .. }
            | Self::StreamCut { .. }
            | Self::Unproven { .. }
            | Self::BadCall { .. }
            | Self::InReply { .. }
            | Self::Malformed { .. }
            | Self::Empty
            | Self::TooLarge { .. }
            | Self::ContextTooLong { .. }
            | Self::RequestRefused { .. }
            | Self::Refused { .. }
            | Self::InvalidSettings { .. }
            | Self::Script { .. }
            | Self::UnknownProvider { .. } => None,
        }
    }

    /// The model's context window in tokens, if the endpoint told it when it refused the length.
    #[must_use]
    pub fn window(&self) -> Option<u64> {
        let Self::ContextTooLong { answer } = self.root() else { return None };
        answer.window.map(|tokens| u64::from(tokens.get()))
    }

    /// The failure to store with the execution.
    #[must_use]
    pub fn to_failure(&self) -> Failure {
        let summary = match self.words().filter(|words| !words.is_empty()) {
            Some(words) => format!("{}: {words}", self.root()),
            None => self.root().to_string(),
        };
        let failure = Failure::new(self.class(), self.code(), summary).with_retry_after(self.retry_after());
        Failure { detail: self.detail(), ..failure }
    }

    /// The endpoint's own message, scrubbed and truncated, or the words of a refusal.
    fn words(&self) -> Option<Cow<'_, str>> {
        match self.root() {
            Self::Refused { reply } => Some(Scrub::default().words(&reply.message.text()).into()),
            Self::RateLimited { answer, .. }
            | Self::QuotaExhausted { answer, .. }
            | Self::Server { answer, .. }
            | Self::InReply { answer }
            | Self::ContextTooLong { answer }
            | Self::Unproven { answer }
            | Self::BadCall { answer }
            | Self::RequestRefused { answer } => answer.message.as_deref().map(Cow::Borrowed),
            Self::Unreachable { .. }
            | Self::ConnectTimeout { .. }
            | Self::FirstTokenTimeout { .. }
            | Self::GapTimeout { .. }
            | Self::TotalTimeout { .. }
            | Self::StreamCut { .. }
            | Self::Malformed { .. }
            | Self::Empty
            | Self::TooLarge { .. }
            | Self::InvalidSettings { .. }
            | Self::Script { .. }
            | Self::UnknownProvider { .. }
            | Self::Interrupted { .. } => None,
        }
    }

    /// The underlying error, without the partial reply around it.
    #[must_use]
    pub fn root(&self) -> &Self {
        if let Self::Interrupted { source, .. } = self { source.root() } else { self }
    }

    /// The calls that were complete when the reply failed, and the text before them.
    #[must_use]
    pub fn partial(&self) -> Option<&Message> {
        if let Self::Interrupted { partial, .. } = self { Some(partial) } else { None }
    }

    /// Attaches the partial reply. A reply without complete calls is not worth keeping.
    pub(crate) fn after(self, partial: Message) -> Self {
        if partial.calls().is_empty() {
            return self;
        }
        Self::Interrupted { partial: Box::new(partial), source: Box::new(self) }
    }

    /// Structured fields for the failure's `detail`.
    fn detail(&self) -> Option<Value> {
        let detail = match self {
            Self::ConnectTimeout { after } => clock("connect", *after),
            Self::FirstTokenTimeout { after } => clock("first_token", *after),
            Self::GapTimeout { after } => clock("gap", *after),
            Self::TotalTimeout { after } => clock("total", *after),
            Self::RateLimited { answer, .. }
            | Self::QuotaExhausted { answer, .. }
            | Self::Server { answer, .. }
            | Self::InReply { answer }
            | Self::ContextTooLong { answer }
            | Self::Unproven { answer }
            | Self::BadCall { answer }
            | Self::RequestRefused { answer } => answer.detail(),
            Self::Malformed { source: Some(source), .. } => json!({ "line": source.line(), "column": source.column() }),
            Self::TooLarge { limit } => json!({ "limit_bytes": limit }),
            Self::Refused { reply } => json!({ "finish_reason": reply.finish }),
            Self::Interrupted { source, .. } => return source.detail(),
            Self::Unreachable { .. }
            | Self::StreamCut { .. }
            | Self::Malformed { source: None, .. }
            | Self::Empty
            | Self::InvalidSettings { .. }
            | Self::Script { .. }
            | Self::UnknownProvider { .. } => return None,
        };
        Some(detail)
    }
}

fn clock(name: &str, after: Duration) -> Value {
    json!({ "clock": name, "after_ms": u64::try_from(after.as_millis()).unwrap_or(u64::MAX) })
}
