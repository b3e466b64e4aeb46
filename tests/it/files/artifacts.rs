//! Files that calls leave.

use std::time::Duration;

use bytes::Bytes;
use longhaul_domain::{FileId, LeaseToken, WorkerId};
use longhaul_store::{
    StoreError,
    files::{BODY_GRACE, NewArtifact},
    history::prune::Retention,
};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Value, json};

use super::{Draw, PNG, PNG_BASE64, Service};

const AGE: Duration = Duration::from_secs(31 * 24 * 3_600);
const JPEG: &[u8] = b"\xff\xd8\xff\xe0jpeg";

/// Names, types and sizes of an execution's artifacts.
async fn artifacts(service: &Service, id: &str) -> Vec<(String, String, u64)> {
    let answer = service.api.acme.get(&format!("/v1/executions/{id}/artifacts")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let listed = answer.body["artifacts"].as_array().unwrap();
    let mut all: Vec<_> =
        listed.iter().map(|one| (text(one, "name"), text(one, "type"), one["size"].as_u64().unwrap())).collect();
    all.sort();
    all
}

async fn bodies(service: &Service) -> i64 {
    service.fleet.advance(BODY_GRACE + Duration::from_secs(1)).await;
    service.api.files.sweep().await.unwrap();
    sqlx::query_scalar("select count(*) from file_bodies").fetch_one(&service.fleet.db.pool).await.unwrap()
}

async fn drawn(service: &Service, agent: &str) -> String {
    service.fleet.llm.push(reply_calls([("draw", json!({"note": "n"}))]));
    service.fleet.llm.push(reply_text("done"));
    let id = service.ask(agent, json!([{"type": "text", "text": "draw"}])).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    id.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_leaves_files_that_are_listed_shown_and_downloaded() {
    let service = Service::start().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let id = drawn(&service, "sees").await;
    let expected =
        [(".._plot.png", "image/png", PNG.len() as u64), ("page.html", "text/html", 17), ("plot.png", "text/plain", 1)];
    let expected = expected.map(|(name, kind, size)| (name.to_owned(), kind.to_owned(), size));
    assert_eq!(artifacts(&service, &id).await, expected);
    let seen = service.fleet.llm.requests()[1].messages().to_vec();
    let url = json!({"url": format!("data:image/png;base64,{PNG_BASE64}")});
    assert_eq!(seen.last().unwrap()["content"][1], json!({"type": "image_url", "image_url": url}));
    let page = service.api.acme.get(&format!("/v1/executions/{id}/artifacts/page.html")).await;
    assert_eq!((page.status, page.text.as_str()), (200, "<script></script>"));
    assert_eq!(page.header("content-disposition"), "attachment; filename=\"page.html\"");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let listed = service.api.acme.get(&format!("/v1/executions/{id}/artifacts")).await;
    let first = listed.body["artifacts"][0]["file_id"].as_str().unwrap();
    assert_eq!(service.api.acme.get(&format!("/v1/executions/{id}/artifacts/{first}")).await.status, 200);
    assert_eq!(service.api.acme.get(&format!("/v1/executions/{id}/artifacts/none")).await.status, 404);
    let other = service.api.caller("other", crate::support::api::EVERYDAY).await;
    assert_eq!(other.get(&format!("/v1/executions/{id}/artifacts")).await.status, 404);
    assert_eq!(other.get(&format!("/v1/executions/{id}/artifacts/page.html")).await.status, 404);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_go_with_their_execution() {
    let service = Service::start().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let id = drawn(&service, "blind").await;
    assert_eq!(bodies(&service).await, 3);
    let erased = service.api.acme.delete(&format!("/v1/executions/{id}/content")).await;
    assert_eq!(erased.status, 200, "{}", erased.text);
    assert_eq!(artifacts(&service, &id).await, []);
    assert_eq!(bodies(&service).await, 0);
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_shares_the_files_of_shared_steps() {
    let service = Service::start().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let id = drawn(&service, "blind").await;
    let call: i32 = sqlx::query_scalar("select seq from steps where execution_id = $1 and kind = 'call'")
        .bind(id.parse::<uuid::Uuid>().unwrap())
        .fetch_one(&service.fleet.db.pool)
        .await
        .unwrap();
    // The forks are looked at before a worker has them.
    worker.drain().await;
    let mut left = Vec::new();
    for from_step in [call, call + 1] {
        service.fleet.llm.push(reply_text("forked"));
        let path = format!("/v1/executions/{id}/fork");
        let fork = service.api.acme.post(&path, &json!({"from_step": from_step})).await;
        assert_eq!(fork.status, 201, "{}", fork.text);
        let fork = fork.body["id"].as_str().unwrap().to_owned();
        left.push(artifacts(&service, &fork).await.len());
        let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
        service.fleet.ended(fork.parse().unwrap()).await;
        worker.drain().await;
    }
    assert_eq!(left, [0, 3]);
    assert_eq!(service.api.acme.delete(&format!("/v1/executions/{id}/content")).await.status, 200);
    assert_eq!(bodies(&service).await, 3, "the fork has them");
}

#[tokio::test(flavor = "multi_thread")]
async fn pruned_execution_takes_its_files_along() {
    let service = Service::start().await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let picture = crate::api::files::put_file(&service.api.acme, "p.png", "image/png", PNG).await;
    service.fleet.llm.push(reply_text("seen"));
    let id = service.ask("sees", json!([{"type": "file", "file_id": picture}])).await;
    assert_eq!(service.fleet.ended(id).await["status"], "FINISHED");
    worker.drain().await;
    service.fleet.advance(Duration::from_secs(40 * 24 * 3_600)).await;
    assert_eq!(bodies(&service).await, 1, "the upload has expired, the execution is there");
    let retention = Retention::new(AGE).unwrap();
    assert_eq!(service.fleet.store.prune(retention).await.unwrap().executions, 1);
    assert_eq!(bodies(&service).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lease_keeps_no_artifact() {
    let service = Service::start().await;
    let id = service.ask("blind", json!([{"type": "text", "text": "draw"}])).await;
    let hash = service.api.files.put(service.fleet.tenant, &Bytes::from_static(PNG)).await.unwrap();
    let artifact = NewArtifact {
        id: FileId::random(),
        hash,
        length: PNG.len() as u64,
        media_type: "image/png".into(),
        name: "p.png".into(),
    };
    let lease = (WorkerId::random(), id, LeaseToken(uuid::Uuid::new_v4()));
    let kept = service.fleet.store.keep_artifacts(lease, &[7; 32], &[artifact]).await;
    assert!(matches!(kept, Err(StoreError::LeaseLost)), "{kept:?}");
    assert_eq!(artifacts(&service, &id.to_string()).await, []);
    assert_eq!(bodies(&service).await, 0, "what was not named in time is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_over_the_quota_is_told_to_the_model() {
    let mut fleet = crate::support::fleet::Fleet::start().await;
    for name in ["TENANT", "REQUEST"] {
        fleet.set(&format!("LONGHAUL__FILES__{name}_BYTES"), "20971520");
    }
    let service = Service::of(fleet).await;
    let most = vec![b'a'; 20 * 1024 * 1024 - 20];
    crate::api::files::put_file(&service.api.acme, "a.txt", "text/plain", &most).await;
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let id = drawn(&service, "blind").await;
    assert_eq!(artifacts(&service, &id).await.len(), 2, "what fits is kept");
    let told = service.fleet.llm.requests()[1].last_text();
    let refused =
        format!("[file ../plot.png, image/png, {} bytes: not kept, because the quota of files is used up]", PNG.len());
    assert!(told.contains(&refused), "{told}");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_keeps_files_longer_than_its_executions() {
    let service = Service::start().await;
    let mut agent = super::drawing("talker", vec![longhaul_sdk::spec::FileInput::Images]);
    agent.prompts.conversation = "You draw.".into();
    service.fleet.store.put_shared_agent(&agent).await.unwrap();
    let worker = service.fleet.worker_with(|builder| builder.tool(Draw).unwrap());
    let picture = crate::api::files::put_file(&service.api.acme, "p.jpg", "image/jpeg", JPEG).await;
    let session = service.api.acme.post("/v1/sessions", &json!({"agent": "talker"})).await;
    let path = format!("/v1/sessions/{}", session.body["id"].as_str().unwrap());
    let say = async |message: Value| {
        let sent = service.api.acme.post(&format!("{path}/messages"), &json!({"message": message})).await;
        assert_eq!(sent.status, 202, "{}", sent.text);
        let id = sent.body["execution_id"].as_str().unwrap().parse().unwrap();
        let row = service.fleet.ended(id).await;
        assert_eq!(row["status"], "FINISHED", "{row}");
    };
    service.fleet.llm.push(reply_calls([("draw", json!({"note": "n"}))]));
    service.fleet.llm.push(reply_text("done"));
    say(json!([{"type": "text", "text": "like"}, {"type": "file", "file_id": picture}])).await;
    service.fleet.llm.push(reply_text("again"));
    say(json!("once more")).await;
    let requests = service.fleet.llm.requests();
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/4GpwZWc="}});
    assert_eq!(requests[2].messages()[1]["content"], json!([{"type": "text", "text": "like"}, image]));
    // Without its execution and its upload the session still has the bytes.
    assert_eq!(service.api.acme.delete(&format!("/v1/files/{picture}")).await.status, 204);
    // From here on the memory may also call the model, for a session that was idle.
    service.fleet.llm.answer_with(|_| reply_text("still"));
    service.fleet.advance(AGE / 2).await;
    say(json!("still here")).await;
    service.fleet.advance(AGE / 2).await;
    let pruned = service.fleet.store.prune(Retention::new(AGE).unwrap()).await.unwrap();
    assert_eq!((pruned.executions, pruned.sessions), (2, 0));
    assert_eq!(bodies(&service).await, 4);
    say(json!("and again")).await;
    let sent = service.fleet.llm.requests();
    let last = sent.iter().find(|request| request.last_text() == "and again").unwrap();
    assert_eq!(last.messages()[1], requests[2].messages()[1]);
    assert_eq!(service.api.acme.delete(&path).await.status, 204);
    assert_eq!(bodies(&service).await, 0, "the session's files go with it");
    worker.drain().await;
}
