use std::collections::BTreeSet;

use super::*;

const MOMENT: Duration = Duration::from_millis(3);

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
    retry_scheduled(FailureClass::Transient);
    lease_lost();
    unheld_lease();
    executions_reaped(1);
    sweep_failed("wake what is due");
    ModelOutcome::ALL.iter().for_each(|outcome| model_call("scripted", *outcome, MOMENT));
    TokenKind::ALL.iter().for_each(|kind| tokens("scripted", *kind, 1));
    breaker_opened("scripted");
    breakers_open("scripted", 1);
    breaker_tending_failed("scripted");
    model_wait(WaitReason::ProviderDown);
    model_fallback("scripted");
    CallOutcome::ALL.iter().for_each(|outcome| tool_call(*outcome, MOMENT));
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
    webhooks_given_up(1);
    webhooks_disabled("gone", 1);
    streams_open(1);
}

fn rendered(happening: impl FnOnce()) -> String {
    let recorder = recorder::recorder().unwrap();
    ::metrics::with_local_recorder(&recorder, happening);
    recorder.handle().render()
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
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        assert!(metric.name.starts_with("longhaul_"), "{}", metric.name);
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
fn queue_labels_are_bounded_with_many_queues() {
    let mut labels = labels::QueueLabels::default();
    let given: BTreeSet<String> = (0..500).map(|n| labels.label(&format!("q{n}"))).collect();
    assert_eq!(given.len(), 101);
    assert_eq!(labels.label("q3"), "q3");
    assert_eq!(labels.label("q400"), "other");
}
