//! Stage two: resolves a planned call against the current state.

use std::borrow::Cow;

use longhaul_domain::{CallError, CallErrorKind};
use serde_json::Value;

use super::{
    condition::Condition,
    expression::Evaluated,
    path::Path,
    plan::{PlannedCall, Template, TemplateSlot},
    source::Source,
    state::StateLog,
};

/// Maximum bytes of a call's arguments after substitution.
const MAX_RESOLVED_BYTES: usize = 8 << 20;

/// Result of resolving a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// The call can start with these arguments. They are a snapshot: later writes do not change them.
    Ready(Resolved),
    /// The call waits for values that do not exist yet.
    Waiting(Vec<Missing>),
    /// The condition does not hold; a later write may change that.
    Unmet {
        /// The condition as the model wrote it.
        condition: String,
    },
    /// The call can never start: a resolved value does not fit. A structural error.
    Invalid(CallError),
}

/// A call with its references replaced by values.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Arguments, valid against the tool's own schema.
    pub arguments: Value,
    /// Result of a latent tool, written by the model.
    pub output: Option<Value>,
    /// Sources of the substituted values.
    pub sources: Vec<Source>,
}

/// A value that a call reads and that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// JSON pointer into the arguments; `/_output…` in a latent tool's result, `/_when` for the condition.
    pub argument: String,
    /// A value at any of these paths satisfies the reference.
    pub any_of: Vec<Path>,
    /// True if the reference also has a literal, used once no path is awaited any more.
    pub has_literal: bool,
}

/// Access of a call to a path, by the rule of program order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The call reads the current value.
    Open,
    /// An earlier call of the reply may still write the path.
    Awaited,
    /// An earlier call of the reply should have written the path and did not.
    Lost,
}

impl PlannedCall {
    /// Resolves the call against `state`. A path without open access counts as missing, so that the call never
    /// reads a value that is about to be replaced; `||` then takes its next operand. A literal operand waits while
    /// the path is awaited.
    pub fn resolve(&self, state: &StateLog, access: &dyn Fn(&Path) -> Access) -> Resolution {
        let is_pending = |path: &Path| access(path) != Access::Open;
        let is_awaited = |path: &Path| access(path) == Access::Awaited;
        let read = |path: &Path| if is_pending(path) { None } else { state.read(path, self.instance()) };
        if let Some(condition) = &self.condition {
            match met(condition, &read, &is_pending) {
                Met::Yes => {}
                Met::No => return Resolution::Unmet { condition: condition.to_string() },
                Met::NotYet(missing) => return Resolution::Waiting(missing),
            }
        }
        // Values are copied only once all exist: a waiting call is resolved again after every event.
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

struct Found<'a> {
    slot: &'a TemplateSlot,
    value: Cow<'a, Value>,
    from: Option<&'a Path>,
}

/// Two functions of a path: its value, and true if it is awaited.
type Reading<'r, 'a> = (&'r dyn Fn(&Path) -> Option<Cow<'a, Value>>, &'r dyn Fn(&Path) -> bool);

/// Evaluates a template's slots; adds those without a value to `missing`.
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

/// The template with values in its slots, and their sources.
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

/// Evaluates a condition. A missing value is false, unless an earlier call may still write it or it is a person's
/// approval: then the condition is not decided yet.
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

/// Bounds the resolved arguments: a short call may refer to one large value many times.
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
