//! Merges the layers of the configuration and refuses unknown settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use ::config::{Config as Merged, Environment, File, FileFormat, Map, Source, Value, ValueKind};

use super::{ConfigError, Sources};
use longhaul_shared::nearest::nearest;

/// Reference of every setting with its default.
pub(super) const DEFAULTS: &str = include_str!("../../../deploy/config.default.toml");

const PREFIX: &str = "LONGHAUL";
const SEPARATOR: &str = "__";
/// Users choose the names below this prefix; `LISTED_PROVIDER` lists the settings of a provider.
const PROVIDERS: &str = "llm.providers.";
/// Prefix of the models that requests over wires may name.
const ALIASES: &str = "wires.aliases.";
/// Users choose the tool names below this prefix.
const TOOL_LIMITS: &str = "tools.limits.";
const LISTED_PROVIDER: &str = "llm.providers.scripted.";

/// Plain variables and the settings they set.
const PLAIN: [(&str, &str); 14] = [
    ("DATABASE_URL", "database.url"),
    ("REDIS_URL", "redis.url"),
    ("LONGHAUL_API_KEY_PEPPER", "api.key_pepper"),
    ("LONGHAUL_SANDBOX_TOKEN", "sandbox.token"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
    ("AGENT_ENGINE_SERVICE_TOKEN", "contract.service_tokens"),
    ("AGENT_ENGINE_URL", "contract.engine_url"),
    ("AGENT_EXECUTION_VIA_ENGINE", "contract.enabled"),
    ("AGENT_EXECUTION_FALLBACK", "contract.fallback"),
    ("LONGHAUL_RUNTIME_PROFILE_FORCE", "contract.runtime_profile_force"),
    ("LONGHAUL_SECRET_KEYS", "contract.secret_keys"),
    ("WORKFLOW_MAX_CONCURRENT_RUNS", "projects.max_running"),
    ("LONGHAUL_URL", "client.url"),
    ("LONGHAUL_API_KEY", "client.api_key"),
];

pub(super) fn merge(sources: &Sources) -> Result<Merged, ConfigError> {
    let defaults = File::from_str(DEFAULTS, FileFormat::Toml);
    let known = KnownSettings::of(&defaults.collect()?);

    let file = match file_of(sources) {
        Some(path) => Layer::new(path.display().to_string(), File::from(path).format(FileFormat::Toml).collect()?),
        None => Layer::new(String::new(), Map::new()),
    };
    let environment = Environment::with_prefix(PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(sources.environment.clone().into_iter().collect()))
        .collect()?;
    let environment = Layer::new("the environment".to_owned(), environment);
    let flags = sources.flags.iter().map(|(key, value)| (key.clone(), text("the command line", value)));
    let flags = Layer::new("the command line".to_owned(), flags.collect());

    for layer in [&file, &environment, &flags] {
        known.check(layer)?;
    }
    let plain = plain(&sources.environment, &file.keys());
    Ok(Merged::builder()
        .add_source(defaults)
        .add_source(file)
        .add_source(plain)
        .add_source(environment)
        .add_source(flags)
        .build()?)
}

fn file_of(sources: &Sources) -> Option<PathBuf> {
    let variable = sources.environment.get("LONGHAUL_CONFIG").filter(|path| !path.is_empty());
    sources.file.clone().or_else(|| variable.map(PathBuf::from))
}

/// Builds the layer of the plain variables. For a provider described in the file, settings of the file win over
/// those a variable implies.
fn plain(environment: &BTreeMap<String, String>, file: &BTreeSet<String>) -> Layer {
    let given = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let mut values = Map::new();
    for (variable, key) in PLAIN {
        if let Some(value) = given(variable) {
            values.insert(key.to_owned(), text(variable, value));
        }
    }
    let mut provider = |name: &str, variable: &str, settings: [(&str, &str); 4]| {
        for (field, value) in settings {
            let key = format!("{PROVIDERS}{name}.{field}");
            if !value.is_empty() && !file.contains(&key) {
                values.insert(key, text(variable, value));
            }
        }
        if !file.contains("llm.default_provider") {
            values.insert("llm.default_provider".to_owned(), text(variable, name));
        }
    };
    // The last provider set becomes the default.
    if given("ANTHROPIC_API_KEY").is_some() {
        provider(
            "anthropic",
            "ANTHROPIC_API_KEY",
            [
                ("kind", "anthropic"),
                ("base_url", "https://api.anthropic.com"),
                ("api_key", "env://ANTHROPIC_API_KEY"),
                ("default_model", "claude-haiku-4-5"),
            ],
        );
    }
    if given("OPENAI_API_KEY").is_some() {
        provider(
            "openai",
            "OPENAI_API_KEY",
            [
                ("kind", "openai"),
                ("base_url", "https://api.openai.com/v1"),
                ("api_key", "env://OPENAI_API_KEY"),
                ("default_model", "gpt-5-mini"),
            ],
        );
    }
    if let Some(url) = given("LONGHAUL_LLM_URL") {
        let key = given("LONGHAUL_LLM_API_KEY").map_or("", |_| "env://LONGHAUL_LLM_API_KEY");
        let model = given("LONGHAUL_LLM_MODEL").map_or("default", String::as_str);
        provider(
            "custom",
            "LONGHAUL_LLM_URL",
            [("kind", "openai"), ("base_url", url), ("api_key", key), ("default_model", model)],
        );
    }
    Layer::new("the environment".to_owned(), values)
}

fn text(origin: &str, value: &str) -> Value {
    Value::new(Some(&origin.to_owned()), ValueKind::String(value.to_owned()))
}

/// The settings of one source, nested (from a file) or dotted (from the environment).
#[derive(Debug, Clone)]
struct Layer {
    origin: String,
    values: Map<String, Value>,
}

impl Layer {
    fn new(origin: String, values: Map<String, Value>) -> Self {
        Self { origin, values }
    }

    fn keys(&self) -> BTreeSet<String> {
        keys(&self.values)
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ::config::ConfigError> {
        Ok(self.values.clone())
    }
}

/// Keys of all settings that exist.
struct KnownSettings(BTreeSet<String>);

impl KnownSettings {
    fn of(defaults: &Map<String, Value>) -> Self {
        Self(keys(defaults))
    }

    fn check(&self, layer: &Layer) -> Result<(), ConfigError> {
        match layer.keys().into_iter().find(|key| !self.contains(key)) {
            None => Ok(()),
            Some(key) => {
                let hint = nearest(&key, self.0.iter().map(String::as_str))
                    .map(|near| format!("; did you mean {near}?"))
                    .unwrap_or_default();
                Err(ConfigError::Unknown { key, origin: layer.origin.clone(), hint })
            }
        }
    }

    fn contains(&self, key: &str) -> bool {
        if key.strip_prefix(TOOL_LIMITS).is_some_and(|tool| !tool.contains('.')) {
            return true;
        }
        // Users choose the names; the fields are checked where the model is read.
        if key.strip_prefix(ALIASES).is_some_and(|alias| alias.contains('.')) {
            return true;
        }
        let Some((_name, field)) = key.strip_prefix(PROVIDERS).and_then(|rest| rest.split_once('.')) else {
            return self.0.contains(key);
        };
        // Users choose the names of headers.
        let field = field.split_once('.').filter(|(map, _)| *map == "headers").map_or(field, |(map, _)| map);
        self.0.contains(&format!("{LISTED_PROVIDER}{field}"))
    }
}

fn keys(values: &Map<String, Value>) -> BTreeSet<String> {
    fn walk(prefix: &str, values: &Map<String, Value>, keys: &mut BTreeSet<String>) {
        for (name, value) in values {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            if let ValueKind::Table(inner) = &value.kind
                && !inner.is_empty()
            {
                walk(&key, inner, keys);
            } else {
                keys.insert(key);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk("", values, &mut found);
    found
}
