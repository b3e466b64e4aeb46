//! The reader in front of every dialect: what a server sends is told apart by what it is and not by how it is
//! labelled, and trouble means the same wherever it is told. docs/reference/models.md lists the rules.

use super::{
    EventSink, FinishReason, Message, ModelError, ModelReply,
    lenient::Members,
    reply::FinishedReply,
    sse::SseEvent,
    transport::{Flow, Opened},
};

/// Assembles a reply of one dialect.
pub(super) trait Assembler: Sized + Send {
    /// Processes one event of a streamed reply. `name` is the event's own; empty if it has none.
    fn read(&mut self, name: &str, event: Members, events: EventSink<'_>) -> Result<Flow, ModelError>;

    /// Notes that the stream is complete, as its end mark says.
    fn done(&mut self);

    /// True after an end mark.
    fn is_done(&self) -> bool;

    /// True after a reason for the end.
    fn is_closed(&self) -> bool;

    /// Ends the reply for a reason, unless it has one.
    fn close(&mut self, reason: FinishReason, events: EventSink<'_>) -> Result<(), ModelError>;

    /// The reply as far as it has arrived.
    fn into_finished(self, events: EventSink<'_>) -> FinishedReply;

    /// Ends a streamed reply after the stream has ended: an end mark alone will do, and so will a reason.
    fn finish(mut self, request_id: Option<String>, events: EventSink<'_>) -> Result<ModelReply, ModelError> {
        if !self.is_closed() {
            if !self.is_done() {
                return Err(ModelError::StreamCut { source: None }.after(self.into_partial()));
            }
            self.close(FinishReason::Stop, events)?;
        }
        self.into_finished(events).judge(request_id)
    }

    /// Reads a reply that arrived in one piece.
    fn whole(self, reply: Members) -> Result<FinishedReply, ModelError>;

    /// The part of a failed reply to keep.
    fn into_partial(self) -> Message;
}

/// Reads a reply, streamed or not.
pub(super) async fn read<A: Assembler>(
    mut opened: Opened<'_>,
    mut assembler: A,
    events: EventSink<'_>,
) -> Result<ModelReply, ModelError> {
    let (request_id, stated) = (opened.request_id.clone(), opened.stated);
    let reply = if opened.is_stream().await? {
        let ended = opened
            .events(&mut *events, |opened, event, sink| {
                read_event(&mut assembler, event, |error| opened.error_inside(error), sink)
            })
            .await;
        match ended {
            Ok(()) => assembler.finish(request_id, events)?,
            Err(error) => return Err(error.after(assembler.into_partial())),
        }
    } else {
        let body = opened.body().await?;
        read_whole(assembler, &body, |error| opened.error_inside(error))?.finish(request_id, events)?
    };
    Ok(ModelReply { stated, ..reply })
}

/// Reads a reply that arrived in one piece. `error_inside` converts an error body.
pub(super) fn read_whole(
    assembler: impl Assembler,
    body: &[u8],
    error_inside: impl FnOnce(&[u8]) -> ModelError,
) -> Result<FinishedReply, ModelError> {
    match members(body) {
        Ok(reply) if is_error(&reply) => Err(error_inside(body)),
        Ok(reply) if breaks_off(&reply) => Err(broken(error_inside(body))),
        Ok(reply) => assembler.whole(reply),
        Err(source) => Err(malformed("it is no JSON object", source)),
    }
}

/// Reads one event of a streamed reply. `error_inside` converts an error object.
pub(super) fn read_event(
    assembler: &mut impl Assembler,
    event: &SseEvent,
    error_inside: impl FnOnce(&[u8]) -> ModelError,
    events: EventSink<'_>,
) -> Result<Flow, ModelError> {
    match event.data.trim_ascii() {
        b"" => Ok(Flow::Waiting),
        b"[DONE]" => {
            assembler.done();
            Ok(Flow::Done)
        }
        data => match members(data) {
            Ok(read) if event.name == "error" || is_error(&read) => Err(error_inside(data)),
            Ok(read) if breaks_off(&read) => Err(broken(error_inside(data))),
            Ok(read) => assembler.read(&event.name, read, events),
            Err(_) if event.name == "error" => Err(error_inside(data)),
            Err(source) => Err(malformed("a part of it is no JSON object", source)),
        },
    }
}

/// The members of an object, or of the first object of a list, which some servers put around errors.
fn members(json: &[u8]) -> serde_json::Result<Members> {
    Members::read(json).or_else(|error| {
        let listed: Vec<Members> = serde_json::from_slice(json)?;
        listed.into_iter().next().ok_or(error)
    })
}

fn is_error(read: &Members) -> bool {
    read.has("error") || read.is("object", "error") || read.is("type", "error")
}

/// True if an error ends the first choice of a reply, as `OpenRouter` tells it.
fn breaks_off(read: &Members) -> bool {
    let first = read.first_with_error("choices");
    first.is_some_and(|choice| Members::of(&choice).has("error"))
}

/// An error that ended a reply in its middle: like a connection that was cut, unless it says more.
fn broken(error: ModelError) -> ModelError {
    let ModelError::InReply { answer } = error else { return error };
    ModelError::Unproven { answer }
}

pub(super) fn malformed(what: &'static str, source: serde_json::Error) -> ModelError {
    ModelError::Malformed { what, source: Some(source) }
}
