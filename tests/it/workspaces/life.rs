//! Workspaces of sessions, children, forks and retries, and their end.

use std::time::Duration;

use longhaul_domain::ExecutionId;
use longhaul_store::{files::BODY_GRACE, history::prune::Retention};
use longhaul_testkit::model::{Captured, Reply, reply_calls, reply_text};
use serde_json::json;

use super::{Bench, bash, files_agent, list, read, results, with_tools, write};
use crate::support::copies;

const DAY: Duration = Duration::from_secs(86_400);

impl Bench {
    async fn say(&self, session: &str, message: &str) -> ExecutionId {
        let answer = self.api.acme.post(&format!("{session}/messages"), &json!({ "message": message })).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        let id = answer.body["execution_id"].as_str().unwrap().parse().unwrap();
        let row = self.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
        id
    }

    async fn begin(&self) -> String {
        let answer = self.api.acme.post("/v1/sessions", &json!({"agent": "files"})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        format!("/v1/sessions/{}", answer.body["id"].as_str().unwrap())
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.fleet.db.pool).await.unwrap()
    }

    /// Rows of workspaces, and bodies after a sweep.
    async fn left(&self) -> (i64, i64) {
        self.fleet.advance(BODY_GRACE + Duration::from_secs(1)).await;
        self.api.files.sweep().await.unwrap();
        let rows = "select (select count(*) from workspaces) + (select count(*) from workspace_entries)
                    + (select count(*) from workspace_changes)";
        (self.count(rows).await, self.count("select count(*) from file_bodies").await)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_session_share_its_workspace() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let session = bench.begin().await;
    bench.script([vec![write("notes", "first")]]);
    let first = bench.say(&session, "one").await;
    bench.script([vec![read("notes"), bash("echo second >> notes")], vec![read("notes")]]);
    bench.say(&session, "two").await;
    assert_eq!(bench.results()[1..], ["first", "(the command printed nothing)", "firstsecond\n"]);
    let other = bench.begin().await;
    bench.script([vec![list("")]]);
    bench.say(&other, "three").await;
    assert_eq!(bench.results(), ["(the directory is empty)"]);
    // A message's execution goes before its session, which lasts while it is used.
    bench.fleet.advance(20 * DAY).await;
    bench.script([vec![read("notes")]]);
    bench.say(&session, "still there?").await;
    bench.fleet.advance(20 * DAY).await;
    let retention = Retention::new(31 * DAY).unwrap();
    let pruned = bench.fleet.store.prune(retention).await.unwrap();
    assert_eq!((pruned.executions, pruned.sessions), (3, 1), "the other session was not used for 40 days");
    assert_eq!(bench.fleet.json("select to_jsonb(count(*)) from workspace_entries where until is null").await, 1);
    bench.script([vec![read("notes")]]);
    bench.say(&session, "four").await;
    assert_eq!(bench.results().last().unwrap(), "firstsecond\n", "after {first}");
    assert_eq!(bench.api.acme.delete(&session).await.status, 204);
    assert_eq!(bench.left().await, (0, 0));
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn child_has_a_workspace_of_its_own() {
    let spawns = json!({"name": "spawn_sub_agent", "settings": {"agents": ["child"]}});
    let tools = [json!("write_file"), json!("list_files"), spawns];
    let Some(bench) = Bench::of(with_tools("files", tools)).await else { return };
    bench.fleet.store.put_shared_agent(&files_agent("child")).await.unwrap();
    bench.fleet.store.put_agent_definition().await.unwrap();
    bench.fleet.llm.answer_with(|request: &Captured| -> Reply {
        let is_child = request.messages()[1]["content"].as_str().is_some_and(|text| text.contains("look around"));
        match (is_child, request.replies()) {
            (false, 0) => reply_calls([write("of-parent", "p")]),
            (false, 1) => {
                reply_calls([("spawn_sub_agent", json!({"tasks": [{"agent": "child", "prompt": "look around"}]}))])
            }
            (false, 2) => reply_calls([list("")]),
            (true, 0) => reply_calls([list(""), write("of-child", "c")]),
            (_, _) => reply_text(&results(request).join("; ")),
        }
    });
    let worker = bench.fleet.worker();
    let id = bench.submit().await;
    assert_eq!(bench.fleet.ended(id).await["status"], "FINISHED");
    let all = bench.results();
    assert!(all[1].contains("the directory is empty"), "{all:?}");
    assert_eq!(all[2], "of-parent 1 bytes");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_begins_with_the_files_of_its_steps() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    bench.script([vec![write("f", "1")], vec![write("f", "2"), write("g", "2")], vec![bash("echo 3 > f; rm g")]]);
    let id = bench.submit().await;
    assert_eq!(bench.fleet.ended(id).await["status"], "FINISHED");
    let turns: Vec<i32> =
        sqlx::query_scalar("select seq from steps where execution_id = $1 and kind = 'turn' order by seq")
            .bind(id.0)
            .fetch_all(&bench.fleet.db.pool)
            .await
            .unwrap();
    let mut origin = id.to_string();
    for (at, files) in [(3, "f: 3\n"), (2, "f: 2g: 2"), (1, "f: 1"), (0, "")] {
        bench.fleet.llm.push(reply_calls([bash("for f in *; do test ! -e $f || { echo -n \"$f: \"; cat $f; }; done")]));
        bench.fleet.llm.push(reply_text("forked"));
        let fork = format!("/v1/executions/{origin}/fork");
        let fork = bench.api.acme.post(&fork, &json!({"from_step": turns[at]})).await;
        assert_eq!(fork.status, 201, "{}", fork.text);
        // The next is a fork of this fork.
        origin = fork.body["id"].as_str().unwrap().to_owned();
        let forked: ExecutionId = origin.parse().unwrap();
        assert_eq!(bench.fleet.ended(forked).await["status"], "FINISHED");
        let seen = bench.results().last().unwrap().clone();
        assert_eq!(seen, if files.is_empty() { "(the command printed nothing)" } else { files }, "fork before {at}");
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_of_a_message_sees_no_later_files() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    let session = bench.begin().await;
    bench.script([vec![write("f", "1")]]);
    bench.say(&session, "one").await;
    bench.script([vec![list("")]]);
    let reader = bench.say(&session, "two").await;
    bench.script([vec![write("g", "3")]]);
    bench.say(&session, "three").await;
    let answer: i32 = sqlx::query_scalar("select max(seq) from steps where execution_id = $1 and kind = 'turn'")
        .bind(reader.0)
        .fetch_one(&bench.fleet.db.pool)
        .await
        .unwrap();
    bench.script([vec![list("")]]);
    let fork = format!("/v1/executions/{reader}/fork");
    let fork = bench.api.acme.post(&fork, &json!({"from_step": answer})).await;
    assert_eq!(fork.status, 201, "{}", fork.text);
    let forked: ExecutionId = fork.body["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(bench.fleet.ended(forked).await["status"], "FINISHED");
    assert_eq!(bench.results().last().unwrap(), "f 1 bytes");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_goes_with_its_execution() {
    let Some(bench) = Bench::start().await else { return };
    let worker = bench.fleet.worker();
    for is_pruned in [false, true] {
        bench.script([vec![write("f", "hunter2"), bash("echo more >> f; ln -s f l; mkdir d")]]);
        let id = bench.submit().await;
        assert_eq!(bench.fleet.ended(id).await["status"], "FINISHED");
        let (rows, bodies) = bench.left().await;
        assert!(rows > 0 && bodies > 0);
        if is_pruned {
            bench.fleet.advance(40 * DAY).await;
            bench.fleet.store.prune(Retention::new(31 * DAY).unwrap()).await.unwrap();
        } else {
            let erased = bench.api.acme.delete(&format!("/v1/executions/{id}/content")).await;
            assert_eq!(erased.status, 200, "{}", erased.text);
        }
        assert_eq!(bench.left().await, (0, 0), "pruned: {is_pruned}");
        let copies = copies::in_database(&bench.fleet.db.pool, "hunter2").await;
        assert_eq!(copies, Vec::<String>::new(), "pruned: {is_pruned}");
    }
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_quota_covers_workspaces() {
    let Some(mut bench) = Bench::start().await else { return };
    bench.fleet.set("LONGHAUL__FILES__TENANT_BYTES", "20971520");
    let worker = bench.fleet.worker();
    let results = bench
        .run([vec![
            bash("head -c 20971520 /dev/urandom > a"),
            bash("head -c 1000 /dev/urandom > b"),
            write("c", "c"),
            list(""),
        ]])
        .await;
    for refused in &results[1..3] {
        assert_eq!(super::error(refused)["message"], "the quota of files is used up");
    }
    assert_eq!(results[3], "a 20971520 bytes");
    worker.drain().await;
}

/// An overwritten file counts until the sweep has removed its bytes.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_counts_when_it_is_written() {
    let Some(mut bench) = Bench::start().await else { return };
    bench.fleet.set("LONGHAUL__FILES__TENANT_BYTES", "20971520");
    let worker = bench.fleet.worker();
    let rewrite = || bash("head -c 9000000 /dev/urandom > a");
    let results = bench.run([vec![rewrite(), rewrite(), rewrite(), list("")]]).await;
    assert_eq!(super::error(&results[2])["message"], "the quota of files is used up");
    assert_eq!(results[3], "a 9000000 bytes");
    worker.drain().await;
}
