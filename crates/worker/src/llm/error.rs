//! How a model call fails, and what each failure means for the execution: the table of docs/failures.md, in one place.
//!
//! Nothing here holds a request header, a prompt or a completion. The endpoint's own words about a failure are kept scrubbed and cut
//! ([`Answer`]); they are part of the stored summary and detail, and never of the `Display` that logs print.

use std::time::Duration;

use longhaul_sdk::{Failure, FailureClass, FailureCode};
use serde_json::{Value, json};

use super::{
    answer::Answer,
    types::{Message, ModelReply},
};

/// Why a model call produced no usable reply.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No connection, or it broke before the endpoint answered.
    #[error("could not reach the model endpoint")]
    Unreachable {
        /// The cause; never names the URL.
        #[source]
        source: reqwest::Error,
    },
    /// The connection was not made in time.
    #[error("the model endpoint did not accept a connection within {} ms", after.as_millis())]
    ConnectTimeout {
        /// The clock's value.
        after: Duration,
    },
    /// Nothing of the reply came in time.
    #[error("the model wrote nothing within {} ms", after.as_millis())]
    FirstTokenTimeout {
        /// The clock's value.
        after: Duration,
    },
    /// The reply began, then stalled.
    #[error("the model's reply stalled for {} ms", after.as_millis())]
    GapTimeout {
        /// The clock's value.
        after: Duration,
    },
    /// The whole call took too long.
    #[error("the model call took longer than {} ms", after.as_millis())]
    TotalTimeout {
        /// The clock's value.
        after: Duration,
    },
    /// The reply ended before it said that it had.
    #[error("the model's reply was cut before it ended")]
    StreamCut {
        /// The broken connection; absent when it was closed in good order.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// 429 or 408.
    #[error("the model endpoint asked to try later ({answer})")]
    RateLimited {
        /// What it said.
        answer: Answer,
        /// The wait it asked for, at most 24 h.
        retry_after: Option<Duration>,
    },
    /// The provider's quota, credit or plan is used up. Waiting seconds does not help; the breaker decides.
    #[error("the quota of the model provider is exhausted ({answer})")]
    QuotaExhausted {
        /// What it said.
        answer: Answer,
        /// The wait it asked for, at most 24 h.
        retry_after: Option<Duration>,
    },
    /// Any 5xx.
    #[error("the model endpoint failed ({answer})")]
    Server {
        /// What it said.
        answer: Answer,
        /// The wait it asked for, at most 24 h.
        retry_after: Option<Duration>,
    },
    /// The endpoint answered 200 and then reported an error, usually inside the stream.
    #[error("the model endpoint reported an error ({answer})")]
    InReply {
        /// What it said.
        answer: Answer,
    },
    /// The reply is not what the provider's format promises.
    #[error("the model's reply is malformed: {what}")]
    Malformed {
        /// What is wrong with it; never its content.
        what: &'static str,
        /// The parser's complaint.
        #[source]
        source: Option<serde_json::Error>,
    },
    /// The reply holds neither text nor calls.
    #[error("the model's reply is empty")]
    Empty,
    /// The reply, or one event of it, is larger than the cap.
    #[error("the model's reply is larger than {limit} bytes")]
    TooLarge {
        /// The cap.
        limit: usize,
    },
    /// The conversation does not fit the model's window.
    #[error("the conversation does not fit the model's window ({answer})")]
    ContextTooLong {
        /// What it said.
        answer: Answer,
    },
    /// Any other 4xx, and redirects, which are not followed.
    #[error("the model endpoint refused the request ({answer})")]
    RequestRefused {
        /// What it said.
        answer: Answer,
    },
    /// The model declined to answer, or a filter of its provider stopped it.
    #[error("the model refused to answer")]
    Refused {
        /// The refusal itself, with its usage.
        reply: Box<ModelReply>,
    },
    /// The request could not be built from the agent's settings.
    #[error("the agent's model settings cannot be sent: {what}")]
    InvalidSettings {
        /// What is wrong with them.
        what: String,
    },
    /// The scripted model's program failed.
    #[error("the scripted model's program failed: {what}")]
    Script {
        /// What failed; names places in the program, not the conversation.
        what: String,
    },
    /// No provider of this name is configured on the worker.
    #[error("no model provider `{name}` is configured")]
    UnknownProvider {
        /// The name asked for.
        name: String,
    },
    /// The reply failed after calls had been completed. Who launched one of them continues from `partial` and never asks
    /// again; who did not treats it as its source.
    #[error("the model's reply failed after {} complete calls", partial.calls().len())]
    Interrupted {
        /// The reply so far: its text, and the calls whose arguments are complete.
        partial: Box<Message>,
        /// The failure.
        #[source]
        source: Box<ModelError>,
    },
}

impl ModelError {
    /// The class, which decides the retry.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        let root = self.root();
        // The breaker's. It ends a run only when that was too long.
        if matches!(root, Self::QuotaExhausted { .. }) {
            return FailureClass::Transient;
        }
        // The loop compresses, and ends the run when that was not enough.
        if matches!(root, Self::ContextTooLong { .. }) {
            return FailureClass::ContextLimit;
        }
        root.code().class()
    }

    /// The stable name of the cause.
    #[must_use]
    pub fn code(&self) -> FailureCode {
        match self {
            Self::Unreachable { .. } => FailureCode::MODEL_UNREACHABLE,
            Self::ConnectTimeout { .. }
            | Self::FirstTokenTimeout { .. }
            | Self::GapTimeout { .. }
            | Self::TotalTimeout { .. } => FailureCode::MODEL_TIMEOUT,
            Self::StreamCut { .. } => FailureCode::MODEL_STREAM_CUT,
            Self::RateLimited { .. } => FailureCode::MODEL_RATE_LIMITED,
            Self::QuotaExhausted { .. } => FailureCode::MODEL_QUOTA_EXHAUSTED,
            Self::Server { .. } | Self::InReply { .. } => FailureCode::MODEL_API_ERROR,
            Self::Malformed { .. } | Self::Empty | Self::TooLarge { .. } => FailureCode::MODEL_MALFORMED_REPLY,
            Self::ContextTooLong { .. } => FailureCode::CONTEXT_LIMIT_EXCEEDED,
            Self::RequestRefused { .. } => FailureCode::MODEL_REQUEST_REFUSED,
            Self::Refused { .. } => FailureCode::MODEL_REFUSAL,
            Self::InvalidSettings { .. } | Self::Script { .. } | Self::UnknownProvider { .. } => {
                FailureCode::INVALID_DEFINITION
            }
            Self::Interrupted { source, .. } => source.code(),
        }
    }

    /// The wait the endpoint asked for, at most 24 h.
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

    /// The failure as it is stored.
    #[must_use]
    pub fn to_failure(&self) -> Failure {
        let summary = match self.words() {
            Some(words) => format!("{}: {words}", self.root()),
            None => self.root().to_string(),
        };
        let failure = Failure::new(self.class(), self.code(), summary).with_retry_after(self.retry_after());
        Failure { detail: self.detail(), ..failure }
    }

    /// The endpoint's own sentence about the failure, scrubbed and cut.
    fn words(&self) -> Option<&str> {
        match self.root() {
            Self::RateLimited { answer, .. }
            | Self::QuotaExhausted { answer, .. }
            | Self::Server { answer, .. }
            | Self::InReply { answer }
            | Self::ContextTooLong { answer }
            | Self::RequestRefused { answer } => answer.message.as_deref(),
            Self::Unreachable { .. }
            | Self::ConnectTimeout { .. }
            | Self::FirstTokenTimeout { .. }
            | Self::GapTimeout { .. }
            | Self::TotalTimeout { .. }
            | Self::StreamCut { .. }
            | Self::Malformed { .. }
            | Self::Empty
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::InvalidSettings { .. }
            | Self::Script { .. }
            | Self::UnknownProvider { .. }
            | Self::Interrupted { .. } => None,
        }
    }

    /// The error itself, without the partial reply around it.
    #[must_use]
    pub fn root(&self) -> &Self {
        if let Self::Interrupted { source, .. } = self { source.root() } else { self }
    }

    /// The calls that were complete when the reply failed, with the text before them.
    #[must_use]
    pub fn partial(&self) -> Option<&Message> {
        if let Self::Interrupted { partial, .. } = self { Some(partial) } else { None }
    }

    /// Adds what had been completed. A reply without complete calls is not worth keeping.
    pub(crate) fn after(self, partial: Message) -> Self {
        if partial.calls().is_empty() {
            return self;
        }
        Self::Interrupted { partial: Box::new(partial), source: Box::new(self) }
    }

    /// Facts for machines.
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
