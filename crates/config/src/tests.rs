use std::{collections::BTreeSet, io::Write};

use secrecy::ExposeSecret;

use super::*;

fn sources(environment: &[(&str, &str)]) -> Sources {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Sources { environment: environment.collect(), ..Sources::default() }
}

fn load(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(&sources(environment))
}

fn refusal(environment: &[(&str, &str)]) -> String {
    load(environment).unwrap_err().to_string()
}

fn with_file(text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(&Sources { file: Some(file.path().to_owned()), ..sources(environment) })
}

#[test]
fn the_defaults_alone_are_a_configuration() {
    let config = load(&[]).unwrap();
    assert_eq!(config.worker.concurrency, 1_000);
    assert_eq!(config.worker.lease, Duration::from_secs(6));
    assert_eq!(config.worker.queues, ["interactive", "default"]);
    assert_eq!(config.llm.default_provider, "", "no model answers unless one is named");
}

#[test]
fn only_provider_that_asks_a_model_is_the_default() {
    let one = "[llm.providers.house]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:9/v1'\n";
    assert_eq!(with_file(one, &[]).unwrap().llm.default_provider, "house");
    let two = format!("{one}[llm.providers.guest]\nkind = 'anthropic'\nbase_url = 'http://127.0.0.1:9'\n");
    assert_eq!(with_file(&two, &[]).unwrap().llm.default_provider, "");
    let named = [("LONGHAUL__LLM__DEFAULT_PROVIDER", "scripted")];
    assert_eq!(with_file(one, &named).unwrap().llm.default_provider, "scripted");
}

#[test]
fn aliases_of_models_are_read_and_checked() {
    let fast = "[wires.aliases.fast]\nprovider = 'house'\nname = 'large'\ntemperature = 0.5\n";
    let config = with_file(fast, &[]).unwrap();
    let alias = &config.wires.aliases["fast"];
    assert_eq!(
        (alias.provider.as_deref(), alias.name.as_deref(), alias.temperature),
        (Some("house"), Some("large"), Some(0.5))
    );
    let reserved = with_file("[wires.aliases.\"agent:fast\"]\nname = 'large'\n", &[]).unwrap_err().to_string();
    assert!(reserved.contains("wires.aliases"), "{reserved}");
    let misspelt = with_file("[wires.aliases.fast]\nnmae = 'large'\n", &[]).unwrap_err().to_string();
    assert!(misspelt.contains("nmae"), "{misspelt}");
}

#[test]
fn the_default_file_lists_exactly_the_settings_that_exist() {
    let written: BTreeSet<String> = layers::merge(&Sources::default())
        .unwrap()
        .try_deserialize::<serde_json::Value>()
        .map(|value| {
            let mut settings = BTreeMap::new();
            flatten("", value, &mut settings);
            settings.into_keys().collect()
        })
        .unwrap();
    let read: BTreeSet<String> = load(&[]).unwrap().settings().into_keys().collect();
    assert_eq!(written, read);
}

#[test]
fn every_default_setting_has_a_comment() {
    let mut commented = false;
    for line in layers::DEFAULTS.lines() {
        match line.trim() {
            "" => commented = false,
            comment if comment.starts_with('#') => commented = true,
            section if section.starts_with('[') => {}
            setting => assert!(commented, "{setting} has no comment"),
        }
    }
}

#[test]
fn later_sources_win() {
    let file =
        "[worker]\nconcurrency = 2\n[redis]\nurl = 'redis://file'\nprefix = 'file'\n[client]\nurl = 'http://file'\n";
    let environment = [("REDIS_URL", "redis://plain"), ("LONGHAUL__REDIS__PREFIX", "environment")];
    let config = with_file(file, &environment).unwrap();
    assert_eq!(config.worker.concurrency, 2);
    assert_eq!(config.redis.url.unwrap().expose_secret(), "redis://plain");
    assert_eq!(config.redis.prefix, "environment");
    assert_eq!(config.worker.metrics_listen, None);
    assert_eq!(config.client.url, "http://file");

    let flags =
        vec![("worker.queues".to_owned(), "a, b".to_owned()), ("worker.concurrency".to_owned(), "9".to_owned())];
    let over = Sources { flags, ..sources(&[("LONGHAUL__WORKER__CONCURRENCY", "8")]) };
    let config = Config::load(&over).unwrap();
    assert_eq!((config.worker.concurrency, config.worker.queues), (9, vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn unknown_setting_is_refused_with_its_source() {
    let error = refusal(&[("LONGHAUL__WORKER__CONCURENCY", "5")]);
    assert_eq!(error, "unknown setting worker.concurency in the environment; did you mean worker.concurrency?");
    let error = with_file("[wroker]\nconcurrency = 5\n", &[]).unwrap_err().to_string();
    assert!(error.starts_with("unknown setting wroker.concurrency in /"), "{error}");
    let error = with_file("[llm.providers.mine]\nkind = 'openai'\nurl = 'http://x'\n", &[]).unwrap_err().to_string();
    assert!(error.contains("llm.providers.mine.url"), "{error}");
}

#[test]
fn wrongly_typed_setting_names_key_and_source() {
    let error = refusal(&[("LONGHAUL__WORKER__CONCURRENCY", "many")]);
    assert!(error.contains("worker.concurrency") && error.contains("many"), "{error}");
    let error = with_file("[worker]\nlease_seconds = 'long'\n", &[]).unwrap_err().to_string();
    assert!(error.contains("lease_seconds"), "{error}");
    let error = refusal(&[("LONGHAUL__WORKER__METRICS_LISTEN", "9464")]);
    assert!(error.contains("\"9464\" is not an address with a port"), "{error}");
    let error = refusal(&[("LONGHAUL__WORKER__LEASE_SECONDS", "-1")]);
    assert!(error.contains("-1 is not a duration in seconds"), "{error}");
}

#[test]
fn all_broken_rules_across_settings_are_reported() {
    let error = refusal(&[("LONGHAUL__WORKER__RENEW_SECONDS", "3"), ("LONGHAUL__API__SHUTDOWN_SECONDS", "0")]);
    assert!(error.contains("worker.renew_seconds must be less than half of worker.lease_seconds"), "{error}");
    assert!(error.contains("api.shutdown_seconds"), "{error}");
    for (variable, value, rule) in [
        ("LONGHAUL__WORKER__DRAIN_SECONDS", "1", "worker.drain_seconds must be longer"),
        ("LONGHAUL__WORKER__QUEUES", "ok,Not Ok", "queue name \"Not Ok\""),
        ("LONGHAUL__WORKER__QUEUES", "", "worker.queues must name at least one queue"),
        ("LONGHAUL__DATABASE__LOCK_TIMEOUT_SECONDS", "60", "database.lock_timeout_seconds must be shorter"),
        ("LONGHAUL__REDIS__PREFIX", "a{b", "redis.prefix"),
        ("LONGHAUL__TELEMETRY__LOG_FILTER", "a=b=c", "telemetry.log_filter"),
        ("LONGHAUL__TELEMETRY__TRACE_URL", "javascript:alert('{trace_id}')", "telemetry.trace_url must be"),
        ("LONGHAUL__TELEMETRY__TRACE_URL", "https://traces.example/", "with {trace_id} in it"),
        ("LONGHAUL__LLM__DEFAULT_PROVIDER", "nobody", "llm.default_provider is \"nobody\""),
        ("LONGHAUL_API_KEY_PEPPER", "short", "api.key_pepper must have at least 32 characters"),
        ("LONGHAUL_LLM_URL", "not a url", "llm.providers.custom.base_url must be an http or https URL"),
    ] {
        let error = refusal(&[(variable, value)]);
        assert!(error.contains(rule), "{variable}={value}: {error}");
    }
}

#[test]
fn plain_variables_describe_providers_and_choose_the_default() {
    let config = load(&[("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]).unwrap();
    assert_eq!(config.llm.default_provider, "openai");
    assert_eq!(config.llm.providers["anthropic"].kind, ProviderKind::Anthropic);
    let config = load(&[("OPENAI_API_KEY", "k"), ("LONGHAUL_LLM_URL", "http://127.0.0.1:9/v1")]).unwrap();
    assert_eq!(config.llm.default_provider, "custom");
    assert!(config.llm.providers["custom"].api_key.is_none());
}

#[test]
fn cache_prices_derive_from_the_price_of_input() {
    let of = |kind: &str, more: &str| {
        let prices = format!("prices = [{{ model = 'm', input = 2, output = 1 {more} }}]");
        let file =
            format!("[llm.providers.p]\nkind = '{kind}'\nbase_url = 'http://x'\ndefault_model = 'm'\n{prices}\n");
        let price = with_file(&file, &[]).unwrap().llm.prices().providers["p"].models["m"];
        (price.cached_input.to_string(), price.cache_write_input.to_string())
    };
    assert_eq!(of("anthropic", ""), ("0.20".into(), "2.50".into()));
    assert_eq!(of("openai", ""), ("1.00".into(), "2.50".into()));
    assert_eq!(of("openai", ", cached_input = 0.5, cache_write_input = 2"), ("0.50".into(), "2.00".into()));
}

#[test]
fn provider_from_the_file_keeps_its_settings() {
    let file = "[llm.providers.openai]\nkind = 'openai'\nbase_url = \
        'http://gateway/v1'\n[llm.providers.openai.headers]\nx-team = 'env://TEAM'\n";
    let config = with_file(file, &[("OPENAI_API_KEY", "k")]).unwrap();
    let provider = &config.llm.providers["openai"];
    assert_eq!(provider.base_url.as_deref(), Some("http://gateway/v1"));
    assert_eq!(provider.api_key.as_ref().unwrap().expose_secret(), "env://OPENAI_API_KEY");
    assert_eq!(provider.headers["x-team"].expose_secret(), "env://TEAM");
}

#[test]
fn limits_of_tools_are_named_by_the_user() {
    assert!(load(&[]).unwrap().tools.limits.is_empty());
    let file = "[tools.limits]\nfetch_url = 5\nmcp__crm__search = 1\n";
    let config = with_file(file, &[("LONGHAUL__TOOLS__LIMITS__PAY", "2")]).unwrap();
    let limits: Vec<_> = config.tools.limits.iter().map(|(tool, limit)| (tool.as_str(), *limit)).collect();
    assert_eq!(limits, [("fetch_url", 5), ("mcp__crm__search", 1), ("pay", 2)]);
    let error = with_file("[tools.limits]\npay = 0\n", &[]).unwrap_err().to_string();
    assert!(error.contains("tools.limits.pay must be 1 to 1,000,000"), "{error}");
    assert!(with_file("[tools.limit]\npay = 1\n", &[]).is_err(), "a setting that nobody knows");
}

#[test]
fn provider_timeouts_default_to_the_default_file() {
    let config = load(&[("LONGHAUL_LLM_URL", "http://127.0.0.1:9/v1")]).unwrap();
    let clocks = |name: &str| {
        let provider = &config.llm.providers[name];
        [provider.connect, provider.first_token, provider.gap, provider.total]
    };
    assert_eq!(clocks("custom"), clocks("scripted"));
}

#[test]
fn secrets_are_shown_by_neither_debug_nor_settings() {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2";
    let file = format!(
        "[llm.providers.x]\nkind = 'openai'\nbase_url = 'http://x'\napi_key = '{secret}'\nheaders = {{ a = '{secret}' \
         }}\n"
    );
    let url = format!("postgres://u:{secret}@h/d");
    let environment = [
        ("DATABASE_URL", url.as_str()),
        ("REDIS_URL", url.as_str()),
        ("LONGHAUL_API_KEY_PEPPER", secret),
        ("LONGHAUL_API_KEY", secret),
    ];
    let config = with_file(&file, &environment).unwrap();
    let shown = format!("{config:?} {}", serde_json::to_string(&config.settings()).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(config.settings()["database.url"], "[redacted]");
    assert_eq!(config.database_url().unwrap().expose_secret(), url);
}

#[test]
fn missing_required_setting_names_its_sources() {
    let config = load(&[]).unwrap();
    assert_eq!(
        config.database_url().unwrap_err().to_string(),
        "database.url is not set; set DATABASE_URL, or database.url in the configuration file"
    );
    assert!(config.queue_options().is_err() && config.key_pepper().is_err());
}

#[test]
fn secret_reference_names_its_unset_variable() {
    let config = load(&[("DATABASE_URL", "env://LONGHAUL_TEST_NO_SUCH_VARIABLE")]).unwrap();
    let error = config.database_url().unwrap_err().to_string();
    assert_eq!(error, "the variable LONGHAUL_TEST_NO_SUCH_VARIABLE, which a secret refers to, is not set");
    assert!(resolve_secret("no reference").is_none());
    // Cargo sets this variable for every test.
    assert_eq!(resolve_secret("env://CARGO_PKG_NAME").unwrap().expose_secret(), env!("CARGO_PKG_NAME"));
}
