//! Requests: the body of `POST /v1/responses`, of its `compact` and `input_tokens`, and the frame `response.create` of
//! a web socket, each read as a [`Create`]. Unknown members are tolerated, since the wire grows; those that are known
//! and have no meaning here are refused by name if they change the answer.

mod echo;
mod input;
mod members;
mod parts;
mod tools;

use std::collections::BTreeMap;

use longhaul_sdk::spec::Effort;
use serde_json::{Value, json};

use self::members::Members;
use crate::{
    Asked, Fault, ModelName, Sampling,
    members::{METADATA_NAME, METADATA_PAIRS, METADATA_TEXT, MODEL_BYTES},
};

/// Longest identifier that is only repeated, in characters.
const MAX_LABEL: usize = 512;

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
    let value: Value = serde_json::from_slice(body).map_err(|error| Fault {
        param: None,
        code: Some("invalid_json".to_owned()),
        ..Fault::invalid("", format!("The body is not JSON: {error}."))
    })?;
    let body = Members::of(&value, String::new())?;
    members::check_storable(body.map())?;
    refuse_unsupported(&body)?;
    if surface == Surface::Socket {
        check_frame(&body)?;
    }
    let model_text = model(&body, surface)?;
    let Ok(model) = model_text.parse();
    let previous_response_id = body.short_text("previous_response_id", MAX_LABEL)?.map(str::to_owned);
    let conversation = conversation(&body)?;
    if previous_response_id.is_some() && conversation.is_some() {
        let message = "`previous_response_id` and `conversation` exclude each other: send one of them.";
        return Err(Fault::invalid("conversation", message));
    }
    let (items, input) = input::read(&body)?;
    let continues = previous_response_id.is_some() || conversation.is_some();
    if items.is_empty() && !continues && surface != Surface::Count {
        return Err(body.missing("input"));
    }
    let tools = tools::read(&body)?;
    let (choice, offered) = tools::choice(&body, &tools, matches!(model, ModelName::Other(_)))?;
    let store = body.boolean("store")?.unwrap_or(true);
    let background = body.boolean("background")?.unwrap_or(false);
    if background && !store {
        return Err(Fault::invalid("store", "A background response is stored: leave `store: false` out."));
    }
    let sampling = sampling(&body, !offered.is_empty())?;
    let metadata = metadata(&body)?;
    let stream = body.boolean("stream")?.unwrap_or(false) || surface == Surface::Socket;
    let asked = Asked {
        model,
        model_text: model_text.to_owned(),
        instructions: body.text("instructions")?.map(str::to_owned),
        items,
        tools: offered,
        choice,
        format: tools::format(&body)?,
        sampling,
        stream,
        max_tool_calls: body.count("max_tool_calls", 1..=u32::MAX)?,
        metadata,
    };
    let echo = echo::of(&body, &asked, &tools)?;
    Ok(Create { asked, store, background, previous_response_id, conversation, echo, input })
}

fn model<'a>(body: &Members<'a>, surface: Surface) -> Result<&'a str, Fault> {
    match body.short_text("model", MODEL_BYTES)?.filter(|text| !text.is_empty()) {
        Some(text) => Ok(text),
        None if surface == Surface::Count => Ok(""),
        None => Err(body.missing("model")),
    }
}

/// A conversation is named by its id, or by an object that holds it.
fn conversation(body: &Members<'_>) -> Result<Option<String>, Fault> {
    if let Some(Value::Object(_)) = body.get("conversation") {
        let Some(object) = body.object("conversation")? else { return Ok(None) };
        let id = object.short_text("id", MAX_LABEL)?.ok_or_else(|| object.missing("id"))?;
        return Ok(Some(id.to_owned()));
    }
    Ok(body.short_text("conversation", MAX_LABEL)?.map(str::to_owned))
}

/// Rules of a frame beside those of a body.
fn check_frame(body: &Members<'_>) -> Result<(), Fault> {
    if body.required_text("type")? != "response.create" {
        return Err(Fault::invalid("type", "The only frame that a client sends here is `response.create`."));
    }
    if body.boolean("background")? == Some(true) {
        let message = "A socket streams its responses: send a background response to POST /v1/responses.";
        return Err(Fault::unsupported("background", message));
    }
    if body.boolean("generate")? == Some(false) {
        return Err(Fault::unsupported("generate", "`generate: false` is not supported: send the turn itself."));
    }
    if body.get("stream_id").is_some() {
        let message = "A socket has one response in flight: open a further socket instead of sending `stream_id`.";
        return Err(Fault::unsupported("stream_id", message));
    }
    Ok(())
}

/// Refuses members that change the answer and have no meaning here.
fn refuse_unsupported(body: &Members<'_>) -> Result<(), Fault> {
    const REFUSED: [(&str, &str); 4] = [
        ("prompt", "Stored prompts of another server are not known here: send `instructions` and `input`."),
        ("moderation", "`moderation` is not supported: call a moderation endpoint beside this one."),
        ("modalities", "Answers are text: leave `modalities` out."),
        ("audio", "Answers are text: leave `audio` out."),
    ];
    for (name, message) in REFUSED {
        let is_default = name == "modalities" && body.get(name) == Some(&json!(["text"]));
        if body.get(name).is_some() && !is_default {
            return Err(Fault::unsupported(name, message));
        }
    }
    if body.count("n", 1..=128)?.unwrap_or(1) > 1 {
        return Err(Fault::unsupported("n", "A response is one answer: send `n` requests."));
    }
    let probabilities = body.count("top_logprobs", 0..=20)?.unwrap_or(0) > 0;
    if probabilities {
        return Err(Fault::unsupported(
            "top_logprobs",
            "Log probabilities are not recorded: leave `top_logprobs` out.",
        ));
    }
    if body.get("logprobs").is_some_and(|value| *value != Value::Bool(false)) {
        return Err(Fault::unsupported("logprobs", "Log probabilities are not recorded: leave `logprobs` out."));
    }
    Ok(())
}

fn sampling(body: &Members<'_>, has_tools: bool) -> Result<Sampling, Fault> {
    let mut extra = BTreeMap::new();
    for (name, range) in [("top_p", 0.0..=1.0), ("presence_penalty", -2.0..=2.0), ("frequency_penalty", -2.0..=2.0)] {
        if body.number(name, range)?.is_some() {
            extra.extend(body.get(name).map(|value| (name.to_owned(), value.clone())));
        }
    }
    // Providers refuse the member without tools, and true is their default.
    if body.boolean("parallel_tool_calls")? == Some(false) && has_tools {
        extra.insert("parallel_tool_calls".to_owned(), Value::Bool(false));
    }
    let text = body.object("text")?;
    let verbosity = text.map(|text| text.one_of("verbosity", &["low", "medium", "high"])).transpose()?.flatten();
    if let Some(verbosity) = verbosity.filter(|verbosity| *verbosity != "medium") {
        extra.insert("verbosity".to_owned(), json!(verbosity));
    }
    Ok(Sampling {
        temperature: body.number("temperature", 0.0..=2.0)?,
        max_output_tokens: body.count("max_output_tokens", 1..=u32::MAX)?,
        effort: effort(body)?,
        extra,
    })
}

/// Efforts outside of the three that every provider knows become the nearest of them.
fn effort(body: &Members<'_>) -> Result<Option<Effort>, Fault> {
    const KNOWN: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    let Some(reasoning) = body.object("reasoning")? else { return Ok(None) };
    Ok(reasoning.one_of("effort", &KNOWN)?.map(|effort| match effort {
        "none" | "minimal" | "low" => Effort::Low,
        "medium" => Effort::Medium,
        _ => Effort::High,
    }))
}

fn metadata(body: &Members<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let Some(object) = body.object("metadata")? else { return Ok(BTreeMap::new()) };
    if object.map().len() > METADATA_PAIRS {
        return Err(Fault::invalid("metadata", format!("`metadata` has more than {METADATA_PAIRS} pairs.")));
    }
    let mut metadata = BTreeMap::new();
    for name in object.map().keys() {
        if name.chars().nth(METADATA_NAME).is_some() {
            let message = format!("A key of `metadata` is longer than {METADATA_NAME} characters.");
            return Err(Fault::invalid("metadata", message));
        }
        let text = object.short_text(name, METADATA_TEXT)?.ok_or_else(|| object.missing(name))?;
        metadata.insert(name.clone(), text.to_owned());
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests;
