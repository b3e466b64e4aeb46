//! Files of deploy/ and their guides, which must name metrics, series, alerts and settings that exist.

use std::collections::BTreeSet;

use longhaul_telemetry::metrics::{Kind, METRICS};
use regex::Regex;

const RECORDING: &str = include_str!("../../deploy/prometheus/recording.yml");
const ALERTS: &str = include_str!("../../deploy/prometheus/alerts.yml");
const RUNBOOK: &str = include_str!("../../docs/guide/runbook.md");
const DASHBOARD: &str = include_str!("../../deploy/grafana/longhaul.json");
/// Texts with PromQL.
const QUERIES: [&str; 5] = [RECORDING, ALERTS, RUNBOOK, DASHBOARD, include_str!("../../deploy/prometheus/tests.yaml")];
/// Texts with variables of processes.
const ENVIRONMENTS: [&str; 9] = [
    include_str!("../../deploy/compose.yaml"),
    include_str!("../../deploy/helm/longhaul/templates/_helpers.tpl"),
    include_str!("../../deploy/helm/longhaul/templates/api.yaml"),
    include_str!("../../deploy/helm/longhaul/templates/worker.yaml"),
    include_str!("../../deploy/helm/longhaul/templates/sandbox.yaml"),
    include_str!("../../deploy/systemd/longhaul-worker@.service"),
    include_str!("../../deploy/systemd/longhaul-sandbox.service"),
    include_str!("../../docs/guide/deploy.md"),
    include_str!("../../docs/guide/operations.md"),
];

/// First groups of all matches in the texts.
fn found(pattern: &str, texts: &[&str]) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    texts.iter().flat_map(|text| pattern.captures_iter(text)).map(|found| found[1].to_owned()).collect()
}

/// Metrics by the names of their series.
fn series() -> Vec<(String, &'static [&'static str])> {
    let mut series = Vec::new();
    for metric in METRICS {
        match metric.kind {
            Kind::Counter | Kind::FractionCounter | Kind::Gauge => series.push((metric.name.to_owned(), metric.labels)),
            Kind::Histogram(_) => {
                series
                    .extend(["bucket", "sum", "count"].map(|part| (format!("{}_{part}", metric.name), metric.labels)));
            }
        }
    }
    series
}

#[test]
fn queries_name_existing_metrics_and_labels() {
    let series = series();
    let labels_of = |name: &str| series.iter().find(|(own, _)| own == name).map(|(_, labels)| *labels);
    let named = found(r"\b((?:longhaul|gen_ai|process)_[a-z0-9_]+)", &QUERIES);
    // Labels have the prefix too.
    let is_label = |name: &str| series.iter().any(|(_, labels)| labels.contains(&name));
    let named: BTreeSet<String> = named.into_iter().filter(|name| !is_label(name)).collect();
    assert!(named.len() > 30, "{named:?}");
    for name in &named {
        assert!(labels_of(name).is_some(), "there is no series {name}");
    }
    let selector = Regex::new(r"\b((?:longhaul|gen_ai|process)_[a-z0-9_]+)\{([^}]*)\}").unwrap();
    let label = Regex::new(r"([a-z_]+)\s*(?:=|!=|=~|!~)").unwrap();
    for selected in QUERIES.iter().flat_map(|text| selector.captures_iter(text)) {
        for label in label.captures_iter(&selected[2]) {
            let is_known = labels_of(&selected[1]).is_some_and(|labels| labels.contains(&&label[1]));
            assert!(is_known || ["instance", "job", "le"].contains(&&label[1]), "{}", &selected[0]);
        }
    }
}

#[test]
fn queries_name_recorded_series() {
    let recorded = found(r"record: (longhaul:\S+)", &[RECORDING]);
    let named = found(r"\b(longhaul:[a-z0-9_:]*[a-z0-9])", &QUERIES);
    assert!(named.len() > 20, "{named:?}");
    assert_eq!(named.difference(&recorded).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn every_alert_has_its_runbook_entry() {
    let alerts = found(r"- alert: (\w+)", &[ALERTS]);
    assert!(alerts.len() > 20, "{alerts:?}");
    assert_eq!(alerts, found(r"(?m)^### (Longhaul\w+)$", &[RUNBOOK]));
    let linked = found(r"runbook: docs/guide/runbook.md#(\w+)", &[ALERTS]);
    assert_eq!(linked, alerts.iter().map(|alert| alert.to_lowercase()).collect());
    assert_eq!(alerts, found(r"alertname: (\w+)", &QUERIES), "an alert without a test in tests.yaml");
}

#[test]
fn variables_of_deployments_are_settings() {
    let (mut section, mut settings) = (String::new(), BTreeSet::new());
    for line in include_str!("../../deploy/config.default.toml").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.replace('.', "__");
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            settings.insert(format!("LONGHAUL__{section}__{key}").to_uppercase());
        }
    }
    let named = found(r"\b(LONGHAUL__[A-Z0-9_]+)", &ENVIRONMENTS);
    assert!(named.len() > 5, "{named:?}");
    assert_eq!(named.difference(&settings).collect::<Vec<_>>(), Vec::<&String>::new());
}
