//! Executions that kill their workers, over three builds: two that die of them, and one that is mended.

use std::time::Duration;

use longhaul_sdk::{DefinitionSpec, spec::ToolRef};
use longhaul_store::quarantine::{QuarantineRules, Tended};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use crate::support::{
    fleet::{Fleet, agent},
    process::WorkerProcess,
    wait::eventually,
};

/// Time limit for workers that die one after the other, each a lease after its start.
const DEATHS_PATIENCE: Duration = Duration::from_secs(180);

/// Worker processes as an orchestrator keeps them: each one that dies is replaced.
struct Processes<'a> {
    fleet: &'a mut Fleet,
    current: WorkerProcess,
    died: usize,
}

impl<'a> Processes<'a> {
    async fn start(fleet: &'a mut Fleet, build: &str) -> Self {
        fleet.set("LONGHAUL__WORKER__BUILD", build);
        let current = WorkerProcess::start(fleet).await;
        Self { fleet, current, died: 0 }
    }

    /// Deploys the next release.
    async fn deploy(&mut self, build: &str) {
        self.fleet.set("LONGHAUL__WORKER__BUILD", build);
        self.current = WorkerProcess::start(self.fleet).await;
    }

    async fn until(&mut self, what: &str, sql: &'static str, wanted: Value) {
        eventually(what, DEATHS_PATIENCE, async || {
            if self.current.has_ended() {
                self.died += 1;
                self.current = WorkerProcess::start(self.fleet).await;
            }
            let found = self.fleet.json(sql).await;
            if found == wanted { Ok(()) } else { Err(format!("{found}, {} workers died", self.died)) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_build_tries_a_canary_before_releasing_all() {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "2");
    fleet.set("LONGHAUL__WORKER__RENEW_SECONDS", "0.6");
    // One permit: a death is one execution's, and no other turn is in flight then.
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "1");
    let mut agent = agent("a");
    agent.tools = vec![ToolRef::Name("fragile".into())];
    fleet.apply(&agent, &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|request| match request.replies() {
        0 => reply_calls([("fragile", json!({"text": "careful"}))]),
        _ => reply_text(r#"{"done": true}"#),
    });
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(fleet.submit("d", json!({"text": "x"})).await);
    }
    let mut processes = Processes::start(&mut fleet, "broken").await;
    let quarantined = "select to_jsonb(count(*)) from quarantine where released_as is null";
    processes.until("all three are convicted", quarantined, json!(3)).await;
    assert_eq!(processes.died, 9, "three for each");
    let record =
        &processes.fleet.json("select to_jsonb(q) from quarantine q order by quarantined_at desc limit 1").await;
    assert_eq!((&record["phase"], &record["last_step"]["kind"]), (&json!("calling fragile"), &json!("turn")));
    assert!(record["memory_bytes"].as_i64().is_some_and(|bytes| bytes > 1_000_000), "{record}");
    let deaths = record["deaths"].as_array().unwrap();
    assert!(deaths.len() >= 3 && deaths.iter().all(|death| death["build"] == "broken"), "{record}");
    assert!(deaths.iter().all(|death| death["worker_id"].is_string() && death["host"].is_string()), "{record}");

    // The same build lives and releases nothing; new executions wait.
    processes
        .until("new ones are held back", "select to_jsonb(held_since is not null) from quarantine_groups", json!(true))
        .await;
    let rules = QuarantineRules {
        auto_release: true,
        hold_after: 3,
        hold_window: Duration::from_secs(3_600),
        release_per_minute: 60,
    };
    assert_eq!(processes.fleet.store.tend_quarantine(&rules).await.unwrap(), Tended::default());
    let late = processes.fleet.submit("d", json!({"text": "y"})).await;
    assert_eq!(processes.fleet.row(late).await["wait_reason"], "queue_paused");

    // The next build dies of its canary.
    let before = processes.died;
    processes.deploy("broken-too").await;
    let died_builds = "select to_jsonb(died_builds) from quarantine_groups";
    processes.until("the canary kills", died_builds, json!(["broken", "broken-too"])).await;
    processes
        .until(
            "its worker is replaced",
            "select to_jsonb(count(*)) from executions where retry_of is not null",
            json!(1),
        )
        .await;
    assert!(processes.died <= before + 1, "one worker is what a canary costs; {} died", processes.died - before);

    // The third build does not.
    processes.deploy("mended").await;
    let finished = "select to_jsonb(count(*)) from executions where status = 'FINISHED'";
    processes.until("all go on", finished, json!(4)).await;
    let fleet = &*processes.fleet;
    let by_release = fleet
        .json(
            "select jsonb_object_agg(how, n) from (
                 select data->>'released' as how, count(*) as n from events
                 where kind = 'submitted' and data->>'released' is not null group by 1
             ) by_release",
        )
        .await;
    assert_eq!(by_release, json!({"canary": 2, "rest": 2}));
    let order = fleet
        .json(
            "select to_jsonb(bool_and(rest.at > canary.ended)) from
                 (select max(e.finished_at) as ended from executions e join events s on s.execution_id = e.id
                  where s.data->>'released' = 'canary' and e.status = 'FINISHED') canary,
                 (select at from events where data->>'released' = 'rest') rest",
        )
        .await;
    assert_eq!(order, json!(true), "the rest follow the canary");
    for id in ids {
        assert_eq!(fleet.row(id).await["failure_code"], "crash_loop", "terminal is terminal");
    }
    assert_eq!(released_twice(fleet).await, json!([]));
    // Turns that were answered before the deaths are not asked again.
    assert!(fleet.llm.calls().values().all(|asked| *asked == 1), "{:?}", fleet.llm.calls());
    assert_eq!(fleet.row(late).await["status"], "FINISHED");
}

async fn released_twice(fleet: &Fleet) -> Value {
    fleet
        .json(
            "select coalesce(jsonb_agg(retry_of), '[]') from (
                 select retry_of from executions where retry_of is not null group by 1 having count(*) > 1
             ) twice",
        )
        .await
}
