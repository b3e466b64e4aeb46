//! Requests: the body of `POST /v1/responses`, of its `compact` and `input_tokens`, and the frame `response.create` of
//! a web socket, each read as a [`Create`]. Unknown members are tolerated, since the wire grows; those that are known
//! and have no meaning here are refused by name if they change the answer.

mod echo;
mod input;
mod parts;
mod tools;

use longhaul_sdk::spec::Effort;
use serde_json::{Value, json};

use crate::{
    Asked, Fault, ModelName, Sampling,
    members::{self, MAX_LABEL, Members, Node},
    parameters::{self, PENALTY, TOP_P},
};

/// A request for a response.
#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    pub asked: Asked,
    /// False if the response cannot be read after its answer was delivered.
    pub store: bool,
    /// True if the request is answered at once, with a response that is queued.
    pub background: bool,
    pub previous_response_id: Option<String>,
    pub conversation: Option<String>,
    /// Members of the request that the response object repeats, under its names.
    pub echo: Value,
    /// The items of the request's input as `input_items` lists them, each with `id` and `type`; without the bytes of
    /// files.
    pub input: Vec<Value>,
}

/// The surface that a request came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surface {
    Create,
    Socket,
    Compact,
    Count,
}

/// Reads the body of `POST /v1/responses`.
///
/// # Errors
/// It is no JSON, or a member of it is missing, wrong, out of bounds or not supported.
pub fn read(body: &[u8]) -> Result<Create, Fault> {
    create(body, Surface::Create)
}

/// Reads a frame of a web socket: `{type: "response.create", …}` with the members of a body. It is always a stream.
///
/// # Errors
/// As those of [`read`]; it has another `type`; or it asks for what a socket does not do.
pub fn read_frame(frame: &[u8]) -> Result<Create, Fault> {
    create(frame, Surface::Socket)
}

/// Reads the body of `POST /v1/responses/compact`.
///
/// # Errors
/// As those of [`read`].
pub fn read_compact(body: &[u8]) -> Result<Create, Fault> {
    create(body, Surface::Compact)
}

/// Reads the body of `POST /v1/responses/input_tokens`. There `model` is optional: without it `model_text` is empty.
///
/// # Errors
/// As those of [`read`].
pub fn read_count(body: &[u8]) -> Result<Create, Fault> {
    create(body, Surface::Count)
}

fn create(body: &[u8], surface: Surface) -> Result<Create, Fault> {
    let body = members::body(body)?;
    let body = Members::of(&body);
    refuse_unsupported(&body)?;
    if surface == Surface::Socket {
        check_frame(&body)?;
    }
    let model_text = model(&body, surface)?;
    let Ok(model) = model_text.parse();
    let previous_response_id = body.bounded("previous_response_id", MAX_LABEL)?.map(str::to_owned);
    let conversation = conversation(&body)?;
    if previous_response_id.is_some() && conversation.is_some() {
        return Err(body.fault("conversation", "and `previous_response_id` exclude each other: send one of them."));
    }
    let (items, input) = input::read(&body)?;
    let continues = previous_response_id.is_some() || conversation.is_some();
    if items.is_empty() && !continues && surface != Surface::Count {
        return Err(body.missing("input"));
    }
    let tools = tools::read(&body)?;
    let (choice, offered) = tools::choice(&body, &tools, matches!(model, ModelName::Other(_)))?;
    let store = body.flag("store")?.unwrap_or(true);
    let background = body.flag("background")?.unwrap_or(false);
    if background && !store {
        return Err(body.fault("store", "must be true for a background response: leave it out."));
    }
    let sampling = sampling(&body, !offered.is_empty())?;
    let stream = body.flag("stream")?.unwrap_or(false) || surface == Surface::Socket;
    let asked = Asked {
        model,
        model_text,
        instructions: body.text("instructions")?.map(str::to_owned),
        items,
        tools: offered,
        choice,
        format: tools::format(&body)?,
        sampling,
        stream,
        max_tool_calls: body.count("max_tool_calls", 1)?,
        metadata: members::metadata(&body)?,
    };
    let echo = echo::of(&body, &asked, &tools)?;
    Ok(Create { asked, store, background, previous_response_id, conversation, echo, input })
}

fn model(body: &Members<'_>, surface: Surface) -> Result<String, Fault> {
    match body.text("model")? {
        None | Some("") if surface == Surface::Count => Ok(String::new()),
        None | Some(_) => members::model(body),
    }
}

/// A conversation is named by its id, or by an object that holds it.
fn conversation(body: &Members<'_>) -> Result<Option<String>, Fault> {
    let Some(node) = body.get("conversation") else { return Ok(None) };
    let id = if node.value.is_object() { node.members()?.need("id")? } else { node };
    Ok(Some(id.bounded(MAX_LABEL)?.to_owned()))
}

/// Rules of a frame beside those of a body.
fn check_frame(body: &Members<'_>) -> Result<(), Fault> {
    if body.need_text("type")? != "response.create" {
        return Err(body.fault("type", "must be `response.create`, the only frame that a client sends here."));
    }
    if body.flag("background")? == Some(true) {
        let message = "A socket streams its responses: send a background response to POST /v1/responses.";
        return Err(Fault::unsupported("background", message));
    }
    if body.flag("generate")? == Some(false) {
        return Err(Fault::unsupported("generate", "`generate: false` is not supported: send the turn itself."));
    }
    let instead = "a socket has one response in flight; open a further socket.";
    parameters::refuse(body, &[("stream_id", instead)])
}

/// Refuses members that change the answer and have no meaning here.
fn refuse_unsupported(body: &Members<'_>) -> Result<(), Fault> {
    let instead = "stored prompts of another server are not known here; send `instructions` and `input`.";
    parameters::refuse(body, &[("prompt", instead)])?;
    parameters::check_is_one_text(body)
}

fn sampling(body: &Members<'_>, has_tools: bool) -> Result<Sampling, Fault> {
    let names = [TOP_P, ("presence_penalty", PENALTY), ("frequency_penalty", PENALTY)];
    let mut extra = parameters::extra(body, &names)?;
    // Providers refuse the member without tools, and true is their default.
    if body.flag("parallel_tool_calls")? == Some(false) && has_tools {
        extra.insert("parallel_tool_calls".to_owned(), Value::Bool(false));
    }
    let text = body.members("text")?;
    let verbosity = text.map(|text| text.one_of("verbosity", &["low", "medium", "high"])).transpose()?.flatten();
    if let Some(verbosity) = verbosity.filter(|verbosity| *verbosity != "medium") {
        extra.insert("verbosity".to_owned(), json!(verbosity));
    }
    let reasoning = body.members("reasoning")?;
    let effort = reasoning.map(|reasoning| reasoning.read("effort", |node| nearest(&node))).transpose()?.flatten();
    Ok(Sampling {
        temperature: parameters::temperature(body)?,
        max_output_tokens: body.count("max_output_tokens", 1)?,
        effort,
        extra,
    })
}

/// Efforts outside of the three that every provider knows become the nearest of them.
fn nearest(node: &Node<'_>) -> Result<Effort, Fault> {
    let name = parameters::effort(node)?;
    let nearest = if matches!(name, "none" | "minimal") { Effort::Low } else { Effort::High };
    Ok(parameters::known_effort(name).unwrap_or(nearest))
}

#[cfg(test)]
mod tests;
