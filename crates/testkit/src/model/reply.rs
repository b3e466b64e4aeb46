//! Scripted replies of the server: a list of events that suits both wire formats, or a bare HTTP response.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::cache_stub::CacheCount;

/// Content type of replies in one piece.
const JSON: &str = "application/json";

/// A point where the server waits until the test opens it.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl Gate {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets all present and later visitors pass.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.0.open.borrow()
    }

    /// Waits until a reply is at the gate: all that comes before it has been handed to the connection.
    pub async fn reached(&self) {
        // Cannot fail: the sender is in `self`.
        let _ = self.0.reached.subscribe().wait_for(|reached| *reached).await;
    }

    /// Waits at the gate until it is open.
    pub async fn pass(&self) {
        self.0.reached.send_replace(true);
        let _ = self.0.open.subscribe().wait_for(|open| *open).await;
    }
}

/// One event of a reply.
#[derive(Debug, Clone)]
pub enum Ev {
    Text(String),
    Call { id: String, name: String, arguments: String },
    Finish(String),
    Error(Value),
    Raw(String),
    Gate(Gate),
    Cut,
    Stall,
    End,
}

/// A piece of prose, one delta when streamed.
#[must_use]
pub fn ev_text(text: &str) -> Ev {
    Ev::Text(text.into())
}

/// A whole call, in several deltas when streamed. In OpenAI's format the next event marks its end.
#[must_use]
pub fn ev_call(id: &str, name: &str, arguments: &Value) -> Ev {
    Ev::Call { id: id.into(), name: name.into(), arguments: arguments.to_string() }
}

/// A call with the arguments as the model wrote them, JSON or not.
#[must_use]
pub fn ev_call_raw(id: &str, name: &str, arguments: &str) -> Ev {
    Ev::Call { id: id.into(), name: name.into(), arguments: arguments.into() }
}

/// The finish reason, in OpenAI's terms, and the end of the reply.
#[must_use]
pub fn ev_finish(reason: &str) -> Ev {
    Ev::Finish(reason.into())
}

/// An error object inside the stream.
#[must_use]
pub fn ev_error(kind: &str, message: &str) -> Ev {
    Ev::Error(json!({ "type": kind, "message": message }))
}

/// Raw bytes of the stream.
#[must_use]
pub fn ev_raw(text: &str) -> Ev {
    Ev::Raw(text.into())
}

/// Waits at the gate.
#[must_use]
pub fn ev_gate(gate: &Gate) -> Ev {
    Ev::Gate(gate.clone())
}

/// Breaks the connection.
#[must_use]
pub fn ev_cut() -> Ev {
    Ev::Cut
}

/// Sends nothing more and keeps the connection.
#[must_use]
pub fn ev_stall() -> Ev {
    Ev::Stall
}

/// Closes the connection in good order, without a finish reason.
#[must_use]
pub fn ev_end() -> Ev {
    Ev::End
}

#[derive(Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) content: Content,
    pub(super) delay: Option<Duration>,
    pub(super) chunk_bytes: Option<usize>,
    pub(super) pause: Option<Duration>,
    pub(super) crlf: bool,
    pub(super) usage: Option<Usage>,
    pub(super) is_whole: bool,
    pub(super) on_answered: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Tokens that a reply reports. The input includes what a cache read and wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache: Option<CacheCount>,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Events(Vec<Ev>),
    Body(&'static str, Bytes),
    /// No response at all.
    Silence,
    /// The connection ends without a response.
    HangUp,
}

/// Prose and nothing else.
#[must_use]
pub fn reply_text(text: &str) -> Reply {
    reply_events([ev_text(text)])
}

/// Calls by name and arguments; their ids are unique over all replies of the process.
pub fn reply_calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Reply {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let call = |(name, arguments): (&str, Value)| {
        ev_call(&format!("fake_{}", NEXT.fetch_add(1, Ordering::Relaxed)), name, &arguments)
    };
    reply_events(calls.into_iter().map(call))
}

/// Events in order. Adds the finish reason unless the reply ends in another way.
pub fn reply_events(events: impl IntoIterator<Item = Ev>) -> Reply {
    let mut events: Vec<Ev> = events.into_iter().collect();
    let ends = |event: &Ev| matches!(event, Ev::Finish(_) | Ev::Error(_) | Ev::Cut | Ev::Stall | Ev::End);
    if !events.iter().any(ends) {
        let calls = events.iter().any(|event| matches!(event, Ev::Call { .. }));
        events.push(ev_finish(if calls { "tool_calls" } else { "stop" }));
    }
    Reply::new(200, Content::Events(events))
}

/// A status with an error body whose message is `message`.
#[must_use]
pub fn reply_status(status: u16, message: &str) -> Reply {
    let error = json!({ "type": "error", "error": { "type": "fake_error", "message": message } });
    Reply::new(status, Content::Body(JSON, error.to_string().into()))
}

/// No response, and the connection stays.
#[must_use]
pub fn reply_silent() -> Reply {
    Reply::new(200, Content::Silence)
}

/// The connection ends without a response.
#[must_use]
pub fn reply_hang_up() -> Reply {
    Reply::new(200, Content::HangUp)
}

/// A body of this type.
#[must_use]
pub fn reply_bytes(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    Reply::new(200, Content::Body(content_type, body.into()))
}

impl Reply {
    fn new(status: u16, content: Content) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content,
            delay: None,
            chunk_bytes: None,
            pause: None,
            crlf: false,
            usage: Some(Usage { input: 11, output: 7, cache: None }),
            is_whole: false,
            on_answered: None,
        }
    }

    /// Replaces the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        let body = body.into();
        let content_type = if body.starts_with('<') { "text/html" } else { JSON };
        self.content = Content::Body(content_type, body.into());
        self
    }

    /// Comes in one piece, though it may be asked for as a stream.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.is_whole = true;
        self
    }

    /// Calls `told` when the last bytes are handed to the connection.
    #[must_use]
    pub fn on_answered(mut self, told: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_answered = Some(Arc::new(told));
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Puts `event` before all others.
    #[must_use]
    pub fn before(mut self, event: Ev) -> Self {
        if let Content::Events(events) = &mut self.content {
            events.insert(0, event);
        }
        self
    }

    /// Delays the head of the response.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Cuts the body into chunks of this many bytes, each sent by itself.
    #[must_use]
    pub fn chunks_of(mut self, bytes: usize) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Waits after each chunk.
    #[must_use]
    pub fn trickle(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Ends the lines of a stream with CRLF.
    #[must_use]
    pub fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Sets the input and output tokens that it reports.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some(Usage { input, output, cache: None });
        self
    }

    /// True for a reply whose prompt the provider processes.
    pub(super) fn is_answer(&self) -> bool {
        self.status == 200 && matches!(self.content, Content::Events(_))
    }

    /// Reports what a cache read and wrote of the prompt.
    pub(super) fn cached(mut self, count: CacheCount) -> Self {
        if let Some(usage) = &mut self.usage {
            (usage.input, usage.cache) = (count.prompt as u64, Some(count));
        }
        self
    }

    /// Reports no usage.
    #[must_use]
    pub fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }
}
