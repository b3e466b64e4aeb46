//! What becomes of a tick: a run, or the reason why there is none.

use chrono::TimeDelta;
use longhaul_testkit::model::{reply_status, reply_text};
use serde_json::json;

use super::{Service, at, minute, minutes, now, states};
use crate::support::{
    fleet::{PATIENCE, agent},
    wait::eventually,
};

#[tokio::test]
async fn each_tick_starts_one_run() {
    let service = Service::start().await;
    service.create(json!({"cron": "*/5 * * * *"})).await;
    let _worker = service.fleet.worker();
    let first = service.to_next_tick().await;
    let firings = service.until(1, "over").await;
    assert_eq!((at(&firings[0]), &firings[0]["status"]), (first, &json!("FINISHED")));
    let second = service.to_next_tick().await;
    assert_eq!(second - first, TimeDelta::minutes(5));
    let firings = service.until(2, "over").await;
    assert_ne!(firings[0]["execution_id"], firings[1]["execution_id"]);
    let shown = service.show("s").await;
    assert_eq!((&shown["status"], &shown["running"]), (&json!("active"), &json!(null)));
    assert_eq!(shown["last_tick_at"], firings[1]["tick"]);
}

#[tokio::test]
async fn one_time_is_completed_after_its_tick() {
    let service = Service::start().await;
    let once = now(&service.fleet).await + TimeDelta::hours(2);
    service.create(json!({"at": once})).await;
    let _worker = service.fleet.worker();
    assert_eq!(service.to_next_tick().await, once);
    service.until(1, "over").await;
    let shown = service.show("s").await;
    assert_eq!((&shown["status"], &shown["next_tick_at"]), (&json!("completed"), &json!(null)));
}

#[tokio::test]
async fn no_tick_comes_after_the_end() {
    let service = Service::start().await;
    let end = now(&service.fleet).await + TimeDelta::minutes(5);
    service.create(json!({"interval_seconds": 120, "ends_at": end})).await;
    // Both ticks are missed; the one for both comes before the end.
    service.fleet.advance(minutes(60)).await;
    let _worker = service.fleet.worker();
    let firings = service.until(1, "over").await;
    assert_eq!(
        at(&firings[0]) - firings[0]["first_tick"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap(),
        TimeDelta::minutes(2)
    );
    assert!(at(&firings[0]) <= end);
    assert_eq!(service.show("s").await["status"], "completed");
}

#[tokio::test]
async fn end_moved_before_a_due_tick_ends_the_schedule() {
    let service = Service::start().await;
    let end = |at: chrono::DateTime<chrono::Utc>| json!({"interval_seconds": 60, "ends_at": at.to_rfc3339()});
    service.create(json!({"interval_seconds": 60})).await;
    let start = now(&service.fleet).await;
    service.fleet.advance(std::time::Duration::from_secs(90)).await;
    // No worker has looked since.
    let sql = "update schedules set spec = (spec::jsonb || $1)::json";
    sqlx::query(sql).bind(end(start + TimeDelta::seconds(30))).execute(&service.fleet.db.pool).await.unwrap();
    let _worker = service.fleet.worker();
    eventually("it is completed", PATIENCE, || async {
        let shown = service.show("s").await;
        if shown["status"] == "completed" { Ok(()) } else { Err(shown) }
    })
    .await;
    assert!(service.firings("s").await.is_empty());
}

#[tokio::test]
async fn tick_during_a_run_is_skipped() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60})).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    service.until(1, "running").await;
    service.to_next_tick().await;
    let firings = service.until(2, "skipped").await;
    assert_eq!((states(&firings), &firings[1]["reason"]), (vec!["running", "skipped"], &json!("overlap")));
    gate.open();
    service.fleet.ended(firings[0]["execution_id"].as_str().unwrap().parse().unwrap()).await;
    service.to_next_tick().await;
    assert_eq!(states(&service.until(3, "over").await), ["over", "skipped", "over"]);
}

#[tokio::test]
async fn queued_ticks_run_one_after_the_other() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60, "overlap": "queue"})).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    for count in 1..=3 {
        service.to_next_tick().await;
        service.until(count, if count == 1 { "running" } else { "queued" }).await;
    }
    assert_eq!(service.show("s").await["queued"], 2);
    gate.open();
    let firings = service.until(3, "over").await;
    assert_eq!(states(&firings), ["over"; 3]);
    let mut last_end = None;
    for firing in &firings {
        let row = service.fleet.row(firing["execution_id"].as_str().unwrap().parse().unwrap()).await;
        let time = |field: &str| row[field].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        assert!(last_end.is_none_or(|end| end <= time("created_at")), "{firings:#?}");
        last_end = Some(time("finished_at"));
    }
}

#[tokio::test]
async fn refused_queued_ticks_leave_none_waiting() {
    let service = Service::start().await;
    let month = json!({"max_model_calls": 1});
    let overlap = json!({"interval_seconds": 60, "overlap": "queue", "monthly_budget": month, "pause_after": 0});
    service.create(overlap).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    for count in 1..=4 {
        service.to_next_tick().await;
        service.until(count, if count == 1 { "running" } else { "queued" }).await;
    }
    gate.open();
    // The first has spent the month, so no tick comes after them that would start them.
    assert_eq!(states(&service.until(4, "skipped").await), ["over", "skipped", "skipped", "skipped"]);
    assert_eq!(service.show("s").await["queued"], 0);
}

#[tokio::test]
async fn newest_tick_takes_the_place_of_the_run() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60, "overlap": "cancel_running", "pause_after": 1})).await;
    let gate = service.hold();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    let first = service.until(1, "running").await[0].clone();
    service.to_next_tick().await;
    let firings = service.until(2, "running").await;
    assert_eq!((&firings[0]["state"], &firings[0]["failure_code"]), (&json!("over"), &json!("cancelled")));
    let summary = service.fleet.row(first["execution_id"].as_str().unwrap().parse().unwrap()).await;
    assert_eq!(summary["failure_code"], "cancelled");
    gate.open();
    service.until(2, "over").await;
    // A cancel is no failure.
    assert_eq!(service.show("s").await["status"], "active");
}

#[tokio::test]
async fn missed_ticks_are_caught_up_by_one_run() {
    let service = Service::start().await;
    service.create(json!({"cron": "*/10 * * * *"})).await;
    let first = service.to_next_tick().await;
    service.fleet.advance(minutes(60 * 24 * 3 + 5)).await;
    let _worker = service.fleet.worker();
    let firings = service.until(1, "over").await;
    assert_eq!(firings[0]["first_tick"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap(), first);
    assert_eq!(at(&firings[0]), first + TimeDelta::days(3));
    let next = service.to_next_tick().await;
    assert_eq!(next, at(&firings[0]) + TimeDelta::minutes(10));
    service.until(2, "over").await;
}

#[tokio::test]
async fn missed_ticks_start_nothing_without_catch_up() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 600, "catch_up": "none"})).await;
    service.to_next_tick().await;
    service.fleet.advance(minutes(2)).await;
    let _worker = service.fleet.worker();
    let firings = service.until(1, "skipped").await;
    assert_eq!(firings[0]["reason"], "missed");
    service.to_next_tick().await;
    service.until(2, "over").await;
}

#[tokio::test]
async fn five_failures_in_a_row_pause_the_schedule() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60})).await;
    service.fleet.llm.answer_with(|_| reply_status(400, "bad"));
    let _worker = service.fleet.worker();
    for count in 1..=5 {
        assert_eq!(service.show("s").await["status"], "active", "after {} failures", count - 1);
        service.to_next_tick().await;
        service.until(count, "over").await;
    }
    let paused = service.show("s").await;
    assert_eq!((&paused["status"], &paused["pause_reason"]), (&json!("paused"), &json!("failures")));
    assert_eq!((&paused["failures_in_a_row"], &paused["next_tick_at"]), (&json!(5), &json!(null)));
    service.fleet.llm.answer_with(|_| reply_text("done"));
    // Also a paused schedule can be run; a success does not resume it.
    assert_eq!(service.post("/run").await.status, 202);
    service.until(6, "over").await;
    assert_eq!(service.show("s").await["status"], "paused");
    assert_eq!(service.post("/resume").await.body["failures_in_a_row"], 0);
    let resumed = service.fleet.store.now().await.unwrap();
    assert!(service.to_next_tick().await - resumed <= minute());
    service.until(7, "over").await;
}

#[tokio::test]
async fn success_resets_the_count_of_failures() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60, "pause_after": 2})).await;
    let _worker = service.fleet.worker();
    for (count, fails) in [(1, true), (2, false), (3, true)] {
        service.fleet.llm.answer_with(move |_| if fails { reply_status(400, "bad") } else { reply_text("done") });
        service.to_next_tick().await;
        service.until(count, "over").await;
    }
    let shown = service.show("s").await;
    assert_eq!((&shown["status"], &shown["failures_in_a_row"]), (&json!("active"), &json!(1)));
}

#[tokio::test]
async fn run_that_cannot_start_counts_as_failure() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60, "pause_after": 1})).await;
    service.fleet.store.remove_agent_version(None, "a", 1).await.unwrap();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    let firings = service.until(1, "skipped").await;
    assert_eq!(firings[0]["reason"], "unknown_agent");
    assert_eq!(service.show("s").await["pause_reason"], "failures");
}

#[tokio::test]
async fn revoked_key_starts_nothing_more() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60, "pause_after": 1})).await;
    sqlx::query("update api_keys set revoked_at = longhaul_now()").execute(&service.fleet.db.pool).await.unwrap();
    let _worker = service.fleet.worker();
    service.to(now(&service.fleet).await + TimeDelta::minutes(2)).await;
    eventually("it is paused", PATIENCE, || async {
        let row: (Option<String>, Option<String>) = sqlx::query_as(
            "select s.pause_reason, f.reason from schedules s left join schedule_firings f on f.schedule_id = s.id",
        )
        .fetch_one(&service.fleet.db.pool)
        .await
        .unwrap();
        if row == (Some("failures".into()), Some("agent_not_allowed".into())) {
            Ok(())
        } else {
            Err(format!("{row:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn unreadable_schedule_does_not_stop_the_others() {
    let service = Service::start().await;
    service.create(json!({"key": "gone", "cron": "* * * * *", "time_zone": "Europe/Berlin"})).await;
    service.create(json!({"cron": "* * * * *"})).await;
    // A zone that this release does not know.
    let sql = "update schedules set spec = replace(spec::text, 'Berlin', 'Atlantis')::json where key = 'gone'";
    sqlx::query(sql).execute(&service.fleet.db.pool).await.unwrap();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    service.until(1, "over").await;
}

#[tokio::test]
async fn newest_version_runs_unless_one_is_named() {
    let service = Service::start().await;
    service.create(json!({"interval_seconds": 60})).await;
    let mut newer = agent("a");
    newer.name = "Newer".into();
    service.fleet.store.put_shared_agent(&newer).await.unwrap();
    let _worker = service.fleet.worker();
    service.to_next_tick().await;
    let firings = service.until(1, "over").await;
    let path = format!("/v1/executions/{}", firings[0]["execution_id"].as_str().unwrap());
    let execution = service.api.acme.get(&path).await.body;
    assert_eq!(execution["agent"]["version"], 2, "{execution}");
}
