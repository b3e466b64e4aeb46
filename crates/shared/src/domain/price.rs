//! What model calls cost, in whole billionths of a US dollar.

use std::collections::BTreeMap;

use longhaul_sdk::{Usd, spec::ModelSpec};

/// Tokens a price is quoted for.
const PER: i128 = 1_000_000;
/// A price for every model of a provider that has no price of its own.
const ANY_MODEL: &str = "*";

/// What one model costs, for a million tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Tokens sent.
    pub input: Usd,
    /// Of the tokens sent, those the provider had cached.
    pub cached_input: Usd,
    /// Tokens received.
    pub output: Usd,
}

impl Price {
    /// What a call took; `cached` is a part of `input`. Rounded up to a billionth.
    #[must_use]
    pub fn cost(&self, input: u64, cached: u64, output: u64) -> Usd {
        let cached = cached.min(input);
        let part = |tokens: u64, price: Usd| i128::from(tokens) * i128::from(price.nanos());
        let total = part(input - cached, self.input) + part(cached, self.cached_input) + part(output, self.output);
        Usd::from_nanos(i64::try_from((total + PER - 1) / PER).unwrap_or(i64::MAX))
    }

    /// The most that so many tokens can cost: nothing of the input is believed to be cached.
    #[must_use]
    pub fn most(&self, input: u64, output: u64) -> Usd {
        let input_price = self.input.max(self.cached_input);
        Self { input: input_price, ..*self }.cost(input, 0, output)
    }
}

/// One provider's models, as far as money is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderPrices {
    /// The model of agents that name none.
    pub default_model: Option<String>,
    /// By the provider's name of the model.
    pub models: BTreeMap<String, Price>,
}

/// The prices of an installation. A model without one is uncosted, which is not the same as free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    /// The provider of agents that name none.
    pub default_provider: String,
    /// By name.
    pub providers: BTreeMap<String, ProviderPrices>,
}

impl Prices {
    /// The price of the model that `spec` asks for.
    #[must_use]
    pub fn of(&self, spec: &ModelSpec) -> Option<Price> {
        let provider = self.providers.get(spec.provider.as_ref().unwrap_or(&self.default_provider))?;
        let named = spec.name.as_ref().or(provider.default_model.as_ref()).and_then(|name| provider.models.get(name));
        named.or_else(|| provider.models.get(ANY_MODEL)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: &str, cached: &str, output: &str) -> Price {
        let usd = |text: &str| text.parse().unwrap();
        Price { input: usd(input), cached_input: usd(cached), output: usd(output) }
    }

    #[test]
    fn costs_are_exact_and_rounded_up() {
        let price = price("2.50", "1.25", "10");
        assert_eq!(price.cost(1_000_000, 0, 0).to_string(), "2.50");
        assert_eq!(price.cost(1_000_000, 400_000, 100_000).to_string(), "3.00");
        assert_eq!(price.cost(1, 5, 0), Usd::from_nanos(1_250), "more cached than sent is all of it");
        assert_eq!(self::price("0.01875", "0", "0").cost(1, 0, 0), Usd::from_nanos(19));
        assert_eq!(price.cost(u64::MAX, 0, u64::MAX), Usd::from_nanos(i64::MAX));
        assert_eq!(self::price("1", "3", "0").most(1_000_000, 0).to_string(), "3.00");
    }

    #[test]
    fn a_model_is_looked_up_as_an_agent_names_it() {
        let (own, other) = (price("1", "1", "1"), price("2", "2", "2"));
        let models = BTreeMap::from([("small".to_owned(), own)]);
        let named = ProviderPrices { default_model: Some("small".into()), models };
        let any = ProviderPrices { models: BTreeMap::from([("*".to_owned(), other)]), ..ProviderPrices::default() };
        let providers = BTreeMap::from([("a".to_owned(), named), ("b".to_owned(), any)]);
        let prices = Prices { default_provider: "a".into(), providers };
        let of = |provider: Option<&str>, name: Option<&str>| {
            let (provider, name) = (provider.map(str::to_owned), name.map(str::to_owned));
            prices.of(&ModelSpec { provider, name, ..ModelSpec::default() })
        };
        assert_eq!(of(None, None), Some(own));
        assert_eq!(of(None, Some("large")), None);
        assert_eq!(of(Some("b"), Some("large")), Some(other));
        assert_eq!(of(Some("c"), None), None);
    }
}
