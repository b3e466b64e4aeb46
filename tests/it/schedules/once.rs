//! Two APIs and three workers, killed and started again: every tick is fired exactly once.

use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_api::ApiOptions;
use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};
use sqlx::Row;

use super::{Service, minutes, now};
use crate::support::{api::TestApi, fleet::agent, wait::eventually};

/// Schedules and minutes of injected time; `SCHEDULES_LOAD=1000,10` is the whole load.
#[expect(clippy::disallowed_methods, reason = "a setting of the test run")]
fn load() -> (usize, u64) {
    let given = std::env::var("SCHEDULES_LOAD").ok();
    let given = given.as_deref().and_then(|text| text.split_once(','));
    given.map_or((60, 5), |(schedules, minutes)| (schedules.parse().unwrap(), minutes.parse().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tick_fires_once_while_processes_die() {
    let (count, length) = load();
    let service = Service::of(&agent("a")).await;
    service.fleet.llm.answer_with(|_| reply_text("done"));
    let other = TestApi::over(&service.fleet, ApiOptions::default()).await;
    let start = now(&service.fleet).await;
    for number in 0..count {
        // The same tenant, by both processes.
        let url = if number % 2 == 0 { &service.api.acme.url } else { &other.acme.url };
        let caller = crate::support::api::Caller { url: url.clone(), ..service.api.acme.clone() };
        let overlap = ["skip", "queue"][number % 2];
        let body = json!({
            "key": format!("s{number:04}"), "agent": "a", "input": {"prompt": "hi"},
            "interval_seconds": 60 + number % 7 * 30,
            "overlap": overlap,
        });
        let answer = caller.post("/v1/schedules", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    let mut workers = [service.fleet.worker(), service.fleet.worker(), service.fleet.worker()];
    for half in 0..2 * length {
        service.fleet.advance(Duration::from_secs(30)).await;
        // While its ticks are fired.
        let victim = usize::try_from(half).unwrap() % workers.len();
        std::mem::replace(&mut workers[victim], service.fleet.worker()).kill().await;
        until_nothing_is_due(&service).await;
    }
    let end = service.fleet.store.now().await.unwrap();
    let ticks = ticks(&service).await;
    for schedule in sqlx::query("select key, anchored_at, spec::text as spec from schedules")
        .fetch_all(&service.fleet.db.pool)
        .await
        .unwrap()
    {
        let spec: Value = serde_json::from_str(schedule.get("spec")).unwrap();
        let every = TimeDelta::seconds(spec["interval_seconds"].as_i64().unwrap());
        let (key, anchor): (String, DateTime<Utc>) = (schedule.get("key"), schedule.get("anchored_at"));
        let expected: Vec<DateTime<Utc>> =
            (1..).map(|number| anchor + every * number).take_while(|tick| *tick <= end).collect();
        let fired: Vec<DateTime<Utc>> =
            ticks.iter().filter(|(of, _, _)| *of == key).map(|(_, _, tick)| *tick).collect();
        assert_eq!(fired, expected, "{key}");
        // None stands for another.
        assert!(ticks.iter().filter(|(of, _, _)| *of == key).all(|(_, first, tick)| first == tick), "{key}");
    }
    assert!(end - start >= TimeDelta::from_std(minutes(length)).unwrap() && ticks.len() >= count);
    no_run_is_doubled(&service).await;
}

async fn until_nothing_is_due(service: &Service) {
    eventually("nothing is due", Duration::from_secs(600), || async {
        let due: i64 = sqlx::query_scalar(
            "select count(*) from schedules where next_fire_at <= longhaul_now() and paused_at is null",
        )
        .fetch_one(&service.fleet.db.pool)
        .await
        .unwrap();
        if due == 0 { Ok(()) } else { Err(due) }
    })
    .await;
}

/// Key, oldest tick and tick of every firing.
async fn ticks(service: &Service) -> Vec<(String, DateTime<Utc>, DateTime<Utc>)> {
    let rows = sqlx::query(
        "select s.key, f.first_tick, f.tick from schedule_firings f join schedules s on s.id = f.schedule_id
         where f.kind = 'tick' order by s.key, f.tick",
    );
    let rows = rows.fetch_all(&service.fleet.db.pool).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

/// Each execution of a schedule has one firing, and each firing with an execution has its own.
async fn no_run_is_doubled(service: &Service) {
    let of = |sql: &'static str| async move {
        let ids: Vec<uuid::Uuid> = sqlx::query_scalar(sql).fetch_all(&service.fleet.db.pool).await.unwrap();
        (ids.len(), ids.into_iter().collect::<BTreeSet<_>>())
    };
    let executions = of("select id from executions where schedule_id is not null").await;
    let fired = of("select execution_id from schedule_firings where execution_id is not null").await;
    assert_eq!(executions, fired);
    let all = of("select id from executions").await;
    assert_eq!(all, executions, "an execution of no firing");
}
