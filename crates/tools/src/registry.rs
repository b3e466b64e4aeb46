//! The tools of a worker, by name: built-in ones and those that an application registers in Rust.
//!
//! A name denotes one tool for the life of a worker. Typed tools are erased in this file only.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use longhaul_domain::requirements::{SEARCH_DATASET, WEB_SEARCH};
use longhaul_guards::json_schema::report;
use longhaul_sdk::{Reconciled, Tool, ToolCallContext, ToolFailure, ToolOutput, ToolSpec, numbers};
use serde_json::Value;

use super::{
    any_tool::AnyTool,
    fetch_url::{self, FETCH_URL, FetchUrl, FetchUrlSettings},
    settings::{are_none, settings_of},
    stop_execution::StopExecution,
    tool_name::{MAX_NAME, is_valid_name},
    web_search::WebSearch,
};
use crate::{host::HostTool, serial::SerialTool};

struct Typed<T> {
    tool: T,
    /// Built once, because a schema is a tree of allocated values.
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
            mended: None,
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
        // An execution's pinned schema may be older than this build's argument type, so this can fail after the
        // schema check.
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

/// Builds a tool from an agent's `settings`, null if it has none. The error says why they are invalid.
pub type ToolFactory = Box<dyn Fn(&Value) -> Result<Arc<dyn AnyTool>, String> + Send + Sync>;

/// Errors of registering or resolving a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRegistryError {
    /// Two tools have the same name.
    #[error("tool `{0}` is registered twice")]
    Duplicate(String),
    /// The name is malformed, or has the prefix reserved for MCP servers.
    #[error("tool name `{0}` must be 1 to {MAX_NAME} of `a-z A-Z 0-9 _ -` and must not start with `mcp__`")]
    InvalidName(String),
    /// The arguments' JSON Schema does not describe an object, or does not compile.
    #[error("the arguments of tool `{name}` have no usable schema: {reason}")]
    InvalidSchema {
        name: String,
        /// The defect of the schema.
        reason: String,
    },
    /// The worker has no tool of this name.
    #[error("tool `{name}` is not registered (registered: {known})")]
    Unknown {
        name: String,
        /// All registered names, joined by commas.
        known: String,
    },
    /// The agent's settings for the tool are invalid.
    #[error("settings of tool `{name}`: {reason}")]
    InvalidSettings {
        name: String,
        /// The defect of the settings.
        reason: String,
    },
}

/// Tools without a server, by name; one per worker.
#[derive(Default)]
pub struct ToolRegistry(BTreeMap<String, ToolFactory>);

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl ToolRegistry {
    /// Returns a registry of the built-in tools. `fetch` holds the worker's limits for `fetch_url`.
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

    /// Adds the built-in tool `web_search`, which needs a search service.
    pub fn add_web_search(&mut self, tool: WebSearch) {
        self.0.insert(WEB_SEARCH.into(), without_settings(Arc::new(Typed::new(tool))));
    }

    /// Adds a tool without settings.
    ///
    /// # Errors
    /// The name is taken or invalid, or the argument type is not an object.
    pub fn register<T: Tool>(&mut self, tool: T) -> Result<(), ToolRegistryError> {
        let tool: Arc<dyn AnyTool> = Arc::new(Typed::new(tool));
        let spec = tool.spec();
        let usable = report::describes_object(&spec.parameters).and_then(|()| report::compile(&spec.parameters));
        if let Err(reason) = usable {
            return Err(ToolRegistryError::InvalidSchema { name: spec.name, reason });
        }
        self.insert(spec.name, without_settings(tool))
    }

    /// Adds a tool that is built from each agent's settings. The tool built by `make` must be named `name`.
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
        let is_ours = HostTool::named(&name).is_some() || SerialTool::named(&name).is_some();
        if self.0.contains_key(&name) || is_ours || [SEARCH_DATASET, WEB_SEARCH].contains(&name.as_str()) {
            return Err(ToolRegistryError::Duplicate(name));
        }
        self.0.insert(name, factory);
        Ok(())
    }

    /// Returns the tool `name` with an agent's settings, null if there are none.
    ///
    /// # Errors
    /// The tool does not exist or rejects the settings.
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

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn without_settings(tool: Arc<dyn AnyTool>) -> ToolFactory {
    Box::new(move |settings| if are_none(settings) { Ok(Arc::clone(&tool)) } else { Err("the tool takes none".into()) })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::STOP_EXECUTION;

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
