//! The global flags, and the configuration loaded with them.

use std::path::{Path, PathBuf};

use clap::ColorChoice;
use longhaul_config::{Config, ConfigError, Sources};
use secrecy::ExposeSecret;

use crate::{env_file, output};

/// Data directory of `longhaul dev`; the client commands read its address and key from there.
pub const DATA_DIR: &str = ".longhaul";
const URL: &str = "LONGHAUL_URL";
const KEY: &str = "LONGHAUL_API_KEY";

#[derive(Debug, Clone, clap::Args)]
pub struct Context {
    /// Configuration file; see `deploy/config.default.toml` for every setting
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Colours in the output; auto: on a terminal, unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub color: ColorChoice,
}

impl Context {
    /// Decides if the output of this process is in colours.
    pub fn set_colours(&self) {
        let sources = self.sources(Vec::new());
        output::set_colours(self.color, sources.environment.get("NO_COLOR").is_some_and(|value| !value.is_empty()));
    }

    /// The sources of the configuration, with the command's `flags` taking precedence.
    #[must_use]
    pub fn sources(&self, flags: Vec<(String, String)>) -> Sources {
        Sources::of_process(self.config.clone(), flags)
    }

    /// # Errors
    /// The configuration is invalid.
    pub fn load(&self, flags: Vec<(String, String)>) -> Result<Config, ConfigError> {
        Config::load(&self.sources(flags))
    }

    /// Loads the configuration of a role. Beside `longhaul dev`, whose env file is in this directory, that completes
    /// it, unless the environment names another database.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn load_beside_dev(&self) -> Result<Config, ConfigError> {
        let mut sources = self.sources(Vec::new());
        let is_given = |name: &str| sources.environment.get(name).is_some_and(|value| !value.is_empty());
        if is_given("DATABASE_URL") || is_given("LONGHAUL_CONFIG") || sources.file.is_some() {
            return Config::load(&sources);
        }
        let written = env_file::read(&Path::new(DATA_DIR).join(env_file::NAME));
        for (name, value) in &written {
            sources.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let mut config = Config::load(&sources)?;
        // References are resolved in the environment of this process, which does not have them.
        for provider in config.llm.providers.values_mut() {
            let name = provider.api_key.as_ref().and_then(|key| key.expose_secret().strip_prefix("env://"));
            if let Some(value) = name.and_then(|name| written.get(name)) {
                provider.api_key = Some(value.clone().into());
            }
        }
        Ok(config)
    }

    /// Loads the configuration for a client command. What the environment lacks of URL and key comes from the
    /// development server's env file; the key only if the URL is that server's, because it is for no other.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn load_for_client(&self) -> Result<Config, ConfigError> {
        let mut sources = self.sources(Vec::new());
        let given = |name: &str| sources.environment.get(name).filter(|value| !value.is_empty()).cloned();
        let (url, key, file) = (given(URL), given(KEY), given("LONGHAUL_CONFIG"));
        // A configuration file may name another server.
        if (key.is_some() || url.is_some()) && (file.is_some() || sources.file.is_some()) {
            return Config::load(&sources);
        }
        let written = env_file::read(&Path::new(DATA_DIR).join(env_file::NAME));
        let is_of_server = |url: &String| Some(url.trim_end_matches('/')) == written.get(URL).map(String::as_str);
        let lacking = [(URL, url.is_none()), (KEY, key.is_none() && url.as_ref().is_none_or(is_of_server))];
        for (name, _) in lacking.into_iter().filter(|(_, is_lacking)| *is_lacking) {
            if let Some(value) = written.get(name) {
                sources.environment.insert(name.to_owned(), value.clone());
            }
        }
        Config::load(&sources)
    }
}

/// The setting of a flag, if the flag was given.
pub fn flag(key: &str, value: Option<impl ToString>) -> Option<(String, String)> {
    value.map(|value| (key.to_owned(), value.to_string()))
}
