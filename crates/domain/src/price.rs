//! Costs of model calls, in integer billionths of a US dollar.

use std::collections::BTreeMap;

use longhaul_sdk::{Usd, spec::ModelSpec};

/// Number of tokens that a price is quoted for.
const PER: i128 = 1_000_000;
/// Model name of the price for all models of a provider that have no price of their own.
const ANY_MODEL: &str = "*";

/// Price of one model, in US dollars per million tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Tokens sent and not cached.
    pub input: Usd,
    /// Tokens sent that were read from the provider's cache.
    pub cached_input: Usd,
    /// Tokens sent that were written to the provider's cache.
    pub cache_write_input: Usd,
    /// Tokens received, including reasoning.
    pub output: Usd,
}

/// Token counts of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallTokens {
    /// Tokens sent, including `cached` and `cache_written`.
    pub input: u64,
    /// Tokens sent that were read from the provider's cache.
    pub cached: u64,
    /// Tokens sent that were written to the provider's cache.
    pub cache_written: u64,
    /// Tokens received.
    pub output: u64,
}

impl Price {
    /// Cost of a call, rounded up to a billionth of a dollar.
    #[must_use]
    pub fn cost(&self, tokens: CallTokens) -> Usd {
        let cached = tokens.cached.min(tokens.input);
        let written = tokens.cache_written.min(tokens.input - cached);
        let part = |tokens: u64, price: Usd| i128::from(tokens) * i128::from(price.nanos());
        let total = part(tokens.input - cached - written, self.input)
            + part(cached, self.cached_input)
            + part(written, self.cache_write_input)
            + part(tokens.output, self.output);
        Usd::from_nanos(i64::try_from((total + PER - 1) / PER).unwrap_or(i64::MAX))
    }

    /// Upper bound of the cost of a prompt of `input` tokens, independent of caching.
    #[must_use]
    pub fn most_for_prompt(&self, input: u64) -> Usd {
        let input_price = self.input.max(self.cached_input).max(self.cache_write_input);
        Self { input: input_price, ..*self }.cost(CallTokens { input, ..CallTokens::default() })
    }
}

/// Prices of one provider's models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderPrices {
    /// Model of agents that name none.
    pub default_model: Option<String>,
    /// Prices by the provider's name of the model.
    pub models: BTreeMap<String, Price>,
}

/// Prices of an installation. A model without a price is uncosted, which differs from free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    /// Provider of agents that name none.
    pub default_provider: String,
    /// Prices by provider name.
    pub providers: BTreeMap<String, ProviderPrices>,
}

impl Prices {
    /// Returns the price of the model that `spec` selects.
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
        Price { input: usd(input), cached_input: usd(cached), cache_write_input: usd(input), output: usd(output) }
    }

    fn tokens(input: u64, cached: u64, output: u64) -> CallTokens {
        CallTokens { input, cached, cache_written: 0, output }
    }

    #[test]
    fn costs_are_exact_and_rounded_up() {
        let price = price("2.50", "1.25", "10");
        assert_eq!(price.cost(tokens(1_000_000, 0, 0)).to_string(), "2.50");
        assert_eq!(price.cost(tokens(1_000_000, 400_000, 100_000)).to_string(), "3.00");
        assert_eq!(price.cost(tokens(1, 5, 0)), Usd::from_nanos(1_250), "more cached than sent is all of it");
        assert_eq!(self::price("0.01875", "0", "0").cost(tokens(1, 0, 0)), Usd::from_nanos(19));
        assert_eq!(price.cost(tokens(u64::MAX, 0, u64::MAX)), Usd::from_nanos(i64::MAX));
        assert_eq!(self::price("1", "3", "0").most_for_prompt(1_000_000).to_string(), "3.00");
    }

    #[test]
    fn cache_writes_have_their_own_price() {
        let price = Price { cache_write_input: "1.25".parse().unwrap(), ..price("1", "0.10", "5") };
        let call = CallTokens { input: 1_000_000, cached: 200_000, cache_written: 400_000, output: 0 };
        assert_eq!(price.cost(call).to_string(), "0.92");
        assert_eq!(price.cost(CallTokens { cache_written: 5_000_000, ..call }).to_string(), "1.02");
        assert_eq!(price.most_for_prompt(1_000_000).to_string(), "1.25");
    }

    #[test]
    fn price_is_found_by_the_agents_model_name() {
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
