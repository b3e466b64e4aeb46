//! Scripted replies of the server: a list of events that suits both wire formats, or a bare HTTP response.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::sync::watch;

/// A point where the server waits until the test opens it.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(GateState { open: watch::Sender::new(false), reached: watch::Sender::new(false) }))
    }

    /// Lets all present and later visitors pass.
    pub(crate) fn open(&self) {
        self.0.open.send_replace(true);
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.open.borrow()
    }

    /// Waits until a reply is at the gate: all that comes before it has been handed to the connection.
    pub(crate) async fn reached(&self) {
        self.0.reached.subscribe().wait_for(|reached| *reached).await.unwrap();
    }

    /// Waits at the gate until it is open.
    pub(crate) async fn pass(&self) {
        self.0.reached.send_replace(true);
        self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

/// One event of a reply.
#[derive(Debug, Clone)]
pub(crate) enum Ev {
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
pub(crate) fn ev_text(text: &str) -> Ev {
    Ev::Text(text.into())
}

/// A whole call, in several deltas when streamed. In OpenAI's format the next event marks its end.
pub(crate) fn ev_call(id: &str, name: &str, arguments: &Value) -> Ev {
    Ev::Call { id: id.into(), name: name.into(), arguments: arguments.to_string() }
}

/// A call with the arguments as the model wrote them, JSON or not.
pub(crate) fn ev_call_raw(id: &str, name: &str, arguments: &str) -> Ev {
    Ev::Call { id: id.into(), name: name.into(), arguments: arguments.into() }
}

/// The finish reason, in OpenAI's terms, and the end of the reply.
pub(crate) fn ev_finish(reason: &str) -> Ev {
    Ev::Finish(reason.into())
}

/// An error object inside the stream.
pub(crate) fn ev_error(kind: &str, message: &str) -> Ev {
    Ev::Error(json!({ "type": kind, "message": message }))
}

/// Raw bytes of the stream.
pub(crate) fn ev_raw(text: &str) -> Ev {
    Ev::Raw(text.into())
}

/// Waits at the gate.
pub(crate) fn ev_gate(gate: &Gate) -> Ev {
    Ev::Gate(gate.clone())
}

/// Breaks the connection.
pub(crate) fn ev_cut() -> Ev {
    Ev::Cut
}

/// Sends nothing more and keeps the connection.
pub(crate) fn ev_stall() -> Ev {
    Ev::Stall
}

/// Closes the connection in good order, without a finish reason.
pub(crate) fn ev_end() -> Ev {
    Ev::End
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) content: Content,
    pub(super) delay: Option<Duration>,
    pub(super) chunk_bytes: Option<usize>,
    pub(super) pause: Option<Duration>,
    pub(super) crlf: bool,
    pub(super) usage: Option<(u64, u64)>,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Events(Vec<Ev>),
    Body(String),
    /// No response at all.
    Silence,
}

/// Prose and nothing else.
pub(crate) fn reply_text(text: &str) -> Reply {
    reply_events([ev_text(text)])
}

/// Calls by name and arguments; their ids are unique over all replies of the process.
pub(crate) fn reply_calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Reply {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let call = |(name, arguments): (&str, Value)| {
        ev_call(&format!("fake_{}", NEXT.fetch_add(1, Ordering::Relaxed)), name, &arguments)
    };
    reply_events(calls.into_iter().map(call))
}

/// Events in order. Adds the finish reason unless the reply ends in another way.
pub(crate) fn reply_events(events: impl IntoIterator<Item = Ev>) -> Reply {
    let mut events: Vec<Ev> = events.into_iter().collect();
    let ends = |event: &Ev| matches!(event, Ev::Finish(_) | Ev::Error(_) | Ev::Cut | Ev::Stall | Ev::End);
    if !events.iter().any(ends) {
        let calls = events.iter().any(|event| matches!(event, Ev::Call { .. }));
        events.push(ev_finish(if calls { "tool_calls" } else { "stop" }));
    }
    Reply::new(200, Content::Events(events))
}

/// A status with an error body whose message is `message`.
pub(crate) fn reply_status(status: u16, message: &str) -> Reply {
    let error = json!({ "type": "error", "error": { "type": "fake_error", "message": message } });
    Reply::new(status, Content::Body(error.to_string()))
}

/// No response, and the connection stays.
pub(crate) fn reply_silent() -> Reply {
    Reply::new(200, Content::Silence)
}

impl Reply {
    fn new(status: u16, content: Content) -> Self {
        let (headers, delay, chunk_bytes, pause) = (Vec::new(), None, None, None);
        Self { status, headers, content, delay, chunk_bytes, pause, crlf: false, usage: Some((11, 7)) }
    }

    /// Replaces the body.
    pub(crate) fn body(mut self, body: impl Into<String>) -> Self {
        self.content = Content::Body(body.into());
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Puts `event` before all others.
    pub(crate) fn before(mut self, event: Ev) -> Self {
        if let Content::Events(events) = &mut self.content {
            events.insert(0, event);
        }
        self
    }

    /// Delays the head of the response.
    pub(crate) fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Cuts the body into chunks of this many bytes, each sent by itself.
    pub(crate) fn chunks_of(mut self, bytes: usize) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Waits after each chunk.
    pub(crate) fn trickle(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Ends the lines of a stream with CRLF.
    pub(crate) fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Sets the input and output tokens that it reports.
    pub(crate) fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some((input, output));
        self
    }

    /// Reports no usage.
    pub(crate) fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }
}
