use std::collections::BTreeSet;

use super::*;
use longhaul_shared::clock::{Clock, SystemClock};

const MOMENT: Duration = Duration::from_millis(3);
const ASKED: AskedModel<'_> = AskedModel { provider: "scripted", model: "m-1" };

fn backlog(queue: &str, due: u64) -> QueueBacklog {
    QueueBacklog { queue: queue.to_owned(), due, oldest: MOMENT }
}

fn everything_happens() {
    journals_handed_on();
    queue_backlogs(&[backlog("default", 7)]);
    workers_wanted(2);
    WaitReason::ALL.iter().for_each(|reason| executions_waiting(*reason, 1));
    start_latency(MOMENT);
    wakeups_published(1);
    wakeups_republished(1);
    WakeupDrop::ALL.iter().for_each(|why| wakeups_dropped(*why, 1));
    looks_dropped(1);
    ClaimReason::ALL.iter().for_each(|reason| claims(*reason, 1));
    unstarted_released(1);
    redis_away(true);
    handler_panics();
    executions_submitted(1);
    executions_ended(None, 1);
    attempts_started(1);
    attempts_running(1);
    permits(4);
    drop(PermitInUse::new());
    retry_scheduled(FailureClass::Transient);
    lease_lost();
    unheld_lease();
    executions_reaped(1);
    sweep_failed("wake due executions");
    item_set_aside("schedules");
    ModelOutcome::ALL.iter().for_each(|outcome| model_call(ASKED, *outcome, None, MOMENT));
    TokenKind::ALL.iter().for_each(|kind| tokens(ASKED, *kind, 1));
    first_chunk(ASKED, MOMENT);
    model_cost(ASKED, Usd::from_nanos(1));
    breaker_opened("scripted");
    breakers_open("scripted", 1);
    breaker_tending_failed("scripted");
    model_wait(WaitReason::ProviderDown);
    model_fallback("scripted");
    CallOutcome::ALL.iter().for_each(|outcome| tool_call("search", *outcome, Some(MOMENT)));
    platform_providers([1, 1, 1]);
    file_uploaded();
    FilePlace::ALL.iter().for_each(|place| file_stored(*place, 3));
    FileRefusal::ALL.iter().for_each(|why| file_refused(*why));
    StoreBatch::ALL.iter().for_each(|batch| store_batch(*batch, 3, MOMENT));
    RefusalSubject::ALL.iter().for_each(|subject| store_refused(*subject));
    store_in_trouble(1);
    oldest_snapshot(MOMENT, true);
    api_request("/v1/executions", "POST", 201, Duration::from_millis(3));
    webhook_attempt("delivered");
    reaction_failed("webhook");
    reaction_backlog("webhook", Duration::from_secs(1), 1);
    webhooks_given_up(1);
    webhooks_disabled("gone", 1);
    streams_open(1);
    build_info("longhaul-test");
}

fn rendered(happening: impl FnOnce()) -> String {
    let recorder = recorder::recorder().unwrap();
    ::metrics::with_local_recorder(&recorder, || {
        happening();
        recorder::text(&recorder.handle())
    })
}

#[test]
fn the_table_describes_exactly_the_metrics_that_exist() {
    let text = rendered(everything_happens);
    let exist: BTreeSet<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let described: BTreeSet<(&str, &str)> = METRICS.iter().map(|metric| (metric.name, metric.kind.as_str())).collect();
    assert_eq!(exist, described);
}

#[test]
fn the_table_names_the_labels_of_each() {
    let text = rendered(everything_happens);
    for metric in METRICS {
        let of_it = |line: &&str| {
            let rest = line.strip_prefix(metric.name).unwrap_or_default();
            ["{", " ", "_sum{", "_sum "].iter().any(|next| rest.starts_with(next))
        };
        let line = text.lines().find(of_it).unwrap_or_else(|| panic!("{} is not rendered", metric.name));
        let given = line.split('{').nth(1).map_or("", |labels| labels.split('}').next().unwrap_or_default());
        let names: Vec<&str> =
            given.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect();
        assert_eq!(names, metric.labels, "{line}");
    }
}

#[test]
fn counters_and_only_counters_end_in_total() {
    for metric in METRICS {
        assert_eq!(metric.name.ends_with("_total"), metric.kind.as_str() == "counter", "{}", metric.name);
        let is_ours = ["longhaul_", "gen_ai_", "process_"].iter().any(|prefix| metric.name.starts_with(prefix));
        assert!(is_ours, "{}", metric.name);
    }
}

#[test]
fn durations_fall_into_the_stated_buckets() {
    let text = rendered(|| start_latency(MOMENT));
    assert!(text.contains("longhaul_executions_start_latency_seconds_bucket{le=\"0.0025\"} 0"), "{text}");
    assert!(text.contains("longhaul_executions_start_latency_seconds_bucket{le=\"0.005\"} 1"), "{text}");
}

#[test]
fn drained_queue_is_exported_as_empty() {
    let text = rendered(|| {
        queue_backlogs(&[backlog("gone", 7), backlog("stays", 2)]);
        queue_backlogs(&[backlog("stays", 3)]);
    });
    assert!(text.contains("longhaul_queue_depth_executions{queue=\"gone\"} 0"), "{text}");
    assert!(text.contains("longhaul_queue_oldest_age_seconds{queue=\"gone\"} 0"), "{text}");
    assert!(text.contains("longhaul_queue_depth_executions{queue=\"stays\"} 3"), "{text}");
}

#[test]
fn labels_that_users_choose_are_bounded() {
    let mut labels = labels::BoundedLabel::default();
    assert_eq!(labels.of(&"x".repeat(201)), "other");
    let given: BTreeSet<String> = (0..500).map(|n| labels.of(&format!("q{n}"))).collect();
    assert_eq!(given.len(), 100, "ninety-nine and `other`");
    assert_eq!(labels.of("q3"), "q3");
    assert_eq!(labels.of("q400"), "other");
}

#[test]
fn models_and_tools_beyond_the_bound_share_one_series() {
    let text = rendered(|| {
        for n in 0..300 {
            let model = format!("m-{n}");
            tokens(AskedModel { provider: "p", model: &model }, TokenKind::Input, 2);
            model_cost(AskedModel { provider: "p", model: &model }, Usd::from_nanos(1));
            tool_call(&format!("tool-{n}"), CallOutcome::Ok, Some(MOMENT));
        }
    });
    for start in [
        "gen_ai_client_inference_usage_input_tokens_total{",
        "longhaul_model_cost_usd_total{",
        "gen_ai_execute_tool_duration_seconds_count{",
    ] {
        let series = || text.lines().filter(|line| line.starts_with(start));
        assert!((50..=101).contains(&series().count()), "{start}: {}", series().count());
        assert!(series().any(|line| line.contains("\"other\"")), "{start}");
    }
}

#[test]
fn parts_of_a_queue_add_up() {
    let text = rendered(|| queue_backlogs(&[backlog("halves", 7), backlog("halves", 2)]));
    assert!(text.contains("longhaul_queue_depth_executions{queue=\"halves\"} 9"), "{text}");
}

#[test]
fn cost_is_rendered_in_dollars() {
    let text = rendered(|| {
        for nanos in [1_250_000_000, 7] {
            model_cost(AskedModel { provider: "priced", model: "m-1" }, Usd::from_nanos(nanos));
        }
    });
    let line = text.lines().find(|line| line.starts_with("longhaul_model_cost_usd_total{")).unwrap();
    assert!(line.ends_with("} 1.250000007"), "{line}");
}

#[test]
fn process_metrics_have_plausible_values() {
    let text = rendered(|| ());
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let cpu = value("process_cpu_seconds_total");
    assert!(cpu > 0.0 && cpu < 100_000.0, "{cpu}");
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
    let started = value("process_start_time_seconds");
    let now = SystemClock::default().now().timestamp_millis() as f64 / 1_000.0;
    assert!((now - 86_400.0..=now).contains(&started), "{started}");
}

#[test]
fn dropped_permit_is_no_longer_in_use() {
    let text = rendered(|| {
        permits(4);
        let held = PermitInUse::new();
        drop(PermitInUse::new());
        std::mem::forget(held);
    });
    assert!(text.contains("longhaul_worker_permits 4") && text.contains("longhaul_worker_permits_in_use 1"), "{text}");
}
