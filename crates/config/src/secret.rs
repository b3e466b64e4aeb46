//! References to secrets. `env://NAME` stands for the value of a variable, so that no secret needs to be in a file,
//! in the database or on a command line.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};

use super::ConfigError;
use longhaul_domain::secret_reference::SCHEME;

/// Returns the value of a reference such as `env://TOKEN`. `None` if the text is no reference, or the variable is
/// unset or empty.
#[expect(clippy::disallowed_methods, reason = "this module is the one reader of the environment")]
pub fn resolve_secret(reference: &str) -> Option<SecretString> {
    let name = reference.strip_prefix(SCHEME)?;
    std::env::var(name).ok().filter(|value| !value.is_empty()).map(SecretString::from)
}

/// Returns those of the named variables that are set, as the whole environment of a child process.
#[expect(clippy::disallowed_methods, reason = "this module is the one reader of the environment")]
pub fn inherited_environment(names: &[&str]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
}

/// Name of this machine, shown in the list of workers.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".to_owned() } else { name.trim().to_owned() }
}

/// Returns the secret itself, or the value that it refers to.
///
/// # Errors
/// [`ConfigError::Reference`] if it refers to a variable that is not set.
pub fn reveal(secret: &SecretString) -> Result<SecretString, ConfigError> {
    match secret.expose_secret().strip_prefix(SCHEME) {
        None => Ok(secret.clone()),
        Some(name) => {
            resolve_secret(secret.expose_secret()).ok_or_else(|| ConfigError::Reference { name: name.to_owned() })
        }
    }
}
