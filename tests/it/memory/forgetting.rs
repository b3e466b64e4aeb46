//! Forgetting: by episode, by scope, with a session and with an execution. Texts, embeddings and edges go.

use longhaul_testkit::model::reply_text;
use serde_json::{Value, json};

use super::{Service, graph, is_update, last_says, remembering};
use crate::{
    api::erase::places,
    retrieval::stub::Stub,
    support::{
        fleet::{Fleet, PATIENCE},
        wait::eventually,
    },
};

/// In the texts of the sessions; `places` looks for it.
const SECRET: &str = "hunter2";

/// A session that says the secret, with an embedding and a relation of it, and one that recalls it.
async fn service(embedder: &Stub) -> Service {
    let mut fleet = Fleet::start().await;
    fleet.set("LONGHAUL__RETRIEVAL__EMBEDDINGS__URL", &embedder.url);
    fleet.set("LONGHAUL__RETRIEVAL__EMBEDDINGS__MODEL", "words");
    let service = Service::of(fleet, remembering(json!({}))).await;
    service.fleet.llm.answer_with(|request| {
        let facts: [(&str, &str, &str, &[i32]); 2] =
            [("Ada", "says", SECRET, &[1]), ("Ada", "visits", "Paris", &[1, 2])];
        if is_update(request) { graph(&["Ada", SECRET, "Paris"], &facts) } else { reply_text("Noted.") }
    });
    service
}

async fn tell(service: &Service) -> String {
    let session = service.begin(json!({})).await;
    service.say(&session, "Ada of Paris has the word hunter2.").await;
    service.say(&session, "Ada is in Paris again.").await;
    service.end_and_remember(&session).await;
    session
}

/// Tables of memory that hold the secret.
async fn of_memory(service: &Service) -> Vec<String> {
    let mut tables = places(&service.api).await;
    tables.retain(|table| table.starts_with("memory_"));
    tables.sort();
    tables
}

async fn relations(service: &Service) -> Value {
    service.fleet.json("select coalesce(jsonb_agg(predicate order by predicate), '[]') from memory_relations").await
}

fn named(session: &str) -> &str {
    session.rsplit('/').next().unwrap()
}

#[tokio::test]
async fn forgetting_removes_text_vector_and_edges() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    let first = tell(&service).await;
    let second = service.begin(json!({})).await;
    service.say(&second, "What is Ada's word?").await;
    assert!(last_says(&service.fleet, SECRET));
    assert_eq!(of_memory(&service).await, ["memory_entities", "memory_episodes"], "the search finds it where it is");
    assert_eq!(relations(&service).await, json!(["says", "visits"]));
    let embedded = service.fleet.json("select to_jsonb(count(embedding_model)) from memory_episodes").await;
    assert_eq!(embedded, 2);

    let episodes = service.episodes("").await;
    let path = format!("/v1/memory/{}", episodes[0]["id"].as_str().unwrap());
    let gone = service.api.acme.delete(&path).await;
    let sessions: Vec<&str> = gone.body["sessions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!((gone.status, &gone.body["episodes"], sessions.len()), (200, &json!(1), 2), "{}", gone.text);
    assert!(sessions.contains(&named(&first)) && sessions.contains(&named(&second)), "{sessions:?}");
    assert_eq!(of_memory(&service).await, Vec::<String>::new());
    assert_eq!(relations(&service).await, json!(["visits"]), "another episode says so too");
    assert_eq!(service.api.acme.delete(&path).await.error(), (404, "not_found"));

    let third = service.begin(json!({})).await;
    service.say(&third, "What is Ada's word?").await;
    assert!(!last_says(&service.fleet, SECRET));
    service.until_idle(&second).await;
    for session in [&first, &second] {
        let deleted = service.api.acme.delete(session).await;
        assert_eq!(deleted.status, 204, "{}", deleted.text);
    }
    assert_eq!(places(&service.api).await, Vec::<String>::new(), "in no table at all");
}

#[tokio::test]
async fn forgotten_exchange_is_not_taken_again() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    let session = tell(&service).await;
    let gone = service.api.acme.delete("/v1/memory?agent=a").await;
    assert_eq!((gone.status, &gone.body["episodes"]), (200, &json!(2)), "{}", gone.text);
    service.say(&session, "Ada has left.").await;
    service.end_and_remember(&session).await;
    let contents: Vec<Value> =
        service.episodes("").await.into_iter().map(|episode| episode["content"].clone()).collect();
    assert_eq!(contents, [json!("User: Ada has left.\nAssistant: Noted.")]);
    assert_eq!(of_memory(&service).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_was_said_and_not_taken_is_forgotten_too() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    let session = service.begin(json!({})).await;
    service.say(&session, "Ada of Paris has the word hunter2.").await;
    let gone = service.api.acme.delete("/v1/memory?agent=a").await;
    assert_eq!((gone.status, &gone.body["episodes"]), (200, &json!(0)), "{}", gone.text);
    assert_eq!(gone.body["sessions"], json!([named(&session)]), "its record holds the text");
    service.say(&session, "Ada has left.").await;
    service.end_and_remember(&session).await;
    let contents: Vec<Value> =
        service.episodes("").await.into_iter().map(|episode| episode["content"].clone()).collect();
    assert_eq!(contents, [json!("User: Ada has left.\nAssistant: Noted.")]);
    let again = service.api.acme.delete("/v1/memory?agent=a&scope=metadata.user=bob").await;
    assert_eq!((&again.body["episodes"], &again.body["sessions"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn recall_during_a_deletion_is_named() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    tell(&service).await;
    let id = service.episodes("").await[0]["id"].as_str().unwrap().to_owned();
    let episode: uuid::Uuid = id.strip_prefix("ep_").unwrap().parse().unwrap();
    let record = uuid::Uuid::new_v4();
    // A recall that has not committed.
    let mut recall = service.fleet.db.pool.begin().await.unwrap();
    sqlx::query("insert into memory_recalls (episode_id, record_id, is_session) values ($1, $2, true)")
        .bind(episode)
        .bind(record)
        .execute(&mut *recall)
        .await
        .unwrap();
    let path = format!("/v1/memory/{id}");
    let (gone, ()) = tokio::join!(service.api.acme.delete(&path), async {
        eventually("the deletion waits for the recall", PATIENCE, || async {
            let waiting = service.fleet.json(
                "select to_jsonb(count(*)) from pg_stat_activity \
                 where datname = current_database() and wait_event_type = 'Lock'",
            );
            let waiting = waiting.await;
            if waiting == 1 { Ok(()) } else { Err(waiting) }
        })
        .await;
        recall.commit().await.unwrap();
    });
    let name = format!("sess_{}", record.simple());
    let named = gone.body["sessions"].as_array().unwrap();
    assert!(named.contains(&json!(name)), "{name} is not in {}", gone.text);
}

#[tokio::test]
async fn copies_of_the_oldest_episode_go_with_it() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    let first = service.begin(json!({})).await;
    service.say(&first, "Ada of Paris has the word hunter2.").await;
    let update = service.end_and_remember(&first).await;
    let others = "insert into memory_episodes (id, tenant_id, agent_key, scope, execution_id, call_key, exchange,
            written_by, content, hash, created_at, updated_at)
        select gen_random_uuid(), m.tenant_id, m.agent_key, m.scope, gen_random_uuid(), '', 1, gen_random_uuid(), 'x',
            '', longhaul_now(), longhaul_now()
        from memory_episodes m, generate_series(1, 9999)";
    sqlx::query(others).execute(&service.fleet.db.pool).await.unwrap();
    let second = service.begin(json!({})).await;
    service.say(&second, "Hello.").await;
    service.end_and_remember(&second).await;
    assert_eq!(of_memory(&service).await, Vec::<String>::new(), "the oldest one is forgotten");
    eventually("the copies in the update are erased", PATIENCE, || async {
        let count: i64 = sqlx::query_scalar("select count(*) from memory_updates where execution_id = $1")
            .bind(update.0)
            .fetch_one(&service.fleet.db.pool)
            .await
            .unwrap();
        if count == 0 { Ok(()) } else { Err(count) }
    })
    .await;
}

#[tokio::test]
async fn failed_erasure_holds_up_no_other() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let worker = service.fleet.worker();
    let mut updates = Vec::new();
    for _ in 0..2 {
        let session = service.begin(json!({})).await;
        service.say(&session, "Ada of Paris has the word hunter2.").await;
        updates.push(service.end_and_remember(&session).await.0);
    }
    worker.drain().await;
    updates.sort();
    let broken = format!(
        "update memory_updates set is_void = true;
        create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'refused' using errcode = 'check_violation'; end $$;
        create trigger refuse before delete on memory_updates for each row
            when (old.execution_id = '{}') execute function refuse()",
        updates[0]
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(broken)).execute(&service.fleet.db.pool).await.unwrap();
    service.fleet.store.erase_void_copies().await.expect_err("one cannot be erased");
    let left = service.fleet.json("select jsonb_agg(execution_id) from memory_updates").await;
    assert_eq!(left, json!([updates[0].to_string()]));
}

#[tokio::test]
async fn failed_change_changes_nothing() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    tell(&service).await;
    let read = service.episodes("").await[0].clone();
    let broken = "create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'refused' using errcode = 'check_violation'; end $$;
        create trigger refuse before delete on memory_entity_sources for each row execute function refuse()";
    sqlx::raw_sql(broken).execute(&service.fleet.db.pool).await.unwrap();
    let path = format!("/v1/memory/{}", read["id"].as_str().unwrap());
    let body = json!({ "content": "Ada has a word." }).to_string();
    let headers = [("if-match", read["hash"].as_str().unwrap())];
    let failed = service.api.acme.send(reqwest::Method::PUT, &path, Some(body), &headers).await;
    assert!(failed.status >= 400, "{}", failed.text);
    assert_eq!(service.episodes("").await[0], read);
}

#[tokio::test]
async fn deleted_session_is_forgotten() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    let session = tell(&service).await;
    let deleted = service.api.acme.delete(&session).await;
    assert_eq!(deleted.status, 204, "{}", deleted.text);
    assert_eq!(service.episodes("").await, Vec::<Value>::new());
    assert_eq!(relations(&service).await, json!([]));
    assert_eq!(places(&service.api).await, Vec::<String>::new(), "the update's journal is erased too");
}

#[tokio::test]
async fn erased_execution_is_forgotten() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    tell(&service).await;
    let first = service.episodes("").await[0].clone();
    let path = format!("/v1/executions/{}/content", first["execution_id"].as_str().unwrap());
    assert_eq!(service.api.acme.delete(&path).await.status, 200);
    assert_eq!(service.episodes("").await.len(), 1);
    assert_eq!(places(&service.api).await, Vec::<String>::new(), "in no table at all");
}

#[tokio::test]
async fn change_needs_the_hash_that_was_read() {
    let embedder = Stub::embedder().await;
    let service = service(&embedder).await;
    let _worker = service.fleet.worker();
    tell(&service).await;
    let read = service.episodes("").await[0].clone();
    let (id, hash) = (read["id"].as_str().unwrap(), read["hash"].as_str().unwrap());
    let put = async |if_match: &str, content: &str| {
        let body = json!({ "content": content }).to_string();
        let headers = [("if-match", if_match)];
        service.api.acme.send(reqwest::Method::PUT, &format!("/v1/memory/{id}"), Some(body), &headers).await
    };
    let changed = put(&format!("\"{hash}\""), "Ada has a word.").await;
    assert_eq!((changed.status, &changed.body["version"]), (200, &json!(2)), "{}", changed.text);
    assert_eq!(of_memory(&service).await, Vec::<String>::new(), "the old text and what came from it are gone");
    assert_eq!(relations(&service).await, json!(["visits"]));
    assert_eq!(put(hash, "Ada is late.").await.error(), (409, "stale_hash"));
    for (if_match, content) in [("", "x"), (hash, ""), (hash, &"x".repeat(10_001))] {
        let refused = put(if_match, content).await;
        assert_eq!(refused.error(), (422, "invalid_request"), "{}", refused.text);
    }
    assert_eq!(service.episodes("").await[0]["content"], "Ada has a word.");
}
