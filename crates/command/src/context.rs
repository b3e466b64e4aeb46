//! The global flags, and the configuration loaded with them.

use std::path::{Path, PathBuf};

use clap::ColorChoice;
use longhaul_shared::config::{Config, ConfigError, Sources};

use crate::{env_file, output};

/// Data directory of `longhaul dev`; the client commands read its address and key from there.
pub const DATA_DIR: &str = ".longhaul";

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

    /// Loads the configuration for a client command. If neither the URL nor the key is set, both come from the
    /// development server's env file.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn load_for_client(&self) -> Result<Config, ConfigError> {
        let mut sources = self.sources(Vec::new());
        let names = ["LONGHAUL_URL", "LONGHAUL_API_KEY"];
        let is_given = |name: &str| sources.environment.get(name).is_some_and(|value| !value.is_empty());
        if !names.iter().any(|name| is_given(name)) {
            let written = env_file::read(&Path::new(DATA_DIR).join(env_file::NAME));
            for name in names {
                if let Some(value) = written.get(name) {
                    sources.environment.insert(name.to_owned(), value.clone());
                }
            }
        }
        Config::load(&sources)
    }
}

/// The setting of a flag, if the flag was given.
pub fn flag(key: &str, value: Option<impl ToString>) -> Option<(String, String)> {
    value.map(|value| (key.to_owned(), value.to_string()))
}
