//! The exit code of an error.

use longhaul_command::Exit;
use longhaul_config::ConfigError;
use longhaul_embedded::ServersError;
#[cfg(target_os = "linux")]
use longhaul_sandbox::StartError;
use serde_json::{Value, json};

use crate::{client::ClientError, spec_file_error::SpecFileError};

/// The exit code of an error: the first cause in its chain that has one decides.
#[must_use]
pub fn of_error(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return error.exit();
        }
        if let Some(ServersError::Missing(_)) = cause.downcast_ref() {
            return Exit::MissingPrerequisites;
        }
        if cause.is::<longhaul_embedded::MissingServers>() {
            return Exit::MissingPrerequisites;
        }
        #[cfg(target_os = "linux")]
        if let Some(StartError::Unconfined(_) | StartError::Language(_)) = cause.downcast_ref() {
            return Exit::MissingPrerequisites;
        }
        if cause.is::<NotFoundError>() {
            return Exit::NotFound;
        }
        if cause.is::<RefusedError>() {
            return Exit::Refused;
        }
        if cause.is::<ConfigError>() || cause.is::<SpecFileError>() || cause.is::<UsageError>() {
            return Exit::Usage;
        }
    }
    Exit::Failure
}

/// An error as `--json` shows it: the API's problem document if there is one, otherwise a text, with the mistakes in
/// files one by one.
#[must_use]
pub fn described(error: &anyhow::Error) -> Value {
    let problem = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(ClientError::Problem(problem)) => serde_json::to_value(problem).ok(),
        _ => None,
    });
    problem.unwrap_or_else(|| {
        let mut told = json!({ "code": of_error(error).name(), "detail": format!("{error:#}") });
        if let Some(SpecFileError(problems)) = error.chain().find_map(|cause| cause.downcast_ref()) {
            told["problems"] = json!(problems);
        }
        told
    })
}

/// A usage error that clap cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The state of an object forbids the command.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedError(pub String);

/// The named object does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFoundError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_cause_decides_the_exit_code() {
        let error = anyhow::Error::from(UsageError("--input is not JSON".into())).context("submit");
        assert_eq!(of_error(&error), Exit::Usage);
        assert_eq!(of_error(&anyhow::anyhow!("disk full")), Exit::Failure);
        assert_eq!(described(&error), json!({ "code": "usage", "detail": "submit: --input is not JSON" }));
    }
}
