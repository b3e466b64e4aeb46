//! What a planned call comes to against the state of this moment.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use super::{
    condition::Condition,
    expression::Evaluated,
    path::Path,
    plan::{PlannedCall, Slot, Template},
    state::StateLog,
};
use crate::tools::{CallError, CallErrorKind};

/// Bytes of a call's arguments once values stand in for its references.
const MAX_RESOLVED_BYTES: usize = 8 << 20;

/// Whether a call can start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Resolution {
    /// Now, with these arguments. They are a snapshot: what is written later does not change them.
    Ready(Resolved),
    /// Not before what it reads is there.
    Waiting(Vec<Missing>),
    /// Its condition does not hold; a later write may change that.
    Held {
        /// As the model wrote it.
        condition: String,
    },
    /// Never: what it reads does not fit. Structural.
    Invalid(CallError),
}

/// A call with values in the place of references.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    /// Valid against the tool's own schema.
    pub(crate) arguments: Value,
    /// What the model wrote as the result of a latent tool.
    pub(crate) output: Option<Value>,
    /// Where the values came from.
    pub(crate) sources: Vec<Source>,
}

/// An argument whose value was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// JSON pointer into the arguments.
    pub(crate) argument: String,
    /// The expression, canonical.
    pub(crate) expression: String,
    /// The path whose value it was; `None` for a literal alternative.
    pub(crate) path: Option<Path>,
}

/// Something a call reads that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    /// JSON pointer into the arguments; `/_output…` in a latent tool's result, `/_when` for the condition.
    pub(crate) argument: String,
    /// Any one of these would do.
    pub(crate) any_of: Vec<Path>,
    /// There is a literal for the case that none of them comes.
    pub(crate) has_literal: bool,
}

/// Whether a call may read a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads what is there.
    Open,
    /// Not yet: an earlier call of the reply may still write it.
    Awaited,
    /// Not any more: an earlier call of the reply should have written it and did not.
    Lost,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => path.fmt(f),
            None => f.write_str(&self.expression),
        }
    }
}

impl PlannedCall {
    /// Resolves the call against `state`. A path that is not open counts as not there, so that nobody reads what is
    /// about to be replaced, and `||` takes its other side; a literal on that side waits while the path is awaited.
    pub(crate) fn resolve(&self, state: &StateLog, access: &dyn Fn(&Path) -> Access) -> Resolution {
        let is_pending = |path: &Path| access(path) != Access::Open;
        let is_awaited = |path: &Path| access(path) == Access::Awaited;
        let read = |path: &Path| if is_pending(path) { None } else { state.read(path, self.instance()) };
        if let Some(condition) = &self.condition {
            match met(condition, &read, &is_pending) {
                Met::Yes => {}
                Met::No => return Resolution::Held { condition: condition.to_string() },
                Met::NotYet(missing) => return Resolution::Waiting(missing),
            }
        }
        // Values are copied when all are there: a call that waits is looked at again whenever something happens.
        let mut missing = Vec::new();
        let arguments = found(&self.arguments, "", (&read, &is_awaited), &mut missing);
        let output =
            self.output.as_ref().map(|output| (output, found(output, "/_output", (&read, &is_awaited), &mut missing)));
        if !missing.is_empty() {
            return Resolution::Waiting(missing);
        }
        let (mut arguments, sources) = fill(&self.arguments, arguments);
        let mut output = output.map(|(template, found)| fill(template, found));
        let checked = check_size(&arguments, &sources).and_then(|()| self.signature.check(&mut arguments, &sources));
        let checked = checked.and_then(|()| match &mut output {
            None => Ok(()),
            Some((output, sources)) => self.signature.check_output(output, sources),
        });
        match (checked, output) {
            (Err(error), _) => Resolution::Invalid(error),
            (Ok(()), None) => Resolution::Ready(Resolved { arguments, output: None, sources }),
            (Ok(()), Some((output, of_output))) => {
                let labelled = |source: Source| Source { argument: format!("/_output{}", source.argument), ..source };
                let sources = sources.into_iter().chain(of_output.into_iter().map(labelled)).collect();
                Resolution::Ready(Resolved { arguments, output: Some(output), sources })
            }
        }
    }
}

/// A slot with the value that goes there.
struct Found<'a> {
    slot: &'a Slot,
    value: Cow<'a, Value>,
    from: Option<&'a Path>,
}

/// What a path reads, and whether it is awaited.
type Reading<'r, 'a> = (&'r dyn Fn(&Path) -> Option<Cow<'a, Value>>, &'r dyn Fn(&Path) -> bool);

/// The values of a template's slots; what is not there goes to `missing`.
fn found<'a>(
    template: &'a Template,
    label: &str,
    (read, is_awaited): Reading<'_, 'a>,
    missing: &mut Vec<Missing>,
) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for slot in &template.slots {
        match slot.expression.evaluate(read, is_awaited) {
            Evaluated::Value { value, from } => found.push(Found { slot, value, from }),
            Evaluated::Missing(groups) => {
                let argument = format!("{label}{}", slot.pointer);
                missing.extend(groups.into_iter().map(|group| Missing {
                    argument: argument.clone(),
                    any_of: group.any_of,
                    has_literal: group.has_literal,
                }));
            }
        }
    }
    found
}

/// The template with values in its slots, and where they came from.
fn fill(template: &Template, found: Vec<Found<'_>>) -> (Value, Vec<Source>) {
    let mut filled = template.value.clone();
    let mut sources = Vec::new();
    for Found { slot, value, from } in found {
        if let Some(place) = filled.pointer_mut(&slot.pointer) {
            *place = value.into_owned();
        }
        let (argument, expression) = (slot.pointer.clone(), slot.expression.to_string());
        sources.push(Source { argument, expression, path: from.cloned() });
    }
    (filled, sources)
}

enum Met {
    Yes,
    No,
    NotYet(Vec<Missing>),
}

/// Whether a condition holds. What does not exist is false, except for what an earlier call may still write and for a person's
/// approval: those are waited for.
fn met<'a>(
    condition: &'a Condition,
    read: &dyn Fn(&Path) -> Option<Cow<'a, Value>>,
    is_pending: &dyn Fn(&Path) -> bool,
) -> Met {
    let mut missing = Vec::new();
    let holds = condition.holds(&mut |path| {
        let value = read(path);
        if value.is_none() && (is_pending(path) || path.is_approval()) {
            let any_of = vec![path.clone()];
            missing.push(Missing { argument: "/_when".to_owned(), any_of, has_literal: false });
        }
        value
    });
    match (missing, holds) {
        (missing, _) if !missing.is_empty() => Met::NotYet(missing),
        (_, true) => Met::Yes,
        (_, false) => Met::No,
    }
}

/// References multiply values: a short call may name a large one many times.
fn check_size(arguments: &Value, sources: &[Source]) -> Result<(), CallError> {
    if sources.is_empty() {
        return Ok(());
    }
    let bytes = super::state::size(arguments);
    if bytes <= MAX_RESOLVED_BYTES {
        return Ok(());
    }
    let message = format!("the arguments have {bytes} bytes with their references; they may have {MAX_RESOLVED_BYTES}");
    Err(CallError::new(CallErrorKind::Structural, message))
}
