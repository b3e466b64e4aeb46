//! The names that models have over the wires: agents, definitions, aliases, and models of providers.

use std::collections::BTreeMap;

use longhaul_domain::{Offers, offers::ANY};
use longhaul_sdk::spec::ModelSpec;
use longhaul_wire::{Fault, FaultKind};

/// Longest name of a model, in bytes.
const MAX_NAME: usize = 256;

/// The model for a name that is neither an agent's nor a definition's: an alias, `<provider>/<name>`, or a name that
/// the default provider or one other alone has. Without a live worker any name is taken: its call waits for one.
pub(super) fn model_of(name: &str, aliases: &BTreeMap<String, ModelSpec>, offers: &Offers) -> Result<ModelSpec, Fault> {
    if let Some(spec) = aliases.get(name) {
        return Ok(spec.clone());
    }
    let spec = |provider: Option<&str>, name: &str| ModelSpec {
        provider: provider.map(str::to_owned),
        name: Some(name.to_owned()),
        ..ModelSpec::default()
    };
    if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
        return Err(unknown(name));
    }
    if let Some((provider, rest)) = name.split_once('/')
        && !rest.is_empty()
        && offers.providers.contains(provider)
    {
        return if offers.has_model(Some(provider), rest) {
            Ok(spec(Some(provider), rest))
        } else {
            Err(unknown(name))
        };
    }
    if offers.is_unknown() || offers.has_model(None, name) {
        return Ok(spec(None, name));
    }
    let mut having = offers.providers.iter().filter(|provider| offers.models.contains(&format!("{provider}/{name}")));
    match (having.next(), having.next()) {
        (Some(provider), None) => Ok(spec(Some(provider), name)),
        (None, _) | (Some(_), Some(_)) => Err(unknown(name)),
    }
}

/// Names of the models of providers and of aliases, in order.
pub(super) fn listed(aliases: &BTreeMap<String, ModelSpec>, offers: &Offers) -> Vec<String> {
    let of_providers = offers.models.iter().filter_map(|model| {
        let (provider, name) = model.split_once('/')?;
        (name != ANY).then(|| if provider.is_empty() { name.to_owned() } else { model.clone() })
    });
    let mut names: Vec<String> = aliases.keys().cloned().chain(of_providers).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub(super) fn unknown(name: &str) -> Fault {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    Fault {
        kind: FaultKind::NotFound,
        message: format!(
            "the model `{shown}` does not exist, or the key may not use it; `GET /v1/models` lists agents \
             (`agent:<key>`), definitions (`definition:<key>`), aliases and models (`<provider>/<name>`)"
        ),
        param: Some("model".into()),
        code: Some("model_not_found".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(written: &[&str]) -> Offers {
        let written: Vec<String> = written.iter().map(|text| (*text).to_owned()).collect();
        Offers::read(&written)
    }

    fn found(name: &str, offers: &Offers) -> Option<(Option<String>, Option<String>)> {
        let alias = ModelSpec { name: Some("large".into()), ..ModelSpec::default() };
        let aliases = BTreeMap::from([("fast".to_owned(), alias)]);
        model_of(name, &aliases, offers).ok().map(|spec| (spec.provider, spec.name))
    }

    #[test]
    fn name_finds_alias_provider_and_default() {
        let named = |provider: Option<&str>, name: &str| Some((provider.map(str::to_owned), Some(name.to_owned())));
        let fleet =
            offers(&["provider:a", "provider:b", "model:a/x", "model:a/y/z", "model:b/*", "model:/d", "model:/o/p"]);
        assert_eq!(found("fast", &fleet), named(None, "large"));
        assert_eq!(found("a/x", &fleet), named(Some("a"), "x"));
        assert_eq!(found("a/y/z", &fleet), named(Some("a"), "y/z"));
        assert_eq!(found("b/anything", &fleet), named(Some("b"), "anything"));
        assert_eq!(found("d", &fleet), named(None, "d"));
        // A slash in the name of a model of the default provider.
        assert_eq!(found("o/p", &fleet), named(None, "o/p"));
        assert_eq!(found("x", &fleet), named(Some("a"), "x"));
        for unknown in ["", "a/nothing", "c/x", "nothing", "a\nb", &"n".repeat(300)] {
            assert_eq!(found(unknown, &fleet), None, "{unknown}");
        }
        assert_eq!(found("anything", &offers(&[])), named(None, "anything"));
    }
}
