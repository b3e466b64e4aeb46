//! Compiled signature of a tool: its schemas and the meta properties that the agent allows in its calls.

use jsonschema::error::ValidationErrorKind;
use longhaul_domain::{CallError, CallErrorKind};
use longhaul_guards::json_schema::{
    Listing, Schema, SchemaCache,
    report::{self, Violations},
};
use longhaul_sdk::{AgentConfig, ToolSpec, json_pointer, spec::Detached};
use serde_json::{Value, json};

use super::{instance::Instances, source::Source};

/// Features that the calls of one tool may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// Arguments may be references.
    pub references: bool,
    /// Results may be written to paths.
    pub destinations: bool,
    /// Calls may carry conditions.
    pub conditions: bool,
    /// Calls may name an instance.
    pub instances: Instances,
    pub detached: Detached,
    /// Schemas are shown in the strict form if they have one.
    pub strict: bool,
}

impl Features {
    /// Features that the agent's settings allow for `tool`.
    pub fn of(config: &AgentConfig, tool: &str, input: &Value) -> Self {
        let detached = config.call_settings(tool).detached;
        let on = config.references;
        Self {
            references: on,
            // No call waits for the result, so it cannot be written to a path.
            destinations: on && detached != Detached::Always,
            conditions: on && config.conditions,
            instances: if on { Instances::of(config.instances.as_ref(), input) } else { Instances::Off },
            detached,
            strict: config.model.strict_tools,
        }
    }

    /// Features of the reserved tool that takes the final output: references, but no meta properties.
    pub fn of_output(config: &AgentConfig) -> Self {
        Self { references: config.references, strict: config.model.strict_tools, ..Self::default() }
    }
}

/// A property that belongs to the call and not to the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meta {
    OutputPath,
    OutputMethod,
    When,
    Instance,
    Detached,
    Output,
}

impl Meta {
    pub(super) const ALL: [Self; 6] =
        [Self::OutputPath, Self::OutputMethod, Self::When, Self::Instance, Self::Detached, Self::Output];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OutputPath => "_outputPath",
            Self::OutputMethod => "_outputMethod",
            Self::When => "_when",
            Self::Instance => "_instance",
            Self::Detached => "_detached",
            Self::Output => "_output",
        }
    }

    /// True if calls of `spec` may use the property. A tool's own property of the same name stays the tool's.
    pub(super) fn is_offered(self, spec: &ToolSpec, features: &Features) -> bool {
        let is_on = match self {
            Self::OutputPath | Self::OutputMethod => features.destinations,
            Self::When => features.conditions,
            Self::Instance => features.instances != Instances::Off,
            Self::Detached => features.detached == Detached::Allowed,
            Self::Output => spec.latent_output.is_some(),
        };
        is_on && !self.is_own_property(spec)
    }

    fn is_own_property(self, spec: &ToolSpec) -> bool {
        spec.parameters.get("properties").is_some_and(|properties| properties.get(self.name()).is_some())
    }
}

/// A tool's schemas, compiled once per tool and execution.
#[derive(Debug)]
pub struct Signature {
    pub(super) features: Features,
    pub(super) offered: Vec<Meta>,
    /// Meta properties that are not allowed: a call that uses one is refused.
    pub(super) refused: Vec<Meta>,
    pub(super) is_latent: bool,
    arguments: Schema,
    output: Option<Schema>,
}

impl Signature {
    /// Compiles the schemas of `spec`.
    ///
    /// # Errors
    /// If a schema is invalid.
    pub fn new(spec: &ToolSpec, features: Features, schemas: &SchemaCache) -> Result<Self, String> {
        let (offered, others): (Vec<_>, Vec<_>) =
            Meta::ALL.into_iter().partition(|meta| meta.is_offered(spec, &features));
        // Without references, underscore names belong to the tool's arguments.
        let is_refused = |meta: &Meta| features.references && !meta.is_own_property(spec);
        Ok(Self {
            features,
            offered,
            refused: others.into_iter().filter(is_refused).collect(),
            is_latent: spec.latent_output.is_some(),
            arguments: schemas.get(&spec.parameters)?,
            output: spec.latent_output.as_ref().map(|schema| schemas.get(schema)).transpose()?,
        })
    }

    /// Stage two: checks the arguments after substitution against the tool's own schema. Converts a substituted
    /// number or boolean to text if only a text fits.
    ///
    /// # Errors
    /// A structural error that names the source path of a bad value.
    pub(super) fn check(&self, arguments: &mut Value, sources: &[Source]) -> Result<(), CallError> {
        fit(&self.arguments, arguments, sources)
            .map_err(|found| unfit("the arguments do not fit the tool's schema", &found, sources))
    }

    /// Stage two for the result of a latent tool.
    ///
    /// # Errors
    /// A structural error that names the source path of a bad value.
    pub(super) fn check_output(&self, output: &mut Value, sources: &[Source]) -> Result<(), CallError> {
        let Some(validator) = &self.output else { return Ok(()) };
        fit(validator, output, sources)
            .map_err(|found| unfit("`_output` does not fit the tool's output schema", &found, sources))
    }

    /// Stage one: checks everything except the values that references at `slots` stand for. Removes a null that the
    /// schema refuses if the call is valid without the property.
    pub(super) fn check_written(&self, arguments: &mut Value, slots: &[&str]) -> Result<(), CallError> {
        let Some(found) = around(&self.arguments, arguments, slots) else { return Ok(()) };
        let mut without = arguments.clone();
        for violation in &found.listed {
            remove_null(&mut without, &violation.path);
        }
        if around(&self.arguments, &without, slots).is_none() {
            *arguments = without;
            return Ok(());
        }
        Err(unfit("the arguments do not fit the tool's schema", &found, &[]))
    }

    /// Stage one for the result of a latent tool.
    pub(super) fn check_written_output(&self, output: &Value, slots: &[&str]) -> Result<(), CallError> {
        match self.output.as_ref().and_then(|validator| around(validator, output, slots)) {
            None => Ok(()),
            Some(found) => Err(unfit("`_output` does not fit the tool's output schema", &found, &[])),
        }
    }
}

/// Checks `value`. Converts a substituted number or boolean to text if only a text fits: tools answer with text,
/// and an order id may look like a number.
fn fit(schema: &Schema, value: &mut Value, sources: &[Source]) -> Result<(), Violations> {
    let Some(found) = report::violations(schema, value) else { return Ok(()) };
    let paths = schema.check_briefly(value, |errors| -> Vec<String> {
        errors.map(|error| error.instance_path().to_string()).collect()
    });
    let Ok(Some(Listing::Whole(paths))) = paths else { return Err(found) };
    let mut candidate = value.clone();
    for path in paths {
        let was_read = sources.iter().any(|source| is_at_or_below(&path, &source.argument));
        if let Some(place @ (Value::Number(_) | Value::Bool(_))) = candidate.pointer_mut(&path).filter(|_| was_read) {
            *place = Value::String(place.to_string());
        }
    }
    if report::violations(schema, &candidate).is_some() {
        return Err(found);
    }
    *value = candidate;
    Ok(())
}

/// Violations that no values at `slots` can cure.
fn around(validator: &Schema, value: &Value, slots: &[&str]) -> Option<Violations> {
    report::violations_that(validator, value, |path, kind| {
        let is_inside = slots.iter().any(|slot| is_at_or_below(path, slot));
        let is_around = slots.iter().any(|slot| is_at_or_below(slot, path));
        !is_inside && (!is_around || is_about_the_container(kind))
    })
}

/// True if the violation is about an object or list itself and not about its members.
fn is_about_the_container(kind: &ValidationErrorKind) -> bool {
    matches!(
        kind,
        ValidationErrorKind::Type { .. }
            | ValidationErrorKind::Required { .. }
            | ValidationErrorKind::AdditionalProperties { .. }
            | ValidationErrorKind::PropertyNames { .. }
            | ValidationErrorKind::MinItems { .. }
            | ValidationErrorKind::MaxItems { .. }
            | ValidationErrorKind::MinProperties { .. }
            | ValidationErrorKind::MaxProperties { .. }
    )
}

/// True if the JSON pointer `path` equals `at` or is below it.
pub(super) fn is_at_or_below(path: &str, at: &str) -> bool {
    path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn remove_null(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let name = json_pointer::name(name);
    if let Some(members) = value.pointer_mut(parent).and_then(Value::as_object_mut)
        && members.get(name.as_ref()) == Some(&Value::Null)
    {
        members.remove(name.as_ref());
    }
}

fn unfit(message: &str, found: &Violations, sources: &[Source]) -> CallError {
    let mut blamed = Vec::new();
    let violations = found.listed.iter().map(|violation| {
        let mut told = json!({ "path": violation.path, "message": violation.message });
        let source = sources.iter().find(|source| is_at_or_below(&violation.path, &source.argument));
        if let Some(source) = source {
            told["source"] = json!(source.to_string());
            blamed.push(source.to_string());
        }
        told
    });
    let details = json!({ "violations": violations.collect::<Vec<_>>(), "more_violations": found.more });
    let message = match blamed.first() {
        None => message.to_owned(),
        Some(source) => format!("{message}: the value from {source} is not of the type that is needed here"),
    };
    CallError::new(CallErrorKind::Structural, message).with_details(details)
}
