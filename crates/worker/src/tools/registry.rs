//! The tools a worker has, by name: the built-in ones and those an application registered in Rust.
//!
//! A name means one tool for the life of a worker. Typed tools are erased here and nowhere else.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use longhaul_sdk::{Reconciled, Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec, numbers};
use longhaul_shared::domain::requirements::SEARCH_DATASET;
use serde::de::Error as _;
use serde_json::Value;

use super::{
    fetch_url::{self, FETCH_URL, FetchUrl, FetchUrlSettings},
    schema,
    stop_execution::StopExecution,
};
use crate::agent::host::HostTool;

/// The longest name a model API accepts.
const MAX_NAME: usize = 64;

/// A tool without its argument type: what registries hold and executions call.
#[async_trait]
pub trait AnyTool: Send + Sync {
    /// What the model is shown of it, and its effect.
    fn spec(&self) -> ToolSpec;

    /// Runs one call. `args` is valid against the schema in [`spec`](Self::spec).
    ///
    /// # Errors
    /// What the model should be told, or a failure that ends the run.
    async fn call(&self, args: Value, context: ToolCallContext) -> Result<ToolOutput, ToolFailure>;

    /// Looks up whether a call that was under way when a worker died has taken effect.
    async fn reconcile(&self, _args: Value, _context: ToolCallContext) -> Reconciled {
        Reconciled::Unknown
    }

    /// A call took longer than it may and was given up.
    fn timed_out(&self) {}
}

struct Typed<T> {
    tool: T,
    /// Made once: a schema is a tree of values.
    spec: ToolSpec,
}

impl<T: Tool> Typed<T> {
    fn new(tool: T) -> Self {
        let spec = ToolSpec {
            name: tool.name().into(),
            description: tool.description().into(),
            parameters: schemars::schema_for!(T::Args).to_value(),
            effect: tool.effect(),
            latent_output: None,
            is_strict: false,
        };
        Self { tool, spec }
    }
}

#[async_trait]
impl<T: Tool> AnyTool for Typed<T> {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, args: Value, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        // A pinned schema may be older than this build's argument type, so this can fail after the schema check passed.
        let args = numbers::typed(&args)
            .map_err(|error| ToolFailure::Reported(format!("the arguments do not fit the tool: {error}")))?;
        self.tool.call(args, context).await
    }

    async fn reconcile(&self, args: Value, context: ToolCallContext) -> Reconciled {
        match numbers::typed(&args) {
            Ok(args) => self.tool.reconcile(args, context).await,
            Err(_) => Reconciled::Unknown,
        }
    }
}

/// Makes a tool from the `settings` an agent gave it; null when it gave none. The error says what is wrong with them.
pub type ToolFactory = Box<dyn Fn(&Value) -> Result<Arc<dyn AnyTool>, String> + Send + Sync>;

/// Why a tool could not be registered or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRegistryError {
    /// Two tools of one name.
    #[error("tool `{0}` is registered twice")]
    Duplicate(String),
    /// No model API would accept the name, or it is one that MCP servers use.
    #[error("tool name `{0}` must be 1 to {MAX_NAME} of `a-z A-Z 0-9 _ -` and must not start with `mcp__`")]
    InvalidName(String),
    /// The arguments' JSON Schema is not that of an object, or cannot be compiled.
    #[error("the arguments of tool `{name}` have no usable schema: {reason}")]
    InvalidSchema {
        /// The tool.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The worker has no such tool.
    #[error("tool `{name}` is not registered (registered: {known})")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Every name there is, joined.
        known: String,
    },
    /// The agent's settings for the tool are wrong.
    #[error("settings of tool `{name}`: {reason}")]
    InvalidSettings {
        /// The tool.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// Tools by name.
#[derive(Default)]
pub struct ToolRegistry(BTreeMap<String, ToolFactory>);

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl ToolRegistry {
    /// A registry with the built-in tools. `fetch` holds the worker's defaults for `fetch_url`.
    #[must_use]
    pub fn with_builtin(fetch: FetchUrlSettings) -> Self {
        let mut registry = Self::default();
        let stop: Arc<dyn AnyTool> = Arc::new(Typed::new(StopExecution));
        registry.0.insert(stop.spec().name, without_settings(stop));
        registry.0.insert(
            FETCH_URL.into(),
            Box::new(move |settings| {
                let settings = fetch_url::settings_within(&fetch, settings).map_err(|error| error.to_string())?;
                Ok(Arc::new(Typed::new(FetchUrl::new(settings)?)) as Arc<dyn AnyTool>)
            }),
        );
        registry
    }

    /// Adds a tool that takes no settings.
    ///
    /// # Errors
    /// The name is taken or invalid, or the argument type is not an object.
    pub fn register<T: Tool>(&mut self, tool: T) -> Result<(), ToolRegistryError> {
        let tool: Arc<dyn AnyTool> = Arc::new(Typed::new(tool));
        let spec = tool.spec();
        let usable = schema::describes_object(&spec.parameters).and_then(|()| schema::compile(&spec.parameters));
        if let Err(reason) = usable {
            return Err(ToolRegistryError::InvalidSchema { name: spec.name, reason });
        }
        self.insert(spec.name, without_settings(tool))
    }

    /// Adds a tool that is made anew from each agent's settings. The name of what `make` returns must be `name`.
    ///
    /// # Errors
    /// The name is taken or invalid.
    pub fn register_configurable<T, S>(
        &mut self,
        name: &str,
        make: impl Fn(S) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<(), ToolRegistryError>
    where
        T: Tool,
        S: serde::de::DeserializeOwned,
    {
        let factory: ToolFactory = Box::new(move |settings| {
            let settings = settings_of(settings).map_err(|error| error.to_string())?;
            Ok(Arc::new(Typed::new(make(settings)?)) as Arc<dyn AnyTool>)
        });
        self.insert(name.into(), factory)
    }

    fn insert(&mut self, name: String, factory: ToolFactory) -> Result<(), ToolRegistryError> {
        if !is_valid_name(&name) || name.starts_with("mcp__") {
            return Err(ToolRegistryError::InvalidName(name));
        }
        if self.0.contains_key(&name) || HostTool::named(&name).is_some() || name == SEARCH_DATASET {
            return Err(ToolRegistryError::Duplicate(name));
        }
        self.0.insert(name, factory);
        Ok(())
    }

    /// The tool `name` with an agent's settings; null when there are none.
    ///
    /// # Errors
    /// There is no such tool, or it refuses the settings.
    pub fn resolve(&self, name: &str, settings: &Value) -> Result<Arc<dyn AnyTool>, ToolRegistryError> {
        let Some(factory) = self.0.get(name) else {
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(ToolRegistryError::Unknown { name: name.into(), known });
        };
        let invalid = |reason| ToolRegistryError::InvalidSettings { name: name.into(), reason };
        let tool = factory(settings).map_err(invalid)?;
        let made = tool.spec().name;
        if made == name { Ok(tool) } else { Err(invalid(format!("they make a tool named `{made}`"))) }
    }

    /// Every name, in order: what a worker publishes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Whether an agent or a definition gave no settings.
pub(crate) fn are_none(settings: &Value) -> bool {
    settings.is_null() || settings.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Reads settings; none at all reads like an empty object, so that every field may have its default.
pub(crate) fn settings_of<S: serde::de::DeserializeOwned>(settings: &Value) -> Result<S, serde_json::Error> {
    if are_none(settings) {
        return S::deserialize(Value::Object(serde_json::Map::new()));
    }
    // A struct would also be read from an array.
    if !settings.is_object() {
        return Err(serde_json::Error::custom("expected an object"));
    }
    S::deserialize(settings)
}

fn without_settings(tool: Arc<dyn AnyTool>) -> ToolFactory {
    Box::new(move |settings| if are_none(settings) { Ok(Arc::clone(&tool)) } else { Err("the tool takes none".into()) })
}

/// Whether every supported model API accepts the name.
pub(super) fn is_valid_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::tools::STOP_EXECUTION;

    #[derive(Debug, Deserialize, schemars::JsonSchema)]
    struct NoArgs {}

    struct Named(&'static str);

    #[async_trait]
    impl Tool for Named {
        type Args = NoArgs;

        fn name(&self) -> &str {
            self.0
        }

        fn description(&self) -> &str {
            "d"
        }

        async fn call(&self, _args: NoArgs, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
            Ok(self.0.into())
        }
    }

    struct Positional;

    #[async_trait]
    impl Tool for Positional {
        type Args = Vec<String>;

        fn name(&self) -> &str {
            "positional"
        }

        fn description(&self) -> &str {
            "d"
        }

        async fn call(&self, _args: Vec<String>, _context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
            Ok("".into())
        }
    }

    fn registry() -> ToolRegistry {
        ToolRegistry::with_builtin(FetchUrlSettings::default())
    }

    #[test]
    fn a_name_means_one_tool() {
        let mut registry = registry();
        registry.register(Named("mine")).unwrap();
        assert_eq!(registry.register(Named("mine")), Err(ToolRegistryError::Duplicate("mine".into())));
        assert_eq!(registry.register(Named("fetch_url")), Err(ToolRegistryError::Duplicate("fetch_url".into())));
        assert_eq!(registry.names().collect::<Vec<_>>(), [FETCH_URL, "mine", STOP_EXECUTION]);
    }

    #[test]
    fn names_no_model_api_accepts_are_refused() {
        for bad in [
            "",
            "a b",
            "a.b",
            "ü",
            "mcp__files__read",
            "x23456789x23456789x23456789x23456789x23456789x23456789x23456789xx",
        ] {
            assert_eq!(registry().register(Named(bad)), Err(ToolRegistryError::InvalidName(bad.into())));
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_refused() {
        let error = registry().register(Positional).unwrap_err().to_string();
        assert!(error.contains("`positional`") && error.contains("`array`"), "{error}");
    }

    #[test]
    fn unknown_tools_and_bad_settings_are_specific_errors() {
        let mut registry = registry();
        registry.register_configurable("made", |_: NoArgs| Ok(Named("other"))).unwrap();
        let resolve =
            |name: &str, settings: Value| registry.resolve(name, &settings).err().map(|error| error.to_string());
        let unknown = "tool `nope` is not registered (registered: fetch_url, made, stop_execution)";
        assert_eq!(resolve("nope", Value::Null).as_deref(), Some(unknown));
        let none = "settings of tool `stop_execution`: the tool takes none";
        assert_eq!(resolve("stop_execution", json!({"a": 1})).as_deref(), Some(none));
        assert_eq!(resolve("stop_execution", json!({})), None);
        assert!(resolve("fetch_url", json!({"max_byte": 1})).unwrap().contains("unknown field `max_byte`"));
        assert_eq!(
            resolve("made", Value::Null).as_deref(),
            Some("settings of tool `made`: they make a tool named `other`")
        );
    }
}
