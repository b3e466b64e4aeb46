//! `[llm]`: the model providers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use longhaul_sdk::Usd;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Rules, units};
use longhaul_domain::{Price, Prices, ProviderPrices, offers::ANY};

/// Reserved provider name under which models bound by a platform snapshot are counted; they have no price here.
const BOUND: &str = "platform";

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct LlmConfig {
    /// Provider of agents that name none; a key of `providers`, or empty: no worker starts then.
    pub default_provider: String,
    pub health: HealthConfig,
    /// Reply limits of calls under a budget.
    pub budget: BudgetConfig,
    pub providers: BTreeMap<String, ProviderConfig>,
}

impl LlmConfig {
    /// The providers and models as a worker writes them; see [`Offers`](longhaul_domain::Offers).
    #[must_use]
    pub fn offers(&self) -> Vec<String> {
        let mut offers = vec![format!("default:{}", self.default_provider)];
        for (name, provider) in &self.providers {
            offers.push(format!("provider:{name}"));
            let priced = provider.prices.iter().map(|price| price.model.as_str());
            let limited = provider.limits.iter().map(|limit| limit.model.as_str());
            let mut models: BTreeSet<&str> = priced.chain(limited).collect();
            if models.is_empty() {
                models.insert(ANY);
            }
            models.extend(provider.default_model.as_deref());
            for model in models {
                offers.push(format!("model:{name}/{model}"));
                if *name == self.default_provider {
                    offers.push(format!("model:/{model}"));
                }
            }
        }
        offers
    }
}

/// Waits and probes for a provider that is down, out of quota or at its limits.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HealthConfig {
    /// Longest wait of one model call when no fallback model is left.
    #[serde(rename = "max_wait_seconds", with = "units::seconds")]
    pub max_wait: Duration,
    /// Wait before the next fallback model is tried.
    #[serde(rename = "fallback_after_seconds", with = "units::seconds")]
    pub fallback_after: Duration,
    /// Delay before the first probe of a provider that stated no time.
    #[serde(rename = "probe_seconds", with = "units::seconds")]
    pub probe: Duration,
    /// Longest delay between two probes.
    #[serde(rename = "probe_max_seconds", with = "units::seconds")]
    pub probe_max: Duration,
}

/// Reply limits of calls under a budget. Every such call is sent with a limit.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    /// Reply limit, in tokens, if the agent sets none.
    pub reply_tokens: u32,
    /// Smallest reply limit, in tokens. If the rest of the budget does not cover it, the call is not made.
    pub least_reply_tokens: u32,
}

/// Limits of one model, shared by all workers that use the same key.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LimitConfig {
    /// Provider's name of the model; `*` applies to each unlisted model separately.
    pub model: String,
    pub requests_per_minute: Option<u32>,
    pub tokens_per_minute: Option<u32>,
    /// Concurrent calls.
    pub max_concurrency: Option<u32>,
}

/// Protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// The chat completions API, spoken by most vendors and servers.
    OpenAi,
    /// Anthropic's messages API.
    Anthropic,
    /// No model: replies are computed from the input.
    Scripted,
}

/// Use of a provider's prompt cache: `cache_control` or `prompt_cache_key` in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptCacheMode {
    /// On, except at servers with OpenAI's protocol that may refuse the field.
    #[default]
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ProviderConfig {
    pub kind: ProviderKind,
    #[serde(default, with = "units::url_or_nothing")]
    pub base_url: Option<String>,
    /// The key or a reference to it; read it through [`reveal`](super::reveal).
    #[serde(default, with = "units::secret")]
    pub api_key: Option<SecretString>,
    #[serde(default, with = "units::text")]
    pub default_model: Option<String>,
    #[serde(rename = "connect_seconds", default = "connect", with = "units::seconds")]
    pub connect: Duration,
    #[serde(rename = "first_token_seconds", default = "first_token", with = "units::seconds")]
    pub first_token: Duration,
    #[serde(rename = "gap_seconds", default = "gap", with = "units::seconds")]
    pub gap: Duration,
    #[serde(rename = "total_seconds", default = "total", with = "units::seconds")]
    pub total: Duration,
    /// Path of a PEM file of certificate authorities trusted in addition to the machine's.
    #[serde(default, with = "units::text")]
    pub ca_file: Option<String>,
    #[serde(default)]
    pub prompt_cache: PromptCacheMode,
    /// Headers sent with every request; values may be references.
    #[serde(default, serialize_with = "units::secrets::serialize")]
    pub headers: BTreeMap<String, SecretString>,
    /// Prices per model. An unlisted model is uncosted.
    #[serde(default)]
    pub prices: Vec<PriceConfig>,
    /// Limits per model. An unlisted model is not limited.
    #[serde(default)]
    pub limits: Vec<LimitConfig>,
}

/// Price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Provider's name of the model; `*` stands for all that are not listed.
    pub model: String,
    pub input: Usd,
    pub output: Usd,
    /// Input read from the provider's cache. Defaults to a part of `input`, by the provider's protocol.
    pub cached_input: Option<Usd>,
    /// Input written to the provider's cache. Defaults to 1.25 times `input`.
    pub cache_write_input: Option<Usd>,
}

/// Default price of input written to a cache, in percent of `input`: Anthropic, and OpenAI where it charges writes.
const CACHE_WRITE_PERCENT: i64 = 125;

impl ProviderKind {
    /// Default price of input read from a cache, in percent of `input`. Vendors with OpenAI's protocol charge 10 to 50
    /// percent; a budget must not be undercharged.
    fn cached_percent(self) -> i64 {
        match self {
            Self::Anthropic => 10,
            Self::OpenAi => 50,
            Self::Scripted => 100,
        }
    }
}

impl PriceConfig {
    fn price(&self, kind: ProviderKind) -> Price {
        Price {
            input: self.input,
            cached_input: self.cached_input.unwrap_or(percent_of(self.input, kind.cached_percent())),
            cache_write_input: self.cache_write_input.unwrap_or(percent_of(self.input, CACHE_WRITE_PERCENT)),
            output: self.output,
        }
    }
}

/// A part of a price, rounded up to a billionth of a dollar.
fn percent_of(price: Usd, percent: i64) -> Usd {
    let nanos = (i128::from(price.nanos()) * i128::from(percent) + 99) / 100;
    Usd::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

// Timeouts of a provider whose section does not set them. A test keeps them equal to the default file.
fn connect() -> Duration {
    Duration::from_secs(10)
}

fn first_token() -> Duration {
    Duration::from_secs(120)
}

fn gap() -> Duration {
    Duration::from_secs(60)
}

fn total() -> Duration {
    Duration::from_secs(600)
}

impl LlmConfig {
    /// Without a default, the one provider that asks a model is it.
    pub(super) fn settle_default(&mut self) {
        let mut asking = self.providers.iter().filter(|(_, provider)| provider.kind != ProviderKind::Scripted);
        if let (true, Some((name, _)), None) = (self.default_provider.is_empty(), asking.next(), asking.next()) {
            self.default_provider = name.clone();
        }
    }

    pub fn prices(&self) -> Prices {
        let prices = |provider: &ProviderConfig| ProviderPrices {
            default_model: provider.default_model.clone(),
            models: provider.prices.iter().map(|of| (of.model.clone(), of.price(provider.kind))).collect(),
        };
        Prices {
            default_provider: self.default_provider.clone(),
            providers: self.providers.iter().map(|(name, provider)| (name.clone(), prices(provider))).collect(),
        }
    }

    pub(super) fn check(&self, rules: &mut Rules) {
        if !self.default_provider.is_empty() && !self.providers.contains_key(&self.default_provider) {
            let known: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            rules.broken(format!(
                "llm.default_provider is {:?}, which is not configured; there are {}",
                self.default_provider,
                known.join(", ")
            ));
        }
        for (name, provider) in &self.providers {
            provider.check(name, rules);
        }
        rules.require(self.budget.reply_tokens > 0, "llm.budget.reply_tokens must be more than 0");
        rules.require(
            (1..=self.budget.reply_tokens).contains(&self.budget.least_reply_tokens),
            "llm.budget.least_reply_tokens must be between 1 and llm.budget.reply_tokens",
        );
        rules.positive("llm.health.probe_seconds", self.health.probe);
        rules.require(
            self.health.probe <= self.health.probe_max,
            "llm.health.probe_max_seconds must not be shorter than llm.health.probe_seconds",
        );
        rules.require(
            self.health.fallback_after <= self.health.max_wait,
            "llm.health.fallback_after_seconds must not be longer than llm.health.max_wait_seconds",
        );
    }
}

impl ProviderConfig {
    fn check(&self, name: &str, rules: &mut Rules) {
        let key = |field: &str| format!("llm.providers.{name}.{field}");
        rules.require(name != BOUND, "llm.providers.platform: the name stands for models that a platform binds");
        match self.kind {
            ProviderKind::OpenAi | ProviderKind::Anthropic => match self.base_url.as_deref().map(url::Url::parse) {
                Some(Ok(url)) if matches!(url.scheme(), "http" | "https") => {}
                Some(_) => rules.broken(format!("{} must be an http or https URL", key("base_url"))),
                None => rules.broken(format!("{} is not set", key("base_url"))),
            },
            ProviderKind::Scripted => {}
        }
        rules.positive(&key("connect_seconds"), self.connect);
        rules.positive(&key("first_token_seconds"), self.first_token);
        rules.positive(&key("gap_seconds"), self.gap);
        let mut models: Vec<&str> = self.prices.iter().map(|price| price.model.as_str()).collect();
        models.sort_unstable();
        if let Some(twice) = models.windows(2).find(|pair| pair[0] == pair[1]) {
            rules.broken(format!("{} lists {:?} twice", key("prices"), twice[0]));
        }
        let mut limited: Vec<&str> = self.limits.iter().map(|limit| limit.model.as_str()).collect();
        limited.sort_unstable();
        if let Some(twice) = limited.windows(2).find(|pair| pair[0] == pair[1]) {
            rules.broken(format!("{} lists {:?} twice", key("limits"), twice[0]));
        }
        let is_zero = |limit: &LimitConfig| {
            [limit.requests_per_minute, limit.tokens_per_minute, limit.max_concurrency].contains(&Some(0))
        };
        if let Some(limit) = self.limits.iter().find(|limit| is_zero(limit)) {
            rules.broken(format!("{} of {:?} must be more than 0", key("limits"), limit.model));
        }
        if self.connect.max(self.first_token).max(self.gap) > self.total {
            rules.broken(format!("{} must not be shorter than the provider's other clocks", key("total_seconds")));
        }
    }
}
