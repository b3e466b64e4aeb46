//! Secrets of the configuration, resolved: the keys of model providers, and what platforms and tool servers may name.

use std::collections::BTreeMap;

use longhaul_config as config;
use longhaul_config::{ConfigError, ContractConfig, PromptCacheMode, ProviderConfig, ProviderKind};
use longhaul_contract::platform::SecretRef;
use longhaul_guards::sealing::{SEALED, Sealer};
use longhaul_llm::{Clocks, provider_config};
use longhaul_tools::SecretResolver;

/// A provider's settings with its key and headers.
///
/// # Errors
/// A secret does not exist.
pub(crate) fn provider(settings: &ProviderConfig) -> Result<provider_config::ProviderConfig, ConfigError> {
    let mut headers = BTreeMap::new();
    for (header, value) in &settings.headers {
        headers.insert(header.clone(), config::reveal(value)?);
    }
    Ok(provider_config::ProviderConfig {
        kind: match settings.kind {
            ProviderKind::OpenAi => provider_config::ProviderKind::OpenAi,
            ProviderKind::Anthropic => provider_config::ProviderKind::Anthropic,
            ProviderKind::Scripted => provider_config::ProviderKind::Scripted,
        },
        base_url: settings.base_url.clone(),
        api_key: settings.api_key.as_ref().map(config::reveal).transpose()?,
        clocks: Clocks {
            connect: settings.connect,
            first_token: settings.first_token,
            gap: settings.gap,
            total: settings.total,
        },
        headers,
        default_model: settings.default_model.clone(),
        ca_file: settings.ca_file.as_ref().map(Into::into),
        prompt_cache: match settings.prompt_cache {
            PromptCacheMode::Auto => None,
            PromptCacheMode::On => Some(true),
            PromptCacheMode::Off => Some(false),
        },
    })
}

/// Resolves secrets in a platform's bindings: environment variables that the configuration allows, and sealed values.
///
/// # Errors
/// The key of sealed values is invalid.
pub(crate) fn platform_secrets(config: &ContractConfig) -> Result<SecretResolver, ConfigError> {
    let (sealer, settings) = (Sealer::new(&config.secret_keys()?), config.clone());
    Ok(SecretResolver::new(move |reference| match SecretRef::read(reference)? {
        SecretRef::Variable(name) if settings.may_read(&name) => config::resolve_secret(reference),
        SecretRef::Sealed(sealed) => sealer.open(&sealed).ok(),
        SecretRef::Variable(_) | SecretRef::Foreign | SecretRef::Literal => None,
    }))
}

/// Resolves secrets in the headers and variables of tool servers: environment variables and sealed values.
///
/// # Errors
/// The key of sealed values is invalid.
pub(crate) fn tool_server_secrets(config: &ContractConfig) -> Result<SecretResolver, ConfigError> {
    let sealer = Sealer::new(&config.secret_keys()?);
    Ok(SecretResolver::new(move |reference| {
        if reference.starts_with(SEALED) { sealer.open(reference).ok() } else { config::resolve_secret(reference) }
    }))
}
