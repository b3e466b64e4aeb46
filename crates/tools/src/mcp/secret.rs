//! Secret references in a server's environment and headers, such as `env://TOKEN`.
//!
//! References are resolved when a connection is opened. A resolved value is never shown by `Debug`, and is
//! removed from all server output before the model, logs or the journal see it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use longhaul_domain::secret_reference::split_at_reference;
use longhaul_guards::sealing::SEALED;
use secrecy::{ExposeSecret, SecretString};

type Resolve = dyn Fn(&str) -> Option<SecretString> + Send + Sync;

/// Resolves a reference such as `env://TOKEN`; `None` if it has no value.
#[derive(Clone)]
pub struct SecretResolver(Arc<Resolve>);

impl SecretResolver {
    /// Returns a resolver that calls `resolve` with the whole reference, including its scheme.
    pub fn new(resolve: impl Fn(&str) -> Option<SecretString> + Send + Sync + 'static) -> Self {
        Self(Arc::new(resolve))
    }

    /// The secret that `reference` names, if it is a reference that this worker may resolve.
    pub fn resolve(&self, reference: &str) -> Option<SecretString> {
        (self.0)(reference)
    }
}

impl Default for SecretResolver {
    /// Returns a resolver without secrets.
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl fmt::Debug for SecretResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretResolver(..)")
    }
}

/// Shortest value removed from server output, in bytes. Shorter ones would match ordinary text.
const MIN_SCRUBBED: usize = 6;
const REDACTED: &str = "[redacted]";

/// The resolved values of one connection.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<SecretString>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} redacted)", self.0.len())
    }
}

impl Secrets {
    /// The secrets of a client with one key, if it has one.
    pub(crate) fn of(key: Option<SecretString>) -> Self {
        Self(key.into_iter().collect())
    }

    /// Resolves every reference in the values of `entries`. A value may also contain one, as in `Bearer env://TOKEN`.
    ///
    /// # Errors
    /// Names a reference without a value; never contains a value.
    pub(super) fn resolve_all(
        &mut self,
        entries: &BTreeMap<String, String>,
        resolver: &SecretResolver,
    ) -> Result<Vec<(String, SecretString)>, String> {
        entries.iter().map(|(key, value)| Ok((key.clone(), self.resolve(value, resolver)?))).collect()
    }

    fn resolve(&mut self, value: &str, resolver: &SecretResolver) -> Result<SecretString, String> {
        if value.starts_with(SEALED) {
            let open = (resolver.0)(value).ok_or("a sealed value does not open under contract.secret_keys")?;
            self.0.push(open.clone());
            return Ok(open);
        }
        let mut resolved = String::new();
        let mut rest = value;
        while let Some((before, reference, after)) = split_at_reference(rest) {
            let secret = (resolver.0)(reference).ok_or_else(|| format!("`{reference}` is not set on this worker"))?;
            resolved.push_str(before);
            resolved.push_str(secret.expose_secret());
            self.0.push(secret);
            rest = after;
        }
        resolved.push_str(rest);
        Ok(SecretString::from(resolved))
    }

    /// Removes the resolved values from `text`.
    pub(crate) fn scrub(&self, text: String) -> String {
        self.0
            .iter()
            .map(ExposeSecret::expose_secret)
            .filter(|secret| secret.len() >= MIN_SCRUBBED)
            .fold(text, |text, secret| if text.contains(secret) { text.replace(secret, REDACTED) } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver() -> SecretResolver {
        SecretResolver::new(|reference| (reference == "env://TOKEN").then(|| SecretString::from("s3cret-value")))
    }

    #[test]
    fn references_are_replaced_and_values_scrubbed() {
        let mut secrets = Secrets::default();
        let entries = BTreeMap::from([
            ("A".to_owned(), "env://TOKEN".to_owned()),
            ("B".to_owned(), "Bearer env://TOKEN, env://TOKEN!".to_owned()),
            ("C".to_owned(), "plain".to_owned()),
        ]);
        let resolved = secrets.resolve_all(&entries, &resolver()).unwrap();
        let values: Vec<_> = resolved.iter().map(|(_, value)| value.expose_secret()).collect();
        assert_eq!(values, ["s3cret-value", "Bearer s3cret-value, s3cret-value!", "plain"]);
        assert_eq!(secrets.scrub("it is s3cret-value.".into()), "it is [redacted].");
        assert!(!format!("{secrets:?}{resolved:?}").contains("s3cret"));
    }

    #[test]
    fn sealed_values_are_opened_and_scrubbed() {
        let resolver = SecretResolver::new(|text| (text == "sealed:v1:x").then(|| SecretString::from("s3cret-value")));
        let mut secrets = Secrets::default();
        let entries = BTreeMap::from([("A".to_owned(), "sealed:v1:x".to_owned())]);
        let resolved = secrets.resolve_all(&entries, &resolver).unwrap();
        assert_eq!(resolved[0].1.expose_secret(), "s3cret-value");
        assert_eq!(secrets.scrub("s3cret-value".into()), "[redacted]");
        let other = BTreeMap::from([("A".to_owned(), "sealed:v1:y".to_owned())]);
        assert!(secrets.resolve_all(&other, &resolver).is_err());
    }

    #[test]
    fn an_unset_reference_is_named_without_a_value() {
        let entries = BTreeMap::from([("A".to_owned(), "env://OTHER".to_owned())]);
        let error = Secrets::default().resolve_all(&entries, &resolver()).unwrap_err();
        assert_eq!(error, "`env://OTHER` is not set on this worker");
    }
}
