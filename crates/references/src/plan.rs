//! Stage one: parses a call as the model wrote it into arguments, references and meta properties.

use std::{collections::BTreeSet, sync::Arc};

use longhaul_domain::{CallError, CallErrorKind, ToolCall};
use longhaul_sdk::{json_pointer::token, numbers, spec::Detached};
use serde_json::{Map, Value, json};

use super::{
    condition::Condition,
    expression::{InputExpression, OutputExpression},
    fold::Method,
    instance::Instance,
    path::{Kind, Path},
    signature::{Meta, Signature},
    syntax::DAGGER,
};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template {
    pub(super) value: Value,
    pub(super) slots: Vec<TemplateSlot>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateSlot {
    /// JSON pointer to where the value goes.
    pub(super) pointer: String,
    pub(super) expression: InputExpression,
}

/// A parsed call whose literal arguments fit the tool's schema.
#[derive(Debug, Clone)]
pub struct PlannedCall {
    pub(super) signature: Arc<Signature>,
    pub(super) arguments: Template,
    pub(super) output: Option<Template>,
    pub(super) condition: Option<Condition>,
    destination: Option<OutputExpression>,
    method: Method,
    instance: Option<Instance>,
    is_detached: bool,
}

impl PlannedCall {
    /// Parses a call of the tool that `signature` describes.
    ///
    /// # Errors
    /// A structural error: arguments that are not JSON or violate the schema, a reference or condition that does
    /// not parse, or a path that cannot be written.
    pub fn read(call: &ToolCall, signature: &Arc<Signature>) -> Result<Self, CallError> {
        let mut arguments: Value = if call.arguments.trim().is_empty() {
            json!({})
        } else {
            serde_json::from_str(&call.arguments)
                .map_err(|error| structural(format!("the arguments are not valid JSON: {error}")))?
        };
        numbers::check(&arguments).map_err(|error| structural(error.with_path()))?;
        let metas = match arguments.as_object_mut() {
            Some(members) => Metas::take(members, signature)?,
            None => Metas::default(),
        };
        let mut arguments = Template::scan(arguments, "", signature)?;
        let slots: Vec<&str> = arguments.slots.iter().map(|slot| slot.pointer.as_str()).collect();
        signature.check_written(&mut arguments.value, &slots)?;
        let output = metas.output.map(|output| Template::scan(output, "/_output", signature)).transpose()?;
        if let Some(output) = &output {
            let slots: Vec<&str> = output.slots.iter().map(|slot| slot.pointer.as_str()).collect();
            signature.check_written_output(&output.value, &slots)?;
        }
        let is_detached = match signature.features.detached {
            Detached::Never => false,
            Detached::Allowed => metas.is_detached,
            Detached::Always => true,
        };
        if is_detached && metas.destination.is_some() {
            let reason = "a detached call is not waited for, so its result cannot go to an `_outputPath`";
            return Err(structural(reason));
        }
        Ok(Self {
            signature: Arc::clone(signature),
            arguments,
            output,
            condition: metas.condition,
            destination: metas.destination,
            method: metas.method,
            instance: metas.instance,
            is_detached,
        })
    }

    /// Every path that the call may read: in its arguments, its written result and its condition.
    pub fn reads(&self) -> BTreeSet<&Path> {
        let slots = self.arguments.slots.iter().chain(self.output.iter().flat_map(|output| &output.slots));
        let condition = self.condition.iter().flat_map(Condition::paths);
        slots.flat_map(|slot| slot.expression.paths()).chain(condition).collect()
    }

    /// Every path that its result may go to.
    pub fn writes(&self) -> BTreeSet<&Path> {
        self.destination.iter().flat_map(OutputExpression::paths).collect()
    }

    /// True if a `reader` of `path` later in the reply must wait for this call until it ends (the rule of program
    /// order).
    pub fn may_write(&self, path: &Path, reader: Option<&Instance>) -> bool {
        let is_seen = self.instance.is_none() || self.instance.as_ref() == reader;
        is_seen && !self.is_deferred() && self.writes().iter().any(|written| written.is_above_or_below(path))
    }

    /// Where the result goes, before one alternative of each group is chosen.
    pub fn destination(&self) -> Option<&OutputExpression> {
        self.destination.as_ref()
    }

    /// The way in which the result is merged into its destination.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Instance whose input and state the call uses.
    pub fn instance(&self) -> Option<&Instance> {
        self.instance.as_ref()
    }

    /// True if no call waits for the result.
    pub fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// True if no code runs for the call: the model writes its result.
    pub fn is_latent(&self) -> bool {
        self.signature.is_latent
    }

    /// True for a latent call without a result: the model deferred it.
    pub(crate) fn is_deferred(&self) -> bool {
        self.signature.is_latent && self.output.is_none()
    }
}

/// Meta properties: the members of a call's arguments that are not the tool's.
#[derive(Debug, Default)]
struct Metas {
    destination: Option<OutputExpression>,
    method: Method,
    condition: Option<Condition>,
    instance: Option<Instance>,
    is_detached: bool,
    output: Option<Value>,
}

impl Metas {
    /// Removes the meta properties from the arguments. Null means absent.
    fn take(members: &mut Map<String, Value>, signature: &Signature) -> Result<Self, CallError> {
        for meta in &signature.refused {
            match members.remove(meta.name()) {
                None | Some(Value::Null) => {}
                Some(_) => return Err(structural(format!("`{}` cannot be used with this tool", meta.name()))),
            }
        }
        let mut metas = Self::default();
        for meta in &signature.offered {
            let Some(value) = members.remove(meta.name()).filter(|value| !value.is_null()) else { continue };
            metas.set(*meta, value, signature).map_err(|reason| structural(format!("`{}`: {reason}", meta.name())))?;
        }
        Ok(metas)
    }

    fn set(&mut self, meta: Meta, value: Value, signature: &Signature) -> Result<(), String> {
        match meta {
            Meta::OutputPath => self.destination = Some(destination(&value)?),
            Meta::OutputMethod => self.method = method(&value)?,
            Meta::When => self.condition = Some(condition(&value)?),
            Meta::Instance => {
                let number = value.as_u64().map(|number| number.to_string());
                let Some(token) = value.as_str().or(number.as_deref()) else {
                    return Err(format!("expected a token such as \"①\", found {}", shape(&value)));
                };
                self.instance = Some(signature.features.instances.named(token)?);
            }
            Meta::Detached => match value.as_bool() {
                Some(is_detached) => self.is_detached = is_detached,
                None => return Err(format!("expected true or false, found {}", shape(&value))),
            },
            Meta::Output => self.output = Some(value),
        }
        Ok(())
    }
}

fn destination(value: &Value) -> Result<OutputExpression, String> {
    let Some(text) = value.as_str().or_else(|| reference_object(value)) else {
        return Err(format!("expected a path such as \"{DAGGER}state.x\", found {}", shape(value)));
    };
    let expression = OutputExpression::parse(text, true).map_err(|error| error.to_string())?;
    expression.paths().try_for_each(Path::check_writable)?;
    Ok(expression)
}

fn method(value: &Value) -> Result<Method, String> {
    let named = value.as_str().and_then(|name| Method::ALL.into_iter().find(|method| method.as_str() == name));
    named.ok_or_else(|| {
        format!("expected one of {}, found {value}", Method::ALL.map(|method| method.as_str()).join(", "))
    })
}

fn condition(value: &Value) -> Result<Condition, String> {
    let constant = value.as_bool().map(|holds| holds.to_string());
    let Some(text) = value.as_str().or(constant.as_deref()) else {
        return Err(format!("expected a condition such as \"{DAGGER}state.x > 1\", found {}", shape(value)));
    };
    Condition::parse(text).map_err(|error| error.to_string())
}

impl Template {
    /// Collects the references in `value`, which the model wrote, and replaces `††` by `†`.
    fn scan(mut value: Value, label: &str, signature: &Signature) -> Result<Self, CallError> {
        let mut slots = Vec::new();
        if signature.features.references {
            let is_whole = !label.is_empty();
            scan(&mut value, &mut String::new(), &mut slots, is_whole)
                .map_err(|(pointer, reason)| structural(format!("at {label}{pointer}: {reason}")))?;
        }
        Ok(Self { value, slots })
    }
}

/// Walks a value. A text or a `$ref` object is either a reference as a whole or none. `may_be_reference` is false
/// for the top-level object of arguments, which is never a reference.
fn scan(
    value: &mut Value,
    pointer: &mut String,
    slots: &mut Vec<TemplateSlot>,
    may_be_reference: bool,
) -> Result<(), (String, String)> {
    if let Some(text) = reference_object(value).filter(|_| may_be_reference) {
        let expression = InputExpression::parse(text, true).map_err(|error| (pointer.clone(), error.to_string()))?;
        slots.push(TemplateSlot { pointer: pointer.clone(), expression });
        return Ok(());
    }
    let length = pointer.len();
    match value {
        Value::String(text) if text.contains(DAGGER) => match undoubled(text) {
            Some(literal) => *text = literal,
            None => {
                let expression = InputExpression::parse(text.trim(), false).map_err(|error| {
                    let hint =
                        format!("for a {DAGGER} that is plain text, write every one of the text as {DAGGER}{DAGGER}");
                    (pointer.clone(), format!("{error}; {hint}"))
                })?;
                slots.push(TemplateSlot { pointer: pointer.clone(), expression });
            }
        },
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                pointer.push_str(&format!("/{at}"));
                scan(item, pointer, slots, true)?;
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                pointer.push_str(&format!("/{}", token(name)));
                scan(member, pointer, slots, true)?;
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// The text of `{"$ref": "state.x"}`. A `$ref` of a JSON Schema does not start with one of our kinds.
fn reference_object(value: &Value) -> Option<&str> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let text = members.get("$ref")?.as_str()?;
    let bare = text.trim_start().trim_start_matches(DAGGER);
    let rest = Kind::ALL.into_iter().find_map(|kind| bare.strip_prefix(kind.as_str()))?;
    let is_ours = rest.is_empty() || rest.starts_with(['.', '[', ' ', '|', '&', '<', '*']);
    is_ours.then_some(text)
}

/// The text with every `††` replaced by `†`; `None` if it contains a single dagger.
fn undoubled(text: &str) -> Option<String> {
    let mut literal = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        literal.push(c);
        if c == DAGGER && chars.next() != Some(DAGGER) {
            return None;
        }
    }
    Some(literal)
}

fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn structural(message: impl Into<String>) -> CallError {
    CallError::new(CallErrorKind::Structural, message)
}
